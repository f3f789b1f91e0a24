"""Layer and RMS norm over features that are split over an axis, exactly as on one rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.overlap import Engine
from runtime.sharding import Placement, split


class _Normalise(torch.autograd.Function):
    """``(x - mean) / sqrt(var + eps)`` (or without the mean) over all ranks of an axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Norm) -> Tensor:
        mean, square = norm.statistics(x)
        scale = torch.rsqrt(square + norm.eps)
        xhat = (x - mean) * scale if norm.centred else x * scale
        ctx.save_for_backward(xhat, scale)
        ctx.norm = norm
        return xhat

    @staticmethod
    def backward(ctx: Any, dxhat: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        xhat, scale = ctx.saved_tensors
        norm: Norm = ctx.norm
        sums = torch.stack((dxhat.sum(-1), (dxhat * xhat).sum(-1)))
        norm.engine.comm.all_reduce(sums, norm.axis, "norm", layer=norm.name).wait()
        first, second = (s[..., None] / norm.features for s in sums)
        dx = dxhat - xhat * second
        if norm.centred:
            dx = dx - first
        return dx * scale, None


class Norm(nn.Module):
    """Layer norm (``centred``) or RMS norm over features in layout x.

    Statistics of the parts are combined as (mean, M2) pairs (Chan, Golub and LeVeque 1979), so
    that the result is that of the serial model whatever the split.

    Parameters
    ----------
    engine : Engine
    name : str
    features : int
        Of the whole layer.
    centred : bool
    axis : str
        Axis the features are split over.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        features: int,
        *,
        centred: bool = True,
        axis: str = "x",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.engine, self.name, self.features = engine, name, features
        self.centred, self.axis, self.eps = centred, axis, eps
        grid = engine.comm.grid
        place, other = grid[axis], grid["y" if axis == "x" else "x"]
        rows = split(features, place.index, place.size, f"{name}: features")
        one = torch.zeros(1, dtype=torch.int64)

        def vector(part: str) -> Placement:
            return Placement(
                f"{name}.{part}",
                (features,),
                rows,
                one,
                sum_axes=("z", "data"),
                replicated=other.size,
            )

        self.gain = engine.registry.constant(vector("weight"), 1.0)
        self.bias = engine.registry.constant(vector("bias"), 0.0) if centred else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., H/x)."""
        if self.engine.comm.grid[self.axis].size == 1:
            if self.centred:
                return functional.layer_norm(x, (self.features,), self.gain, self.bias, self.eps)
            return functional.rms_norm(x, (self.features,), self.gain, self.eps)
        xhat: Tensor = _Normalise.apply(x, self)
        y = xhat * self.gain
        return y if self.bias is None else y + self.bias

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and mean square deviation (mean square, if not centred) over all features."""
        comm, place = self.engine.comm, self.engine.comm.grid[self.axis]
        if not self.centred:
            square = (x * x).sum(-1)
            comm.all_reduce(square, self.axis, "norm", layer=self.name).wait()
            return x.new_zeros(()), square[..., None] / self.features
        mean = x.mean(-1)
        spread = (x - mean[..., None]).square().sum(-1)
        own = torch.stack((mean, spread)).reshape(-1)
        parts = comm.all_gather(own, self.axis, "norm", layer=self.name).wait()
        means, spreads = parts.view(place.size, 2, *mean.shape).unbind(1)
        whole = means.mean(0)
        share = self.features // place.size
        total = spreads.sum(0) + share * (means - whole).square().sum(0)
        return whole[..., None], total[..., None] / self.features
