"""Times a training step on the grids torch covers itself against torch's own, pair by pair.

(1, 1, 1, d) stands beside `DistributedDataParallel` and (1, 1, z, 1) beside FSDP2's
`fully_shard`: the same GPT, the same weights, the same batches, in the same processes.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from measure import default_results, machine_class, machine_line, table, write_section
from pairs import Side, Times, agree, job, join, ratio, rounds
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

from runtime.grid import GridShape
from runtime.models.gpt import GPTConfig

#: a step of 50 to 200 ms on two cores, whatever the number of ranks
CONFIG = GPTConfig(
    layers=4, features=240, heads=8, kv_heads=8, length=64, vocabulary=1920, tied=False
)
BATCH = 8
WARM_UP = 4
HEADING = "The step against torch's own"


class Block(nn.Module):
    """A pre-norm transformer block of plain torch, its parts named as the runtime names them."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        h = config.features
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.attention = nn.ModuleDict({"qkv": nn.Linear(h, 3 * h), "proj": nn.Linear(h, h)})
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H) to the same."""
        batch, length, h = x.shape
        qkv = self.attention["qkv"](self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention["proj"](out.transpose(1, 2).reshape(batch, length, h))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    """The GPT of `runtime.models.gpt` for one process, in plain torch."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.features)
        self.positions = nn.Embedding(config.length, config.features)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.features)
        self.head = nn.Linear(config.features, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of (B, T) tokens."""
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def torchs(shape: GridShape) -> Side:
    """Torch's own on the same ranks: FSDP2 for z, else DDP; it starts from the same weights."""
    plain, world = PlainGPT(CONFIG), shape.world_size
    serial = job(GridShape(), CONFIG, BATCH, alone=True)
    for parameter, placement in serial.engine.registry.placements.items():
        target = plain.get_parameter(placement.name)
        target.data.copy_(parameter.detach().view(target.shape))
    model = fsdp(plain, world) if shape.z > 1 else ddp(plain)
    share, rank = BATCH // world, dist.get_rank()
    mine = slice(rank * share, (rank + 1) * share)
    tokens, targets = serial.tokens[mine], serial.targets[mine]

    def gradients() -> Tensor:
        loss = model(tokens, targets)
        loss.backward()
        return loss.detach() / world

    return Side(gradients, torch.optim.AdamW(model.parameters(), lr=1e-3))


def ddp(plain: nn.Module) -> nn.Module:
    """With its fastest setting for gradients, else its defaults."""
    return nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=True)


def fsdp(plain: PlainGPT, world: int) -> nn.Module:
    """Each block sharded, and what is left with the whole: as torch's own examples do."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world,))
    for block in plain.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(plain, mesh=mesh)
    return plain


def worker(rank: int, folder: str, shape: GridShape, pairs: int) -> None:
    """One rank; rank 0 writes the times of each round."""
    join(rank, shape.world_size, folder)
    sides = [job(shape, CONFIG, BATCH).side(), torchs(shape), torchs(shape)]
    agree(sides, WARM_UP)
    found = rounds(sides, pairs)
    if rank == 0:
        Path(folder, "times.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def compare(shape: GridShape, pairs: int) -> list[str]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (folder, shape, pairs), nprocs=shape.world_size)
        found: list[list[Times]] = json.loads(Path(folder, "times.json").read_text())
    ready, whole = (
        [[times[which] for times in side] for side in zip(*found, strict=True)] for which in (0, 1)
    )
    peer = f"FSDP2, z={shape.z}" if shape.z > 1 else f"DDP, data={shape.data}"
    return [
        peer,
        f"{statistics.median(whole[1]) * 1e3:.0f}",
        f"{statistics.median(whole[0]) * 1e3:.0f}",
        ratio(ready[0], ready[1]),
        ratio(whole[0], whole[1]),
        ratio(whole[2], whole[1]),
    ]


def shapes(only: str | None, worlds: Sequence[int]) -> list[GridShape]:
    """The grids to measure."""
    both = {"ddp": lambda n: GridShape(data=n), "fsdp": lambda n: GridShape(z=n)}
    return [make(n) for name, make in both.items() if only in (None, name) for n in worlds]


def main() -> None:
    """Measure every grid and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="rounds of each grid (60)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="2 4 8")
    parser.add_argument("--only", choices=("ddp", "fsdp"), help="one of torch's two")
    parser.add_argument("--out", help="results file, - for standard output only")
    given = parser.parse_args()
    head = ["torch's own", "its step, ms", "ours, ms"]
    head += ["ours / torch, gradients", "ours / torch, step", "torch / torch, step"]
    rows = []
    for shape in shapes(given.only, given.ranks):
        rows.append(compare(shape, given.pairs))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    dims = f"{CONFIG.layers} layers of {CONFIG.features}, vocabulary {CONFIG.vocabulary}"
    body = (
        f"{machine_line()}, torch {torch.__version__}, gloo, fp32. GPT of {dims}, {BATCH} sequences"
        f" of {CONFIG.length}; median of {given.pairs} rounds of ours, torch's and torch's again in"
        " all orders, the slowest rank's time, 95 % bootstrap interval.\n\n" + table(head, rows)
    )
    print(body)
    if given.out != "-":
        path = Path(given.out) if given.out else default_results(machine_class())
        write_section(path, HEADING, body)


if __name__ == "__main__":
    main()
