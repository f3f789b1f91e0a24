"""Divide time exactly: window = compute + exposed communication + exposed memory + idle, in ns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracekit.core.intervals import Intervals, coverage, subtract, union
from tracekit.model.links import Ints
from tracekit.model.names import COMM, COMPUTE, MEMORY
from tracekit.model.work import Work


@dataclass(slots=True)
class Split:
    """Per piece of work, how its communication divides; only read for communication.

    Attributes
    ----------
    wait_end : ndarray of int64, shape (num_work,), ns
        Until when it waits for the last rank; its start where it does not wait.
    moves : ndarray of bool, shape (num_work,)
        Whether the rest is known to be transfer; else it is unknown.
    edge : ndarray of bool, shape (num_work,)
        Whether the window of some member began with it.
    """

    wait_end: Ints
    moves: NDArray[np.bool_]
    edge: NDArray[np.bool_]


@dataclass(slots=True)
class Figures:
    """The division of time of one or more spans of work; each an array of ns, shape (num_spans,).

    `other` is the part of `idle` in which the rank's other work (of other spans) runs: spans may
    overlap, and what one leaves idle another may use.

    Where the recording does not hold communication (or compute) on this timeline, `known_comm`
    (`known_compute`) is False and the figures that need it are meaningless.
    """

    window: Ints
    compute: Ints
    comm: Ints
    overlap: Ints
    exposed_comm: Ints
    memory: Ints
    exposed_memory: Ints
    idle: Ints
    exposed_wait: Ints
    exposed_transfer: Ints
    exposed_unknown: Ints
    edge_comm: Ints
    other: Ints
    start: Ints
    end: Ints
    count: Ints
    known_comm: bool = True
    known_compute: bool = True

    def check(self) -> None:
        """Assert the identities; a failure is a defect of tracekit."""
        parts = self.compute + self.exposed_comm + self.exposed_memory + self.idle
        assert (parts == self.window).all(), "window is not the sum of its parts"
        split = self.exposed_wait + self.exposed_transfer + self.exposed_unknown
        assert (split == self.exposed_comm).all(), "exposed time is not its parts"
        low = np.minimum.reduce([self.compute, self.exposed_comm, self.exposed_memory, self.idle])
        assert (low >= 0).all(), "a part of the window is negative"


def breakdown(
    work: Work,
    split: Split,
    span: Ints | None = None,
    num_spans: int = 1,
    borders: tuple[Ints, Ints] | None = None,
    whole: Work | None = None,
) -> Figures:
    """Divide the time of each span of a rank's work.

    Parameters
    ----------
    work : Work
    split : Split
        Of ``work``.
    span : ndarray of int64, shape (num_work,), optional
        Which span each piece of work belongs to; -1 leaves it out. By default all is one span.
    num_spans : int
    borders : (start, end) of ndarray of int64, shape (num_spans,), optional
        Fixed borders in ns: work is cut at them and the window is exactly their distance. By
        default a window reaches from the first start to the last end of the span's own work.
    whole : Work, optional
        All work of the rank, where ``work`` is only part of it.

    Returns
    -------
    Figures
    """
    line = _Line(work, span, num_spans, borders)
    sets = {role: line.union(work.role == role) for role in (COMPUTE, COMM, MEMORY)}
    comm, compute = sets[COMM], sets[COMPUTE]
    both = line.union((work.role == COMM) | (work.role == COMPUTE))
    busy = line.union(np.ones(len(work), dtype=bool))
    exposed = subtract(comm, compute)
    is_comm = work.role == COMM
    waits = line.union(is_comm, end=np.minimum(split.wait_end, work.end))
    moves = line.union(is_comm & split.moves, start=np.maximum(split.wait_end, work.start))
    size = line.measure
    moving = size(exposed) - size(subtract(exposed, moves))
    still = subtract(exposed, moves)
    unknown = size(subtract(still, waits))
    figures = Figures(
        window=line.window,
        compute=size(compute),
        comm=size(comm),
        overlap=size(comm) - size(exposed),
        exposed_comm=size(exposed),
        memory=size(sets[MEMORY]),
        exposed_memory=size(busy) - size(both),
        idle=line.window - size(busy),
        exposed_wait=size(still) - unknown,
        exposed_transfer=moving,
        exposed_unknown=unknown,
        edge_comm=size(line.union(is_comm & split.edge)),
        other=line.covered(whole or work) - size(busy),
        start=line.low,
        end=line.high,
        count=line.count,
        known_comm=work.comm_known,
        known_compute=work.compute_known,
    )
    figures.check()
    return figures


def exposed_shares(
    work: Work, group: Ints, num_groups: int, borders: tuple[Ints, Ints] | None = None
) -> dict[str, Ints]:
    """Communication per group, and the partition of the exposed time among the groups.

    Each exposed instant is divided evenly among the groups communicating at that instant (in
    whole ns, the remainder to the first of them), so that the shares add up to the rank's exposed
    communication exactly.

    Parameters
    ----------
    work : Work
    group : ndarray of int64, shape (num_work,)
        Group of each piece of communication; only read there.
    num_groups : int

    Returns
    -------
    dict of str to ndarray of int64, shape (num_groups,)
        ``comm``, ``overlap``, ``exposed_comm`` and ``exposed_share``, in ns.
    """
    is_comm = work.role == COMM
    compute = _cut(work, work.role == COMPUTE, borders)
    comm = [_cut(work, is_comm & (group == g), borders) for g in range(num_groups)]
    alone = [subtract(c, compute) for c in comm]
    total = np.array([_length(c) for c in comm], dtype=np.int64)
    exposed = np.array([_length(a) for a in alone], dtype=np.int64)
    return {
        "comm": total,
        "overlap": total - exposed,
        "exposed_comm": exposed,
        "exposed_share": _partition(alone),
    }


def _partition(sets: list[Intervals]) -> Ints:
    """Divide the union of several sets among them, instant by instant."""
    shares = np.zeros(len(sets), dtype=np.int64)
    if not sets:
        return shares
    time = np.concatenate([np.concatenate(s) for s in sets])
    owner = np.repeat(np.arange(len(sets)), [2 * len(s[0]) for s in sets])
    step = np.concatenate([np.repeat((1, -1), len(s[0])) for s in sets]).astype(np.int64)
    order = np.argsort(time, kind="stable")
    time, owner, step = time[order], owner[order], step[order]
    length = np.diff(time)
    active = np.cumsum(step)[:-1]
    real = (length > 0) & (active > 0)
    each = np.where(real, length // np.maximum(active, 1), 0)
    extra = np.where(real, length - each * active, 0)
    before = np.zeros(len(length), dtype=np.int64)  # members of lower number active at an instant
    for g in range(len(sets)):
        on = np.cumsum(np.where(owner == g, step, 0))[:-1] > 0
        shares[g] = int(each[on & real].sum()) + int((extra[on & real] > before[on & real]).sum())
        before += on
    return shares


def _cut(work: Work, mask: NDArray[np.bool_], borders: tuple[Ints, Ints] | None) -> Intervals:
    start, end = work.start[mask], work.end[mask]
    if borders is not None:
        start, end = np.maximum(start, borders[0][0]), np.minimum(end, borders[1][0])
    return union(start, end)


def _length(s: Intervals) -> int:
    return int((s[1] - s[0]).sum())


class _Line:
    """Lays the spans end to end on one line, so that one set operation serves them all.

    Spans may overlap in time (steps do); on the line they lie 1 ns apart.
    """

    def __init__(
        self,
        work: Work,
        span: Ints | None,
        num_spans: int,
        borders: tuple[Ints, Ints] | None,
    ) -> None:
        self._work = work
        self._span = np.zeros(len(work), dtype=np.int64) if span is None else span
        self._in = self._span >= 0
        self.count = np.bincount(self._span[self._in], minlength=num_spans).astype(np.int64)
        self.low, self.high = borders or self._extent(num_spans)
        self.window = self.high - self.low
        self._base = np.cumsum(self.window + 1) - (self.window + 1)

    def _extent(self, num_spans: int) -> tuple[Ints, Ints]:
        """First start and last end of each span's work; 0 and 0 where there is none."""
        none = np.iinfo(np.int64)
        low = np.full(num_spans, none.max)
        high = np.full(num_spans, none.min)
        np.minimum.at(low, self._span[self._in], self._work.start[self._in])
        np.maximum.at(high, self._span[self._in], self._work.end[self._in])
        empty = self.count == 0
        low[empty] = high[empty] = 0
        return low, high

    def union(
        self, mask: NDArray[np.bool_], start: Ints | None = None, end: Ints | None = None
    ) -> Intervals:
        """Union on the line of the masked work, cut at the borders of its span."""
        take = mask & self._in
        span = self._span[take]
        low, high = self.low[span], self.high[span]
        begin = np.clip((self._work.start if start is None else start)[take], low, high)
        finish = np.clip((self._work.end if end is None else end)[take], low, high)
        shift = self._base[span] - low
        return union(begin + shift, finish + shift)

    def covered(self, whole: Work) -> Ints:
        """How much of each span's window any of the rank's work covers, in real time."""
        every = union(whole.start, whole.end)
        return coverage(*every, self.high) - coverage(*every, self.low)

    def measure(self, s: Intervals) -> Ints:
        """Length of a set within each span."""
        upto = coverage(*s, self._base + self.window)
        return upto - coverage(*s, self._base)
