"""Samples by their global index: the same batches on every grid, each rank making only its own.

A sample depends on the seed and its index alone, so the position in the data is one number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from runtime import random
from runtime.config import DataSettings
from runtime.grid import Grid
from runtime.models import GPTConfig, MLPConfig, ModelConfig
from runtime.settings import ConfigError

#: of synthetic tokens are noise
NOISE_FRAC = 0.05
#: of a text is kept for evaluation
HELD_OUT_FRAC = 0.05
BYTES = 256


@dataclass(frozen=True, slots=True)
class Batch:
    """A rank's samples of one micro-batch.

    Attributes
    ----------
    inputs : dict of str to Tensor
        What the model's forward takes; ``samples`` are their global indices.
    num_valid : Tensor
        Items that count in the whole batch's mean loss, over all ranks and micro-batches.
    """

    inputs: dict[str, Tensor]
    num_valid: Tensor


class Source(Protocol):
    """Makes samples."""

    @property
    def items(self) -> int:
        """How many items of a sample count in the loss (the tokens of a sequence)."""

    def samples(self, index: Tensor, *, held_out: bool) -> dict[str, Tensor]:
        """The samples of global indices, for training or held out for evaluation."""


@dataclass(frozen=True, slots=True)
class SyntheticTokens:
    """Sequences that count up with a step of their own, with some noise: there is much to learn.

    Parameters
    ----------
    seed, vocabulary, length : int
    """

    seed: int
    vocabulary: int
    length: int

    @property
    def items(self) -> int:
        """Tokens of a sample."""
        return self.length

    def samples(self, index: Tensor, *, held_out: bool) -> dict[str, Tensor]:
        """``tokens`` and ``targets``, shape (B, T)."""
        key = {
            word: random.key(self.seed, _named(word, held_out))
            for word in ("start", "step", "token", "noise")
        }
        start = random.bits(key["start"], index) % self.vocabulary
        step = 1 + random.bits(key["step"], index) % 7
        at = torch.arange(self.length + 1)
        tokens = (start[:, None] + step[:, None] * at) % self.vocabulary
        place = index[:, None] * (self.length + 1) + at
        other = random.bits(key["token"], place) % self.vocabulary
        noisy = random.uniform(key["noise"], place) < NOISE_FRAC
        return _shifted(torch.where(noisy, other, tokens))


@dataclass(frozen=True, slots=True)
class SyntheticVectors:
    """Normal vectors, whose class is the place of their largest value.

    Parameters
    ----------
    seed, inputs, classes : int
    """

    seed: int
    inputs: int
    classes: int

    @property
    def items(self) -> int:
        """Targets of a sample."""
        return 1

    def samples(self, index: Tensor, *, held_out: bool) -> dict[str, Tensor]:
        """``x``, shape (B, inputs), and ``targets``, shape (B,)."""
        key = random.key(self.seed, _named("vectors", held_out))
        x = random.normal(key, index[:, None] * self.inputs + torch.arange(self.inputs))
        return {"x": x, "targets": x[:, : self.classes].argmax(-1)}


@dataclass(frozen=True, slots=True)
class SyntheticImages:
    """Images of one wave each, with the noise and the diffusion step to learn from.

    Parameters
    ----------
    seed, size, colours, levels : int
    """

    seed: int
    size: int
    colours: int
    levels: int

    @property
    def items(self) -> int:
        """The loss is a mean over images."""
        return 1

    def samples(self, index: Tensor, *, held_out: bool) -> dict[str, Tensor]:
        """``images`` and ``noise``, shape (B, colours, H, W), and ``steps``, shape (B,)."""
        key = {
            word: random.key(self.seed, _named(word, held_out))
            for word in ("down", "across", "phase", "noise", "level")
        }
        at = 2.0 * torch.pi * torch.arange(self.size) / self.size
        down, across = (1 + random.bits(key[w], index) % 3 for w in ("down", "across"))
        waves = down[:, None, None] * at[:, None] + across[:, None, None] * at
        places = index[:, None] * self.colours + torch.arange(self.colours)
        phases = 2.0 * torch.pi * random.uniform(key["phase"], places)
        pixels = torch.arange(self.colours * self.size**2)
        noise = random.normal(key["noise"], index[:, None] * len(pixels) + pixels)
        return {
            "images": torch.cos(waves[:, None] + phases[:, :, None, None]),
            "noise": noise.view(-1, self.colours, self.size, self.size),
            "steps": random.bits(key["level"], index) % self.levels,
        }


class TextTokens:
    """The bytes of a text file in windows; each is read once an epoch, in an order of its own.

    The last windows are held out for evaluation. Only the windows asked for are read.

    Parameters
    ----------
    path : Path
    seed, vocabulary, length : int

    Raises
    ------
    ConfigError
        When the file cannot be read or is too short, or the vocabulary has no 256 tokens.
    """

    def __init__(self, path: Path, seed: int, vocabulary: int, length: int) -> None:
        if vocabulary < BYTES:
            raise ConfigError(
                f"vocabulary = {vocabulary}: bytes of a text need {BYTES}; "
                f"give --dim vocabulary={BYTES}"
            )
        try:
            size = path.stat().st_size
            windows = (size - 1) // length
            if windows >= 2:
                self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        except OSError as e:
            raise ConfigError(f"{path}: {e.strerror}; give a text file that can be read") from e
        if windows < 2:
            raise ConfigError(f"{path}: {size} bytes; needs {2 * length + 1} (two sequences)")
        self.items = length
        self._seed, self._length = seed, length
        self._held_out = max(1, int(HELD_OUT_FRAC * windows))
        self._training = windows - self._held_out

    def samples(self, index: Tensor, *, held_out: bool) -> dict[str, Tensor]:
        """``tokens`` and ``targets``, shape (B, T)."""
        if held_out:
            windows = [self._training + i % self._held_out for i in index.tolist()]
        else:
            windows = [self._window(i) for i in index.tolist()]
        rows = [
            self._bytes[w * self._length : (w + 1) * self._length + 1].astype(np.int64)
            for w in windows
        ]
        return _shifted(torch.from_numpy(np.stack(rows)))

    def _window(self, sample: int) -> int:
        """Window of a sample: in each epoch an affine permutation of all windows."""
        epoch, place = divmod(sample, self._training)
        draws = random.bits(random.key(self._seed, f"epoch {epoch}"), torch.arange(64)).tolist()
        fitting = (d % self._training for d in draws)
        factor = next((f for f in fitting if math.gcd(f, self._training) == 1), 1)
        return int((factor * place + draws[0]) % self._training)


def _named(word: str, held_out: bool) -> str:
    return f"held out {word}" if held_out else f"training {word}"


def _shifted(tokens: Tensor) -> dict[str, Tensor]:
    return {"tokens": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


class Loader:
    """A rank's part of each batch, and the position in the data.

    Parameters
    ----------
    source : Source
    grid : Grid
        Its z and data axes split the samples.
    size : int
        Samples of a batch, over all ranks.
    micro_batches : int
    device : torch.device

    Attributes
    ----------
    position : int
        Samples taken so far, over all ranks.
    """

    def __init__(
        self, source: Source, grid: Grid, size: int, micro_batches: int, device: torch.device
    ) -> None:
        z, data = grid["z"], grid["data"]
        self.position = 0
        self._source, self._size, self._device = source, size, device
        self._share = size // (z.size * data.size)
        self._first = (data.index * z.size + z.index) * self._share
        self._micro = self._share // micro_batches

    def batch(self) -> Iterator[Batch]:
        """The micro-batches of the next step."""
        at, self.position = self.position, self.position + self._size
        return self._batches(at, self._micro, held_out=False)

    def held_out(self, number: int) -> Iterator[Batch]:
        """One batch of those held out, always the same ones."""
        return self._batches(number * self._size, self._share, held_out=True)

    def _batches(self, at: int, micro: int, *, held_out: bool) -> Iterator[Batch]:
        num_valid = torch.tensor(self._size * self._source.items, device=self._device)
        for first in range(0, self._share, micro):
            index = at + self._first + torch.arange(first, first + micro)
            made = {**self._source.samples(index, held_out=held_out), "samples": index}
            inputs = {name: tensor.to(self._device) for name, tensor in made.items()}
            yield Batch(inputs, num_valid)


def source(settings: DataSettings, seed: int, dims: ModelConfig) -> Source:
    """The source of samples that the settings name, for a model of some dimensions.

    Raises
    ------
    ConfigError
        Where the model takes no text, or the text does not fit it.
    """
    if isinstance(dims, GPTConfig):
        if settings.kind == "text":
            return TextTokens(Path(settings.path), seed, dims.vocabulary, dims.length)
        return SyntheticTokens(seed, dims.vocabulary, dims.length)
    if settings.kind == "text":
        raise ConfigError("data.kind = 'text': this model takes no text; give --data synthetic")
    if isinstance(dims, MLPConfig):
        return SyntheticVectors(seed, dims.inputs, dims.classes)
    return SyntheticImages(seed, dims.image, dims.colours, dims.levels)
