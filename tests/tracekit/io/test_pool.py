"""Reading in worker processes: how many, what they answer, and what happens when one dies."""

from __future__ import annotations

import gzip
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builder import Kineto
from tracekit.core.errors import LimitError, NotATraceError, ReadError
from tracekit.io import pool
from tracekit.io.pool import num_workers, read_all
from tracekit.io.sources import Limits, Source
from tracekit.io.store import Store

GIB = 1 << 30


def traces(folder: Path, num: int) -> list[Source]:
    """Files of ranks 0 to num - 1, each with as many kernels as its rank and one more."""
    found = []
    for rank in range(num):
        file = Kineto(rank)
        for at in range(rank + 1):
            file.kernel(at, at + 1)
        found.append(Source(file.write(folder / f"rank{rank}.json")))
    return found


def keyed(sources: list[Source]) -> list[tuple[Source, str]]:
    """Sources with a name each for the store."""
    return [(source, f"key{at}") for at, source in enumerate(sources)]


# -- how many ---------------------------------------------------------------------------------


def workers_for(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], *, cores: int = 64, free: int = 64 * GIB
) -> int:
    """Workers for plain files of these sizes on a machine of this kind."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(pool, "_free_memory", lambda: free)
    monkeypatch.setattr(Source, "packed_bytes", lambda s: int(s.path.name))
    monkeypatch.setattr(Source, "is_packed", lambda _: False)
    return num_workers([Source(Path(str(size))) for size in sizes])


@pytest.mark.parametrize(
    ("sizes", "machine", "workers"),
    [
        ([100 << 20], {}, 1),  # one file
        ([1 << 20] * 4, {}, 1),  # not worth a process
        ([100 << 20] * 4, {}, 4),
        ([100 << 20] * 100, {}, pool.MAX_WORKERS),
        ([100 << 20] * 100, {"cores": 2}, 2),
        ([5 * GIB] * 8, {"free": 4 * GIB}, 1),  # eight large files in little memory
        ([5 * GIB] * 8, {"free": 16 * GIB}, 3),  # a worker needs 160 MiB and 0.45 bytes a byte
        ([100 << 20] * 8, {"free": 0}, 1),
    ],
)
def test_the_number_of_workers_follows_the_machine(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], machine: dict[str, int], workers: int
) -> None:
    """As many workers as files, cores and free memory allow, and one where more do not pay."""
    assert workers_for(monkeypatch, sizes, **machine) == workers


# -- reading ----------------------------------------------------------------------------------


def test_files_end_up_in_the_store(tmp_path: Path) -> None:
    """Every file that can be read is in the store afterwards, and progress names each once."""
    sources = traces(tmp_path / "run", 5)
    told: list[str] = []
    assert read_all(keyed(sources), Store(), Limits(), 2, told.append) == {}
    assert told == [s.label for s in sources]
    for rank in range(5):
        table = Store().get(f"key{rank}")
        assert table is not None
        assert table["dur_ns"].tolist() == [1_000] * (rank + 1)


def test_errors_keep_their_kind_and_words(tmp_path: Path) -> None:
    """A file that cannot be read is that error, as if it had been read here; the others go on."""
    sources = traces(tmp_path, 3)
    sources[0].path.write_bytes(gzip.compress(sources[0].path.read_bytes())[:-20])
    sources[1].path.write_bytes(b'{"foo": 1}')
    big = Source(tmp_path / "big.json")
    big.path.write_bytes(b"[" + b" " * 100_000 + b"]")
    errors = read_all(keyed([*sources, big]), Store(), Limits(unpacked_bytes=50_000), 2)
    assert {s.name: (type(e), e.what.split(" (")[0]) for s, e in errors.items()} == {
        "rank0.json": (ReadError, "this gzip file ends early"),
        "rank1.json": (NotATraceError, "JSON, but no trace: it has no traceEvents"),
        "big.json": (LimitError, "unpacks to more than the limit of 4.65661e-05 GiB"),
    }
    assert Store().get("key2") is not None


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """A file whose name is no UTF-8 is read in a worker like others."""
    (source,) = traces(tmp_path, 1)
    odd = Source(source.path.rename(tmp_path / os.fsdecode(b"rank\xff.json")))
    assert read_all(keyed([odd]), Store(), Limits(), 1) == {}
    assert Store().get("key0") is not None


def test_a_store_that_cannot_be_written_is_no_error(tmp_path: Path, store_folder: Path) -> None:
    """A file that could be read but not stored is left to the caller."""
    store_folder.write_bytes(b"no folder")
    assert read_all(keyed(traces(tmp_path, 2)), Store(), Limits(), 2) == {}


# -- workers that fail ------------------------------------------------------------------------

#: a worker that dies over one file and sleeps over another
ODD_WORKER = """
import os, time
from tracekit.io import pool
read = pool.read_source
def odd(source, limits):
    if source.name == "deadly.json":
        os._exit(9)
    if source.name == "slow.json":
        time.sleep(40)
    if source.name == "vast.json":
        raise MemoryError
    return read(source, limits)
