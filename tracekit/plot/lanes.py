"""The lanes of one rank: its time, steps, streams and threads, as sorted columns of events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tracekit.analysis.exposure import exposure
from tracekit.analysis.selection import Part, part_of
from tracekit.core.errors import one_line
from tracekit.core.intervals import Intervals, subtract
from tracekit.model.host import span_rows
from tracekit.model.links import Ints
from tracekit.model.names import NONE
from tracekit.model.run import TraceSet
from tracekit.model.trace import (
    ANNOTATION,
    COLLECTIVE,
    KINDS,
    LAUNCH,
    OPERATOR,
    OTHER,
    PYTHON,
    RECORDED,
    Trace,
)
from tracekit.model.work import Work
from tracekit.plot.palette import HATCHED, HOST_ROLES, ROLES
from tracekit.plot.rows import MAX_DEPTH, depths

#: roles of drawn events in the order of their codes; the first three are those of work
DRAWN = (
    "compute", "comm", "memory", "idle", "wait", "transfer", "unknown", "operator", "launch",
    "annotation", "python", "host",
)  # fmt: skip
LABELS = tuple((ROLES.get(role) or HOST_ROLES[role]).label for role in DRAWN)
HATCHED_CODES = frozenset(code for code, role in enumerate(DRAWN) if role in HATCHED)
#: of the lanes with the most events; the others are counted
MAX_LANES = 256
TITLE_LIMIT = 80
_CODE = {role: code for code, role in enumerate(DRAWN)}
_OF_KIND = {
    OPERATOR: "operator",
    LAUNCH: "launch",
    ANNOTATION: "annotation",
    PYTHON: "python",
    COLLECTIVE: "comm",
    RECORDED: "comm",
}
_SYNCHRONISES = re.compile(r"^(cuda|hip|cu|xpu)\w*Synchronize|^aclrtSynchronize")

LaneKind = Literal["time", "steps", "stream", "thread"]


@dataclass(slots=True)
class Lane:
    """One lane: a title and its rows, callers above.

    Attributes
    ----------
    kind : {"time", "steps", "stream", "thread"}
        ``time`` is the division of the rank's window: its events add up to it.
    title : str
    rows : list of (int, int)
        First and last + 1 event of each row.
    """

    kind: LaneKind
    title: str
    rows: list[tuple[int, int]]


@dataclass(slots=True)
class RankLanes:
    """Drawn events of one rank, sorted by lane, row and start; no two of a row overlap.

    Attributes
    ----------
    rank : int
    lanes : list of Lane
    start, dur : ndarray of int64, shape (num_events,), ns
        ``start`` counts from the zero of the picture, on the corrected clock.
    name : ndarray of int32
        Index into ``names``.
    role : ndarray of uint8
        Index into `DRAWN`.
    row : ndarray of int64
        Row of the event table; -1 for what is no event of the trace (the lanes time and steps).
    names : list of str
    num_deeper, num_lanes_left_out : int
        Events nested too deep to be drawn, and lanes beyond the first `MAX_LANES`.
    """

    rank: int
    lanes: list[Lane]
    start: Ints
    dur: Ints
    name: NDArray[np.int32]
    role: NDArray[np.uint8]
    row: Ints
    names: list[str]
    num_deeper: int = 0
    num_lanes_left_out: int = 0

    def __len__(self) -> int:
        return len(self.start)

    @property
    def num_bytes(self) -> int:
        """What the columns take in memory."""
        return sum(c.nbytes for c in (self.start, self.dur, self.name, self.role, self.row))


@dataclass(slots=True)
class _Piece:
    """Events of one lane, by start, of equal starts the longer first."""

    kind: LaneKind
    title: str
    start: Ints
    dur: Ints
    name: Ints
    role: NDArray[np.uint8]
    row: Ints


@dataclass(slots=True)
class _Names:
    """The names of a trace, and behind them those of what is no event of it."""

    of_trace: list[str]
    own: list[str] = field(default_factory=list)

    def add(self, text: str) -> int:
        """The number of one more name."""
        self.own.append(text)
        return len(self.of_trace) + len(self.own) - 1


def rank_lanes(run: TraceSet, rank: int, shift_ns: int, *, summary: bool = False) -> RankLanes:
    """The lanes of one rank: time and steps first, then streams, then host threads.

    Parameters
    ----------
    run : TraceSet
    rank : int
    shift_ns : int
        What to add to the rank's absolute times.
    summary : bool
        Only the lanes time and steps.

    Raises
    ------
    UsageError
        When the rank is not in the run.
    """
    part = part_of(run, rank)
    names = _Names(part.trace.table.names)
    pieces = [*_time_pieces(part, names), *_step_pieces(part, names)]
    left_out = 0
    if not summary:
        streams = list(_stream_pieces(part.trace, part.work))
        threads, left_out = _thread_pieces(part.trace, part.work, MAX_LANES - len(streams))
        pieces += [*streams, *threads]
    return _joined(part, pieces, shift_ns, names, left_out)


def _joined(
    part: Part, pieces: list[_Piece], shift_ns: int, names: _Names, left_out: int
) -> RankLanes:
    """Lay the events of each lane into rows and join all lanes."""
    lanes, orders, at, deeper = [], [], 0, 0
    for piece in pieces:
        depth = depths(piece.start, piece.start + piece.dur)
        order = np.argsort(depth.astype(np.int8), kind="stable")
        counts = np.bincount(depth, minlength=1)
        deeper += int(counts[MAX_DEPTH:].sum())
        ends = at + np.cumsum(counts[:MAX_DEPTH])
        starts = ends - counts[:MAX_DEPTH]
        kept = int(ends[-1]) - at
        orders.append(order[:kept])
        rows = list(zip(starts.tolist(), ends.tolist(), strict=True))
        lanes.append(Lane(piece.kind, piece.title, rows))
        at += kept

    def column(key: str, kind: type) -> NDArray[Any]:
        parts = [getattr(p, key)[o] for p, o in zip(pieces, orders, strict=True)]
        whole: NDArray[Any] = np.concatenate([np.empty(0, dtype=kind), *parts])
        return whole.astype(kind, copy=False)

    return RankLanes(
        part.trace.rank,
        lanes,
        column("start", np.int64) + (shift_ns + part.trace.table.base_ns),
        column("dur", np.int64),
        column("name", np.int32),
        column("role", np.uint8),
        column("row", np.int64),
        names.of_trace + names.own,
        deeper,
        left_out,
    )


# -- what the time went to --------------------------------------------------------------------


def _time_pieces(part: Part, names: _Names) -> Iterator[_Piece]:
    """The division of the window, as `breakdown` gives it; overlapped parts count as compute."""
    work = part.work
    if not len(work):
        return
    found = exposure(work, part.split)
    sets: list[tuple[str, Intervals]]
    if work.comm_known and work.compute_known:
        sets = [
            ("compute", found.compute),
            ("wait", found.wait),
            ("transfer", found.transfer),
            ("unknown", found.unknown),
            ("memory", found.exposed_memory),
            ("idle", found.idle),
        ]
    else:  # communication on a timeline of its own, or nothing else recorded
        copies = subtract(found.memory, found.compute)
        sets = [("compute", found.compute), ("memory", copies)]
        sets = sets if work.compute_known else [("comm", found.comm)]
    start = np.concatenate([s for _, (s, _) in sets])
    dur = np.concatenate([e for _, (_, e) in sets]) - start
    codes = np.repeat([_CODE[role] for role, _ in sets], [len(s) for _, (s, _) in sets])
    name = np.zeros(len(DRAWN), dtype=np.int64)
    for part_of_it, _ in sets:
        label = "exposed memory copies" if part_of_it == "memory" else LABELS[_CODE[part_of_it]]
        name[_CODE[part_of_it]] = names.add(label)
    order = np.argsort(start, kind="stable")
    codes = codes[order]
    nowhere = np.full(len(order), -1, dtype=np.int64)
    role = codes.astype(np.uint8)
    yield _Piece(
        "time", "where the time goes", start[order], dur[order], name[codes], role, nowhere
    )


def _step_pieces(part: Part, names: _Names) -> Iterator[_Piece]:
    steps = part.steps
    if not len(steps):
        return
    numbers = np.array([names.add(f"step {label}") for label in steps.label], dtype=np.int64)
    role = np.full(len(steps), _CODE["annotation"], dtype=np.uint8)
    nowhere = np.full(len(steps), -1, dtype=np.int64)
    yield _sorted_piece(
        "steps", "steps", steps.start, steps.end - steps.start, numbers, role, nowhere
    )


# -- the device -------------------------------------------------------------------------------


def _stream_pieces(trace: Trace, work: Work) -> Iterator[_Piece]:
    """The device's work by stream; ends that reach too far are cut as in the figures."""
    if work.timeline != "device":
        return
    for stream in np.unique(work.stream).tolist()[:MAX_LANES]:
        at = np.flatnonzero(work.stream == stream)
        row, start = work.row[at], work.start[at]
        title = f"stream {stream}" if stream >= 0 else lane_title(trace, -2 - stream)
        name = trace.table["name"][row]
        role = work.role[at].astype(np.uint8)
        yield _sorted_piece("stream", title, start, work.end[at] - start, name, role, row)


