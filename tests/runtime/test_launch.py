"""Whatever ends a job, one clear line says so and no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from runtime import folder
from runtime.config import TrainSettings
from runtime.settings import ConfigError

PATIENCE_S = 180.0
#: long enough to be still at it when a test interferes
ENDLESS = ["--steps", "100000", "--record", "off"]
TINY = ["--model", "mlp-tiny", "--steps", "2", "--record", "off"]
VERB = "import sys; from runtime.commands import train; sys.exit(train(sys.argv[1:]))"


def started(*words: str, verb: bool = True, **environment: str) -> subprocess.Popen[str]:
    """``tracekit train``, or one bare rank, as a process whose errors can be read."""
    main = ["-c", VERB] if verb else ["-m", "runtime.train"]
    known = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    root = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, *main, *words],
        env={**known, "PYTHONPATH": root, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Exit status and the lines of stderr that are no progress and no good end."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    lines = [x for x in errors.splitlines() if not x.startswith("step ")]
    return process.returncode, [x for x in lines if " steps are done; " not in x]


def ranks_of(out: Path) -> list[int]:
    """Processes that train into a folder, by their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"runtime.train" in words and str(out).encode() in words:
            found.append(int(entry.name))
    return sorted(found)


def wait_for(what: str, true: object) -> None:
    """Wait until a function gives something true."""
    assert callable(true)
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S} s"
        time.sleep(0.05)


@contextmanager
def running(out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A job of two ranks that has done its first steps."""
    process = started("-n", "2", *ENDLESS, "--out", str(out), *words)
    try:
        wait_for("first step", lambda: (out / "metrics.jsonl").exists() or process.poll())
        yield process
    finally:
        process.kill()
        process.communicate()
        wait_for("end of all ranks", lambda: not ranks_of(out))


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


@linux
def test_the_death_of_one_rank_ends_the_job(tmp_path: Path) -> None:
    """A killed rank is named in one line, and the other one is ended."""
    out = tmp_path / "RUN"
    with running(out) as process:
        victim = max(ranks_of(out))
        number = dict(
            word.split(b"=", 1)
            for word in Path(f"/proc/{victim}/environ").read_bytes().split(b"\0")
            if b"=" in word
        )[b"RANK"].decode()
        os.kill(victim, signal.SIGKILL)
        status, lines = ended(process)
        assert status == 1
        assert len(lines) == 1
        assert lines[0].startswith(f"tracekit: rank {number} failed: killed by SIGKILL")
        assert ranks_of(out) == []


@linux
def test_ctrl_c_ends_all_ranks(tmp_path: Path) -> None:
    """An interrupt ends the launcher and every rank."""
    out = tmp_path / "RUN"
    with running(out) as process:
        assert len(ranks_of(out)) == 2
        process.send_signal(signal.SIGINT)
        status, lines = ended(process)
        assert status == 130
        assert lines == ["tracekit: interrupted"]
        assert ranks_of(out) == []


@linux
def test_ranks_notice_the_launchers_death(tmp_path: Path) -> None:
    """When the launcher is killed, which it cannot handle, the ranks end themselves."""
    out = tmp_path / "RUN"
    with running(out) as process:
        process.kill()
        wait_for("end of all ranks", lambda: not ranks_of(out))


@linux
def test_sigterm_ends_all_ranks(tmp_path: Path) -> None:
    """A batch system's SIGTERM ends the launcher and every rank."""
    out = tmp_path / "RUN"
    with running(out) as process:
        process.terminate()
        status, lines = ended(process)
        assert status == 128 + signal.SIGTERM
        assert lines == ["tracekit: ended by SIGTERM"]
        assert ranks_of(out) == []


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    """A port that somebody listens on is refused before a rank starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        status, lines = ended(
            started("-n", "2", *TINY, "--port", port, "--out", str(tmp_path / "RUN"))
        )
    assert status == 2
    assert lines == [f"tracekit: port {port} is in use; leave --port out for any free one"]


def test_a_port_in_use_is_said_without_the_launcher(tmp_path: Path) -> None:
    """So is the one in torchrun's variables, by rank 0."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        process = started(
            *TINY,
            *("--out", str(tmp_path / "RUN")),
            verb=False,
            RANK="0",
            LOCAL_RANK="0",
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        status, lines = ended(process)
    assert status == 2
    assert lines == [f"tracekit: 127.0.0.1:{port}: port in use; choose another --master-port"]


def test_missing_variables_are_named(tmp_path: Path) -> None:
    """A rank without torchrun's variables says which and how to start it."""
    out = ("--out", str(tmp_path / "RUN"))
    status, lines = ended(started("-n", "4", *TINY, *out, verb=False))
    assert status == 2
    assert len(lines) == 1
    assert lines[0].startswith("tracekit: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT")
    assert "tracekit train -n 4" in lines[0]
    assert "torchrun --nproc-per-node 4 -m runtime.train" in lines[0]
    status, lines = ended(started(*TINY, *out, verb=False, RANK="0", WORLD_SIZE="2"))
    assert status == 2
    assert lines[0].startswith("tracekit: LOCAL_RANK, MASTER_ADDR, MASTER_PORT not set")


def test_a_wrong_setting_is_one_line(tmp_path: Path) -> None:
    """What only a rank can find wrong comes back as one line without a rank's name."""
    out = ("--out", str(tmp_path / "RUN"))
    status, lines = ended(started("-n", "2", *TINY, "--dim", "hiden=3", *out))
    assert (status, lines) == (
        2,
        ["tracekit: unknown setting 'hiden' in [model]: did you mean 'hidden'?"],
    )


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """An output folder under a file is refused."""
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "RUN")
    status, lines = ended(started("-n", "2", *TINY, "--out", out))
    assert status == 2
    assert lines == [f"tracekit: {out}: Not a directory; choose an --out that can be written to"]


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    """--out that names a file, a place in one, or too long a name is one line."""
    (tmp_path / "file").touch()
    for out, word in (
        (tmp_path / "file", "is a file; choose a folder"),
        (tmp_path / "file" / "run", "Not a directory; choose an --out that can be written to"),
        (tmp_path / ("x" * 300), "File name too long; choose another"),
    ):
        with pytest.raises(ConfigError, match=word):
            folder.check(TrainSettings(out=str(out)))


