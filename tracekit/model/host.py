"""Work on the host timeline: operators less the time their thread is inside collective calls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracekit.core.intervals import Intervals, intersect, subtract, union
from tracekit.model.links import Ints, innermost, parents, places_of
from tracekit.model.names import COMM, COMPUTE
from tracekit.model.trace import ANNOTATION, COLLECTIVE, OPERATOR, OTHER, Trace


def host_work(trace: Trace) -> tuple[Ints, Ints, NDArray[np.int8], Ints]:
    """Compute and communication intervals of a run without device rows.

    Compute is, per thread, the union of operator rows less the parts where the thread's innermost
    row is a collective call or a recorded wait. A call that says it blocks (``asyncOp`` False,
    recorded with shapes) waits until its thread's next row or the end of the row around it, as
    long as a collective runs. Communication is the real spans of collectives (``gloo:*``), not
    the calls that issue them. In a file without categories every row is an operator.

    Returns
    -------
    start, end : ndarray of int64, ns
    role : ndarray of int8
    row : ndarray of int64
        The outermost operator row of a compute interval, the span's row of a communication one.
    """
    span = span_rows(trace)
    operators = (trace.kind == OPERATOR) if trace.has_cats else (trace.kind == OTHER)
    # a blocking call is a span, and takes its time from the operators around it
    operators = operators & trace.sound & (~span | trace.name_matches(trace.names.host["blocking"]))
    # a recorded wait may be an annotation; it computes nothing and takes from what is around it
    waits = trace.name_matches(trace.names.host["wait"]) & (trace.kind == ANNOTATION)
    operators |= waits & trace.sound & ~span
    comm = np.flatnonzero(span)
    comm_start = trace.table["start_ns"][comm]
    comm_end = comm_start + trace.table["dur_ns"][comm]
    running = union(comm_start, comm_end)
    starts, ends, rows = [], [], []
    chosen = np.flatnonzero(operators)
    call, whole = _is_call(trace), trace.name_matches(trace.names.host["blocking"])
    for places in places_of(trace.table["lane"][chosen].astype(np.int64)).values():
        mine = chosen[places]
        start, end, row = _thread_compute(trace, mine, running, call[mine], whole[mine])
        starts.append(start)
        ends.append(end)
        rows.append(row)
    num_compute = sum(map(len, starts))
    role = np.concatenate((np.full(num_compute, COMPUTE), np.full(len(comm), COMM)))
    return (
        np.concatenate((*starts, comm_start)),
        np.concatenate((*ends, comm_end)),
        role.astype(np.int8),
        np.concatenate((*rows, comm)),
    )


def span_rows(trace: Trace) -> NDArray[np.bool_]:
    """Rows that are the real span of a collective on the host."""
    kinds = (ANNOTATION, COLLECTIVE) if trace.has_cats else (OTHER,)
    host = trace.names.host
    named = trace.name_matches(host["span"]) | trace.name_matches(host["blocking"])
    return np.isin(trace.kind, kinds) & named & trace.sound


def _thread_compute(
    trace: Trace,
    rows: Ints,
    running: Intervals,
    call: NDArray[np.bool_],
    whole: NDArray[np.bool_],
) -> tuple[Ints, Ints, Ints]:
    """Compute intervals of one thread, each with its outermost operator row.

    Parameters
    ----------
    trace : Trace
    rows : ndarray of int64
        The thread's operator rows.
    running : Intervals
        When collectives run.
    call, whole : ndarray of bool
        Which of the rows are collective calls, and which of those are the span as well.
    """
    table = trace.table
    start, dur = table["start_ns"][rows], table["dur_ns"][rows]
    order = np.lexsort((-dur, start))
    rows, start, call, whole = rows[order], start[order], call[order], whole[order]
    end = start + dur[order]
    outside = parents(start, end) < 0
    top_start, top_end, top_row = start[outside], end[outside], rows[outside]
    if not call.any():
        return top_start, top_end, top_row
    waits = intersect(_after_blocking(trace, rows, start, end), running)
    parts = (_inside_calls(start, end, call), waits, (start[whole], end[whole]))
    removed = union(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    kept = subtract(union(top_start, top_end), removed)
    owner = np.searchsorted(top_start, kept[0], side="right") - 1
    return kept[0], kept[1], top_row[owner]


def _is_call(trace: Trace) -> NDArray[np.bool_]:
    host = trace.names.host
    calls = trace.name_matches(host["call"]) | trace.name_matches(host["wait"])
    return calls | trace.name_matches(host["blocking"])


def _after_blocking(trace: Trace, rows: Ints, start: Ints, end: Ints) -> Intervals:
    """From the end of each blocking call to the next start or end of a row on its thread."""
    detail = trace.table["detail"][rows]
    blocking = [
        i
        for i in np.flatnonzero(detail >= 0).tolist()
        if trace.table.details[detail[i]].get("Blocking")
    ]
    since = end[blocking]
    borders = np.sort(np.concatenate((start, end)))
    at = np.searchsorted(borders, since, side="right")
    # the thread's last row: nothing around it that could count as compute
    until = np.where(at < len(borders), borders[np.minimum(at, len(borders) - 1)], since)
    return union(since, until)


def _inside_calls(start: Ints, end: Ints, call: NDArray[np.bool_]) -> Intervals:
    """Where the innermost row of the thread is a call; rows sorted, outer before inner.

    Each call, less the rows directly inside it (its operators and the calls it makes, which
    stand for themselves).
    """
    calls = np.flatnonzero(call)
    call_start, call_end = start[calls], end[calls]
    around = innermost(call_start, call_end, start)
    own = np.full(len(start), -1, dtype=np.int64)
    own[calls] = np.arange(len(calls))
    up = parents(call_start, call_end)
    around = np.where(own >= 0, up[own], around)
    # a call that starts at the same time as a row around it does not hold that row, and of a row
    # and a call with one span the call is the inner one (an operator that only wraps it)
    while True:
        same = (own < 0) & (start == call_start[around]) & (end == call_end[around])
        beyond = (around >= 0) & ((end > call_end[around]) | same)
        if not beyond.any():
            break
        around[beyond] = up[around[beyond]]
    inner = around >= 0
    # every call on a stretch of time of its own, so that one subtraction serves all
    length = call_end - call_start
    shift = np.cumsum(length) - length - call_start
    low, high = call_start + shift, call_end + shift
    at = around[inner]
    holes = union(start[inner] + shift[at], end[inner] + shift[at])
    left = subtract((low, high), holes)
    which = np.searchsorted(low, left[0], side="right") - 1
    return union(left[0] - shift[which], left[1] - shift[which])
