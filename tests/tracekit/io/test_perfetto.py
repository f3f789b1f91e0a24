"""Promises of the Perfetto writer: exact times, whole nesting-free lanes, text that stays text."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.io.perfetto import (
    CHUNK,
    SIGNATURE,
    Arrow,
    Kind,
    PerfettoWriter,
    Slices,
    encoded,
    is_export,
    lanes,
    us_text,
)

GEMM = Kind("gemm", "compute", "olive")


def slices(*spans: tuple[int, int], kinds: Sequence[Kind] = (GEMM,), **more: Any) -> Slices:
    """Slices over these spans in ns, all of the first kind."""
    start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    return Slices(start, end, np.zeros(len(spans), dtype=np.int64), kinds, **more)


def written(*tracks: tuple[int, str, Slices], **about: Any) -> dict[str, Any]:
    """The file with these tracks, numbers as decimals."""
    sink = io.BytesIO()
    writer = PerfettoWriter(sink, about, first_tid=100)
    for pid, name, content in tracks:
        writer.track(pid, name, content)
    writer.close()
    found: dict[str, Any] = json.loads(sink.getvalue(), parse_float=Decimal)
    return found


def test_one_slice_word_by_word() -> None:
    """A file is what the format's readers expect, to the letter."""
    sink = io.BytesIO()
    writer = PerfettoWriter(sink, {"time": "us"}, first_tid=5)
    writer.process(3, "rank 3", 0)
    args = [{"bytes": 8, "op": None, "wait_us": 0.5}]
    content = slices((1_500, 2_000), args=args.__getitem__, arrow={0: Arrow(9, "start")})
    assert writer.track(3, "stream 7", content) == [5]
    writer.close()
    assert sink.getvalue().decode() == (
        '{"otherData":{"written_by":"tracekit","time":"us"},"traceEvents":[\n'
        '{"name":"process_name","ph":"M","pid":3,"tid":3,"args":{"name":"rank 3"}},\n'
        '{"name":"process_sort_index","ph":"M","pid":3,"tid":3,"args":{"sort_index":0}},\n'
        '{"name":"thread_name","ph":"M","pid":3,"tid":5,"args":{"name":"stream 7"}},\n'
        '{"name":"thread_sort_index","ph":"M","pid":3,"tid":5,"args":{"sort_index":5}},\n'
        '{"ph":"X","pid":3,"tid":5,"name":"gemm","cat":"compute","cname":"olive",'
        '"ts":1.500,"dur":0.500,"args":{"bytes":8,"wait_us":0.5}},\n'
        '{"ph":"s","name":"collective","cat":"collective","id":9,"pid":3,"tid":5,"ts":1.500}\n'
        "]}\n"
    )


def test_file_without_tracks_is_whole() -> None:
    """Nothing to show still makes a valid file, and no unit is written, which old readers obey."""
    assert written() == {"otherData": {"written_by": "tracekit"}, "traceEvents": []}
    assert written((0, "empty", slices()))["traceEvents"] == []


def test_times_are_exact_beyond_a_double() -> None:
    """19 digits of ns come out digit by digit."""
    at = 1_760_000_000_123_456_789
    found = written((0, "s", slices((at, at + 1))))["traceEvents"][-1]
    assert (found["ts"], found["dur"]) == (Decimal("1760000000123456.789"), Decimal("0.001"))


@pytest.mark.parametrize("span", [(-1, 5), (5, 4)])
def test_impossible_slices_are_refused(span: tuple[int, int]) -> None:
    """The viewer would drop these without a word."""
    with pytest.raises(ValueError, match="starts before 0 or ends before it starts"):
        written((0, "s", slices(span)))


def test_overlapping_slices_get_lanes_of_their_own() -> None:
    """A slice that begins before the last one ended is shown in the next lane, none is lost."""
    found = written((1, "s", slices((20, 30), (0, 10), (9, 15), (10, 12))))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    spans: dict[str, list[tuple[Decimal, Decimal]]] = {}
    for e in found:
        if e["ph"] == "X":
            spans.setdefault(names[e["tid"]], []).append((e["ts"] * 1000, e["dur"] * 1000))
    assert names == {100: "s", 101: "s (2)"}
    assert spans == {"s": [(0, 10), (10, 2), (20, 10)], "s (2)": [(9, 6)]}


