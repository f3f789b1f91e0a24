"""Pieces of a trace's text: any borders give the same table, any cut gives the whole events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import Kineto, collective
from tracekit.core.errors import ReadError
from tracekit.io import jsontext, kineto
from tracekit.io.table import EventTable

PIECES = (64, 90, 200, 700, 2000)


def read(text: bytes, block: int = 1 << 20) -> EventTable:
    """Read a text that arrives in blocks of a size."""
    blocks = (text[at : at + block] for at in range(0, len(text), block))
    return kineto.read(blocks, "trace.json")


def content(table: EventTable) -> dict[str, Any]:
    """All of a table in comparable form."""
    return {
        "columns": {key: column.tolist() for key, column in table.columns.items()},
        "texts": (table.names, table.cats, table.lanes, table.lane_names),
        "details": table.details,
        "meta": table.meta,
        "base": table.base_ns,
        "counts": table.counts,
        "notes": [(n.code, n.text.partition(" (")[0]) for n in table.notes],
    }


def in_pieces(text: bytes, size: int, block: int) -> dict[str, Any]:
    """The table of a text that is cut into small pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "PIECE_BYTES", size)
        return content(read(text, block))


# -- borders of pieces ------------------------------------------------------------------------

#: texts that look like ends and starts of events, and like ends of strings
LOOKALIKES = [
    '},{"ph":"X"',
    '"}, {',
    "\\",
    '\\"',
    "}],",
    '{"name": 1}',
    '"traceEvents": [',
    "]}",
    "é\u2028",
    "",
]
texts = st.one_of(st.sampled_from(LOOKALIKES), st.text(st.characters(codec="utf-8"), max_size=8))
keys = st.one_of(st.sampled_from(["ph", "name", "ts", "args", "cat", "pid", "x"]), texts)
values = st.recursive(
    st.one_of(texts, st.integers(-9, 2**63), st.booleans(), st.none(), st.floats(-9, 9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3),
        st.lists(st.fixed_dictionaries({"ph": texts, "name": inner}), max_size=20),
    ),
    max_leaves=12,
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """An event with arguments of any shape, its keys in any order."""
    fields: dict[str, Any] = {
        "ph": draw(st.sampled_from(["X", "X", "X", "M", "s", "B", "E"])),
        "name": draw(texts),
        "cat": draw(st.sampled_from(["kernel", "cpu_op"])),
        "pid": draw(st.one_of(st.integers(0, 2), texts)),
        "tid": draw(st.integers(0, 2)),
        "ts": draw(st.one_of(st.integers(0, 99), st.just(1760000000123456))),
        "dur": draw(st.integers(0, 9)),
    }
    if draw(st.booleans()):
        fields["args"] = draw(st.dictionaries(keys, values, max_size=3))
    return {key: fields[key] for key in draw(st.permutations(list(fields)))}


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A sound file: keys before and behind the events, any white space between them."""
    indent = draw(st.sampled_from([None, 0, 1]))
    rows = draw(st.lists(events(), min_size=1, max_size=12))
    rows.append({"ph": "X", "name": "last", "ts": 1, "dur": 1})
    if draw(st.booleans()):
        return json.dumps(rows, indent=indent, ensure_ascii=draw(st.booleans())).encode()
    head = draw(st.dictionaries(st.sampled_from(["a", "distributedInfo"]), values, max_size=2))
    tail = draw(st.dictionaries(st.sampled_from(["traceName", "z"]), values, max_size=2))
    whole = {**head, "traceEvents": rows, **tail}
    return json.dumps(whole, indent=indent, ensure_ascii=draw(st.booleans())).encode()


@given(files(), st.sampled_from(PIECES), st.sampled_from([7, 100, 1 << 20]))
@settings(max_examples=100)
def test_borders_of_pieces_leave_no_trace(text: bytes, size: int, block: int) -> None:
    """A sound file read in pieces of any size gives the table of one piece, to the last value."""
    assert in_pieces(text, size, block) == content(read(text))


@pytest.mark.parametrize("size", PIECES)
def test_forty_false_borders_in_one_event(size: int) -> None:
    """An event whose arguments hold dozens of objects that look like events stays one event."""
    inner = [{"ph": "X", "name": f"no event {i}", "ts": i, "dur": 1} for i in range(40)]
    file = Kineto().kernel(0, 5).kernel(5, 9, "host of objects", list=inner).kernel(9, 12)
    found = in_pieces(file.text(), size, 1 << 20)
    assert found["columns"]["start_ns"] == [0, 5_000, 9_000]
    assert found["counts"]["read"] == 3
    assert found["notes"] == []


#: faults writers are known for, each in the second of five events; the figure is what survives
FAULTS = {
    "bare-word": (b'"args": {"bw": inf}', 5),
    "lone-backslash": (b'"args": {"x": "torch\\cuda\\_x"}', 5),
    "control-byte": (b'"args": {"x": "a\x01b\nc"}', 5),
    "not-utf8": (b'"cat": "\xc7\x80\xff\xb0"', 5),
    "lone-surrogate": (b'"args": {"x": "a\\ud800b"}', 5),
    "trailing-comma": (b'"args": {"x": [1, 2,],}', 5),
    "number-out-of-range": (b'"args": {"Seq": 1e999}', 5),
    "unreadable-event": (b'"args": {"x": "a"b"}', 4),
    "too deep": (b'"args": {"x": ' + b"[" * 2000 + b"]" * 2000 + b"}", 4),
}


def faulty(fault: bytes) -> bytes:
    """Five events of 1 µs, arguments that look like events beside the fault, and a tail."""
    plain = b'{"ph": "X", "name": "k", "ts": %d, "dur": 1, "args": {"l": [{"ph": 1}], "next": 2}}'
    rows = [plain % at for at in range(5)]
    rows[1] = b'{"ph": "X", "name": "k", "ts": 1, "dur": 1, ' + fault + b"}"
    tail = b'"list": [{"a": 1}], "traceName": "x"'
    return b'{"traceEvents": [' + b",\n".join(rows) + b"],\n" + tail + b"}"


@pytest.mark.parametrize("size", [64, 200, 1 << 20])
@pytest.mark.parametrize(
    ("code", "fault", "survive"), [(c, *f) for c, f in FAULTS.items()], ids=FAULTS
)
def test_a_writer_s_fault_costs_its_own_value(
    code: str, fault: bytes, survive: int, size: int
) -> None:
    """A known fault is mended and told; one that cannot be mended costs its event and no other."""
    found = in_pieces(faulty(fault), size, 1 << 20)
    starts = [0, 1_000, 2_000, 3_000, 4_000]
    assert found["columns"]["start_ns"] == (starts if survive == 5 else [0, *starts[2:]])
    assert found["meta"] == {"list": [{"a": 1}], "traceName": "x"}
    kinds = [code for code, _ in found["notes"]]
    assert kinds == ["mended-unreadable-event" if survive == 4 else f"mended-{code}"]


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_a_fault_is_told_with_its_place(size: int) -> None:
    """The note of a mended fault names the byte near which the first one was met."""
    text = faulty(FAULTS["bare-word"][0])
    at = text.index(b"inf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "PIECE_BYTES", size)
        (note,) = read(text).notes
    words, _, place = note.text.partition(" (first damage near byte ")
    assert words == "1 bare inf or nan read as absent"
    assert abs(int(place.rstrip(")")) - at) <= 2


# -- files that end too early -----------------------------------------------------------------


def whole_events_before(text: bytes, cut: int) -> int:
    """How many events end at or before a byte; in the test file each ends with its line."""
    return text[:cut].count(b"}\n") + (text[cut - 1 : cut] == b"}" and text[cut : cut + 1] == b"\n")


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_every_cut_gives_the_whole_events_before_it(size: int) -> None:
    """A file that stops at any byte gives exactly the events that are whole, and says how many."""
    rows = [
        f'{{"ph": "X", "name": "k{i}", "ts": {i}, "dur": 1, "args": {{"l": [{{"ph": 1}}]}}}}\n'
        for i in range(4)
    ]
    text = ('{"traceEvents": [' + ",".join(rows) + '], "traceName": "a.json", "z": [1]}').encode()
    first, last = text.index(b"}\n") + 1, text.index(b"], ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "PIECE_BYTES", size)
        for cut in range(first, len(text)):
            table = read(text[:cut])
            whole = whole_events_before(text, cut)
            assert table["start_ns"].tolist() == [1_000 * i for i in range(whole)], cut
            assert table.counts["recovered"] == whole, cut
            assert [n.code for n in table.notes] == ["truncated"], (cut, table.notes)
            assert f"after {whole} whole events (it ends at byte {cut:,})" in table.notes[0].text
        assert last < len(text)  # cuts in the keys behind the events are among them
        assert read(text).notes == []


def test_a_cut_tail_keeps_its_whole_keys() -> None:
    """Keys behind the events that are whole survive a cut in a later one."""
    text = Kineto(None).kernel(0, 5).text()
    at = text.rindex(b"]") + 1
    table = read(text[:at] + b', "distributedInfo": {"rank": 7}, "traceName": "/tmp/x')
    assert table.meta["distributedInfo"] == {"rank": 7}
    assert [n.code for n in table.notes] == ["truncated"]


@pytest.mark.parametrize("end", [b"", b",", b"\n,\n", b"]", b"]\n"])
def test_a_bare_array_may_end_as_it_likes(end: bytes) -> None:
    """Of an array of events all whole ones are read, closed or not."""
    rows = (
        b'[{"ph": "X", "name": "k", "ts": 1, "dur": 1}, {"ph": "X", "name": "k", "ts": 2, "dur": 1}'
    )
    assert read(rows + end)["start_ns"].tolist() == [1_000, 2_000]


# -- several writers --------------------------------------------------------------------------

ONE = Kineto(0).kernel(0, 5).kernel(5, 9).text()
OTHER = Kineto(1).kernel(0, 7).kernel(7, 9).text()


@pytest.mark.parametrize("size", [64, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        ONE + OTHER,
        ONE + b"\n" + OTHER[:40],
        ONE[:150] + OTHER[:150] + ONE[150:] + OTHER[150:],
        ONE[:20] + OTHER,
        ONE.rstrip().removesuffix(b"}") + b', "traceEvents": [{}]}',
        b"[]" + ONE,
    ],
    ids=["behind", "cut behind", "in turns", "in the header", "two arrays", "behind an array"],
)
def test_two_writers_are_refused(text: bytes, size: int) -> None:
    """A file that two ranks wrote is refused, with the question whether they shared a path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "PIECE_BYTES", size)
        with pytest.raises(ReadError, match="was one path used by several ranks") as caught:
            read(text)
    assert "trace.json: " in str(caught.value)


