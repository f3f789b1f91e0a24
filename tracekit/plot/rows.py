"""Lay the events of one thread or stream into rows in which no two overlap, callers above."""

from __future__ import annotations

import numpy as np

from tracekit.model.links import Ints

#: deeper rows are counted, not drawn
MAX_DEPTH = 64
#: stretches of so few events are not searched for what wraps them
SMALL = 1000
_NEVER = 2**62


def depths(start: Ints, end: Ints) -> Ints:
    """The row of each event: the first in which its predecessors have ended.

    Of nested events this is the number of events around each. Events that cross (kernels that
    reach into their successor) take a further row only while they do.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_events,)
        Sorted by start, of equal starts the longer first.

    Returns
    -------
    ndarray of int64, shape (num_events,)
        From 0; `MAX_DEPTH` for those that would lie deeper still.

    Examples
    --------
    >>> depths(np.array([0, 1, 2, 6]), np.array([5, 4, 3, 9]))
    array([0, 1, 2, 0])
    >>> depths(np.array([0, 4, 8]), np.array([5, 9, 12]))
    array([0, 1, 0])
    """
    # how many of those that started before are still running
    order = np.arange(len(start), dtype=np.int64)
    found: Ints = order - np.searchsorted(np.sort(end), start, side="right")
    found = np.maximum(found, 0)  # events of no length end before they began, in this count
    np.minimum(found, MAX_DEPTH, out=found)
    _part_crossing(start, end, found)
    return found


def _part_crossing(start: Ints, end: Ints, depth: Ints) -> None:
    """Lay those stretches anew, in place, in which two events of a row overlap."""
    ahead = [(0, len(start), 0)]
    while ahead:
        first, last, around = ahead.pop()
        part = slice(first, last)
        for low, high in _clusters(start[part], end[part], depth[part]):
            inside = slice(first + low, first + high)
            wraps = end[inside][0] >= end[inside].max() and high - low > SMALL
            if wraps and around < MAX_DEPTH:  # a step around all: look only at what it holds
                ahead.append((first + low + 1, first + high, around + 1))
            else:
                fitted = around + _first_fit(start[inside], end[inside])
                depth[inside] = np.minimum(fitted, MAX_DEPTH)


def _clusters(start: Ints, end: Ints, depth: Ints) -> list[tuple[int, int]]:
    """Stretches (first, last + 1) that nothing crosses into, in which two of a row overlap."""
    if len(start) < 2:
        return []
    rows = np.argsort(depth.astype(np.int8), kind="stable")
    same = depth[rows[1:]] == depth[rows[:-1]]
    bad = rows[1:][same & (end[rows[:-1]] > start[rows[1:]]) & (depth[rows[1:]] < MAX_DEPTH)]
    if not len(bad):
        return []
    borders = np.flatnonzero(start[1:] >= np.maximum.accumulate(end)[:-1]) + 1
    borders = np.concatenate(([0], borders, [len(start)]))
    which = np.unique(np.searchsorted(borders, bad, side="right") - 1)
    low, high = borders[which], borders[which + 1]
    # neighbours in one piece: a loop step for each of a million pairs would take seconds
    joined = np.flatnonzero(low[1:] != high[:-1]) + 1
    firsts = np.concatenate(([0], joined))
    lasts = np.concatenate((joined, [len(low)])) - 1
    return list(zip(low[firsts].tolist(), high[lasts].tolist(), strict=True))


def _first_fit(start: Ints, end: Ints) -> Ints:
    """The lowest row of each event whose last event has ended.

    One event after the other, because each place depends on the last: some 0.2 µs for each event
    of a stretch with crossings.
    """
    ends: list[int] = []  # of the last event of each row; the highest row still runs
    release = _NEVER  # no row below one that still runs ends before
    found = []
    for s, e in zip(start.tolist(), end.tolist(), strict=True):
        while ends and ends[-1] <= s:
            ends.pop()
        row = len(ends)
        released = s >= release
        if released:
            row = next((r for r, last in enumerate(ends) if last <= s), row)
        crosses = row > 0 and e > ends[row - 1]
        ends[row : row + 1] = [e]
        if released or crosses:
            release = _release(ends)
        found.append(row)
    return np.array(found, dtype=np.int64)


def _release(ends: list[int]) -> int:
    """The first end of a row that has one above it which ends later."""
    first, latest = _NEVER, -_NEVER
    for end in reversed(ends):
        if end < latest:
            first = min(first, end)
        latest = max(latest, end)
    return first
