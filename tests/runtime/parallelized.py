"""One process of a job that compares users' modules, made parallel, with what they were."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.overlap import Engine, Overlap  # noqa: E402
from runtime.parallelize import parallelize  # noqa: E402
from runtime.sharding import Registry  # noqa: E402

BATCH = 8


class Mixer(nn.Module):
    """Norms, a residual and a tied head over tokens."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(24, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.RMSNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16, bias=False)
        self.head = nn.Linear(16, 24, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T) to (B, T, 24)."""
        x = self.norm1(self.table(tokens))
        x = x + self.down(torch.tanh(self.up(x)) * 0.5)
        out: Tensor = self.head(self.norm2(x))
        return out


class Pictures(nn.Module):
    """Convolutions with strides, group norms, a concatenation, pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, 16)
        self.second = nn.Conv2d(16, 16, 3, stride=2, padding=1, bias=False)
        self.third = nn.Conv2d(16, 16, 1)
        self.pool = nn.Sequential(nn.AvgPool2d(2), nn.SiLU())
        self.norm2 = nn.GroupNorm(4, 32)
        self.last = nn.Conv2d(32, 8, 4)
        self.head = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, 8, 8) to (B, 5)."""
        x = self.norm1(self.first(images)).relu()
        y = self.third(torch.sigmoid(self.second(x)))
        x = self.last(self.norm2(torch.cat([self.pool(x), y], dim=1)))
        out: Tensor = self.head(torch.flatten(nn.functional.relu(x), 1))
        return out


def tokens() -> Tensor:
    """Some tokens below 24."""
    return torch.arange(BATCH * 3).view(BATCH, 3) * 7 % 24


def images() -> Tensor:
    """Some images of 8 x 8."""
    values = torch.linspace(-99, 99, BATCH * 3 * 64, dtype=torch.float64)
    return values.view(BATCH, 3, 8, 8).sin()


@dataclass(frozen=True)
class Example:
    """A module, the rules, and what it takes."""

    make: Callable[[], nn.Module]
    rules: dict[str, str]
    data: Callable[[], Tensor]


EXAMPLES = {
    "split": Example(Mixer, {"norm?": "follow", "down": "transposed", "*": "normal"}, tokens),
    "partly whole": Example(
        lambda: Mixer(tied=False),
        {"norm1": "replicated", "norm2": "follow", "up": "enter", "down": "leave"}
        | {"table": "replicated", "head": "normal"},
        tokens,
    ),
    "pictures": Example(
        Pictures,
        {"first": "enter", "norm?": "follow", "second": "normal", "third": "transposed"}
        | {"last": "leave", "head": "replicated"},
        images,
    ),
}


def made(example: Example) -> nn.Module:
    """The user's module, the same on every rank."""
    torch.manual_seed(0)
    return example.make().double()


def loss_of(out: Tensor) -> Tensor:
    """Give this rank's part of a mean over the whole batch."""
    return out.square().sum() / (BATCH * out[0].numel())


def compare(example: Example, grid: Grid) -> float:
    """Largest difference of results and gradients, relative, on this rank."""
    module = made(example)
    registry = Registry(grid, 0, torch.float64)
    engine = Engine(Comm(grid), registry, Overlap())
    new = parallelize(module, engine, example.rules)
    share = BATCH // (grid["z"].size * grid["data"].size)
    first = (grid["data"].index * grid["z"].size + grid["z"].index) * share
    want, worst = module(example.data()), 0.0
    loss_of(want).backward()
    gradients = {n: p.grad for n, p in module.named_parameters(remove_duplicate=False)}
    for _ in range(2):  # the second time with what the first one recorded
        new.zero_grad()
        engine.start()
        got = new(example.data()[first : first + share])
        loss_of(got).backward()
        engine.finish()
        worst = max(
            worst, float((got - want[first : first + share]).abs().max() / want.abs().max())
        )
        for parameter, placement in registry.placements.items():
            index, wanted = placement.index(), gradients[placement.name]
            assert parameter.grad is not None
            assert wanted is not None
            apart = parameter.grad.view(-1)[index >= 0] - wanted.view(-1)[index[index >= 0]]
            if apart.numel():
                worst = max(worst, float(apart.abs().max() / wanted.abs().max()))
    return worst


def main(rank: int, world: int, folder: str, shapes: list[GridShape]) -> None:
    """Compare all examples on all grids; rank 0 writes the largest differences."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    worst = {}
    for shape in shapes:
        grid = Grid(shape)
        for name, example in EXAMPLES.items():
            apart = torch.tensor([compare(example, grid)], dtype=torch.float64)
            dist.all_reduce(apart, op=dist.ReduceOp.MAX)
            worst[f"{name} on {shape}"] = float(apart)
    if rank == 0:
        Path(folder, "results").write_text(json.dumps(worst))
    dist.destroy_process_group()
