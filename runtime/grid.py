"""The process grid: which ranks share which axis, and one described process group per axis."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

#: the axes, in the default order from innermost (consecutive ranks) to outermost
AXES = ("x", "y", "z", "data")
#: gradients of z are reduced on a communicator of their own, so that they do not queue behind the
#: weight gathers
GROUPS = ("x", "y", "z", "z_rs", "data")
#: the group of all ranks of the job
WORLD = "world"


@dataclass(frozen=True, kw_only=True)
class GridShape:
    """Degrees of the grid.

    Attributes
    ----------
    x, y : int
        Tensor parallelism: in- and out-features of a normal linear layer.
    z : int
        Weights flattened and sharded; the batch is split too.
    data : int
        Replicas.
    order : tuple of str
        Axes from innermost to outermost.
    """

    x: int = 1
    y: int = 1
    z: int = 1
    data: int = 1
    order: tuple[str, ...] = AXES

    def __post_init__(self) -> None:
        for axis in AXES:
            if self.size(axis) < 1:
                raise ValueError(f"{axis}={self.size(axis)}: each degree is at least 1")
        if sorted(self.order) != sorted(AXES):
            raise ValueError(f"order {self.order} must name each of {', '.join(AXES)} once")

    def size(self, axis: str) -> int:
        """Degree of an axis; ``z_rs`` is another communicator of z."""
        return int(getattr(self, "z" if axis == "z_rs" else axis))

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.x * self.y * self.z * self.data

    def check(self, world_size: int) -> None:
        """Refuse a grid that does not fill the job.

        Raises
        ------
        ValueError
            Names each degree, the rule and the world size.
        """
        if self.world_size != world_size:
            degrees = ", ".join(f"{a}={self.size(a)}" for a in AXES)
            raise ValueError(
                f"grid {degrees}: x * y * z * data = {self.world_size} must equal the world size "
                f"{world_size}"
            )

    def coords(self, rank: int) -> dict[str, int]:
        """Place of a rank on each axis.

        Examples
        --------
        >>> GridShape(x=2, data=2).coords(3)
        {'x': 1, 'y': 0, 'z': 0, 'data': 1}
        """
        place, rest = {}, rank
        for axis in self.order:
            rest, place[axis] = divmod(rest, self.size(axis))
        return {axis: place[axis] for axis in AXES}

    def rank(self, coords: dict[str, int]) -> int:
        """Rank at a place."""
        number = 0
        for axis in reversed(self.order):
            number = number * self.size(axis) + coords[axis]
        return number

    def members(self, axis: str, coords: dict[str, int]) -> tuple[int, ...]:
        """Ranks that differ from a place on one axis only, in order along it."""
        name = "z" if axis == "z_rs" else axis
        return tuple(self.rank({**coords, name: i}) for i in range(self.size(axis)))

    @classmethod
    def parse(cls, text: str, order: tuple[str, ...] = AXES) -> GridShape:
        """A grid from ``x=2,data=2``; degrees not named are 1.

        Raises
        ------
        ValueError
            For an unknown axis or a degree that is no number.
        """
        degrees: dict[str, int] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            axis, _, size = part.partition("=")
            if axis not in AXES or not (size.isascii() and size.isdecimal()) or axis in degrees:
                known = ", ".join(AXES)
                raise ValueError(
                    f"grid part {part!r}: write AXIS=DEGREE, AXIS one of {known}, once"
                )
            degrees[axis] = int(size)
        return cls(**degrees, order=order)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis as a rank sees it.

    Attributes
    ----------
    name : str
    size, index : int
    ranks : tuple of int
        Global ranks along it.
    group : ProcessGroup or None
        None for an axis of one, on which nothing is ever sent.
    backend, pg_name : str
        Of the group, as torch calls them; empty without one.
    """

    name: str
    size: int
    index: int
    ranks: tuple[int, ...]
    group: ProcessGroup | None = field(repr=False)
    backend: str = field(init=False)
    pg_name: str = field(init=False)

    def __post_init__(self) -> None:
        backend = "" if self.group is None else str(dist.get_backend(self.group))
        object.__setattr__(self, "backend", backend)
        object.__setattr__(self, "pg_name", "" if self.group is None else self.group.group_name)

    @property
    def axis(self) -> str | None:
        """The axis it lies along: ``z`` of ``z_rs``; None for all ranks of the job."""
        return None if self.name == WORLD else axis_of(self.name)

    def next_seq(self) -> int:
        """Torch's sequence number of the next collective on its group."""
        assert self.group is not None
        return int(self.group._get_sequence_number_for_group()) + 1


