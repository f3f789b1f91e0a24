"""Times several ways of making the same training step in turn, in one set of processes.

On a busy machine a ratio of two steps made one after the other says more than seconds do.
"""

import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.comm import Comm
from runtime.grid import Grid, GridShape
from runtime.models.gpt import GPT, GPTConfig
from runtime.overlap import Engine, Overlap
from runtime.sharding import Registry

#: seconds until the gradients were summed, and until the end of the step
Times = tuple[float, float]


@dataclass
class Side:
    """One contestant.

    Attributes
    ----------
    gradients : callable
        Leaves the gradients summed; gives this rank's part of the mean loss.
    optimizer : Optimizer
    """

    gradients: Callable[[], Tensor]
    optimizer: torch.optim.Optimizer

    def step(self) -> tuple[float, Times]:
        """Its part of the loss, and what it took."""
        begin = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.gradients()
        ready = time.perf_counter() - begin
        self.optimizer.step()
        return float(loss), (ready, time.perf_counter() - begin)


@dataclass
class Job:
    """The runtime's model on a grid, with this rank's rows of a fixed batch."""

    engine: Engine
    model: GPT
    tokens: Tensor
    targets: Tensor
    num_valid: Tensor

    def side(self) -> Side:
        """Itself as a contestant."""
        batch = {"tokens": self.tokens, "targets": self.targets}
        comm = self.engine.comm

        def gradients() -> Tensor:
            self.engine.start()
            with comm.during("forward"):
                loss = self.model(batch, self.num_valid)
            with comm.during("backward"):
                loss.backward()
            self.engine.finish()
            return loss.detach()

        return Side(gradients, torch.optim.AdamW(self.model.parameters(), lr=1e-3))


def job(
    shape: GridShape, config: GPTConfig, samples: int, overlap: str = "all", *, alone: bool = False
) -> Job:
    """The model on a grid, its batch of ``samples`` split over z and data."""
    grid = Grid(shape, alone=alone)
    engine = Engine(Comm(grid), Registry(grid, 0), Overlap.parse(overlap))
    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, config.vocabulary, (samples, config.length + 1), generator=drawn)
    share = samples // (shape.z * shape.data)
    first = (grid["data"].index * shape.z + grid["z"].index) * share
    mine = tokens[first : first + share]
    return Job(
        engine,
        GPT(engine, config),
        mine[:, :-1].contiguous(),
        mine[:, 1:].contiguous(),
        torch.tensor(samples * config.length),
    )


def join(rank: int, world: int, folder: str) -> None:
    """Be a rank of a job on this machine, with a fair share of its processors."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )


def agree(sides: Sequence[Side], steps: int, planes: int = 1) -> None:
    """Warm up, and refuse to time models that are not the same: their losses must agree.

    Parameters
    ----------
    planes : int
        Ranks that hold the same part of the loss (x times y).
    """
    for _ in range(steps):
        losses = torch.tensor([side.step()[0] for side in sides]) / planes
        dist.all_reduce(losses)
        if float((losses - losses[0]).abs().max()) > 1e-3 * float(losses[0]):
            raise RuntimeError(f"the models differ: losses {losses.tolist()}")


def rounds(sides: Sequence[Side], number: int) -> list[list[Times]]:
    """Times of each round and side, the slowest rank's; the same on all ranks.

    The orders of the sides come in turn, so that each comes first, and after each other, equally
    often.
    """
    seconds = torch.zeros(number, len(sides), 2, dtype=torch.float64)
    orders = itertools.cycle(itertools.permutations(range(len(sides))))
    for row, order in zip(seconds, orders, strict=False):
        for side in order:
            dist.barrier()
            row[side] = torch.tensor(sides[side].step()[1])
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    found: list[list[Times]] = seconds.tolist()
    return found


def interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    chance = random.Random(0)  # noqa: S311 - resampling
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def ratio(over: Sequence[float], under: Sequence[float]) -> str:
    """Median of the pairs' ratios, with its interval."""
    values = [a / b for a, b in zip(over, under, strict=True)]
    low, high = interval(values)
    return f"{statistics.median(values):.3f} ({low:.3f}–{high:.3f})"
