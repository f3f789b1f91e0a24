"""Token and position embeddings; the token table is split over vocabulary (y) and features (x)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.linear import Rows, block_parameter
from runtime.overlap import Engine
from runtime.sharding import Features, Placement, features, split


class _Lookup(torch.autograd.Function):
    """Rows of the table this rank holds, zeros for the others, summed over y."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: nn.Parameter, layer: Embedding) -> Tensor:
        table = layer.engine.gather(weight)  # (V/y, H/x)
        local = tokens - layer.first_row
        mine = (local >= 0) & (local < table.shape[0])
        local = torch.where(mine, local, 0)
        out = functional.embedding(local, table)
        ctx.save_for_backward(local, mine)
        ctx.weight, ctx.layer = weight, layer
        if layer.engine.native(layer.rows.axis):
            return out
        out *= mine[..., None]
        axis = layer.rows.axis
        return layer.engine.comm.all_reduce(out, axis, "embedding", layer=layer.name).wait()

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[None, Tensor | None, None]:  # type: ignore[override]
        local, mine = ctx.saved_tensors
        engine = ctx.layer.engine
        rows = engine.registry.placements[ctx.weight].block[0]
        gradient = dout.new_zeros(rows, dout.shape[-1])
        if not engine.native(ctx.layer.rows.axis):
            dout = dout * mine[..., None]
        gradient.index_add_(0, local.reshape(-1), dout.reshape(-1, dout.shape[-1]))
        return None, engine.reduce(ctx.weight, gradient), None


class Embedding(nn.Module):
    """Token embedding into layout x.

    Parameters
    ----------
    engine : Engine
    name : str
    vocabulary : int
        Rows; where y does not divide them, the last ranks of y hold padding.
    features_ : int
    whole : bool
        Whether every rank has the whole table, and gives whole features.
    std : float
        Of the initial weights.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        vocabulary: int,
        features_: int,
        *,
        whole: bool = False,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        self.engine, self.name = engine, name
        grid = engine.comm.grid
        self.rows = vocabulary_of(engine, vocabulary, "" if whole else "y")
        cols = features(grid, "" if whole else "x", features_, f"{name}: features")
        self.first_row = int(self.rows.index[0])
        self.weight = block_parameter(engine, Rows(name, self.rows), cols, std)
        self._native = engine.native(self.rows.axis, "z")
        self._shape = engine.registry.placements[self.weight].block

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T) tokens to (B, T, H/x)."""
        if self._native:
            return functional.embedding(tokens, self.weight.view(self._shape))
        out: Tensor = _Lookup.apply(tokens, self.weight, self)
        return out


def vocabulary_of(engine: Engine, vocabulary: int, axis: str = "y") -> Features:
    """The part of a vocabulary that this rank holds, padded to a multiple of the axis' size."""
    if not axis:
        return features(engine.comm.grid, "", vocabulary, "vocabulary")
    place = engine.comm.grid[axis]
    padded = -(-vocabulary // place.size) * place.size
    return Features(axis, vocabulary, split(padded, place.index, place.size, "vocabulary"))


class Positions(nn.Module):
    """Learned positions, added to a layout-x activation."""

    def __init__(self, engine: Engine, name: str, length: int, features_: int) -> None:
        super().__init__()
        grid = engine.comm.grid
        cols = features(grid, "x", features_, f"{name}: features")
        placement = Placement(
            f"{name}.weight",
            (length, features_),
            torch.arange(length),
            cols.index,
            sum_axes=("z", "data"),
            replicated=grid["y"].size,
        )
        self.weight = engine.registry.weight(placement, 0.02)
        self._shape = (length, cols.local)

    def forward(self, x: Tensor) -> Tensor:
        """Add positions 0..T-1 to (B, T, H/x)."""
        return x + self.weight.view(self._shape)[: x.shape[1]]
