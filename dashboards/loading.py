"""Long work off the request: each question goes once to a process of its own, and can be stopped.

A page asks; the answer is there, on its way with its progress, or failed in words. Answers are kept
under the run's files, so that a changed run is asked anew while the last answer is still shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dashboards.catalog import Catalog, Entry, Signature
from dashboards.worker import Question

#: answers kept, and the bytes they may take together
KEPT_ANSWERS, KEPT_BYTES = 64, 1 << 30
#: work nobody has asked after for this long is stopped
PATIENCE_S = 60.0
#: how long a stopped process may take to end
GRACE_S = 2.0
_START = "from dashboards.worker import serve; serve()"

#: answered within moments, and too many to keep
QUICK = frozenset(("timeline",))

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a page needs.

    Attributes
    ----------
    kind : str
        ``digest``, ``names`` or ``timeline``.
    run : Entry
    steps : (int, int) or None
    capture : int or None
    more : str
        What else is asked, as JSON.
    """

    kind: str
    run: Entry
    steps: tuple[int, int] | None = None
    capture: int | None = None
    more: str = ""

    @property
    def key(self) -> Key:
        """What tells one question from another."""
        return self.kind, self.run.name, self.steps, self.capture, self.more


@dataclass(slots=True)
class Reply:
    """What came of a question so far.

    Attributes
    ----------
    status : {"ready", "pending", "failed"}
    value : object
        The answer when ready; an earlier one that is about to be replaced counts.
    what : str
        What is at hand while pending; what went wrong when failed.
    fraction : float
        How much is done.
    mark : str
        Changes whenever there is something new to show.
    """

    status: Literal["ready", "pending", "failed"]
    value: Any = None
    what: str = ""
    fraction: float = 0.0
    mark: str = ""


@dataclass(slots=True)
class _Job:
    """One question under way, or its answer."""

    ask: Ask
    signature: Signature
    number: int
    status: Literal["pending", "ready", "failed"] = "pending"
    what: str = "waiting for a free process"
    fraction: float = 0.0
    value: Any = None
    wanted_at: float = field(default_factory=time.monotonic)
    viewers: set[str] = field(default_factory=set)
    worker: _Worker | None = None
    stopped: bool = False


