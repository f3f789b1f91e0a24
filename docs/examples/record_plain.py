"""Record a loop that calls collectives itself: ``torchrun --nproc-per-node 2 record_plain.py RUN``.

The schedule records two windows, which become two captures per rank.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import schedule

import runtime


def pass_on(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Send a tensor to the next rank and take the previous one's."""
    rank, world = dist.get_rank(), dist.get_world_size()
    got = torch.empty_like(tensor)
    works = [
        dist.isend(tensor, (rank + 1) % world, group=group),
        dist.irecv(got, (rank - 1) % world, group=group),
    ]
    for work in works:
        work.wait()
    return got


def main(folder: str) -> None:
    """Train a linear layer; gradients are summed by hand, activations go round a ring."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    everyone = list(range(dist.get_world_size()))
    data, ring = (dist.new_group(everyone, group_desc=name) for name in ("data", "ring"))
    model = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(64, 256)

    # groups are described by name, so axes map one to one
    axes = {"data": "data", "ring": "context"}
    twice = schedule(wait=1, warmup=1, active=2, repeat=2)
    with runtime.record(folder, schedule=twice, axes=axes) as rec:
        for _ in range(9):
            with rec.phase("forward"):
                loss = model(pass_on(batch, ring)).square().mean()
            with rec.phase("backward"):
                loss.backward()
                works = [
                    dist.all_reduce(p.grad, group=data, async_op=True) for p in model.parameters()
                ]
                for work in works:
                    work.wait()
            with rec.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            rec.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
