"""A GPT on the grid: residuals in layout x, pre-norm blocks, tied or untied head."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from runtime import recompute
from runtime.attention import Attention
from runtime.dims import GPTConfig
from runtime.dropout import Dropout
from runtime.embedding import Embedding, Positions
from runtime.linear import TRANSPOSED, Linear, Rows
from runtime.loss import cross_entropy
from runtime.norm import Norm
from runtime.overlap import Engine
from runtime.sharding import features


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, engine: Engine, name: str, config: GPTConfig) -> None:
        super().__init__()
        h = config.features
        self.engine = engine
        self.held = features(engine.comm.grid, "x", h, f"{name}: features")
        self.norm1 = Norm(engine, f"{name}.norm1", h, centred=not config.rms)
        self.attention = Attention(
            engine,
            f"{name}.attention",
            h,
            config.heads,
            config.kv_heads,
            dropout=config.dropout,
        )
        self.norm2 = Norm(engine, f"{name}.norm2", h, centred=not config.rms)
        self.up = Linear(engine, f"{name}.up", h, 4 * h)
        self.down = Linear(engine, f"{name}.down", 4 * h, h, axes=TRANSPOSED)
        self.dropout1 = Dropout(engine, f"{name}.dropout1", config.dropout)
        self.dropout2 = Dropout(engine, f"{name}.dropout2", config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H/x) to the same."""
        x = x + self.dropout1(self.attention(self.norm1(x)), self.held)
        up = self.up(self.norm2(x))
        down = recompute.activated(self.engine, functional.gelu, up, self.down)
        return x + self.dropout2(down, self.held)


class GPT(nn.Module):
    """The model; its forward gives this rank's part of the mean loss."""

    def __init__(self, engine: Engine, config: GPTConfig) -> None:
        super().__init__()
        self.engine, self.config = engine, config
        h = config.features
        self.embedding = Embedding(engine, "embedding", config.vocabulary, h)
        self.positions = Positions(engine, "positions", config.length, h)
        self.dropout = Dropout(engine, "dropout", config.dropout)
        self.blocks = nn.ModuleList(
            Block(engine, f"blocks.{i}", config) for i in range(config.layers)
        )
        self.norm = Norm(engine, "norm", h, centred=not config.rms)
        self.head = Linear(
            engine,
            "head",
            h,
            config.vocabulary,
            bias=False,
            rows=(Rows("head", self.embedding.rows),),
            weight=self.embedding.weight if config.tied else None,
        )
        self.held = features(engine.comm.grid, "x", h, "features")

    def forward(self, batch: dict[str, Tensor], num_valid: Tensor) -> Tensor:
        """Its part of the mean loss.

        Parameters
        ----------
        batch : dict
            ``tokens`` and ``targets``, shape (B, T); with dropout ``samples``, shape (B,), the
            global sample indices.
        num_valid : Tensor
            Valid targets of the whole batch.
        """
        self.engine.samples = batch.get("samples")
        x = self.dropout(self.positions(self.embedding(batch["tokens"])), self.held)
        for block in self.blocks:
            x = recompute.block(self.engine, block, x)
        logits = self.head(self.norm(x))
        comm = self.engine.comm
        return cross_entropy(logits, batch["targets"], self.embedding.rows, num_valid, comm)


def build(engine: Engine, config: GPTConfig) -> GPT:
    """A GPT on an engine's grid."""
    return GPT(engine, config)
