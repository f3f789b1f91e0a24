"""Opening a run: whose trace is whose, several devices or captures, and files that are no use."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.builder import Kineto, collective
from tracekit.core.errors import Note, NoTraceError, UsageError
from tracekit.io.sources import Limits, Source
from tracekit.model import files as runs
from tracekit.model.files import OpenOptions
from tracekit.model.run import TraceSet, open_run
from tracekit.model.whose import rank_in_name
from tracekit.report.document import document


def kernels(rank: int | None, num: int = 1, begin: int = 10, **header: Any) -> Kineto:
    """A file with a number of kernels, by which it can be told from others."""
    file = Kineto(rank, **header)
    for at in range(num):
        file.kernel(begin + 10 * at, begin + 10 * at + 5)
    return file


def write(folder: Path, **files: Kineto) -> str:
    """Write files (``name=file``, ``__`` standing for a dot) into a folder; its path as text."""
    for name, file in files.items():
        file.write(folder / f"{name.replace('__', '.')}.json")
    return str(folder)


def sizes(found: TraceSet) -> dict[int, int]:
    """How many device rows each rank has."""
    return {rank: int(found.trace(rank).is_device_row.sum()) for rank in found.ranks}


def codes(notes: list[Note]) -> list[str]:
    """The short names of notes."""
    return [n.code for n in notes]


# -- whose is it ------------------------------------------------------------------------------


def test_the_header_says_the_rank(tmp_path: Path) -> None:
    """``distributedInfo`` wins over the file's name, and no guess is told."""
    found = open_run([write(tmp_path, rank7=kernels(0, 1), rank8=kernels(1, 2))])
    assert sizes(found) == {0: 1, 1: 2}
    assert found.notes == []
    assert found.trace(1).rank_source == "distributedInfo"


def test_our_own_header_says_the_rank(tmp_path: Path) -> None:
    """Without ``distributedInfo`` the ``tracekit`` header says the rank."""
    found = open_run([write(tmp_path, a=kernels(None, tracekit={"rank": 4}))])
    assert found.ranks == [4]
    assert found.trace(4).rank_source == "the tracekit header"


@pytest.mark.parametrize(
    ("rank", "ranks"),
    [
        ("3", [3]),
        (3, [3]),
        (3.0, [0]),
        (-1, [0]),
        (True, [0]),
        (None, [0]),
        ([3], [0]),
        (2**40, [0]),
    ],
)
def test_odd_ranks_in_the_header(tmp_path: Path, rank: Any, ranks: list[int]) -> None:
    """A rank that is no whole number below 2**31 counts as not written."""
    file = kernels(None, distributedInfo={"rank": rank})
    assert open_run([write(tmp_path, trace=file)]).ranks == ranks


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("trace-rank-10.json", 10), ("trace_rank_0.json.gz", 0), ("rank00003.pt.trace.json.gz", 3),
        ("worker5.1711964646000000000.pt.trace.json", 5), ("gpu7.json", 7), ("r12.json", 12),
        ("rank3_of_rank8.json", 8), ("run/rank3/hostA_1.1711964646000000000.pt.trace.json", 3),
        ("rank1/node_rank2.json", 2), ("trace.json", None), ("hour12.json", None),
        ("gpu_node_1_4242.1700000000000000001.pt.trace.json", None),
        ("nccl_trace_rank_container-node02_5", 5), ("fr_gloo_40", 40),
    ],
)  # fmt: skip
def test_a_rank_in_a_name(name: str, rank: int | None) -> None:
    """The last rank-like number of a name counts, else that of the folders; host names do not."""
    assert rank_in_name(Source(Path(name))) == rank


def test_ranks_from_names_are_told(tmp_path: Path) -> None:
    """When names give the ranks a note says so, and rank 10 comes after rank 2."""
    files = {f"trace_rank_{r}": kernels(None, r + 1) for r in (0, 1, 2, 10)}
    found = open_run([write(tmp_path, **files)])
    assert sizes(found) == {0: 1, 1: 2, 2: 3, 10: 11}
    assert codes(found.notes) == ["rank-guessed"]
    assert "4 of 4 files do not say their rank; taken from the file name" in found.notes[0].text


def test_numbers_that_tell_files_apart_are_ranks(tmp_path: Path) -> None:
    """Where no name speaks of ranks, the last numbers of all names count if they differ."""
    found = open_run([write(tmp_path, kineto__0=kernels(None, 1), kineto__3=kernels(None, 2))])
    assert sizes(found) == {0: 1, 3: 2}


