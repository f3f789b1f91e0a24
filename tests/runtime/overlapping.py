"""One process of a job that notes the order in which a step gathers, computes and reduces."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402

from runtime import data_parallel  # noqa: E402
from runtime.comm import Comm, Handle  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.linear import Linear  # noqa: E402
from runtime.overlap import Engine  # noqa: E402
from tests.runtime.exactness import Case, Job, batch_of, job_of, step  # noqa: E402


class Diary:
    """What happened, in order: [what, layer or kind, phase]."""

    def __init__(self, job: Job) -> None:
        self.events: list[list[str]] = []
        self.comm = job.engine.comm
        for name in ("all_reduce", "all_gather", "reduce_scatter"):
            self._watch(self.comm, name)
        self._note_calls(job.engine, "gather", "use", lambda p: self._name(job, p))
        self._note_calls(job.engine, "reduce", "weight product done", lambda p: self._name(job, p))
        for module in job.model.modules():
            if isinstance(module, Linear):
                self._note_calls(module, "weight_gradients", "weight product", None, module.name)

    def _name(self, job: Job, parameter: Any) -> str:
        return job.registry.placements[parameter].name

    def _watch(self, comm: Comm, name: str) -> None:
        real = getattr(comm, name)

        def noting(*args: Any, layer: str = "", **options: Any) -> Handle:
            self.events.append([f"issue {name}", layer, comm.phase])
            handle: Handle = real(*args, layer=layer, **options)
            wait = handle.wait

            def waiting() -> Any:
                self.events.append([f"wait {name}", layer, comm.phase])
                return wait()

            handle.wait = waiting  # type: ignore[method-assign]
            return handle

        setattr(comm, name, noting)

    def _note_calls(
        self, owner: Engine | Linear, name: str, what: str, label: Any, fixed: str = ""
    ) -> None:
        real = getattr(owner, name)

        def noting(*args: Any) -> Any:
            text = label(args[0]) if label else fixed
            self.events.append([what, text, self.comm.phase])
            return real(*args)

        object.__setattr__(owner, name, noting)


def main(rank: int, world: int, folder: str, cases: dict[str, Case]) -> None:
    """Write the events of each case's third step on rank 0; an evaluation lies before it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    data_parallel.BUCKET_BYTES = 1  # a bucket for each parameter
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    found, grids = {}, {}
    for name, case in cases.items():
        grid = grids.setdefault(case.shape, None) or Grid(case.shape)
        grids[case.shape] = grid
        job = job_of(case, grid)
        diary = Diary(job)
        step(job, case)
        step(job, case)
        evaluate(job, case)
        diary.events.clear()
        step(job, case)
        found[name] = diary.events
    if rank == 0:
        Path(folder, "results").write_text(json.dumps(found))
    dist.destroy_process_group()


def evaluate(job: Job, case: Case) -> None:
    """Forward alone, as between steps."""
    batch, num_valid = batch_of(case)
    with torch.no_grad(), job.engine.comm.during("evaluation"):
        for _ in range(2):
            job.model(batch, num_valid)


def run(world: int, folder: Path, cases: dict[str, Case]) -> dict[str, list[list[str]]]:
    """The events of each case."""
    torch.multiprocessing.spawn(main, (world, str(folder), cases), nprocs=world)
    found: dict[str, list[list[str]]] = json.loads((folder / "results").read_text())
    return found


def shape_of(axis: str) -> GridShape:
    """Two ranks on one axis."""
    return GridShape(**{axis: 2})
