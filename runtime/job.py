"""A process as one rank of a job: its place, the process group, and how it ends.

A rank never outlives its launcher, and whatever stops it becomes one line that names the rank.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from runtime.flags import say
from runtime.settings import ConfigError

#: what torchrun sets for each process
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: what our launcher sets besides
LISTEN, WATCH, PROGRESS, SCRATCH = (
    "TRACEKIT_LISTEN_FD",
    "TRACEKIT_WATCH_FD",
    "TRACEKIT_PROGRESS_FD",
    "TRACEKIT_SCRATCH",
)
#: how backends say that the other side is gone
PEER_GONE = (
    "connection closed by peer",
    "connection reset",
    "broken pipe",
    "socket closed",
    "recvvalue failed",
    "remote process",
    "connection refused",
    "connect failure",
    "unhandled system error",
)
TIMED_OUT = ("timed out", "timeout")
BAD_USE, FAILED, INTERRUPTED = 2, 1, 130

Cause = Literal["use", "error", "timeout", "peer", "interrupt"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in the job.

    Attributes
    ----------
    rank, world_size, local_rank : int
    device : torch.device
        A GPU of its own where there is one, else the CPU.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank ended.

    Attributes
    ----------
    rank : int
    cause : str
        ``use`` is a wrong setting, ``peer`` the loss of another rank, which is a consequence.
    text : str
        One line.
    time : float
        Unix seconds.
    """

    rank: int
    cause: Cause
    text: str
    time: float


def world_size(environment: Mapping[str, str]) -> int:
    """Ranks of the job that torchrun's variables put this process in; 0 without them."""
    given = environment.get("WORLD_SIZE", "")
    return int(given) if given.isdecimal() else 0


def progress_pipe(environment: Mapping[str, str]) -> int | None:
    """Where our launcher wants to hear how far rank 0 is; None without it."""
    return int(environment[PROGRESS]) if PROGRESS in environment else None


def find_place(environment: Mapping[str, str], ranks: int) -> Place:
    """Find this process's place, from torchrun's variables; without them a job of one rank.

    Raises
    ------
    ConfigError
        When the job has several ranks and variables are missing, or one is no number.
    """
    given = [name for name in VARIABLES if name in environment]
    missing = [name for name in VARIABLES if name not in environment]
    if missing and (ranks > 1 or "WORLD_SIZE" in given or "RANK" in given):
        raise ConfigError(
            f"{', '.join(missing)} not set: a rank of a job of {ranks} needs torchrun's variables; "
            f"start it with 'tracekit train -n {ranks} …' or "
            f"'torchrun --nproc-per-node {ranks} -m runtime.train …'"
        )
    if missing:
        return Place(0, 1, 0, _device(0))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        if not environment[name].isdecimal():
            raise ConfigError(f"{name}={environment[name]!r}: must be a whole number")
    rank, world_size, local = (int(environment[name]) for name in VARIABLES[:3])
    if rank >= world_size:
        raise ConfigError(f"RANK={rank}: must be below WORLD_SIZE={world_size}")
    return Place(rank, world_size, local, _device(local))


def _device(local_rank: int) -> torch.device:
    if torch.cuda.is_available() and local_rank < torch.cuda.device_count():
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


@contextmanager
def joined(place: Place, environment: Mapping[str, str], timeout_s: float) -> Iterator[None]:
    """Be part of the job's process group; a job of one rank needs none.

    Raises
    ------
    ConfigError
        When the ranks cannot meet, as where the port is in use.
    """
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    if place.world_size == 1:
        yield
        return
    try:
        _meet(place, environment, timedelta(seconds=timeout_s))
    except (dist.DistNetworkError, dist.DistStoreError) as e:
        where = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
        if "in use" in str(e).lower():
            raise ConfigError(f"{where}: port in use; choose another --master-port") from e
        raise ConfigError(f"{where}: the ranks did not meet ({first_line(e)})") from e
    yield
    dist.destroy_process_group()


def _meet(place: Place, environment: Mapping[str, str], timeout: timedelta) -> None:
    """Start the process group; our launcher hands rank 0 the socket it listens on."""
    backend = "nccl" if place.device.type == "cuda" else "gloo"
    device_id = place.device if backend == "nccl" else None
    if WATCH not in environment:
        dist.init_process_group(backend, timeout=timeout, device_id=device_id)
        return
    store = dist.TCPStore(
        environment["MASTER_ADDR"],
        int(environment["MASTER_PORT"]),
        place.world_size,
        is_master=place.rank == 0,
        timeout=timeout,
        master_listen_fd=int(environment[LISTEN]) if place.rank == 0 else None,
    )
    dist.init_process_group(
        backend,
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=timeout,
        device_id=device_id,
    )


def watch_launcher(environment: Mapping[str, str]) -> None:
    """End this process as soon as its launcher is gone, however that went."""
    if WATCH not in environment:
        return
    end = int(environment[WATCH])

    def wait() -> None:
        os.read(end, 1)  # returns when the launcher, which alone holds the other end, is gone
        if environment.get("RANK") == "0":
            shutil.rmtree(environment[SCRATCH], ignore_errors=True)
        os._exit(FAILED)

    threading.Thread(target=wait, name="watch launcher", daemon=True).start()


def explain(error: BaseException, rank: int, folder: str) -> Failure:
    """What ended this rank, in one line."""
    text = first_line(error)
    cause: Cause = "error"
    if isinstance(error, KeyboardInterrupt):
        cause, text = "interrupt", "interrupted"
    elif isinstance(error, OSError) and error.errno is not None:
        text = f"{error.filename or folder}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text += "; make room or choose another --out"
    elif isinstance(error, ConfigError):
        cause = "use"
    elif isinstance(error, torch.OutOfMemoryError | MemoryError):
        text = "out of memory; try a smaller batch, more micro-batches or --recompute full"
    elif isinstance(error, RuntimeError):
        low = str(error).lower()
        if any(words in low for words in PEER_GONE):
            cause, text = "peer", "lost the connection to another rank"
        elif any(words in low for words in TIMED_OUT):
            cause, text = "timeout", f"a collective did not end in time ({text})"
    if cause == "error" and not isinstance(error, OSError | MemoryError | ValueError):
        text = f"{type(error).__name__}: {text}"
    return Failure(rank, cause, text, time.time())


def end(error: BaseException, place: Place | None, folder: str) -> int:
    """Report what ended this rank, to the launcher or on stderr; gives the exit status."""
    rank = place.rank if place else int(os.environ.get("RANK", "0") or 0)
    failure = explain(error, rank, folder)
    status = {"use": BAD_USE, "interrupt": INTERRUPTED}.get(failure.cause, FAILED)
    if scratch := os.environ.get(SCRATCH):
        traceback.print_exception(error)  # into this rank's log
        path = Path(scratch, f"failure{rank}.json")
        path.with_suffix(".part").write_text(json.dumps(asdict(failure)))
        path.with_suffix(".part").replace(path)
    elif failure.cause in ("use", "interrupt"):
        if rank == 0:
            say(failure.text)
    elif failure.cause != "peer" or place is None:
        if os.environ.get("TRACEKIT_DEBUG"):
            traceback.print_exception(error)
        say(f"rank {rank}: {failure.text}")
    sys.stdout.flush()
    sys.stderr.flush()
    if place is not None and place.world_size > 1:
        os._exit(status)  # the group's own clean-up may wait for ranks that are gone
    return status


def first_line(error: BaseException) -> str:
    """The first line of a message, without the place in the source that torch puts before it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    head = lines[0]
    if head.startswith("[") and "] " in head:
        head = head.partition("] ")[2]
    return head[:500]
