"""What limits the answers, in one wording for the check and the analysis: a sentence, its cost.

Each function makes the note on one finding. ``who`` names the ranks concerned, as `ranks_text`
does; ``file`` is the file of a single one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tracekit.core.errors import Note, one_line

#: an unlinked share below this is the usual fringe of a window
UNLINKED_FRAC = 0.01


def ranks_text(ranks: Iterable[int], most: int = 6) -> str:
    """``rank 3``, ``ranks 0-3, 7``; of many runs of ranks the first and a count.

    Examples
    --------
    >>> ranks_text([7, 0, 1, 2]), ranks_text([5]), ranks_text(range(0, 9, 2), most=2)
    ('ranks 0-2, 7', 'rank 5', 'ranks 0, 2, … (5 in all)')
    """
    there = sorted(set(ranks))
    return f"{'rank' if len(there) == 1 else 'ranks'} {numbers_text(there, most)}"


def numbers_text(numbers: Iterable[int], most: int = 6) -> str:
    """Numbers with runs joined: ``0-3, 7``; of many runs the first and a count."""
    runs: list[tuple[int, int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return _runs_text(runs, most)


def gaps_text(numbers: Iterable[int], low: int, high: int, most: int = 6) -> str:
    """What lies between ``low`` and ``high`` (left out) and is not among the numbers.

    Not counted one by one: a hostile file leaves out 10**18.

    Examples
    --------
    >>> gaps_text([1, 2, 5], 0, 10**18), gaps_text([0, 1], 0, 2)
    ('0, 3-4, 6-999999999999999999', '')
    """
    there = [low - 1, *sorted({n for n in numbers if low <= n < high}), high]
    return _runs_text([(a + 1, b - 1) for a, b in pairwise(there) if b - a > 1], most)


def _runs_text(runs: list[tuple[int, int]], most: int) -> str:
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    if len(texts) <= most:
        return ", ".join(texts)
    return f"{', '.join(texts[:most])}, … ({sum(b - a + 1 for a, b in runs)} in all)"


def quoted(text: str, most: int = 60) -> str:
    """A text from a trace, on one line and not too long, between quotes."""
    return f"'{one_line(text.strip(), most)}'"


def time_text(ns: int, signed: bool = False) -> str:
    """A time in the unit that suits it.

    Examples
    --------
    >>> time_text(31_250), time_text(-2_500_000_000, signed=True), time_text(0, signed=True)
    ('31.25 us', '-2.5 s', '0 us')
    """
    unit, word = next((u for u in ((10**9, "s"), (10**6, "ms")) if abs(ns) >= u[0]), (10**3, "us"))
    sign = "+" if signed and ns > 0 else ""
    return f"{sign}{ns / unit:.4g} {word}"


# -- of one or several ranks ------------------------------------------------------------------


def no_work(who: str, file: str = "") -> Note:
    """Nothing to account for."""
    text = (
        f"{who}: no work in this window, so there are no figures; record while the model trains, "
        "with ProfilerActivity.CPU and that of the device"
    )
    return Note("no-work", text, "warning", file)


def host_timeline(who: str, file: str = "") -> Note:
    """A CPU run."""
    text = f"{who}: no device events; compute is the time of host operators"
    return Note("host-timeline", text, "info", file)


def collectives_only(who: str, file: str = "") -> Note:
    """A flight-recorder dump, or a recording that says it knows no compute."""
    text = (
        f"{who}: this recording holds collectives only, so compute, overlap and idle time are "
        "not known; torch.profiler records them"
    )
    return Note("collectives-only", text, "info", file)


def dropped(who: str, count: int, file: str = "") -> Note:
    """Impossible times."""
    text = f"{who}: {count:,} events with impossible times were left out, and their time with them"
    return Note("dropped", text, "warning", file)


def clipped(who: str, count: int, file: str = "") -> Note:
    """Absurd ends."""
    text = (
        f"{who}: {count:,} events with absurd ends were cut at the next start of their stream; "
        "their true length is not known"
    )
    return Note("clipped", text, "warning", file)


def unlinked(who: str, count: int, timed: int, file: str = "") -> Note:
    """Device events whose launch is not in the window."""
    text = (
        f"{who}: {count:,} of {timed:,} device events have no launch record; they count in the "
        "window but belong to no step (launched before recording began, or a warmup step is "
        "missing in torch.profiler.schedule)"
    )
    return Note("unlinked", text, "info", file)


def host_comm_only(who: str, file: str = "") -> Note:
    """Communication only on the host (XPU)."""
    text = (
        f"{who}: the device records no communication; the host rows of collectives are given "
        "apart, and overlap, exposed and idle time are not known"
    )
    return Note("host-comm-only", text, "warning", file)


def no_steps(who: str, file: str = "") -> Note:
    """No step annotations."""
    text = (
        f"{who}: no ProfilerStep annotations, so the whole trace is one window; call prof.step() "
        "after each training step"
    )
    return Note("no-steps", text, "info", file)


def repeated_steps(repeated: Mapping[int, Collection[int]]) -> Iterable[Note]:
    """Step numbers that one rank annotated several times."""
    held = {rank: steps for rank, steps in repeated.items() if steps}
    if held:
        numbers = {n for steps in held.values() for n in steps}
        text = (
            f"{ranks_text(held)}: steps annotated more than once: {numbers_text(numbers)}; each "
            "annotation counts by itself, so what is said of such a step mixes several (was a "
            "second profiler or training loop running?)"
        )
        yield Note("repeated-steps", text)


def empty_steps(who: str, steps: Iterable[int], file: str = "") -> Note:
    """Steps annotated on the host whose work was cut off."""
    text = f"{who}: steps without any work (their launches were cut off): {numbers_text(steps)}"
    return Note("empty-steps", text, "warning", file)


# -- of the run -------------------------------------------------------------------------------


def missing_ranks(ranks: Collection[int], world_size: int | None) -> Iterable[Note]:
    """Ranks of the job whose traces are not here."""
    many = max(world_size or 0, max(ranks, default=-1) + 1)
    num_missing = many - len(set(ranks))
    if num_missing and len(ranks) > 1:
        text = (
            f"{num_missing} of {many} ranks are missing ({gaps_text(ranks, 0, many)}): waiting for "
            "them is not known, nor is a straggler among them; give the traces of all ranks"
        )
        yield Note("missing-ranks", text, "warning")
    elif num_missing and world_size:
        text = (
            f"one rank of {world_size}: waiting and bandwidth across ranks cannot be told; give "
            "the traces of all ranks"
        )
        yield Note("missing-ranks", text, "info")


def uneven_steps(labels: Mapping[int, Collection[int]]) -> Iterable[Note]:
    """Steps that some ranks have and others lack."""
    every = {n for own in labels.values() for n in own}
    lacking = {r: sorted(every - set(own)) for r, own in labels.items() if every - set(own)}
    if every and lacking:
        rank, steps = min(lacking.items())
        more = f" (and {len(lacking) - 1} more ranks lack some)" if len(lacking) > 1 else ""
        text = (
            f"rank {rank} lacks steps {numbers_text(steps)} that others have{more}: these steps "
            "cannot be compared across ranks; start and stop all profilers at the same step"
        )
        yield Note("uneven-steps", text)


def no_communication() -> Note:
    """A job of several ranks whose kernels none of the rules takes for communication."""
    text = (
        "no communication was recognised in a job of several ranks; if kernels do communicate, "
        "name them with --names, else they count as compute"
    )
    return Note("no-communication", text)


def unknown_groups(count: int, every: int, sized: bool, remedy: str = "") -> Note:
    """Collectives without group metadata; ``sized`` where some state their bytes."""
    text = (
        f"{count:,} of {every:,} collectives carry no group metadata: their group"
        f"{' and' if sized else ', bytes and'} bandwidth are not known{'; ' if remedy else ''}"
        f"{remedy}"
    )
    return Note("unknown-groups", text, "info")


def unknown_dtypes(dtypes: Iterable[str]) -> Note:
    """Types whose size no rule knows."""
    shown = ", ".join(quoted(d, 40) for d in sorted(dtypes)[:6])
    text = (
        f"the size of dtype {shown} is not known, so neither are the bytes of its collectives; "
        "add it under [dtype_bytes] in a --names file"
    )
    return Note("unknown-dtype", text)
