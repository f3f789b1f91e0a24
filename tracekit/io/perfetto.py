"""Write slices and flow arrows as the JSON trace that ui.perfetto.dev opens: exact and streaming.

The viewer drops a slice that overlaps another of its track, drops negative times, names threads
by their ``tid`` alone, and (in old releases) reads times as ns where ``displayTimeUnit`` is
``ns``. So each track is laid out in as many lanes as it needs, every lane has a ``tid`` of its own
in the whole file, times are not negative, and the unit is never written.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import ReadError
from tracekit.io.sources import Limits, Source

Ints = NDArray[np.int64]

#: the first bytes of every file written here
SIGNATURE = b'{"otherData":{"written_by":"tracekit",'
#: rows put together before they are written
CHUNK = 8192


class Sink(Protocol):
    """Where the bytes go: an open binary file, compressed or not."""

    def write(self, data: bytes, /) -> int:
        """Take some bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """What the slices of one kind share.

    Attributes
    ----------
    name : str
        Shown on the slice.
    category : str
    colour : str
        One of the colour names that Chrome's trace viewer knows; empty for its own choice.
    """

    name: str
    category: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """Where a slice stands in a flow: its arrows lead from the start over the steps to the end.

    Attributes
    ----------
    flow : int
        Number of the flow in the file.
    place : {"start", "step", "end"}
    """

    flow: int
    place: Literal["start", "step", "end"]


@dataclass(slots=True)
class Slices:
    """The slices of one track, in any order.

    Attributes
    ----------
    start_ns, end_ns : ndarray of int64, shape (num_slices,)
        From the zero of the file; not negative, and no end before its start.
    kind : ndarray of int, shape (num_slices,)
        Index into ``kinds``.
    kinds : sequence of Kind
    args : callable or None
        The arguments of slice ``i``; those that are None are left out.
    arrow : mapping of int to Arrow
        By slice.
    """

    start_ns: Ints
    end_ns: Ints
    kind: NDArray[Any]
    kinds: Sequence[Kind]
    args: Callable[[int], Mapping[str, Any]] | None = None
    arrow: Mapping[int, Arrow] = field(default_factory=dict)


class PerfettoWriter:
    """Writes one file, event by event; what was written is not kept.

    Parameters
    ----------
    sink : Sink
    about : mapping
        Facts about the file, found under ``otherData``.
    first_tid : int
        Thread numbers are counted from here; above every process number.
    """

    def __init__(self, sink: Sink, about: Mapping[str, Any], first_tid: int) -> None:
        self._sink = sink
        self._next_tid = first_tid
        facts = encoded(dict(about))[1:]
        head = SIGNATURE + facts if len(facts) > 1 else SIGNATURE[:-1] + facts
        sink.write(head + b',"traceEvents":[')
        self._separator = b"\n"

    def process(self, pid: int, name: str, place: int) -> None:
        """Name a process; those of a lower ``place`` are shown above."""
        self._name("process", pid, pid, name, place)

    def track(self, pid: int, name: str, slices: Slices) -> list[int]:
        """Write the slices of a track, below the tracks written before.

        Slices that overlap come to lie in further lanes, called ``name (2)`` and so on.

        Returns
        -------
        list of int
            The ``tid`` of each lane; empty without slices.

        Raises
        ------
        ValueError
            When a slice starts before 0 or ends before it starts.
        """
        start, end = slices.start_ns, slices.end_ns
        if len(start) and (int(start.min()) < 0 or bool((end < start).any())):
            raise ValueError("a slice starts before 0 or ends before it starts")
        order = np.argsort(start, kind="stable")
        lane = lanes(start[order], end[order])
        tids = []
        for number in range(int(lane.max(initial=-1)) + 1):
            tid, self._next_tid = self._next_tid, self._next_tid + 1
            title = name if number == 0 else f"{name} ({number + 1})"
            self._name("thread", pid, tid, title, tid)
            self._slices(pid, tid, slices, order[lane == number])
            tids.append(tid)
        return tids

    def close(self) -> None:
        """Write the end of the file; the sink stays open."""
        self._sink.write(b"\n]}\n")

    def _slices(self, pid: int, tid: int, slices: Slices, rows: Ints) -> None:
        heads = [_head(kind, pid, tid) for kind in slices.kinds]
        for at in range(0, len(rows), CHUNK):
            some = rows[at : at + CHUNK].tolist()
            times = zip(
                some,
                slices.kind[some].tolist(),
                slices.start_ns[some].tolist(),
                slices.end_ns[some].tolist(),
                strict=True,
            )
            self._put([
                line
                for i, kind, start, end in times
                for line in _lines(heads[kind], i, start, end, slices, pid, tid)
            ])  # fmt: skip

    def _name(self, what: str, pid: int, tid: int, name: str, place: int) -> None:
        whose = f'"ph":"M","pid":{pid},"tid":{tid}'.encode()
        title = encoded(name or "(no name)")
        self._put([
            b'{"name":"%s_name",%s,"args":{"name":%s}}' % (what.encode(), whose, title),
            b'{"name":"%s_sort_index",%s,"args":{"sort_index":%d}}' % (what.encode(), whose, place),
        ])  # fmt: skip

    def _put(self, lines: list[bytes]) -> None:
        self._sink.write(self._separator + b",\n".join(lines))
        self._separator = b",\n"


