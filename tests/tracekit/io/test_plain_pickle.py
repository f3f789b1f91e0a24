"""The pickle reader gives plain values back unchanged and never does what a pickle asks for."""

from __future__ import annotations

import contextlib
import math
import pickle
import struct
import sys
import tracemalloc
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.core.errors import LimitError, ReadError
from tracekit.io import plain_pickle

KEYS = st.text() | st.none() | st.booleans() | st.integers(-(2**31) + 1, 2**31 - 1)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(KEYS, inner, max_size=6)
        | st.lists(inner, max_size=6).map(tuple)
    ),
    max_leaves=30,
)


@given(VALUES, st.integers(3, 5))
def test_plain_values_come_back_unchanged(value: Any, protocol: int) -> None:
    """Any nesting of plain values equals what was pickled, type by type."""
    loaded = plain_pickle.load(pickle.dumps(value, protocol))
    assert loaded.complete
    assert repr(loaded.value) == repr(value)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol: int) -> None:
    """The text protocol and the five binary ones give the same dump (bytes need protocol 3)."""
    value = {
        "a": [1, -1, 255, 256, 65536, 2**40, -(2**40), 2**300, 1.5, math.inf],
        "b": (True, False, None, "é\n\\u2713 ✓", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "c": {"nested": {"again": []}, "": {}, "twice": ["same", "same"]},
    }
    assert plain_pickle.load(pickle.dumps(value, protocol)).value == value


def test_shared_values_stay_shared() -> None:
    """A list named twice is one object again, and a list inside itself ends in itself."""
    inner: list[Any] = [1]
    inner.append(inner)
    value = plain_pickle.load(pickle.dumps([inner, inner], 4)).value
    assert value[0] is value[1]
    assert value[0][1] is value[0]


def test_long_text_and_bytes_are_read() -> None:
    """Lengths of one, four and eight bytes are understood."""
    for size in (255, 256, 70_000):
        assert plain_pickle.load(pickle.dumps(["x" * size, b"y" * size], 4)).value == [
            "x" * size,
            b"y" * size,
        ]
    eight = b"\x80\x04\x8d" + struct.pack("<Q", 3) + b"abc."
    assert plain_pickle.load(eight).value == "abc"


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (b"cposix\nsystem\n(S'true'\ntR.", "asks to import posix.system"),
        (b"(S'true'\niposix\nsystem\n.", "holds the pickle instruction STRING"),
        (b"(iposix\nsystem\n.", "asks to import posix.system"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "asks to import posix.system"),
        (b"\x80\x04K\x01K\x02\x93.", "asks to import ?.?"),
        (b"\x80\x02\x82\x01.", "holds the pickle instruction EXT1"),
        (b"\x80\x02Pname\n.", "asks for a persistent object"),
        (b"\x80\x02NQ.", "asks for a persistent object"),
        (b"\x80\x02N)R.", "holds the pickle instruction REDUCE"),
        (b"\x80\x02N)\x81.", "holds the pickle instruction NEWOBJ"),
        (b"\x80\x02N}b.", "holds the pickle instruction BUILD"),
        (b"\x80\x04\x8f.", "holds the pickle instruction EMPTY_SET"),
        (b"\x80\x05\x97.", "holds the pickle instruction NEXT_BUFFER"),
        (b"\x80\x02})Ns.", "uses a tuple as a key"),
        (b"\x80\x02}\x8a\x09" + bytes(8) + b"\x01Ns.", "uses a int as a key"),
    ],
)
def test_what_is_not_plain_is_refused_by_name(data: bytes, asked: str) -> None:
    """The error says what the pickle asked for and that plain values only are read."""
    with pytest.raises(ReadError) as caught:
        plain_pickle.load(data, file="dump", hint="dump as JSON")
    expected = f"dump: the dump {asked}; plain values only are read from a pickle; dump as JSON"
    assert caught.value.line() == expected