# -- around the document ----------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \n\t ", b"\xef\xbb\xbf\r\n"])
@pytest.mark.parametrize("behind", [b"", b"\n", b" \r\n\t", b"\0" * 512])
def test_marks_and_space_around_the_document(before: bytes, behind: bytes) -> None:
    """A byte-order mark, white space, and zero bytes of blocks never written are no damage."""
    text = Kineto().kernel(0, 5).text().rstrip()
    for block in (1, 5, 1 << 20):
        table = read(before + text + behind, block)
        assert (table["dur_ns"].tolist(), table.notes) == ([5_000], [])


def test_a_damaged_header_value_is_absent() -> None:
    """A value of the header that cannot be read is None; a mended one is told once."""
    text = b'{"a": [1 2], "b": {"bw": nan}, ' + Kineto().kernel(0, 5).text()[1:]
    table = read(text, block=16)
    assert (table.meta["a"], table.meta["b"]) == (None, {"bw": None})
    assert [n.text for n in table.notes] == [
        "1 bare inf or nan read as absent",
        "1 parts of the header that are not valid JSON left out",
    ]


@pytest.mark.parametrize("rubbish", [b"x", b"}", b', "z": 1}', b'"', b"]]"])
def test_rubbish_behind_the_document_is_told(rubbish: bytes) -> None:
    """What follows the document and is no other one costs nothing but a note."""
    for text in (Kineto().kernel(0, 5).text(), b'[{"ph": "X", "name": "k", "ts": 1, "dur": 5}]'):
        table = read(text + rubbish)
        assert table["dur_ns"].tolist() == [5_000]
        assert [n.code for n in table.notes] == ["mended-unreadable-header"]


