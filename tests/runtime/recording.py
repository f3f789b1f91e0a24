"""Processes that record loops, and what a recorded trace says."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.profiler import schedule  # noqa: E402

import runtime  # noqa: E402
from runtime import data_parallel  # noqa: E402
from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.models import GPTConfig, build  # noqa: E402
from runtime.overlap import Engine, Overlap  # noqa: E402
from runtime.sharding import Registry  # noqa: E402

CONFIG = GPTConfig(layers=2, features=96, heads=4, kv_heads=4, length=32, vocabulary=96)
BATCH = 8


def joined(rank: int, world: int, folder: str, job: Callable[..., None], *args: Any) -> None:
    """Run a job in one process of several."""
    os.environ["KINETO_LOG_LEVEL"] = "99"
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        job(folder, *args)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def run(folder: Path, world: int, job: Callable[..., None], *args: Any) -> None:
    """Run a job in several processes and wait for their end."""
    torch.multiprocessing.spawn(joined, (world, str(folder), job, *args), nprocs=world)


class Loop:
    """A GPT on a grid that trains on one batch."""

    def __init__(self, grid: Grid, overlap: str) -> None:
        self.comm = Comm(grid)
        self.engine = Engine(self.comm, Registry(grid, 0), Overlap.parse(overlap))
        self.model: nn.Module = build(self.engine, CONFIG)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        by = torch.Generator().manual_seed(1)
        tokens = torch.randint(0, CONFIG.vocabulary, (BATCH, CONFIG.length + 1), generator=by)
        z, data = grid["z"], grid["data"]
        share = BATCH // (z.size * data.size)
        first = (data.index * z.size + z.index) * share
        own = tokens[first : first + share]
        self.batch = {
            "samples": torch.arange(first, first + share),
            "tokens": own[:, :-1],
            "targets": own[:, 1:],
        }

    def step(self, rec: runtime.Recorder) -> None:
        """One training step."""
        self.engine.start()
        self.optimizer.zero_grad()
        with rec.phase("forward"):
            loss = self.model(self.batch, torch.tensor(BATCH * CONFIG.length))
        with rec.phase("backward"):
            loss.backward()
            self.engine.finish()
        with rec.phase("optimizer"):
            self.optimizer.step()
        rec.step()


def train(folder: str, cases: list[tuple[str, str, str, str]], steps: int) -> None:
    """Record some steps of each (name, grid, overlap, mode), after two that are not."""
    data_parallel.BUCKET_BYTES = 1 << 16  # several buckets of so small a model
    for name, shape, overlap, mode in cases:
        loop = Loop(Grid(GridShape.parse(shape)), overlap)
        window = schedule(wait=1, warmup=1, active=steps, repeat=1)
        names = [] if overlap == "none" else overlap.split(",")
        with runtime.record(
            Path(folder, name), schedule=window, mode=mode, comm=loop.comm, overlap=names
        ) as rec:
            for i in range(2 + steps):
                if i == 2:
                    before = Counter(loop.comm.volume)
                loop.step(rec)
        sent: Counter[str] = Counter()
        for (group, op, _), size in (loop.comm.volume - before).items():
            sent[f"{group} {op}"] += size
        Path(folder, f"{name}-{dist.get_rank()}.json").write_text(json.dumps(sent))


# -- what was recorded ------------------------------------------------------------------------


def trace(folder: Path, rank: int) -> dict[str, Any]:
    """A rank's trace; numbers with a fraction as written."""
    text = gzip.decompress((folder / "traces" / f"rank{rank:05d}.pt.trace.json.gz").read_bytes())
    found: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return found


def rows(found: dict[str, Any], *begin: str) -> list[dict[str, Any]]:
    """The rows whose name begins so, with their start and end in unix ns."""
    base = found["baseTimeNanoseconds"]
    kept = [e for e in found["traceEvents"] if e["ph"] == "X" and str(e["name"]).startswith(begin)]
    for e in kept:
        e["start_ns"] = base + int(e["ts"] * 1000)
        e["end_ns"] = e["start_ns"] + int(e["dur"] * 1000)
    return sorted(kept, key=lambda e: e["start_ns"])