def lane_title(trace: Trace, lane: int) -> str:
    """What a thread is called: its name and number."""
    tid, name = trace.table.lanes[lane][1], trace.table.lane_names.get(lane, "")
    title = name if name and tid in name else f"{name or 'thread'} {tid}"
    return one_line(title, TITLE_LIMIT)


# -- the host ---------------------------------------------------------------------------------


def drawn_host_rows(trace: Trace) -> NDArray[np.bool_]:
    """Rows of host threads, and what else lies on the streams of this rank's device."""
    rows = trace.sound & ~trace.is_device_row
    if trace.device_rows is not None:
        rows &= trace.device_rows | ~_is_device_kind(trace)
    return rows


def drawn_rows(trace: Trace) -> NDArray[np.bool_]:
    """All rows that are drawn, but for those nested too deep and on lanes too many."""
    return drawn_host_rows(trace) | (trace.is_device_row & trace.sound)


def _is_device_kind(trace: Trace) -> NDArray[np.bool_]:
    kernels = KINDS.index("kernel"), KINDS.index("memory")
    found: NDArray[np.bool_] = np.isin(trace.kind, kernels)
    return found


def host_roles(trace: Trace, work: Work) -> NDArray[np.uint8]:
    """The role of each row as a host row: collectives that run on the host, waits, kinds."""
    kinds = np.full(len(KINDS), _CODE["host"], dtype=np.uint8)
    for kind, role in _OF_KIND.items():
        kinds[kind] = _CODE[role]
    found: NDArray[np.uint8] = kinds[trace.kind]
    waits = trace.name_matches(trace.names.host["wait"]) | trace.name_matches(_SYNCHRONISES)
    found[waits & ~trace.is_device_row] = _CODE["wait"]
    if work.timeline == "host":
        if not trace.has_cats:
            found[trace.kind == OTHER] = _CODE["operator"]
        found[span_rows(trace)] = _CODE["comm"]
        found[found == _CODE["operator"]] = _CODE["compute"]
    return found


