"""What in a run limits the answers: remarks that belong beside the figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tracekit.analysis.ranks import RankFigures
from tracekit.analysis.rows import Row
from tracekit.analysis.selection import Part
from tracekit.core.errors import Note
from tracekit.model.run import TraceSet

#: an unlinked share below this is the usual fringe of a window
UNLINKED_FRAC = 0.01


def rank_remarks(part: Part, figures: RankFigures) -> list[Note]:
    """Remarks on one rank."""
    trace, work, row = part.trace, part.work, figures.rank
    events = row["events"]
    where = trace.file
    notes: list[Note] = []

    def say(code: str, text: str, severity: str = "warning") -> None:
        level = "info" if severity == "info" else "warning"
        notes.append(Note(code, f"rank {trace.rank}: {text}", level, where))  # type: ignore[arg-type]

    if not len(work):
        say("no-work", "no work in this window")
    if work.timeline == "host" and work.compute_known:
        say("host-timeline", "no device events; compute is host operators", "info")
    if not work.compute_known:
        say("collectives-only", "a flight recording holds collectives only; no compute", "info")
    if events["dropped"]:
        say("dropped", f"{events['dropped']:,} events with impossible times left out")
    if events["clipped"]:
        say("clipped", f"{events['clipped']:,} events with absurd ends cut at the next start")
    if events["unlinked"] > UNLINKED_FRAC * max(1, events["timed"]):
        text = f"{events['unlinked']:,} of {events['timed']:,} device events have no launch record"
        say("unlinked", f"{text}; they count in the window but belong to no step", "info")
    if not work.comm_known:
        text = "the device records no communication; host rows of collectives are given apart"
        say("host-comm-only", text)
    if not len(part.steps) and work.compute_known:
        say("no-steps", "no ProfilerStep annotations; the whole trace is one window", "info")
    if empty := [s["step"] for s in figures.steps if not s["num_work"]]:
        shown = ", ".join(map(str, empty[:8]))
        say("empty-steps", f"steps without any work (their launches were cut off): {shown}")
    return notes


def run_remarks(
    run: TraceSet, labels: dict[int, list[int]], ranks: list[Row], collectives: list[Row]
) -> list[Note]:
    """Remarks on the run as a whole."""
    return [
        *_absent_ranks(run),
        *_uneven_steps(labels),
        *_silent_device(run, ranks),
        *_unknown_groups(run, collectives),
        *_unsized(collectives),
    ]


def _absent_ranks(run: TraceSet) -> Iterable[Note]:
    size = run.world_size
    many = max(size or 0, max(run.ranks) + 1)
    have = set(run.ranks)
    num_missing = many - len(have)
    if num_missing and len(run.ranks) > 1:
        first = itertools.islice((r for r in range(many) if r not in have), 12)
        shown = ", ".join(map(str, first)) + (", …" if num_missing > 12 else "")
        text = f"{num_missing:,} of {many:,} ranks are missing: {shown}; waiting for them is unknown"
        yield Note("missing-ranks", text, "warning")
    elif num_missing and size:
        text = f"one rank of {size}; waiting and bandwidth across ranks cannot be told"
        yield Note("missing-ranks", text, "info")


def _uneven_steps(labels: dict[int, list[int]]) -> Iterable[Note]:
    every = {n for own in labels.values() for n in own}
    lacking = {r: sorted(every - set(own)) for r, own in labels.items() if every - set(own)}
    if every and lacking:
        rank, steps = next(iter(sorted(lacking.items())))
        more = f" (and {len(lacking) - 1} more ranks lack some)" if len(lacking) > 1 else ""
        shown = ", ".join(map(str, steps[:8]))
        yield Note("uneven-steps", f"rank {rank} lacks steps {shown} that others have{more}")


def _silent_device(run: TraceSet, ranks: list[Row]) -> Iterable[Note]:
    several = (run.world_size or len(run.ranks)) > 1
    device = [r for r in ranks if r["timeline"] == "device"]
    if several and device and all(r["comm_us"] == 0 for r in device):
        text = (
            "no communication was recognised in a job of several ranks; if kernels do "
            "communicate, name them with --names"
        )
        yield Note("no-communication", text)


def _unknown_groups(run: TraceSet, collectives: list[Row]) -> Iterable[Note]:
    unknown = sum(c["group"] is None and c["size"] is None for c in collectives)
    if unknown:
        text = (
            f"{unknown:,} of {len(collectives):,} collectives carry no group metadata: "
            "their group, bytes and bandwidth are not known"
        )
        yield Note("unknown-groups", text, "info")


def _unsized(collectives: list[Row]) -> Iterable[Note]:
    odd = sorted({
        str(c["dtype"]) for c in collectives if c["dtype"] and c["bytes"] is None
        and (c["in_elems"] or c["out_elems"])
    })  # fmt: skip
    if odd:
        yield Note("unknown-dtype", f"bytes of dtype {', '.join(odd[:6])} are not known")
