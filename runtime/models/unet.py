"""A U-Net for diffusion on the grid: channels split, residuals in layout x."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime import recompute
from runtime.attention import Attention
from runtime.conv import Conv2d
from runtime.dropout import Dropout
from runtime.group_norm import GroupNorm
from runtime.linear import TRANSPOSED, Linear
from runtime.loss import squared_error
from runtime.overlap import Engine
from runtime.relayout import before_relayout, relayout
from runtime.sharding import features, join
from runtime.unet_plan import Stage, UNetConfig


class Residual(nn.Module):
    """Norm, convolution, time, norm, convolution, and a shortcut around them."""

    def __init__(self, engine: Engine, stage: Stage, config: UNetConfig) -> None:
        super().__init__()
        self.engine, name, out = engine, stage.name, stage.outputs
        grid, wide = engine.comm.grid, sum(stage.inputs)
        parts = [features(grid, "x", n, f"{name}: channels") for n in stage.inputs]
        held = join(parts) if len(parts) > 1 else None
        self.middle = features(grid, "y", out, f"{name}: channels")
        self.norm1 = GroupNorm(engine, f"{name}.norm1", wide, config.groups, held=held)
        self.conv1 = Conv2d(engine, f"{name}.conv1", wide, out, 3, padding=1, inputs=held)
        self.time = Linear(engine, f"{name}.time", config.time, out, std=config.time**-0.5)
        self.norm2 = GroupNorm(engine, f"{name}.norm2", out, config.groups, axis="y")
        self.dropout = Dropout(engine, f"{name}.dropout", config.dropout)
        self.conv2 = Conv2d(engine, f"{name}.conv2", out, out, 3, axes=TRANSPOSED, padding=1)
        self.shortcut: Conv2d | None = None
        if stage.shortcut:
            short = f"{name}.shortcut"
            to = before_relayout(grid, out, short)
            self.shortcut = Conv2d(engine, short, wide, out, 1, inputs=held, outputs=to)

    def forward(self, x: Tensor, time: Tensor, *skips: Tensor) -> Tensor:
        """Map (B, C/x, H, W), the time embedding (B, T/x) and a skip to (B, O/x, H, W)."""
        x = torch.cat((x, *skips), 1) if skips else x
        h = recompute.activated(self.engine, functional.silu, self.norm1(x), self.conv1)
        h = h + self.time(functional.silu(time))[:, :, None, None]
        h = recompute.activated(self.engine, self._activation, self.norm2(h), self.conv2)
        if self.shortcut is not None:
            x = relayout(self.engine, self.shortcut(x), self.shortcut.name)
        return x + h

    def _activation(self, h: Tensor) -> Tensor:
        out: Tensor = self.dropout(functional.silu(h), self.middle, 1)
        return out


class Resample(nn.Module):
    """Half or twice the size, and a convolution that is moved back to layout x."""

    def __init__(self, engine: Engine, stage: Stage) -> None:
        super().__init__()
        self.engine, self.up = engine, stage.kind == "up"
        wide, stride = stage.outputs, 1 if self.up else 2
        to = before_relayout(engine.comm.grid, wide, stage.name)
        self.conv = Conv2d(engine, stage.name, wide, wide, 3, stride=stride, padding=1, outputs=to)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:  # noqa: ARG002 - one form for all stages
        """Map (B, C/x, H, W) to the other size."""
        if self.up:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return relayout(self.engine, self.conv(x), self.conv.name)


class PixelAttention(nn.Module):
    """Attention between all pixels, added to its input."""

    def __init__(self, engine: Engine, stage: Stage, config: UNetConfig) -> None:
        super().__init__()
        wide, name = stage.outputs, stage.name
        self.norm = GroupNorm(engine, f"{name}.norm", wide, config.groups)
        self.attention = Attention(engine, name, wide, config.heads, config.heads, causal=False)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:  # noqa: ARG002 - one form for all stages
        """Map (B, C/x, H, W) to the same."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        out: Tensor = self.attention(pixels).transpose(1, 2).reshape(x.shape)
        return x + out


class UNet(nn.Module):
    """The model; its forward gives this rank's part of the mean loss."""

    def __init__(self, engine: Engine, config: UNetConfig) -> None:
        super().__init__()
        self.engine, self.config, self.stages = engine, config, config.stages()
        grid, wide, time = engine.comm.grid, config.channels, config.time
        self.held = features(grid, "x", wide, "time embedding")
        self.time1 = Linear(engine, "time1", wide, time, std=wide**-0.5)
        self.time2 = Linear(engine, "time2", time, time, axes=TRANSPOSED, std=time**-0.5)
        self.input = Conv2d(engine, "input", config.colours, wide, 3, axes=("", "x"), padding=1)
        self.blocks = nn.ModuleList(_stage(engine, s, config) for s in self.stages)
        self.norm = GroupNorm(engine, "norm", config.last, config.groups)
        self.output = Conv2d(
            engine, "output", config.last, config.colours, 3, axes=("x", ""), padding=1
        )
        share = 1 - torch.linspace(1e-4, 0.02, config.levels, dtype=torch.float64)
        kept = torch.cumprod(share, 0).to(engine.registry.device)
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, batch: dict[str, Tensor], num_valid: Tensor) -> Tensor:
        """Its part of the mean squared error of the noise (Ho, Jain and Abbeel 2020).

        Parameters
        ----------
        batch : dict
            ``images`` and ``noise``, shape (B, colours, H, W), and ``steps``, the diffusion
            steps, shape (B,); with dropout ``samples``, shape (B,), the global sample indices.
        num_valid : Tensor
            Samples of the whole batch.
        """
        self.engine.samples = batch.get("samples")
        dtype = self.engine.registry.dtype
        noise = batch["noise"].to(dtype)
        kept = self.kept[batch["steps"]][:, None, None, None]
        noisy = kept.sqrt() * batch["images"] + (1 - kept).sqrt() * noise
        out = self.denoise(noisy.to(dtype), batch["steps"])
        return squared_error(out, noise, num_valid)

    def denoise(self, noisy: Tensor, steps: Tensor) -> Tensor:
        """The noise in some images; on every rank of a (x, y) plane."""
        time = self.embed(steps).to(noisy.dtype)
        time = self.time2(functional.silu(self.time1(time)))
        x = self.input(noisy)
        kept = [x]
        for stage, module in zip(self.stages, self.blocks, strict=True):
            skips = [kept.pop()] if len(stage.inputs) > 1 else []
            x = recompute.block(self.engine, module, x, time, *skips)
            if stage.keep:
                kept.append(x)
        return recompute.activated(self.engine, functional.silu, self.norm(x), self.output)

    def embed(self, steps: Tensor) -> Tensor:
        """Sines and cosines of the diffusion step, this rank's part of x."""
        half = self.config.channels // 2
        rate = torch.arange(half, dtype=torch.float64, device=steps.device) / half
        angle = steps[:, None] * torch.exp(-math.log(10000.0) * rate)
        whole = torch.cat((angle.sin(), angle.cos()), -1)
        return whole if self.engine.native("x") else whole[:, self.held.index.to(steps.device)]


def _stage(engine: Engine, stage: Stage, config: UNetConfig) -> nn.Module:
    if stage.kind == "res":
        return Residual(engine, stage, config)
    if stage.kind == "attention":
        return PixelAttention(engine, stage, config)
    return Resample(engine, stage)


def build(engine: Engine, config: UNetConfig) -> UNet:
    """A U-Net on an engine's grid."""
    return UNet(engine, config)
