"""The models of the runtime: their configurations, presets, and how to build one on a grid.

Dimensions of the presets divide by 24, so that they run on grids of 6 and 8 ranks.
"""

from __future__ import annotations

from typing import TypeAlias

from runtime.models.gpt import GPT, GPTConfig
from runtime.models.mlp import MLP, MLPConfig
from runtime.models.unet import UNet
from runtime.models.unet_plan import UNetConfig
from runtime.overlap import Engine

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
