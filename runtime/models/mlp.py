"""A multi-layer perceptron on the grid: normal and transposed layers in turn, a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from runtime import recompute
from runtime.dropout import Dropout
from runtime.linear import NORMAL, TRANSPOSED, Linear
from runtime.loss import cross_entropy
from runtime.overlap import Engine
from runtime.sharding import Features, features


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
            raise ValueError(f"layers = {self.layers}: a perceptron has at least 2")

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


class MLP(nn.Module):
    """The model; its forward gives this rank's part of the mean loss."""

    def __init__(self, engine: Engine, config: MLPConfig) -> None:
        super().__init__()
        self.engine, self.config = engine, config
        grid = engine.comm.grid
        self.held = features(grid, "x", config.inputs, "inputs")
        self.layers, self.dropouts = nn.ModuleList(), nn.ModuleList()
        self.outputs: list[Features] = []
        for i, (inputs, outputs) in enumerate(config.widths()):
            axes, name = (TRANSPOSED if i % 2 else NORMAL), f"layers.{i}"
            std = inputs**-0.5
            self.layers.append(Linear(engine, name, inputs, outputs, axes=axes, std=std))
            self.dropouts.append(Dropout(engine, f"{name}.dropout", config.dropout))
            self.outputs.append(features(grid, axes[1], outputs, f"{name}: out-features"))

    def forward(self, batch: dict[str, Tensor], num_valid: Tensor) -> Tensor:
        """Its part of the mean loss.

        Parameters
        ----------
        batch : dict
            ``x``, shape (B, inputs), and ``targets``, the classes, shape (B,); with dropout
            ``samples``, shape (B,), the global sample indices.
        num_valid : Tensor
            Valid targets of the whole batch.
        """
        self.engine.samples = batch.get("samples")
        x = batch["x"].to(self.engine.registry.dtype)
        if not self.engine.native("x"):
            x = x[:, self.held.index.to(x.device)]
        x = self.layers[0](x)
        for i in range(1, len(self.layers)):
            x = recompute.block(self.engine, _Hidden(self, i), x)
        comm = self.engine.comm
        return cross_entropy(x, batch["targets"], self.outputs[-1], num_valid, comm)


class _Hidden:
    """From one layer's output to the next one's."""

    def __init__(self, model: MLP, at: int) -> None:
        self.model, self.at = model, at

    def __call__(self, x: Tensor) -> Tensor:
        model, at = self.model, self.at
        return recompute.activated(model.engine, self.activation, x, model.layers[at])

    def activation(self, x: Tensor) -> Tensor:
        """The activation function, with dropout."""
        drop = self.model.dropouts[self.at - 1]
        out: Tensor = drop(functional.gelu(x), self.model.outputs[self.at - 1])
        return out


def build(engine: Engine, config: MLPConfig) -> MLP:
    """A perceptron on an engine's grid."""
    return MLP(engine, config)
