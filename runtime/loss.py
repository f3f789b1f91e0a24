"""Losses over split classes and whole images, exactly as on one rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtime.comm import Comm
from runtime.precision import full
from runtime.sharding import Features

#: target that does not count
IGNORED = -100


class _CrossEntropy(torch.autograd.Function):
    """Sum over tokens of ``logsumexp(logits) - logits[target]``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, held: Features, comm: Comm) -> Tensor:
        index = held.index.to(logits.device)
        if int(held.index[-1]) >= held.size:
            logits = logits.masked_fill(index >= held.size, -torch.inf)
        high = logits.amax(-1)
        comm.all_reduce(high, held.axis, "loss", op="max", layer="loss").wait()
        shifted = (logits - high[..., None]).exp()
        local = targets - index[0]
        mine = (local >= 0) & (local < logits.shape[-1])
        local = torch.where(mine, local, 0)
        chosen = logits.gather(-1, local[..., None])[..., 0]
        both = torch.stack((shifted.sum(-1), torch.where(mine, chosen - high, 0)))
        comm.all_reduce(both, held.axis, "loss", layer="loss").wait()
        total, chosen = both
        valid = targets != IGNORED
        ctx.save_for_backward(shifted, total, local, mine, valid)
        return ((total.log() - chosen) * valid).sum()

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        shifted, total, local, mine, valid = ctx.saved_tensors
        gradient = shifted / total[..., None]
        hit = torch.where(mine, 1.0, 0.0).to(gradient.dtype)
        gradient.scatter_add_(-1, local[..., None], -hit[..., None])
        return gradient.mul_(valid[..., None] * dloss), None, None, None


def cross_entropy(
    logits: Tensor, targets: Tensor, held: Features, num_valid: Tensor, comm: Comm
) -> Tensor:
    """Its part of the mean loss: this rank's sum over the global number of valid targets.

    Parameters
    ----------
    logits : Tensor, shape (..., V/a)
    targets : Tensor of int64, shape (...)
        `IGNORED` ones do not count.
    held : Features
        The classes of the last dimension, a contiguous part; those beyond its size are padding
        and count as -inf.
    num_valid : Tensor
        Valid targets of the whole batch.
    comm : Comm

    Returns
    -------
    Tensor
        Summed over z and data it is the mean loss of the batch.
    """
    logits = full(logits)
    if held.axis and comm.grid[held.axis].size > 1:
        total: Tensor = _CrossEntropy.apply(logits, targets, held, comm)
    else:
        flat = logits.flatten(0, -2)
        total = functional.cross_entropy(
            flat, targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
    return total / num_valid


def squared_error(out: Tensor, wanted: Tensor, num_valid: Tensor) -> Tensor:
    """Its part of the mean squared error over whole samples.

    Parameters
    ----------
    out, wanted : Tensor, shape (B, ...)
        The same on all ranks of a (x, y) plane.
    num_valid : Tensor
        Samples of the whole batch.
    """
    each = wanted[0].numel()
    return functional.mse_loss(full(out), full(wanted), reduction="sum") / (num_valid * each)