pool.read_source = odd
pool.serve()
"""


@pytest.fixture
def odd_workers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Let workers fail over certain files; the list fills with those that were started."""
    started: list[subprocess.Popen[bytes]] = []

    class Odd(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **more: Any) -> None:
            super().__init__([*command[:-1], ODD_WORKER], **more)
            started.append(self)

    monkeypatch.setattr(pool.subprocess, "Popen", Odd)
    return started


def test_a_worker_that_dies_costs_one_file(
    tmp_path: Path, odd_workers: list[subprocess.Popen[bytes]]
) -> None:
    """When a worker dies its file is reported, and another worker reads the rest."""
    sources = traces(tmp_path, 4)
    deadly = Source(sources[1].path.rename(tmp_path / "deadly.json"))
    errors = read_all(keyed([sources[0], deadly, *sources[2:]]), Store(), Limits(), 1)
    assert list(errors) == [deadly]
    assert errors[deadly].what == "the reading process ended with status 9 (out of memory?)"
    assert errors[deadly].where == deadly.label
    assert [Store().has(f"key{at}") for at in range(4)] == [True, False, True, True]
    assert len(odd_workers) == 2
    assert all(w.poll() is not None for w in odd_workers)


def test_too_little_memory_is_told(
    tmp_path: Path, odd_workers: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    """A worker without memory for a file says so, prints nothing and reads on."""
    sources = traces(tmp_path, 2)
    vast = Source(sources[0].path.rename(tmp_path / "vast.json"))
    errors = read_all(keyed([vast, sources[1]]), Store(), Limits(), 1)
    assert errors[vast].what == "too little memory to read it"
    assert Store().has("key1")
    assert len(odd_workers) == 1
    assert capfd.readouterr() == ("", "")


class StopHere(Exception):  # noqa: N818 - it is no error
    """Stands for Ctrl-C."""


def test_an_interrupt_stops_at_once(
    tmp_path: Path, odd_workers: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    """Interrupted, reading ends without waiting for files under way, and no worker is left."""
    sources = traces(tmp_path, 12)
    slow = Source(sources[1].path.rename(tmp_path / "slow.json"))

    def interrupt(_label: str) -> None:
        raise StopHere

    begun = time.monotonic()
    with pytest.raises(StopHere):
        read_all(keyed([sources[0], slow, *sources[2:]]), Store(), Limits(), 2, interrupt)
    assert time.monotonic() - begun < 30
    assert all(w.poll() is not None for w in odd_workers)
    assert len(odd_workers) <= 2
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_while_jobs_are_given_out(
    tmp_path: Path,
    odd_workers: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupted before all jobs are given out, reading ends at once as well."""
    slow = [
        Source(source.path.rename(source.path.with_name("slow.json")))
        for at in range(3)
        for source in traces(tmp_path / str(at), 1)
    ]
    given = pool.ThreadPoolExecutor.submit

    def submit(self: Any, *job: Any) -> Any:
        if job[2] is slow[2]:
            raise StopHere
        return given(self, *job)

    monkeypatch.setattr(pool.ThreadPoolExecutor, "submit", submit)
    begun = time.monotonic()
    with pytest.raises(StopHere):
        read_all(keyed(slow), Store(), Limits(), 2)
    assert time.monotonic() - begun < 30
    assert all(w.poll() is not None for w in odd_workers)


def test_ctrl_c_is_not_for_workers() -> None:
    """A worker is in a session of its own, so that the terminal's Ctrl-C reaches only us."""
    worker = pool._start()
    try:
        assert os.getsid(worker.pid) != os.getsid(0)
    finally:
        worker.communicate()
    assert worker.returncode == 0
