"""Self-attention with heads over the output axis, grouped-query heads included."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime import recompute
from runtime.dropout import Dropout
from runtime.linear import TRANSPOSED, Linear, Rows
from runtime.overlap import Engine
from runtime.sharding import Features, split


class Attention(nn.Module):
    """Attention of layout x to layout x.

    Rows of the serial weight ``qkv`` are [all query heads, all key heads, all value heads]; with
    grouped queries ``q`` and ``kv`` are parameters of their own, multiplied as one. Each rank of y
    takes whole key-value groups with their queries. Where y is a multiple of the groups, each
    group is held by y/groups neighbours, who divide its queries and sum its gradients.

    Parameters
    ----------
    engine : Engine
    name : str
    features : int
    heads, kv_heads : int
    causal : bool
    dropout : float
        Of the attention's probabilities.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        features: int,
        heads: int,
        kv_heads: int,
        *,
        causal: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if features % heads or heads % kv_heads:
            raise ValueError(
                f"{name}: features {features} must divide by heads {heads}, and heads by "
                f"key-value heads {kv_heads}"
            )
        self.engine, self.causal, self.width = engine, causal, features // heads
        y = engine.comm.grid["y"]
        copies = _copies(name, heads, kv_heads, y.size)
        queries = split(heads, y.index, y.size, f"{name}: heads")
        groups = split(kv_heads, y.index // copies, y.size // copies, f"{name}: key-value heads")
        self.queries, self.groups = Features("y", heads, queries), len(groups)
        keys = torch.cat((self._rows(groups, 0), self._rows(groups, kv_heads)))
        asked = self._rows(queries, 0)
        if heads == kv_heads:
            rows = torch.cat((asked, keys + features))
            parts_of = [Rows(f"{name}.qkv", Features("y", 3 * features, rows))]
        else:
            axes = (engine.comm.grid.part("y", copies),) if copies > 1 else ()
            held = Features("y", 2 * kv_heads * self.width, keys)
            parts_of = [
                Rows(f"{name}.q", Features("y", features, asked)),
                Rows(f"{name}.kv", held, copies, axes),
            ]
        total = (heads + 2 * kv_heads) * self.width
        self.qkv = Linear(engine, f"{name}.qkv", features, total, rows=parts_of)
        self.proj = Linear(engine, f"{name}.proj", features, features, axes=TRANSPOSED)
        self.dropout = Dropout(engine, f"{name}.dropout", dropout)

    def _rows(self, heads: Tensor, before: int) -> Tensor:
        """Global rows of some heads, ``before`` heads into the weight."""
        return ((heads[:, None] + before) * self.width + torch.arange(self.width)).reshape(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H/x) to (B, T, H/x)."""
        sizes = [n * self.width for n in (self.queries.local, self.groups, self.groups)]
        q, k, v = (
            part.view(*x.shape[:2], -1, self.width).transpose(1, 2)
            for part in self.qkv(x).split(sizes, -1)
        )
        return self.proj(recompute.core(self.engine, self._core, q, k, v))

    def _core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """From (B, heads, T, width) to (B, T, heads * width); sends nothing."""
        each = self.queries.local // self.groups
        if each > 1:
            k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        if self.dropout.share and self.training:
            out = self._with_dropout(q, k, v)
        else:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return out.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)

    def _with_dropout(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The core written out, because torch's draws masks that know no global index."""
        scores = q @ k.transpose(-1, -2) * self.width**-0.5
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return self.dropout(scores.softmax(-1), self.queries, 1) @ v


def _copies(name: str, heads: int, kv_heads: int, y: int) -> int:
    """How many ranks of y hold each key-value group.

    Raises
    ------
    ValueError
        Where neither divides the other, or the query heads do not divide over y.
    """
    if kv_heads % y == 0:
        return 1
    if y % kv_heads == 0 and heads % y == 0:
        return y // kv_heads
    raise ValueError(
        f"{name}: {heads} query and {kv_heads} key-value heads do not divide over y = {y}: y must "
        f"divide the key-value heads, or be a multiple of them that divides the query heads"
    )
