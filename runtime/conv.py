"""The 3D tensor-parallel convolution: a linear layer whose weight has k * k taps.

Channels are split like a linear layer's features (see `runtime.linear`), images like its tokens;
height and width are whole.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.comm import Handle
from runtime.linear import NORMAL, Rows, bias_parameter, block_parameter
from runtime.overlap import Engine
from runtime.precision import product_dtype
from runtime.sharding import Features, features


class _Convolution(torch.autograd.Function):
    """The convolution of the in-axis' channels, summed."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layer: Conv2d, weight: nn.Parameter, bias: Tensor | None
    ) -> Tensor:
        engine, dtype = layer.engine, product_dtype(x)
        x = x.to(dtype)
        ctx.save_for_backward(x)
        ctx.layer = layer
        bias = None if bias is None else bias.to(dtype)
        alone = engine.native(layer.in_axis)
        block = layer.taps(engine.gather(weight, dtype))
        y = functional.conv2d(x, block, bias if alone else None, layer.stride, layer.padding)
        if not alone:
            engine.comm.all_reduce(y, layer.in_axis, "forward", layer=layer.name).wait()
            if bias is not None:
                y += bias[:, None, None]
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        layer: Conv2d = ctx.layer
        later = layer.engine.native(layer.out_axis)
        dx, handle, dweight = None, None, None
        if later:
            dweight = layer.weight_gradient(dy, x)
        if ctx.needs_input_grad[0]:
            dx, handle = layer.input_gradient(dy, x)
        if not later:
            dweight = layer.weight_gradient(dy, x)
        dbias = None if layer.bias is None else dy.sum((0, 2, 3))
        if handle is not None:
            handle.wait()
        return dx, None, dweight, dbias


class Conv2d(nn.Module):
    """A convolution on the grid.

    Parameters
    ----------
    engine : Engine
    name : str
        Name in the serial model.
    in_channels, out_channels : int
        Of the whole layer.
    kernel : int
        Height and width of the kernel.
    axes : tuple of str
        In-axis and out-axis, as of a linear layer.
    stride, padding : int
    bias : bool
    std : float, optional
        Of the initial weights; 1 / sqrt(in_channels * kernel ** 2) by default.
    inputs : Features, optional
        The channels held here, where they are no contiguous part (concatenations).
    outputs : Features, optional
        The output channels held here, where they are no contiguous part (before a relayout).
    """

    def __init__(  # noqa: PLR0913 - a layer has this many independent properties
        self,
        engine: Engine,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel: int,
        *,
        axes: tuple[str, str] = NORMAL,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        std: float | None = None,
        inputs: Features | None = None,
        outputs: Features | None = None,
    ) -> None:
        super().__init__()
        self.engine, self.name, self.kernel = engine, name, kernel
        self.in_axis, self.out_axis = axes
        self.stride, self.padding = stride, padding
        grid = engine.comm.grid
        cols = inputs or features(grid, self.in_axis, in_channels, f"{name}: in-channels")
        held = outputs or features(grid, self.out_axis, out_channels, f"{name}: out-channels")
        rows = Rows(name, held)
        std = (in_channels * kernel**2) ** -0.5 if std is None else std
        self.weight = block_parameter(engine, rows, cols, std, (kernel, kernel))
        self.bias = bias_parameter(engine, rows) if bias else None
        self._native = engine.native(self.in_axis, self.out_axis, "z")
        self._block = (held.local, cols.local, kernel, kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, I/a, H, W) to (B, O/b, H', W')."""
        if self._native:
            weight = self.taps(self.weight)
            return functional.conv2d(x, weight, self.bias, self.stride, self.padding)
        y: Tensor = _Convolution.apply(x, self, self.weight, self.bias)
        return y

    def taps(self, block: Tensor) -> Tensor:
        """The block as torch wants it: (O/b, I/a, k, k)."""
        return block.view(self._block)

    def input_gradient(self, dy: Tensor, x: Tensor) -> tuple[Tensor, Handle]:
        """The input's gradient, its sum over the out-axis under way (done, without OAR)."""
        block = self.taps(self.engine.gather(self.weight, dy.dtype))
        dx = self._backward(dy, x, block, (True, False, False))[0]
        if not self.out_axis:
            return dx, Handle(dx)
        comm = self.engine.comm
        handle = comm.all_reduce(dx, self.out_axis, "backward", layer=self.name)
        if not self.engine.overlap.oar:
            handle.wait()
        return dx, handle

    def weight_gradient(self, dy: Tensor, x: Tensor) -> Tensor | None:
        """What autograd gets for the weight; its reduce-scatter is under way."""
        sizes = dy.new_empty(1).expand(self._block)  # its values do not enter its own gradient
        gradient = self._backward(dy, x, sizes, (False, True, False))[1]
        return self.engine.reduce(self.weight, gradient)

    def _backward(
        self, dy: Tensor, x: Tensor, block: Tensor, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        stride, padding, ones = (self.stride,) * 2, (self.padding,) * 2, (1, 1)
        out: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            dy, x, block, None, stride, padding, ones, False, (0, 0), 1, wanted
        )
        return out
