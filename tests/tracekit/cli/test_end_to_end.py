"""Promises of the whole command on small traces whose figures are known by hand."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

SOURCES = str(Path(__file__).parents[3])
GEMM, REDUCE = "void at::native::gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def kernel(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    """A device event on stream 7."""
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
    return place | {"name": name, "ts": ts, "dur": dur, "args": {"stream": 7, "device": 0} | args}


def trace(rank: int, events: list[dict[str, Any]]) -> bytes:
    """A trace file of one of two ranks."""
    head = {"rank": rank, "world_size": 2, "backend": "nccl"}
    return json.dumps({"distributedInfo": head, "traceEvents": events}).encode()


def reduce(ts: float, dur: float) -> dict[str, Any]:
    """An all-reduce of 1 MB over both ranks."""
    args = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 250_000,
        "Out msg nelems": 250_000,
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
    }
    return kernel(REDUCE, ts, dur, **args)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Rank 0 waits 100 us for rank 1; the transfer takes 50 us, on both clocks.

    Rank 0: compute 0..100, all-reduce 100..250. Rank 1: compute 0..200, all-reduce 200..250. A
    second, equal all-reduce at 300..350 lets the clocks be told.
    """
    folder = tmp_path / "run"
    folder.mkdir()
    last = reduce(300, 50)
    first = [kernel(GEMM, 0, 100), reduce(100, 150), last]
    (folder / "rank0.json").write_bytes(trace(0, first))
    second = [kernel(GEMM, 0, 200), reduce(200, 50), last]
    (folder / "rank1.json.gz").write_bytes(gzip.compress(trace(1, second)))
    return folder


def tracekit(
    *argv: str | Path, cache: Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with a cache folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tracekit", *map(str, argv)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "TRACEKIT_CACHE": str(cache), "COLUMNS": "80", "PYTHONPATH": SOURCES},
    )


def test_figures_of_a_waiting_rank(run: Path, tmp_path: Path) -> None:
    """The exposed communication of rank 0 is told apart into waiting and transfer."""
    done = tracekit("analyze", run, "--json", cache=tmp_path / "c")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    keys = ("window_us", "compute_us", "exposed_wait_us", "exposed_transfer_us", "idle_us")
    found = [[row[key] for key in keys] for row in document["ranks"]]
    assert found == [[350, 100, 100, 100, 50], [350, 200, 0, 100, 50]]
    first = document["collectives"][0]
    assert (first["wait_us"], first["transfer_us"], first["last_rank"]) == (
        {"0": 100, "1": 0},
        50,
        1,
    )
    assert first["busbw_GBps"] == pytest.approx(20.0)  # 1 MB in 50 us, factor 2 (2-1)/2


def test_tables_show_the_same_figures(run: Path, tmp_path: Path) -> None:
    """The tables say in ms what the JSON says in us, and fit 80 columns."""
    done = tracekit("analyze", run, cache=tmp_path / "c")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"{run}  (2 files)"
    text = re.sub(" +", " ", done.stdout)
    assert "compute 0.300 ms 42.9 %" in text
    assert "waiting for a late rank 0.100 ms 14.3 %" in text
    assert "moving bytes 0.200 ms 28.6 %" in text
    assert "window 0.700 ms 100.0 %" in text
    assert "\n0 0.350 0.100 28.6% 0.200 57.1% 0.000 0.0% 0.050 14.3%\n" in text
    assert max(map(len, lines)) <= 80
    assert lines == [line.rstrip() for line in lines]


def test_zip_is_named_by_its_own_name(run: Path, tmp_path: Path) -> None:
    """Traces inside a zip archive stand under the archive's name, wherever one calls from."""
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        for file in sorted(run.iterdir()):
            archive.write(file, file.name)
    (tmp_path / "inside").mkdir()
    done = tracekit("analyze", "../both.zip", cache=tmp_path / "c", cwd=tmp_path / "inside")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("../both.zip  (2 files)\n")
    assert "both.zip!" not in done.stdout


def test_cache_counts_analyses_and_lists_traces(run: Path, tmp_path: Path) -> None:
    """Kept answers are counted, the traces they are of are listed."""
    cache = tmp_path / "c"
    tracekit("analyze", run, cache=cache)
    tracekit("analyze", run, "--ranks", "0", cache=cache)
    lines = tracekit("cache", cache=cache).stdout.splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("source"))
    told = " ".join(lines[:head])
    assert re.match(r"2 traces \([^)]+B\), 2 analyses \([^)]+B\) kept in ", told)
    assert len(lines) == head + 4  # a rule and one line for each trace
    assert all(".json" in line for line in lines[head + 2 :])


