"""Record a DistributedDataParallel loop: ``torchrun --nproc-per-node 2 record_ddp.py RUN``."""

import sys

import torch
import torch.distributed as dist
from torch import nn

import runtime


def main(folder: str) -> None:
    """Train a small model on all ranks and record it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = [nn.Linear(256, 256) for _ in range(4)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(64, 256)

    # DDP works on the job's default group, which names no axis: say which one it is
    with runtime.record(folder, axes={"default_pg": "data"}, model="four linear layers") as rec:
        for _ in range(5):
            with rec.phase("forward"):
                loss = model(batch).square().mean()
            with rec.phase("backward"):
                loss.backward()
            with rec.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            rec.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
