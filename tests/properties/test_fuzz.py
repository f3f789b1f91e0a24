"""Damaged traces: whatever is done to a file, its figures agree or it is refused in one line."""

from __future__ import annotations

import gzip
import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import ALL_GATHER, SEND_RECV, Kineto, collective, run_of
from tracekit.core.errors import TracekitError
from tracekit.io import jsontext, kineto
from tracekit.model.files import OpenOptions
from tracekit.model.names import load
from tracekit.model.run import TraceSet, open_run
from tracekit.model.trace import Trace
from tracekit.report.document import document

NAMES = load()
#: nothing here takes a tenth of it
PATIENCE_S = 20

# -- the traces that are damaged --------------------------------------------------------------


def device_trace(rank: int) -> Kineto:
    """Steps, phases, launches, and collectives of every kind of identity."""
    base = 1_760_000_000_000_000_000
    file = Kineto(rank, 2, baseTimeNanoseconds=base, deviceProperties=[{"id": 0, "name": "H100"}])
    file.step(1, 0, 100).step(2, 100, 220).mark(5, 40, "forward").op(1, 20, tid=7)
    file.kernel(10, 30, launched=6, x=[{"name": 1}, {"ph": "X"}]).kernel(110, 130, launched=105)
    file.copy(200, 215, launched=112, bytes=100)
    about = {"External id": 31, **collective(elems=1024, seq=1)}
    file.issue(7, 12, 31, **collective(elems=1024, seq=1)).comm(25 + rank, 60, launched=8, **about)
    about = collective("_allgather_base", elems=10, out_elems=20, comms_id=2**64 - 1)
    file.comm(125, 160 + rank, ALL_GATHER, launched=108, **about)
    to = {"Dst Rank": 1} if rank == 0 else {"Src Rank": 0}
    about = collective("send" if rank == 0 else "recv", elems=10, **to)
    file.comm(170, 200, SEND_RECV, launched=109, stream=21, **about)
    splits = {"In split size": "[4, 6]", "Out split size": "[7, 7]"}
    file.comm(202, 210, launched=150, **collective("all_to_allv", elems=10, out_elems=14, **splits))
    return file.comm(215, 218)


def host_trace(rank: int) -> Kineto:
    """A rank on the CPU: operators, calls of collectives and their spans, rows of other kinds."""
    file = Kineto(rank, 2)
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}]
    file.header["distributedInfo"]["pg_config"] = groups
    file.step(1, 0, 90).op(1, 20).op(30, 60, "c10d::allreduce_").issue(31, 40, 5)
    shape = {"Input Dims": [[4, 4]], "Input type": ["float"]}
    file.mark(35 + rank, 70, "gloo:all_reduce", tid=9, **shape).op(75, 85, "aten::add")
    file.raw('{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}}')
    file.raw('{"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": 5.1, "name": "ac2g"}')
    file.raw('{"ph": "B", "ts": 86.5, "pid": 1, "tid": 7, "cat": "cpu_op", "name": "open"}')
    return file.raw('{"ph": "E", "ts": 88.25, "pid": 1, "tid": 7}')


KINDS: tuple[Callable[[int], Kineto], ...] = (device_trace, host_trace)
TEXTS = (
    device_trace(0).text(),
    device_trace(0).text("").replace(b"\n]}", b'], "traceName": "x", "l": [{"a": 1}, {"b": [2]}]}'),
    host_trace(0).text(),
    b"[" + b",".join(row.encode() for row in device_trace(0).rows) + b"]",
)

# -- what must hold ---------------------------------------------------------------------------


