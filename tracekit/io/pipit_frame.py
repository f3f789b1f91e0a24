"""Intervals of several processes written as Pipit's events frame.

Rows are sorted by time with the index 0..n-1, as Pipit takes positions for labels. On each
(Process, Thread) the Enter and Leave rows are properly nested, whatever the intervals: Pipit finds
callers with a stack, and a stack needs that. An interval that crosses another of its thread goes
to a further thread of the process; no interval is ever cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracekit.io.pipit import (
    ATTRIBUTES,
    ENTER,
    LEAVE,
    NAME,
    PROCESS,
    THREAD,
    TIME,
    TYPE,
)

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Timeline:
    """The intervals of one process, the outer before the inner where they start together.

    Attributes
    ----------
    process : int
    start_ns, end_ns : ndarray of int64, shape (num_intervals,)
        On a clock all processes share; in order of start, then of falling end.
    name, lane : ndarray of int, shape (num_intervals,)
        Codes; each lane becomes a thread.
    names : list of str
        Texts of the name codes.
    attributes : sequence of dict
        Of each interval's Enter row.
    """

    process: int
    start_ns: Ints
    end_ns: Ints
    name: NDArray[Any]
    lane: NDArray[Any]
    names: list[str]
    attributes: Sequence[dict[str, Any]]


def frame_of(timelines: Sequence[Timeline]) -> pd.DataFrame:
    """The events frame of several processes.

    Returns
    -------
    DataFrame
        Columns as Pipit's readers make them: ``Timestamp (ns)`` (int64; 0 is the first event of
        all), ``Event Type`` and ``Name`` (categories of text), ``Thread`` (numbered from 0 in each
        process) and ``Process`` (categories of int32), ``Attributes`` (dict on Enter rows, None on
        Leave rows).
    """
    import pandas as pd

    codes: dict[str, int] = {}
    parts = [_rows(t, codes) for t in timelines]
    time, leave, name, thread, process = (
        np.concatenate([np.empty(0, dtype=np.int64), *(p[i] for p in parts)]) for i in range(5)
    )
    attributes = np.empty(len(time), dtype=object)
    attributes[:] = [a for p in parts for a in p[5]]
    order = np.argsort(time, kind="stable")  # stable: each thread's own order is the nesting
    time = time - (time[order[0]] if len(order) else 0)
    names = sorted(codes)
    places = {text: code for code, text in enumerate(names)}
    place = np.array([places[n] for n in codes], dtype=np.int64)
    columns = {
        TIME: time[order],
        TYPE: pd.Categorical.from_codes(leave[order].astype(np.int8), pd.Index([ENTER, LEAVE])),
        NAME: pd.Categorical.from_codes(place[name[order]], pd.Index(names)),
        THREAD: pd.Categorical(thread[order].astype(np.int32)),
        PROCESS: pd.Categorical(process[order].astype(np.int32)),
        ATTRIBUTES: pd.Series(attributes[order], dtype=object),
    }
    return pd.DataFrame(columns)


def definitions_of(headers: Mapping[int, Mapping[str, Any]]) -> pd.DataFrame:
    """Pipit's definitions frame, with one definition of type ``Process`` for each header.

    Parameters
    ----------
    headers : mapping of int to mapping
        What is known of a process as a whole, by its number.
    """
    import pandas as pd

    columns = {
        "Definition Type": pd.Categorical([PROCESS] * len(headers), pd.Index([PROCESS])),
        "ID": pd.Series(list(headers), dtype="float64"),
        ATTRIBUTES: pd.Series([dict(h) for h in headers.values()], dtype=object),
    }
    return pd.DataFrame(columns)


def _rows(t: Timeline, codes: dict[str, int]) -> tuple[Any, ...]:
    """A process's rows thread by thread: time, is-leave, name, thread, process, attributes."""
    start, end = t.start_ns.tolist(), t.end_ns.tolist()
    main: list[list[int]] = []
    more: list[list[int]] = []
    for lane in np.unique(t.lane):
        sequences = nested(np.flatnonzero(t.lane == lane).tolist(), start, end)
        main.append(sequences[0])
        more += sequences[1:]
    threads = main + more
    sequence = [i for thread in threads for i in thread]
    row = np.array(sequence, dtype=np.int64)
    leave = row < 0
    row = np.where(leave, ~row, row)
    thread = np.repeat(np.arange(len(threads)), [len(s) for s in threads])
    own = np.array([codes.setdefault(n, len(codes)) for n in t.names] or [0], dtype=np.int64)
    attributes = [t.attributes[i] if i >= 0 else None for i in sequence]
    time = np.where(leave, t.end_ns[row], t.start_ns[row])
    return time, leave, own[t.name[row]], thread, np.full(len(row), t.process), attributes


def nested(rows: Sequence[int], start: Sequence[int], end: Sequence[int]) -> list[list[int]]:
    """Order intervals as properly nested brackets, on as few threads as their crossings need.

    Parameters
    ----------
    rows : sequence of int
        Which intervals, in order of start and then of falling end.
    start, end : sequence of int
        Of all intervals.

    Returns
    -------
    list of list of int
        Per thread, ``i`` where interval ``i`` is entered and ``~i`` where it is left. An interval
        that ends where the next starts is left before that one is entered.

    Examples
    --------
    >>> nested([0, 1, 2], [0, 2, 5], [9, 4, 12])
    [[0, 1, -2, -1], [2, -3]]
    """
    threads: list[tuple[list[int], list[int]]] = []  # open intervals, rows so far
    for i in rows:
        for stack, sequence in threads:
            while stack and end[stack[-1]] <= start[i]:
                sequence.append(~stack.pop())
            if not stack or end[i] <= end[stack[-1]]:
                break
        else:
            stack, sequence = [], []
            threads.append((stack, sequence))
        stack.append(i)
        sequence.append(i)
    for stack, sequence in threads:
        while stack:
            sequence.append(~stack.pop())
    return [sequence for _, sequence in threads]
