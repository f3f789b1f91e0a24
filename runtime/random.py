"""Random numbers of a name and a global index only: any sharding draws the same."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def key(seed: int, name: str) -> int:
    """A 63-bit key of a seed and a name."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def bits(stream: int, index: Tensor) -> Tensor:
    """53 random bits per index, as int64 (splitmix64 of Steele, Lea and Flood 2014).

    Parameters
    ----------
    stream : int
        A key.
    index : Tensor of int64
        Global indices.
    """
    state = index * _GOLDEN + stream
    state = (state ^ _shift(state, 30)) * _MIX1
    state = (state ^ _shift(state, 27)) * _MIX2
    return _shift(state ^ _shift(state, 31), 11)


def uniform(stream: int, index: Tensor) -> Tensor:
    """Uniform doubles in (0, 1), one per index."""
    return (bits(stream, index).double() + 0.5) * 2.0**-53


def normal(stream: int, index: Tensor) -> Tensor:
    """Standard normal doubles, one per index (Box and Muller 1958)."""
    radius = torch.sqrt(-2.0 * torch.log(uniform(stream, 2 * index)))
    return radius * torch.cos(2.0 * math.pi * uniform(stream, 2 * index + 1))
