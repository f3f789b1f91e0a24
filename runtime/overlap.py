"""Hide communication under compute: gathers ahead of need, reductions behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runtime.comm import Comm, Handle
from runtime.data_parallel import Buckets
from runtime.sharding import Registry

#: activation checkpointing: nothing, whole blocks, or attention's core and activation functions
RECOMPUTE = ("none", "full", "selective")
#: reduce-scatters that may be under way before the oldest is waited for
IN_FLIGHT = 2


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Which overlaps are on.

    Attributes
    ----------
    oar : bool
        The all-reduce of the input's gradient runs under the weight gradient's product.
    ors : bool
        The reduce-scatter of a weight's gradient runs under the rest of backward.
    oag : bool
        The next weight's all-gather runs ahead of need.
    bucket : bool
        The data-parallel all-reduce runs in buckets under backward.
    """

    oar: bool = True
    ors: bool = True
    oag: bool = True
    bucket: bool = True

    @classmethod
    def parse(cls, text: str) -> Overlap:
        """From ``oar,ors,oag,bucket``, ``all`` or ``none``.

        Raises
        ------
        ValueError
            For a name that is none of these.
        """
        known = ("oar", "ors", "oag", "bucket")
        names = [] if text == "none" else list(known) if text == "all" else text.split(",")
        if bad := [n for n in names if n not in known]:
            raise ValueError(f"overlap {bad[0]!r}: choose from {', '.join(known)}, all, none")
        return cls(**{n: n in names for n in known})


@dataclass(slots=True)
class _Gathered:
    """A weight gathered over z, or on its way.

    Attributes
    ----------
    version : int
        Of the parameter at that time: an optimizer step in between makes it worthless.
    """

    parameter: nn.Parameter
    dtype: torch.dtype
    version: int
    handle: Handle

    def is_of(self, parameter: nn.Parameter, dtype: torch.dtype) -> bool:
        """Whether it is what is wanted, and still true."""
        return (
            self.parameter is parameter
            and self.dtype == dtype
            and self.version == parameter._version
        )


@dataclass
class Engine:
    """Gathers weights and reduces gradients of one model, as the overlaps say.

    State lives here and nowhere else, so two models in one process do not disturb each other.

    Parameters
    ----------
    comm : Comm
    registry : Registry
    overlap : Overlap
    recompute : {'none', 'full', 'selective'}
        Activation checkpointing of the models built with this engine.

    Attributes
    ----------
    samples : Tensor of int64 or None
        Global sample indices of the micro-batch that is being computed (for dropout).
    """

    comm: Comm
    registry: Registry
    overlap: Overlap
    recompute: str = "none"
    samples: Tensor | None = None
    buckets: Buckets = field(init=False)
    _order: list[tuple[nn.Parameter, torch.dtype]] = field(default_factory=list)
    _taken: list[tuple[nn.Parameter, torch.dtype]] = field(default_factory=list)
    _last: _Gathered | None = None
    _ahead: _Gathered | None = None
    _queue: list[tuple[nn.Parameter, Handle]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.recompute not in RECOMPUTE:
            known = ", ".join(RECOMPUTE)
            raise ValueError(f"recompute {self.recompute!r}: choose from {known}")
        self.buckets = Buckets(self.comm, self.registry, self.overlap.bucket)

    def native(self, *axes: str) -> bool:
        """Whether all these axes have one rank, so that torch's own operations do."""
        grid = self.comm.grid
        return all(not axis or grid[axis].size == 1 for axis in axes)

    # -- steps --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a step: call before its first micro-batch."""
        self._drop_ahead()
        self._last = None
        self._taken = []
        self.buckets.watch()

    def finish(self) -> None:
        """End backward: every gradient is summed over z and data once this returns."""
        with self.comm.during("backward"):
            self._collect(leave=0)
            self.buckets.finish()
        self._drop_ahead()
        self._last = None
        self._order, self._taken = self._taken, []

    # -- weights ------------------------------------------------------------------------------

    def gather(self, parameter: nn.Parameter, dtype: torch.dtype | None = None) -> Tensor:
        """The block of a weight, from all parts along z; shape of the placement's block.

        A weight asked for twice in a row is gathered once.
        """
        placement = self.registry.placements[parameter]
        dtype = dtype or parameter.dtype
        if placement.z_size == 1:
            return parameter.detach().view(placement.block).to(dtype)
        if self._last is None or not self._last.is_of(parameter, dtype):
            self._last = self._take(parameter, dtype)
        whole = self._last.handle.wait()
        self._look_ahead()
        return whole[: placement.numel].view(placement.block)

    def _take(self, parameter: nn.Parameter, dtype: torch.dtype) -> _Gathered:
        self._taken.append((parameter, dtype))
        if self._ahead is not None and self._ahead.is_of(parameter, dtype):
            ahead, self._ahead = self._ahead, None
            return ahead
        self._drop_ahead()  # the order changed
        return self._issue(parameter, dtype)

    def _look_ahead(self) -> None:
        """Issue the gather that followed the last ones in the step before, if they were these."""
        at = len(self._taken)
        if (
            self.overlap.oag
            and self.comm.phase != "evaluation"
            and self._ahead is None
            and at < len(self._order)
            and self._order[at - 1][0] is self._taken[at - 1][0]
        ):
            self._ahead = self._issue(*self._order[at])

    def _issue(self, parameter: nn.Parameter, dtype: torch.dtype) -> _Gathered:
        name = self.registry.placements[parameter].name
        handle = self.comm.all_gather(parameter.detach().to(dtype), "z", "weight", layer=name)
        return _Gathered(parameter, dtype, parameter._version, handle)

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.handle.wait()
            self._ahead = None

    # -- gradients ----------------------------------------------------------------------------

    def reduce(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor | None:
        """Take a weight's whole local gradient.

        Returns
        -------
        Tensor or None
            What an autograd function gives back for the parameter: the gradient where z has one
            rank; else None, and its part of the sum over z is added to ``.grad`` later.
        """
        placement = self.registry.placements[parameter]
        if not parameter.requires_grad:
            return None
        flat = gradient.reshape(-1)
        if placement.z_size == 1:
            return flat
        flat = flat.to(parameter.dtype)
        padding = placement.part * placement.z_size - flat.numel()
        if padding:
            flat = torch.cat((flat, flat.new_zeros(padding)))
        handle = self.comm.reduce_scatter(flat, "z_rs", "gradient", layer=placement.name)
        self._queue.append((parameter, handle))
        self._collect(leave=IN_FLIGHT if self.overlap.ors else 0)
        return None

    def _collect(self, leave: int) -> None:
        """Add finished gradients to their parameters, but for the last few still under way."""
        while len(self._queue) > leave:
            parameter, handle = self._queue.pop(0)
            part = handle.wait().view_as(parameter)
            if parameter.grad is None:
                parameter.grad = part
            else:
                parameter.grad += part
            self.buckets.ready(parameter)
