"""Damaged traces: whatever is done to a file, its figures agree or it is refused in one line."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import ALL_GATHER, SEND_RECV, Kineto, collective
from tracekit.core.errors import TracekitError
from tracekit.model.run import OpenOptions, open_run
from tracekit.report.document import document

#: nothing here takes a tenth of it
PATIENCE_S = 20

# -- the traces that are damaged --------------------------------------------------------------


def device_trace(rank: int) -> Kineto:
    """Steps, phases, launches, and collectives of every kind of identity."""
    base = 1_760_000_000_000_000_000
    file = Kineto(rank, 2, baseTimeNanoseconds=base, deviceProperties=[{"id": 0, "name": "H100"}])
    file.step(1, 0, 100).step(2, 100, 220).mark(5, 40, "forward").op(1, 20, tid=7)
    file.kernel(10, 30, launched=6).kernel(110, 130, launched=105).copy(200, 215, launched=112)
    sums = collective(elems=1024, seq=1)
    file.issue(7, 12, 31, **sums).comm(25 + rank, 60, launched=8, **{"External id": 31}, **sums)
    about = collective("_allgather_base", elems=10, out_elems=20, comms_id=2**64 - 1)
    file.comm(125, 160 + rank, ALL_GATHER, launched=108, **about)
    to = {"Dst Rank": 1} if rank == 0 else {"Src Rank": 0}
    about = collective("send" if rank == 0 else "recv", elems=10, **to)
    file.comm(170, 200, SEND_RECV, launched=109, stream=21, **about)
    splits = {"In split size": "[4, 6]", "Out split size": "[7, 7]"}
    file.comm(202, 210, launched=150, **collective("all_to_allv", elems=10, out_elems=14, **splits))
    return file.comm(215, 218)


def host_trace(rank: int) -> Kineto:
    """A rank on the CPU: operators, calls of collectives and their spans."""
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}]
    file = Kineto(rank, 2)
    file.header["distributedInfo"]["pg_config"] = groups
    file.step(1, 0, 90).op(1, 20).op(30, 60, "c10d::allreduce_").issue(31, 40, 5)
    shape = {"Input Dims": [[4, 4]], "Input type": ["float"]}
    file.mark(35 + rank, 70, "gloo:all_reduce", tid=9, **shape).op(75, 85, "aten::add")
    file.raw('{"ph": "B", "ts": 86.5, "pid": 1, "tid": 7, "cat": "cpu_op", "name": "open"}')
    return file.raw('{"ph": "E", "ts": 88.25, "pid": 1, "tid": 7}')


KINDS: tuple[Callable[[int], Kineto], ...] = (device_trace, host_trace)

# -- damage to the text -----------------------------------------------------------------------

#: values where others are expected; raw JSON text, not all of it valid
ODD = (
    "null", "true", "0", "-1", "-0.0", "0.5", "1e400", "-1e400", "1e-400", "1e17", "9" * 25,
    "9" * 5000, "9223372036854775807", "-9223372036854775809", "18446744073709551616",
    "4611686018427387.904", "NaN", "Infinity", "-inf", '""', '"x"', '" 12 "', '"1e999999"',
    '"\\ud800"', '"\\u0000"', '"\\x"', '"a\tb"', '"' + "n" * 9000 + '"', "[]", "{}", "[[[]]]",
    "[{}]", '{"ph": "X"}', "[" * 300 + "]" * 300, '{"a": ' * 300 + "1" + "}" * 300,
    "[" * 40_000 + "]" * 40_000, "[" * 2000, '"ProfilerStep#99999999999999999999"',
    '"ProfilerStep#400000000000"', '"X"', '"B"', '"E"', '"M"', '"kernel"', '"gpu_memcpy"',
    '"cpu_op"', '"user_annotation"', '"ncclDevKernel_Broadcast"', '"gloo:all_reduce"',
    '"record_param_comms"', '"allreduce"', '"[0, 1, 2147483647]"', '"[0, 0]"', '"[0, 1, ...]"',
    "[1, 1]", "2147483648", '"float"', '"nccl"',
)  # fmt: skip


def cut(draw: st.DrawFn, text: bytes) -> bytes:
    """The file ends early."""
    return text[: draw(st.integers(0, len(text)))]


def flip(draw: st.DrawFn, text: bytes) -> bytes:
    """One bit is another."""
    at = draw(st.integers(0, max(0, len(text) - 1)))
    return text[:at] + bytes([text[at] ^ (1 << draw(st.integers(0, 7)))]) + text[at + 1 :]


def insert(draw: st.DrawFn, text: bytes) -> bytes:
    """Bytes that do not belong there."""
    at = draw(st.integers(0, len(text)))
    what = draw(st.binary(min_size=1, max_size=6) | st.sampled_from(ODD).map(str.encode))
    return text[:at] + what + text[at:]


def delete(draw: st.DrawFn, text: bytes) -> bytes:
    """Bytes that are missing."""
    at = draw(st.integers(0, len(text)))
    return text[:at] + text[at + draw(st.sampled_from((1, 1, 2, 10, 200))) :]


def repeat(draw: st.DrawFn, text: bytes) -> bytes:
    """A piece of the file stands somewhere else as well, as when two writers share it."""
    at, to = draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))
    piece = text[at : at + draw(st.sampled_from((1, 20, 300, 5000)))]
    return text[:to] + piece + text[to:]


DAMAGES = (cut, flip, insert, delete, repeat)


@st.composite
def damaged_texts(draw: st.DrawFn) -> list[bytes]:
    """The files of a run, the first of them damaged up to four times."""
    kind = draw(st.sampled_from(KINDS))
    text = kind(0).text()
    for damage in draw(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=4)):
        text = damage(draw, text) or b"{"
    return [text, kind(1).text()][: draw(st.integers(1, 2))]


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


def places(node: Any) -> Iterator[tuple[list[Any], int]]:
    """Every place of a document that holds a value: a list or an object, and an index."""
    if isinstance(node, list):
        for at, item in enumerate(node):
            yield node, at
            yield from places(item[1] if isinstance(node, Object) else item)


def spoil(draw: st.DrawFn, document_: Any) -> None:
    """Change one place: another value, another type, another key, twice, or not at all."""
    holder, at = draw(st.sampled_from(list(places(document_))))
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


KEYS = (
    "ph", "ts", "dur", "name", "cat", "pid", "tid", "args", "id", "s", "traceEvents", "rank",
    "distributedInfo", "baseTimeNanoseconds", "stream", "device", "correlation", "External id",
    "Collective name", "Seq", "Comms Id", "Process Group Ranks", "Group size", "In msg nelems",
    "dtype", "bytes", "__proto__", "tracekit", "pg_config", "world_size", "",
)  # fmt: skip


@st.composite
def spoilt_texts(draw: st.DrawFn) -> list[bytes]:
    """The files of a run, the first of them sound in its form and odd in up to four values."""
    kind = draw(st.sampled_from(KINDS))
    parsed = parse(kind(0).text())
    for _ in range(draw(st.integers(1, 4))):
        if any(True for _ in places(parsed)):
            spoil(draw, parsed)
    return [write(parsed).encode(), kind(1).text()][: draw(st.integers(1, 2))]


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
        assert min(split) >= 0
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
            counted = sum(events[role] for role in ("compute", "comm", "memory"))
            assert events["timed"] == counted
        own = [g["exposed_share_us"] for g in found["groups"] if g["rank"] == rank["rank"]]
        if None not in own and rank["exposed_comm_us"] is not None:
            near = max(0.002, 1e-14 * rank["window_us"])
            assert sum(own) == pytest.approx(rank["exposed_comm_us"], abs=near, rel=0)
    for c in found["collectives"]:
        assert len(set(c["ranks"])) == len(c["ranks"]) >= 1
        assert all(wait >= 0 for wait in (c["wait_us"] or {}).values())
        assert c["busbw_GBps"] is None or c["busbw_GBps"] >= 0
    assert all(len(n["text"].splitlines()) == 1 for n in found["notes"])


def answer(folder: Path, texts: list[bytes]) -> None:
    """Open such files and analyze them; a refusal is one line."""
    for rank, text in enumerate(texts):
        (folder / f"rank{rank}.json").write_bytes(text)
    files = [str(folder / f"rank{rank}.json") for rank in range(len(texts))]
    try:
        with patience():
            found = document(open_run(files, options=OpenOptions(store=False)))
    except TracekitError as refusal:
        said = str(refusal)
    else:
        check(found)
        said = "read"
    assert len(said.splitlines()) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of each example are written."""
    return tmp_path_factory.mktemp("damaged")