class Loader:
    """Answers to what pages ask, from a few processes.

    Parameters
    ----------
    catalog : Catalog
    read : callable
        What makes an answer of its bytes, by kind.
    num_workers : int
    """

    def __init__(
        self, catalog: Catalog, read: dict[str, Callable[[bytes], Any]], num_workers: int = 2
    ) -> None:
        self._catalog, self._read = catalog, read
        self._changed = threading.Condition()
        self._jobs: dict[Key, _Job] = {}
        self._done: dict[Key, _Job] = {}
        self._queue: list[_Job] = []
        self._number = 0
        self._closed = False
        self._workers = [_Worker() for _ in range(num_workers)]
        self._workers.append(_Worker(QUICK))  # so that a picture never waits for an analysis
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), daemon=True)
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, ask: Ask, viewer: str = "") -> Reply:
        """What there is of an answer; begins to find it out when nobody has yet."""
        signature = self._catalog.signature(ask.run)
        with self._changed:
            self._drop_unwanted()
            done = self._done.get(ask.key)
            if done is not None and done.signature == signature:
                self._done[ask.key] = self._done.pop(ask.key)  # the last used goes last
                return _reply(done)
            job = self._jobs.get(ask.key)
            if job is None:
                job = self._begin(ask, signature)
            job.wanted_at = time.monotonic()
            job.viewers.add(viewer)
            if done is not None and done.status == "ready":
                return _reply(done)
            return _reply(job)

    def leave(self, ask: Ask, viewer: str) -> None:
        """A viewer no longer wants an answer; the work stops when nobody does."""
        with self._changed:
            job = self._jobs.get(ask.key)
            if job is not None:
                job.viewers.discard(viewer)
                if not job.viewers:
                    self._stop(job)

    def forget(self, ask: Ask) -> None:
        """Ask anew next time, after a failure."""
        with self._changed:
            if ask.key in self._done and self._done[ask.key].status == "failed":
                del self._done[ask.key]

    def fetch(self, ask: Ask, seconds: float) -> Reply:
        """Ask and wait for the answer, at most so many seconds; it is not kept."""
        signature = self._catalog.signature(ask.run)
        until = time.monotonic() + seconds
        with self._changed:
            job = self._jobs.get(ask.key) or self._begin(ask, signature)
            job.wanted_at = time.monotonic()
            while job.status == "pending" and not job.stopped and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return _reply(job)

    def wait(self, ask: Ask, seconds: float) -> Reply:
        """The reply once it is no longer pending, or what there is after so many seconds."""
        until = time.monotonic() + seconds
        while (reply := self.ask(ask, "wait")).status == "pending":
            left = until - time.monotonic()
            if left <= 0:
                break
            with self._changed:
                self._changed.wait(min(left, 0.5))
        return reply

    def warm(self) -> None:
        """Start the processes, so that the first question finds them ready."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Stop all work and all processes."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.stop()
        for worker, thread in zip(self._workers, self._threads, strict=True):
            thread.join(GRACE_S)
            worker.close()

    # -- within, under the lock ---------------------------------------------------------------

    def _begin(self, ask: Ask, signature: Signature) -> _Job:
        self._number += 1
        job = _Job(ask, signature, self._number)
        self._jobs[ask.key] = job
        self._queue.append(job)
        self._changed.notify_all()
        return job

    def _stop(self, job: _Job) -> None:
        job.stopped = True
        self._jobs.pop(job.ask.key, None)
        if job in self._queue:
            self._queue.remove(job)
        elif job.worker is not None:
            job.worker.stop()

    def _drop_unwanted(self) -> None:
        late = time.monotonic() - PATIENCE_S
        for job in [job for job in self._jobs.values() if job.wanted_at < late]:
            self._stop(job)

    def _keep(self, job: _Job) -> None:
        self._jobs.pop(job.ask.key, None)
        self._done.pop(job.ask.key, None)
        self._done[job.ask.key] = job
        while len(self._done) > 1 and (
            len(self._done) > KEPT_ANSWERS or sum(map(_size, self._done.values())) > KEPT_BYTES
        ):
            del self._done[next(iter(self._done))]

    # -- within, in the threads that hold a process -------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while True:
            with self._changed:
                while (job := self._next(worker)) is None and not self._closed:
                    self._changed.wait()
                if job is None:
                    return
                job.worker = worker
                job.what = "starting"
            self._do(job, worker)

    def _next(self, worker: _Worker) -> _Job | None:
        """The first question on a run that this process has open, else the first it may do."""
        may = [job for job in self._queue if not worker.only or job.ask.kind in worker.only]
        if not may:
            return None
        job = next((job for job in may if str(job.ask.run.path) in worker.seen), may[0])
        self._queue.remove(job)
        return job

    def _do(self, job: _Job, worker: _Worker) -> None:
        def tell(what: str, fraction: float) -> None:
            job.what, job.fraction = what, fraction

        ask = job.ask
        signature = repr(hash(job.signature))
        path = str(ask.run.path)
        asked = Question(ask.kind, path, signature, ask.steps, ask.capture, ask.more)
        try:
            text = worker.ask(asked, tell)
            value, status, what = self._read[ask.kind](text), "ready", ""
        except WorkError as e:
            value, status, what = None, "failed", str(e)
        with self._changed:
            job.worker = None
            if not job.stopped:
                job.value, job.status, job.what = value, status, what  # type: ignore[assignment]
                self._keep(job)
                if ask.kind in QUICK:  # whoever waits holds the job itself
                    del self._done[ask.key]
            self._changed.notify_all()


def _size(job: _Job) -> int:
    return int(getattr(job.value, "num_bytes", 0))


def _reply(job: _Job) -> Reply:
    mark = f"{job.number}{job.status[0]}"
    if job.status == "pending":
        mark += f"{100 * job.fraction:.0f}{job.what}"
    return Reply(job.status, job.value, job.what, job.fraction, mark)


class WorkError(Exception):
    """The process said in a line why there is no answer, or it ended."""


class _Worker:
    """One process that answers questions; started when first needed, and again after its end."""

    def __init__(self, only: frozenset[str] = frozenset()) -> None:
        self.only = only
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.seen: set[str] = set()

    def ask(self, asked: Question, tell: Callable[[str, float], None]) -> bytes:
        """The answer of the process.

        Raises
        ------
        WorkError
            When it has none.
        """
        process = self._started()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(asked.line())
            process.stdin.flush()
            while line := process.stdout.readline():
                if line.startswith(b"P"):
                    tell(*json.loads(line[1:]))
                    continue
                text = process.stdout.read(int(line[1:]))
                if line.startswith(b"E"):
                    raise WorkError(text.decode("utf-8", "replace"))
                self.seen.add(asked.path)
                return text
        except (OSError, ValueError):
            pass  # it ended
        self._ended(process)
        raise WorkError("the process that reads traces ended (out of memory?); try again")

    def start(self) -> None:
        """Have the process ready."""
        self._started()

    def stop(self) -> None:
        """End the process, whatever it is at."""
        with self._lock:
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def close(self) -> None:
        """End the process and what leads to it."""
        self.stop()
        with self._lock:
            if self._process is not None:
                self._ended(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    self._ended(self._process)
                self._process = _start()
                self.seen.clear()
            return self._process

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()


def _start() -> subprocess.Popen[bytes]:
    home = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(  # noqa: S603 - this Python, with this package
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # Ctrl-C is for the server, which then stops it
    )
