"""The runtime on a grid computes what one process computes, to rounding in fp64.

A selection; ``benchmarks/exactness.py`` runs every placement of 8 and 6 ranks.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from runtime.grid import GridShape  # noqa: E402
from runtime.models import GPTConfig, MLPConfig, ModelConfig, UNetConfig  # noqa: E402
from tests.runtime.exactness import Case, on_grid, run, serial_job, step  # noqa: E402

LIMIT = 1e-12
TIED = GPTConfig(layers=1, features=24, heads=4, kv_heads=4, vocabulary=94, length=8, dropout=0.1)
GROUPED = GPTConfig(
    layers=1, features=24, heads=8, kv_heads=2, vocabulary=94, length=8, tied=False, rms=True
)
MLP = MLPConfig(layers=3, dropout=0.1)
UNET = UNetConfig(image=4, heads=4, groups=4, dropout=0.1)
SHAPES = (
    GridShape(x=4),
    GridShape(y=4),
    GridShape(z=4),
    GridShape(data=4),
    GridShape(x=2, y=2, order=("y", "x", "z", "data")),
    GridShape(x=2, z=2, order=("data", "z", "y", "x")),
    GridShape(y=2, data=2),
    GridShape(z=2, data=2),
)
#: overlaps, recomputation, micro-batches
WAYS = (("none", "none", 1), ("all", "full", 2), ("ors,bucket", "selective", 2))
#: the convolutions' own part of the grids; each case takes a second
UNET_SHAPES = (SHAPES[0], SHAPES[4], GridShape(y=2, z=2))


def test_losses_gradients_and_volumes_are_those_of_the_serial_model(tmp_path: Path) -> None:
    """With overlaps off and on, checkpointing, accumulation, dropout; two AdamW steps."""
    cases = [Case(s, c, *w, steps=2) for s, c, w in product(SHAPES, (TIED, GROUPED), WAYS[:2])]
    cases += [Case(s, MLP, *w, steps=2) for s, w in product(SHAPES[4:], WAYS[:2])]
    cases += [Case(s, UNET, *w, steps=1) for s, w in product(UNET_SHAPES, WAYS[:2])]
    cases += [Case(SHAPES[5], c, *WAYS[2], steps=1) for c in (TIED, MLP, UNET)]
    # more and fewer micro-batches than the step before: no guess of the overlaps may matter
    cases += [Case(s, TIED, *WAYS[1], steps=4, alternate=True) for s in (SHAPES[6], SHAPES[7])]
    for case, result in zip(cases, run(4, tmp_path, cases), strict=True):
        assert result.gradient <= LIMIT, case
        assert result.loss <= LIMIT, case
        assert result.volume == "", case


@pytest.mark.parametrize("config", [TIED, MLP, UNET], ids=["GPT", "MLP", "U-Net"])
def test_dropout_changes_the_loss_by_step_and_not_by_micro_batches(config: ModelConfig) -> None:
    """Masks depend on the step and the samples; without training there are none."""
    job, case = serial_job(config)
    first, second = step(job, case), step(job, case)
    assert abs(first - second) > 1e-6
    parts, _ = serial_job(config)
    assert step(parts, Case(case.shape, config, micro_batches=4, batch=4)) == pytest.approx(
        first, rel=1e-14
    )
    job.model.eval()
    assert step(job, case) == step(job, case)


def test_dropout_without_sample_indices_is_refused() -> None:
    """The message says where they belong."""
    job, case = serial_job(TIED)
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"dropout needs the global sample index .* batch\['samp"):
        job.model({"tokens": tokens, "targets": tokens}, torch.tensor(16))
    assert case.batch == 4


@pytest.mark.parametrize(
    ("shape", "config", "message"),
    [
        (GridShape(y=3), TIED, "4 query and 4 key-value heads do not divide over y = 3"),
        (GridShape(y=16), GROUPED, "8 query and 2 key-value heads do not divide over y = 16"),
        (GridShape(x=5), MLP, "inputs of 48 does not divide over 5 ranks"),
        (GridShape(x=8, y=8), UNET, r"of 24 does not divide over x \* y = 8 \* 8"),
    ],
)
def test_what_does_not_divide_is_refused_in_words(
    shape: GridShape, config: ModelConfig, message: str
) -> None:
    """The message names the layer, the sizes and the axis."""
    with pytest.raises(ValueError, match=message):
        on_grid(config, shape)


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
