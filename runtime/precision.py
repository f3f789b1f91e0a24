"""The number format of a product: autocast's where it is on, else the activation's own."""

from __future__ import annotations

import torch
from torch import Tensor


def product_dtype(x: Tensor) -> torch.dtype:
    """The format in which a layer that is no single torch operation multiplies."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def full(x: Tensor) -> Tensor:
    """At least fp32, for statistics and losses."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
