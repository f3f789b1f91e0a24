"""The runtime on a grid computes what one process computes, to rounding in fp64."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from runtime.grid import GridShape  # noqa: E402
from runtime.models.gpt import GPTConfig  # noqa: E402
from tests.runtime import exactness  # noqa: E402

SHAPES = [
    GridShape(x=4),
    GridShape(y=4),
    GridShape(z=4),
    GridShape(data=4),
    GridShape(x=2, y=2),
    GridShape(x=2, z=2, order=("data", "z", "y", "x")),
    GridShape(y=2, data=2),
    GridShape(z=2, data=2),
]
TIED = GPTConfig(layers=1, features=24, heads=4, kv_heads=4, vocabulary=94)
GROUPED = GPTConfig(layers=1, features=24, heads=8, kv_heads=4, tied=False, rms=True)
#: overlap and micro-batches
WAYS = [("none", 1), ("all", 2)]


def test_losses_and_gradients_equal_the_serial_model(tmp_path: Path) -> None:
    """On every grid, with overlaps off and on, the loss and each gradient are the serial ones."""
    cases = [(s, c, *w) for s, c, w in product(SHAPES, (TIED, GROUPED), WAYS)]
    torch.multiprocessing.spawn(exactness.main, (4, str(tmp_path), cases), nprocs=4)
    lines = (tmp_path / "results").read_text().splitlines()
    assert len(lines) == len(cases)
    for case, line in zip(cases, lines, strict=True):
        gradient, loss = map(float, line.split())
        assert gradient <= 1e-12, case
        assert loss <= 1e-12, case


def test_a_grid_that_does_not_fill_the_job_is_refused() -> None:
    """The message names each degree, the rule and the world size."""
    with pytest.raises(ValueError, match=r"x=2, y=1, z=1, data=2: x \* y \* z \* data = 4 .* 6"):
        GridShape(x=2, data=2).check(6)


@pytest.mark.parametrize("order", [("x", "y", "z", "data"), ("data", "z", "y", "x")])
def test_ranks_and_places_are_one_to_one(order: tuple[str, ...]) -> None:
    """Every rank has a place of its own, and the place gives the rank back."""
    shape = GridShape(x=2, y=3, z=2, data=2, order=order)
    assert [shape.rank(shape.coords(r)) for r in range(24)] == list(range(24))
    assert shape.members(order[0], shape.coords(0)) == tuple(range(shape.size(order[0])))
