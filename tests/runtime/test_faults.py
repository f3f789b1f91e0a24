"""Each fault does to the machine what it says, where and when it says."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runtime import faults, flags
from runtime.faults import Faults, FaultSettings, Machine
from runtime.settings import ConfigError


@dataclass
class Fake:
    """A machine on which only the tests' own clock moves."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)

    def machine(self) -> Machine:
        """What faults act upon."""
        return Machine(sleep=self.slept.append, cpu_s=lambda: self.now, pause=self.paused.append)


def suffering(rank: int, fake: Fake, *said: str) -> Faults:
    """The faults of flags as a rank suffers them."""
    words = [w for text in said for w in ("--fault", text)]
    settings = flags.read(words, "test", 4).config.faults
    return Faults(settings, rank, 0, fake.machine())


def test_a_slow_rank_computes_as_much_longer_as_it_says() -> None:
    """2 s of compute take 5 s by a factor of 2.5: 3 s of sleep on that rank, none on others."""
    for rank, expected in ((3, [3.0]), (2, [])):
        fake = Fake()
        with suffering(rank, fake, "slow_rank:rank=3,factor=2.5").computing():
            fake.now += 2.0
        assert fake.slept == expected


def test_a_late_step_is_late_once() -> None:
    """Only the named rank is late, at the named step."""
    for rank, expected in ((1, [0.15]), (0, [])):
        fake = Fake()
        one = suffering(rank, fake, "late_step:rank=1,step=2,ms=150")
        for step in range(5):
            one.begin_step(step)
        assert fake.slept == expected


def test_a_paused_rank_stops_once() -> None:
    """Only the named rank is paused, at the named step."""
    for rank, expected in ((0, [2.0]), (1, [])):
        fake = Fake()
        one = suffering(rank, fake, "paused_rank:rank=0,step=1,s=2")
        for step in range(3):
            one.begin_step(step)
        assert fake.paused == expected


def test_jitter_is_drawn_anew_from_rank_and_step() -> None:
    """Sleeps lie within the bound, differ by rank and step, and are the same in every run."""
    pytest.importorskip("torch", reason="jitter is drawn by the runtime's generator")
    slept = {}
    for rank in (0, 1):
        for _ in range(2):
            fake = Fake()
            one = suffering(rank, fake, "jitter:ms=10")
            for step in range(20):
                one.begin_step(step)
            assert slept.setdefault(rank, fake.slept) == fake.slept
    values = [*slept[0], *slept[1]]
    assert len(set(values)) == 40
    assert all(0.0 < s < 0.01 for s in values)
    assert min(values) < 0.0025
    assert max(values) > 0.0075


def test_jitter_may_be_one_ranks() -> None:
    """With a rank, the others have none."""
    pytest.importorskip("torch", reason="jitter is drawn by the runtime's generator")
    for rank, count in ((2, 3), (0, 0)):
        fake = Fake()
        one = suffering(rank, fake, "jitter:ms=10,rank=2")
        for step in range(3):
            one.begin_step(step)
        assert len(fake.slept) == count


def test_a_slow_link_delays_its_axis_alone() -> None:
    """1 MB at 0.5 GB/s takes 2 ms besides the 100 µs; other axes go on at once."""
    fake = Fake()
    one = suffering(0, fake, "slow_link:axis=z,delay_us=100,GBps=0.5")
    one.before_collective("z", 1_000_000)
    one.before_collective("x", 1_000_000)
    assert fake.slept == [pytest.approx(0.0021)]


def test_without_faults_nothing_happens() -> None:
    """A run without faults never sleeps."""
    fake = Fake()
    one = Faults(FaultSettings(), 0, 0, fake.machine())
    one.begin_step(5)
    with one.computing():
        fake.now += 1.0
    one.before_collective("x", 10)
    assert (fake.slept, fake.paused) == ([], [])


@pytest.mark.skipif(sys.platform == "win32", reason="this system cannot stop a process")
def test_a_pause_stops_every_thread_and_ends() -> None:
    """A paused process is stopped by the system, and wakes after at least the time asked for."""
    child = os.fork()
    if child == 0:
        faults._pause(0.3)
        os._exit(7)
    began = time.monotonic()
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGSTOP
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert time.monotonic() - began > 0.2


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("slow_rank", "rank is missing"),
        ("slow_rank:rank=9", "the job has ranks 0 to 3"),
        ("slow_rank:rank=1,factor=0.5", "must be at least 1"),
        ("slow_link:axis=w", "choose from x, y, z, data"),
        ("slow_link:axis=x,GBps=0", "must be above 0"),
        ("slow_rnk:rank=1", "did you mean 'slow_rank'"),
        ("jitter:ms", "write NAME:KEY=VALUE"),
    ],
)
def test_a_wrong_fault_is_refused(said: str, message: str) -> None:
    """A fault that cannot be is one line that says what can."""
    with pytest.raises(ConfigError, match=message):
        flags.read(["--fault", said], "test", 4)


def test_faults_stand_in_a_config_file(tmp_path: Path) -> None:
    """[faults] of a TOML file says the same as --fault."""
    file = tmp_path / "run.toml"
    file.write_text("[faults]\nslow_rank = {rank = 3, factor = 1.5}\n")
    options: Any = flags.read(["--config", str(file)], "test", 4)
    assert options.config.faults.slow_rank == faults.SlowRank(rank=3, factor=1.5)
