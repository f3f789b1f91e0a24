"""Start the ranks of a job on this machine, and leave none behind, however it ends.

Each rank gets torchrun's variables. It also gets one end of a pipe whose other end only this
process holds: when that closes, because this process is gone, the rank ends itself.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from runtime import flags, folder, progress
from runtime.dims import model_dims
from runtime.flags import say
from runtime.settings import ConfigError

ADDRESS = "127.0.0.1"
POLL_S = 0.02
#: how long others may report after the first rank failed; its own report may come last
SETTLE_S = 0.7
#: how long a rank may take to end after SIGTERM
GRACE_S = 3.0
ENDING = (signal.SIGTERM, signal.SIGHUP)
#: what explains the others' end, most telling first
CAUSES = ("use", "signal", "error", "timeout", "peer", "interrupt")


class Stopped(BaseException):
    """Told to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass
class Rank:
    """A rank's process, and the log of what it writes."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    _read: int = 0

    def words(self) -> list[str]:
        """The whole lines it has said to the user since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        mark = b"tracekit: "
        said = [line for line in text.splitlines() if line.startswith(mark)]
        return [line.removeprefix(mark).decode(errors="replace") for line in said]


def train(argv: Sequence[str]) -> int:
    """Check the flags of ``tracekit train``, then train with them.

    Raises
    ------
    ConfigError
        For a wrong setting or a folder that cannot be used, before any rank starts.
    """
    options = flags.read(argv, "tracekit train")
    settings = options.config.train
    model_dims(options.config)
    folder.check(settings)
    try:
        return launch(argv, options.ranks, options.port)
    finally:
        folder.sweep(settings)


def launch(argv: Sequence[str], ranks: int, port: int, module: str = "runtime.train") -> int:
    """Run a module as all ranks of a job and wait for its end.

    Parameters
    ----------
    argv : sequence of str
        Arguments of each rank.
    ranks : int
    port : int
        Where they meet; 0 is any free one.
    module : str
        Run by each rank as its main program.

    Returns
    -------
    int
        Exit status: 0, or that of the rank that failed first.

    Raises
    ------
    ConfigError
        When the port is in use.
    KeyboardInterrupt
        After Ctrl-C, once all ranks have ended.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(_listen(port))
        scratch = Path(tempfile.mkdtemp(prefix="tracekit-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.enter_context(_signals())
        watched, held = os.pipe()
        stack.callback(os.close, held)
        shown, written = os.pipe()
        started: list[Rank] = []
        stack.callback(_end, started)
        with os.fdopen(watched, "rb"), os.fdopen(written, "wb"):
            for number in range(ranks):
                fds = {"WATCH": watched, "PROGRESS": written, "LISTEN": listener.fileno()}
                started.append(_start(argv, module, number, ranks, listener, fds, scratch))
        bar = progress.Bar(sys.stderr)
        reader = threading.Thread(target=_show, args=(shown, bar), daemon=True)
        reader.start()
        failed = _wait(started, bar)
        if failed:
            _end(started)
        reader.join(timeout=GRACE_S)
        return _explain(started, failed, scratch) if failed else 0


@contextmanager
def _listen(port: int) -> Iterator[socket.socket]:
    """A listening socket, so that the port cannot be taken before rank 0 uses it."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
        except OSError as e:
            if e.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "in use" if e.errno == errno.EADDRINUSE else "not open to you"
            raise ConfigError(f"port {port} is {why}; leave --port out for any free one") from e
        listener.listen(1024)
        yield listener


def _start(
    argv: Sequence[str],
    module: str,
    number: int,
    ranks: int,
    listener: socket.socket,
    fds: dict[str, int],
    scratch: Path,
) -> Rank:
    log = scratch / f"rank{number:05d}.log"
    own = fds if number == 0 else {"WATCH": fds["WATCH"]}
    root = str(Path(__file__).parent.parent)
    environment = {
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(listener.getsockname()[1]),
        "TRACEKIT_SCRATCH": str(scratch),
        **{f"TRACEKIT_{name}_FD": str(fd) for name, fd in own.items()},
    }
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  (our own module, arguments as the user gave them)
            [sys.executable, "-P", "-m", module, *argv],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(own.values()),
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others
        )
    return Rank(number, process, log)


def _show(end: int, bar: progress.Bar) -> None:
    with os.fdopen(end, encoding="utf-8") as lines:
        progress.show(lines, bar)


def _wait(started: list[Rank], bar: progress.Bar) -> list[Rank]:
    """Wait until all have ended well, or one has not and the others had time to say why."""
    while True:
        codes = [r.process.poll() for r in started]
        for text in dict.fromkeys(line for r in started for line in r.words()):
            bar.say(text)
        if all(code == 0 for code in codes):
            return []
        if any(codes):
            break
        time.sleep(POLL_S)
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline and any(r.process.poll() is None for r in started):
        time.sleep(POLL_S)
    return [r for r in started if r.process.poll()]


def _end(started: list[Rank]) -> None:
    """End what still runs: ask first, then kill, with whatever it has started itself."""
    with _signals(signal.SIG_IGN, (signal.SIGINT, *ENDING)):
        _end_all(started)


def _end_all(started: list[Rank]) -> None:
    alive = [r for r in started if r.process.poll() is None]
    for rank in alive:
        _signal(rank, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for rank in alive:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.process.wait(max(0.0, deadline - time.monotonic()))
    for rank in started:
        _signal(rank, signal.SIGKILL)
        rank.process.wait()


def _signal(rank: Rank, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(rank.process.pid, number)


def _explain(started: list[Rank], failed: list[Rank], scratch: Path) -> int:
    """Say which rank failed first and why; gives the exit status."""
    reports = [_report(rank, scratch) for rank in failed]
    first = min(reports, key=lambda r: (CAUSES.index(r["cause"]), r["time"], r["rank"]))
    if first["cause"] == "use":
        say(first["text"])
        return 2
    others = f"; the other {len(started) - 1} ranks were ended" if len(started) > 1 else ""
    say(f"rank {first['rank']} failed: {first['text']}{others}")
    if os.environ.get("TRACEKIT_DEBUG"):
        sys.stderr.write(started[first["rank"]].log.read_text(errors="replace"))
    return 1


def _report(rank: Rank, scratch: Path) -> dict[str, Any]:
    """What a rank said of its end, else what its exit status says."""
    path = scratch / f"failure{rank.number}.json"
    if path.exists():
        said: dict[str, Any] = json.loads(path.read_text())
        return said
    code = rank.process.returncode
    if code < 0:
        text, cause = f"killed by {signal.Signals(-code).name}", "signal"
        if -code == signal.SIGKILL:
            text += " (perhaps for lack of memory)"
    else:
        lines = rank.log.read_text(errors="replace").strip().splitlines()
        text, cause = (lines[-1][:500] if lines else f"exit status {code}"), "error"
    return {"rank": rank.number, "cause": cause, "text": text, "time": 0.0}


def _stop(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


@contextmanager
def _signals(handler: Any = _stop, numbers: tuple[int, ...] = ENDING) -> Iterator[None]:
    """Handle some signals otherwise; those that would end this process raise `Stopped`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)
