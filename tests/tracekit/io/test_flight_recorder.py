"""Flight-recorder dumps become rows with Kineto's collective keys, and a hostile one runs nothing.

The expected figures are worked out by hand from the entries below.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.core.errors import LimitError, ReadError
from tracekit.io import flight_recorder
from tracekit.io.table import EventTable

T0 = 1_724_779_239_936_775_119  # needs all 64 bits: a float would move it by up to 128 ns

CONFIG = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
    "7": {"name": "7", "desc": "tp", "ranks": "[2, 3]"},
}


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """One completed all-reduce of 12 floats as torch writes it, with changes."""
    made: dict[str, Any] = {
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": T0 + 1000 * number,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": T0 + 1000 * number + 300,
        "time_discovered_completed_ns": T0 + 1000 * number + 800,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    return made | changes


def pending(number: int, state: str = "scheduled", **changes: Any) -> dict[str, Any]:
    """One entry that never completed; "scheduled" means that not even its start was seen."""
    started = T0 + 1000 * number + 300 if state == "started" else None
    times = {"time_discovered_started_ns": started, "time_discovered_completed_ns": None}
    return entry(number, state=state, retired=False, **times) | changes


def dump(entries: list[Any], **more: Any) -> dict[str, Any]:
    """A dump with the two groups above."""
    return {"version": "2.10", "pg_config": CONFIG, "pg_status": {}, "entries": entries} | more


def read_json(document: Any) -> EventTable:
    """The table of a document written as JSON."""
    return flight_recorder.read(json.dumps(document).encode(), "dump")


def notes_of(table: EventTable) -> dict[str, str]:
    """The notes' texts by code."""
    assert len({note.code for note in table.notes}) == len(table.notes)
    assert all(note.file == "dump" for note in table.notes)
    return {note.code: note.text for note in table.notes}


# ---- columns -------------------------------------------------------------------------------


def written(form: str, document: dict[str, Any]) -> bytes:
    """The document as a pickle of torch's protocol, or as torch's JSON (0 for no time)."""
    if form == "pickle":
        return pickle.dumps(document, 2)
    text = json.dumps(document, sort_keys=True).replace('_ns": null', '_ns": 0')
    return text.encode()


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_columns_and_details_are_exact(form: str) -> None:
    """Both forms of a dump give the same rows, to the nanosecond and to the key."""
    entries = [
        entry(0),
        entry(
            1,
            process_group=("7", "tp"),
            profiling_name="nccl:_all_gather_base",
            input_sizes=[[5], [2, 2]],
            input_dtypes=["BFloat16", "BFloat16"],
            output_sizes=[[10], [4, 2]],
            output_dtypes=["BFloat16", "BFloat16"],
            duration_ms=0.25,
        ),
        pending(2),
    ]
    data = written(form, dump(entries, rank=3, host_name="node7"))
    assert flight_recorder.sniff(data[:400])
    table = flight_recorder.read(data, "dump")

    assert table.base_ns == 0
    assert table["start_ns"].tolist() == [T0 + 300, T0 + 1300, T0 + 2000]
    assert table["dur_ns"].tolist() == [500, 500, 0]
    assert table["name"].tolist() == [0, 1, 0]
    assert table.names == ["nccl:all_reduce", "nccl:_all_gather_base"]
    assert table["cat"].tolist() == [0, 0, 0]
    assert table.cats == ["flight_recorder"]
    assert table["lane"].tolist() == [0, 1, 0]
    assert table.lanes == [("0", "collectives"), ("7", "collectives")]
    for column in ("device", "stream", "correlation", "external_id", "bytes"):
        assert table[column].tolist() == [-1, -1, -1]
    assert table["detail"].tolist() == [0, 1, 2]
    assert table["start_ns"].dtype == np.int64
    assert table.details[0] == {
        "Collective name": "all_reduce",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1, 2, 3]",
        "Group size": 4,
        "Seq": 1,
        "dtype": "Float",
        "In msg nelems": 12,
        "Out msg nelems": 12,
        "record_id": 0,
        "op_id": 1,
        "state": "completed",
        "retired": True,
        "timeout_ms": 600_000,
    }
    assert table.details[1] == table.details[0] | {
        "Collective name": "_all_gather_base",
        "Process Group Name": "7",
        "Process Group Description": "tp",
        "Process Group Ranks": "[2, 3]",
        "Group size": 2,
        "Seq": 2,
        "dtype": "BFloat16",
        "In msg nelems": 9,
        "Out msg nelems": 18,
        "record_id": 1,
        "op_id": 2,
        "duration_ms": 0.25,
    }
    assert table.meta == {
        "version": "2.10",
        "pg_config": CONFIG,
        "pg_status": {},
        "rank": 3,
        "tracekit_source": "flight_recorder",
        "distributedInfo": {"rank": 3, "world_size": 4},
        "host_name": "node7",
    }
    assert table.counts == {"read": 3, "timed": 3, "dropped": 0, "clipped": 0, "recovered": 0}


