"""The dimensions of the models and their presets; wrong ones are refused without torch.

So the launcher finds out before it starts a rank. Dimensions of the presets divide by 24, so that
they run on grids of 6 and 8 ranks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TypeAlias

from runtime.config import Config
from runtime.settings import ConfigError, fill, near, positive, share
from runtime.unet_plan import UNetConfig


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Dimensions of a GPT.

    Attributes
    ----------
    layers, features, heads : int
    kv_heads : int
        Fewer than heads: grouped queries.
    length : int
        Tokens of a sequence.
    vocabulary : int
    tied : bool
        Whether the head's weight is the embedding's.
    rms : bool
        RMS norms instead of layer norms.
    dropout : float
        Of embeddings, attention probabilities and the blocks' outputs.
    """

    layers: int = 2
    features: int = 48
    heads: int = 12
    kv_heads: int = 12
    length: int = 16
    vocabulary: int = 96
    tied: bool = True
    rms: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        positive(layers=self.layers, features=self.features, heads=self.heads)
        positive(kv_heads=self.kv_heads, length=self.length)
        if self.vocabulary < 2:
            raise ConfigError(f"vocabulary = {self.vocabulary}: must be at least 2")
        if self.features % self.heads:
            raise ConfigError(f"features = {self.features}: must divide by heads = {self.heads}")
        if self.heads % self.kv_heads:
            raise ConfigError(f"heads = {self.heads}: must divide by kv_heads = {self.kv_heads}")
        share(dropout=self.dropout)

    def tokens(self, samples: int) -> int:
        """Tokens of some samples."""
        return samples * self.length

    def flops(self, samples: int, recompute: str = "none") -> int:
        """Floating-point operations of the products of a training step.

        Twice the multiplications, forward once and backward twice, and what is recomputed; the
        causal half of attention that is masked counts, as it does for most.
        """
        h, tokens = self.features, self.tokens(samples)
        width = h // self.heads
        linears = self.layers * h * (h + 2 * self.kv_heads * width + h + 8 * h)
        scores = self.layers * 2 * self.length * h
        head = h * self.vocabulary
        again = {"none": 0, "full": linears + scores, "selective": scores}[recompute]
        return 2 * tokens * (3 * (linears + scores + head) + again)


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """Dimensions of a perceptron.

    Attributes
    ----------
    inputs, hidden, classes : int
        Features of a sample, of each hidden layer, and outputs.
    layers : int
        Linear layers, at least 2.
    dropout : float
        Of the hidden activations.
    """

    inputs: int = 48
    hidden: int = 96
    classes: int = 24
    layers: int = 4
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.layers < 2:
            raise ConfigError(f"layers = {self.layers}: a perceptron has at least 2")
        positive(inputs=self.inputs, hidden=self.hidden, classes=self.classes)
        if self.classes > self.inputs:
            raise ConfigError(
                f"classes = {self.classes}: must be at most inputs = {self.inputs}, since a "
                "sample's class is the place of its largest value"
            )
        share(dropout=self.dropout)

    def widths(self) -> list[tuple[int, int]]:
        """In- and out-features of each layer."""
        sizes = [self.inputs, *[self.hidden] * (self.layers - 1), self.classes]
        return list(pairwise(sizes))

    def tokens(self, samples: int) -> int:
        """Rows that some samples make; one each."""
        return samples

    def flops(self, samples: int, recompute: str = "none") -> int:
        """Floating-point operations of the products of a training step.

        Twice the multiplications, forward once and backward twice (the first layer's input needs
        no gradient), and what is recomputed.
        """
        layers = [a * b for a, b in self.widths()]
        again = sum(layers[1:]) if recompute == "full" else 0
        return 2 * samples * (3 * sum(layers) - layers[0] + again)


ModelConfig: TypeAlias = GPTConfig | MLPConfig | UNetConfig

PRESETS: dict[str, ModelConfig] = {
    "mlp-tiny": MLPConfig(inputs=48, hidden=192, classes=24, layers=4),
    "gpt-tiny": GPTConfig(layers=2, features=96, heads=24, kv_heads=24, length=64, vocabulary=264),
    "gpt-small": GPTConfig(
        layers=6, features=384, heads=24, kv_heads=24, length=256, vocabulary=4104
    ),
    "unet-tiny": UNetConfig(
        image=16, channels=24, multipliers=(1, 2), blocks=1, groups=8, heads=24
    ),
}


def model_dims(config: Config) -> ModelConfig:
    """The dimensions of the model the settings name.

    Raises
    ------
    ConfigError
        For a preset or a dimension that there is none of.
    """
    name = config.model.preset
    if name not in PRESETS:
        raise ConfigError(f"model {name!r}: {near(name, PRESETS)}")
    preset = PRESETS[name]
    return fill(type(preset), {**asdict(preset), **config.model.dims}, "model")
