"""Signals: whatever ends the command, nothing of it stays behind, and nothing odd is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builder import Kineto
from tracekit.cli.app import main
from tracekit.cli.signals import Ended, ended_by_signals

SOURCES = str(Path(__file__).parents[3])
#: the command on workers that sleep over their files; each leaves its number in the folder "at"
SLOW = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and so does nohup
from tracekit.io import pool
WORKER = '''
import os, time
from pathlib import Path
from tracekit.io import pool
def slow(source, limits):
    Path("at", str(os.getpid())).touch()
    time.sleep(60)
pool.read_source = slow
pool.serve()
'''
class Slow(subprocess.Popen):
    def __init__(self, command, **more):
        super().__init__([*command[:-1], WORKER], **more)
pool.subprocess.Popen = Slow
pool.WORTH_BYTES, os.cpu_count = 0, lambda: 2
from tracekit.cli.app import main
sys.exit(main(["analyze", "run", "--no-store"]))
"""
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")


def environment(folder: Path) -> dict[str, str]:
    """Temporary folders go where the test can see them."""
    return {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(folder / "tmp")}


@pytest.fixture
def reading(tmp_path: Path) -> subprocess.Popen[str]:
    """The command while two workers are at two files."""
    for name in ("at", "tmp"):
        (tmp_path / name).mkdir()
    for rank in range(2):
        Kineto(rank).kernel(0, 5).write(tmp_path / "run" / f"rank{rank}.json")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(workers(tmp_path)) == 2)
    return process


def workers(folder: Path) -> list[int]:
    """Process numbers of the workers that began to read."""
    return [int(file.name) for file in (folder / "at").iterdir()]


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or ") Z " not in status.read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until(true: Callable[[], bool]) -> None:
    """Wait at most 20 s."""
    for _ in range(400):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come about within 20 s")


@posix
@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, "tracekit: interrupted\n"),
        (signal.SIGTERM, 143, ""),
        (signal.SIGHUP, 129, ""),
    ],
)
def test_a_signal_ends_everything(
    tmp_path: Path, reading: subprocess.Popen[str], number: int, status: int, said: str
) -> None:
    """Asked to end, it does at once: no worker, no temporary folder, at most one line."""
    reading.send_signal(number)
    out, err = reading.communicate(timeout=20)
    assert (reading.returncode, out, err) == (status, "", said)
    assert not any(map(lives, workers(tmp_path)))
    assert list((tmp_path / "tmp").iterdir()) == []


@posix
def test_workers_do_not_outlive_a_killed_parent(
    tmp_path: Path, reading: subprocess.Popen[str]
) -> None:
    """Killed without a chance to clean up, its workers end quietly; the next start tidies up."""
    reading.kill()
    out, err = reading.communicate(timeout=20)
    assert (out, err) == ("", "")  # read to its end: the workers hold the same stderr
    wait_until(lambda: not any(map(lives, workers(tmp_path))))
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    command = [sys.executable, "-m", "tracekit", "analyze", "run", "--no-store"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert list((tmp_path / "tmp").iterdir()) == []


@posix
def test_handlers_are_given_back() -> None:
    """The command leaves the signals of a program that calls it as they were."""
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(Ended) as caught, ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.signal == signal.SIGTERM
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)] == before


@posix
def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under nohup the command goes on when the terminal goes away."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def hang_up(_argv: list[str]) -> int:
        signal.raise_signal(signal.SIGHUP)
        return 7

    monkeypatch.setattr("tracekit.cli.app._dispatch", hang_up)
    try:
        assert main([]) == 7
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
