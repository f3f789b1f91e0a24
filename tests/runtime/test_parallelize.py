"""A user's own module runs on a grid and computes what it computed, or is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch import Tensor, nn  # noqa: E402

from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.overlap import Engine, Overlap  # noqa: E402
from runtime.parallelize import parallelize  # noqa: E402
from runtime.sharding import Registry  # noqa: E402
from tests.runtime import parallelized  # noqa: E402


def test_results_and_gradients_are_those_of_the_users_module(tmp_path: Path) -> None:
    """Tied heads, residuals, concatenations and whole layers, on grids of four ranks."""
    shapes = [
        GridShape(x=4),
        GridShape(y=4),
        GridShape(x=2, y=2),
        GridShape(y=2, z=2),
        GridShape(x=2, data=2),
    ]
    torch.multiprocessing.spawn(parallelized.main, (4, str(tmp_path), shapes), nprocs=4)
    worst = json.loads((tmp_path / "results").read_text())
    assert len(worst) == len(shapes) * len(parallelized.EXAMPLES)
    assert {name: apart for name, apart in worst.items() if apart > 1e-13} == {}


def engine() -> Engine:
    """Of one rank, whose layouts are followed as on any grid."""
    grid = Grid(GridShape(), alone=True)
    return Engine(Comm(grid), Registry(grid, 0), Overlap())


class Two(nn.Module):
    """Two linear layers with something between them."""

    def __init__(self, between: nn.Module | None = None) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.between = between or nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 8) to (B, 8)."""
        out: Tensor = self.two(self.between(self.one(x)))
        return out


class Odd(Two):
    """The same with another forward."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "parameter":
            self.scale = nn.Parameter(torch.ones(8))
        if kind == "unused":
            self.third = nn.Linear(8, 8)
        if kind == "tied":
            self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        """Whatever its kind says."""
        y: Tensor = self.one(x)
        if self.kind == "branch" and y.sum() > 0:
            return y
        if self.kind == "softmax":
            y = y.softmax(-1)
        if self.kind == "reshape":
            y = y.reshape(-1, 4, 2).flatten(1)
        if self.kind == "batch":
            y = torch.cat([y, y], 0)
        if self.kind == "join":
            y = x + y
        out: Tensor = self.two(y)
        return out * self.scale if self.kind == "parameter" else out


CHAIN = {"one": "normal", "two": "transposed"}


@pytest.mark.parametrize(
    ("module", "rules", "message"),
    [
        (
            Two(),
            {"*": "normal"},
            "two: its input between is in layout y .* but it takes in layout x",
        ),
        (Two(), {"one": "normal"}, r"two \(Linear\): it has parameters .* no rule names it"),
        (Two(), {"one": "split"}, "rule 'one': 'split': choose from normal"),
        (Two(), {**CHAIN, "three": "normal"}, "rule 'three': no layer has such a name"),
        (Two(nn.Dropout(0.1)), CHAIN, "between .*Dropout.*: torch draws its masks"),
        (Two(nn.BatchNorm1d(8)), CHAIN, "between .BatchNorm1d.: it has parameters or buffers"),
        (Two(nn.BatchNorm1d(8)), {**CHAIN, "*": "normal"}, "between .*not known how to split"),
        (Two(nn.Softmax(-1)), CHAIN, "between: .*Softmax. is not known to be exact"),
        (Two(nn.LayerNorm(8)), {**CHAIN, "between": "normal"}, "its rule is 'follow'"),
        (Two(nn.LayerNorm(8)), {**CHAIN, "between": "replicated"}, "input is in layout y"),
        (Odd("branch"), CHAIN, "cannot be traced"),
        (Odd("softmax"), CHAIN, "softmax: softmax is not known to work on each feature"),
        (Odd("reshape"), CHAIN, "reshape: reshape is not known"),
        (Odd("batch"), CHAIN, "cat: cat concatenates samples"),
        (Odd("join"), CHAIN, "joins a value whole on every rank with one in layout y"),
        (Odd("parameter"), CHAIN, "scale: a parameter that forward uses directly"),
        (Odd("unused"), CHAIN, "third.weight: forward never uses this parameter"),
        (Odd("tied"), CHAIN, "one.weight and two.weight are one parameter"),
    ],
)
def test_what_cannot_be_exact_is_refused_in_words(
    module: nn.Module, rules: dict[str, str], message: str
) -> None:
    """The message names the place, what is wrong there, and what to do."""
    with pytest.raises(ValueError, match=message):
        parallelize(module, engine(), rules)


def test_the_users_module_stays_as_it_is() -> None:
    """Its weights are copied, its layers not replaced."""
    module = Two()
    before = {n: p.clone() for n, p in module.named_parameters()}
    new = parallelize(module, engine(), CHAIN)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.zero_()
    assert type(module.one) is nn.Linear
    assert all(torch.equal(before[n], p) for n, p in module.named_parameters())
