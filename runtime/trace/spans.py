"""Tie the spans that gloo and NCCL record to the collectives that caused them.

NCCL's kernels say their group and sequence number. Gloo's spans say neither. Each is known by the
mark its input carries (`Log.tag`) where there is one: that is exact. What has no mark is known by
the threads of its group, of which every gloo group has two of its own, and by the order on them.
The two threads of a group can overtake each other between taking an operation and starting its
span, so order alone was wrong for 49 of 36,000 collectives with many in flight. The name and size
of each span are compared too, which leaves 2 of them, and what does not fit is left open.
"""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from runtime.trace.records import FIRST_TAG, ISSUE, Record

_DECODER = json.JSONDecoder(parse_float=str)
_GLOO = '"name": "gloo:'
_NCCL = '"name": "nccl'
_ISSUED = f'"name": "{ISSUE}'
_P2P = ("send", "recv")


@dataclass(slots=True, eq=False)
class Span:
    """One span of a collective in the text of a trace; times are unix ns.

    Attributes
    ----------
    name : str
        Without the backend's name: ``all_reduce``; a kernel's as it is.
    lane : (str, str)
        Process and thread (device and stream).
    elems : int or None
        Elements of the input; None where shapes were not recorded.
    tag : int
        The mark of its input, 0 for none.
    begin, end : int
        Where its row lies in the text.
    """

    name: str
    lane: tuple[str, str]
    start_ns: int
    end_ns: int
    elems: int | None
    tag: int
    begin: int
    end: int
    args: dict[str, Any]

    @property
    def thread(self) -> int:
        """Native id of the thread it ran on; -1 for a stream."""
        return int(self.lane[1]) if self.lane[1].isdecimal() else -1


@dataclass
class Joined:
    """Which span belongs to which record.

    Attributes
    ----------
    pairs : list of (Span, Record)
    by_tag, by_order, by_seq, open : int
        How many were joined by their mark, by order, by sequence number, and not at all.
    """

    pairs: list[tuple[Span, Record]] = field(default_factory=list)
    by_tag: int = 0
    by_order: int = 0
    by_seq: int = 0
    open: int = 0

    def counts(self) -> dict[str, int]:
        """How many were joined in which way, and how many were not."""
        return {
            "tag": self.by_tag,
            "order": self.by_order,
            "seq": self.by_seq,
            "open": self.open,
        }

    def add(self, span: Span, record: Record) -> None:
        """Join one."""
        record.start_ns, record.end_ns = span.start_ns, span.end_ns
        self.pairs.append((span, record))


def base_of(text: str) -> int:
    """The time base of a Kineto text, unix ns; 0 where times are absolute."""
    at = text.find('"baseTimeNanoseconds"')
    if at < 0:
        return 0
    value, _ = _DECODER.raw_decode(text, text.index(":", at) + 2)
    return int(value)


def spans_in(text: str, what: str) -> Iterator[Span]:
    """The spans whose row begins its name with some text, in the order of the file."""
    base, at = base_of(text), text.find(what)
    while at >= 0:
        begin = text.rindex("{", 0, at)
        row, end = _DECODER.raw_decode(text, begin)
        if row.get("ph") == "X":
            yield _span(row, base, begin, end)
        at = text.find(what, end)


def gloo_spans(text: str) -> list[Span]:
    """All spans of gloo in a Kineto text."""
    return list(spans_in(text, _GLOO))


def _span(row: dict[str, Any], base: int, begin: int, end: int) -> Span:
    args = row.get("args") or {}
    start = base + _ns(row["ts"])
    elems, tag = _message(args)
    return Span(
        str(row["name"]).removeprefix("gloo:"),
        (str(row["pid"]), str(row["tid"])),
        start,
        start + _ns(row["dur"]),
        elems,
        tag,
        begin,
        end,
        args,
    )


def _ns(us: str | int) -> int:
    """Nanoseconds of a number of µs as written."""
    return int(Decimal(us) * 1000)


def _message(args: dict[str, Any]) -> tuple[int | None, int]:
    """Elements of a span's inputs, and the mark on them."""
    dims, strides = args.get("Input Dims"), args.get("Input Strides")
    if not isinstance(dims, list):
        return None, 0
    elems = sum(_numel(d) for d in dims)
    tag = 0
    if isinstance(strides, list) and len(strides) == 1 and isinstance(strides[0], list):
        tag = next((s for s in strides[0] if isinstance(s, int) and s >= FIRST_TAG), 0)
    return elems, tag


def _numel(dims: Any) -> int:
    """Elements of one tensor's dimensions, or of a list of tensors'."""
    if not isinstance(dims, list):
        return 0
    if any(isinstance(d, list) for d in dims):
        return sum(_numel(d) for d in dims)
    number = 1
    for d in dims:
        number *= d
    return number


# -- joining ----------------------------------------------------------------------------------


