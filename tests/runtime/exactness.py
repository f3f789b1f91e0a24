"""One process of a job that compares models on many grids with the model of one process."""

from __future__ import annotations

import json
import os
import sys
import warnings
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from runtime import data_parallel  # noqa: E402
from runtime.comm import Comm  # noqa: E402
from runtime.data import SyntheticImages  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.loss import IGNORED  # noqa: E402
from runtime.models import GPTConfig, MLPConfig, ModelConfig, build  # noqa: E402
from runtime.optim import GlobalNorm  # noqa: E402
from runtime.overlap import Engine, Overlap  # noqa: E402
from runtime.sharding import Registry  # noqa: E402
from runtime.volume import clipping_volume, step_volume  # noqa: E402

STEPS = 5


@dataclass(frozen=True)
class Case:
    """What is compared with the serial model.

    Attributes
    ----------
    batch : int
        Samples of a step over all ranks.
    steps : int
        Optimizer steps; with 0 only the loss and the gradients are compared.
    alternate : bool
        Whether every second step takes a rank's samples at once, whatever ``micro_batches``.
    """

    shape: GridShape
    config: ModelConfig
    overlap: str = "all"
    recompute: str = "none"
    micro_batches: int = 1
    batch: int = 8
    steps: int = STEPS
    alternate: bool = False


@dataclass(frozen=True)
class Result:
    """Largest differences of a case over all ranks, relative; the volume's mistakes in words."""

    gradient: float
    loss: float
    volume: str = ""


@dataclass
class Job:
    """A model on a grid."""

    engine: Engine
    model: nn.Module

    @property
    def registry(self) -> Registry:
        """Its parameters."""
        return self.engine.registry


def job_of(case: Case, grid: Grid) -> Job:
    """The model on a grid."""
    registry = Registry(grid, 0, torch.float64)
    engine = Engine(Comm(grid), registry, Overlap.parse(case.overlap), case.recompute)
    return Job(engine, build(engine, case.config))


def serial_job(config: ModelConfig, recompute: str = "none") -> tuple[Job, Case]:
    """A model in this process alone, and a batch of 4 for it."""
    case = Case(GridShape(), config, "all", recompute, batch=4)
    return job_of(case, Grid(GridShape(), alone=True)), case


def on_grid(config: ModelConfig, shape: GridShape) -> Job:
    """A model as rank 0 of a grid would build it, in this process alone."""
    grid = Grid(GridShape(), alone=True)
    for name, axis in grid.axes.items():
        object.__setattr__(axis, "size", shape.size(name))
    return job_of(Case(shape, config), grid)


def batch_of(case: Case) -> tuple[dict[str, Tensor], Tensor]:
    """The whole batch and its number of valid targets, the same on every rank."""
    by = torch.Generator().manual_seed(1)
    config, size = case.config, case.batch
    batch = {"samples": torch.arange(size)}
    if isinstance(config, GPTConfig):
        tokens = torch.randint(0, config.vocabulary, (size, config.length + 1), generator=by)
        batch |= {"tokens": tokens[:, :-1], "targets": tokens[:, 1:].clone()}
        batch["targets"][0, 3] = IGNORED
    elif isinstance(config, MLPConfig):
        batch["x"] = torch.randn(size, config.inputs, generator=by, dtype=torch.float64)
        batch["targets"] = torch.randint(0, config.classes, (size,), generator=by)
        batch["targets"][1] = IGNORED
    else:
        images = SyntheticImages(0, config.image, config.colours, config.levels)
        batch |= images.samples(batch["samples"], held_out=False)
        return batch, torch.tensor(size)
    return batch, (batch["targets"] != IGNORED).sum()


def step(job: Job, case: Case) -> float:
    """Forward and backward over the whole batch; the loss of all ranks."""
    engine, grid = job.engine, job.engine.comm.grid
    batch, num_valid = batch_of(case)
    share = case.batch // (grid["z"].size * grid["data"].size)
    first = (grid["data"].index * grid["z"].size + grid["z"].index) * share
    mine = {k: v[first : first + share].chunk(case.micro_batches) for k, v in batch.items()}
    engine.start()
    loss = torch.zeros(1, dtype=torch.float64)
    for i in range(case.micro_batches):
        with engine.comm.during("forward"):
            own = job.model({k: v[i] for k, v in mine.items()}, num_valid)
        with engine.comm.during("backward"):
            own.backward()
        loss += own.detach()
    engine.finish()
    engine.comm.step += 1
    return float(engine.comm.sum_over(loss, ("z", "data"), "report"))


