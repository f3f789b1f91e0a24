"""The 3D tensor-parallel linear layer.

Shapes: N = tokens of this rank (its part over z and data), I = in-features, O = out-features,
a = size of the in-axis, b = size of the out-axis. A normal layer has in-axis x and out-axis y, a
transposed one the reverse, so that no resharding lies between a normal layer and a transposed one.
An axis ``""`` is no axis: that side is whole on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.comm import Handle
from runtime.overlap import Engine
from runtime.precision import product_dtype
from runtime.sharding import Features, Placement, features

NORMAL = ("x", "y")
TRANSPOSED = ("y", "x")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some outputs of a layer that are a parameter of their own.

    Attributes
    ----------
    name : str
        Name in the serial model.
    held : Features
        Which outputs this rank has, and of how many.
    copies : int
        Ranks of the out-axis that hold the same ones.
    sum_axes : tuple of str
        Axes over which those ranks' gradients are summed.
    """

    name: str
    held: Features
    copies: int = 1
    sum_axes: tuple[str, ...] = ()


def block_parameter(
    engine: Engine, rows: Rows, cols: Features, std: float, kernel: tuple[int, ...] = ()
) -> nn.Parameter:
    """The weight of some outputs and inputs: a block, flattened over z.

    Parameters
    ----------
    kernel : tuple of int
        Further dimensions of the weight (a convolution's).
    """
    grid = engine.comm.grid
    taps = 1
    for size in kernel:
        taps *= size
    columns = (cols.index[:, None] * taps + torch.arange(taps)).reshape(-1)
    axes = {cols.axis, rows.held.axis} - {""}
    plane = grid["x"].size * grid["y"].size
    for axis in axes:
        plane //= grid[axis].size
    placement = Placement(
        f"{rows.name}.weight",
        (rows.held.size, cols.size, *kernel),
        rows.held.index,
        columns,
        grid["z"].index,
        grid["z"].size,
        sum_axes=(*rows.sum_axes, "data"),
        replicated=plane * rows.copies,
    )
    return engine.registry.weight(placement, std)


def bias_parameter(engine: Engine, rows: Rows) -> nn.Parameter:
    """The bias of some outputs."""
    name = f"{rows.name}.bias"
    return engine.registry.vector(name, rows.held, 0.0, rows.copies, rows.sum_axes)


class _Product(torch.autograd.Function):
    """``x @ W.T + bias`` of the in-axis' parts, summed; see the module for the shapes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Linear, *parameters: Tensor) -> Tensor:
        engine, dtype = layer.engine, product_dtype(x)
        x = x.to(dtype)
        ctx.save_for_backward(x)
        ctx.layer = layer
        biases = [b.to(dtype) for b in parameters[len(layer.blocks) :]]
        alone = engine.native(layer.in_axis)
        outs = []
        for i, weight in enumerate(layer.blocks):
            bias = biases[i] if biases and alone else None
            outs.append(functional.linear(x, engine.gather(weight, dtype), bias))
        y = outs[0] if len(outs) == 1 else torch.cat(outs, -1)
        if not alone:
            engine.comm.all_reduce(y, layer.in_axis, "forward", layer=layer.name).wait()
            if biases:
                y += biases[0] if len(biases) == 1 else torch.cat(biases)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        layer: Linear = ctx.layer
        dy, cols = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        parts = dy.split([layer.engine.registry.placements[w].block[0] for w in layer.blocks], -1)
        # with nothing to reduce, the weights' product goes first: z's scatter hides under dX's
        later = layer.engine.native(layer.out_axis)
        grads = layer.weight_gradients(parts, cols) if later else []
        dx, handle = layer.input_gradient(parts, x) if ctx.needs_input_grad[0] else (None, None)
        if not later:
            grads = layer.weight_gradients(parts, cols)
        if layer.offsets:
            grads += [p.sum(0) for p in parts]
        if handle is not None:
            handle.wait()
        return dx, None, *grads


class Linear(nn.Module):
    """A linear layer on the grid.

    Parameters
    ----------
    engine : Engine
    name : str
        Name in the serial model.
    in_features, out_features : int
        Of the whole layer.
    axes : tuple of str
        In-axis and out-axis: `NORMAL`, `TRANSPOSED`, or with ``""`` for a side that is whole.
    bias : bool
    std : float
        Of the initial weights.
    inputs : Features, optional
        The inputs held here, where they are no contiguous part (concatenations).
    rows : sequence of Rows, optional
        The outputs held here, where they are no contiguous part (heads).
    weight : Parameter, optional
        An existing block to share (tied embedding).
    """

    def __init__(  # noqa: PLR0913 - a layer has this many independent properties
        self,
        engine: Engine,
        name: str,
        in_features: int,
        out_features: int,
        *,
        axes: tuple[str, str] = NORMAL,
        bias: bool = True,
        std: float = 0.02,
        inputs: Features | None = None,
        rows: Sequence[Rows] = (),
        weight: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.engine, self.name = engine, name
        self.in_axis, self.out_axis = axes
        grid = engine.comm.grid
        cols = inputs or features(grid, self.in_axis, in_features, f"{name}: in-features")
        if not rows:
            held = features(grid, self.out_axis, out_features, f"{name}: out-features")
            rows = (Rows(name, held),)
        given = [weight] if weight is not None else []
        self.weights = nn.ParameterList(
            given or [block_parameter(engine, part, cols, std) for part in rows]
        )
        self.biases = nn.ParameterList([bias_parameter(engine, p) for p in rows] if bias else [])
        # the same once more: a list of parameters is slow to walk
        self.blocks, self.offsets = tuple(self.weights), tuple(self.biases)
        self._native = engine.native(self.in_axis, self.out_axis, "z")
        self._shapes = [engine.registry.placements[w].block for w in self.weights]

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., I/a) to (..., O/b)."""
        weights, biases = self.blocks, self.offsets
        if not self._native:
            y: Tensor = _Product.apply(x, self, *weights, *biases)
            return y
        outs = [
            functional.linear(x, weight.view(shape), biases[i] if biases else None)
            for i, (weight, shape) in enumerate(zip(weights, self._shapes, strict=True))
        ]
        return outs[0] if len(outs) == 1 else torch.cat(outs, -1)

    def input_gradient(self, parts: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Handle]:
        """The input's gradient, its sum over the out-axis under way (done, without OAR)."""
        dx: Tensor | None = None
        for part, weight in zip(parts, self.blocks, strict=True):
            block = self.engine.gather(weight, part.dtype)
            dx = part @ block if dx is None else dx.addmm_(part, block)
        assert dx is not None
        dx = dx.view(x.shape)
        comm = self.engine.comm
        if not self.out_axis:
            return dx, Handle(dx)
        handle = comm.all_reduce(dx, self.out_axis, "backward", layer=self.name)
        if not self.engine.overlap.oar:
            handle.wait()
        return dx, handle

    def weight_gradients(self, parts: Sequence[Tensor], cols: Tensor) -> list[Tensor | None]:
        """What autograd gets for the weights; their reduce-scatters are under way."""
        return [
            self.engine.reduce(weight, part.T @ cols)
            for part, weight in zip(parts, self.blocks, strict=True)
        ]
