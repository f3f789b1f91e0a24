"""The models of the runtime: their configurations, presets, and how to build one on a grid."""

from __future__ import annotations

from runtime.dims import PRESETS, GPTConfig, MLPConfig, ModelConfig
from runtime.models.gpt import GPT
from runtime.models.mlp import MLP
from runtime.models.unet import UNet
from runtime.overlap import Engine
from runtime.unet_plan import UNetConfig


def build(engine: Engine, config: ModelConfig) -> GPT | MLP | UNet:
    """A model on an engine's grid.

    Raises
    ------
    ValueError
        Where a dimension does not divide over the grid.
    """
    if isinstance(config, GPTConfig):
        return GPT(engine, config)
    if isinstance(config, MLPConfig):
        return MLP(engine, config)
    return UNet(engine, config)


__all__ = [
    "GPT",
    "MLP",
    "PRESETS",
    "GPTConfig",
    "MLPConfig",
    "ModelConfig",
    "UNet",
    "UNetConfig",
    "build",
]
