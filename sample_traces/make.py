"""Remake the sample traces: four gloo ranks on this machine, profiled by torch, one file a rank.

Usage::

    python sample_traces/make.py [--out DIR]

writes ``DIR/ddp_4/rank{0..3}.pt.trace.json.gz`` and ``DIR/tp_2x2/rank{0..3}.pt.trace.json.gz``
(DIR is the folder of this script unless given). It needs torch and nothing else, spawns its own
four processes and lets the system choose a free port. The times in new traces differ from run
to run, so run ``answers.py`` on the same folder afterwards.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import Tensor, nn
    from torch.profiler import ProfilerActivity, profile, record_function, schedule
except ImportError as error:
    sys.exit(f"make.py: torch cannot be imported ({error}); install it: pip install torch")

NUM_RANKS = 4
NUM_UNRECORDED = 3  # steps before the profiler starts: lazy initialisation, DDP's bucket rebuild
NUM_WARMUP = 1
NUM_RECORDED = 3
TIMEOUT_S = 120
NEUTRAL_HOST = "sample-host"

SLOW_RANK = 2
SLEEP_S = 0.020

NUM_TOKENS = 256  # rows of a rank's batch
HIDDEN = 256
NUM_BLOCKS = 2
GRID = 2  # both sides of the 2 x 2 grid

Step = Callable[[], None]

FAILURES = (RuntimeError, ValueError, mp.ProcessRaisedException, mp.ProcessExitedException)


# ---------------------------------------------------------------------------------- ddp_4


def ddp_step(rank: int) -> Step:
    """Return one training step of a data-parallel MLP whose slow rank sleeps before backward."""
    layers: list[nn.Module] = []
    for _ in range(NUM_BLOCKS):
        layers += [nn.Linear(HIDDEN, HIDDEN), nn.GELU()]
    # two all-reduces a step, the first (two layers) issued while backward still runs; no more than
    # two, as a group has two threads and a third would queue before its span starts
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(HIDDEN, HIDDEN)), bucket_cap_mb=0.3
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(NUM_TOKENS, HIDDEN)

    def step() -> None:
        with record_function("forward"):
            loss = model(batch).square().mean()
        if rank == SLOW_RANK:
            time.sleep(SLEEP_S)
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# --------------------------------------------------------------------------------- tp_2x2


def renamed(new: str, old: str) -> Callable[..., Any]:
    """Return a collective by its name since torch 2.13, which warns about the older name."""
    found: Callable[..., Any] = getattr(dist, new, None) or getattr(dist, old)
    return found


class Shard:
    """A weight matrix of one x rank, kept flat and in equal parts over the y group."""

    def __init__(self, num_rows: int, num_cols: int, y_group: dist.ProcessGroup) -> None:
        self.shape, self.y_group = (num_rows, num_cols), y_group
        self.part = torch.randn(num_rows * num_cols // GRID) / HIDDEN**0.5
        self.grad = torch.empty_like(self.part)

    def gather(self) -> Tensor:
        """Return the whole matrix: a blocking all-gather over y."""
        whole: Tensor = self.part.new_empty(self.part.numel() * GRID)
        gather = renamed("all_gather_single", "all_gather_into_tensor")
        gather(whole, self.part, group=self.y_group)
        return whole.view(self.shape)

    def reduce(self, grad: Tensor) -> dist.Work:
        """Start the reduce-scatter of the matrix's gradient over y."""
        flat = grad.reshape(-1)
        scatter = renamed("reduce_scatter_single", "reduce_scatter_tensor")
        work: dist.Work = scatter(self.grad, flat, group=self.y_group, async_op=True)
        return work


