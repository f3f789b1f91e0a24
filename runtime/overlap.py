"""Hide communication under compute: gathers ahead of need, reductions behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runtime.comm import Comm, Handle
from runtime.sharding import Placement, Registry

BUCKET_BYTES = 4 << 20


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
class _Reduction:
    """A weight gradient on its way through z's reduce-scatter."""

    parameter: nn.Parameter
    handle: Handle


@dataclass
class Engine:
    """Gathers weights and reduces gradients of one model, as the overlaps say.

    State lives here and nowhere else, so two models in one process do not disturb each other.
    """

    comm: Comm
    registry: Registry
    overlap: Overlap
    _order: list[nn.Parameter] = field(default_factory=list)
    _recorded: bool = False
    _at: int = 0
    _ahead: tuple[int, Handle] | None = None
    _queue: list[_Reduction] = field(default_factory=list)
    _expected: dict[nn.Parameter, int] = field(default_factory=dict)
    _seen: dict[nn.Parameter, int] = field(default_factory=dict)
    _bucket: list[nn.Parameter] = field(default_factory=list)
    _sent: list[tuple[list[nn.Parameter], Tensor, Handle]] = field(default_factory=list)
    _done: set[nn.Parameter] = field(default_factory=set)

    # -- weights ------------------------------------------------------------------------------

    def gather(self, parameter: nn.Parameter) -> Tensor:
        """The block of a weight, from all parts along z; shape of the placement's block."""
        placement = self.registry.placements[parameter]
        if placement.z_size == 1:
            return parameter.detach().view(-1)[: _numel(placement)].view(placement.block)
        flat = self._take(parameter).wait()
        self._look_ahead()
        return flat[: _numel(placement)].view(placement.block)

    def _take(self, parameter: nn.Parameter) -> Handle:
        at, self._at = self._at, self._at + 1
        if not self._recorded:
            self._order.append(parameter)
            return self._issue(parameter)
        ahead, self._ahead = self._ahead, None
        if ahead and ahead[0] == at and self._order[at] is parameter:
            return ahead[1]
        if ahead:  # the order changed: what was gathered ahead is not used
            ahead[1].wait()
        return self._issue(parameter)

    def _look_ahead(self) -> None:
        if (
            self.overlap.oag
            and self._recorded
            and self._ahead is None
            and self._at < len(self._order)
        ):
            self._ahead = self._at, self._issue(self._order[self._at])

    def _issue(self, parameter: nn.Parameter) -> Handle:
        name = self.registry.placements[parameter].name
        return self.comm.all_gather(parameter.detach(), "z", "weight", layer=name)

    # -- gradients ----------------------------------------------------------------------------

    def reduce(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """Take a weight's whole local gradient; its sum over z and data will be in ``.grad``."""
        placement = self.registry.placements[parameter]
        flat = gradient.reshape(-1)
        padding = placement.part * placement.z_size - flat.numel()
        if padding:
            flat = torch.cat((flat, flat.new_zeros(padding)))
        handle = self.comm.reduce_scatter(flat, "z_rs", "weight grad", layer=placement.name)
        if not self.overlap.ors:
            handle.wait()
        self._queue.append(_Reduction(parameter, handle))
        self._seen[parameter] = self._seen.get(parameter, 0) + 1
        if self.overlap.bucket and self._recorded:
            self._collect(leave=1)

    def _collect(self, leave: int) -> None:
        """Add finished gradients to their parameters, but for the last few still under way."""
        while len(self._queue) > leave:
            reduction = self._queue.pop(0)
            _accumulate(reduction.parameter, reduction.handle.wait())
            waiting = any(r.parameter is reduction.parameter for r in self._queue)
            if (
                self.overlap.bucket
                and self._recorded
                and not waiting
                and self._seen[reduction.parameter] == self._expected[reduction.parameter]
            ):
                self._fill(reduction.parameter)

    def _fill(self, parameter: nn.Parameter) -> None:
        """Put a finished gradient into the bucket; send the bucket when it is full."""
        self._bucket.append(parameter)
        size = sum(p.numel() * p.element_size() for p in self._bucket)
        if size >= BUCKET_BYTES:
            self._send()

    def _send(self) -> None:
        if self._bucket:
            parameters, self._bucket = self._bucket, []
            flat = torch.cat([_grad(p).view(-1) for p in parameters])
            handle = self.comm.all_reduce(flat, "data", "weight grad", layer="bucket")
            self._sent.append((parameters, flat, handle))
            self._done.update(parameters)

    def start(self) -> None:
        """Begin a step: weights gathered ahead of the last update are not used."""
        if self._ahead:
            self._ahead[1].wait()
        self._ahead, self._at = None, 0
        self._seen.clear()
        self._done.clear()

    def finish(self) -> None:
        """End backward: every gradient is summed over z and data once this returns."""
        self._collect(leave=0)
        weights = [p for p, pl in self.registry.placements.items() if _is_weight(pl)]
        rest = [p for p in weights if p not in self._done and p.grad is not None]
        if self.overlap.bucket:
            for parameter in rest:
                self._fill(parameter)
            self._send()
        else:
            for parameter in rest:
                self.comm.all_reduce(
                    _grad(parameter).view(-1),
                    "data",
                    "weight grad",
                    layer=self.registry.placements[parameter].name,
                ).wait()
        for parameters, flat, handle in self._sent:
            handle.wait()
            for parameter, part in zip(
                parameters, flat.split([p.numel() for p in parameters]), strict=True
            ):
                _grad(parameter).view(-1).copy_(part)
        self._sent.clear()
        self._sum_small()
        self._expected, self._recorded = dict(self._seen), True

    def _sum_small(self) -> None:
        """Vectors (biases, gains) sum over z and data, all in one message per axis."""
        small = [
            p
            for p, pl in self.registry.placements.items()
            if not _is_weight(pl) and p.grad is not None
        ]
        if not small:
            return
        flat = torch.cat([_grad(p).view(-1) for p in small])
        self.comm.sum_over(flat, ("z", "data"), "vector grad", layer="vectors")
        for parameter, part in zip(small, flat.split([p.numel() for p in small]), strict=True):
            _grad(parameter).view(-1).copy_(part)


def _is_weight(placement: Placement) -> bool:
    return "z" not in placement.sum_axes


def _numel(placement: Placement) -> int:
    rows, cols = placement.block
    return rows * cols


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _accumulate(parameter: nn.Parameter, gradient: Tensor) -> None:
    gradient = gradient.view_as(parameter)
    if parameter.grad is None:
        parameter.grad = gradient.clone() if gradient.data_ptr() == 0 else gradient
    else:
        parameter.grad += gradient
