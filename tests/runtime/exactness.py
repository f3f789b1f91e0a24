"""One process of a job that compares the GPT on many grids with the model of one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402
from torch import Tensor  # noqa: E402

from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.loss import IGNORED  # noqa: E402
from runtime.models.gpt import GPT, GPTConfig  # noqa: E402
from runtime.overlap import Engine, Overlap  # noqa: E402
from runtime.sharding import Registry  # noqa: E402

STEPS = 3
BATCH = 8


@dataclass
class Job:
    """A model on a grid."""

    grid: Grid
    registry: Registry
    engine: Engine
    model: GPT


def build(shape: GridShape, config: GPTConfig, overlap: str, alone: bool = False) -> Job:
    """The model on a grid; ``alone`` gives the model of one process inside a larger job."""
    grid = Grid(shape, alone=alone)
    registry = Registry(grid, 0, torch.float64)
    engine = Engine(Comm(grid), registry, Overlap.parse(overlap))
    return Job(grid, registry, engine, GPT(engine, config))


def step(job: Job, config: GPTConfig, micro_batches: int) -> float:
    """Forward and backward over the whole batch; the loss of all ranks."""
    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, config.vocabulary, (BATCH, config.length + 1), generator=drawn)
    targets = tokens[:, 1:].clone()
    targets[0, 3] = IGNORED
    num_valid = (targets != IGNORED).sum()
    z, data = job.grid["z"], job.grid["data"]
    share = BATCH // (z.size * data.size)
    first = (data.index * z.size + z.index) * share
    mine = slice(first, first + share)
    job.engine.start()
    loss = torch.zeros(1, dtype=torch.float64)
    for part, wanted in zip(
        tokens[mine, :-1].chunk(micro_batches), targets[mine].chunk(micro_batches), strict=True
    ):
        own = job.model(part, wanted, num_valid)
        own.backward()
        loss += own.detach()
    job.engine.finish()
    return float(job.engine.comm.sum_over(loss, ("z", "data"), "loss"))


def train(job: Job, config: GPTConfig, micro_batches: int) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of some steps, and the first step's gradients by name."""
    losses = [step(job, config, micro_batches)]
    placements = job.registry.placements
    first = {p.name: w.grad.clone() for w, p in placements.items() if w.grad is not None}
    optimizer = torch.optim.AdamW(job.model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.step()
        optimizer.zero_grad()
        losses.append(step(job, config, micro_batches))
    return losses, first


def difference(job: Job, got: dict[str, Tensor], want: dict[str, Tensor]) -> float:
    """Largest difference of a gradient's elements, over the tensor's largest one."""
    largest = max(float(g.abs().max()) for g in want.values())
    worst = 0.0
    for placement in job.registry.placements.values():
        index = placement.index()
        real = index >= 0
        if not real.any():
            continue
        serial = want[placement.name].view(-1)
        # rows that only pad the vocabulary have no serial counterpart, and no gradient
        padding = max(0, int(index.max()) + 1 - serial.numel())
        serial = torch.cat((serial, serial.new_zeros(padding)))
        apart = (got[placement.name].view(-1)[real] - serial[index[real]]).abs().max()
        scale = max(float(serial.abs().max()), 1e-12 * largest)
        worst = max(worst, float(apart) / scale)
    return worst


def main(rank: int, world: int, folder: str, cases: list[tuple[Any, ...]]) -> None:
    """Run every case on this rank; rank 0 writes the results, one line a case."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    lines = []
    for shape, config, overlap, micro_batches in cases:
        want_losses, want = train(build(GridShape(), config, "none", alone=True), config, 1)
        job = build(shape, config, overlap)
        losses, got = train(job, config, micro_batches)
        loss = max(abs(a - b) / abs(b) for a, b in zip(losses, want_losses, strict=True))
        worst = torch.tensor([difference(job, got, want), loss], dtype=torch.float64)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        lines.append(f"{float(worst[0])} {float(worst[1])}")
    if rank == 0:
        Path(folder, "results").write_text("\n".join(lines))
    dist.destroy_process_group()