def join(text: str, records: list[Record], threads: dict[int, str]) -> Joined:
    """Set the times of records from the spans in a Kineto text.

    Parameters
    ----------
    text : str
    records : list of Record
        In the order of issue.
    threads : dict of int to str
        Torch's name of the group each run-loop thread works for; those found by marks are added.

    Returns
    -------
    Joined
    """
    joined = Joined()
    spans = gloo_spans(text)
    _by_tag(joined, spans, records, threads)
    _by_order(joined, spans, records, threads)
    _by_seq(joined, text, records)
    joined.open = sum(r.start_ns is None for r in records)
    return joined


def _by_tag(
    joined: Joined, spans: list[Span], records: list[Record], threads: dict[int, str]
) -> None:
    tagged = {r.tag: r for r in records if r.tag}
    for span in spans:
        record = tagged.get(span.tag)
        if record is not None:
            joined.add(span, record)
            threads[span.thread] = record.pg_name
            joined.by_tag += 1


def _by_order(
    joined: Joined, spans: list[Span], records: list[Record], threads: dict[int, str]
) -> None:
    left = [r for r in records if r.start_ns is None]
    if not left:
        return
    rest = [s for s in spans if not s.tag]
    _name_last_group(rest, left, threads)
    spans_of, records_of = defaultdict(list), defaultdict(list)
    for span in rest:  # a send runs on the thread that calls it
        own = span.name.startswith(_P2P)
        spans_of[str(span.thread) if own else threads.get(span.thread, "")].append(span)
    for record in left:
        own = record.span in _P2P
        records_of[str(record.thread) if own else record.pg_name].append(record)
    for key, issued in records_of.items():
        for span, record in _in_order(sorted(spans_of[key], key=lambda s: s.start_ns), issued):
            joined.add(span, record)
            joined.by_order += 1


def _name_last_group(spans: list[Span], records: list[Record], threads: dict[int, str]) -> None:
    """Threads not known yet work for the only group that has fewer than two known ones."""
    unknown = {s.thread for s in spans if s.thread not in threads and not s.name.startswith(_P2P)}
    known = list(threads.values())
    short = {r.pg_name for r in records if r.span not in _P2P and known.count(r.pg_name) < 2}
    if unknown and len(short) == 1:
        name = short.pop()
        if len(unknown) + known.count(name) <= 2:
            threads.update(dict.fromkeys(unknown, name))


def _in_order(spans: list[Span], records: list[Record]) -> Iterator[tuple[Span, Record]]:
    """Pair the spans of one group with its records: the n-th of each kind is the n-th issued.

    The kind is the name and the size; where a backend records other sizes, the name. A kind of
    which the two numbers differ is left open.
    """
    for pick in (_sized, _named):
        pairs: list[tuple[Span, Record]] = []
        spans_of, records_of = _kinds(spans, pick), _kinds(records, pick)
        for kind, issued in records_of.items():
            if len(spans_of.get(kind, ())) == len(issued):
                pairs += zip(spans_of[kind], issued, strict=True)
        if len(pairs) == len(records) or pick is _named:
            yield from pairs
            return


def _sized(one: Span | Record) -> tuple[str, int]:
    return (_kind(one), one.in_elems if isinstance(one, Record) else one.elems or 0)


def _named(one: Span | Record) -> tuple[str, int]:
    return (_kind(one), 0)


def _kind(one: Span | Record) -> str:
    return one.span if isinstance(one, Record) else one.name.split(" ", 1)[0]


def _kinds(items: Iterable[Any], pick: Any) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for item in items:
        found.setdefault(pick(item), []).append(item)
    return found


def _by_seq(joined: Joined, text: str, records: list[Record]) -> None:
    """Kernels of NCCL by group and sequence number, or by the annotation around their launch."""
    left = {(r.pg_name, r.seq): r for r in records if r.start_ns is None}
    if not left:
        return
    marks: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for mark in spans_in(text, _ISSUED):
        marks[mark.lane].append((mark.start_ns, mark.end_ns, mark.name.removeprefix(ISSUE)))
    for spans in marks.values():
        spans.sort()
    for span in spans_in(text, _NCCL):
        key = _key(span, marks.get(span.lane, []))
        if (record := left.get(key)) is None:
            continue
        if record.start_ns is not None and record.end_ns is not None:  # several kernels of one
            span.start_ns = min(span.start_ns, record.start_ns)
            span.end_ns = max(span.end_ns, record.end_ns)
        else:
            joined.by_seq += 1
        joined.add(span, record)


def _key(span: Span, marks: list[tuple[int, int, str]]) -> tuple[str, int | None]:
    """Group and number of a kernel."""
    name, seq = span.args.get("Process Group Name"), span.args.get("Seq")
    if name is not None and seq is not None:
        return str(name), int(seq)
    at = bisect.bisect_right(marks, (span.start_ns, 1 << 63, "")) - 1
    if at >= 0 and marks[at][1] >= span.end_ns:
        name, _, number = marks[at][2].rpartition(":")
        return name, int(number) if number.isdecimal() else None
    return "", None
