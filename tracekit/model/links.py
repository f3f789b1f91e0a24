"""Which host row launched a device row, and which host rows enclose a point in time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracekit.model.trace import LAUNCH, Trace

Ints = NDArray[np.int64]


def lookup(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    """For each of ``wanted`` the value at the first equal key, -1 where there is none.

    Parameters
    ----------
    keys, values : ndarray of int64, shape (num_keys,)
        Negative keys never match.
    wanted : ndarray of int64

    Examples
    --------
    >>> lookup(np.array([7, 3]), np.array([70, 30]), np.array([3, 5, -1, 7]))
    array([30, -1, -1, 70])
    """
    real = keys >= 0
    keys, values = keys[real], values[real]
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low < 8 * len(keys) + 1_000_000:
        table = np.full(high - low + 2, -1, dtype=np.int64)
        table[keys[::-1] - low] = values[::-1]
        at = np.where((wanted >= low) & (wanted <= high), wanted - low, high - low + 1)
        found: Ints = table[at]
        return found
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][at] == wanted, values[order][at], -1)


def launches(trace: Trace, rows: Ints) -> Ints:
    """Row of the host call that launched each device row, by correlation; -1 for none."""
    table = trace.table
    calls = np.flatnonzero(trace.kind == LAUNCH)
    return lookup(table["correlation"][calls], calls, table["correlation"][rows])


def external_ids_usable(trace: Trace, rows: Ints) -> bool:
    """Whether ``External id`` of device rows names a host operator.

    Some writers put the correlation there; following it would link unrelated rows.
    """
    ext, corr = trace.table["external_id"][rows], trace.table["correlation"][rows]
    both = (ext >= 0) & (corr >= 0)
    return not (both.any() and (ext[both] == corr[both]).mean() > 0.5)


def enclosing(trace: Trace, candidates: Ints, lanes: Ints, at_ns: Ints) -> Ints:
    """The innermost of ``candidates`` on the same lane that holds each point; -1 for none.

    Parameters
    ----------
    candidates : ndarray of int64
        Rows of host spans, properly nested on each lane.
    lanes, at_ns : ndarray of int64, shape (num_points,)
        Lane and time of each point.
    """
    out = np.full(len(at_ns), -1, dtype=np.int64)
    table = trace.table
    owner = table["lane"][candidates]
    asked = places_of(lanes)
    for lane, places in places_of(owner).items():
        if lane not in asked:
            continue
        rows, points = candidates[places], asked[lane]
        rows = rows[np.lexsort((-table["dur_ns"][rows], table["start_ns"][rows]))]
        start = table["start_ns"][rows]
        hit = innermost(start, start + table["dur_ns"][rows], at_ns[points])
        out[points] = np.where(hit >= 0, rows[hit], -1)
    return out


def places_of(values: Ints) -> dict[int, Ints]:
    """Where each value stands, in rising order; one sort however many values there are.

    Examples
    --------
    >>> {n: at.tolist() for n, at in places_of(np.array([7, 3, 7])).items()}
    {3: [1], 7: [0, 2]}
    """
    if not len(values):
        return {}
    order = np.argsort(values, kind="stable")
    found, first = np.unique(values[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))


def innermost(start: Ints, end: Ints, at: Ints) -> Ints:
    """Index of the latest-started interval that holds each point; -1 for none.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_intervals,)
        Sorted by start (outer before inner), properly nested.
    at : ndarray of int64

    Examples
    --------
    >>> innermost(np.array([0, 2]), np.array([9, 4]), np.array([1, 3, 5, 9]))
    array([ 0,  1,  0, -1])
    """
    if not len(start):
        return np.full(len(at), -1, dtype=np.int64)
    hit = np.searchsorted(start, at, side="right") - 1
    outer = parents(start, end)
    while True:
        miss = (hit >= 0) & (end[hit] <= at)
        if not miss.any():
            return hit
        hit[miss] = outer[hit[miss]]


def parents(start: Ints, end: Ints) -> Ints:
    """Index of the interval directly around each; -1 at the top. Input as for `innermost`."""
    outer = np.arange(len(start), dtype=np.int64) - 1
    while True:
        miss = (outer >= 0) & (end[outer] < end)
        if not miss.any():
            return outer
        outer[miss] = outer[outer[miss]]
