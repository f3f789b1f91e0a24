"""What in a run limits the answers: remarks that belong beside the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tracekit.analysis.ranks import RankFigures
from tracekit.analysis.rows import Row
from tracekit.analysis.selection import Part
from tracekit.core.errors import Note
from tracekit.model import limits
from tracekit.model.check_matching import doubts
from tracekit.model.run import TraceSet


def rank_remarks(part: Part, figures: RankFigures) -> list[Note]:
    """Remarks on one rank."""
    return list(_rank_remarks(part, figures))


def _rank_remarks(part: Part, figures: RankFigures) -> Iterator[Note]:
    work, events, file = part.work, figures.rank["events"], part.trace.file
    who = limits.ranks_text([part.trace.rank])
    if not len(work):
        yield limits.no_work(who, file)
    if work.timeline == "host" and work.compute_known:
        yield limits.host_timeline(who, file)
    if not work.compute_known:
        yield limits.collectives_only(who, file)
    if events["dropped"]:
        yield limits.dropped(who, events["dropped"], file)
    if events["clipped"]:
        yield limits.clipped(who, events["clipped"], file)
    if events["unlinked"] > limits.UNLINKED_FRAC * max(1, events["timed"]):
        yield limits.unlinked(who, events["unlinked"], events["timed"], file)
    if not work.comm_known:
        yield limits.host_comm_only(who, file)
    if not len(part.steps) and work.compute_known:
        yield limits.no_steps(who, file)
    if empty := [int(s["step"]) for s in figures.steps if not s["num_work"]]:
        yield limits.empty_steps(who, empty, file)


def run_remarks(
    run: TraceSet, labels: dict[int, list[int]], ranks: list[Row], collectives: list[Row]
) -> list[Note]:
    """Remarks on the run as a whole."""
    return [
        *limits.missing_ranks(run.ranks, run.world_size),
        *limits.uneven_steps(labels),
        *limits.repeated_steps(_repeated(labels)),
        *_silent_device(run, ranks),
        *_unknown_groups(collectives),
        *_unknown_dtypes(run, collectives),
        *doubts(run),
    ]


def _repeated(labels: dict[int, list[int]]) -> dict[int, list[int]]:
    """Step numbers that a rank annotated several times."""
    counts = {rank: Counter(own) for rank, own in labels.items()}
    return {rank: [n for n, k in own.items() if k > 1 and n >= 0] for rank, own in counts.items()}


def _silent_device(run: TraceSet, ranks: list[Row]) -> Iterable[Note]:
    several = (run.world_size or len(run.ranks)) > 1
    device = [r for r in ranks if r["timeline"] == "device"]
    if several and device and all(r["comm_us"] == 0 for r in device):
        yield limits.no_communication()


def _unknown_groups(collectives: list[Row]) -> Iterable[Note]:
    unknown = [c for c in collectives if c["group"] is None and c["size"] is None]
    if unknown:
        sized = any(c["bytes"] is not None for c in unknown)
        yield limits.unknown_groups(len(unknown), len(collectives), sized)


def _unknown_dtypes(run: TraceSet, collectives: list[Row]) -> Iterable[Note]:
    known = run.names.dtype_bytes
    odd = {
        str(c["dtype"])
        for c in collectives
        if c["dtype"] and c["dtype"] not in known and (c["in_elems"] or c["out_elems"])
    }
    if odd:
        yield limits.unknown_dtypes(odd)