def test_the_world_size_comes_from_the_default_group_and_no_rank_is_made_up() -> None:
    """Torch's own dump names no rank, so none is given; without a default group nothing is."""
    assert read_json(dump([entry(0)])).meta["distributedInfo"] == {"world_size": 4}
    table = read_json({"entries": [entry(0)], "pg_config": {"": {"name": "", "ranks": "[]"}}})
    assert "distributedInfo" not in table.meta
    assert "Process Group Ranks" not in table.details[0]
    assert "Group size" not in table.details[0]


@pytest.mark.parametrize(
    ("written_name", "shown"),
    [
        ("Float", "Float"),
        ("float32", "Float"),
        ("torch.bfloat16", "BFloat16"),
        ("int64", "Long"),
        ("uint8", "Byte"),
        ("torch.float8_e4m3fn", "Float8_e4m3fn"),
        ("Float8_e5m2", "Float8_e5m2"),
        ("ComplexFloat", "ComplexFloat"),
        ("something_new", "something_new"),
    ],
)
def test_types_carry_their_aten_name(written_name: str, shown: str) -> None:
    """Torch's Python names become the ATen names of Kineto; others stay as they are."""
    table = read_json(dump([entry(0, input_dtypes=[written_name])]))
    assert table.details[0]["dtype"] == shown


def test_sizes_and_types_that_are_not_known_are_left_out() -> None:
    """Mixed types, sizes that are no numbers and counts beyond 64 bits give no key."""
    entries = [
        entry(0, input_dtypes=["Float", "Half"], output_dtypes=[], input_sizes=[["x"]]),
        entry(1, input_dtypes=[], input_sizes=[[2**40, 2**40]], output_sizes=None),
        entry(2, profiling_name="nccl:barrier", input_sizes=[], output_sizes=[[]]),
    ]
    mixed, huge, barrier = read_json(dump(entries)).details
    assert "dtype" not in mixed
    assert "In msg nelems" not in mixed
    assert huge["dtype"] == "Float"  # the output's, where no input is
    assert "In msg nelems" not in huge
    assert "Out msg nelems" not in huge
    assert barrier["In msg nelems"] == 0
    assert barrier["Out msg nelems"] == 1  # a tensor without dimensions holds one element