def _head(kind: Kind, pid: int, tid: int) -> bytes:
    """What all slices of a kind on one track begin with."""
    text = b'{"ph":"X","pid":%d,"tid":%d,"name":%s' % (pid, tid, encoded(kind.name or "(no name)"))
    if kind.category:
        text += b',"cat":' + encoded(kind.category)
    if kind.colour:
        text += b',"cname":' + encoded(kind.colour)
    return text


def _lines(
    head: bytes, i: int, start: int, end: int, slices: Slices, pid: int, tid: int
) -> list[bytes]:
    """One slice, and its end of an arrow directly after it: arrows bind to what began last."""
    line = b'%s,"ts":%s,"dur":%s' % (head, us_text(start), us_text(end - start))
    if slices.args is not None:
        known = {key: value for key, value in slices.args(i).items() if value is not None}
        line += b',"args":' + encoded(known) if known else b""
    arrow = slices.arrow.get(i)
    if arrow is None:
        return [line + b"}"]
    phase = {"start": b's"', "step": b't"', "end": b'f","bp":"e"'}[arrow.place]
    where = b'"pid":%d,"tid":%d,"ts":%s' % (pid, tid, us_text(start))
    named = b'"name":"collective","cat":"collective","id":%d' % arrow.flow
    return [line + b"}", b'{"ph":"%s,%s,%s}' % (phase, named, where)]


def us_text(ns: int) -> bytes:
    """Nanoseconds as the exact text of µs with three decimals.

    Examples
    --------
    >>> us_text(1_760_000_000_123_456_789), us_text(7)
    (b'1760000000123456.789', b'0.007')
    """
    return b"%d.%03d" % divmod(ns, 1000)


def encoded(value: Any) -> bytes:
    """A value as JSON; what is not valid Unicode in a text becomes ``?``.

    Examples
    --------
    >>> encoded({"name": "a" + chr(0xD800), "id": 2**70})
    b'{"name":"a?","id":1180591620717411303424}'
    """
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an id beyond 64 bits
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def lanes(start: Ints, end: Ints) -> Ints:
    """Lane of each slice, such that those of one lane neither overlap nor start together.

    Parameters
    ----------
    start, end : ndarray of int64, shape (num_slices,), ns
        In order of start.

    Returns
    -------
    ndarray of int64, shape (num_slices,)
        The lowest lane that is free, counted from 0.

    Examples
    --------
    >>> lanes(np.array([0, 5, 9, 10]), np.array([10, 9, 12, 20])).tolist()
    [0, 1, 1, 0]
    """
    found = np.zeros(len(start), dtype=np.int64)
    until = np.maximum(end, start + 1)  # a slice of length 0 takes its instant
    if (start[1:] >= until[:-1]).all():
        return found
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for i, (begin, stop) in enumerate(zip(start.tolist(), until.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stop, lane))
        found[i] = lane
    return found


def is_export(path: Path) -> bool:
    """Whether a file, plain or gzip, was written by a `PerfettoWriter`."""
    try:
        return Source(path).head(Limits(), len(SIGNATURE)) == SIGNATURE
    except (ReadError, OSError):
        return False
