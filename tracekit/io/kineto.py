"""Read Kineto (Chrome) JSON traces of any generation into an event table."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import NotATraceError, Note, ReadError
from tracekit.io.columns import ColumnBuilder
from tracekit.io.jsontext import TraceText
from tracekit.io.repair import WORDS
from tracekit.io.table import EventTable

#: detail argument -> attribute of `Args`; these describe one collective
COLLECTIVE_ARGS = {
    "Collective name": "collective_name",
    "In msg nelems": "in_nelems",
    "Out msg nelems": "out_nelems",
    "Group size": "group_size",
    "dtype": "dtype",
    "In split size": "in_split",
    "Out split size": "out_split",
    "Process Group Name": "pg_name",
    "Process Group Description": "pg_desc",
    "Process Group Ranks": "pg_ranks",
    "Src Rank": "src_rank",
    "Dst Rank": "dst_rank",
    "Seq": "seq",
    "Comms Id": "comms_id",
    "tracekit phase": "phase",
    "tracekit layer": "layer",
}


def _key(name: str, default: Any = None) -> Any:
    return msgspec.field(name=name, default=default)


class Args(msgspec.Struct, gc=False):
    """The arguments that are read; all others are skipped without building objects."""

    external_id: Any = _key("External id", -1)
    old_external_id: Any = _key("external id", -1)
    correlation: Any = -1
    stream: Any = -1
    device: Any = -1
    bytes: Any = -1
    name: Any = None
    collective_name: Any = _key("Collective name")
    in_nelems: Any = _key("In msg nelems")
    out_nelems: Any = _key("Out msg nelems")
    group_size: Any = _key("Group size")
    dtype: Any = None
    in_split: Any = _key("In split size")
    out_split: Any = _key("Out split size")
    pg_name: Any = _key("Process Group Name")
    pg_desc: Any = _key("Process Group Description")
    pg_ranks: Any = _key("Process Group Ranks")
    src_rank: Any = _key("Src Rank")
    dst_rank: Any = _key("Dst Rank")
    seq: Any = _key("Seq")
    comms_id: Any = _key("Comms Id")
    phase: Any = _key("tracekit phase")
    layer: Any = _key("tracekit layer")
    input_dims: msgspec.Raw = _key("Input Dims", msgspec.Raw(b""))
    input_type: msgspec.Raw = _key("Input type", msgspec.Raw(b""))
    concrete_inputs: msgspec.Raw = _key("Concrete Inputs", msgspec.Raw(b""))


class Event(msgspec.Struct, gc=False):
    """One row of ``traceEvents``."""

    ph: Any = None
    name: Any = ""
    cat: Any = ""
    pid: Any = -1
    tid: Any = -1
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """The times of a row as written, for files whose times do not fit a double."""

    ph: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")


_NO_ARGS = Args()
_DECODER = msgspec.json.Decoder(list[Event])
_EXACT = msgspec.json.Decoder(list[ExactEvent])
_EXACT_ONE = msgspec.json.Decoder(ExactEvent)
#: µs below which a double with three decimals rounds to the right nanosecond (2**53 / 1000)
EXACT_BELOW_US = 2.0**53 / 1024
#: phases that carry no time of their own: flows, instants, counters, and what `timed` takes
_NOT_READ = frozenset(("X", "s", "f", "t", "i", "I", "C", "n", "b", "e"))
#: categories whose rows have neither device, stream, correlation nor bytes
_HOST_ONLY = frozenset(("cpu_op", "python_function", "user_annotation", "Operator"))


def read(
    blocks: Iterator[bytes], label: str, progress: Callable[[int], None] | None = None
) -> EventTable:
    """Read one trace.

    Parameters
    ----------
    blocks : iterator of bytes
        The unpacked JSON text.
    label : str
        File name for messages.
    progress : callable, optional
        Called with the number of unpacked bytes read so far.

    Returns
    -------
    EventTable

    Raises
    ------
    NotATraceError
        When the text is JSON but has no ``traceEvents``; says what it seems to be.
    ReadError
        When the text is no JSON, several writers mixed their texts in it, or nothing is timed.
    """
    keep: list[bytes] = []

    def decode(text: bytes) -> list[Event]:
        keep[:] = [text]
        return _DECODER.decode(text)

    def lenient(text: bytes, counts: Counter[str]) -> Event | None:
        keep.clear()  # the event brings its times as written
        return _lenient(text, counts)

    text = TraceText(blocks, label, decode, lenient)
    if not text.open():
        raise NotATraceError(kind_of_document([k for k, _ in text.pairs]), where=label)
    builder = ColumnBuilder(COLLECTIVE_ARGS)
    collecting = gc.isenabled()
    gc.disable()  # millions of short-lived structs; a collection finds nothing in them
    try:
        for events in text.events():
            _add(builder, events, keep, text.counts)
            if progress:
                progress(text.read_bytes)
    finally:
        if collecting:
            gc.enable()
    return _finish(builder, text, label)


def _add(
    builder: ColumnBuilder, events: list[Event], raw: list[bytes], counts: Counter[str]
) -> None:
    builder.num_read += len(events)
    timed = [e for e in events if e.ph == "X"]
    if len(timed) != len(events):
        _add_others(builder, events, raw, counts)
    if not timed:
        return
    starts = _times([e.ts for e in timed], "ts", ("X",), events, raw, counts)
    durations = _times([e.dur for e in timed], "dur", ("X",), events, raw, counts)
    args = [e.args or _NO_ARGS for e in timed]
    # three quarters of a trace are operators and frames, which have none of the columns below
    rows = _without([e.cat for e in timed], _HOST_ONLY)
    builder.add(
        start_ns=starts,
        dur_ns=durations,
        names=[e.name for e in timed],
        origins=[(e.cat, e.pid, e.tid) for e in timed],
        external_id=_external_ids(args, rows),
    )
    some = [args[i] for i in rows]
    builder.fill(
        rows,
        device=_ints([a.device for a in some]),
        stream=_ints([a.stream for a in some]),
        correlation=_ints([a.correlation for a in some]),
        bytes=_ints([a.bytes for a in some]),
    )
    _add_details(builder, timed, args, rows)


def _external_ids(args: list[Args], device_rows: list[int]) -> NDArray[np.int64]:
    """``External id``; launches and device rows wrote it ``external id`` until 2021."""
    external = _ints([a.external_id for a in args])
    old = [args[row].old_external_id for row in device_rows]
    if old.count(-1) != len(old):
        some = external[device_rows]
        external[device_rows] = np.where(some < 0, _ints(old), some)
    return external


def _add_details(
    builder: ColumnBuilder, timed: list[Event], args: list[Args], device_rows: list[int]
) -> None:
    """Keep the arguments of rows that describe a collective."""
    for row in device_rows:
        a = args[row]
        if (
            a.collective_name is not None
            or a.pg_name is not None
            or a.comms_id is not None
            or a.seq is not None
        ):
            builder.add_detail(row, _collective(a))
    for row in builder.rows_named(_describes):
        a = args[row]
        if timed[row].name == "record_param_comms":
            if a.collective_name is not None or a.pg_name is not None:
                builder.add_detail(row, _collective(a))
        elif len(a.input_dims) > 2 and a.collective_name is None:
            builder.add_detail(row, {**_dims(a), "Blocking": _blocks(a)})


def _describes(name: str) -> bool:
    """Whether host rows of this name may describe a collective or its message."""
    return name == "record_param_comms" or name.startswith(("gloo:", "c10d::", "nccl:"))


def _collective(a: Args) -> dict[str, Any]:
    values = ((key, getattr(a, attribute)) for key, attribute in COLLECTIVE_ARGS.items())
    return {key: value for key, value in values if value is not None}


def _dims(a: Args) -> dict[str, Any]:
    detail: dict[str, Any] = {}
    for key, raw in (("Input Dims", a.input_dims), ("Input type", a.input_type)):
        try:
            detail[key] = msgspec.json.decode(raw) if len(raw) else None
        except (msgspec.DecodeError, RecursionError):
            detail[key] = None
    return detail


def _blocks(a: Args) -> bool:
    """Whether a ``c10d::`` call says that its caller waits: its ``asyncOp`` input is False."""
    try:
        inputs = msgspec.json.decode(a.concrete_inputs) if len(a.concrete_inputs) else None
    except (msgspec.DecodeError, RecursionError):
        return False
    flags = [i for i in inputs if i in ("True", "False")] if isinstance(inputs, list) else []
    # asyncOp is the last flag of every c10d call that has one
    return bool(flags) and flags[-1] == "False"


def _without(values: list[Any], known: frozenset[str]) -> list[int]:
    """Places of the values that are not known."""
    try:
        return [i for i, value in enumerate(values) if value not in known]
    except TypeError:  # lists and objects (hostile input) have no hash
        return [i for i, value in enumerate(values) if str(value) not in known]


def _add_others(
    builder: ColumnBuilder, events: list[Event], raw: list[bytes], counts: Counter[str]
) -> None:
    """Rows that are not complete events: names of threads, and begin/end pairs."""
    others = [events[at] for at in _without([e.ph for e in events], _NOT_READ)]
    for e in others:
        if e.ph == "M" and e.name in ("thread_name", "process_name") and e.args is not None:
            builder.name_lane(str(e.name), (e.pid, e.tid), e.args.name)
    halves = [e for e in others if e.ph in ("B", "E")]
    if not halves:
        return
    times = _times([e.ts for e in halves], "ts", ("B", "E"), events, raw, counts)
    for e, ts in zip(halves, times.tolist(), strict=True):
        if ts != NO_TIME:
            builder.half(e.ph == "B", (e.pid, e.tid), e.name, e.cat, ts)


# -- times ------------------------------------------------------------------------------------


def _times(
    values: list[Any],
    field: str,
    phases: tuple[str, ...],
    events: list[Event],
    raw: list[bytes],
    counts: Counter[str],
) -> NDArray[np.int64]:
    """Exact nanoseconds of the given values; `NO_TIME` for one that is no time.

    Where a double cannot hold them they are read again from the text, as what ``field`` is in the
    events of the given phases.
    """
    found = _fast_ns(values)
    if found is not None:
        return found
    exact = [getattr(e, field) for e in _redecode(raw, len(events)) if e.ph in phases]
    if len(exact) == len(values):
        values = [_as_written(value) for value in exact]
    return _slow_ns(values, counts)


def _fast_ns(values: list[Any]) -> NDArray[np.int64] | None:
    """Nanoseconds of µs values by one array operation; None when that would lose digits."""
    try:
        us = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if us.ndim != 1 or type(values[0]) is str or not np.isfinite(us).all():
        return None
    if np.abs(us).max(initial=0.0) < EXACT_BELOW_US:
        return np.rint(us * 1000.0).astype(np.int64)
    if set(map(type, values)) == {int}:
        try:
            whole = np.array(values, dtype=np.int64)
        except OverflowError:
            return None
        if max(abs(int(whole.min())), int(whole.max())) < 2**62 // 1000:
            return whole * 1000
    return None


def _redecode(raw: list[bytes], num_events: int) -> list[ExactEvent]:
    """The piece once more, with its numbers as written; empty when that cannot be had."""
    try:
        exact = _EXACT.decode(raw[0]) if raw else []
    except (msgspec.DecodeError, RecursionError):
        return []
    return exact if len(exact) == num_events else []


def _as_written(raw: msgspec.Raw) -> Any:
    """A number as a Decimal with all its digits; anything else as JSON has it."""
    text = bytes(raw)
    if text[:1] in (b"{", b"["):
        return ()  # anything that is no time
    if text[:1] in b'"tfn':
        return msgspec.json.decode(text)
    try:
        return Decimal(text.decode())
    except InvalidOperation:  # an exponent beyond what a Decimal holds
        return ()


def _slow_ns(values: list[Any], counts: Counter[str]) -> NDArray[np.int64]:
    out = np.empty(len(values), dtype=np.int64)
    for i, value in enumerate(values):
        ns = _exact_ns(value)
        if isinstance(value, str) and ns is not None:
            counts["text-for-number"] += 1
        elif ns is None and value is not None:
            counts["wrong-type"] += 1
        out[i] = NO_TIME if ns is None else ns
    return out


#: stands for a start or duration that is not a number; such rows are dropped and counted
NO_TIME = -(2**62)


def _exact_ns(value: Any) -> int | None:
    """Nanoseconds of a µs value of any type; None when it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, int):
        ns = value * 1000
    else:
        try:
            number = Decimal(str(value).strip())
        except InvalidOperation:
            return None
        if not number.is_finite() or number.adjusted() > 18:
            return None
        ns = int((number * 1000).to_integral_value())
    return ns if abs(ns) < 2**62 else None