def test_a_shortened_rank_list_is_kept_as_text() -> None:
    """A list cut with dots still tells groups apart, but no size is read from it."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, ...]"}}
    table = read_json({"pg_config": config, "entries": [entry(0)]})
    assert table.details[0]["Process Group Ranks"] == "[0, 1, ...]"
    assert "Group size" not in table.details[0]
    assert "distributedInfo" not in table.meta


def test_a_group_of_the_same_name_but_another_description_is_not_taken() -> None:
    """Names are given twice by some versions: the description has to agree."""
    table = read_json(dump([entry(0, process_group=["7", "other"])]))
    assert table.details[0]["Process Group Description"] == "other"
    assert "Process Group Ranks" not in table.details[0]


def test_the_first_versions_of_the_format_are_read() -> None:
    """One ``seq_id``, a group named by a number, and a bare list of entries."""
    old = {
        "pg_id": 2,
        "seq_id": 5,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": T0,
        "duration_ms": 1.5,
        "state": "completed",
    }
    for document in ([old], {"entries": [old]}):
        table = flight_recorder.read(pickle.dumps(document, 2), "dump")
        assert table.details[0]["Seq"] == 5
        assert table.lanes == [("2", "collectives")]
        assert table["start_ns"].tolist() == [T0]
        assert table["dur_ns"].tolist() == [1_500_000]  # no end is recorded: the measured one


# ---- point to point, coalesced -------------------------------------------------------------


def test_send_and_receive_carry_global_ranks() -> None:
    """``send 0->1`` in a group of ranks 2 and 3 goes from 2 to 3; so does ``recv 1<-0``."""
    tp = {"process_group": ("7", "tp"), "is_p2p": True, "collective_seq_id": 0}
    entries = [
        entry(0, profiling_name="nccl:send 0->1", p2p_seq_id=4, **tp),
        entry(1, profiling_name="nccl:recv 1<-0", p2p_seq_id=5, **tp),
        entry(2, profiling_name="nccl:send 1->9", p2p_seq_id=6, **tp),
        entry(3, profiling_name="nccl:send 0->1", process_group=("8", "new"), p2p_seq_id=1),
    ]
    table = read_json(dump(entries))
    send, receive, outside, unknown = table.details
    assert (send["Collective name"], send["Src Rank"], send["Dst Rank"]) == ("send", 2, 3)
    assert (receive["Collective name"], receive["Src Rank"], receive["Dst Rank"]) == ("recv", 2, 3)
    assert [send["Seq"], receive["Seq"], unknown["Seq"]] == [4, 5, 1]
    assert outside["Src Rank"] == 3
    assert "Dst Rank" not in outside  # the group has no tenth member
    assert (unknown["Src Rank"], unknown["Dst Rank"]) == (0, 1)  # counted in the group
    assert table.lanes == [("7", "p2p"), ("8", "p2p")]
    assert table.names[0] == "nccl:send 0->1"


def test_members_of_a_coalesced_launch_share_its_times() -> None:
    """Torch never completes the members; they are no hang when their launch completed."""
    member = {"is_p2p": True, "collective_seq_id": 0, "p2p_seq_id": 1}
    entries = [
        pending(0, profiling_name="nccl:send 0->1", **member),
        pending(1, profiling_name="nccl:recv 0<-1", **member),
        entry(
            2, profiling_name="nccl:coalesced", input_sizes=[], collective_seq_id=0, p2p_seq_id=1
        ),
        pending(3, profiling_name="nccl:send 0->1", **member | {"p2p_seq_id": 2}),
    ]
    table = read_json(dump(entries))
    assert table["start_ns"].tolist() == [T0 + 2300, T0 + 2300, T0 + 2300, T0 + 3000]
    assert table["dur_ns"].tolist() == [500, 500, 500, 0]
    assert [row["state"] for row in table.details] == ["completed"] * 3 + ["scheduled"]
    assert table.lanes == [("0", "p2p")]
    assert [row["Seq"] for row in table.details] == [1, 1, 1, 2]
    notes = notes_of(table)
    assert notes["coalesced"].startswith("2 entries are members of coalesced launches")
    assert notes["uncompleted"].startswith("1 of 4 entries never completed")


# ---- what is said about times and hangs ----------------------------------------------------


def test_a_hang_names_the_last_completed_and_the_first_uncompleted() -> None:
    """The two collectives between which the job stopped are in one note."""
    entries = [
        entry(0),
        entry(1),
        pending(2, "started", profiling_name="nccl:broadcast", process_group=("7", "tp")),
        pending(3, retired=True),
    ]
    table = read_json(dump(entries))
    assert table["start_ns"].tolist() == [T0 + 300, T0 + 1300, T0 + 2300, T0 + 3000]
    assert table["dur_ns"].tolist() == [500, 500, 0, 0]
    notes = notes_of(table)
    assert notes["uncompleted"] == (
        "2 of 4 entries never completed: the last completed is all_reduce seq 2 of group 0 "
        "(default_pg), the first not completed is broadcast seq 3 of group 7 (tp) "
        "(state started); 1 of them were given up by the watchdog (timed out)"
    )
    assert notes["creation-times"].startswith("1 of 4 start times are those of enqueueing")
    assert notes["discovered-times"].startswith("the ends of 2 entries are when torch's watchdog")
    assert set(notes) == {"uncompleted", "creation-times", "discovered-times"}


def test_the_last_completed_is_the_one_that_ended_last() -> None:
    """Groups overtake each other: the end decides, not the order of enqueueing."""
    late = entry(0, time_discovered_completed_ns=T0 + 9000)
    text = notes_of(read_json(dump([late, entry(1), pending(2)])))["uncompleted"]
    assert "the last completed is all_reduce seq 1 of" in text
    nothing = notes_of(read_json(dump([pending(0)])))["uncompleted"]
    assert "the last completed is none, the first not completed is all_reduce seq 1" in nothing


def test_without_recorded_starts_the_times_are_those_of_enqueueing() -> None:
    """NCCL without timing has ends only: the duration then runs from enqueueing."""
    table = read_json(dump([entry(i, time_discovered_started_ns=None) for i in range(3)]))
    assert table["start_ns"].tolist() == [T0, T0 + 1000, T0 + 2000]
    assert table["dur_ns"].tolist() == [800, 800, 800]
    assert notes_of(table)["creation-times"].startswith("3 of 3 start times are those of enqueue")


def test_gloo_records_no_completion_and_is_no_hang() -> None:
    """A retired gloo entry has finished at a time nobody wrote down; another one has not."""
    gloo = {"profiling_name": "gloo:all_reduce", "retired": True}
    done = dump([pending(0, **gloo), pending(1, **gloo)])
    table = read_json(done)
    assert table["dur_ns"].tolist() == [0, 0]
    assert set(notes_of(table)) == {"creation-times", "no-completion-times"}
    assert notes_of(table)["no-completion-times"].startswith("2 of 2 entries finished without")
    done["entries"].append(pending(2, profiling_name="gloo:barrier"))
    text = notes_of(read_json(done))["uncompleted"]
    assert "the last completed is all_reduce seq 2 " in text
    assert "the first not completed is barrier seq 3 " in text


def test_an_end_before_the_start_is_clipped_and_counted() -> None:
    """A duration is never negative, and the correction is told."""
    table = read_json(dump([entry(0, time_discovered_completed_ns=T0 + 100)]))
    assert table["dur_ns"].tolist() == [0]
    assert table.counts["clipped"] == 1
    assert notes_of(table)["negative-duration"].startswith("1 entries completed before")


def test_entries_without_time_stay_in_order() -> None:
    """They stand at the start before them (at the first known one, in front), and it is told."""
    bare = {"profiling_name": "nccl:all_reduce", "state": "completed", "collective_seq_id": 9}
    table = read_json(dump([bare, entry(1), bare]))
    assert table["start_ns"].tolist() == [T0 + 1300, T0 + 1300, T0 + 1300]
    assert notes_of(table)["no-times"].startswith("2 of 3 entries have no time")
    assert read_json(dump([bare]))["start_ns"].tolist() == [0]


def test_a_full_ring_buffer_is_told() -> None:
    """Numbers that begin above 0 mean that earlier entries are gone."""
    text = notes_of(read_json(dump([entry(40), entry(41)])))["ring-buffer"]
    assert text.startswith("the first entry is number 40")
    assert "ring-buffer" not in notes_of(read_json(dump([entry(0)])))


def test_entries_that_are_no_objects_are_counted() -> None:
    """Nothing is dropped in silence."""
    table = read_json(dump([entry(0), 7, None]))
    assert table.counts == {"read": 3, "timed": 1, "dropped": 2, "clipped": 0, "recovered": 0}
    assert notes_of(table)["odd-entries"].startswith("2 entries are no objects")


@pytest.mark.parametrize(
    "data",
    [
        b'{"entries": []}',
        b'{"comm_lib_version":"","nccl_comm_state":{},"pg_config":{},"pg_status":{},"version":"2"}',
        pickle.dumps({"version": "2.10", "pg_config": {}, "entries": []}, 2),
    ],
)
def test_an_empty_dump_is_an_empty_table_with_a_note(data: bytes) -> None:
    """Torch's JSON leaves ``entries`` out when there are none; that is no error."""
    assert flight_recorder.sniff(data)
    table = flight_recorder.read(data, "dump")
    assert len(table) == 0
    assert table.details == []
    assert table.meta["tracekit_source"] == "flight_recorder"
    assert notes_of(table) == {"no-entries": "no entries"}