def test_without_any_number_the_order_counts(tmp_path: Path) -> None:
    """Files without rank or number are numbered in order, past the ranks that are taken."""
    found = open_run([write(tmp_path, a=kernels(None, 1), b=kernels(0, 2), c=kernels(None, 3))])
    assert sizes(found) == {0: 2, 1: 1, 2: 3}
    assert "2 of 3 files" in found.notes[0].text
    assert "taken from the order of the files" in found.notes[0].text


def test_hosts_and_processes_from_names(tmp_path: Path) -> None:
    """Host and process are read from the profiler's file name, underscores in the host included."""
    file = kernels(0).write(tmp_path / "gpu_node_1_4242.1700000000000000001.pt.trace.json")
    trace = open_run([str(file)]).trace(0)
    assert (trace.host, trace.pid) == ("gpu_node_1", 4242)
    plain = open_run([str(kernels(0).op(1, 2).write(tmp_path / "t.json"))]).trace(0)
    assert (plain.host, plain.pid) == (None, 4242)


# -- several devices in one file ----------------------------------------------------------------


def two_devices(**header: Any) -> Kineto:
    """One process that drives two devices: two kernels on the first, one on the second."""
    file = Kineto(None, **header).step(1, 0, 50)
    file.kernel(10, 20, device=0, launched=5).kernel(20, 30, device=0, launched=6)
    return file.kernel(12, 40, device=1, launched=7)


def test_each_device_is_a_rank(tmp_path: Path) -> None:
    """A file with work on several devices is several ranks, and says so."""
    found = open_run([str(two_devices().write(tmp_path / "t.json"))])
    assert sizes(found) == {0: 2, 1: 1}
    assert "several-devices" in codes(found.notes)
    rows = document(found)["ranks"]
    assert [(r["compute_us"], r["window_us"], r["events"]["unlinked"]) for r in rows] == [
        (20.0, 20.0, 0), (28.0, 28.0, 0),
    ]  # fmt: skip


def test_devices_are_numbered_by_the_job_s_list(tmp_path: Path) -> None:
    """Where the header lists as many ranks as there are devices, they are these, in order."""
    info = {"pg_config": [{"pg_name": "0", "ranks": [4, 6]}]}
    found = open_run([str(two_devices(distributedInfo=info).write(tmp_path / "t.json"))])
    assert sizes(found) == {4: 2, 6: 1}


def test_events_of_no_rank_are_told(tmp_path: Path) -> None:
    """In a file of several devices, copies of a device without kernels are left out and told."""
    file = two_devices().copy(50, 60, device=2).copy(60, 70, device=2).copy(70, 80, device=1)
    found = open_run([str(file.write(tmp_path / "t.json"))])
    assert sizes(found) == {0: 2, 1: 2}
    (note,) = (n for n in found.notes if n.code == "stray-device-events")
    assert note.text.startswith("2 events")


def test_a_list_that_names_a_rank_twice_numbers_nothing(tmp_path: Path) -> None:
    """Devices are numbered by order where the header's list cannot be theirs."""
    info = {"pg_config": [{"pg_name": "0", "ranks": [4, 4]}]}
    found = open_run([str(two_devices(distributedInfo=info).write(tmp_path / "t.json"))])
    assert found.ranks == [0, 1]


def test_copies_alone_make_no_second_rank(tmp_path: Path) -> None:
    """A copy to another device is work of the one that has kernels."""
    file = Kineto(0).kernel(10, 20, device=0).copy(20, 30, device=1)
    found = open_run([str(file.write(tmp_path / "t.json"))])
    assert found.ranks == [0]


# -- several files of one rank ------------------------------------------------------------------


def captures(folder: Path) -> str:
    """Two ranks profiled twice, an hour apart; the file names do not tell the order."""
    for rank in (0, 1):
        kernels(rank, 1, begin=3_600_000_000).write(folder / f"b{rank}.json")
        kernels(rank, 2).write(folder / f"c{rank}.json")
    return str(folder)


def test_two_files_of_one_rank_stop(tmp_path: Path) -> None:
    """The same rank twice is refused with both names and the captures in order of time."""
    with pytest.raises(UsageError, match="rank 0 is in") as caught:
        open_run([captures(tmp_path)])
    text = str(caught.value)
    assert all(f"{name}0.json" in text for name in "bc")
    assert "--capture N" in text
    assert text.index("1: ") < text.index("2: ")
    assert "\n" not in text


