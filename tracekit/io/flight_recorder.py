"""Reads one torch flight-recorder dump (JSON or pickle) into the plain column table.

A dump is one rank's ring buffer of collectives. Each entry becomes one row, in the order of
enqueueing, whose details carry the keys a Kineto trace gives its collectives. Two things of the
format matter to whoever reads the times: ``time_discovered_*`` are when torch's watchdog noticed
(later than it happened), and the JSON form writes 0 where the pickle form writes None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tracekit.core.errors import LimitError, Note, ReadError, one_line
from tracekit.io import plain_pickle
from tracekit.io.flight_entry import Details, Entry, Groups, entry_of, integer, shown
from tracekit.io.table import COLUMNS, EventTable

SOURCE = "flight_recorder"
LIMIT_ENTRIES = 1_000_000
#: deepest nesting and number of values kept of the header; a shared list can unfold without end
LIMIT_HEADER_DEPTH, LIMIT_HEADER_VALUES = 8, 200_000

AS_JSON = (
    "dump as JSON instead: write the bytes of torch._C._distributed_c10d._dump_nccl_trace_json() "
    "or ._dump_fr_trace_json() to a file (no environment variable does it: what "
    "TORCH_FR_DUMP_TEMP_FILE names is always a pickle)"
)

_PICKLE_START = re.compile(rb"\x80[\x02-\x05]|\((?:dp|lp)0\n|[}\]]q")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"\s*:")
_DUMP_KEYS = {b"entries", b"pg_config", b"pg_status", b"nccl_comm_state", b"comm_lib_version"}
_TRACE_KEYS = {b"traceEvents", b"schemaVersion", b"deviceProperties", b"displayTimeUnit"}
_HEAD_BYTES = 65536


def sniff(head: bytes) -> bool:
    """Say whether a file that starts with ``head`` is a flight-recorder dump or a pickle.

    A dump without entries counts: torch's JSON then leaves the key ``entries`` out.
    """
    if _PICKLE_START.match(head):
        return True
    text = head[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith(b"{"):
        return False
    keys = {key for key, _ in _outer_keys(text)}
    return bool(keys & _DUMP_KEYS) and not keys & _TRACE_KEYS


def read(data: bytes, file: str) -> EventTable:
    """Read one dump.

    Parameters
    ----------
    data : bytes
        The whole file, unpacked.
    file : str
        Named in notes and errors.

    Returns
    -------
    EventTable
        One row per entry in file order; ``start_ns`` is absolute unix time (``base_ns`` 0);
        lanes are ``(process group name, "collectives" or "p2p")``. ``meta`` is the dump's header
        with ``tracekit_source`` and, where the dump tells them, ``distributedInfo`` and
        ``host_name``. The dump of torch names no rank: the file name does.

    Raises
    ------
    ReadError
        Not a dump, a pickle that asks for more than plain values, or nothing whole in it.
    LimitError
        More than the limits allow.
    """
    notes: list[Note] = []
    header, items, recovered = _load(data, file, notes)
    if len(items) > LIMIT_ENTRIES:
        raise LimitError(f"{len(items):,} entries (limit {LIMIT_ENTRIES:,})", where=file)
    groups = Groups(header.get("pg_config"))
    entries = [entry_of(item) for item in items if isinstance(item, dict)]
    _share_coalesced(entries)
    spans = _spans(entries)
    clipped = sum(dur < 0 for _, dur in spans)
    table = _table(entries, spans, groups)
    table.meta = _meta(header, groups, notes, file)
    table.counts = {
        "read": len(items),
        "timed": len(entries),
        "dropped": len(items) - len(entries),
        "clipped": clipped,
        "recovered": recovered,
    }
    _remark(entries, table.counts, notes, file)
    table.notes = notes
    return table


# ---- from bytes to header and entries ------------------------------------------------------


def _load(data: bytes, file: str, notes: list[Note]) -> tuple[dict[str, Any], list[Any], int]:
    """Header, entries and the number of entries recovered from a cut file."""
    if _PICKLE_START.match(data):
        value, complete = plain_pickle.load(data, file=file, hint=AS_JSON)
    else:
        value, complete = _from_json(data.removeprefix(b"\xef\xbb\xbf"), file)
    if isinstance(value, list):  # the first version of the format had no header
        value = {"entries": value}
    known = isinstance(value, dict) and any(key.decode() in value for key in _DUMP_KEYS)
    items = value.get("entries", []) if known else None
    if not isinstance(items, list):
        what = "no flight-recorder dump: it has no list of entries"
        raise ReadError(what, where=file, hint="give the file that torch's flight recorder wrote")
    if complete:
        return value, items, 0
    whole = [item for item in items if isinstance(item, dict) and "profiling_name" in item]
    text = f"the dump is cut at byte {len(data):,}: {len(whole)} whole entries were recovered"
    notes.append(Note("truncated", text, "warning", file))
    return value, whole, len(whole)


def _from_json(data: bytes, file: str) -> tuple[Any, bool]:
    """Decode JSON; of a cut file, what stands before its last whole entry."""
    try:
        return msgspec.json.decode(data), True
    except RecursionError:
        raise ReadError("the JSON is nested too deeply", where=file) from None
    except msgspec.DecodeError as error:
        fault = str(error)
    end = _last_whole_entry(data) if "truncated" in fault else 0
    if not end:
        raise ReadError(f"not readable as JSON: {fault}", where=file)
    try:
        return msgspec.json.decode(data[:end] + b"]}"), False
    except (msgspec.DecodeError, RecursionError):
        raise ReadError(f"not readable as JSON: {fault}", where=file) from None


def _tokens(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Texts and brackets of JSON, with the depth they stand at and the byte after them."""
    depth = 0
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in (b"}", b"]"):
            depth -= 1
        yield token, depth, match.end()
        if token in (b"{", b"["):
            depth += 1