# ---- hostile and damaged files -------------------------------------------------------------


class Canary:
    """Makes a folder when an unpickler does what it is asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    """The error names what was asked for and the way out; the folder is not made."""
    canary = tmp_path / "executed"
    hostile = {"version": "2.10", "pg_config": {}, "entries": [entry(0), Canary(canary)]}
    for protocol in range(6):
        data = pickle.dumps(hostile, protocol)
        assert flight_recorder.sniff(data)
        with pytest.raises(ReadError) as caught:
            flight_recorder.read(data, "dump")
        line = caught.value.line()
        assert line.startswith("dump: the dump asks to import posix.mkdir; plain values only")
        assert "dump as JSON instead" in line
        assert "_dump_nccl_trace_json()" in line
        assert not canary.exists()
    pickle.loads(data)  # noqa: S301  the canary works: an ordinary unpickler makes the folder
    assert canary.exists()


@pytest.mark.parametrize(
    "data",
    [
        b'{"entries":' + b"[" * 100_000,
        b'{"entries":[' + b'{"frames":' * 100_000 + b"0" + b"}" * 100_000 + b"]}",
        b"\x80\x02})" + b"\x85" * 200_000 + b"Ns.",
    ],
)
def test_nesting_bombs_are_read_errors(data: bytes) -> None:
    """Nesting deeper than Python's stack ends in a ReadError of one line."""
    with pytest.raises(ReadError) as caught:
        flight_recorder.read(data, "dump")
    assert caught.value.line().startswith("dump: ")