def test_a_run_is_not_overwritten_unasked(tmp_path: Path) -> None:
    """A folder that holds a run is refused; with --overwrite it is cleared of that run alone."""
    out = tmp_path / "RUN"
    (out / "traces").mkdir(parents=True)
    for name in ("run.json", "traces/rank00001.pt.trace.json.gz", "letter"):
        (out / name).touch()
    status, lines = ended(started("-n", "1", *TINY, "--out", str(out)))
    assert status == 2
    assert lines[0].endswith("holds a run already; give --resume, --overwrite or another --out")
    settings = TrainSettings(out=str(out), overwrite=True)
    folder.check(settings)
    folder.clear(settings)
    assert [p.name for p in out.iterdir()] == ["letter"]


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of a few KiB."""
    folder.mkdir()
    size = f"size={kib}k"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tracekit-test", str(folder)]
    if os.name != "posix" or os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a small file system needs root and the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def test_a_full_disk_leaves_no_broken_file(tmp_path: Path) -> None:
    """On a full disk the trace is left out with a line for each rank; nothing is half there."""
    with small_disk(tmp_path / "disk", 24) as disk:
        out = disk / "RUN"
        words = ["--model", "mlp-tiny", "--steps", "4", "--profile", "0,0,3"]
        status, lines = ended(started("-n", "2", *words, "--out", str(out)))
        assert status in (0, 1)
        assert lines
        assert len(lines) <= 2
        assert all("No space left on device" in line for line in lines)
        for file in out.rglob("*"):
            assert file.name in ("run.json", "metrics.jsonl", "traces")
        json.loads((out / "run.json").read_text())


def test_a_full_disk_from_the_start_is_said(tmp_path: Path) -> None:
    """An output folder without room is refused."""
    with small_disk(tmp_path / "disk", 4) as disk:
        (disk / "filler").write_bytes(b"x" * 4096)
        status, lines = ended(started("-n", "2", *TINY, "--out", str(disk / "RUN")))
        assert status == 2
        rule = "choose an --out that can be written to"
        assert lines == [f"tracekit: {disk / 'RUN'}: No space left on device; {rule}"]


def test_plain_torchrun_works(tmp_path: Path) -> None:
    """Plain torchrun starts the same module, which leaves the same run folder."""
    out = tmp_path / "RUN"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.run(
        [sys.executable, *torchrun, "-m", "runtime.train", *TINY, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads((out / "run.json").read_text())["world_size"] == 2
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2
