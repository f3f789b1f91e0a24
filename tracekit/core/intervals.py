"""Exact set algebra on half-open time intervals, vectorised over int64 nanoseconds.

An interval ``[start, end)`` holds ``start`` and not ``end``. A *set* is a pair of int64 arrays
(`Intervals`), sorted, disjoint and without empty members, as `union` returns it; the other
functions take such sets. Neighbours that touch are allowed in what they take, and a result holds
touching neighbours only where an operand did.

Nothing is rounded, and nothing overflows as long as a set spans less than 2**63 ns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Intervals", "clip", "coverage", "intersect", "measure", "subtract", "union"]

#: ``(start, end)`` of a set: two int64 arrays of shape (num_intervals,), in ns
Intervals = tuple[NDArray[np.int64], NDArray[np.int64]]

_TIME = np.iinfo(np.int64)


def union(start: NDArray[np.int64], end: NDArray[np.int64]) -> Intervals:
    """Merge intervals, in any order and overlapping at will, into a set.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_intervals,)
        Borders in ns. Intervals that touch are merged; those with ``end <= start`` vanish.

    Returns
    -------
    Intervals
        The set of all instants that any of the intervals holds.

    Examples
    --------
    >>> union(np.array([7, 0, 2]), np.array([9, 3, 5]))
    (array([0, 7]), array([5, 9]))
    """
    real = end > start
    # Sorted each for itself (twice a plain sort is cheaper than one argsort and two gathers), the
    # borders still show every gap: it lies where all that began so far has ended.
    low, high = np.sort(start[real]), np.sort(end[real])
    gap = low[1:] > high[:-1]
    edge = np.ones(min(low.size, 1), dtype=np.bool_)
    return low[np.concatenate((edge, gap))], high[np.concatenate((gap, edge))]


def measure(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Total length of a set.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_intervals,)
        A set, in ns.

    Returns
    -------
    int
        Length in ns.

    Examples
    --------
    >>> measure(np.array([0, 7]), np.array([5, 9]))
    7
    """
    return int((end - start).sum())


def coverage(
    start: NDArray[np.int64], end: NDArray[np.int64], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Length of the part of a set that lies below each given point.

    The part of the set within ``[a, b)`` has the length ``coverage(.., b) - coverage(.., a)``,
    which gives the length inside many overlapping windows at O(log n) each.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_intervals,)
        A set, in ns.
    at : ndarray of int64, any shape
        Points in ns, in any order.

    Returns
    -------
    ndarray of int64, shape of `at`
        Lengths in ns.

    Examples
    --------
    >>> coverage(np.array([0, 7]), np.array([5, 9]), np.array([-1, 3, 6, 8, 99]))
    array([0, 3, 5, 6, 7])
    """
    if start.size == 0:
        return np.zeros(np.shape(at), dtype=np.int64)
    length = end - start
    before = np.cumsum(length) - length
    point = np.maximum(at, start[0])  # so that each point has an interval at or before it
    last = np.searchsorted(start, point, side="right") - 1
    below: NDArray[np.int64] = before[last] + np.minimum(point, end[last]) - start[last]
    return below


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The instants that both sets hold.

    Parameters
    ----------
    a, b : Intervals
        Sets, in ns.

    Returns
    -------
    Intervals
        ``a ∩ b`` as a set.

    Examples
    --------
    >>> a = np.array([0, 20]), np.array([10, 30])
    >>> b = np.array([5]), np.array([25])
    >>> intersect(a, b)
    (array([ 5, 20]), array([10, 25]))
    """
    (a_start, a_end), (b_start, b_end) = a, b
    # Each member of a meets one run of neighbours in b; the runs add up to less than |a| + |b|.
    first = np.searchsorted(b_end, a_start, side="right")
    stop = np.searchsorted(b_start, a_end, side="left")
    count = stop - first
    in_a = np.repeat(np.arange(a_start.size), count)
    in_b = np.arange(in_a.size) - np.repeat(np.cumsum(count) - count - first, count)
    return np.maximum(a_start[in_a], b_start[in_b]), np.minimum(a_end[in_a], b_end[in_b])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The instants that the first set holds and the second does not.

    Parameters
    ----------
    a, b : Intervals
        Sets, in ns.

    Returns
    -------
    Intervals
        ``a`` without ``b``, as a set.

    Examples
    --------
    >>> a = np.array([0, 20]), np.array([10, 30])
    >>> b = np.array([5]), np.array([25])
    >>> subtract(a, b)
    (array([ 0, 25]), array([ 5, 30]))
    """
    return intersect(a, _gaps(b))


def clip(start: NDArray[np.int64], end: NDArray[np.int64], low: int, high: int) -> Intervals:
    """Cut a set at the borders of the window ``[low, high)``.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_intervals,)
        A set, in ns. Intervals that are no set are cut too and keep their order.
    low, high : int
        The window, in ns.

    Returns
    -------
    Intervals
        What lies inside the window; intervals wholly outside are left out.

    Raises
    ------
    ValueError
        If the window ends before it starts.

    Examples
    --------
    >>> clip(np.array([0, 20, 40]), np.array([10, 30, 50]), 5, 25)
    (array([ 5, 20]), array([10, 25]))
    """
    if high < low:
        raise ValueError(f"the window [{low}, {high}) ends before it starts; give low <= high")
    cut_start, cut_end = np.maximum(start, low), np.minimum(end, high)
    inside = cut_end > cut_start
    return cut_start[inside], cut_end[inside]


def _gaps(b: Intervals) -> Intervals:
    """All that a set leaves free between the smallest and the largest time there is."""
    start = np.concatenate((np.array([_TIME.min], dtype=np.int64), b[1]))
    end = np.concatenate((b[0], np.array([_TIME.max], dtype=np.int64)))
    free = end > start  # no gap between neighbours that touch
    return start[free], end[free]
