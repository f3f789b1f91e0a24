"""Read several files side by side in worker processes, bounded by cores and memory."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from tracekit.core.errors import LimitError, NotATraceError, ReadError
from tracekit.io.registry import read_source
from tracekit.io.sources import Limits, Source
from tracekit.io.store import Store

#: below this many packed bytes in all, starting workers costs more than it saves
WORTH_BYTES = 6 << 20
MAX_WORKERS = 8
#: what a worker holds at its peak: a base, and a share of the text it decodes
_BASE_BYTES, _PER_BYTE = 160 << 20, 0.45


class Job(msgspec.Struct):
    """One file to read into the store."""

    path: str
    member: str
    unpacked_bytes: int
    ratio: int
    store: str
    key: str
    given: str = ""


class Answer(msgspec.Struct):
    """What came of a job; ``kind`` is empty when the entry is in the store."""

    kind: Literal["", "limit", "not-a-trace", "read", "store"] = ""
    what: str = ""
    where: str = ""
    hint: str = ""


_ERRORS = {"limit": LimitError, "not-a-trace": NotATraceError, "read": ReadError}


def num_workers(sources: list[Source]) -> int:
    """How many files to read at once: by cores, by free memory, and only where it pays."""
    sizes = [s.packed_bytes() for s in sources]
    if len(sources) < 2 or sum(sizes) < WORTH_BYTES or not sys.executable:
        return 1
    largest = max(s.unpacked_guess() for s in sources)
    need = _BASE_BYTES + _PER_BYTE * largest
    by_memory = int(_free_memory() * 0.6 / need)
    return max(1, min(len(sources), os.cpu_count() or 1, by_memory, MAX_WORKERS))


def _free_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 4 << 30


def read_all(
    jobs: list[tuple[Source, str]],
    store: Store,
    limits: Limits,
    workers: int,
    progress: Callable[[str], None] | None = None,
) -> dict[Source, ReadError]:
    """Read files in worker processes, each into the store.

    A worker that dies is reported for the file it was reading; the others go on.

    Returns
    -------
    dict of Source to ReadError
        The files that cannot be read. A file that is in neither this nor the store afterwards
        could not be stored: the caller reads it itself.
    """
    crew = _Crew()
    errors: dict[Source, ReadError] = {}
    try:
        with ThreadPoolExecutor(workers) as threads:
            try:
                futures = [threads.submit(_one, crew, s, key, store, limits) for s, key in jobs]
                for (source, _), future in zip(jobs, futures, strict=True):
                    answer = future.result()
                    if answer.kind in _ERRORS:
                        error = _ERRORS[answer.kind]
                        errors[source] = error(answer.what, where=answer.where, hint=answer.hint)
                    if progress:
                        progress(source.label)
            except BaseException:  # above all Ctrl-C: leave no file half read and no worker behind
                threads.shutdown(wait=False, cancel_futures=True)
                crew.stop()
                raise
    finally:
        crew.close()
    return errors


def _one(crew: _Crew, source: Source, key: str, store: Store, limits: Limits) -> Answer:
    job = Job(
        path=str(source.path),
        member=source.member,
        unpacked_bytes=limits.unpacked_bytes,
        ratio=limits.ratio,
        store=str(store.path),
        key=key,
        given=source.given,
    )
    return crew.ask(job, source.label)


class _Crew:
    """One worker process per thread that asks; started on first use."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._starting, self._stopped = threading.Lock(), False

    def ask(self, job: Job, label: str) -> Answer:
        worker = self._worker()
        if worker is None:
            return Answer("read", "reading was stopped", label)
        assert worker.stdin
        assert worker.stdout
        try:
            worker.stdin.write(_line(job))
            worker.stdin.flush()
            line = worker.stdout.readline()
        except OSError:
            line = b""
        if line:
            return Answer(**json.loads(line))
        worker.wait()
        self._mine.worker = None
        return Answer(
            "read",
            f"the reading process ended with status {worker.returncode} (out of memory?)",
            label,
            "read fewer files at once, or this one alone",
        )

    def _worker(self) -> subprocess.Popen[bytes] | None:
        worker: subprocess.Popen[bytes] | None = getattr(self._mine, "worker", None)
        with self._starting:
            if worker is None and not self._stopped:
                worker = self._mine.worker = _start()
                self._all.append(worker)
        return worker

    def stop(self) -> None:
        """Kill the workers, whatever they are at, and start no more."""
        with self._starting:
            self._stopped = True
            for worker in self._all:
                worker.kill()

    def close(self) -> None:
        for worker in self._all:
            for pipe in (worker.stdin, worker.stdout):
                with suppress(OSError):  # a dead worker's pipe cannot be flushed
                    if pipe:
                        pipe.close()
            worker.wait()


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tracekit.io.pool import serve; serve()"]
    home = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(  # noqa: S603 - this Python, with this module
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # Ctrl-C is for us, who then kill it
    )


def _line(message: Job | Answer) -> bytes:
    """A message as one line; json keeps file names that are not UTF-8, which msgspec refuses."""
    return json.dumps(msgspec.structs.asdict(message)).encode() + b"\n"


def serve() -> None:
    """Be a worker: read jobs from standard input, one a line, until it closes.

    Closed while a job is at hand, it tells that nobody waits for the answer any more.
    """
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    storing = threading.Lock()
    idle = threading.Event()
    idle.set()
    threading.Thread(target=_listen, args=(jobs, storing, idle), daemon=True).start()
    stores: dict[str, Store] = {}
    while line := jobs.get():
        job = Job(**json.loads(line))
        store = stores.setdefault(job.store, Store(Path(job.store)))
        answer = _do(job, store, storing)
        idle.set()  # before the answer, to which the next job may follow at once
        try:
            sys.stdout.buffer.write(_line(answer))
            sys.stdout.buffer.flush()
        except OSError:
            os._exit(1)  # whoever asked is gone; the interpreter's own last flush would complain


def _listen(jobs: queue.SimpleQueue[bytes], storing: threading.Lock, idle: threading.Event) -> None:
    """Pass on what arrives; at its end, end the process even if it is amid a file."""
    for line in sys.stdin.buffer:
        idle.clear()
        jobs.put(line)
    if not idle.is_set():
        with storing:  # leave no half an entry
            os._exit(1)
    jobs.put(b"")


def _do(job: Job, store: Store, storing: threading.Lock) -> Answer:
    source = Source(Path(job.path), job.member, job.given)
    try:
        table = read_source(source, Limits(job.unpacked_bytes, job.ratio))
    except ReadError as e:
        return Answer(_kind(e), e.what, e.where, e.hint)
    except MemoryError:
        hint = "read fewer files at once, or this one alone"
        return Answer("read", "too little memory to read it", source.label, hint)
    with storing:
        reason = store.put(job.key, table, source.label)
    return Answer("store", reason) if reason else Answer()


def _kind(e: ReadError) -> Any:
    return next((k for k, t in _ERRORS.items() if type(e) is t), "read")