def test_values_that_unfold_without_end_are_cut_from_the_header() -> None:
    """Twenty lists of ten references each would unfold to 10^20 values; the rest is read."""
    grown: Any = "x"
    for _ in range(20):
        grown = [grown] * 10
    looped: list[Any] = []
    looped.append(looped)
    table = flight_recorder.read(pickle.dumps(dump([entry(0)], a=grown, b=looped), 4), "dump")
    assert len(table) == 1
    assert len(json.dumps(table.meta)) < 4_000_000
    assert "header-cut" in notes_of(table)


def test_one_long_list_named_by_every_entry_is_read_once() -> None:
    """20,000 entries that share a list of 20,000 sizes cost one list, not 400 million sizes."""
    sizes = [[2]] * 20_000
    entries = [entry(i, input_sizes=sizes, input_dtypes=["Float"] * 2) for i in range(20_000)]
    table = flight_recorder.read(pickle.dumps(dump(entries), 4), "dump")
    assert {row["In msg nelems"] for row in table.details} == {40_000}


def test_too_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of rows is limited whatever the file's size."""
    monkeypatch.setattr(flight_recorder, "LIMIT_ENTRIES", 2)
    with pytest.raises(LimitError, match="3 entries"):
        read_json(dump([entry(i) for i in range(3)]))


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_cut_dump_gives_its_whole_entries(form: str) -> None:
    """Cut anywhere inside the entries, every whole entry is there and its number is told."""
    whole = dump([entry(i) for i in range(4)])
    data = written(form, whole)
    reference = flight_recorder.read(data, "dump")
    seen = set()
    for size in range(1, len(data)):
        try:
            table = flight_recorder.read(data[:size], "dump")
        except ReadError:
            assert not seen  # only before the first whole entry
            continue
        num = len(table)
        seen.add(num)
        assert table["start_ns"].tolist() == reference["start_ns"].tolist()[:num]
        assert [row["record_id"] for row in table.details] == list(range(num))
        assert table.counts["recovered"] == num
        expected = f"the dump is cut at byte {size:,}: {num} whole entries were recovered"
        assert notes_of(table)["truncated"] == expected
        if form == "json":
            assert num == data[:size].count(b'"timeout_ms": 600000}')  # each ends so
    assert seen == ({0, 1, 2, 3, 4} if form == "pickle" else {1, 2, 3, 4})


def test_a_cut_text_of_escapes_is_read_in_linear_time() -> None:
    """Two megabytes of escaped quotes, cut after a backslash, do not send the search back."""
    data = json.dumps(dump([entry(0)])).encode()[:-2] + b', {"x": "' + b'\\"' * 1_000_000 + b"\\"
    started_s = time.perf_counter()
    assert flight_recorder.sniff(data)
    assert len(flight_recorder.read(data, "dump")) == 1
    assert time.perf_counter() - started_s < 5  # linear: 0.05; quadratic: hours


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1, 2",
        b"hello",
        b'{"entries": {"a": 1}}',
        b'{"traceEvents": []}',
        b'{"entries": [}]}',
        pickle.dumps({"segments": [], "device_traces": []}),
        pickle.dumps(7),
    ],
)
def test_what_is_no_dump_is_a_read_error(data: bytes) -> None:
    """A file that is something else is refused in one line that names it."""
    with pytest.raises(ReadError) as caught:
        flight_recorder.read(data, "dump")
    assert caught.value.line().startswith("dump: ")