def test_second_look_is_the_same(run: Path, tmp_path: Path) -> None:
    """What is kept in the cache folder gives the same answer, and can be cleared."""
    cache = tmp_path / "c"
    first = tracekit("analyze", run, "--json", cache=cache)
    assert tracekit("analyze", run, "--json", cache=cache).stdout == first.stdout
    kept = json.loads(tracekit("cache", "--json", cache=cache).stdout)["entries"]
    assert {str(file) for file in run.iterdir()} <= {entry["source"] for entry in kept}
    freed = json.loads(tracekit("cache", "--clear", "--json", cache=cache).stdout)
    assert (freed["entries"], freed["freed_bytes"] > 0) == ([], True)


def test_no_store_keeps_nothing(run: Path, tmp_path: Path) -> None:
    """--no-store leaves the cache folder as it was."""
    cache = tmp_path / "c"
    tracekit("analyze", run, "--no-store", cache=cache)
    assert json.loads(tracekit("cache", "--json", cache=cache).stdout)["entries"] == []


def test_range_and_ranks_narrow_the_figures(run: Path, tmp_path: Path) -> None:
    """--range cuts every figure at its borders; --ranks leaves the others out."""
    argv = ("analyze", run, "--json", "--range", "150:250", "--ranks", "1")
    (row,) = json.loads(tracekit(*argv, cache=tmp_path / "c").stdout)["ranks"]
    assert (row["rank"], row["window_us"], row["compute_us"]) == (1, 100, 50)


def test_threshold_is_a_gate(run: Path, tmp_path: Path) -> None:
    """200 of 700 us are exposed transfer: 28 % fails, 29 % passes."""
    argv = ("analyze", run, "--fail-on")
    failed = tracekit(*argv, "exposed_transfer=28%", cache=tmp_path / "c")
    assert failed.returncode == 1
    assert failed.stderr == "tracekit: exposed_transfer is 28.57 % of the window, above 28 %\n"
    assert tracekit(*argv, "exposed_transfer=29%", cache=tmp_path / "c").returncode == 0


def test_cut_file_leaves_the_others(run: Path, tmp_path: Path) -> None:
    """A gzip file cut at its half is a note of severity error; rank 0 is still shown."""
    file = run / "rank1.json.gz"
    file.write_bytes(file.read_bytes()[:40])
    done = tracekit("analyze", run, "--json", cache=tmp_path / "c")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert [row["rank"] for row in document["ranks"]] == [0]
    errors = [note for note in document["notes"] if note["severity"] == "error"]
    assert [note["file"] for note in errors] == [str(file)]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty", b"", "empty"),
        ("text.json", b"not a trace", "text.json"),
        ("nothing.json", b'{"traceEvents": []}', "no events"),
    ],
)
def test_what_is_no_trace_is_one_line(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    """A file that holds no trace is named, on one line, with status 2."""
    (tmp_path / name).write_bytes(content)
    done = tracekit("analyze", tmp_path / name, "--json", cache=tmp_path / "c")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / name) in done.stderr
    assert words in done.stderr


def test_absent_path_is_one_line(tmp_path: Path) -> None:
    """A path that does not exist is named."""
    done = tracekit("analyze", tmp_path / "gone", cache=tmp_path / "c")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "gone") in done.stderr


def test_same_rank_twice_names_both_and_capture_picks(run: Path, tmp_path: Path) -> None:
    """Two files of one rank stop the analysis; --capture takes one of them."""
    (run / "again.json").write_bytes(trace(0, [kernel(GEMM, 9000, 10)]))
    done = tracekit("analyze", run, cache=tmp_path / "c")
    assert done.returncode == 2
    assert "rank0.json" in done.stderr
    assert "again.json" in done.stderr
    assert "--capture" in done.stderr
    picked = tracekit("analyze", run, "--capture", "2", "--json", cache=tmp_path / "c")
    assert json.loads(picked.stdout)["ranks"][0]["window_us"] == 10


def test_unpacking_limit_is_obeyed(run: Path, tmp_path: Path) -> None:
    """A file that unpacks to more than --limit-gib is left out, and the limit is named."""
    big = trace(1, [kernel(GEMM, 10.0 * n, 5.0) for n in range(20_000)])
    (run / "rank1.json.gz").write_bytes(gzip.compress(big))
    argv = ("analyze", run, "--json", "--limit-gib", "0.0009765625")
    done = tracekit(*argv, cache=tmp_path / "c")
    assert done.returncode == 3
    (note,) = [n for n in json.loads(done.stdout)["notes"] if n["severity"] == "error"]
    assert "limit of 0.000976562 GiB" in note["text"]


