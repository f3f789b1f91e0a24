"""One optimizer step on the grid: exact clipping, loss scaling, AdamW, sharded where asked.

Gradients are summed over z and data before (`Engine.finish`). The global norm counts each element
of the serial model once: what several ranks hold is divided by their number, padding by nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runtime.comm import Comm, Handle
from runtime.config import OptimizerSettings, PrecisionSettings, ScheduleSettings
from runtime.sharding import Placement, Registry

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
#: bytes of parameters in one all-gather of the sharded optimizer
GATHER_BYTES = 16 << 20
LARGEST_SCALE = 2.0**24


@dataclass(frozen=True, slots=True)
class Precision:
    """In which format the model computes and keeps its parameters."""

    settings: PrecisionSettings
    device: torch.device

    @property
    def parameters(self) -> torch.dtype:
        """Of parameters, gradients and optimizer state."""
        return torch.float64 if self.settings.dtype == "fp64" else torch.float32

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around forward: products in the low precision, where one is set."""
        low = self.settings.dtype in ("bf16", "fp16")
        dtype = DTYPES[self.settings.dtype] if low else None
        with torch.autocast(self.device.type, dtype=dtype, enabled=low):
            yield


def learning_rate(step: int, steps: int, peak: float, settings: ScheduleSettings) -> float:
    """Learning rate of a step, counted from 0.

    Examples
    --------
    >>> rule = ScheduleSettings(warmup=2, floor=0.5)
    >>> [learning_rate(s, 4, 1.0, rule) for s in range(4)]
    [0.5, 1.0, 1.0, 0.75]
    """
    if step < settings.warmup:
        return peak * (step + 1) / settings.warmup
    if settings.kind == "constant":
        return peak
    done = (step - settings.warmup) / max(1, steps - settings.warmup)
    wave = (1.0 + math.cos(math.pi * min(1.0, done))) / 2.0
    return peak * (settings.floor + (1.0 - settings.floor) * wave)


def holders(placement: Placement, comm: Comm) -> int:
    """How many ranks of one replica hold the same elements of a parameter."""
    whole_over_z = comm.grid["z"].size if placement.z_size == 1 else 1
    return placement.replicated * whole_over_z


class GlobalNorm:
    """The norm of the serial model's whole gradient, from the parts the ranks hold.

    Parameters
    ----------
    registry : Registry
    comm : Comm
    order : {'2', 'inf'}
    """

    def __init__(self, registry: Registry, comm: Comm, order: str) -> None:
        self._comm, self._order = comm, order
        self._parts = [
            (parameter, holders(placement, comm), _padding(placement, parameter.device))
            for parameter, placement in registry.placements.items()
        ]

    def __call__(self) -> float:
        """The norm, infinite if any rank's gradient is not finite."""
        found = [self._part(*part) for part in self._parts if part[0].grad is not None]
        values = torch.stack(found) if found else torch.zeros(1, dtype=torch.float64)
        squared = self._order == "2"
        local = (values.sum() if squared else values.amax()).reshape(1)
        # a maximum of NaN depends on the order of its operands, so let it be infinite
        local = torch.nan_to_num(local, nan=torch.inf, posinf=torch.inf)
        for axis in ("x", "y", "z"):
            op = "sum" if squared else "max"
            self._comm.all_reduce(local, axis, "clipping", op=op, layer="clipping").wait()
        return math.sqrt(float(local)) if squared else float(local)

    def _part(self, parameter: nn.Parameter, copies: int, padding: Tensor | None) -> Tensor:
        assert parameter.grad is not None
        flat = parameter.grad.view(-1)
        if padding is not None:
            flat = flat.masked_fill(padding, 0.0)
        if self._order == "inf":
            largest: Tensor = torch.linalg.vector_norm(flat, torch.inf)
            return largest.double()
        norm: Tensor = torch.linalg.vector_norm(flat, dtype=torch.float64)
        return norm.square() / copies


def _padding(placement: Placement, device: torch.device) -> Tensor | None:
    """Which local elements only pad, None where none do."""
    padding = placement.index() < 0
    return padding.to(device) if bool(padding.any()) else None


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements ``start`` to ``stop`` of a parameter's local part, which this rank updates."""

    parameter: nn.Parameter
    view: Tensor
    start: int
    stop: int