def test_tracks_never_share_a_tid() -> None:
    """Threads are told apart by their number alone, so it counts through all processes."""
    found = written((0, "a", slices((0, 1))), (1, "a", slices((0, 1), (0, 1))))["traceEvents"]
    assert [(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"] == [
        (0, 100),
        (1, 101),
        (1, 102),
    ]


def test_arrow_follows_its_slice() -> None:
    """An arrow is written directly after its slice, at the same time, and the end says it binds."""
    arrows = {0: Arrow(1, "start"), 1: Arrow(1, "step"), 2: Arrow(1, "end")}
    content = slices((0, 10), (10, 20), (20, 30), arrow=arrows)
    found = [e for e in written((0, "s", content))["traceEvents"] if e["ph"] != "M"]
    assert [e["ph"] for e in found] == ["X", "s", "X", "t", "X", "f"]
    assert [a["ts"] == x["ts"] for x, a in zip(found[::2], found[1::2], strict=True)] == [True] * 3
    assert [e.get("bp") for e in found[1::2]] == [None, None, "e"]


def test_names_stay_text() -> None:
    """Quotes, control bytes, markup and half a surrogate pair do not break the file."""
    names = ['a"b\\c', "line\nbreak\x00", "</script><b>", "half \ud800", ""]
    kinds = [Kind(n, n, n) for n in names]
    content = slices(*((i, i + 1) for i in range(5)), kinds=kinds)
    content.kind = np.arange(5)
    content.args = lambda i: {names[i] or "k": names[i]}
    found = [e for e in written((0, names[0], content))["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in found] == [*names[:3], "half ?", "(no name)"]
    assert [e.get("cat") for e in found] == [*names[:3], "half ?", None]
    assert found[3]["args"] == {"half ?": "half ?"}


def test_many_slices_are_all_written() -> None:
    """Pieces are joined without a gap or a missing comma."""
    num = 2 * CHUNK + 1
    content = slices(*((i, i + 1) for i in range(num)))
    found = [e for e in written((0, "s", content))["traceEvents"] if e["ph"] == "X"]
    assert [int(e["ts"] * 1000) for e in found] == list(range(num))


def test_own_files_are_known_again(tmp_path: Path) -> None:
    """Only what was written here counts as an export, packed or plain."""
    contents = {
        "plain": SIGNATURE + b"...",
        "packed": gzip.compress(SIGNATURE + b"..."),
        "kineto": b'{"schemaVersion":1,"traceEvents":[]}',
        "short": SIGNATURE[:-1],
        "empty": b"",
        "broken": gzip.compress(SIGNATURE)[:15],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    own = [name for name in contents if is_export(tmp_path / name)]
    assert own == ["plain", "packed"]
    assert not is_export(tmp_path / "absent")


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_lanes_are_free_of_overlap_and_few(spans: list[tuple[int, int]]) -> None:
    """No lane holds two slices that overlap or start together; there are as many as run at once."""
    spans.sort()
    start = np.array([s for s, _ in spans], dtype=np.int64)
    end = np.array([s + d for s, d in spans], dtype=np.int64)
    lane = lanes(start, end)
    for number in range(int(lane.max(initial=-1)) + 1):
        mine = np.flatnonzero(lane == number)
        assert (start[mine][1:] >= np.maximum(end, start + 1)[mine][:-1]).all()
    busy = [
        sum(s <= at < max(s + d, s + 1) for s, d in spans) for at in range(71)
    ]  # an instant-long slice takes its instant
    assert int(lane.max(initial=-1)) + 1 == max(busy, default=0)


@given(st.integers(0, 2**63 - 1))
def test_us_text_is_exact(ns: int) -> None:
    """The text is the number of µs, neither rounded nor in powers of ten."""
    assert Decimal(us_text(ns).decode()) * 1000 == ns
    assert encoded({"ns": ns}) == b'{"ns":%d}' % ns