def test_a_capture_is_picked_by_time(tmp_path: Path) -> None:
    """Captures are counted from 1 by their time, the same on every rank."""
    path = captures(tmp_path)
    assert sizes(open_run([path], options=OpenOptions(capture=1))) == {0: 2, 1: 2}
    assert sizes(open_run([path], options=OpenOptions(capture=2))) == {0: 1, 1: 1}
    for wrong in (0, 3):
        with pytest.raises(UsageError, match=f"no capture {wrong}"):
            open_run([path], options=OpenOptions(capture=wrong))


def test_chosen_ranks(tmp_path: Path) -> None:
    """Only the chosen ranks are there; one that is absent is refused with those that are."""
    path = write(tmp_path, **{f"rank{r}": kernels(r, r + 1) for r in range(3)})
    assert sizes(open_run([path], options=OpenOptions(ranks=frozenset((0, 2))))) == {0: 1, 2: 3}
    with pytest.raises(UsageError, match="no rank 5 in this run; its ranks are 0, 1, 2"):
        open_run([path], options=OpenOptions(ranks=frozenset((0, 5))))
    with pytest.raises(UsageError, match="no rank 5"):
        open_run([path]).trace(5)


# -- files that are no use ----------------------------------------------------------------------


def test_a_damaged_file_does_not_hide_the_others(tmp_path: Path) -> None:
    """What cannot be read is an error note of its own; the other ranks are opened."""
    path = write(tmp_path, rank0=kernels(0), rank1=kernels(1, 2))
    (tmp_path / "rank2.json").write_bytes(b'{"traceEvents": [')
    (tmp_path / "notes.json").write_bytes(b'{"foo": 1}')
    found = open_run([path])
    assert sizes(found) == {0: 1, 1: 2}
    notes = {n.code: (n.severity, Path(n.file).name) for n in found.notes}
    assert notes == {"unreadable": ("error", "rank2.json"), "not-a-trace": ("info", "notes.json")}


def test_nothing_readable_names_the_worst(tmp_path: Path) -> None:
    """Without any readable trace the error names a damaged file, and how many more there are."""
    (tmp_path / "a.json").write_bytes(b'{"foo": 1}')
    (tmp_path / "b.json").write_bytes(b'{"traceEvents": [')
    with pytest.raises(NoTraceError, match=r"b\.json: no events .*\(and 1 more files") as caught:
        open_run([str(tmp_path)])
    assert "\n" not in str(caught.value)


def test_a_single_file_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    """The one file given is refused with what it seems to be."""
    (tmp_path / "a.json").write_bytes(b'{"schema": "1", "nodes": []}')
    with pytest.raises(NoTraceError, match="execution trace"):
        open_run([str(tmp_path / "a.json")])


def test_dumps_beside_traces_are_left_out(tmp_path: Path) -> None:
    """Flight-recorder dumps that lie beside traces are not mixed in, and that is told."""
    path = write(tmp_path, rank0=kernels(0))
    entry = {
        "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce", "time_created_ns": 1_760_000_000_000_000_000,
        "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
        "output_dtypes": ["Float"], "state": "completed", "is_p2p": False, "frames": [],
    }  # fmt: skip
    dump = {"version": "2.5", "entries": [entry], "pg_config": {}, "pg_status": {}}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump))
    found = open_run([path])
    assert sizes(found) == {0: 1}
    assert "flight-recorder-left-out" in codes(found.notes)


def test_a_zip_is_a_run(tmp_path: Path) -> None:
    """The traces inside an archive are ranks like files of a folder."""
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for rank in (0, 1):
            archive.writestr(f"traces/rank{rank}.json", kernels(rank, rank + 1).text())
    found = open_run([str(path)])
    assert sizes(found) == {0: 1, 1: 2}
    assert found.trace(1).file == f"{path}!traces/rank1.json"


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """A file whose name is no UTF-8 is opened, stored and opened again."""
    path = tmp_path / os.fsdecode(b"rank\xff3.json")
    path.write_bytes(kernels(3).text())
    for _ in range(2):
        found = open_run([str(path)])
        assert sizes(found) == {3: 1}
        assert codes(found.notes) == []


# -- the store --------------------------------------------------------------------------------


def read_nothing(*_args: Any, **_kwargs: Any) -> Any:
    """Stands in for reading where nothing may be read."""
    raise AssertionError("a file was read again")


