"""A multi-layer perceptron on the grid: normal and transposed layers in turn, a classifier."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from runtime import recompute
from runtime.dims import MLPConfig
from runtime.dropout import Dropout
from runtime.linear import NORMAL, TRANSPOSED, Linear
from runtime.loss import cross_entropy
from runtime.overlap import Engine
from runtime.sharding import Features, features


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