def test_an_event_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single event larger than the limit ends the reading, with the limit in the message."""
    monkeypatch.setattr(jsontext, "PIECE_BYTES", 64)
    monkeypatch.setattr(jsontext, "MAX_UNIT_BYTES", 1 << 20)
    start = b'{"traceEvents": [{"ph": "X", "args": {"x": ['

    def endless() -> Iterator[bytes]:
        yield start
        while True:
            yield b"1, " * 10_000

    with pytest.raises(ReadError, match="one event is larger than 1 MiB"):
        kineto.read(endless(), "trace.json")


def test_a_header_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that never comes to the events is given up at the limit."""
    monkeypatch.setattr(jsontext, "MAX_UNIT_BYTES", 1 << 20)

    def endless() -> Iterator[bytes]:
        yield b'{"x": ['
        while True:
            yield b"1, " * 50_000

    with pytest.raises(ReadError, match="the header breaks off"):
        kineto.read(endless(), "trace.json")


def test_pieces_bound_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the file, no more than a piece and a block of its text is held."""
    monkeypatch.setattr(jsontext, "PIECE_BYTES", 4_096)
    row = json.dumps(
        {"ph": "X", "name": "k", "ts": 1, "dur": 1, "args": collective(elems=1)}
    ).encode()
    longest = 0

    def decode(text: bytes) -> list[int]:
        nonlocal longest
        longest = max(longest, len(text))
        return [1] * len(json.loads(text))

    blocks = iter([b"[" + row, *[b", " + row] * 2_000, b"]"])
    text = jsontext.TraceText(blocks, "trace.json", decode, lambda *_: None)
    assert text.open()
    assert sum(map(len, text.events())) == 2_001
    assert longest < 4_096 + 2 * len(row)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":' * 200_000,
        b"[" * 200_000,
        b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "args": ' + b'{"a":' * 200_000,
        b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b', "traceEvents": []}',
    ],
)
def test_brackets_without_end_are_refused_at_once(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nesting that no decoder takes is refused where it passes a limit, with little read on."""
    monkeypatch.setattr(jsontext, "PIECE_BYTES", 1 << 18)
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            block = text[taken : taken + (1 << 16)] or text[-(1 << 10) :]
            taken += len(block)
            yield block

    with pytest.raises(ReadError, match="brackets are nested more than 50,000 deep near byte"):
        kineto.read(endless(), "trace.json")
    assert taken < 2 << 20


def test_an_event_nested_too_deep_costs_itself() -> None:
    """An event nested deeper than can be decoded, but not without end, is the only one dropped."""
    event = '{"ph": "X", "name": "k", "ts": 1, "dur": 1, "args": {"x": %s}}'
    deep = event % ("[" * 20_000 + "]" * 20_000)
    table = read(f'{{"traceEvents": [{event % 1}, {deep}, {event % 2}]}}'.encode())
    assert len(table) == 2
    assert [n.code for n in table.notes] == ["mended-unreadable-event"]


def test_many_events_that_never_end_take_no_quadratic_time() -> None:
    """A file of nothing but event beginnings is refused, without scanning on from each of them."""
    text = b'{"traceEvents":[' + b'{"ph":"X","name":"' * 100_000
    with pytest.raises(ReadError, match="no events in this file, which is cut short"):
        kineto.read(iter([text]), "x.json")