class Grid:
    """The grid of this job with its process groups.

    Every group is described by its axis name, which is how traces tell them apart. All ranks make
    all groups in the same order.

    Parameters
    ----------
    shape : GridShape
    alone : bool
        Whether to be a job of one rank, whatever job this process is in; so it is without one.
    """

    def __init__(self, shape: GridShape, *, alone: bool = False) -> None:
        alone = alone or not dist.is_initialized()
        self.rank = 0 if alone else dist.get_rank()
        self.world_size = 1 if alone else dist.get_world_size()
        shape.check(self.world_size)
        self.shape = shape
        self.coords = shape.coords(self.rank)
        self.axes = {name: self._make(name) for name in GROUPS}
        everyone = None if self.world_size == 1 else dist.group.WORLD
        ranks = tuple(range(self.world_size))
        self.world = Axis(WORLD, self.world_size, self.rank, ranks, everyone)

    def _make(self, name: str) -> Axis:
        shape = self.shape
        mine = shape.members(name, self.coords)
        own: ProcessGroup | None = None
        if shape.size(name) > 1:
            for ranks in _all_members(shape, name):
                group = dist.new_group(list(ranks), group_desc=name)
                if ranks == mine:
                    own = group
        index = self.coords["z" if name == "z_rs" else name]
        return Axis(name, shape.size(name), index, mine, own)

    def __getitem__(self, axis: str) -> Axis:
        return self.axes[axis]

    def part(self, axis: str, size: int) -> str:
        """Cut an axis into groups of consecutive ranks; all ranks must call this alike.

        Returns
        -------
        str
            The name under which `Grid` has this rank's group, for example ``y_2``.
        """
        name, whole = f"{axis}_{size}", self.axes[axis]
        if name in self.axes:
            return name
        own: ProcessGroup | None = None
        first = whole.index // size * size
        mine = whole.ranks[first : first + size]
        if size > 1:
            for line in _all_members(self.shape, axis):
                for at in range(0, whole.size, size):
                    ranks = line[at : at + size]
                    group = dist.new_group(list(ranks), group_desc=name)
                    if ranks == mine:
                        own = group
        self.axes[name] = Axis(name, size, whole.index - first, mine, own)
        return name

    def mesh(self) -> DeviceMesh | None:
        """The same groups as a `DeviceMesh`, outermost axis first; None without a group.

        Axes of one are left out; ``z_rs`` is no axis of its own.
        """
        names = [a for a in reversed(self.shape.order) if self.axes[a].group is not None]
        if not names:
            return None
        sizes = [self.axes[a].size for a in names]
        ranks = torch.arange(self.world_size).view(sizes)
        groups = [g for a in names if (g := self.axes[a].group) is not None]
        kind = "cpu" if self.axes[names[0]].backend == "gloo" else "cuda"
        if len(groups) == 1:
            return DeviceMesh.from_group(groups[0], kind, ranks, mesh_dim_names=tuple(names))
        return DeviceMesh.from_group(groups, kind, ranks, mesh_dim_names=tuple(names))

    def table(self) -> list[dict[str, object]]:
        """The groups of this rank for the trace: name, axis, ranks."""
        return [
            {"name": a.name, "axis": axis_of(a.name), "ranks": list(a.ranks)}
            for a in self.axes.values()
            if a.group is not None
        ]


def axis_of(group: str) -> str:
    """The axis of a group: ``z`` of ``z_rs``, ``y`` of ``y_2``."""
    return group.partition("_")[0]


def _all_members(shape: GridShape, name: str) -> list[tuple[int, ...]]:
    """Rank lists of all groups of an axis, in one order on all ranks."""
    axis = "z" if name == "z_rs" else name
    others = [a for a in AXES if a != axis]
    places = product(*(range(shape.size(a)) for a in others))
    return [shape.members(name, {**dict(zip(others, p, strict=True)), axis: 0}) for p in places]
