"""The dimensions of a U-Net and the list of its stages, from which it is built and counted."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.settings import ConfigError, positive, share


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes
    ----------
    kind : {'res', 'attention', 'down', 'up'}
    name : str
    inputs : tuple of int
        Channels coming in; a second number is the skip connection that is concatenated.
    outputs : int
        Channels going out.
    size : int
        Height and width going out.
    keep : bool
        Whether the output is kept for a skip connection.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: int
    size: int
    keep: bool = False

    @property
    def shortcut(self) -> bool:
        """Whether a residual block's shortcut is a convolution."""
        return self.inputs != (self.outputs,)


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """Dimensions of a U-Net for diffusion.

    Attributes
    ----------
    image : int
        Height and width.
    colours : int
        Channels of an image.
    channels : int
        Of the first level.
    multipliers : tuple of int
        Channels of each level, in units of ``channels``; each level halves the size.
    blocks : int
        Residual blocks of a level on the way down; one more on the way up.
    groups : int
        Of the group norms.
    heads : int
        Of the attention in the middle; 0 for none.
    levels : int
        Diffusion steps.
    dropout : float
        In the residual blocks.
    """

    image: int = 8
    colours: int = 3
    channels: int = 24
    multipliers: tuple[int, ...] = (1, 2)
    blocks: int = 1
    groups: int = 4
    heads: int = 0
    levels: int = 1000
    dropout: float = 0.0

    def __post_init__(self) -> None:
        positive(image=self.image, colours=self.colours, channels=self.channels)
        positive(blocks=self.blocks, groups=self.groups, levels=self.levels)
        if not self.multipliers or min(self.multipliers) < 1:
            raise ConfigError(
                f"multipliers = {self.multipliers}: must be one for each level, each at least 1"
            )
        if self.heads < 0:
            raise ConfigError(f"heads = {self.heads}: must be at least 1, or 0 for no attention")
        halvings = len(self.multipliers) - 1
        if self.image % 2**halvings:
            raise ConfigError(f"image = {self.image}: must be halved {halvings} times")
        if self.channels % self.groups:
            raise ConfigError(f"channels = {self.channels}: must divide by groups = {self.groups}")
        if self.heads and (middle := self.channels * self.multipliers[-1]) % self.heads:
            raise ConfigError(
                f"heads = {self.heads}: must divide the middle's channels * multiplier = {middle}"
            )
        share(dropout=self.dropout)

    @property
    def time(self) -> int:
        """Features of the time embedding."""
        return 4 * self.channels

    @property
    def last(self) -> int:
        """Channels before the output convolution."""
        return self.channels * self.multipliers[0]

    def tokens(self, samples: int) -> int:
        """Pixels of some samples."""
        return samples * self.image**2

    def stages(self) -> list[Stage]:
        """All stages in the order in which they run."""
        stages, kept = [], [self.channels]
        now, size = self.channels, self.image
        for level, multiplier in enumerate(self.multipliers):
            wide = self.channels * multiplier
            for i in range(self.blocks):
                stages.append(Stage("res", f"down.{level}.{i}", (now,), wide, size, keep=True))
                now = wide
                kept.append(now)
            if level + 1 < len(self.multipliers):
                size //= 2
                name = f"down.{level}.sample"
                stages.append(Stage("down", name, (now,), now, size, keep=True))
                kept.append(now)
        stages.append(Stage("res", "middle.0", (now,), now, size))
        if self.heads:
            stages.append(Stage("attention", "middle.attention", (now,), now, size))
        stages.append(Stage("res", "middle.1", (now,), now, size))
        for level in reversed(range(len(self.multipliers))):
            wide = self.channels * self.multipliers[level]
            for i in range(self.blocks + 1):
                inputs = (now, kept.pop())
                stages.append(Stage("res", f"up.{level}.{i}", inputs, wide, size))
                now = wide
            if level:
                size *= 2
                stages.append(Stage("up", f"up.{level}.sample", (now,), now, size))
        return stages

    def flops(self, samples: int, recompute: str = "none") -> int:
        """Floating-point operations of the products of a training step.

        Twice the multiplications, forward once and backward twice (the input convolution's input
        needs no gradient), and what is recomputed.
        """
        first = 9 * self.colours * self.channels * self.image**2
        ends = first + 9 * self.last * self.colours * self.image**2
        time = self.channels * self.time + self.time * self.time
        stages, scores = 0, 0
        for stage in self.stages():
            products, core = self._multiplications(stage)
            stages, scores = stages + products, scores + core
        again = {"none": 0, "full": stages + scores, "selective": scores}[recompute]
        none = first + self.channels * self.time  # no gradient of the image, none of the step
        return 2 * samples * (3 * (ends + time + stages + scores) - none + again)

    def _multiplications(self, stage: Stage) -> tuple[int, int]:
        """Of a stage's products and of attention's core, for one sample."""
        wide, pixels, out = sum(stage.inputs), stage.size**2, stage.outputs
        if stage.kind == "attention":
            return 4 * out * out * pixels, 2 * pixels * pixels * out
        if stage.kind != "res":
            return 9 * out * out * pixels, 0
        convolutions = 9 * out * (wide + out) + (wide * out if stage.shortcut else 0)
        return convolutions * pixels + self.time * out, 0
