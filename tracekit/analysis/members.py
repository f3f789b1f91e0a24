"""Collectives member by member: when each rank came, how long it waited, when it was done."""

from __future__ import annotations

from tracekit.analysis.rows import Row, us
from tracekit.analysis.selection import ALL, Selection, part_of
from tracekit.model.collective import Collective
from tracekit.model.run import TraceSet


def member_rows(run: TraceSet, chosen: Selection = ALL) -> list[Row]:
    """One row per collective and rank, collectives by start; times on the corrected clock.

    ``collective`` counts the collectives of the same selection from 0, in the order of
    `collective_row`'s table.
    """
    origin = run.origin_ns
    rows: list[Row] = []
    for number, c in enumerate(_chosen(run, chosen)):
        rows += [_row(run, c, number, rank, origin) for rank in sorted(c.members)]
    return rows


def _chosen(run: TraceSet, chosen: Selection) -> list[Collective]:
    """Collectives of which some member's work lies in the selection."""
    every = run.matching.collectives
    if chosen == ALL:
        return every
    held: set[Collective] = set()
    for rank in run.ranks:
        inside = set(part_of(run, rank, chosen).entry.tolist())
        own = run.collectives_of(rank)
        held.update(c for c in own if not inside.isdisjoint(c.members[rank].entries))
    return [c for c in every if c in held]


def _row(run: TraceSet, c: Collective, number: int, rank: int, origin_ns: int) -> Row:
    member = c.members[rank]
    shift = run.matching.offset_ns(rank) + origin_ns
    return {
        "collective": number,
        "op": c.op,
        "group": c.group.name or None,
        "desc": c.group.desc or None,
        "axis": c.group.axis,
        "rank": rank,
        "start_us": us(member.start - shift),
        "duration_us": us(member.duration),
        "wait_us": us(c.wait.get(rank)),
        "before_last_us": us(c.before_last.get(rank)),
        "is_last": None if c.last_rank is None else rank == c.last_rank,
        "dtype": member.dtype,
        "bytes": member.num_bytes,
        "src": member.src,
        "dst": member.dst,
        "kernel": member.kernel,
    }
