"""Token and position embeddings; the token table is split over vocabulary (y) and features (x)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from runtime.overlap import Engine
from runtime.sharding import Placement, split


class _Lookup(torch.autograd.Function):
    """Rows of the table this rank holds, zeros for the others, summed over y."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: nn.Parameter, layer: Embedding) -> Tensor:
        table = layer.engine.gather(weight)  # (V/y, H/x)
        local = tokens - layer.first_row
        mine = (local >= 0) & (local < table.shape[0])
        local = torch.where(mine, local, 0)
        out = table[local] * mine[..., None]
        ctx.save_for_backward(local, mine)
        ctx.weight, ctx.layer, ctx.rows = weight, layer, table.shape[0]
        return layer.engine.comm.all_reduce(out, "y", "embedding", layer=layer.name).wait()

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[None, None, None]:  # type: ignore[override]
        local, mine = ctx.saved_tensors
        gradient = dout.new_zeros(ctx.rows, dout.shape[-1])
        kept = (dout * mine[..., None]).reshape(-1, dout.shape[-1])
        gradient.index_add_(0, local.reshape(-1), kept)
        ctx.layer.engine.reduce(ctx.weight, gradient)
        return None, None, None


class Embedding(nn.Module):
    """Token embedding into layout x.

    Parameters
    ----------
    engine : Engine
    name : str
    vocabulary : int
        Rows, padded to a multiple of y.
    features : int
    """

    def __init__(
        self, engine: Engine, name: str, vocabulary: int, features: int, *, std: float = 0.02
    ) -> None:
        super().__init__()
        self.engine, self.name = engine, name
        grid = engine.comm.grid
        x, y, z = grid["x"], grid["y"], grid["z"]
        rows = split(vocabulary, y.index, y.size, f"{name}: vocabulary")
        cols = split(features, x.index, x.size, f"{name}: features")
        self.first_row = int(rows[0])
        shape = (vocabulary, features)
        placement = Placement(f"{name}.weight", shape, rows, cols, z.index, z.size)
        self.weight = engine.registry.weight(placement, std)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T) tokens to (B, T, H/x)."""
        out: Tensor = _Lookup.apply(tokens, self.weight, self)
        return out


class Positions(nn.Module):
    """Learned positions, added to a layout-x activation."""

    def __init__(self, engine: Engine, name: str, length: int, features: int) -> None:
        super().__init__()
        grid = engine.comm.grid
        cols = split(features, grid["x"].index, grid["x"].size, f"{name}: features")
        placement = Placement(
            f"{name}.weight",
            (length, features),
            torch.arange(length),
            cols,
            sum_axes=("z", "data"),
            replicated=grid["y"].size,
        )
        self.weight = engine.registry.weight(placement, 0.02)
        self._shape = (length, len(cols))

    def forward(self, x: Tensor) -> Tensor:
        """Add positions 0..T-1 to (B, T, H/x)."""
        return x + self.weight.view(self._shape)[: x.shape[1]]