# -- other columns ----------------------------------------------------------------------------


def _ints(values: list[Any]) -> NDArray[np.int64]:
    """An integer column; what is no integer becomes -1."""
    try:
        column = np.array(values, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        column = np.empty(0, dtype=np.int64)
    if column.shape == (len(values),):
        return column
    return np.fromiter(map(_as_int, values), np.int64, len(values))


def _as_int(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        return -1
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return -1
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        value = int(value)
    if not isinstance(value, int):
        return -1
    # ids are only compared: beyond int64 the low 63 bits keep them apart
    return value if -(2**63) <= value < 2**63 else value & (2**63 - 1)


def _lenient(text: bytes, counts: Counter[str]) -> Event | None:
    """An event from a JSON object whose fields may have any type; None when it is no object.

    Raises
    ------
    msgspec.DecodeError, RecursionError
        When it is no JSON.
    """
    item = msgspec.json.decode(text)
    if not isinstance(item, dict):
        return None
    args = item.get("args")
    if args is not None and not isinstance(args, dict):
        counts["wrong-type"] += 1
    known = {k: item[k] for k in ("ph", "name", "cat", "pid", "tid") if k in item}
    exact = _EXACT_ONE.decode(text)
    return Event(
        **known,
        ts=_as_written(exact.ts),
        dur=_as_written(exact.dur),
        args=_lenient_args(args) if isinstance(args, dict) else None,
    )


def _lenient_args(args: dict[str, Any]) -> Args:
    values = {}
    for field in msgspec.structs.fields(Args):
        if field.encode_name in args:
            value = args[field.encode_name]
            raw = field.type is msgspec.Raw
            values[field.name] = msgspec.Raw(msgspec.json.encode(value)) if raw else value
    return Args(**values)


# -- the end ----------------------------------------------------------------------------------


def _finish(builder: ColumnBuilder, text: TraceText[Event], label: str) -> EventTable:
    meta, notes = _header(text, label)
    table = builder.table(meta)
    table.notes = notes + text.notes + _damage(text, label)
    table.counts["recovered"] = text.recovered or 0
    base = meta.get("baseTimeNanoseconds")
    table.base_ns = base if isinstance(base, int) and 0 <= base < 2**62 else 0
    if builder.unpaired:
        words = f"{builder.unpaired:,} begin or end rows have no partner and were dropped"
        table.notes.append(Note("unpaired", words, "warning", label))
    if not len(table):
        raise _nothing_timed(table, text, label)
    return table


def _nothing_timed(table: EventTable, text: TraceText[Event], label: str) -> ReadError:
    rows = table.counts["read"]
    if not rows and text.bare and text.counts["unreadable-event"]:
        return NotATraceError("a JSON list whose items are no events", where=label)
    what = (
        f"no timed events in this file ({rows:,} other rows)" if rows else "no events in this file"
    )
    if text.recovered is not None:
        what = f"{what}, which is cut short at byte {text.read_bytes:,}"
    return ReadError(what, where=label, hint="record the trace again")


def kind_of_document(keys: list[str]) -> str:
    """What a JSON document that is no trace seems to be, by its top-level keys."""
    have = set(keys)
    if {"schema", "nodes"} <= have:
        return "a PyTorch execution trace (host operators and dependencies, no times on the device)"
    if (keys and all(k.isdecimal() for k in keys)) or "pp_size" in have:
        return "a pipeline schedule dump, not a trace"
    if {"entries", "pg_config"} & have:
        return "a flight-recorder dump without entries"
    if not keys:
        return "JSON, but no trace: it has no traceEvents"
    shown = ", ".join(keys[:6]) + (", …" if len(keys) > 6 else "")
    return f"JSON, but no trace: it has no traceEvents (its keys are {shown})"


def _header(text: TraceText[Event], label: str) -> tuple[dict[str, Any], list[Note]]:
    """Top-level keys as a dict: the first of a repeated key wins, differences are told."""
    meta: dict[str, Any] = {}
    notes: list[Note] = []
    for key, value in text.pairs:
        if key in meta and meta[key] != value and key == "distributedInfo":
            notes.append(_two_ranks(meta[key], value, label))
        meta.setdefault(key, value)
    return meta, notes


def _two_ranks(first: Any, second: Any, label: str) -> Note:
    ranks = [d.get("rank") if isinstance(d, dict) else None for d in (first, second)]
    words = (
        f"distributedInfo is written twice with different content (rank {ranks[0]}, then "
        f"rank {ranks[1]}); the first is used"
    )
    return Note("two-distributed-infos", words, "warning", label)


def _damage(text: TraceText[Event], label: str) -> list[Note]:
    """One note per kind of fault that was mended."""
    notes = []
    for kind, count in sorted(text.counts.items()):
        if kind in WORDS and count:
            where = (
                f" (first damage near byte {text.first_fault:,})" if text.first_fault > 0 else ""
            )
            notes.append(
                Note(f"mended-{kind}", f"{count:,} {WORDS[kind]}{where}", "warning", label)
            )
    return notes
