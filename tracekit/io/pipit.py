"""Pipit's events frame, read into one event table per process.

Pipit (https://github.com/hpcgroup/pipit) keeps a trace as one pandas frame with a row per Enter,
Leave or Instant. A Leave belongs to the nearest earlier Enter of the same name on the same process
and thread that is still open; this file pairs them by that rule, so that durations are the ones
Pipit shows. The other direction is `tracekit.io.pipit_frame`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import Note, UsageError
from tracekit.io.table import COLUMNS, EventTable

if TYPE_CHECKING:
    import pandas as pd

TIME, TYPE, NAME, THREAD, PROCESS, ATTRIBUTES = (
    "Timestamp (ns)", "Event Type", "Name", "Thread", "Process", "Attributes",
)  # fmt: skip
ENTER, LEAVE, INSTANT = "Enter", "Leave", "Instant"
#: what is kept of a trace's header
HEADER = ("distributedInfo", "host_name", "tracekit")
#: attributes of an Enter row that become columns of the table again
NUMBERS = ("device", "stream", "correlation", "external_id", "bytes")
#: MPI calls between two processes, as OTF2 names them, and the marks of messages inside them
_POINT_TO_POINT = re.compile(
    r"P?MPI_(?:(?P<send>I?[BSR]?send)|(?P<recv>I?M?recv)|Sendrecv|Wait|Test|I?M?probe)",
    re.IGNORECASE,
)
_MESSAGE = re.compile(r"MpiI?(?P<way>Send|Recv)$")
_MPI_GROUP = "MPI point-to-point"
_MAX_RANK = 2**31
_MAX_TIME = 2**62

Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Rows:
    """The frame's rows in order of time, as plain arrays."""

    time: Ints
    type_code: NDArray[np.int8]  # 0 Enter, 1 Leave, 2 Instant, 3 anything else
    name: Ints
    names: list[str]
    process: Ints
    thread: Ints
    threads: list[str]
    attributes: NDArray[np.object_] | None

    def __len__(self) -> int:
        return len(self.time)


@dataclass(slots=True)
class _Pairs:
    """Rows of Enters and of their Leaves, in order of Enter."""

    enter: Ints
    leave: Ints


def tables_of(
    events: pd.DataFrame, definitions: pd.DataFrame | None, label: str = "Pipit trace"
) -> dict[int, EventTable]:
    """The intervals of a Pipit events frame, one table per process.

    Parameters
    ----------
    events : DataFrame
        With ``Timestamp (ns)``, ``Event Type`` and ``Name``; ``Process`` (or ``Rank``, which wins),
        ``Thread`` and ``Attributes`` where there are any. Other columns are not read.
    definitions : DataFrame or None
        Pipit's definitions; read only for what our own export writes there.
    label : str
        What to call the trace in notes.

    Returns
    -------
    dict of int to EventTable
        By process number. Times are ns from one shared base just before the first event.

    Raises
    ------
    UsageError
        When a needed column is missing, or no event is left.
    """
    notes: list[Note] = []
    rows = _rows(events, label, notes)
    pairs = _pairs(rows)
    halves = int((rows.type_code < 2).sum())
    if unpaired := halves - 2 * len(pairs.enter):
        words = f"{unpaired:,} Enter or Leave rows have no partner and were dropped"
        notes.append(Note("unpaired", words, "warning", label))
    if marks := len(rows) - halves:
        words = f"{marks:,} rows are neither Enter nor Leave; they have no length and were left out"
        notes.append(Note("no-length", words, "info", label))
    if not len(pairs.enter):
        hint = f"each event needs an {ENTER} row and a {LEAVE} row"
        raise UsageError("no complete event in the Pipit trace", hint=hint)
    base = int(rows.time[pairs.enter].min()) - 1  # an event at (0, 0) would look like a fault
    headers = _headers(definitions)
    made = {}
    processes = np.unique(rows.process)
    for process in processes.tolist():
        mine = rows.process[pairs.enter] == process
        own = _Pairs(pairs.enter[mine], pairs.leave[mine])
        made[process] = _table(rows, own, process, base)
        made[process].counts["read"] = int((rows.process == process).sum())
        made[process].meta = {
            "distributedInfo": {"rank": process, "world_size": len(processes)},
            **headers.get(process, {}),
            "tracekit_source": "pipit",
        }
    made[int(processes[0])].notes = notes
    return {process: table for process, table in made.items() if len(table)}


