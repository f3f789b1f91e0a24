"""Where the elements of a local parameter, and the features of a local activation, lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn

from runtime import random
from runtime.grid import Grid

#: elements drawn at a time, so that the doubles of a draw never outgrow the parameter by much
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """How a rank's part of a parameter maps to the whole parameter.

    The local parameter is flat: element i of it is element ``index()[i]`` of the whole one.

    Attributes
    ----------
    name : str
        Name in the serial model.
    shape : tuple of int
        Shape of the whole parameter; beyond two dimensions (rows, then the flattened rest).
    rows, cols : Tensor of int64
        Global rows and columns of this rank's block; a vector has one column, 0. Rows beyond
        ``shape`` only pad.
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
    def numel(self) -> int:
        """Elements of this rank's block."""
        return len(self.rows) * len(self.cols)

    @property
    def part(self) -> int:
        """Elements of this rank's part, padding included."""
        return -(-self.numel // self.z_size)

    def index(self) -> Tensor:
        """Global flat index of each local element, -1 for padding; shape (part,)."""
        return self._index(0, self.part)

    def _index(self, first: int, last: int) -> Tensor:
        """The index of some local elements; never as large as the block."""
        width = prod(self.shape[1:])
        at = torch.arange(first, last) + self.z_index * self.part
        inside = at < self.numel
        at = at.clamp(max=self.numel - 1)
        rows = self.rows[at // len(self.cols)]
        flat = rows * width + self.cols[at % len(self.cols)]
        return torch.where(inside & (rows < self.shape[0]), flat, -1)

    def draw(self, seed: int, std: float, dtype: torch.dtype) -> Tensor:
        """Draw this rank's part of a normally distributed parameter; equal on every grid."""
        stream = random.key(seed, self.name)
        out = torch.zeros(self.part, dtype=dtype)
        for first in range(0, self.part, CHUNK):
            index = self._index(first, min(first + CHUNK, self.part))
            values = std * random.normal(stream, index.clamp(min=0))
            out[first : first + CHUNK] = torch.where(index >= 0, values, 0.0)
        return out

    def cut(self, whole: Tensor, dtype: torch.dtype) -> Tensor:
        """Take this rank's part of a parameter that somebody holds whole."""
        index = self.index()
        values = whole.detach().reshape(-1)[index.clamp(min=0)].to(dtype)
        return torch.where(index >= 0, values, torch.zeros((), dtype=dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The features of an activation that this rank holds.

    Attributes
    ----------
    axis : str
        Axis they are split over; empty where every rank holds all of them.
    size : int
        Features of the whole activation.
    index : Tensor of int64
        Global features held here, in local order.
    """

    axis: str
    size: int
    index: Tensor

    @property
    def local(self) -> int:
        """Number of features here."""
        return len(self.index)


def features(grid: Grid, axis: str, size: int, what: str) -> Features:
    """Contiguous equal parts over an axis (all of them for axis ``""``).

    Raises
    ------
    ValueError
        When the size does not divide.
    """
    if not axis:
        return Features("", size, torch.arange(size))
    place = grid[axis]
    return Features(axis, size, split(size, place.index, place.size, what))


def join(parts: Iterable[Features]) -> Features:
    """The features of activations concatenated locally, numbered as in the serial order."""
    listed = list(parts)
    axes = {p.axis for p in listed}
    if len(axes) != 1:
        raise ValueError(f"only activations of one layout can be concatenated, not of {axes}")
    index, before = [], 0
    for part in listed:
        index.append(part.index + before)
        before += part.size
    return Features(listed[0].axis, before, torch.cat(index))


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


def size_of(grid: Grid, axis: str) -> int:
    """Ranks along an axis; 1 for axis ``""``."""
    return grid[axis].size if axis else 1


@dataclass(slots=True)
class Registry:
    """The parameters of one model with their placements.

    Attributes
    ----------
    grid : Grid
    seed : int
    dtype : torch.dtype
    device : torch.device or str
    placements : dict
        Where each parameter lies, in the order in which the model made them.
    given : dict of str to Tensor
        Whole parameters by name that are cut instead of drawn.
    """

    grid: Grid
    seed: int
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"
    placements: dict[nn.Parameter, Placement] = field(default_factory=dict)
    given: dict[str, Tensor] = field(default_factory=dict)

    def weight(self, placement: Placement, std: float) -> nn.Parameter:
        """A new parameter drawn from a normal distribution."""
        if placement.name in self.given:
            return self._keep(placement, placement.cut(self.given[placement.name], self.dtype))
        return self._keep(placement, placement.draw(self.seed, std, self.dtype))

    def constant(self, placement: Placement, value: float) -> nn.Parameter:
        """A new parameter of one value."""
        if placement.name in self.given:
            return self._keep(placement, placement.cut(self.given[placement.name], self.dtype))
        return self._keep(placement, torch.full((placement.part,), value, dtype=self.dtype))

    def vector(
        self,
        name: str,
        held: Features,
        value: float,
        copies: int = 1,
        sum_axes: tuple[str, ...] = (),
    ) -> nn.Parameter:
        """A new vector (bias, gain) over the features of an activation.

        Parameters
        ----------
        copies : int
            Ranks along the features' axis that hold the same ones.
        sum_axes : tuple of str
            Axes besides z and data over which their gradients are summed.
        """
        plane = self.grid["x"].size * self.grid["y"].size
        one = torch.zeros(1, dtype=torch.int64)
        placement = Placement(
            name,
            (held.size,),
            held.index,
            one,
            sum_axes=(*sum_axes, "z", "data"),
            replicated=plane // size_of(self.grid, held.axis) * copies,
        )
        return self.constant(placement, value)

    def _keep(self, placement: Placement, value: Tensor) -> nn.Parameter:
        if any(p.name == placement.name for p in self.placements.values()):
            raise ValueError(f"two parameters are named {placement.name}; names must differ")
        parameter = nn.Parameter(value.to(self.device))
        self.placements[parameter] = placement
        return parameter
