"""The models are those of plain torch, and what is said of them in numbers is true."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from runtime.grid import GridShape  # noqa: E402
from runtime.models import (  # noqa: E402
    PRESETS,
    GPTConfig,
    MLPConfig,
    ModelConfig,
    UNetConfig,
)
from runtime.sharding import Placement  # noqa: E402
from tests.runtime import plain  # noqa: E402
from tests.runtime.exactness import (  # noqa: E402
    Case,
    Job,
    batch_of,
    on_grid,
    serial_job,
    step,
)

CONFIGS: dict[str, ModelConfig] = {
    "GPT tied": GPTConfig(layers=2, features=24, heads=4, kv_heads=4, vocabulary=31, length=8),
    "GPT grouped": GPTConfig(
        layers=1, features=24, heads=8, kv_heads=2, vocabulary=31, length=8, tied=False, rms=True
    ),
    "MLP": MLPConfig(layers=3),
    "U-Net": UNetConfig(image=8, channels=12, multipliers=(1, 2), groups=3, heads=4),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_models_are_those_of_plain_torch(name: str) -> None:
    """The same weights give the same loss and gradients in a model written with torch.nn alone."""
    job, case = serial_job(CONFIGS[name])
    theirs = plain.build(case.config)
    named = plain.parameters(theirs)
    placements = job.registry.placements
    assert set(named) == {p.name for p in placements.values()}
    with torch.no_grad():
        for parameter, placement in placements.items():
            assert tuple(named[placement.name].shape) == placement.shape
            named[placement.name].copy_(parameter.view(placement.shape))
    loss = theirs(batch_of(case)[0])
    loss.backward()
    assert step(job, case) == pytest.approx(float(loss.detach()), rel=1e-13)
    largest = max(float(p.grad.abs().max()) for p in named.values() if p.grad is not None)
    for parameter, placement in placements.items():
        wanted = named[placement.name].grad
        assert wanted is not None
        assert parameter.grad is not None
        apart = float((parameter.grad - wanted.reshape(-1)).abs().max())
        assert apart <= 1e-12 * max(float(wanted.abs().max()), 1e-12 * largest), placement.name


@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
@pytest.mark.parametrize("name", CONFIGS)
def test_flops_are_those_torch_counts(name: str, recompute: str) -> None:
    """``flops`` equals what torch's counter sees of a training step's products."""
    job, case = serial_job(CONFIGS[name], recompute)
    # the counter knows the matrix products, not every fused kernel of attention
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step(job, case)
    wanted = case.config.flops(case.batch, recompute)
    if recompute == "selective":  # unlike the fused kernel this one needs no values' product again
        wanted -= (wanted - case.config.flops(case.batch)) // 2
    assert counter.get_total_flops() == wanted


@pytest.mark.parametrize("name", PRESETS)
def test_presets_fit_grids_of_six_and_eight(name: str) -> None:
    """Each preset can be built on any place of any grid of 6 or 8 ranks without a group."""
    for shape in (
        GridShape(x=8),
        GridShape(y=8),
        GridShape(x=2, y=4),
        GridShape(x=3, y=2),
        GridShape(y=6),
    ):
        config = replace(PRESETS[name], **smaller(PRESETS[name]))
        job = on_grid(config, shape)
        assert sum(p.numel() for p in job.model.parameters()) > 0


def smaller(config: ModelConfig) -> dict[str, int]:
    """What makes a preset quick to build and is not split."""
    return {"layers": 2} if not isinstance(config, UNetConfig) else {"image": 4}


def test_no_rank_makes_more_than_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Initialisation makes no tensor larger than the rank's largest part."""
    largest = []
    index = Placement._index

    def counted(self: Placement, first: int, last: int) -> torch.Tensor:
        found = index(self, first, last)
        largest.append(found.numel())
        return found

    monkeypatch.setattr(Placement, "_index", counted)
    config = GPTConfig(layers=1, features=96, heads=8, kv_heads=8, vocabulary=960, tied=False)
    job = on_grid(config, GridShape(x=2, y=2, z=8))
    parts = [p.numel() for p in job.model.parameters()]
    assert max(largest) == max(parts) == 960 * 96 // 32
    whole = on_grid(config, GridShape())
    assert max(p.numel() for p in whole.model.parameters()) == 960 * 96


def test_two_models_in_one_process_do_not_disturb_each_other() -> None:
    """Steps of two models in turn give the losses that each gives alone."""
    alone = {}
    for name in ("GPT tied", "U-Net"):
        job, case = serial_job(CONFIGS[name], "full")
        alone[name] = [update(job, case) for _ in range(3)]
    pair = {name: serial_job(CONFIGS[name], "full") for name in alone}
    together = {name: [] for name in alone}
    for _ in range(3):
        for name, (job, case) in pair.items():
            together[name].append(update(job, case))
    assert together == alone


def update(job: Job, case: Case) -> float:
    """A step of plain gradient descent; its loss."""
    loss = step(job, case)
    with torch.no_grad():
        for parameter in job.model.parameters():
            assert parameter.grad is not None
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
    return loss