def _headers(definitions: pd.DataFrame | None) -> dict[int, dict[str, Any]]:
    """What our own export keeps of each process."""
    columns = ("Definition Type", "ID", ATTRIBUTES)
    if definitions is None or not all(c in definitions.columns for c in columns):
        return {}
    rows = definitions.loc[definitions["Definition Type"] == PROCESS]
    return {
        int(process): {key: given[key] for key in HEADER if key in given}
        for process, given in zip(rows["ID"], rows[ATTRIBUTES], strict=True)
        if isinstance(given, dict) and float(process).is_integer()
    }


# -- the frame as arrays ----------------------------------------------------------------------


def _rows(events: pd.DataFrame, label: str, notes: list[Note]) -> _Rows:
    missing = [c for c in (TIME, TYPE, NAME) if c not in events.columns]
    if missing:
        have = ", ".join(repr(str(c)) for c in list(events.columns)[:8]) or "none"
        hint = f"its columns are {have}; Pipit's traces have {TIME!r}, {TYPE!r}, {NAME!r}"
        raise UsageError(f"no column {missing[0]!r} in the frame", hint=hint)
    time, ok = _times(events)
    process, known = _processes(events, label, notes)
    ok = ok & known
    if lost := int((~ok).sum()):
        words = f"{lost:,} rows without a usable time or process were dropped"
        notes.append(Note("bad-rows", words, "warning", label))
    kept = np.flatnonzero(ok)
    at = kept[np.argsort(time[kept], kind="stable")]
    types, type_names = _texts(events[TYPE])
    known_types = {ENTER: 0, LEAVE: 1, INSTANT: 2}
    kinds = [known_types.get(t, 3) for t in type_names]
    name, names = _texts(events[NAME])
    zeros = np.zeros(len(time), dtype=np.int64)
    thread, threads = _texts(events[THREAD]) if THREAD in events.columns else (zeros, ["0"])
    attributes = events[ATTRIBUTES].to_numpy(dtype=object)[at] if ATTRIBUTES in events else None
    return _Rows(
        time[at],
        np.array(kinds or [3], dtype=np.int8)[types[at]],
        name[at],
        names,
        process[at],
        thread[at],
        threads,
        attributes,
    )


def _times(events: pd.DataFrame) -> tuple[Ints, NDArray[np.bool_]]:
    """Time stamps in whole ns (some readers give fractions), and which of them are usable."""
    import pandas as pd

    numbers = pd.to_numeric(events[TIME], errors="coerce")
    near = (numbers.abs() < _MAX_TIME).fillna(False).to_numpy(dtype=bool)
    sound = numbers.where(near, 0)
    if pd.api.types.is_integer_dtype(numbers.dtype):
        return sound.to_numpy(dtype=np.int64), near
    return np.rint(sound.to_numpy(dtype=np.float64)).astype(np.int64), near


