"""The questions an overview answers at once, each with one line and its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dashboards.digest import Digest, Row
from tracekit.plot.drawing import PARTS
from tracekit.plot.palette import ROLES
from tracekit.report import summary, words

#: fewer steps than this tell nothing of a trend
LEAST_STEPS = 6
#: a change below this fraction is the scatter of any run
STEADY_FRAC = 0.03
#: how sure a trend must be, in standard deviations of the number of rising pairs
SURE_Z = 2.0
#: of many steps so many are compared with each other
MOST_STEPS = 400


@dataclass(frozen=True, slots=True)
class Answer:
    """One question and its answer.

    Attributes
    ----------
    question : str
    answer : str
        A few words.
    detail : str
        The figures it rests on, or what is missing and how to record it.
    is_known : bool
    """

    question: str
    answer: str
    detail: str
    is_known: bool = True


def shares(totals: Row) -> list[tuple[str, str, float, float]]:
    """The parts of the window: role, words, µs and fraction, in the palette's order."""
    row = summary.divided(totals)
    found = []
    for role, figure in PARTS:
        part = words.fraction(row.get(figure), row.get("window_us"))
        if part is not None:
            found.append((role, ROLES[role].label, float(row[figure]), part))
    return found


def where(digest: Digest) -> Answer:
    """Say where the time goes."""
    question = "Where does the time go?"
    row = summary.divided(digest.totals)
    told = [
        (words.fraction(row.get(figure), row.get("window_us")), label)
        for figure, label in (
            ("compute_us", "compute"),
            ("exposed_comm_us", "exposed communication"),
            ("exposed_memory_us", "memory copies"),
            ("other_us", "other work"),
            ("idle_us", "idle"),
        )
    ]
    parts = sorted(((f, label) for f, label in told if f), reverse=True)
    if not parts:
        return Answer(question, words.NOT_KNOWN, "no work was recorded", is_known=False)
    first, *rest = [f"{words.percent(part)} {label}" for part, label in parts]
    return Answer(question, first, ", ".join(rest))


def waits_or_moves(digest: Digest) -> Answer:
    """Say how much of the exposed communication is waiting, how much transfer."""
    question = "Exposed communication: waiting or moving bytes?"
    totals = digest.totals
    exposed = totals.get("exposed_comm_us")
    if exposed is None:
        text = "the trace tells of communication on the host only"
        return Answer(question, words.NOT_KNOWN, text, is_known=False)
    if not exposed:
        hidden = "all communication is hidden" if totals.get("comm_us") else "no communication"
        return Answer(question, "none is exposed", hidden)
    wait, move, unknown = (
        words.fraction(totals.get(f"exposed_{part}_us"), exposed) or 0.0
        for part in ("wait", "transfer", "unknown")
    )
    amounts = [
        f"{_ms(totals.get(f'exposed_{part}_us'))} {label}"
        for part, label in (("wait", "waiting"), ("transfer", "moving bytes"))
    ]
    if unknown > 0.5:
        text = "give the traces of all ranks of one job: waiting shows only across ranks"
        return Answer(question, f"{words.percent(unknown)} not known", text, is_known=False)
    if unknown:
        amounts.append(f"{_ms(totals.get('exposed_unknown_us'))} not known")
    said = (
        f"{words.percent(wait)} waiting" if wait >= move else f"{words.percent(move)} moving bytes"
    )
    return Answer(question, said, ", ".join(amounts))


def axes(digest: Digest) -> list[tuple[str, float, float]]:
    """Axes (or groups) by exposed time: name, µs and fraction of all time, the most first.

    The exposed time of an axis is its share of the exposed instants, so that all add up.
    """
    window = digest.totals.get("window_us")
    groups = summary.groups(digest.rows("groups"), ("exposed_share_us",))
    return [
        (group.label or words.NOT_KNOWN, share, words.fraction(share, window) or 0.0)
        for group in groups
        if (share := group.sums["exposed_share_us"])
    ]


