"""The Kineto reader: exact times, the arguments that are kept, files that are no traces."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builder import Kineto, collective, exact_us
from tracekit.core.errors import NotATraceError, ReadError
from tracekit.io import kineto
from tracekit.io.table import COLUMNS, EventTable
from tracekit.model.names import load
from tracekit.model.trace import Trace

#: a unix time with 19 digits, as absolute traces have it; a double there has steps of 256 ns
NOW_NS = 1_760_000_000_123_456_789


def read(text: str | bytes) -> EventTable:
    """Read a text as one file."""
    raw = text.encode() if isinstance(text, str) else text
    return kineto.read(iter([raw]), "trace.json")


def read_rows(*rows: str) -> EventTable:
    """Read a file of these rows."""
    return read('{"traceEvents": [' + ", ".join(rows) + "]}")


def row(ts: str, dur: str = "1", **more: str) -> str:
    """A complete event with these texts for times and further fields."""
    rest = "".join(f', "{key}": {value}' for key, value in more.items())
    return f'{{"ph": "X", "name": "k", "cat": "kernel", "ts": {ts}, "dur": {dur}{rest}}}'


def sound(table: EventTable) -> list[bool]:
    """Which rows have possible times."""
    return [bool(s) for s in Trace(0, "trace.json", table, load()).sound]


def codes_of(notes: list[Any]) -> list[str]:
    """The short names of notes."""
    return [n.code for n in notes]


# -- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("5", 5_000),
        ("5.001", 5_001),
        ("-0.001", -1),
        ("1e3", 1_000_000),
        ("0.0004", 0),
        ("8796093022207.999", 8_796_093_022_207_999),  # the largest a double holds to the ns
        ("1760000000123456", 1_760_000_000_123_456_000),
        ("1760000000123456.789", NOW_NS),
        ("1760000000123456.001", 1_760_000_000_123_456_001),
        ('"1760000000123456.789"', NOW_NS),
        ('" 12.5 "', 12_500),
        ('"1e3"', 1_000_000),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, ns: int) -> None:
    """Relative or absolute, integer, decimal or text: each digit of a time counts."""
    table = read_rows(row(text, text if ns > 0 else "0"), row("1"))
    assert table["start_ns"].tolist() == [ns, 1_000]
    assert table["dur_ns"].tolist() == [max(ns, 0), 1_000]


far = st.integers(-(2**60), 2**60)
near = st.integers(-(10**9), 10**9)


@given(
    st.lists(st.tuples(st.one_of(far, near), st.one_of(far, near)), min_size=1, max_size=6),
    st.data(),
)
def test_any_nanosecond_survives(times: list[tuple[int, int]], data: st.DataObject) -> None:
    """Every start and duration of 60 bits comes back exactly, written as a number or as text."""
    rows = []
    for start, dur in times:
        quote = data.draw(st.sampled_from(["", '"']))
        rows.append(row(f"{quote}{exact_us(start)}{quote}", f"{quote}{exact_us(dur)}{quote}"))
    table = read_rows(*rows)
    assert list(zip(table["start_ns"].tolist(), table["dur_ns"].tolist(), strict=True)) == times


@given(st.integers(0, 2**60), st.integers(0, 2**40))
def test_begin_and_end_rows_are_exact(start: int, dur: int) -> None:
    """A begin and an end row make one event whose times have all their digits."""
    table = read_rows(
        f'{{"ph": "B", "name": "op", "pid": 1, "tid": 2, "ts": {exact_us(start)}}}',
        f'{{"ph": "E", "pid": 1, "tid": 2, "ts": {exact_us(start + dur)}}}',
    )
    assert (table["start_ns"].tolist(), table["dur_ns"].tolist()) == ([start], [dur])


def test_absolute_times_stay_exact_beside_damage() -> None:
    """A mended or oddly typed row does not cost its neighbours the digits of their times."""
    damaged = row("1760000000123456.001", "2.5", args='{"bw": inf}')
    odd = row("1760000000123456.002", "2.5", args="[]")
    table = read_rows(row(exact_us(NOW_NS), "0.25"), damaged, odd, "17")
    assert table["start_ns"].tolist() == [NOW_NS, NOW_NS - 788, NOW_NS - 787]
    assert table["dur_ns"].tolist() == [250, 2_500, 2_500]


@pytest.mark.parametrize(
    "text",
    ["null", "[]", "{}", '"soon"', '""', '"nan"', '"inf"', '"1e999999"', "1e300", "1e400", "NaN",
     "9" * 40, "-9223372036854775808", "[[1, 2]]"],
)  # fmt: skip
def test_what_is_no_time_makes_a_row_impossible(text: str) -> None:
    """A start or duration that is no time of this universe spoils its own row and no other."""
    rows = (row(text), row("5", text), row("6"), row("7", "3"))
    table = read_rows(*rows)
    assert sound(table) == [False, False, True, True]
    assert table["start_ns"].tolist()[2:] == [6_000, 7_000]


def test_a_missing_duration_makes_a_row_impossible() -> None:
    """A complete event without duration is no event of length 0."""
    assert sound(read_rows('{"ph": "X", "name": "k", "ts": 5}', row("6"))) == [False, True]


def test_texts_for_numbers_are_told() -> None:
    """Times written as text are converted, and counted in one note."""
    table = read_rows(row('"1000.000"', '"250.500"'))
    assert table["dur_ns"].tolist() == [250_500]
    assert [n.text for n in table.notes] == ["2 numbers written as text converted"]


def test_base_time_is_kept_apart() -> None:
    """``baseTimeNanoseconds`` is the time base, whatever ``displayTimeUnit`` says."""
    head = f'{{"baseTimeNanoseconds": {NOW_NS}, "displayTimeUnit": "ns", "traceEvents": ['
    table = read(head + row("2.5") + "]}")
    assert (table.base_ns, table["start_ns"].tolist()) == (NOW_NS, [2_500])


@pytest.mark.parametrize("base", ["-1", "1.5", '"1"', "null", "[]", str(2**63)])
def test_an_odd_base_is_no_base(base: str) -> None:
    """A time base that is no non-negative 62-bit integer counts as none."""
    assert read(f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{row("1")}]}}').base_ns == 0


# -- rows -------------------------------------------------------------------------------------


def test_begin_and_end_pair_by_thread_innermost_first() -> None:
    """An end closes the begin opened last on its own thread; halves without partner are told."""
    half = '{{"ph": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {}}}'
    halves = [("B", "a", 1, 0), ("B", "x", 2, 1), ("B", "b", 1, 2), ("E", "", 1, 5),
              ("E", "", 2, 7), ("E", "", 1, 9), ("E", "", 1, 10), ("B", "open", 3, 11)]  # fmt: skip
    table = read_rows(*(half.format(*h) for h in halves))
    found = zip(
        (table.names[i] for i in table["name"]), table["start_ns"], table["dur_ns"], strict=True
    )
    assert sorted((n, int(s), int(d)) for n, s, d in found) == [
        ("a", 0, 9_000), ("b", 2_000, 3_000), ("x", 1_000, 6_000),
    ]  # fmt: skip
    assert codes_of(table.notes) == ["unpaired"]
    assert table.notes[0].text.startswith("2 begin or end rows")


def test_rows_without_time_are_read_but_not_timed() -> None:
    """Flows, instants, counters and metadata count as read; only complete events are timed."""
    others = [f'{{"ph": "{ph}", "name": "n", "ts": 1}}' for ph in "sftiICMbenPRcNOD"]
    table = read_rows(*others, row("1"))
    assert (table.counts["read"], table.counts["timed"]) == (len(others) + 1, 1)


def test_threads_bear_their_names() -> None:
    """A lane is pid and tid as text, with the name the file gives the thread."""
    name = '{"ph": "M", "name": "thread_name", "pid": 1, "tid": "t", "args": {"name": "main"}}'
    table = read_rows(row("1", pid="1", tid='"t"'), row("2", pid='"p"', tid="3.5"), name)
    assert [table.lanes[i] for i in table["lane"]] == [("1", "t"), ("p", "3.5")]
    assert {table.lanes[i]: n for i, n in table.lane_names.items()} == {("1", "t"): "main"}


def test_numbers_of_a_device_row() -> None:
    """Device, stream, correlation, bytes and external id are kept; absent ones are -1."""
    args = '{"device": 3, "stream": 7, "correlation": 11, "bytes": 4096, "External id": 5}'
    table = read_rows(row("1", args=args), row("2", args='{"external id": 6}'), row("3"))
    columns = ("device", "stream", "correlation", "bytes", "external_id")
    got = {key: table[key].tolist() for key in columns}
    assert got == {
        "device": [3, -1, -1],
        "stream": [7, -1, -1],
        "correlation": [11, -1, -1],
        "bytes": [4096, -1, -1],
        "external_id": [5, 6, -1],
    }


@pytest.mark.parametrize(
    ("text", "number"),
    [('"12"', 12), ("12.0", 12), ("null", -1), ("[]", -1), ('"x"', -1), ("[[1], [2]]", -1),
     ("1e300", -1), (str(2**62), 2**62), (str(2**64 - 1), 2**63 - 1)],
)  # fmt: skip
def test_an_odd_number_is_converted_or_absent(text: str, number: int) -> None:
    """A column takes what is a whole number in any writing; everything else is absent."""
    table = read_rows(row("1", args=f'{{"correlation": {text}}}'))
    assert table["correlation"].tolist() == [number]


def test_arguments_of_collectives_are_kept() -> None:
    """All that describes a collective stays as written, ids beyond 64 bits with every digit."""
    args = collective(
        "_allgather_base", elems=10, out_elems=20, dtype="BFloat16", group="7", ranks=(0, 2), seq=4,
        desc="mesh_tp", comms_id=2**64 + 1, **{"In split size": "[]", "Src Rank": 1, "Dst Rank": 0},
    )  # fmt: skip
    extra = {"stream": 20, "device": 0, "Rank": 3}
    table = read_rows(row("1", args=json.dumps({**args, **extra})), row("2"))
    assert table["detail"].tolist() == [0, -1]
    assert table.details == [args]


def test_the_message_of_a_gloo_span_is_its_tensor() -> None:
    """Gloo spans carry shapes in place of arguments; other operators' shapes are not kept."""
    span = json.dumps(dims := {"Input Dims": [[2, 3], []], "Input type": ["float", ""]})
    op = f'{{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 1, "args": {span}}}'
    gloo = op.replace("aten::mm", "gloo:all_reduce")
    table = read_rows(op, gloo)
    assert table["detail"].tolist() == [-1, 0]
    assert [{key: d[key] for key in dims} for d in table.details] == [dims]