def test_the_second_time_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened again, a run comes from the store, with the same document."""
    path = write(tmp_path / "run", rank0=kernels(0), rank1=kernels(1, 2))
    first = document(open_run([path]))
    monkeypatch.setattr(runs, "read_source", read_nothing)
    assert document(open_run([path])) == first


def test_a_moved_run_is_told_by_its_new_place(tmp_path: Path) -> None:
    """Notes of a stored file name the file where it is now."""
    for folder in ("old", "new"):
        file = tmp_path / folder / "rank0.json"
        text = kernels(0, 2).text()
        file.parent.mkdir()
        file.write_bytes(text[: text.rindex(b"}", 0, -4)] + b"}")
        (note,) = [n for n in open_run([str(file)]).notes if n.code == "truncated"]
        assert note.file == str(file)


def test_without_the_store_nothing_is_kept(tmp_path: Path, store_folder: Path) -> None:
    """Asked to keep nothing, opening leaves no entry anywhere."""
    path = write(tmp_path / "run", rank0=kernels(0), rank1=kernels(1))
    found = open_run([path], options=OpenOptions(store=False))
    assert sizes(found) == {0: 1, 1: 1}
    assert not store_folder.exists()


def test_a_store_that_cannot_be_written_is_told_once(tmp_path: Path, store_folder: Path) -> None:
    """Where the store is no folder, the run is opened without, and one note says so."""
    store_folder.write_bytes(b"")
    found = open_run([write(tmp_path / "run", rank0=kernels(0), rank1=kernels(1))])
    assert sizes(found) == {0: 1, 1: 1}
    assert codes(found.notes) == ["store-unavailable"]


def test_several_workers_give_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in several processes, a run is the same, and progress reaches the end."""
    path = write(tmp_path / "run", **{f"rank{r}": kernels(r, r + 1) for r in range(4)})
    (tmp_path / "run" / "bad.json").write_bytes(b'{"traceEvents": [')
    one = document(open_run([path], options=OpenOptions(store=False)))
    told: list[float] = []
    monkeypatch.setattr(runs, "num_workers", lambda _: 2)
    many = open_run([path], options=OpenOptions(progress=lambda _, done: told.append(done)))
    assert document(many) == one
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_limits_reach_every_file(tmp_path: Path) -> None:
    """A file beyond the limit is an unreadable file; the others are opened."""
    path = write(tmp_path, rank0=kernels(0, 1), rank1=kernels(1, 200))
    options = OpenOptions(limits=Limits(unpacked_bytes=5_000), store=False)
    found = open_run([path], options=options)
    assert found.ranks == [0]
    (note,) = found.notes
    assert "limit" in note.text


# -- the job ----------------------------------------------------------------------------------


def test_absurd_ranks_take_no_time(tmp_path: Path) -> None:
    """Ranks, world sizes and step numbers beyond reason end in a document at once."""
    far = Kineto(2**31 - 1, 10**18).kernel(10, 20, launched=5).step(0, 0, 9).step(10**17, 30, 40)
    found = open_run([write(tmp_path, a=far, b=kernels(0))])
    result = document(found)
    assert [r["rank"] for r in result["ranks"]] == [0, 2**31 - 1]
    assert len(result["missing_steps"]) == 10_000
    assert any("ranks are missing (1-2147483646, 21474" in n["text"] for n in result["notes"])


def test_the_size_of_the_job(tmp_path: Path) -> None:
    """The largest world size any file states is the job's; none states none."""
    files = {"rank0": Kineto(0, 4).kernel(1, 2), "rank1": Kineto(1).kernel(1, 2)}
    assert open_run([write(tmp_path / "a", **files)]).world_size == 4
    assert open_run([write(tmp_path / "b", rank0=kernels(0))]).world_size is None


def test_the_origin_is_the_earliest_start_on_the_corrected_clock(tmp_path: Path) -> None:
    """Times of a run count from the earliest start of all ranks, clocks corrected."""
    files = {}
    for rank, ahead in ((0, 0), (1, 5_000)):
        file = Kineto(rank, 2).kernel(100 + ahead - 60 * rank, 190 + ahead - 60 * rank)
        for seq in (1, 2, 3):
            at = 200 * seq + ahead
            file.comm(at, at + 50, **collective(elems=4, seq=seq))
        files[f"rank{rank}"] = file
    found = open_run([write(tmp_path, **files)])
    assert found.matching.offset_ns(1) == 5_000_000
    assert found.origin_ns == 40_000


def test_a_word_in_the_folder_is_no_rank_of_several_files(tmp_path: Path) -> None:
    """Files of one folder called lora_rank16 have the ranks of their own names."""
    folder = tmp_path / "lora_rank16"
    folder.mkdir()
    for number in (0, 1):
        file = Kineto(None).kernel(0, 5 + number)
        file.write(folder / f"trace_{number}.json")
    assert open_run([str(folder)], options=OpenOptions(store=False)).ranks == [0, 1]