def test_objects_of_python_are_refused() -> None:
    """What Python itself pickles by import (here a subclass of dict) is refused, not built."""
    with pytest.raises(ReadError, match=r"asks to import collections\.OrderedDict"):
        plain_pickle.load(pickle.dumps(OrderedDict(a=1)))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02.",  # nothing to give
        b"\x80\x02a.",  # append without a list
        b"\x80\x02NNa.",  # append to None
        b"\x80\x02u.",  # items without a mark
        b"\x80\x02}(Nu.",  # a key without a value
        b"\x80\x02h\x07.",  # a value never remembered
        b"\x80\x02q\x00.",  # nothing to remember
        b"\x80\x02N\x87.",  # a tuple of three from one
        b"\x80\x02\xff.",  # no such instruction
        b"\x80\x02\x93.",  # an import without a name
        b"\x80\x02Iabc\n.",  # no integer
        b"\x80\x02L" + b"9" * 5000 + b"L\n.",  # digits Python does not convert
        b"\x80\x02\x8b" + struct.pack("<I", 2000) + bytes(2000) + b".",  # a 16,000-bit integer
        b"\x80\x02\x8b\xff\xff\xff\xff.",  # a length beyond the end
        b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x80\x02",
        b"",
    ],
)
def test_malformed_pickles_are_one_line(data: bytes) -> None:
    """Whatever is wrong inside, the user sees a ReadError of one line."""
    with pytest.raises(ReadError) as caught:
        plain_pickle.load(data, file="dump")
    assert caught.value.line().startswith("dump: ")
    assert "\n" not in caught.value.line()


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_read_error(data: bytes) -> None:
    """No input leads to another exception than ReadError."""
    with contextlib.suppress(ReadError):
        plain_pickle.load(b"\x80\x04" + data)


def test_a_large_memo_index_costs_nothing() -> None:
    """Nine bytes that make the standard unpickler fill gigabytes take less than one megabyte."""
    tracemalloc.start()
    try:
        value = plain_pickle.load(b"\x80\x02}r" + struct.pack("<I", 2**32 - 1) + b".").value
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value == {}
    assert peak_bytes < 1_000_000


def test_deep_nesting_does_not_end_the_process() -> None:
    """A tuple nested 200,000 deep is read, and refused as a key (its hash would crash)."""
    depth = 200_000
    assert depth > sys.getrecursionlimit()
    nested = plain_pickle.load(b"\x80\x02)" + b"\x85" * depth + b".").value
    assert len(nested) == 1
    with pytest.raises(ReadError, match="uses a tuple as a key"):
        plain_pickle.load(b"\x80\x02})" + b"\x85" * depth + b"Ns.")


@pytest.mark.parametrize(
    ("name", "limit", "data", "says"),
    [
        ("LIMIT_BYTES", 10, pickle.dumps("x" * 20), "over the limit of 10"),
        ("LIMIT_STEPS", 50, b"\x80\x02" + b"N" * 60 + b".", "more than 50 instructions"),
        ("LIMIT_VALUES", 50, b"\x80\x02" + b"]" * 60 + b".", "more than 50 values"),
        ("LIMIT_VALUES", 50, b"\x80\x04" + b"N\x94" * 60 + b".", "more than 50 remembered"),
    ],
)
def test_limits_end_the_reading(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int, data: bytes, says: str
) -> None:
    """Size, steps, values made and values remembered are each counted."""
    monkeypatch.setattr(plain_pickle, name, limit)
    with pytest.raises(LimitError, match=says):
        plain_pickle.load(data)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_cut_pickle_gives_its_whole_parts(protocol: int) -> None:
    """However a dump is cut, the entries are a prefix of the whole ones and nothing is torn."""
    entries = [{"n": i, "sizes": [[i, 2], []], "name": "all_reduce"} for i in range(5)]
    value = {"version": "2.10", "entries": entries, "more": {"a": [1]}}
    data = pickle.dumps(value, protocol)
    most = 0
    for size in range(20, len(data)):
        loaded = plain_pickle.load(data[:size])
        assert not loaded.complete
        kept = [entry for entry in loaded.value.get("entries", []) if entry]
        assert kept == entries[: len(kept)]
        most = max(most, len(kept))
    assert most == 5