@contextmanager
def patience() -> Iterator[None]:
    """Fail, rather than hang, where something does not come to an end."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"not done after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_row(row: dict[str, Any]) -> None:
    """The identities of one row, to the nanosecond (or the last digit of a double)."""
    near = max(0.002, 1e-14 * abs(row["window_us"] or 0.0))
    parts = [row[f"{p}_us"] for p in ("compute", "exposed_comm", "exposed_memory", "idle")]
    if row["window_us"] is not None and None not in parts:
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(row["window_us"], abs=near, rel=0)
        split = [row[f"exposed_{p}_us"] for p in ("wait", "transfer", "unknown")]
        assert min(*split, row["edge_comm_us"], row["overlap_us"]) >= 0
        assert sum(split) == pytest.approx(row["exposed_comm_us"], abs=near, rel=0)
    assert row["overlap_frac"] is None or 0 <= row["overlap_frac"] <= 1


def check(found: dict[str, Any]) -> None:
    """Whatever was read, the document is JSON without NaN, and agrees with itself."""
    json.dumps(found, allow_nan=False)
    for row in [*found["ranks"], *found["steps"], *found["no_step"], *found["phases"]]:
        check_row(row)
    for rank in found["ranks"]:
        events = rank["events"]
        if rank["timeline"] == "device":
            assert events["timed"] == sum(events[r] for r in ("compute", "comm", "memory"))
        own = [g["exposed_share_us"] for g in found["groups"] if g["rank"] == rank["rank"]]
        if None not in own and rank["exposed_comm_us"] is not None:
            near = max(0.002, 1e-14 * rank["window_us"])
            assert sum(own) == pytest.approx(rank["exposed_comm_us"], abs=near, rel=0)
    for c in found["collectives"]:
        assert len(set(c["ranks"])) == len(c["ranks"]) >= 1
        assert all(wait >= 0 for wait in (c["wait_us"] or {}).values())
        assert c["busbw_GBps"] is None or c["busbw_GBps"] >= 0
    assert all(len(n["text"].splitlines()) == 1 for n in found["notes"])


def analysed(texts: list[bytes], piece: int = 1 << 20, block: int = 1 << 20) -> bool:
    """Read and analyze texts as the ranks of a run; whether any of them could be read."""
    traces = {}
    with pytest.MonkeyPatch.context() as patch, patience():
        patch.setattr(jsontext, "PIECE_BYTES", piece)
        for rank, text in enumerate(texts):
            blocks = (text[at : at + block] for at in range(0, len(text), block))
            try:
                table = kineto.read(blocks, f"rank{rank}.json")
            except TracekitError as refusal:
                check_refusal(refusal)
                continue
            traces[rank] = Trace(rank, f"rank{rank}.json", table, NAMES)
        if traces:
            loaders = {rank: (lambda trace=trace: trace) for rank, trace in traces.items()}
            check(document(TraceSet(sorted(traces), [], NAMES, loaders)))
    return bool(traces)


def check_refusal(refusal: TracekitError) -> None:
    """What is said of a file that cannot be read is one line."""
    assert len(str(refusal).splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_undamaged_traces_are_whole(kind: Callable[[int], Kineto]) -> None:
    """What is damaged below is sound: it is read without a warning, and both ranks match."""
    found = document(run_of(kind(0), kind(1)))
    check(found)
    assert [n["code"] for n in found["notes"] if n["severity"] != "info"] == []
    assert any(c["ranks"] == [0, 1] for c in found["collectives"])


# -- damage to the text -----------------------------------------------------------------------

#: raw text where values are expected, or anywhere; not all of it valid JSON
ODD = (
    "null", "true", "0", "-1", "-0.0", "0.5", "0.0000001", "1e400", "-1e999", "1e-400", "1e300",
    "9" * 30, "9" * 5000, "9223372036854775807", "-9223372036854775809", "18446744073709551616",
    "4611686018427387.903", "1760000000123456.789", "2147483648", "NaN", "Infinity", "-inf", '""',
    '"x"', '" 12 "', '"1e999999"', '"\\ud800"', '"\\u0000"', '"\\x"', '"a\tb"', '"\x01"',
    '"' + "n" * 9000 + '"', '"\u0663"', "[]", "{}", "[[[]]]", "[[1],[2]]", "[{}]", '[{"ph":"X"}]',
    "[" * 300 + "]" * 300, '{"a": ' * 300 + "1" + "}" * 300, "[" * 40_000 + "]" * 40_000,
    "[" * 2000, '"ProfilerStep#99999999999999999999"', '"ProfilerStep#400000000000"', '"X"', '"B"',
    '"E"', '"M"', '"kernel"', '"gpu_memcpy"', '"cpu_op"', '"user_annotation"', '"gloo:all_reduce"',
    '"ncclDevKernel_Broadcast"', '"record_param_comms"', '"allreduce"', '"[0, 1, 2147483647]"',
    "[0,1,2147483647]", '"[0, 0]"', '"[0, 1, ...]"', "[1, 1]", '"float"', '"nccl"', "}]}",
    '},{"ph":"X",', "\0\0\0",
)  # fmt: skip
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|\[[^\[\]{}]*\]|\{[^{}]*\}|null|true')

odd_bytes = st.sampled_from(ODD).map(str.encode) | st.just(b'"\xff"')
places = st.integers(0, 10**6)
Change = tuple[str, int, bytes]


def change(kind: str, extra: st.SearchStrategy[bytes]) -> st.SearchStrategy[Change]:
    """One kind of damage somewhere."""
    return st.tuples(st.just(kind), places, extra)


damages = st.lists(
    st.one_of(
        change("cut", st.just(b"")),
        change("flip", st.binary(min_size=1, max_size=1)),
        change("insert", st.binary(min_size=1, max_size=8) | odd_bytes),
        change("delete", st.binary(min_size=1, max_size=200)),
        change("repeat", st.binary(min_size=1, max_size=200)),
        *[change("replace", odd_bytes)] * 3,
    ),
    min_size=1,
    max_size=5,
)


def damaged(text: bytes, changes: list[Change]) -> bytes:
    """A text after some changes; a place counts modulo the length."""
    for kind, place, extra in changes:
        at = place % (len(text) + 1)
        if kind == "cut":
            text = text[:at]
        elif kind == "flip":
            text = text[:at] + bytes([(text[at : at + 1] or b" ")[0] ^ extra[0]]) + text[at + 1 :]
        elif kind == "insert":
            text = text[:at] + extra + text[at:]
        elif kind == "delete":
            text = text[:at] + text[at + len(extra) :]
        elif kind == "repeat":
            text = text[:at] + text[at : at + len(extra)] + text[at:]
        elif values := list(_VALUE.finditer(text)):
            value = values[place % len(values)]
            text = text[: value.start()] + extra + text[value.end() :]
    return text


pieces, blocks = st.sampled_from([64, 700, 1 << 20]), st.sampled_from([50, 1 << 20])


@given(st.sampled_from(TEXTS), damages, pieces, blocks)
@settings(max_examples=140)
def test_a_damaged_text_is_recovered_or_refused(
    text: bytes, changes: list[Change], piece: int, block: int
) -> None:
    """Whatever happens to the text of a trace, however it is cut into pieces while it is read."""
    analysed([damaged(text, changes), device_trace(1).text()], piece, block)


beginnings = st.sampled_from([b"", b"[", b'{"traceEvents": [', b'[{"ph": "X", "ts": '])


@given(st.binary(max_size=300), beginnings)
@settings(max_examples=60)
def test_any_bytes_are_recovered_or_refused(noise: bytes, head: bytes) -> None:
    """Arbitrary bytes, also where a trace seems to begin."""
    analysed([head + noise])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of each example are written."""
    return tmp_path_factory.mktemp("damaged")


