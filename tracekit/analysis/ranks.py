"""One rank's figures: whole, per step, per phase, per group, per operation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracekit.analysis.breakdown import Split, breakdown, exposed_shares
from tracekit.analysis.rows import Row, figure_row, total_row, us
from tracekit.analysis.selection import Part
from tracekit.model.names import COMM
from tracekit.model.operations import Operation
from tracekit.model.run import TraceSet
from tracekit.model.steps import membership, phases_of
from tracekit.model.work import role_counts


@dataclass(slots=True)
class RankFigures:
    """All figure rows of one rank."""

    rank: Row
    steps: list[Row] = field(default_factory=list)
    no_step: list[Row] = field(default_factory=list)
    phases: list[Row] = field(default_factory=list)
    groups: list[Row] = field(default_factory=list)
    operations: list[Row] = field(default_factory=list)


def rank_figures(run: TraceSet, part: Part) -> RankFigures:
    """Divide the time of one rank's selected work in every way its trace allows."""
    steps = _step_rows(part)
    return RankFigures(
        rank=_rank_row(run, part),
        steps=steps,
        no_step=_no_step_rows(part) if len(part.steps) else [],
        phases=_phase_rows(part),
        groups=_group_rows(run, part),
        operations=_operation_rows(run, part),
    )


def _rank_row(run: TraceSet, part: Part) -> Row:
    trace, work = part.trace, part.work
    clock = run.matching.clocks.get(trace.rank)
    counts = work.counts
    recovered = trace.table.counts.get("recovered", 0)
    events = {"read": trace.table.counts.get("read", 0), "timed": counts["timed"]}
    events |= role_counts(work)
    events |= {k: counts[k] for k in ("dropped", "clipped")}
    events |= {"recovered": recovered, "unlinked": counts["unlinked"]}
    return {
        "rank": trace.rank,
        "world_size": trace.world_size,
        "file": trace.file,
        "host": trace.host,
        "pid": trace.pid,
        "timeline": work.timeline,
        **figure_row(breakdown(work, part.split, borders=part.borders, whole=part.whole)),
        "host_comm_us": us(work.host_comm_ns),
        "clock_offset_us": us(clock.offset_ns) if clock else None,
        "clock_spread_us": us(clock.spread_ns) if clock else None,
        "events": events,
    }


def _step_rows(part: Part) -> list[Row]:
    steps = part.steps
    if not len(steps):
        return []
    figures = breakdown(part.work, part.split, part.step, len(steps), whole=part.whole)
    rows: list[Row] = []
    previous: tuple[Any, int] | None = None
    for at, label in enumerate(steps.label):
        if not figures.count[at]:
            if part.asks_for(at):
                rows.append(_empty_step(part, at))
            previous = None
            continue
        start, end = int(figures.start[at]), int(figures.end[at])
        consecutive = previous is not None and previous[0] == int(label) - 1
        lead = start - previous[1] if consecutive and previous else None
        row = {"rank": part.trace.rank, "step": label, **figure_row(figures, at)}
        row["host_us"] = us(int(steps.end[at] - steps.start[at]))
        row["lead_us"] = us(lead)
        row["period_us"] = None if lead is None else us(end - start + lead)
        row["num_work"] = int(figures.count[at])
        rows.append(row)
        previous = (int(label), end)
    return rows


def _empty_step(part: Part, at: int) -> Row:
    """A step whose annotation is there but none of its work."""
    nothing = part.work.select(np.zeros(len(part.work), dtype=bool))
    none = Split(part.split.wait_end[:0], part.split.moves[:0], part.split.edge[:0])
    row: Row = {"rank": part.trace.rank, "step": part.steps.label[at]}
    row |= dict.fromkeys(figure_row(breakdown(nothing, none)))
    host = us(int(part.steps.end[at] - part.steps.start[at]))
    return row | {"host_us": host, "lead_us": None, "period_us": None, "num_work": 0}


def _no_step_rows(part: Part) -> list[Row]:
    outside = np.where(part.step < 0, 0, -1)
    figures = breakdown(part.work, part.split, outside, 1, whole=part.whole)
    if not figures.count[0]:
        return []
    row = {"rank": part.trace.rank, **figure_row(figures)}
    return [row | {"num_work": int(figures.count[0])}]


def _phase_rows(part: Part) -> list[Row]:
    """Figures of each phase, summed over its spans."""
    spans = phases_of(part.trace)
    if not len(spans):
        return []
    inside = membership(part.work, spans)
    figures = breakdown(part.work, part.split, inside, len(spans), whole=part.whole)
    rows = []
    for phase in dict.fromkeys(spans.label):
        own = [
            figure_row(figures, at)
            for at, label in enumerate(spans.label)
            if label == phase and figures.count[at]
        ]
        if own:
            count = {"rank": part.trace.rank, "phase": phase, "num_spans": len(own)}
            rows.append(count | total_row(own))
    return rows


def _group_rows(run: TraceSet, part: Part) -> list[Row]:
    """Communication per group, and each group's share of the exposed time."""
    operations = run.operations[part.trace.rank]
    groups = {o.group.key: o.group for o in operations}
    rows = []
    for key, figures in _shares(part, operations, [o.group.key for o in operations]).items():
        group = groups[key]
        row: Row = {
            "group": group.name or None,
            "desc": group.desc or None,
            "axis": group.axis,
            "size": group.size,
            "ranks": list(group.ranks) if group.ranks else None,
            "rank": part.trace.rank,
        }
        rows.append(row | figures)
    return rows


def _operation_rows(run: TraceSet, part: Part) -> list[Row]:
    """Communication per operation, and each one's share of the exposed time."""
    operations = run.operations[part.trace.rank]
    found = _shares(part, operations, [o.op for o in operations])
    return [{"rank": part.trace.rank, "op": op, **figures} for op, figures in found.items()]


def _shares(
    part: Part, operations: list[Operation], kinds: Sequence[Hashable]
) -> dict[Any, dict[str, float | None]]:
    """Communication and exposed time per kind of operation, in order of first appearance.

    Parameters
    ----------
    kinds : sequence
        The kind of each operation; the exposed time is divided among kinds.
    """
    if not part.work.comm_known or not (part.work.role == COMM).any():
        return {}
    numbers: dict[Hashable, int] = {}
    code = np.full(int(part.entry.max(initial=-1)) + 1, -1, dtype=np.int64)
    for operation, kind in zip(operations, kinds, strict=True):
        number = numbers.setdefault(kind, len(numbers))
        code[[e for e in operation.entries if e < len(code)]] = number
    shares = exposed_shares(part.work, code[part.entry], len(numbers), part.borders)
    known = part.work.compute_known
    return {
        kind: {
            f"{name}_us": us(int(values[number])) if known or name == "comm" else None
            for name, values in shares.items()
        }
        for kind, number in numbers.items()
        if shares["comm"][number]
    }
