"""Faults put into a run on purpose, as ground truth for what an analyzer should find.

Every fault is a setting of the run and stands in run.json. What a fault adds is measured in this
thread's CPU time, so a busy machine does not change it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from runtime.settings import ConfigError, least


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """One rank computes ``factor`` times as long."""

    rank: int
    factor: float = least(1.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """Each collective of an axis starts later, on every rank: ``delay_us`` and bytes / GBps.

    The delay lies before the collective, since nothing can slow gloo's own transfer from here; for
    a link that is slow while it transfers use the virtual cluster.
    """

    axis: Literal["x", "y", "z", "data"]
    delay_us: float = least(0.0, 0.0)
    GBps: float | None = None

    def __post_init__(self) -> None:
        if self.GBps is not None and self.GBps <= 0:
            raise ConfigError(f"faults.slow_link.GBps = {self.GBps}: must be above 0")


@dataclass(frozen=True, kw_only=True)
class LateStep:
    """One rank begins one step (counted from 0) late."""

    rank: int
    step: int = least(5, 0)
    ms: float = least(200.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """One rank, or each, begins every step late by up to ``ms``, drawn from rank and step."""

    ms: float = least(5.0, 0.0)
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class PausedRank:
    """The whole process of one rank stops at the start of one step, as under a debugger."""

    rank: int
    step: int = least(5, 0)
    s: float = least(1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class FaultSettings:
    """The faults of a run; by default none."""

    slow_rank: SlowRank | None = None
    slow_link: SlowLink | None = None
    late_step: LateStep | None = None
    jitter: Jitter | None = None
    paused_rank: PausedRank | None = None

    def ranks(self) -> list[tuple[str, int]]:
        """The ranks that the faults name."""
        named = ((f.name, getattr(getattr(self, f.name), "rank", None)) for f in fields(self))
        return [(name, rank) for name, rank in named if rank is not None]


@dataclass(frozen=True)
class Machine:
    """What faults do to the machine; tests put others in their place."""

    sleep: Callable[[float], None] = time.sleep
    cpu_s: Callable[[], float] = time.thread_time
    pause: Callable[[float], None] = field(default_factory=lambda: _pause)


@dataclass(frozen=True)
class Faults:
    """The faults as one rank suffers them.

    Parameters
    ----------
    settings : FaultSettings
    rank : int
    seed : int
        Of the run; jitter is drawn from it.
    machine : Machine
    """

    settings: FaultSettings
    rank: int
    seed: int = 0
    machine: Machine = field(default_factory=Machine)

    def begin_step(self, step: int) -> None:
        """Suffer what happens at the start of a step."""
        late, jitter, paused = (
            self.settings.late_step,
            self.settings.jitter,
            self.settings.paused_rank,
        )
        if late is not None and (late.rank, late.step) == (self.rank, step):
            self.machine.sleep(late.ms / 1e3)
        if jitter is not None and jitter.rank in (None, self.rank):
            self.machine.sleep(jitter.ms / 1e3 * self._draw(step))
        if paused is not None and (paused.rank, paused.step) == (self.rank, step):
            self.machine.pause(paused.s)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around compute: a slow rank takes as much longer as its factor says."""
        slow = self.settings.slow_rank
        if slow is None or slow.rank != self.rank:
            yield
            return
        begin = self.machine.cpu_s()
        yield
        self.machine.sleep((slow.factor - 1.0) * (self.machine.cpu_s() - begin))

    def before_collective(self, axis: str, size_bytes: int) -> None:
        """Before a collective is issued: a slow link delays those of its axis."""
        link = self.settings.slow_link
        if link is not None and axis == link.axis:
            transfer_s = size_bytes / (link.GBps * 1e9) if link.GBps else 0.0
            self.machine.sleep(link.delay_us / 1e6 + transfer_s)

    def _draw(self, step: int) -> float:
        """A number from 0 to 1 of rank and step."""
        import torch

        from runtime import random

        stream = random.key(self.seed, f"jitter of rank {self.rank}")
        return float(random.uniform(stream, torch.tensor([step])))


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Name and values from ``slow_rank:rank=3,factor=1.5``.

    Raises
    ------
    ConfigError
        When it is not written so.
    """
    name, _, rest = text.partition(":")
    pairs = [part.partition("=") for part in filter(None, rest.split(","))]
    if not name or any(not sign for _, sign, _ in pairs):
        raise ConfigError(f"--fault {text!r}: write NAME:KEY=VALUE,…, as slow_rank:rank=3,factor=2")
    return name, {key.strip(): given.strip() for key, _, given in pairs}


def _pause(seconds: float) -> None:
    """Stop this process, all its threads, until a helper wakes it."""
    if sys.platform == "win32":
        raise ConfigError("faults.paused_rank: this system cannot stop a process")
    pid = os.getpid()
    wake = f"import os,time;time.sleep({seconds});os.kill({pid},{int(signal.SIGCONT)})"
    with subprocess.Popen([sys.executable, "-S", "-c", wake]):  # noqa: S603  (fixed text)
        os.kill(pid, signal.SIGSTOP)
