"""Record tensor parallelism on a mesh: ``torchrun --nproc-per-node 4 record_mesh.py RUN``."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import runtime


def main(folder: str) -> None:
    """Train an MLP split over ``tp``, with its gradients averaged over ``dp`` by hand."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(64, 256)

    # the mesh names its dimensions; here "dp" is shown as "data"
    with runtime.record(folder, mesh=mesh, axes={"dp": "data"}) as rec:
        for _ in range(5):
            with rec.phase("forward"):
                loss = model(batch).square().mean()
            with rec.phase("backward"):
                loss.backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad.to_local(), group=mesh.get_group("dp"))
            with rec.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            rec.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