def test_json_imports_nothing_slow(run: Path, tmp_path: Path) -> None:
    """Neither pandas nor drawing is imported for JSON; a kept answer does without numpy, too."""
    script = (
        "import sys\nfrom tracekit.cli.app import main\nstatus = main(sys.argv[1:])\n"
        "slow = {'numpy', 'pyarrow', 'pandas', 'plotly', 'torch', 'rich'} & set(sys.modules)\n"
        "sys.stderr.write(' '.join(sorted(slow)))\nsys.exit(status)"
    )
    slow = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script, "analyze", run, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TRACEKIT_CACHE": str(tmp_path / "c")},
        )
        assert done.returncode == 0
        slow.append(done.stderr)
    assert slow == ["numpy pyarrow", ""]


def test_paths_that_the_encoding_lacks_are_printed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is named in the bytes of the file system, whatever stdout's encoding."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    command = [sys.executable, "-m", "tracekit", "export", run, "--to", "csv", "-o", "\xe9"]
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [os.fsdecode(line) for line in done.stdout.splitlines()][:1] == ["\xe9/ranks.csv"]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
@pytest.mark.parametrize("more", [(), ("--no-store",)])
def test_the_output_of_a_command_can_be_given(
    run: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """What a shell's ``<(command)`` brings is a trace like a file, and leaves nothing behind."""
    (tmp_path / "tmp").mkdir()
    text = gzip.decompress((run / "rank1.json.gz").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "analyze", "/dev/stdin", "--json", *more],
        input=text,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(tmp_path / "tmp")},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    document = json.loads(done.stdout)
    assert [(row["rank"], row["window_us"]) for row in document["ranks"]] == [(1, 350)]
    assert {note["file"] for note in document["notes"]} <= {"", "/dev/stdin"}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("text", [b"{}", b'{"totals": {}}', b"[]"])
def test_a_kept_answer_that_was_changed_is_made_anew(
    run: Path, tmp_path: Path, text: bytes
) -> None:
    """Whatever stands in the place of a kept answer, the answer is that of the traces."""
    cache = tmp_path / "c"
    first = tracekit("analyze", run, "--json", cache=cache)
    (kept,) = cache.glob("*.tracekit.json")
    kept.write_bytes(text)
    again = tracekit("analyze", run, "--json", cache=cache)
    assert (again.returncode, again.stdout) == (0, first.stdout)


def test_a_folder_that_cannot_be_searched_is_told(run: Path, tmp_path: Path) -> None:
    """A folder inside that cannot be listed ends with 3, as a file that cannot be read does."""
    (run / "closed").mkdir()
    script = (
        "import os, sys\n"
        "listed = os.scandir\n"
        "def refuse(path):\n"
        "    if os.fspath(path).endswith('closed'):\n"
        "        raise PermissionError(13, 'Permission denied')\n"
        "    return listed(path)\n"
        "os.scandir = refuse\n"
        "from tracekit.cli.app import main\n"
        "sys.exit(main(['analyze', sys.argv[1], '--json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, run],
        capture_output=True,
        check=False,
        env={**os.environ, "TRACEKIT_CACHE": str(tmp_path / "c"), "PYTHONPATH": SOURCES},
    )
    assert (done.returncode, done.stderr) == (3, b"")
    document = json.loads(done.stdout)
    assert [row["rank"] for row in document["ranks"]] == [0, 1]
    errors = [note for note in document["notes"] if note["severity"] == "error"]
    assert [note["file"] for note in errors] == [str(run / "closed")]


def test_check_and_export_work_on_files(run: Path, tmp_path: Path) -> None:
    """The other verbs open the same files: `check` is one JSON, `export` names what it wrote."""
    cache = tmp_path / "c"
    checked = json.loads(tracekit("check", run, "--json", cache=cache).stdout)
    assert checked["schema"] == "tracekit.check/1"
    codes = [note["code"] for note in checked["notes"]]
    assert "no-steps" in codes
    done = tracekit("export", run, "--to", "csv", "-o", tmp_path / "out", cache=cache)
    assert (done.returncode, done.stderr) == (0, "")
    files = [Path(line) for line in done.stdout.splitlines()]
    assert tmp_path / "out" / "ranks.csv" in files
    assert all(file.stat().st_size for file in files)
