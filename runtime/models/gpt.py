"""A GPT on the grid: residuals in layout x, pre-norm blocks, tied or untied head."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from runtime.attention import Attention
from runtime.embedding import Embedding, Positions
from runtime.linear import Linear
from runtime.loss import cross_entropy
from runtime.norm import Norm
from runtime.overlap import Engine


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Dimensions of a GPT."""

    layers: int = 2
    features: int = 48
    heads: int = 12
    kv_heads: int = 12
    length: int = 16
    vocabulary: int = 96
    tied: bool = True
    rms: bool = False


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, engine: Engine, name: str, config: GPTConfig) -> None:
        super().__init__()
        h = config.features
        self.norm1 = Norm(engine, f"{name}.norm1", h, centred=not config.rms)
        self.attention = Attention(engine, f"{name}.attention", h, config.heads, config.kv_heads)
        self.norm2 = Norm(engine, f"{name}.norm2", h, centred=not config.rms)
        self.up = Linear(engine, f"{name}.up", h, 4 * h)
        self.down = Linear(engine, f"{name}.down", 4 * h, h, transposed=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H/x) to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """The model; its forward gives this rank's part of the mean loss."""

    def __init__(self, engine: Engine, config: GPTConfig) -> None:
        super().__init__()
        self.engine, self.config = engine, config
        y = engine.comm.grid["y"]
        self.padded = -(-config.vocabulary // y.size) * y.size
        self.embedding = Embedding(engine, "embedding", self.padded, config.features)
        self.positions = Positions(engine, "positions", config.length, config.features)
        self.blocks = nn.ModuleList(
            Block(engine, f"blocks.{i}", config) for i in range(config.layers)
        )
        self.norm = Norm(engine, "norm", config.features, centred=not config.rms)
        self.head = Linear(
            engine,
            "head",
            config.features,
            self.padded,
            bias=False,
            weight=self.embedding.weight if config.tied else None,
        )

    def forward(self, tokens: Tensor, targets: Tensor, num_valid: Tensor) -> Tensor:
        """Loss of (B, T) tokens against (B, T) targets."""
        x = self.positions(self.embedding(tokens))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        first = self.embedding.first_row
        return cross_entropy(
            logits, targets, first, self.config.vocabulary, num_valid, self.engine.comm
        )
