"""The 3D tensor-parallel linear layer.

Shapes: N = tokens of this rank (its part over z and data), I = in-features, O = out-features,
a = size of the in-axis, b = size of the out-axis. A normal layer has in-axis x and out-axis y, a
transposed one the reverse, so that no resharding lies between a normal layer and a transposed one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from runtime.overlap import Engine
from runtime.sharding import Placement, split


class _Product(torch.autograd.Function):
    """``x @ W.T`` of the in-axis' parts, summed; see the module for the shapes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter, layer: Linear) -> Tensor:
        block = layer.engine.gather(weight)  # (O/b, I/a)
        ctx.save_for_backward(x)
        ctx.weight, ctx.layer = weight, layer
        y = x @ block.T
        return layer.engine.comm.all_reduce(y, layer.in_axis, "forward", layer=layer.name).wait()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        layer: Linear = ctx.layer
        engine = layer.engine
        dx: Tensor | None = None
        handle = None
        if ctx.needs_input_grad[0]:
            dx = dy @ engine.gather(ctx.weight)
            handle = engine.comm.all_reduce(dx, layer.out_axis, "backward", layer=layer.name)
            if not engine.overlap.oar:
                handle.wait()
        rows, cols = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        engine.reduce(ctx.weight, rows.T @ cols)
        if handle is not None:
            dx = handle.wait()
        return dx, None, None


class Linear(nn.Module):
    """A linear layer on the grid.

    Parameters
    ----------
    engine : Engine
    name : str
        Name in the serial model.
    in_features, out_features : int
        Of the whole layer.
    transposed : bool
        Whether in- and out-axis are y and x.
    bias : bool
    std : float
        Of the initial weights.
    out_rows : Tensor of int64, optional
        Global rows of this rank's outputs, where they are no contiguous part (heads).
    weight : Parameter, optional
        An existing block to share (tied embedding).
    """

    def __init__(  # noqa: PLR0913 - a layer has this many independent properties
        self,
        engine: Engine,
        name: str,
        in_features: int,
        out_features: int,
        *,
        transposed: bool = False,
        bias: bool = True,
        std: float = 0.02,
        out_rows: Tensor | None = None,
        weight: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.engine, self.name = engine, name
        self.in_axis, self.out_axis = ("y", "x") if transposed else ("x", "y")
        grid = engine.comm.grid
        a, b, z = grid[self.in_axis], grid[self.out_axis], grid["z"]
        cols = split(in_features, a.index, a.size, f"{name}: in-features")
        rows = out_rows
        if rows is None:
            rows = split(out_features, b.index, b.size, f"{name}: out-features")
        shape = (out_features, in_features)
        placement = Placement(f"{name}.weight", shape, rows, cols, z.index, z.size)
        self.weight = weight if weight is not None else engine.registry.weight(placement, std)
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = engine.registry.constant(
                Placement(
                    f"{name}.bias",
                    (out_features,),
                    rows,
                    torch.zeros(1, dtype=torch.int64),
                    sum_axes=("z", "data"),
                    replicated=a.size,
                ),
                0.0,
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., I/a) to (..., O/b)."""
        y: Tensor = _Product.apply(x, self.weight, self)
        return y if self.bias is None else y + self.bias