def _thread_pieces(trace: Trace, work: Work, most: int) -> tuple[list[_Piece], int]:
    """The host's rows by thread, threads that mark steps first; how many threads are left out."""
    table = trace.table
    rows = np.flatnonzero(drawn_host_rows(trace))
    lane = table["lane"][rows]
    order = np.argsort(lane.astype(np.int16) if len(table.lanes) < 2**15 else lane, kind="stable")
    rows, lane = rows[order], lane[order]
    borders = np.concatenate(([0], np.flatnonzero(np.diff(lane)) + 1, [len(lane)]))
    parts = [rows[a:b] for a, b in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)]
    parts = [p for p in parts if len(p)]
    left_out = max(0, len(parts) - most)
    if left_out:
        parts = sorted(parts, key=len, reverse=True)[:most]
    roles = host_roles(trace, work)
    on_device = np.unique(table["lane"][trace.is_device_row]).tolist()
    marks = _step_lanes(trace)
    pieces = []
    for part in parts:
        number = int(table["lane"][part[0]])
        title = lane_title(trace, number)
        title = f"{title} (annotations)" if number in on_device else title
        start, dur, name = table["start_ns"][part], table["dur_ns"][part], table["name"][part]
        piece = _sorted_piece("thread", title, start, dur, name, roles[part], part)
        pieces.append(((number in on_device, number not in marks, int(piece.start[0])), piece))
    return [piece for _, piece in sorted(pieces, key=lambda p: p[0])], left_out


def _step_lanes(trace: Trace) -> set[int]:
    steps = trace.name_matches(trace.names.host["step"]) & ~trace.is_device_row
    return set(np.unique(trace.table["lane"][steps]).tolist())


def _sorted_piece(
    kind: LaneKind,
    title: str,
    start: Ints,
    dur: Ints,
    name: NDArray[np.integer],
    role: NDArray[np.uint8],
    row: Ints,
) -> _Piece:
    order = np.argsort(start, kind="stable")
    s, d = start[order], dur[order]
    tied = s[1:] == s[:-1]
    if (tied & (d[1:] > d[:-1])).any():  # rare, and three times as slow
        order = np.lexsort((-dur, start))
        s, d = start[order], dur[order]
    return _Piece(kind, title, s, d, name[order].astype(np.int64), role[order], row[order])


assert DRAWN[:3] == ("compute", "comm", "memory")
assert NONE == 3  # never drawn: work holds the first three only