@given(st.sampled_from(TEXTS), damages, st.booleans())
@settings(max_examples=30)
def test_a_damaged_file_is_recovered_or_refused(
    folder: Path, text: bytes, changes: list[Change], packed: bool
) -> None:
    """The same holds for files: damaged before or after packing, alone or beside a sound one."""
    data = (
        gzip.compress(damaged(text, changes)) if packed else damaged(gzip.compress(text), changes)
    )
    (folder / "rank0.json").write_bytes(data)
    device_trace(1).write(folder / "rank1.json")
    for path in (folder, folder / "rank0.json"):
        try:
            with patience():
                found = document(open_run([str(path)], options=OpenOptions(store=False)))
        except TracekitError as refusal:
            check_refusal(refusal)
        else:
            check(found)


# -- damage to the values ---------------------------------------------------------------------


class Raw(str):
    """JSON text that is written as it is."""


class Object(list[tuple[str, Any]]):
    """A JSON object that may hold a key twice."""


def parse(text: bytes) -> Any:
    """A document in parts that can be spoiled: `Object`, lists, texts, and `Raw` numbers."""
    return json.loads(text, object_pairs_hook=Object, parse_float=Raw, parse_int=Raw)


def write(node: Any) -> str:
    """A document as text."""
    if isinstance(node, Object):
        return "{" + ", ".join(f"{json.dumps(k)}: {write(v)}" for k, v in node) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(write, node)) + "]"
    return node if isinstance(node, Raw) else json.dumps(node)