def _outer_keys(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Keys of the outermost object and the byte after each."""
    for token, depth, end in _tokens(data):
        if depth == 1 and token[:1] == b'"' and _COLON.match(data, end):
            yield token[1:-1], end


def _last_whole_entry(data: bytes) -> int:
    """The byte after the last whole object in the outer list ``entries``, 0 for none."""
    start = next((end for key, end in _outer_keys(data) if key == b"entries"), len(data))
    last = 0
    for token, depth, end in _tokens(data):
        if end <= start:
            continue
        if depth <= 1 and token == b"]":
            break
        if depth == 2 and token == b"}":
            last = end
    return last


# ---- rows ----------------------------------------------------------------------------------


def _share_coalesced(entries: Sequence[Entry]) -> None:
    """Give the members of a coalesced launch the state and times of the launch.

    torch records each member (with sizes, never completed) and then one entry ``coalesced``
    (without sizes) that alone learns when the kernel ended; both sequence numbers are theirs.
    """
    members: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        key = (entry.group_key, entry.collective_seq, entry.p2p_seq)
        if entry.op != "coalesced":
            members.setdefault(key, []).append(entry)
            continue
        for member in members.pop(key, ()):
            entry.is_p2p = entry.is_p2p or member.is_p2p
            if member.state == "scheduled":
                member.state, member.in_launch = entry.state, True
                member.started_ns, member.completed_ns = entry.started_ns, entry.completed_ns
                member.duration_ns = entry.duration_ns


def _spans(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Start and duration of each entry in ns; one without any time takes its neighbour's start."""
    known = [entry.start_ns for entry in entries if entry.start_ns is not None]
    last = known[0] if known else 0
    spans = []
    for entry in entries:
        last = last if entry.start_ns is None else entry.start_ns
        if entry.completed_ns is not None:
            duration = entry.completed_ns - last
        else:
            duration = entry.duration_ns or 0 if entry.finished else 0
        spans.append((last, duration))
    return spans


def _table(entries: Sequence[Entry], spans: list[tuple[int, int]], groups: Groups) -> EventTable:
    """The columns of ``entries``."""
    num = len(entries)
    names: dict[str, int] = {}
    lanes: dict[tuple[str, str], int] = {}
    columns = {key: np.full(num, -1, dtype) for key, dtype in COLUMNS.items()}
    columns["start_ns"][:] = [start for start, _ in spans]
    columns["dur_ns"][:] = [max(dur, 0) for _, dur in spans]
    columns["name"][:] = [names.setdefault(entry.name, len(names)) for entry in entries]
    columns["lane"][:] = [lanes.setdefault(entry.lane, len(lanes)) for entry in entries]
    columns["cat"][:] = 0
    columns["detail"][:] = np.arange(num)
    details = Details(groups)
    rows = [details.of(entry) for entry in entries]
    return EventTable(columns, list(names), [SOURCE], list(lanes), rows, {})


# ---- header --------------------------------------------------------------------------------


def _meta(header: dict[str, Any], groups: Groups, notes: list[Note], file: str) -> dict[str, Any]:
    """The header as plain, bounded values, and what it tells of rank and host."""
    copy = _HeaderCopy()
    own = ("entries", "distributedInfo", "host_name")
    kept = {key: value for key, value in header.items() if key not in own}
    meta: dict[str, Any] = copy.of(kept, 0)
    if copy.omitted:
        text = f"{copy.omitted} values of the header are too many, too deep or no plain JSON"
        notes.append(Note("header-cut", text, "warning", file))
    meta["tracekit_source"] = SOURCE
    rank, world = integer(header.get("rank")), integer(header.get("world_size"))
    known = {"rank": rank, "world_size": world or groups.world_size}
    if info := {key: value for key, value in known.items() if value is not None}:
        meta["distributedInfo"] = info
    host = header.get("host_name", header.get("hostname"))
    if isinstance(host, str) and host:
        meta["host_name"] = host
    return meta


class _HeaderCopy:
    """Copies nested values down to a depth and up to a number, and counts what it left out."""

    def __init__(self) -> None:
        self.left, self.omitted = LIMIT_HEADER_VALUES, 0

    def of(self, value: Any, depth: int) -> Any:
        """The copy of ``value`` that stands at ``depth``; None for what is left out."""
        self.left -= 1
        if self.left >= 0 and depth < LIMIT_HEADER_DEPTH:
            if isinstance(value, dict):
                return {str(key)[:200]: self.of(item, depth + 1) for key, item in value.items()}
            if isinstance(value, list | tuple):
                return [self.of(item, depth + 1) for item in value]
        if value is None or isinstance(value, str | float | bool):
            return value
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return value
        self.omitted += 1
        return None


# ---- notes ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Remarks:
    """Collects the notes of one file."""

    notes: list[Note]
    file: str

    def info(self, code: str, text: str, *, when: int = 1) -> None:
        if when:
            self.notes.append(Note(code, text, "info", self.file))

    def warn(self, code: str, text: str, *, when: int = 1) -> None:
        if when:
            self.notes.append(Note(code, text, "warning", self.file))


def _remark(entries: Sequence[Entry], counts: dict[str, int], notes: list[Note], file: str) -> None:
    """Note what the reader must know about these entries."""
    say = _Remarks(notes, file)
    dropped, clipped = counts["dropped"], counts["clipped"]
    say.warn("odd-entries", f"{dropped} entries are no objects and were left out", when=dropped)
    if not entries:
        say.warn("no-entries", "no entries")
        return
    text = f"{clipped} entries completed before their start: their duration is set to 0"
    say.warn("negative-duration", text, when=clipped)
    _remark_times(entries, say)
    _remark_uncompleted(entries, say)
    first = entries[0].record_id or 0
    text = (
        f"the first entry is number {first}: earlier ones are not in the dump (the ring buffer "
        "holds TORCH_FR_BUFFER_SIZE entries, and a dump may be of active ones only)"
    )
    say.info("ring-buffer", text, when=first > 0)


def _remark_times(entries: Sequence[Entry], say: _Remarks) -> None:
    """Say what the start times and durations are worth."""
    num = len(entries)
    timeless = sum(e.start_ns is None for e in entries)
    text = f"{timeless} of {num} entries have no time: they stand at their neighbour's start"
    say.warn("no-times", text, when=timeless)
    created = sum(e.started_ns is None and e.created_ns is not None for e in entries)
    text = (
        f"{created} of {num} start times are those of enqueueing: the dump holds no start "
        "(NCCL records it with TORCH_NCCL_ENABLE_TIMING=1)"
    )
    say.info("creation-times", text, when=created)
    noticed = sum(e.completed_ns is not None for e in entries)
    measured = sum(e.duration_ns is not None for e in entries)
    text = (
        f"the ends of {noticed} entries are when torch's watchdog noticed them, later than they "
        f"happened; {measured} entries carry a measured duration (duration_ms)"
    )
    say.info("discovered-times", text, when=noticed)
    untimed = sum(e.finished and e.completed_ns is None and not e.duration_ns for e in entries)
    text = f"{untimed} of {num} entries finished without a completion time: their duration is 0"
    say.info("no-completion-times", text, when=untimed)
    shared = sum(e.in_launch for e in entries)
    text = f"{shared} entries are members of coalesced launches and carry the launch's times"
    say.info("coalesced", text, when=shared)


def _remark_uncompleted(entries: Sequence[Entry], say: _Remarks) -> None:
    """Name the last completed and the first uncompleted collective of a hang."""
    open_ones = [entry for entry in entries if not entry.finished]
    if not open_ones:
        return
    done = [entry for entry in entries if entry.finished]
    last = max(done, key=lambda e: e.completed_ns or 0, default=None)
    if last is not None and last.completed_ns is None:
        last = done[-1]
    retired = sum(entry.retired for entry in open_ones)
    first = open_ones[0]
    text = (
        f"{len(open_ones)} of {len(entries)} entries never completed: the last completed is "
        f"{shown(last) if last else 'none'}, the first not completed is {shown(first)} "
        f"(state {one_line(first.state, 20)})"
    )
    if retired:
        text += f"; {retired} of them were given up by the watchdog (timed out)"
    say.warn("uncompleted", text)