@given(
    st.dictionaries(
        st.sampled_from(sorted(entry(0))),
        st.none()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers() | st.lists(st.integers(), max_size=3), max_size=3),
    )
)
def test_fields_of_any_type_give_one_row(changes: dict[str, Any]) -> None:
    """A field of the wrong type is unknown, never an exception; the row stays."""
    table = flight_recorder.read(pickle.dumps(dump([entry(0, **changes)]), 4), "dump")
    assert len(table) == 1
    assert table["dur_ns"][0] >= 0
    assert table["start_ns"][0] >= 0


def test_text_from_a_dump_stays_one_line_in_notes() -> None:
    """Control characters of a group's name do not reach the terminal."""
    name = "\x1b[31mred\nline"
    table = read_json(dump([pending(0, process_group=[name, name], state="a\nb")]))
    assert notes_of(table)["uncompleted"].isprintable()
    assert table.details[0]["Process Group Name"] == name


# ---- recognition ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (json.dumps(dump([])).encode(), True),
        (b'\xef\xbb\xbf {"entries": [{"frames": [', True),
        (b'{"comm_lib_version":"2.27","entries":[{"collective_seq_id":1,"inp', True),
        (b'{"schemaVersion": 1, "distributedInfo": {"pg_config": [], "entries": []}', False),
        (b'{"traceEvents": [{"name": "entries", "pg_config": 1}], "entries": []}', False),
        (b'{"name": "\\"entries\\": [", "entries2": []}', False),
        (b'{"values": ["entries", "pg_config"]}', False),
        (b'[{"ph": "X", "entries": []}]', False),
        (b"\x1f\x8b\x08", False),
        (b"PK\x03\x04", False),
        (b"\x80\x01", False),
        (b"", False),
        *[(pickle.dumps({"entries": []}, protocol), True) for protocol in range(6)],
        *[(pickle.dumps([{"pg_id": 0}], protocol), True) for protocol in range(6)],
    ],
)
def test_recognition_goes_by_outer_keys(head: bytes, known: bool) -> None:
    """A dump is told from a Kineto trace that holds the same words further inside."""
    assert flight_recorder.sniff(head) is known


# ---- real dumps ----------------------------------------------------------------------------


def corpus() -> Path:
    """The folder with recorded files, or a skip that says why."""
    folder = os.environ.get("TRACEKIT_CORPUS")
    if not folder:
        pytest.skip("the corpus is absent: TRACEKIT_CORPUS is not set")
    return Path(folder)


def test_real_gloo_dumps_agree_across_ranks() -> None:
    """Four ranks of one run: same operations by (group, number), ranks 2 and 3 share a group."""
    folder = corpus() / "traces/generated/gloo_ddp_4_slow2"
    tables = []
    for rank in range(4):
        path = folder / f"fr_gloo_rank{rank}.json"
        tables.append(flight_recorder.read(path.read_bytes(), "dump"))
    keys = ("Process Group Description", "Seq", "Collective name", "dtype", "In msg nelems")
    rows = [[tuple(row[key] for key in keys) for row in table.details] for table in tables]
    assert [len(table) for table in tables] == [33, 33, 33, 33]
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    default = [[row for row in rank if row[0] == "default_pg"] for rank in rows]
    assert len(default[0]) == 27
    assert default[0] == default[1] == default[2] == default[3]
    assert tables[2].lanes == [("0", "collectives"), ("4", "collectives")]
    for table in tables:
        assert set(notes_of(table)) == {"creation-times", "no-completion-times"}


def test_the_hostile_case_is_refused_and_its_neighbour_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two recorded pickles one asks for an import, the other has two entries."""
    folder = corpus() / "cases/59-pickled-flight-recorder-dump"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReadError, match=r"asks to import posix\.mkdir"):
        flight_recorder.read((folder / "nccl_trace_rank_0").read_bytes(), "dump")
    assert list(tmp_path.iterdir()) == []
    table = flight_recorder.read((folder / "nccl_trace_rank_1").read_bytes(), "dump")
    assert len(table) == 2
    assert [row["state"] for row in table.details] == ["completed", "scheduled"]
