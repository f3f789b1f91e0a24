"""Cross-entropy over logits whose vocabulary is split over y, exactly as on one rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runtime.comm import Comm

#: target that does not count
IGNORED = -100


class _CrossEntropy(torch.autograd.Function):
    """Sum over tokens of ``logsumexp(logits) - logits[target]``."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, first: int, real: int, comm: Comm
    ) -> Tensor:
        columns = torch.arange(first, first + logits.shape[-1])
        logits = logits.masked_fill(columns >= real, -torch.inf)
        high = logits.amax(-1)
        comm.all_reduce(high, "y", "loss", op="max", layer="loss").wait()
        shifted = (logits - high[..., None]).exp()
        total = shifted.sum(-1)
        local = targets - first
        mine = (local >= 0) & (local < logits.shape[-1])
        local = torch.where(mine, local, 0)
        chosen = logits.gather(-1, local[..., None])[..., 0]
        chosen = torch.where(mine, chosen - high, torch.zeros_like(high))
        both = torch.stack((total, chosen))
        comm.all_reduce(both, "y", "loss", layer="loss").wait()
        total, chosen = both
        valid = targets != IGNORED
        ctx.save_for_backward(shifted, total, local, mine, valid)
        return ((total.log() - chosen) * valid).sum()

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        shifted, total, local, mine, valid = ctx.saved_tensors
        gradient = shifted / total[..., None]
        hit = torch.where(mine, 1.0, 0.0).to(gradient.dtype)
        gradient.scatter_add_(-1, local[..., None], -hit[..., None])
        return gradient * (valid[..., None] * dloss), None, None, None, None


def cross_entropy(
    logits: Tensor, targets: Tensor, first: int, real: int, num_valid: Tensor, comm: Comm
) -> Tensor:
    """Its part of the mean loss: this rank's sum over the global number of valid tokens.

    Parameters
    ----------
    logits : Tensor, shape (B, T, V/y)
    targets : Tensor of int64, shape (B, T)
        `IGNORED` ones do not count.
    first : int
        Vocabulary index of the first column here.
    real : int
        Vocabulary without padding; padded columns count as -inf.
    num_valid : Tensor
        Valid tokens of the whole batch.
    comm : Comm

    Returns
    -------
    Tensor
        Summed over z and data it is the mean loss of the batch.
    """
    total: Tensor = _CrossEntropy.apply(logits, targets, first, real, comm)
    return total / num_valid
