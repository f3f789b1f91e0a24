"""The runtime's models once more in plain torch, its parameters named as the runtime names them."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from runtime.models import GPTConfig, MLPConfig, UNetConfig  # noqa: E402
from runtime.unet_plan import Stage  # noqa: E402


class Attention(nn.Module):
    """Attention written out, with a key-value head for each query head."""

    def __init__(self, features: int, heads: int, kv_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.causal = heads, kv_heads, causal
        width = features // heads
        if heads == kv_heads:
            self.qkv = nn.Linear(features, 3 * features)
        else:
            self.q = nn.Linear(features, features)
            self.kv = nn.Linear(features, 2 * kv_heads * width)
        self.proj = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H) to the same."""
        batch, length, features = x.shape
        width = features // self.heads
        if self.heads == self.kv_heads:
            q, k, v = self.qkv(x).chunk(3, -1)
        else:
            q, (k, v) = self.q(x), self.kv(x).chunk(2, -1)
        q = q.view(batch, length, self.heads, width)
        k, v = (t.view(batch, length, self.kv_heads, width) for t in (k, v))
        out = torch.zeros_like(q)
        for head in range(self.heads):
            group = head * self.kv_heads // self.heads
            scores = q[:, :, head] @ k[:, :, group].transpose(1, 2) / math.sqrt(width)
            if self.causal:
                scores = scores + torch.full_like(scores, -torch.inf).triu(1)
            out[:, :, head] = scores.softmax(-1) @ v[:, :, group]
        mapped: Tensor = self.proj(out.reshape(batch, length, features))
        return mapped


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        h = config.features
        norm = nn.RMSNorm if config.rms else nn.LayerNorm
        self.norm1, self.norm2 = norm(h, eps=1e-5), norm(h, eps=1e-5)
        self.attention = Attention(h, config.heads, config.kv_heads, causal=True)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H) to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """The GPT."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        h = config.features
        self.embedding = nn.Embedding(config.vocabulary, h)
        self.positions = nn.Embedding(config.length, h)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(h, eps=1e-5) if config.rms else nn.LayerNorm(h)
        self.head = nn.Linear(h, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss."""
        tokens = batch["tokens"]
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


class MLP(nn.Module):
    """The perceptron."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in config.widths())

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss."""
        x = self.layers[0](batch["x"])
        for layer in self.layers[1:]:
            x = layer(functional.gelu(x))
        return functional.cross_entropy(x, batch["targets"])


class Residual(nn.Module):
    """A residual block of the U-Net."""

    def __init__(self, stage: Stage, config: UNetConfig) -> None:
        super().__init__()
        wide, out = sum(stage.inputs), stage.outputs
        self.norm1, self.norm2 = (nn.GroupNorm(config.groups, n) for n in (wide, out))
        self.conv1 = nn.Conv2d(wide, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(config.time, out)
        self.shortcut = nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, O, H, W)."""
        h = self.conv1(functional.silu(self.norm1(x)))
        h = h + self.time(functional.silu(time))[:, :, None, None]
        out: Tensor = self.conv2(functional.silu(self.norm2(h)))
        return self.shortcut(x) + out


class PixelAttention(Attention):
    """Attention between pixels."""

    def __init__(self, stage: Stage, config: UNetConfig) -> None:
        super().__init__(stage.outputs, config.heads, config.heads, causal=False)
        self.norm = nn.GroupNorm(config.groups, stage.outputs)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Map (B, C, H, W) to the same."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        return x + super().forward(pixels).transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """The U-Net, on the stages of its plan."""

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config, wide = config, config.channels
        self.time1, self.time2 = nn.Linear(wide, config.time), nn.Linear(config.time, config.time)
        self.input = nn.Conv2d(config.colours, wide, 3, padding=1)
        self.stages = nn.ModuleDict()
        for stage in config.stages():
            self.stages[stage.name.replace(".", "/")] = self._stage(stage)
        self.norm = nn.GroupNorm(config.groups, config.last)
        self.output = nn.Conv2d(config.last, config.colours, 3, padding=1)

    def _stage(self, stage: Stage) -> nn.Module:
        if stage.kind == "res":
            return Residual(stage, self.config)
        if stage.kind == "attention":
            return PixelAttention(stage, self.config)
        wide = stage.outputs
        return nn.Conv2d(wide, wide, 3, stride=1 if stage.kind == "up" else 2, padding=1)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean squared error of the noise."""
        beta = torch.linspace(1e-4, 0.02, self.config.levels, dtype=torch.float64)
        kept = torch.cumprod(1 - beta, 0)[batch["steps"]].view(-1, 1, 1, 1)
        x = kept.sqrt() * batch["images"] + (1 - kept).sqrt() * batch["noise"]
        half = self.config.channels // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = batch["steps"][:, None] * rates
        time = self.time1(torch.cat((angles.sin(), angles.cos()), -1))
        time = self.time2(functional.silu(time))
        x = self.input(x)
        kept_ones = [x]
        for stage in self.config.stages():
            module = self.stages[stage.name.replace(".", "/")]
            if len(stage.inputs) > 1:
                x = torch.cat((x, kept_ones.pop()), 1)
            if stage.kind == "up":
                x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
            x = module(x) if stage.kind in {"up", "down"} else module(x, time)
            if stage.keep:
                kept_ones.append(x)
        out = self.output(functional.silu(self.norm(x)))
        return functional.mse_loss(out, batch["noise"])


def build(config: GPTConfig | MLPConfig | UNetConfig) -> nn.Module:
    """The plain model of a configuration, in fp64."""
    if isinstance(config, GPTConfig):
        return GPT(config).double()
    if isinstance(config, MLPConfig):
        return MLP(config).double()
    return UNet(config).double()


def parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Its parameters by the runtime's names."""
    return {
        name.removeprefix("stages.").replace("/", "."): p for name, p in module.named_parameters()
    }
