"""Record an FSDP2 loop on a 2-D mesh: ``torchrun --nproc-per-node 4 record_fsdp2.py RUN``."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import runtime


def main(folder: str) -> None:
    """Train a small model, sharded over one dimension and replicated over the other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "shard"))
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(64, 256)

    # the mesh's dimensions are the axes
    with runtime.record(folder, mesh=mesh) as rec:
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