@pytest.mark.parametrize("value", ["[]", "{}", "null", "3", "true", "2.5", '[{"ph": "X"}]'])
@pytest.mark.parametrize("key", ["ph", "name", "cat", "pid", "tid", "args", "id"])
def test_any_type_in_any_field_is_survived(key: str, value: str) -> None:
    """A field of the wrong type costs at most its own row."""
    fields = {
        "ph": '"X"',
        "name": '"odd"',
        "cat": '"kernel"',
        "pid": "1",
        "tid": "2",
        "ts": "1",
        "dur": "1",
    }
    odd = ", ".join(f'"{k}": {v}' for k, v in {**fields, key: value}.items())
    table = read_rows(row("5"), f"{{{odd}}}", row("6"))
    starts = table["start_ns"].tolist()
    assert starts == ([5_000, 6_000] if key == "ph" else [5_000, 1_000, 6_000])


def test_many_categories_keep_apart() -> None:
    """A file of 40,000 categories loses none of them."""
    rows = [
        f'{{"ph": "X", "name": "k", "cat": "c{i}", "ts": {i}, "dur": 1}}' for i in range(40_000)
    ]
    table = read_rows(*rows)
    assert table.cats[int(table["cat"][-1])] == "c39999"
    assert len(set(table["cat"].tolist())) == 40_000


