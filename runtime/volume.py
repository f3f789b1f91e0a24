"""Message bytes of one training step of one rank, as integers from the shapes alone.

Counted as `Comm.volume` counts: an all-reduce by its message, an all-gather by its whole output, a
reduce-scatter by its whole input; what an algorithm makes of that (ring factors) is the cost
model's. Keys are (group, operation, kind); a group is an axis, ``z_rs`` for z's gradients, or
``y_2`` for two neighbours on y that share a key-value group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from runtime.dims import GPTConfig, MLPConfig
from runtime.grid import GridShape
from runtime.unet_plan import Stage, UNetConfig

Volume = Counter[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter: elements of its block on a rank, and the axes its gradient is summed over."""

    name: str
    numel: int
    sum_axes: tuple[str, ...] = ("data",)


@dataclass(frozen=True, slots=True)
class Product:
    """A linear layer or convolution: local elements per sample, on each side."""

    weights: tuple[Weight, ...]
    in_axis: str
    out_axis: str
    inputs: int
    outputs: int
    kind: str = "forward"
    input_gradient: bool = True


@dataclass(frozen=True, slots=True)
class Small:
    """Forward and backward messages of a norm, a loss or a relayout, in elements per sample."""

    kind: str
    forward: tuple[tuple[str, str, int], ...]
    backward: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Layers in the order of forward; ``block`` is what full recomputation computes again."""

    layers: tuple[Product | Small, ...]
    block: bool = False


@dataclass(slots=True)
class _Shapes:
    """Builds the layers of one model on one grid."""

    grid: GridShape
    vectors: list[Weight] = field(default_factory=list)

    def size(self, axis: str) -> int:
        """Ranks along an axis, 1 for no axis."""
        return self.grid.size(axis) if axis else 1

    def vector(self, name: str, numel: int, sum_axes: tuple[str, ...] = ()) -> None:
        """Note a bias or gain of so many local elements."""
        self.vectors.append(Weight(name, numel, (*sum_axes, "z", "data")))

    def product(  # noqa: PLR0913 - a layer has this many independent sizes
        self,
        name: str,
        inputs: int,
        outputs: int,
        axes: tuple[str, str] = ("x", "y"),
        pixels: tuple[int, int] = (1, 1),
        *,
        taps: int = 1,
        bias: bool = True,
        input_gradient: bool = True,
    ) -> Product:
        """A layer of whole in- and out-features at so many positions per sample."""
        cols, rows = inputs // self.size(axes[0]), -(-outputs // self.size(axes[1]))
        if bias:
            self.vector(name, rows)
        weight = Weight(name, rows * cols * taps)
        return Product(
            (weight,),
            *axes,
            cols * pixels[0],
            rows * pixels[1],
            input_gradient=input_gradient,
        )

    def norm(self, name: str, features: int, positions: int, *, rms: bool) -> Small:
        """A layer or RMS norm over x."""
        x = self.grid.x
        self.vector(name, features // x)
        if rms:
            one = (("x", "all_reduce", positions),)
            return Small("norm", one, one)
        self.vector(name, features // x)
        both = 2 * positions
        return Small("norm", (("x", "all_gather", both * x),), (("x", "all_reduce", both),))

    def group_norm(
        self, name: str, channels: int, groups: int, axis: str = "x", *, whole: bool = True
    ) -> Small:
        """A group norm; ``whole`` where each rank's channels are a contiguous part."""
        size = self.grid.size(axis)
        local = channels // size
        self.vector(name, local)
        self.vector(name, local)
        if size == 1 or (whole and local % (channels // groups) == 0):
            return Small("norm", ())
        gathered = ((axis, "all_gather", 3 * groups * size),)
        return Small("norm", gathered, ((axis, "all_reduce", 2 * groups),))

    def relayout(self, channels: int, pixels: int) -> Small:
        """From layout y to layout x."""
        there = (("y", "all_gather", channels // self.grid.x * pixels),)
        back = (("x", "all_gather", channels // self.grid.y * pixels),)
        return Small("relayout", there, back)

    def loss(self, axis: str, positions: int) -> Small:
        """Cross-entropy: the largest logit; then the sum and the target's."""
        return Small(
            "loss",
            ((axis, "all_reduce", positions), (axis, "all_reduce", 2 * positions)),
        )

    def attention(
        self, name: str, h: int, heads: int, kv_heads: int, positions: int
    ) -> tuple[Product, Product]:
        """Query, key and value products as one, and the projection."""
        width, y, x = h // heads, self.grid.y, self.grid.x
        proj = self.product(f"{name}.proj", h, h, ("y", "x"), (positions, positions))
        if heads == kv_heads:
            return self.product(f"{name}.qkv", h, 3 * h, pixels=(positions, positions)), proj
        copies = max(1, y // kv_heads)
        axes = (f"y_{copies}",) if copies > 1 else ()
        asked, keys = h // y, 2 * kv_heads * width * copies // y
        self.vector(f"{name}.q", asked)
        self.vector(f"{name}.kv", keys, axes)
        cols = h // x
        weights = (
            Weight(f"{name}.q", asked * cols),
            Weight(f"{name}.kv", keys * cols, (*axes, "data")),
        )
        return Product(weights, "x", "y", cols * positions, (asked + keys) * positions), proj


def _gpt(shapes: _Shapes, config: GPTConfig) -> Iterator[Section]:
    h, long, grid = config.features, config.length, shapes.grid
    rows = -(-config.vocabulary // grid.y)
    table = Weight("embedding", rows * (h // grid.x))
    local = h // grid.x * long
    shapes.vector("positions", config.length * h // grid.x)
    yield Section((Product((table,), "y", "", 0, local, "embedding", input_gradient=False),))
    for i in range(config.layers):
        name, at = f"blocks.{i}", (long, long)
        attention = shapes.attention(name, h, config.heads, config.kv_heads, long)
        yield Section(
            (
                shapes.norm(name, h, long, rms=config.rms),
                *attention,
                shapes.norm(name, h, long, rms=config.rms),
                shapes.product(f"{name}.up", h, 4 * h, pixels=at),
                shapes.product(f"{name}.down", 4 * h, h, ("y", "x"), at),
            ),
            block=True,
        )
    norm = shapes.norm("norm", h, long, rms=config.rms)
    head = Weight("embedding" if config.tied else "head", table.numel)
    product = Product((head,), "x", "y", local, rows * long)
    yield Section((norm, product, shapes.loss("y", long)))


def _mlp(shapes: _Shapes, config: MLPConfig) -> Iterator[Section]:
    for i, (inputs, outputs) in enumerate(config.widths()):
        axes = ("y", "x") if i % 2 else ("x", "y")
        product = shapes.product(f"layers.{i}", inputs, outputs, axes, input_gradient=i > 0)
        yield Section((product,), block=i > 0)
    yield Section((shapes.loss(axes[1], 1),))


def _unet(shapes: _Shapes, config: UNetConfig) -> Iterator[Section]:
    wide, pixels = config.channels, config.image**2
    at, time = (pixels, pixels), config.time
    yield Section(
        (
            shapes.product("time1", wide, time, input_gradient=False),
            shapes.product("time2", time, time, ("y", "x")),
            shapes.product(
                "input", config.colours, wide, ("", "x"), at, taps=9, input_gradient=False
            ),
        )
    )
    before = config.image
    for stage in config.stages():
        yield Section(tuple(_stage(shapes, stage, config, before)), block=True)
        before = stage.size
    norm = shapes.group_norm("norm", config.last, config.groups)
    yield Section(
        (norm, shapes.product("output", config.last, config.colours, ("x", ""), at, taps=9))
    )


def _stage(
    shapes: _Shapes, stage: Stage, config: UNetConfig, before: int
) -> Iterator[Product | Small]:
    name, wide, out, pixels = stage.name, sum(stage.inputs), stage.outputs, stage.size**2
    at, groups, joined = (pixels, pixels), config.groups, len(stage.inputs) > 1
    if stage.kind == "attention":
        yield shapes.group_norm(name, wide, groups)
        yield from shapes.attention(name, wide, config.heads, config.heads, pixels)
        return
    if stage.kind != "res":
        taken = pixels if stage.kind == "up" else before**2
        yield shapes.product(name, wide, out, pixels=(taken, pixels), taps=9)
        yield shapes.relayout(out, pixels)
        return
    yield shapes.group_norm(name, wide, groups, whole=not joined)
    yield shapes.product(f"{name}.conv1", wide, out, pixels=at, taps=9)
    yield shapes.product(f"{name}.time", config.time, out)
    yield shapes.group_norm(name, out, groups, "y")
    yield shapes.product(f"{name}.conv2", out, out, ("y", "x"), at, taps=9)
    if stage.shortcut:
        yield shapes.product(f"{name}.shortcut", wide, out, pixels=at)
        yield shapes.relayout(out, pixels)


def _sections(config: GPTConfig | MLPConfig | UNetConfig, shapes: _Shapes) -> list[Section]:
    if isinstance(config, GPTConfig):
        return list(_gpt(shapes, config))
    if isinstance(config, MLPConfig):
        return list(_mlp(shapes, config))
    return list(_unet(shapes, config))


def _gathers(sections: list[Section], *, full: bool) -> list[Weight]:
    """Weights in the order in which a micro-batch gathers them; twice in a row counts once."""
    order = [w for s in sections for p in _products(s) for w in p.weights]
    for section in reversed(sections):
        if full and section.block:
            order += [w for p in _products(section) for w in p.weights]
        order += [w for p in reversed(_products(section)) if p.input_gradient for w in p.weights]
    return [weight for weight, _ in groupby(order)]


def _products(section: Section) -> list[Product]:
    return [p for p in section.layers if isinstance(p, Product)]


def step_volume(
    config: GPTConfig | MLPConfig | UNetConfig,
    shape: GridShape,
    samples: int,
    *,
    micro_batches: int = 1,
    recompute: str = "none",
    bytes_each: int = 4,
) -> Volume:
    """Message bytes of forward, backward and the gradients' sums of one step.

    Parameters
    ----------
    config : GPTConfig, MLPConfig or UNetConfig
    shape : GridShape
    samples : int
        Of this rank, all micro-batches together.
    micro_batches : int
    recompute : {'none', 'full', 'selective'}
    bytes_each : int
        Bytes of an element.

    Returns
    -------
    Counter
        Bytes by (group, operation, kind).
    """
    shapes, full = _Shapes(shape), recompute == "full"
    sections = _sections(config, shapes)
    elements: Volume = Counter()
    for section in sections:
        for layer in section.layers:
            _layer(elements, layer, samples, 2 if full and section.block else 1)
    used = [w for s in sections for p in _products(s) for w in p.weights]
    for weight in _gathers(sections, full=full):
        elements["z", "all_gather", "weight"] += _padded(weight, shape) * micro_batches
    for weight in used:
        elements["z_rs", "reduce_scatter", "gradient"] += _padded(weight, shape) * micro_batches
    for weight in {w.name: w for w in used}.values():
        _summed(elements, weight, _padded(weight, shape) // shape.z)
    for vector in shapes.vectors:
        _summed(elements, vector, vector.numel)
    sized = {k: n * bytes_each for k, n in elements.items() if n and _ranks(shape, k[0]) > 1}
    return Counter(sized)


def local_parameters(config: GPTConfig | MLPConfig | UNetConfig, shape: GridShape) -> int:
    """Elements of all parameters on a rank, z's padding included."""
    shapes = _Shapes(shape)
    used = [w for s in _sections(config, shapes) for p in _products(s) for w in p.weights]
    blocks = {w.name: _padded(w, shape) // shape.z for w in used}
    return sum(blocks.values()) + sum(v.numel for v in shapes.vectors)


def zero_volume(
    config: GPTConfig | MLPConfig | UNetConfig, shape: GridShape, *, bytes_each: int = 4
) -> Volume:
    """Message bytes of the parameters' gather after a sharded update, where one bucket holds them.

    The parameters laid end to end are padded to a multiple of the replicas.
    """
    if shape.data == 1:
        return Counter()
    each = -(-local_parameters(config, shape) // shape.data)
    return Counter({("data", "all_gather", "parameters"): each * shape.data * bytes_each})


def clipping_volume(shape: GridShape) -> Volume:
    """Message bytes of the global gradient norm: a double along each axis of a replica."""
    split = [axis for axis in ("x", "y", "z") if shape.size(axis) > 1]
    return Counter({(axis, "all_reduce", "clipping"): 8 for axis in split})


def _layer(elements: Volume, layer: Product | Small, samples: int, times: int) -> None:
    """Count what a layer sends in forward, so many times, and in backward."""
    if isinstance(layer, Small):
        for axis, op, each in layer.forward:
            elements[axis, op, layer.kind] += each * samples * times
        for axis, op, each in layer.backward:
            elements[axis, op, layer.kind] += each * samples
        return
    if layer.in_axis:
        elements[layer.in_axis, "all_reduce", layer.kind] += layer.outputs * samples * times
    if layer.out_axis and layer.input_gradient:
        elements[layer.out_axis, "all_reduce", "backward"] += layer.inputs * samples


def _summed(elements: Volume, weight: Weight, numel: int) -> None:
    for axis in weight.sum_axes:
        elements[axis, "all_reduce", "gradient"] += numel


def _padded(weight: Weight, shape: GridShape) -> int:
    """Elements of a block, padded to a multiple of z."""
    return -(-weight.numel // shape.z) * shape.z


def _ranks(shape: GridShape, group: str) -> int:
    """Ranks of a group."""
    axis, _, part = group.partition("_")
    return int(part) if part.isdecimal() else shape.size(axis)