class Block:
    """Two products split over x, by columns and by rows; forward and backward by hand.

    By hand because a collective inside a `torch.autograd.Function` blocks under that function's
    row, where waiting looks like work. Here a blocked thread shows no row.
    """

    def __init__(self, x_group: dist.ProcessGroup, y_group: dist.ProcessGroup) -> None:
        self.x_group = x_group
        self.up = Shard(HIDDEN // GRID, HIDDEN, y_group)
        self.down = Shard(HIDDEN, HIDDEN // GRID, y_group)

    def forward(self, value: Tensor) -> Tensor:
        """Return the block's output: every collective blocks."""
        self.value, self.up_weight = value, self.up.gather()
        self.before = value @ self.up_weight.t()
        self.hidden = nn.functional.gelu(self.before)
        self.down_weight = self.down.gather()
        out = self.hidden @ self.down_weight.t()
        dist.all_reduce(out, group=self.x_group)
        return value + out

    def backward(self, grad: Tensor, pending: dist.Work | None) -> tuple[Tensor, dist.Work]:
        """Return the input's gradient and the last reduce-scatter, which is still running.

        Collectives run under products. A group has at most one in flight, so that its spans
        pair with its calls in order beyond doubt.
        """
        down_grad = grad.t() @ self.hidden
        if pending is not None:
            pending.wait()
        down_done = self.down.reduce(down_grad)
        hidden_grad = grad @ self.down_weight
        before_grad = torch.ops.aten.gelu_backward(hidden_grad, self.before)
        value_grad = before_grad @ self.up_weight
        value_done = dist.all_reduce(value_grad, group=self.x_group, async_op=True)
        up_grad = before_grad.t() @ self.value
        down_done.wait()
        up_done = self.up.reduce(up_grad)
        value_done.wait()
        return grad + value_grad, up_done


def axis_groups(rank: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Return this rank's (x, y) groups of the grid; rank = y * 2 + x."""
    mine: dict[str, dist.ProcessGroup] = {}
    for axis, members in (("x", ((0, 1), (2, 3))), ("y", ((0, 2), (1, 3)))):
        for ranks in members:  # every rank must make every group, in one order
            group = dist.new_group(list(ranks), group_desc=axis)
            if rank in ranks:
                mine[axis] = group
    return mine["x"], mine["y"]


def tp_step(rank: int) -> Step:
    """Return one training step of an MLP on the grid: tensor parallel over x, sharded over y."""
    groups = axis_groups(rank)
    blocks = [Block(*groups) for _ in range(NUM_BLOCKS)]
    shards = [shard for block in blocks for shard in (block.up, block.down)]
    seed = torch.Generator().manual_seed(rank // GRID)  # ranks along x see one batch
    batch = torch.randn(NUM_TOKENS, HIDDEN, generator=seed)

    def step() -> None:
        with record_function("forward"):
            value = batch
            for block in blocks:
                value = block.forward(value)
        with record_function("backward"):
            grad = value * (2 / value.numel())  # of the mean square
            pending: dist.Work | None = None
            for block in reversed(blocks):
                grad, pending = block.backward(grad, pending)
            if pending is not None:
                pending.wait()
        with record_function("optimizer"):
            for shard in shards:
                shard.part.add_(shard.grad, alpha=-0.01)

    return step


SETS: dict[str, Callable[[int], Step]] = {"ddp_4": ddp_step, "tp_2x2": tp_step}


# ------------------------------------------------------------------------------- recording


def record(step: Step, path: Path) -> None:
    """Run the steps under the profiler and write its trace to `path`, as torch exports it."""
    plan = schedule(wait=NUM_UNRECORDED, warmup=NUM_WARMUP, active=NUM_RECORDED, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        record_shapes=True,
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(NUM_UNRECORDED + NUM_WARMUP + NUM_RECORDED):
            step()
            profiler.step()


def without_private_text(text: str, name: str) -> str:
    """Return a trace with a neutral host and file name, every other byte as it was.

    Text is replaced rather than parsed and written again, which would reformat the time stamps.

    Raises
    ------
    RuntimeError
        Where the host's name or an absolute path is left in the text.
    """
    for key, value in (("host_name", NEUTRAL_HOST), ("traceName", name)):
        text = re.sub(rf'"{key}"\s*:\s*"[^"]*"', f'"{key}": "{value}"', text)
    host = re.escape(platform.node() or NEUTRAL_HOST + "-unknown")
    found = re.search(rf'"[^"]*\b{host}\b[^"]*"|"(?:/|[A-Za-z]:\\)[^"]*"', text)
    if found:
        raise RuntimeError(f"{name} still holds {found[0]}; replace it in without_private_text")
    return text


def publish(raw: Path, final: Path) -> None:
    """Compress `raw` into `final` by way of a temporary name; same input, same bytes."""
    text = without_private_text(raw.read_text(encoding="utf-8"), final.name.removesuffix(".gz"))
    json.loads(text)
    partial = final.with_suffix(".partial")
    partial.write_bytes(gzip.compress(text.encode("utf-8"), compresslevel=9, mtime=0))
    partial.replace(final)


def worker(rank: int, port: int, name: str, folder: str) -> None:
    """Run one rank of the set `name` and leave its raw trace in `folder`."""
    if sys.platform == "linux":  # the host name need not resolve for a run on one machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    timeout = datetime.timedelta(seconds=TIMEOUT_S)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=NUM_RANKS, timeout=timeout)
    step = SETS[name](rank)
    dist.barrier()
    record(step, Path(folder) / f"rank{rank}.json")
    dist.barrier()
    dist.destroy_process_group()


def make(name: str, out: Path) -> int:
    """Make one set under ``out/name``; return the bytes of its files."""
    # the parent serves the store on a port the system chose, so none can be taken meanwhile
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(worker, args=(store.port, name, scratch), nprocs=NUM_RANKS)
        sizes = []
        for rank in range(NUM_RANKS):
            final = folder / f"rank{rank}.pt.trace.json.gz"
            publish(Path(scratch) / f"rank{rank}.json", final)
            sizes.append(final.stat().st_size)
    return sum(sizes)


def main() -> int:
    """Make both sets; return the exit status."""
    parser = argparse.ArgumentParser(description="Remake the sample traces with torch and gloo.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parent,
        metavar="DIR",
        help="folder that gets ddp_4/ and tp_2x2/ (default: the folder of this script)",
    )
    out: Path = parser.parse_args().out
    if not dist.is_available() or not dist.is_gloo_available():
        return fail("this torch has no gloo; install a build with torch.distributed and gloo")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch says start and stop on stderr
    for name in SETS:
        try:
            num_bytes = make(name, out)
        except OSError as error:
            return fail(f"{name} cannot be written: {error}; choose another --out")
        except FAILURES as error:
            # of a rank's traceback, the last line says why
            return fail(f"{name} failed: {str(error).strip().splitlines()[-1]}")
        print(f"{out / name}: {NUM_RANKS} traces, {num_bytes / 1000:.1f} kB", file=sys.stderr)
    return 0


def fail(text: str) -> int:
    """Say in one line what went wrong; return the exit status of a failure."""
    print(f"make.py: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