@pytest.mark.parametrize("kind", KINDS)
def test_undamaged_traces_are_whole(folder: Path, kind: Callable[[int], Kineto]) -> None:
    """What is damaged below is sound: both ranks are read without a warning, and match."""
    texts = [kind(0).text(), write(parse(kind(1).text())).encode()]
    for rank, text in enumerate(texts):
        (folder / f"whole{rank}.json").write_bytes(text)
    found = document(open_run([str(folder / "whole*.json")], options=OpenOptions(store=False)))
    check(found)
    assert [r["rank"] for r in found["ranks"]] == [0, 1]
    assert [n["code"] for n in found["notes"] if n["severity"] != "info"] == []
    assert any(c["ranks"] == [0, 1] for c in found["collectives"])


@given(texts=damaged_texts())
@settings(max_examples=150)
def test_a_damaged_file_is_recovered_or_refused(folder: Path, texts: list[bytes]) -> None:
    """Cut, flipped, inserted, deleted and repeated bytes end in sound figures or in one line."""
    answer(folder, texts)


@given(texts=spoilt_texts())
@settings(max_examples=150)
def test_odd_values_are_taken_for_what_they_are(folder: Path, texts: list[bytes]) -> None:
    """Wrong types, huge numbers, repeated keys and deep nesting end likewise."""
    answer(folder, texts)
