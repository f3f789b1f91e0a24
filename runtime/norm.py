"""Layer and RMS norm over features that are split over an axis, exactly as on one rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.overlap import Engine
from runtime.precision import full
from runtime.sharding import Features
from runtime.sharding import features as features_of


class _Normalise(torch.autograd.Function):
    """``(x - mean) / sqrt(var + eps)`` (or without the mean) over all ranks of an axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Norm) -> Tensor:
        x = full(x)
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
        product = (dxhat * xhat).sum(-1)
        sums = torch.stack((dxhat.sum(-1), product)) if norm.centred else product[None]
        norm.engine.comm.all_reduce(sums, norm.axis, "norm", layer=norm.name).wait()
        dx = dxhat - xhat * (sums[-1] / norm.features)[..., None]
        if norm.centred:
            dx -= (sums[0] / norm.features)[..., None]
        return dx.mul_(scale), None


class Norm(nn.Module):
    """Layer norm (``centred``) or RMS norm over split features.

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
        Axis the features are split over; ``""`` where every rank has all of them.
    eps : float
    affine, bias : bool
        Whether there is a gain, and with it a bias (layer norm only).
    held : Features, optional
        The features held here, where they are no contiguous part.
    """

    def __init__(  # noqa: PLR0913 - a layer has this many independent properties
        self,
        engine: Engine,
        name: str,
        features: int,
        *,
        centred: bool = True,
        axis: str = "x",
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        held: Features | None = None,
    ) -> None:
        super().__init__()
        self.engine, self.name, self.features = engine, name, features
        self.centred, self.axis, self.eps = centred, axis, eps
        held = held or features_of(engine.comm.grid, axis, features, f"{name}: features")
        vector = engine.registry.vector
        self.gain = vector(f"{name}.weight", held, 1.0) if affine else None
        self.bias = vector(f"{name}.bias", held, 0.0) if affine and bias and centred else None
        self._native = engine.native(axis)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., H/a)."""
        if self._native:
            if self.centred:
                return functional.layer_norm(x, (self.features,), self.gain, self.bias, self.eps)
            return functional.rms_norm(x, (self.features,), self.gain, self.eps)
        y: Tensor = _Normalise.apply(x, self)
        if self.gain is not None:
            y = y * self.gain if self.bias is None else torch.addcmul(self.bias, y, self.gain)
        return y

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
