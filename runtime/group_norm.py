"""Group norm over channels that are split over an axis, exactly as on one rank."""

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
    """``(x - mean) / sqrt(var + eps)`` by group, over all ranks of an axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: GroupNorm) -> Tensor:
        x = full(x)
        mean, square = norm.statistics(x)
        scale = torch.rsqrt(square + norm.eps)[:, norm.group, None, None]
        xhat = (x - mean[:, norm.group, None, None]) * scale
        ctx.save_for_backward(xhat, scale)
        ctx.norm = norm
        return xhat

    @staticmethod
    def backward(ctx: Any, dxhat: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        xhat, scale = ctx.saved_tensors
        norm: GroupNorm = ctx.norm
        both = torch.stack((dxhat.sum((2, 3)), (dxhat * xhat).sum((2, 3))))
        sums = norm.by_group(both)
        norm.engine.comm.all_reduce(sums, norm.held.axis, "norm", layer=norm.name).wait()
        count = norm.each * xhat.shape[2] * xhat.shape[3]
        first, second = (sums / count)[..., norm.group, None, None].unbind(0)
        return (dxhat - first - xhat * second) * scale, None


class GroupNorm(nn.Module):
    """Group norm of (B, C/a, H, W) activations.

    Groups that lie on one rank are normalised there; otherwise each rank's part of each group is
    combined as (count, mean, M2), whichever channels the rank holds.

    Parameters
    ----------
    engine : Engine
    name : str
    channels, groups : int
        Of the whole layer.
    axis : str
        Axis the channels are split over; ``""`` where every rank has all of them.
    held : Features, optional
        The channels held here, where they are no contiguous part.
    eps : float
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        channels: int,
        groups: int,
        *,
        axis: str = "x",
        held: Features | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if channels % groups:
            raise ValueError(f"{name}: {channels} channels do not divide into {groups} groups")
        self.engine, self.name, self.groups, self.eps = engine, name, groups, eps
        contiguous = held is None
        self.held = held or features_of(engine.comm.grid, axis, channels, f"{name}: channels")
        self.each = channels // groups
        self.gain = engine.registry.vector(f"{name}.weight", self.held, 1.0)
        self.bias = engine.registry.vector(f"{name}.bias", self.held, 0.0)
        group = self.held.index // self.each
        self.register_buffer("group", group.to(engine.registry.device), persistent=False)
        whole = contiguous and self.held.local % self.each == 0
        self.local = engine.native(self.held.axis) or whole

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C/a, H, W)."""
        if self.local:
            groups = self.held.local // self.each
            return functional.group_norm(x, groups, self.gain, self.bias, self.eps)
        xhat: Tensor = _Normalise.apply(x, self)
        return torch.addcmul(self.bias[:, None, None], xhat, self.gain[:, None, None])

    def by_group(self, values: Tensor) -> Tensor:
        """Sums over a group's channels here; (..., C/a) to (..., groups)."""
        out = values.new_zeros(*values.shape[:-1], self.groups)
        return out.index_add_(-1, self.group, values)

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and mean square deviation of each group; (B, groups) each."""
        comm, place = self.engine.comm, self.engine.comm.grid[self.held.axis]
        area = x.shape[2] * x.shape[3]
        counts = self.by_group(torch.ones_like(self.group, dtype=x.dtype)) * area
        mean = self.by_group(x.sum((2, 3))) / counts.clamp(min=1)
        apart = (x - mean[:, self.group, None, None]).square().sum((2, 3))
        spread = self.by_group(apart)
        own = torch.stack((counts.expand_as(mean), mean, spread)).reshape(-1)
        parts = comm.all_gather(own, self.held.axis, "norm", layer=self.name).wait()
        count, means, spreads = parts.view(place.size, 3, *mean.shape).unbind(1)
        size = self.each * area
        whole = (count * means).sum(0) / size
        total = spreads.sum(0) + (count * (means - whole).square()).sum(0)
        return whole, total / size