class Shards:
    """Who updates what: everything everywhere, or with ZeRO each data rank its own part.

    Parameters are laid one behind the other in buckets, and each bucket is cut in equal parts.

    Parameters
    ----------
    registry : Registry
    comm : Comm
    zero : bool
    """

    def __init__(self, registry: Registry, comm: Comm, zero: bool) -> None:
        self._comm = comm
        place = comm.grid["data"]
        self._parts, self._index = (place.size, place.index) if zero else (1, 0)
        self._buckets: list[list[nn.Parameter]] = [[]]
        size = 0
        for parameter in registry.placements:
            size += parameter.numel() * parameter.element_size()
            if size > GATHER_BYTES and self._buckets[-1]:
                self._buckets.append([])
                size = 0
            self._buckets[-1].append(parameter)
        self.pieces = [p for b in self._buckets for p in self._cut(b, self._index)]

    def _cut(self, bucket: list[nn.Parameter], index: int) -> Iterator[Piece]:
        """The pieces of a bucket that a data rank updates."""
        width = self._width(bucket)
        low, high, at = index * width, (index + 1) * width, 0
        for parameter in bucket:
            numel = parameter.numel()
            start, stop = max(low - at, 0), min(high - at, numel)
            if start < stop:
                # detach, not data: the engine tells by the version what it gathered before
                yield Piece(parameter, parameter.detach().view(-1)[start:stop], start, stop)
            at += numel

    def _width(self, bucket: list[nn.Parameter]) -> int:
        return -(-sum(p.numel() for p in bucket) // self._parts)

    def gather(self) -> None:
        """Give every data rank what the others have updated."""
        if self._parts == 1:
            return
        handles = [self._issue(bucket) for bucket in self._buckets if bucket]
        for bucket, handle in zip(self._buckets, handles, strict=False):
            rows = handle.wait().view(self._parts, -1)
            for index in range(self._parts):
                at = 0
                for piece in self._cut(bucket, index):
                    size = piece.stop - piece.start
                    piece.view.copy_(rows[index, at : at + size])
                    at += size

    def _issue(self, bucket: list[nn.Parameter]) -> Handle:
        own = torch.cat(
            [piece.view for piece in self._cut(bucket, self._index)]
            or [bucket[0].detach().view(-1)[:0]]
        )
        shard = torch.nn.functional.pad(own, (0, self._width(bucket) - own.numel()))
        return self._comm.all_gather(shard, "data", "parameters", layer="parameters")


class Optimizer:
    """AdamW over this rank's pieces.

    Parameters
    ----------
    registry : Registry
    comm : Comm
    settings : OptimizerSettings
    precision : PrecisionSettings

    Attributes
    ----------
    scale : float
        What the loss is multiplied by before backward; 1 but for fp16.
    """

    def __init__(
        self,
        registry: Registry,
        comm: Comm,
        settings: OptimizerSettings,
        precision: PrecisionSettings,
    ) -> None:
        self.settings, self._precision = settings, precision
        self.scale = precision.scale if precision.dtype == "fp16" else 1.0
        self.good_steps = 0
        self._registry = registry
        self._norm = GlobalNorm(registry, comm, settings.clip_norm)
        self._shards = Shards(registry, comm, settings.zero)
        self.pieces = self._shards.pieces
        decays = [len(registry.placements[p.parameter].shape) > 1 for p in self.pieces]
        groups = [
            {
                "params": [p.view for p, d in zip(self.pieces, decays, strict=True) if d == wanted],
                "weight_decay": settings.weight_decay if wanted else 0.0,
            }
            for wanted in (True, False)
        ]
        self.adamw = torch.optim.AdamW(
            [g for g in groups if g["params"]],
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
            fused=True,
        )

    def step(self, lr: float) -> float:
        """Clip, update and clear the gradients; skip the update where fp16 overflowed.

        Returns
        -------
        float
            Global norm of the gradient before clipping; not finite for a skipped step.

        Raises
        ------
        FloatingPointError
            When the gradient is not finite, unless loss scaling can mend it.
        """
        norm = self._norm() / self.scale
        if math.isfinite(norm):
            self._update(lr, norm)
        elif self._precision.dtype != "fp16" or self.scale <= 1.0:
            raise FloatingPointError(
                "the gradient is not finite; try a lower --lr, more --warmup or --dtype fp32"
            )
        self._rescale(math.isfinite(norm))
        for parameter in self._registry.placements:
            parameter.grad = None
        return norm

    def _update(self, lr: float, norm: float) -> None:
        limit = self.settings.clip
        factor = (limit / norm if limit and norm > limit else 1.0) / self.scale
        for piece in self.pieces:
            gradient = piece.parameter.grad
            if gradient is None:
                piece.view.grad = None
                continue
            piece.view.grad = gradient.view(-1)[piece.start : piece.stop]
            if factor != 1.0:
                piece.view.grad.mul_(factor)
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()
        self._shards.gather()
        for piece in self.pieces:
            piece.view.grad = None

    def _rescale(self, good: bool) -> None:
        """Halve the scale after an overflow, double it after many steps without."""
        if self._precision.dtype != "fp16":
            return
        self.good_steps = self.good_steps + 1 if good else 0
        if not good:
            self.scale = max(1.0, self.scale / 2.0)
        elif self.good_steps >= self._precision.scale_window:
            self.scale, self.good_steps = min(LARGEST_SCALE, 2.0 * self.scale), 0

    # -- state --------------------------------------------------------------------------------

    def moments(self, piece: Piece) -> dict[str, Tensor]:
        """The state of a piece, made where there is none yet; a checkpoint reads and fills it."""
        state = self.adamw.state[piece.view]
        if not state:
            zero = torch.zeros_like(piece.view)
            state["step"] = torch.zeros((), dtype=torch.float32, device=piece.view.device)
            state["exp_avg"], state["exp_avg_sq"] = zero, zero.clone()
        return {name: state[name] for name in ("exp_avg", "exp_avg_sq")}

    @property
    def updates(self) -> int:
        """Updates done so far."""
        states = (self.adamw.state[p.view] for p in self.pieces)
        return max((int(s["step"]) for s in states if s), default=0)

    @updates.setter
    def updates(self, count: int) -> None:
        for piece in self.pieces:
            self.moments(piece)
            self.adamw.state[piece.view]["step"].fill_(count)