def exposed_axis(digest: Digest) -> Answer:
    """Say which axis costs most exposed time."""
    question = "Which axis costs most exposed time?"
    told = axes(digest)
    if not told:
        known = digest.totals.get("exposed_comm_us") is not None
        said = "none" if known else words.NOT_KNOWN
        return Answer(question, said, "no exposed communication", is_known=known)
    if told[0][0] == words.NOT_KNOWN:
        text = (
            "the trace names no process groups; record with torch 2.4 or later and NCCL, "
            "and describe groups with new_group(group_desc=…)"
        )
        return Answer(question, words.NOT_KNOWN, text, is_known=False)
    if len(told) == 1:
        return Answer(question, told[0][0], "all exposed communication is on it")
    lead = told[0][1] / sum(share for _, share, _ in told)
    return Answer(question, told[0][0], f"{words.percent(lead)} of the exposed communication")


def last_rank(digest: Digest) -> Answer:
    """Say which rank arrives last."""
    question = "Which rank arrives last?"
    rows = [row for row in digest.rows("stragglers") if row["num_matched"]]
    late = sum(row["late_us"] or 0.0 for row in rows)
    if len(rows) < 2 or not late:
        text = "no collective was matched across ranks; give the traces of all ranks of one job"
        return Answer(question, words.NOT_KNOWN, text, is_known=False)
    first, second = rows[0], rows[1]
    share = first["late_us"] / late
    often = f"last in {first['num_last']:,} of {first['num_matched']:,} collectives"
    text = f"{often}, {_ms(first['late_us'])} behind the others ({words.percent(share)} of all)"
    text += f"; next rank {second['rank']}: {_ms(second['late_us'])}"
    said = f"rank {first['rank']}"
    return Answer(question, said if share >= 0.5 else f"{said}, but not alone", text)


def trend(digest: Digest) -> Answer:
    """Say whether it is getting worse over the steps."""
    question = "Is it getting worse over the steps?"
    steps = digest.frame("steps")
    slowest = steps.groupby("step")["window_us"].max().dropna()
    if not len(slowest):
        text = "no steps are marked; call prof.step() after each training step"
        return Answer(question, words.NOT_KNOWN, text, is_known=False)
    values = [float(value) for value in slowest]
    if len(values) < LEAST_STEPS:
        shown = " → ".join(_ms(value) for value in values)
        text = f"{words.counted(len(values), 'step')}: {shown} (slowest rank)"
        return Answer(question, "too few steps to tell", text, is_known=False)
    third = len(values) // 3
    before, after = median(values[:third]), median(values[-third:])
    change = after / before - 1
    text = (
        f"median of the first {words.counted(third, 'step')} {_ms(before)}, "
        f"of the last {_ms(after)} (slowest rank)"
    )
    if abs(change) < STEADY_FRAC or abs(rising(values)) < SURE_Z:
        return Answer(question, "no, steady", text)
    said = f"yes, +{100 * change:.1f} %" if change > 0 else f"no, {100 * change:.1f} %"
    return Answer(question, said, text)


def limits(digest: Digest) -> Answer:
    """Say what in the trace limits the answers."""
    question = "What in the trace limits this?"
    kinds = summary.notes(digest.rows("notes"))
    if not kinds:
        return Answer(question, "nothing found", "")
    counts = {
        name: sum(k.count for k in kinds if k.severity == name) for name in summary.SEVERITIES
    }
    names = {"error": "error", "warning": "warning", "info": "remark"}
    said = [words.counted(n, names[key]) for key, n in counts.items() if n]
    return Answer(question, ", ".join(said), "")


def all_answers(digest: Digest) -> list[Answer]:
    """Every question, in the order they are read."""
    asked = (where, waits_or_moves, exposed_axis, last_rank, trend, limits)
    return [ask(digest) for ask in asked]


def rising(values: Sequence[float]) -> float:
    """How sure it is that values rise (or fall, negative): Mann and Kendall's statistic.

    Examples
    --------
    >>> rising([1.0] * 8), rising([1, 2, 3, 4, 5, 6, 7, 8]) > 2
    (0.0, True)
    """
    every = max(1, math.ceil(len(values) / MOST_STEPS))
    held = values[::every]
    n = len(held)
    score = sum(
        (later > sooner) - (later < sooner)
        for at, sooner in enumerate(held)
        for later in held[at + 1 :]
    )
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18) if n > 1 else 1.0
    return 0.0 if not score else (score - math.copysign(1, score)) / deviation


def _ms(value_us: float | None) -> str:
    """A time of a sentence: about four figures, with its unit."""
    if value_us is None:
        return words.NOT_KNOWN
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if abs(value_us) >= factor:
            return f"{value_us / factor:.4g} {unit}"
    return f"{value_us:.3g} µs"
