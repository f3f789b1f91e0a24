"""Which operations of a traced module keep a layout, because they work on each feature alone."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from runtime.sharding import Features, join


class Refused(ValueError):  # noqa: N818 - it is an answer, not a fault
    """What cannot be done exactly, where, and what to do instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A split value.

    Attributes
    ----------
    features : Features
    dim : int
        The split dimension: -1 (features last) or 1 (channels of images).
    contiguous : bool
        Whether each rank's features are one contiguous part.
    """

    features: Features
    dim: int
    contiguous: bool = True

    def same(self, other: Held) -> bool:
        """Whether two values are split alike."""
        mine, its = self.features, other.features
        return (
            (mine.axis, mine.size, self.dim) == (its.axis, its.size, other.dim)
            and mine.local == its.local
            and bool((mine.index == its.index).all())
        )

    def words(self) -> str:
        """For a message."""
        where = "channels" if self.dim == 1 else "features"
        return f"in layout {self.features.axis} ({self.features.size} {where})"


#: modules that work on each element alone
ELEMENTWISE: tuple[type[nn.Module], ...] = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Softsign,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
)
#: modules that work on each channel of images alone
BY_CHANNEL: tuple[type[nn.Module], ...] = (
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.Upsample,
    nn.UpsamplingNearest2d,
    nn.UpsamplingBilinear2d,
    nn.ZeroPad2d,
    nn.ReflectionPad2d,
)
UNARY: tuple[Callable[..., Any] | str, ...] = (
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    torch.exp,
    torch.neg,
    torch.abs,
    torch.square,
    operator.neg,
    functional.relu,
    functional.gelu,
    functional.silu,
    functional.elu,
    functional.leaky_relu,
    functional.softplus,
    functional.sigmoid,
    functional.tanh,
    functional.hardswish,
    functional.mish,
    "relu",
    "tanh",
    "sigmoid",
    "exp",
    "neg",
    "abs",
    "square",
    "contiguous",
)
BINARY: tuple[Callable[..., Any] | str, ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.iadd,
    operator.isub,
    operator.imul,
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    "add",
    "sub",
    "mul",
    "div",
)


def is_known(module: nn.Module) -> bool:
    """Whether a module keeps layouts and has nothing to split."""
    return isinstance(module, (*ELEMENTWISE, *BY_CHANNEL, nn.Dropout, nn.Flatten))


def propagate(
    node: fx.Node, called: nn.Module | None, held: dict[fx.Node, Held | None]
) -> Held | None:
    """The layout of a value that no layer of a rule makes.

    Raises
    ------
    Refused
        Where the operation is not known to be exact on split values, or across samples.
    """
    values = [held[n] for n in node.all_input_nodes]
    if called is not None:
        return _module(node, called, values)
    if node.target in UNARY and len(values) == 1:
        return values[0]
    if node.target in BINARY:
        return _binary(node, values)
    if node.target in {torch.cat, torch.concat}:
        return _concatenated(node, values)
    if node.target in {torch.flatten, "flatten"} and values == [None]:
        if _argument(node, 1, "start_dim", 0) >= 1:
            return None
        raise _unknown(node, "flattens samples together; give start_dim=1")
    raise _unknown(node, "is not known to work on each feature and sample alone")


def _module(node: fx.Node, called: nn.Module, values: list[Held | None]) -> Held | None:
    name = f"{node.target} ({type(called).__name__})"
    if isinstance(called, nn.Dropout):
        if called.p:
            raise Refused(
                f"{name}: torch draws its masks from a state that differs by rank; set p = 0, or "
                f"put runtime.dropout.Dropout there by hand"
            )
        return values[0]
    if isinstance(called, ELEMENTWISE):
        return values[0]
    if isinstance(called, BY_CHANNEL):
        if values[0] is None or values[0].dim == 1:
            return values[0]
        raise Refused(f"{name}: it takes images, but its input is {values[0].words()}")
    if isinstance(called, nn.Flatten) and values[0] is None and called.start_dim >= 1:
        return None
    raise _unknown(node, f"({type(called).__name__}) is not known to be exact here")


def _binary(node: fx.Node, values: list[Held | None]) -> Held | None:
    if len(values) == 1:  # the other one is a number
        return values[0]
    one, two = values
    if one is None and two is None:
        return None
    if one is not None and two is not None and one.same(two):
        return one
    words = [v.words() if v else "whole on every rank" for v in values]
    raise Refused(
        f"{node.name}: it joins a value {words[0]} with one {words[1]}; choose rules that leave "
        f"both in one layout"
    )


def _concatenated(node: fx.Node, values: list[Held | None]) -> Held | None:
    dim = _argument(node, 1, "dim", 0)
    if dim == 0:
        raise _unknown(node, "concatenates samples, which are split over z and data")
    if all(v is None for v in values):
        return None
    parts = [v for v in values if v is not None]
    axes = {(v.features.axis, v.dim) for v in parts}
    if len(parts) == len(values) and len(axes) == 1 and parts[0].dim == dim:
        return Held(join(v.features for v in parts), dim, contiguous=False)
    raise _unknown(node, "concatenates values of several layouts, or along another dimension")


def _argument(node: fx.Node, at: int, name: str, default: int) -> int:
    value = node.args[at] if len(node.args) > at else node.kwargs.get(name, default)
    return int(value)  # type: ignore[arg-type]


def _unknown(node: fx.Node, why: str) -> Refused:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return Refused(f"{node.name}: {target} {why}; keep it outside the part that is parallelized")