def test_columns_have_their_declared_types() -> None:
    """Every column has the type that the store and the analysis rely on."""
    table = Kineto().kernel(0, 5).op(0, 9).table()
    assert {key: column.dtype for key, column in table.columns.items()} == {
        key: np.dtype(kind) for key, kind in COLUMNS.items()
    }


# -- the header -------------------------------------------------------------------------------


def test_the_header_may_stand_before_and_behind_the_events() -> None:
    """Every top-level key is kept, wherever it stands."""
    table = read(
        f'{{"a": [{{"b": "]}}"}}], "traceEvents": [{row("1")}], "distributedInfo": {{"rank": 5}}}}'
    )
    assert table.meta == {"a": [{"b": "]}"}], "distributedInfo": {"rank": 5}}


def test_two_different_ranks_are_told() -> None:
    """Of two ``distributedInfo`` the first is used, and a note names both ranks."""
    infos = '"distributedInfo": {"rank": 3}, "distributedInfo": {"rank": 0}'
    table = read(f'{{{infos}, "traceEvents": [{row("1")}]}}')
    assert table.meta["distributedInfo"] == {"rank": 3}
    assert codes_of(table.notes) == ["two-distributed-infos"]
    assert "rank 3, then rank 0" in table.notes[0].text


def test_two_equal_ranks_are_no_news() -> None:
    """The same ``distributedInfo`` twice is taken once, without a note."""
    info = '"distributedInfo": {"rank": 3}'
    assert read(f'{{{info}, "traceEvents": [{row("1")}], {info}}}').notes == []


# -- files that are no traces -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "execution trace"),
        ('{"0": [], "1": []}', "pipeline schedule"),
        ('{"foo": 1, "bar": 2}', "its keys are foo, bar"),
        ("{}", "no traceEvents"),
        ('{"traceEvents": null}', "no traceEvents"),
        ("[1, 2, 3]", "items are no events"),
        ('["a"]', "items are no events"),
    ],
)
def test_json_that_is_no_trace_is_named(text: str, words: str) -> None:
    """A JSON document that is no trace is refused with what it seems to be."""
    with pytest.raises(NotATraceError, match=words):
        read(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"traceEvents": []}', "no events in this file"),
        ("[]", "no events in this file"),
        ('{"traceEvents": [{"ph": "M", "name": "x"}]}', r"no timed events in this file \(1 other"),
        ('{"traceEvents": [', "cut short at byte 17"),
        ('{"a": 1, "traceEvents"', "the header breaks off"),
        ('{"schemaVersion": 1, "x{"schemaVersion": 1', "two headers found"),
    ],
)  # fmt: skip
def test_a_trace_without_events_is_refused(text: str, words: str) -> None:
    """A file without a single timed event is an error that says what was found."""
    with pytest.raises(ReadError, match=words):
        read(text)


def test_an_exponent_beyond_all_numbers_is_no_time() -> None:
    """A time whose exponent no decimal can hold makes its row impossible, and no failure."""
    table = read_rows(row("1e-999999999999999999999"), row("1712195495519695.801"))
    assert sound(table) == [False, True]
