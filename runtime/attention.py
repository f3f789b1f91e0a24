"""Causal self-attention with heads over the output axis, grouped-query heads included."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.linear import Linear
from runtime.overlap import Engine
from runtime.sharding import split


class Attention(nn.Module):
    """Attention of layout x to layout x.

    Rows of the serial QKV weight are [all query heads, all key heads, all value heads]; each rank
    of y takes whole key-value groups with their queries.

    Parameters
    ----------
    engine : Engine
    name : str
    features : int
    heads, kv_heads : int
    """

    def __init__(self, engine: Engine, name: str, features: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        if features % heads or heads % kv_heads:
            raise ValueError(
                f"{name}: features {features} must divide by heads {heads}, and heads by "
                f"key-value heads {kv_heads}"
            )
        y = engine.comm.grid["y"]
        self.width = features // heads
        groups = split(kv_heads, y.index, y.size, f"{name}: key-value heads")
        each = heads // kv_heads
        queries = (groups[:, None] * each + torch.arange(each)).reshape(-1)
        self.queries, self.groups = len(queries), len(groups)
        rows = [
            self._rows(queries, 0),
            self._rows(groups, heads),
            self._rows(groups, heads + kv_heads),
        ]
        total = (heads + 2 * kv_heads) * self.width
        self.qkv = Linear(engine, f"{name}.qkv", features, total, out_rows=torch.cat(rows))
        self.proj = Linear(engine, f"{name}.proj", features, features, transposed=True)

    def _rows(self, heads: Tensor, before: int) -> Tensor:
        """Global rows of some heads, ``before`` heads into the weight."""
        return ((heads[:, None] + before) * self.width + torch.arange(self.width)).reshape(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H/x) to (B, T, H/x)."""
        batch, length, _ = x.shape
        sizes = [n * self.width for n in (self.queries, self.groups, self.groups)]
        q, k, v = (
            part.view(batch, length, -1, self.width).transpose(1, 2)
            for part in self.qkv(x).split(sizes, -1)
        )
        each = self.queries // self.groups
        if each > 1:
            k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(batch, length, -1))
