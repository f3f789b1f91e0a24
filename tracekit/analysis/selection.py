"""Which part of a run an analysis refers to: chosen steps, or a chosen time range."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.breakdown import Split
from tracekit.core.errors import UsageError
from tracekit.model.links import Ints
from tracekit.model.run import TraceSet
from tracekit.model.steps import Spans, membership, steps_of
from tracekit.model.trace import Trace
from tracekit.model.work import Work


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen part of a run; by default all of it.

    Attributes
    ----------
    steps : (first, last) or None
        Step numbers, both included, by membership.
    range_ns : (start, end) or None
        From the earliest start of all ranks, on the corrected clock; work is cut at the borders.
    """

    steps: tuple[int, int] | None = None
    range_ns: tuple[int, int] | None = None


ALL = Selection()


@dataclass(slots=True, eq=False)
class Part:
    """The selected work of one rank, ready to be divided.

    Attributes
    ----------
    trace : Trace
    work : Work
        Selected and cut.
    split : Split
        Of ``work``.
    entry : ndarray of int64, shape (num_work,)
        Index of each piece in the rank's whole work.
    steps : Spans
        All step annotations of the rank.
    step : ndarray of int64, shape (num_work,)
        Index into ``steps``, -1 for none.
    borders : (start, end) arrays of one entry, or None
        The chosen range on this rank's own clock, ns from the trace's base.
    whole : Work
        All work of the rank.
    chosen : Selection
        What was asked for.
    """

    trace: Trace
    work: Work
    split: Split
    entry: Ints
    steps: Spans
    step: Ints
    borders: tuple[Ints, Ints] | None
    whole: Work
    chosen: Selection = ALL

    def asks_for(self, step: int) -> bool:
        """Whether a step, by its place in `steps`, was asked for, be there work in it or not."""
        if self.chosen.steps is not None:
            first, last = self.chosen.steps
            return first <= int(self.steps.label[step]) <= last
        if self.borders is None:
            return True
        low, high = (int(border[0]) for border in self.borders)
        return int(self.steps.start[step]) < high and int(self.steps.end[step]) > low


def part_of(run: TraceSet, rank: int, chosen: Selection = ALL) -> Part:
    """Select and cut the work of one rank."""
    trace, work = run.work(rank)
    split = split_of(run, trace, work)
    steps = steps_of(trace)
    step = membership(work, steps)
    keep = np.ones(len(work), dtype=bool)
    borders = None
    if chosen.steps is not None:
        labels = np.array(steps.label or [-1], dtype=np.int64)
        number = np.where(step >= 0, labels[step], -1)
        keep &= (step >= 0) & (number >= chosen.steps[0]) & (number <= chosen.steps[1])
    if chosen.range_ns is not None:
        shift = run.origin_ns + run.matching.offset_ns(rank) - trace.table.base_ns
        low, high = (shift + ns for ns in chosen.range_ns)
        borders = np.array([low], dtype=np.int64), np.array([high], dtype=np.int64)
        keep &= (work.end > low) & (work.start < high)
    entry = np.flatnonzero(keep)
    cut = work.select(keep)
    if borders:
        cut.start, cut.end = np.maximum(cut.start, borders[0]), np.minimum(cut.end, borders[1])
    narrowed = Split(split.wait_end[keep], split.moves[keep], split.edge[keep])
    if borders:
        whole = (cut.start == work.start[keep]) & (cut.end == work.end[keep])
        narrowed.edge = narrowed.edge | ~whole
    return Part(trace, cut, narrowed, entry, steps, step[keep], borders, work, chosen)


def split_of(run: TraceSet, trace: Trace, work: Work) -> Split:
    """How each piece of a rank's communication divides into waiting and transfer."""
    wait_end = work.start.copy()
    moves = np.zeros(len(work), dtype=bool)
    edge = np.zeros(len(work), dtype=bool)
    base = trace.table.base_ns
    for c in run.collectives_of(trace.rank):
        member = c.members[trace.rank]
        at = member.entries
        edge[at] = c.edge
        if c.transfer is None:
            continue
        wait_end[at] = member.start - base + c.wait[trace.rank]
        moves[at] = c.complete
    return Split(wait_end, moves, edge)


def selection(
    steps: tuple[int, int] | None, time_range_us: tuple[float, float] | None
) -> Selection:
    """A selection from what the user gave.

    Raises
    ------
    UsageError
        When a range is empty or turned around.
    """
    if steps is not None and steps[1] < steps[0]:
        text = f"steps {steps[0]}:{steps[1]} end before they start"
        raise UsageError(text, hint="give FIRST:LAST")
    if time_range_us is None:
        return Selection(steps)
    if not all(math.isfinite(t) and abs(t) <= 1e14 for t in time_range_us):
        text = f"the range {time_range_us[0]:g}:{time_range_us[1]:g} is not within three years"
        raise UsageError(text, hint="give START:END in us from the start of the run")
    low, high = (round(t * 1000) for t in time_range_us)
    if high <= low:
        text = f"the range {time_range_us[0]:g}:{time_range_us[1]:g} is empty"
        raise UsageError(text, hint="give START:END in us, END after START")
    return Selection(steps, (low, high))
