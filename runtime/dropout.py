"""Dropout whose masks are those of the serial model on every grid and in every recompute."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runtime import random
from runtime.overlap import Engine
from runtime.sharding import Features


class Dropout(nn.Module):
    """Zero a share of the elements and scale the rest.

    An element is kept or not by its sample, its place in the sample, the step and the layer's name
    alone, whichever rank and micro-batch computes it.

    Parameters
    ----------
    engine : Engine
    name : str
    share : float
        Of the elements that become zero, in [0, 1).
    """

    def __init__(self, engine: Engine, name: str, share: float) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"{name}: dropout {share} must be at least 0 and less than 1")
        self.engine, self.name, self.share = engine, name, share

    def forward(self, x: Tensor, held: Features, dim: int = -1) -> Tensor:
        """Drop elements of x.

        Parameters
        ----------
        x : Tensor, shape (B, ...)
            One sample per entry of the first dimension.
        held : Features
            The global numbers of the entries of dimension ``dim``; the others are whole.
        """
        if not self.share or not self.training:
            return x
        return x * self.mask(x, held, dim)

    def mask(self, x: Tensor, held: Features, dim: int) -> Tensor:
        """What x is multiplied with: 0, or 1 / (1 - share)."""
        samples = self.engine.samples
        if samples is None or len(samples) != x.shape[0]:
            have = "none" if samples is None else str(len(samples))
            raise ValueError(
                f"{self.name}: dropout needs the global sample index of each of {x.shape[0]} "
                f"samples, has {have}: give them as batch['samples']"
            )
        dim %= x.dim()
        index = samples.to(x.device)
        for at, size in enumerate(x.shape[1:], start=1):
            own = held.index if at == dim else torch.arange(size)
            whole = held.size if at == dim else size
            index = index[..., None] * whole + own.to(x.device)
        comm, registry = self.engine.comm, self.engine.registry
        stream = random.key(registry.seed, f"{self.name}/{comm.step}")
        kept = random.bits(stream, index) >= int(self.share * 2**53)
        return kept.to(x.dtype) / (1 - self.share)
