"""Where the elements of a local parameter lie in the whole one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runtime import random
from runtime.grid import Grid


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """How a rank's part of a parameter maps to the whole parameter.

    Attributes
    ----------
    name : str
        Name in the serial model.
    shape : tuple of int
        Shape of the whole parameter.
    rows, cols : Tensor of int64
        Global rows and columns of this rank's block; a vector has one column, 0.
    z_index, z_size : int
        The block, flattened and padded, is cut into ``z_size`` equal parts.
    sum_axes : tuple of str
        Axes over which gradients must still be summed once z's reduce-scatter is done.
    replicated : int
        How many ranks of a (x, y) plane hold the same elements.
    """

    name: str
    shape: tuple[int, ...]
    rows: Tensor
    cols: Tensor
    z_index: int = 0
    z_size: int = 1
    sum_axes: tuple[str, ...] = ("data",)
    replicated: int = 1

    @property
    def block(self) -> tuple[int, int]:
        """Shape of this rank's block before it is cut over z."""
        return len(self.rows), len(self.cols)

    @property
    def part(self) -> int:
        """Elements of this rank's part, padding included."""
        numel = len(self.rows) * len(self.cols)
        return -(-numel // self.z_size)

    def index(self) -> Tensor:
        """Global flat index of each local element, -1 for padding; shape (part,)."""
        width = self.shape[1] if len(self.shape) > 1 else 1
        flat = (self.rows[:, None] * width + self.cols[None, :]).reshape(-1)
        padded = torch.full((self.part * self.z_size,), -1, dtype=torch.int64)
        padded[: flat.numel()] = flat
        return padded[self.z_index * self.part : (self.z_index + 1) * self.part]

    def draw(self, seed: int, std: float, dtype: torch.dtype) -> Tensor:
        """Draw this rank's part of a normally distributed parameter; equal on every grid."""
        index = self.index()
        values = std * random.normal(random.key(seed, self.name), index.clamp(min=0))
        return torch.where(index >= 0, values, torch.zeros((), dtype=torch.float64)).to(dtype)


def split(size: int, index: int, parts: int, what: str) -> Tensor:
    """The global indices of one of several equal contiguous parts.

    Raises
    ------
    ValueError
        When the size does not divide.
    """
    if size % parts:
        raise ValueError(f"{what} of {size} does not divide over {parts} ranks")
    step = size // parts
    return torch.arange(index * step, (index + 1) * step)


@dataclass(slots=True)
class Registry:
    """The parameters of one model with their placements."""

    grid: Grid
    seed: int
    dtype: torch.dtype = torch.float32
    placements: dict[nn.Parameter, Placement] = field(default_factory=dict)

    def weight(self, placement: Placement, std: float) -> nn.Parameter:
        """A new parameter drawn from a normal distribution."""
        return self._keep(placement, placement.draw(self.seed, std, self.dtype))

    def constant(self, placement: Placement, value: float) -> nn.Parameter:
        """A new parameter of one value."""
        return self._keep(placement, torch.full((placement.part,), value, dtype=self.dtype))

    def _keep(self, placement: Placement, value: Tensor) -> nn.Parameter:
        parameter = nn.Parameter(value)
        self.placements[parameter] = placement
        return parameter