def holders(node: Any) -> Iterator[tuple[list[Any], int]]:
    """Every place of a document that holds a value: a list or an object, and an index."""
    if isinstance(node, list):
        for at, item in enumerate(node):
            yield node, at
            yield from holders(item[1] if isinstance(node, Object) else item)


KEYS = (
    "ph", "ts", "dur", "name", "cat", "pid", "tid", "args", "id", "s", "traceEvents", "rank",
    "distributedInfo", "baseTimeNanoseconds", "stream", "device", "correlation", "External id",
    "Collective name", "Seq", "Comms Id", "Process Group Ranks", "Group size", "In msg nelems",
    "dtype", "bytes", "__proto__", "tracekit", "pg_config", "world_size", "",
)  # fmt: skip


def spoil(draw: st.DrawFn, parsed: Any) -> None:
    """Change one place: another value, another type, another key, twice, or not at all."""
    every = list(holders(parsed))
    holder, at = every[draw(st.integers(0, len(every) - 1))]
    key, value = holder[at] if isinstance(holder, Object) else ("", holder[at])
    how = draw(st.sampled_from(("odd", "odd", "type", "key", "twice", "gone")))
    if how == "gone":
        del holder[at]
        return
    if how == "type":
        value = str(value) if isinstance(value, Raw) else Raw(len(str(value)))
    elif how == "key":
        key = draw(st.sampled_from(KEYS))
    else:
        value = Raw(draw(st.sampled_from(ODD)))
    item = (key, value) if isinstance(holder, Object) else value
    if how == "twice":
        holder.insert(draw(st.integers(at, at + 1)), item)
    else:
        holder[at] = item


@st.composite
def spoilt_texts(draw: st.DrawFn) -> list[bytes]:
    """The files of a run, the first of them sound in its form and odd in up to four values."""
    kind = draw(st.sampled_from(KINDS))
    parsed = parse(kind(0).text())
    for _ in range(draw(st.integers(1, 4))):
        if next(holders(parsed), None):
            spoil(draw, parsed)
    return [write(parsed).encode(), kind(1).text()][: draw(st.integers(1, 2))]


@given(spoilt_texts())
@settings(max_examples=80)
def test_odd_values_are_taken_for_what_they_are(texts: list[bytes]) -> None:
    """Wrong types, huge numbers, keys that stand twice and deep nesting end likewise."""
    analysed(texts)


words = ["X", "kernel", "cpu_op", "ncclDevKernel_AllReduce", "ProfilerStep#3", "[0, 1]", "B", "E"]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9),
    st.sampled_from(words),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "id")
ARGUMENTS = (
    "stream", "device", "correlation", "External id", "external id", "bytes", "name", "Input Dims",
    "Input type", "Concrete Inputs", *kineto.COLLECTIVE_ARGS,
)  # fmt: skip
rows = st.dictionaries(st.sampled_from(FIELDS), values, max_size=8)
arguments = st.dictionaries(st.sampled_from(ARGUMENTS), values, max_size=6)


@given(st.lists(st.tuples(rows, arguments), min_size=1, max_size=6), values, values)
@settings(max_examples=60)
def test_any_values_in_any_fields(
    made: list[tuple[dict[str, Any], dict[str, Any]]], info: Any, own: Any
) -> None:
    """Rows whose fields and arguments hold any values at all are counted, dropped or analyzed."""
    sound = {"ph": "X", "name": "k", "cat": "kernel", "pid": 0, "tid": 7, "ts": 5, "dur": 9}
    events = [{**sound, **row, "args": args} for row, args in made]
    whole = {"distributedInfo": info, "tracekit": own, "traceEvents": [*events, sound]}
    assert analysed([json.dumps(whole).encode()])
