"""Activation checkpointing: compute again in backward what forward did not keep.

``full`` keeps only a block's inputs. Its second forward gathers the weights again, in the order in
which they are really used, so that the engine's prefetch sees it like any other gather; its
collectives count as backward. ``selective`` keeps the products' outputs and computes attention's
core and the activation functions again, which sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from runtime.overlap import Engine


class _Again(torch.autograd.Function):
    """Run a function without keeping its intermediate values, and again in backward."""

    @staticmethod
    def forward(
        ctx: Any,
        run: Callable[..., Tensor],
        engine: Engine,
        anchor: Tensor,  # noqa: ARG004 - makes the output need a gradient where no input does
        *inputs: Tensor,
    ) -> Tensor:
        ctx.run, ctx.engine, ctx.samples = run, engine, engine.samples
        ctx.autocast = _autocast(inputs[0].device.type)
        ctx.save_for_backward(*inputs)
        return run(*inputs)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        engine: Engine = ctx.engine
        inputs = [
            t.detach().requires_grad_(needed)
            for t, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[3:], strict=True)
        ]
        with engine.comm.during("backward"), _samples(engine, ctx.samples):
            with torch.enable_grad(), ctx.autocast():
                out = ctx.run(*inputs)
            torch.autograd.backward(out, dout)
        return None, None, None, *(t.grad for t in inputs)


def block(engine: Engine, run: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Run a block of the model; with ``full`` only its inputs are kept.

    Parameters
    ----------
    engine : Engine
    run : callable
        Takes the inputs; must compute the same each time it is called.
    """
    if engine.recompute != "full" or not torch.is_grad_enabled():
        return run(*inputs)
    anchor = torch.empty(0, requires_grad=True)
    out: Tensor = _Again.apply(run, engine, anchor, *inputs)
    return out


def core(engine: Engine, run: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Run attention's core; with ``selective`` only its inputs are kept. It sends nothing."""
    if engine.recompute != "selective" or not torch.is_grad_enabled():
        return run(*inputs)
    samples = engine.samples

    def same(*again: Tensor) -> Tensor:
        with _samples(engine, samples):
            return run(*again)

    out: Tensor = checkpoint(same, *inputs, use_reentrant=False, preserve_rng_state=False)
    return out


def activated(
    engine: Engine, function: Callable[[Tensor], Tensor], x: Tensor, layer: Callable[..., Tensor]
) -> Tensor:
    """``layer(function(x))``; with ``selective`` the layer keeps x and not the function's value."""
    value = function(x)
    with _instead(engine, value, function, x):
        return layer(value)


def _instead(
    engine: Engine, value: Tensor, function: Callable[[Tensor], Tensor], x: Tensor
) -> AbstractContextManager[object]:
    """Save the recipe of a value instead of the value."""
    if engine.recompute != "selective" or not torch.is_grad_enabled():
        return nullcontext()
    place, numel, source, samples = value.data_ptr(), value.numel(), x.detach(), engine.samples

    def pack(saved: Tensor) -> Tensor | tuple[torch.Size, torch.dtype]:
        if saved.data_ptr() == place and saved.numel() == numel and saved.is_contiguous():
            return saved.shape, saved.dtype
        return saved

    def unpack(kept: Tensor | tuple[torch.Size, torch.dtype]) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        with torch.no_grad(), _samples(engine, samples):
            return function(source).to(kept[1]).view(kept[0])

    return saved_tensors_hooks(pack, unpack)


@contextmanager
def _samples(engine: Engine, samples: Tensor | None) -> Iterator[None]:
    """Let dropout see the micro-batch of an earlier forward."""
    before, engine.samples = engine.samples, samples
    try:
        yield
    finally:
        engine.samples = before


def _autocast(device: str) -> Callable[[], torch.autocast]:
    """What puts autocast as it is now."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype=dtype, enabled=enabled)
