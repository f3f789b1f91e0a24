"""A step of the optimizer is AdamW's, with exact clipping, and survives an overflow."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch import nn  # noqa: E402

from runtime.comm import Comm  # noqa: E402
from runtime.config import OptimizerSettings, PrecisionSettings, ScheduleSettings  # noqa: E402
from runtime.grid import Axis, Grid, GridShape  # noqa: E402
from runtime.optim import GlobalNorm, Optimizer, Shards, learning_rate  # noqa: E402
from runtime.sharding import Placement, Registry  # noqa: E402

FP64, FP16 = PrecisionSettings(dtype="fp64"), PrecisionSettings(dtype="fp16", scale_window=3)


def registry(**sizes: tuple[int, ...]) -> Registry:
    """Parameters of ones, of some shapes."""
    made = Registry(Grid(GridShape(), alone=True), 0, torch.float64)
    for name, shape in sizes.items():
        rows, cols = torch.arange(shape[0]), torch.arange(shape[1] if len(shape) > 1 else 1)
        made.constant(Placement(name, shape, rows, cols), 1.0)
    return made


def optimizer(made: Registry, precision: PrecisionSettings = FP64, **settings: object) -> Optimizer:
    """An optimizer of one rank."""
    return Optimizer(made, Comm(made.grid), OptimizerSettings(**settings), precision)  # type: ignore[arg-type]


def test_a_step_is_adamw_with_decay_of_matrices_alone() -> None:
    """First step by hand: a gradient of any size moves by lr, matrices shrink by lr * decay."""
    made = registry(matrix=(2, 2), vector=(3,))
    for parameter in made.placements:
        parameter.grad = torch.full_like(parameter, 5.0)
    optimizer(made, clip=0.0, weight_decay=0.5, eps=0.0).step(0.1)
    matrix, vector = made.placements
    assert torch.allclose(matrix.detach(), torch.tensor(1.0 * (1 - 0.1 * 0.5) - 0.1).double())
    assert torch.allclose(vector.detach(), torch.tensor(1.0 - 0.1).double())
    assert matrix.grad is None


@pytest.mark.parametrize(("order", "expected"), [("2", 5.0), ("inf", 4.0)])
def test_the_norm_leaves_padding_out(order: str, expected: float) -> None:
    """A block padded over z: what stands in the padding does not count."""
    grid = Grid(GridShape(), alone=True)
    made = Registry(grid, 0, torch.float64)
    placement = Placement("w", (1, 3), torch.tensor([0]), torch.arange(3), z_index=1, z_size=2)
    parameter = made.constant(placement, 0.0)
    parameter.grad = torch.tensor([3.0, 100.0], dtype=torch.float64)  # one real, one padding
    other = made.constant(Placement("v", (1,), torch.tensor([0]), torch.tensor([0])), 0.0)
    other.grad = torch.tensor([4.0], dtype=torch.float64)
    assert GlobalNorm(made, Comm(grid), order)() == expected


def test_clipping_scales_the_whole_gradient() -> None:
    """Moments after one step show the gradient that was used: 3, 4 clipped to norm 1."""
    made = registry(a=(1,), b=(1,))
    for parameter, value in zip(made.placements, (3.0, 4.0), strict=True):
        parameter.grad = torch.tensor([value], dtype=torch.float64)
    one = optimizer(made, clip=1.0, beta1=0.0)
    assert one.step(0.1) == 5.0
    used = [float(one.moments(p)["exp_avg"]) for p in one.pieces]
    assert used == pytest.approx([0.6, 0.8])


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    """fp16: parameters stay, the scale halves; after enough good steps it doubles again."""
    made = registry(a=(2,))
    (parameter,) = made.placements
    one = optimizer(made, FP16, clip=0.0)
    parameter.grad = torch.tensor([float("inf"), 0.0], dtype=torch.float64)
    one.step(0.1)
    assert one.scale == 32768.0
    assert parameter.tolist() == [1.0, 1.0]
    for good in range(3):
        assert one.scale == 32768.0, good
        parameter.grad = torch.full_like(parameter, 2.0 * one.scale)
        assert one.step(0.1) == pytest.approx(2.0 * 2**0.5)
    assert one.scale == 65536.0


def test_a_gradient_that_is_not_finite_stops_the_run() -> None:
    """Without loss scaling there is no mending it, and nothing is spoilt."""
    made = registry(a=(2,))
    (parameter,) = made.placements
    parameter.grad = torch.tensor([float("nan"), 0.0], dtype=torch.float64)
    with pytest.raises(FloatingPointError, match="try a lower --lr"):
        optimizer(made).step(0.1)
    assert parameter.tolist() == [1.0, 1.0]


def test_shards_hold_each_element_once() -> None:
    """With ZeRO the pieces of three data ranks are all elements, each once, evenly."""
    made = registry(a=(5, 2), b=(3,), c=(7,))
    sizes: dict[nn.Parameter, list[tuple[int, int]]] = {p: [] for p in made.placements}
    counts = []
    for index in range(3):
        comm = Comm(made.grid)
        made.grid.axes["data"] = Axis("data", 3, index, (0, 1, 2), None)
        pieces = Shards(made, comm, zero=True).pieces
        counts.append(sum(p.stop - p.start for p in pieces))
        for piece in pieces:
            sizes[piece.parameter].append((piece.start, piece.stop))
    assert counts == [7, 7, 6]
    for parameter, cuts in sizes.items():
        covered = [i for start, stop in sorted(cuts) for i in range(start, stop)]
        assert covered == list(range(parameter.numel()))


def test_the_schedule_warms_up_and_ends_at_its_floor() -> None:
    """Linear up over the warmup, at its highest after it, at the floor after the last step."""
    rule = ScheduleSettings(warmup=4, floor=0.2)
    rates = [learning_rate(s, 20, 2.0, rule) for s in range(21)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates[20] == pytest.approx(0.4)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    constant = ScheduleSettings(kind="constant", warmup=0)
    assert [learning_rate(s, 3, 2.0, constant) for s in range(3)] == [2.0, 2.0, 2.0]