def train(job: Job, case: Case) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of some steps and the first gradient's norm, and its parts by name."""
    losses = [step(job, case)]
    losses.append(GlobalNorm(job.registry, job.engine.comm, "2")())
    placements = job.registry.placements
    first = {p.name: w.grad.clone() for w, p in placements.items() if w.grad is not None}
    optimizer = torch.optim.AdamW(job.model.parameters(), lr=1e-3)
    for at in range(case.steps):
        optimizer.step()
        optimizer.zero_grad()
        once = case.alternate and at % 2 == 0
        losses.append(step(job, replace(case, micro_batches=1) if once else case))
    return losses, first


def serial(case: Case, folder: str) -> tuple[list[float], dict[str, Tensor]]:
    """The same of one process: rank 0 computes it once, the others read it."""
    alone = replace(
        case,
        shape=GridShape(),
        overlap="none",
        recompute="none",
        micro_batches=1,
        alternate=False,
    )
    path = Path(folder, f"serial-{zlib.crc32(repr(alone).encode())}.pt")
    if not path.exists() and dist.get_rank() == 0:
        torch.save(train(job_of(alone, Grid(GridShape(), alone=True)), alone), path)
    dist.barrier()
    losses, gradients = torch.load(path)
    return losses, gradients


def difference(job: Job, got: dict[str, Tensor], want: dict[str, Tensor]) -> float:
    """Largest difference of a gradient's elements, over the tensor's largest one."""
    largest = max(float(g.abs().max()) for g in want.values())
    worst = 0.0
    assert {p.name for p in job.registry.placements.values()} == set(want)
    for placement in job.registry.placements.values():
        index = placement.index()
        real = index >= 0
        own, serial_one = got[placement.name].view(-1), want[placement.name].view(-1)
        assert not own[~real].any(), f"{placement.name}: padding has a gradient"
        if real.any():
            apart = float((own[real] - serial_one[index[real]]).abs().max())
            scale = max(float(serial_one.abs().max()), 1e-12 * largest)
            worst = max(worst, apart / scale)
    return worst


def wrong_volume(job: Job, case: Case) -> str:
    """Where the bytes sent differ from the formulas, in words; empty if nowhere."""
    shape, ranks = case.shape, case.shape.z * case.shape.data
    want = step_volume(
        case.config,
        shape,
        case.batch // ranks,
        micro_batches=case.micro_batches,
        recompute=case.recompute,
        bytes_each=8,
    )
    for axis in ("z", "data"):
        if shape.size(axis) > 1:
            want[axis, "all_reduce", "report"] = 8
    whole = {key: size * (case.steps + 1) for key, size in want.items()}
    whole |= clipping_volume(shape)  # done once
    got = job.engine.comm.volume
    wrong = [
        f"{'/'.join(key)} sent {got[key]} not {whole.get(key, 0)}"
        for key in sorted(whole.keys() | got.keys())
        if got[key] != whole.get(key, 0)
    ]
    return "; ".join(wrong)


def compare(case: Case, grid: Grid, folder: str) -> Result:
    """Run one case on this rank; the largest differences of all ranks."""
    want_losses, want = serial(case, folder)
    job = job_of(case, grid)
    losses, got = train(job, case)
    volume = "" if case.alternate else wrong_volume(job, case)
    loss = max(abs(a - b) / abs(b) for a, b in zip(losses, want_losses, strict=True))
    mistakes = [difference(job, got, want), loss, float(bool(volume))]
    worst = torch.tensor(mistakes, dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if worst[2] and not volume:
        volume = "wrong on another rank"
    return Result(float(worst[0]), float(worst[1]), volume)


def main(rank: int, world: int, folder: str, cases: list[Case], progress: bool) -> None:
    """Run every case on this rank; rank 0 writes the results, a line of JSON for each case."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    data_parallel.BUCKET_BYTES = 4096  # several buckets in models this small
    store = f"file://{folder}/store-{os.getppid()}-{len(cases)}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    grids: dict[GridShape, Grid] = {}
    for at, case in enumerate(cases, start=1):
        if case.shape not in grids:
            grids[case.shape] = Grid(case.shape)
        result = compare(case, grids[case.shape], folder)
        if rank == 0:
            with Path(folder, "results").open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            if progress:
                sys.stderr.write(f"\r{at} of {len(cases)}")
    dist.destroy_process_group()


def run(world: int, folder: Path, cases: list[Case], *, progress: bool = False) -> list[Result]:
    """Compare all cases in one job of so many processes; those the folder has results of stay."""
    path = folder / "results"
    done = len(path.read_text().splitlines()) if path.exists() else 0
    rest = cases[done:]
    if rest:
        torch.multiprocessing.spawn(main, (world, str(folder), rest, progress), nprocs=world)
    lines = path.read_text().splitlines()
    assert len(lines) == len(cases)
    return [Result(**json.loads(line)) for line in lines]