def _processes(
    events: pd.DataFrame, label: str, notes: list[Note]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Rank of each row, and which rows have one; 0 where the frame has neither column."""
    import pandas as pd

    everywhere = np.ones(len(events), dtype=bool)
    column = next((c for c in ("Rank", PROCESS) if c in events.columns), None)
    if column is None:
        return np.zeros(len(events), dtype=np.int64), everywhere
    given = events[column].astype("object")
    there = given.notna().to_numpy(dtype=bool)
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    whole = np.isfinite(numbers) & (numbers == np.rint(numbers))
    if bool((whole & (numbers >= 0) & (numbers < _MAX_RANK))[there].all()):
        return np.where(there, numbers, 0).astype(np.int64), there
    codes, texts = _texts(events[column])
    words = f"{len(texts)} values of {column!r} are no rank numbers; ranks are their order"
    notes.append(Note("rank-guessed", words, "info", label))
    return codes, there


def _texts(column: pd.Series[Any]) -> tuple[Ints, list[str]]:
    """Codes and texts of a column, numbered in the order of the texts (of numbers: by value)."""
    import pandas as pd

    codes, values = pd.factorize(column.astype("object"), use_na_sentinel=False)
    texts = [_text(v) for v in values]
    numeric = all(t.isdecimal() for t in texts)
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]) * numeric, texts[i]))
    place = np.empty(len(texts), dtype=np.int64)
    place[order] = np.arange(len(texts))
    return place[codes], [texts[i] for i in order]


def _text(value: Any) -> str:
    """A value as text that can be written as UTF-8; missing ones are empty."""
    import pandas as pd

    return (
        ""
        if pd.api.types.is_scalar(value) and pd.isna(value)
        else str(value).encode("utf-8", "replace").decode("utf-8")
    )


# -- pairing ----------------------------------------------------------------------------------


def _pairs(rows: _Rows) -> _Pairs:
    """Pair each Leave with the nearest earlier open Enter of its name, process and thread.

    Within one name on one thread the rows are like brackets: a Leave closes the last open Enter,
    so an Enter and its Leave are neighbours among the rows of their depth.
    """
    at = np.flatnonzero(rows.type_code < 2)
    at = at[np.lexsort((rows.name[at], rows.thread[at], rows.process[at]))]
    opens = rows.type_code[at] == 0
    keys = (column[at] for column in (rows.process, rows.thread, rows.name))
    changes = [np.diff(key, prepend=key[:1]) != 0 for key in keys]
    segment = np.cumsum(np.logical_or.reduce(changes))
    depth = _depths(opens, segment)
    order = np.lexsort((np.arange(len(at)), depth, segment))
    at, opens, depth, segment = (a[order] for a in (at, opens, depth, segment))
    same = (np.diff(depth) == 0) & (np.diff(segment) == 0)
    first = np.flatnonzero(opens[:-1] & ~opens[1:] & same)
    enter, leave = at[first], at[first + 1]
    by_enter = np.argsort(enter, kind="stable")
    return _Pairs(enter[by_enter], leave[by_enter])


def _depths(opens: NDArray[np.bool_], segment: NDArray[np.int64]) -> Ints:
    """Depth of each bracket in its segment; a Leave with nothing to close is at depth 1."""
    step = np.where(opens, 1, -1).astype(np.int64)
    total = np.cumsum(step)
    new = np.diff(segment, prepend=-1) != 0
    level = total - (total - step)[new][segment]
    # the lowest level so far within the segment: segments are set apart by more than any level
    apart = segment * (2 * len(step) + 2)
    lowest = np.minimum(np.minimum.accumulate(level - apart) + apart, 0)
    depth: Ints = level - lowest + np.where(opens, 0, 1)
    return depth


# -- tables -----------------------------------------------------------------------------------


def _table(rows: _Rows, pairs: _Pairs, process: int, base_ns: int) -> EventTable:
    start = rows.time[pairs.enter]
    columns: dict[str, NDArray[Any]] = {
        key: np.full(len(start), -1, dtype=kind) for key, kind in COLUMNS.items()
    }
    columns["start_ns"] = start - base_ns
    columns["dur_ns"] = rows.time[pairs.leave] - start
    used, columns["name"] = _compact(rows.name[pairs.enter], np.int32)
    table = EventTable(columns, [rows.names[i] for i in used], [""], [], [], {}, base_ns)
    columns["cat"] = np.zeros(len(start), dtype=np.int32)
    threads, columns["lane"] = _compact(rows.thread[pairs.enter], np.int32)
    table.lanes = [(str(process), rows.threads[t]) for t in threads]
    if rows.attributes is not None:
        _take_attributes(table, rows.attributes[pairs.enter])
    _describe_messages(table, rows, pairs, process)
    table.counts = {"read": 0, "timed": len(start)}
    return table


def _compact(codes: Ints, kind: Any) -> tuple[list[int], NDArray[Any]]:
    """The codes in use, and the same codes as places in that list."""
    used, places = np.unique(codes, return_inverse=True)
    return used.tolist(), places.astype(kind)


def _take_attributes(table: EventTable, attributes: NDArray[np.object_]) -> None:
    """Put back what our own export keeps in the attributes of Enter rows."""
    cats: dict[str, int] = {"": 0}
    lanes = {lane: code for code, lane in enumerate(table.lanes)}
    columns = table.columns
    for row, given in enumerate(attributes):
        if not isinstance(given, dict):
            continue
        if isinstance(cat := given.get("cat"), str) and len(cats) < 2**15:
            columns["cat"][row] = cats.setdefault(_text(cat), len(cats))
        if isinstance(given.get("pid"), str) and isinstance(given.get("tid"), str):
            lane = _text(given["pid"]), _text(given["tid"])
            columns["lane"][row] = lanes.setdefault(lane, len(lanes))
        for key in NUMBERS:
            value = given.get(key)
            if type(value) is int and 0 <= value <= np.iinfo(columns[key].dtype).max:
                columns[key][row] = value
        if isinstance(given.get("args"), dict):
            _add_detail(table, row, given["args"])
    table.cats, table.lanes = list(cats), list(lanes)


def _add_detail(table: EventTable, row: int, detail: dict[str, Any]) -> None:
    table.columns["detail"][row] = len(table.details)
    table.details.append(detail)


def _describe_messages(table: EventTable, rows: _Rows, pairs: _Pairs, process: int) -> None:
    """Say of each point-to-point MPI call whom it talks to, from the one message inside it."""
    calls = [_POINT_TO_POINT.match(name) for name in table.names]
    of_calls = np.array([c is not None for c in calls] or [False])
    at = np.flatnonzero(of_calls[table["name"]] & (table["detail"] < 0))
    if not len(at):
        return
    inside = _messages(rows, process)
    for row in at.tolist():
        call = calls[int(table["name"][row])]
        assert call is not None
        enter, leave = int(pairs.enter[row]), int(pairs.leave[row])
        held = inside.get(int(rows.thread[enter]), ([], []))
        low, high = np.searchsorted(held[0], (enter, leave))
        word = "send" if call["send"] else "recv" if call["recv"] else "send_recv"
        detail: dict[str, Any] = {"Collective name": word, "Process Group Name": _MPI_GROUP}
        if high - low == 1:
            detail |= held[1][low]
        _add_detail(table, row, detail)


def _messages(rows: _Rows, process: int) -> dict[int, tuple[list[int], list[dict[str, Any]]]]:
    """Per thread, the rows of message marks and what each says, in our words."""
    marks = [_MESSAGE.match(name) for name in rows.names]
    is_mark = np.array([m is not None for m in marks] or [False])
    at = np.flatnonzero((rows.type_code == 2) & is_mark[rows.name] & (rows.process == process))
    found: dict[int, tuple[list[int], list[dict[str, Any]]]] = {}
    for row in at.tolist():
        given = rows.attributes[row] if rows.attributes is not None else None
        mark = marks[int(rows.name[row])]
        assert mark is not None
        sends = mark["way"] == "Send"
        peer = given.get("receiver" if sends else "sender") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(peer, int | np.integer):
            continue
        said: dict[str, Any] = {"Collective name": "send" if sends else "recv"}
        said["Dst Rank" if sends else "Src Rank"] = int(peer)
        if isinstance(length := given.get("msg_length"), int | np.integer):
            said |= {"In msg nelems": int(length), "dtype": "Byte"}
        places, details = found.setdefault(int(rows.thread[row]), ([], []))
        places.append(row)
        details.append(said)
    return found
