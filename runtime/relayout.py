"""Move an activation from layout y to layout x, and features into and out of a layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runtime.comm import Comm
from runtime.grid import Grid
from runtime.overlap import Engine
from runtime.sharding import Features


def before_relayout(grid: Grid, size: int, what: str) -> Features:
    """The features a layer should leave on each rank of y, so that a relayout is one gather.

    Rank j of y gets the j-th piece of every rank's part of x: then each rank of y sends what its
    own part of x needs, and nothing else.

    Raises
    ------
    ValueError
        When x * y does not divide the size.
    """
    x, y = grid["x"], grid["y"]
    if size % (x.size * y.size):
        raise ValueError(
            f"{what} of {size} does not divide over x * y = {x.size} * {y.size}, which moving "
            f"them from layout y to layout x needs"
        )
    pieces = torch.arange(size).view(x.size, y.size, -1)
    return Features("y", size, pieces[:, y.index].reshape(-1))


class _Relayout(torch.autograd.Function):
    """Keep this rank's part of x of its features of y, and gather the others' over y."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, comm: Comm, name: str) -> Tensor:
        ctx.comm, ctx.name = comm, name
        return _move(t, comm, "x", "y", name)

    @staticmethod
    def backward(ctx: Any, dt: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return _move(dt, ctx.comm, "y", "x", ctx.name), None, None


def _move(t: Tensor, comm: Comm, keep: str, gather: str, name: str) -> Tensor:
    """Keep our part of dimension 1 by one axis, then concatenate it over another."""
    mine = comm.grid[keep]
    own = t.chunk(mine.size, 1)[mine.index].contiguous()
    parts = comm.all_gather(own.view(-1), gather, "relayout", layer=name).wait()
    return torch.cat(parts.view(comm.grid[gather].size, *own.shape).unbind(0), 1)


def relayout(engine: Engine, t: Tensor, name: str) -> Tensor:
    """From layout y (as `before_relayout` says) to layout x.

    Parameters
    ----------
    t : Tensor, shape (B, C/y, ...)
        The same on all ranks of x.
    name : str
        Of the layer that needed it.

    Returns
    -------
    Tensor, shape (B, C/x, ...)
        The same on all ranks of y.
    """
    if engine.native("x", "y"):
        return t
    out: Tensor = _Relayout.apply(t, engine.comm, name)
    return out


class _Gather(torch.autograd.Function):
    """Concatenate a split dimension; everybody's gradient is the same, so keep our part of it."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, comm: Comm, held: Features, dim: int, name: str) -> Tensor:
        ctx.held, ctx.dim = held, dim
        own = t.movedim(dim, 0).contiguous()
        parts = comm.all_gather(own.view(-1), held.axis, "relayout", layer=name).wait()
        return parts.view(-1, *own.shape[1:]).movedim(0, dim)

    @staticmethod
    def backward(ctx: Any, dt: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        return dt.index_select(ctx.dim, ctx.held.index.to(dt.device)), None, None, None, None


def gather_features(engine: Engine, t: Tensor, held: Features, dim: int, name: str) -> Tensor:
    """All features of a split dimension, on every rank of its axis.

    Parameters
    ----------
    held : Features
        Contiguous parts in the axis' order.
    """
    if engine.native(held.axis):
        return t
    out: Tensor = _Gather.apply(t, engine.comm, held, dim, name)
    return out


class _Take(torch.autograd.Function):
    """Keep our features; in backward everybody's gradients are put together again."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, comm: Comm, held: Features, dim: int, name: str) -> Tensor:
        ctx.comm, ctx.held, ctx.dim, ctx.name = comm, held, dim, name
        return t.index_select(dim, held.index.to(t.device))

    @staticmethod
    def backward(ctx: Any, dt: Tensor) -> tuple[Tensor | None, None, None, None, None]:  # type: ignore[override]
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, None
        own = dt.movedim(ctx.dim, 0).contiguous()
        parts = ctx.comm.all_gather(own.view(-1), ctx.held.axis, "relayout", layer=ctx.name).wait()
        whole = parts.view(-1, *own.shape[1:]).movedim(0, ctx.dim)
        return whole, None, None, None, None


def take_features(engine: Engine, t: Tensor, held: Features, dim: int, name: str) -> Tensor:
    """Keep this rank's features of an activation that every rank has whole.

    Parameters
    ----------
    held : Features
        Contiguous parts in the axis' order.
    """
    if engine.native(held.axis):
        return t
    out: Tensor = _Take.apply(t, engine.comm, held, dim, name)
    return out
