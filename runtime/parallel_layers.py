"""From a layer of torch to the grid's layer with the same weights, or why not."""

from __future__ import annotations

import torch
from torch import nn

from runtime.conv import Conv2d
from runtime.embedding import Embedding
from runtime.group_norm import GroupNorm
from runtime.linear import Linear, Rows
from runtime.norm import Norm
from runtime.overlap import Engine
from runtime.parallel_ops import Held, Refused
from runtime.sharding import Features, features

#: in- and out-axis of each rule for linear layers and convolutions
AXES = {
    "normal": ("x", "y"),
    "transposed": ("y", "x"),
    "enter": ("", "x"),
    "leave": ("x", ""),
    "replicated": ("", ""),
}
RULES = (*AXES, "follow")

Converted = tuple[nn.Module, Held | None, Held | None]


def convert(
    engine: Engine,
    name: str,
    layer: nn.Module,
    rule: str,
    have: Held | None,
    shared: dict[int, nn.Module],
) -> Converted:
    """The grid's layer, the layout it takes and the one it gives.

    Parameters
    ----------
    have : Held or None
        Layout of its input.
    shared : dict
        Embeddings made so far by the id of their weight, for tied heads.
    """
    own = dict(layer.named_parameters())
    for parameter in own.values():
        if id(parameter) in shared and not isinstance(layer, nn.Linear):
            raise Refused(f"{name}: only a linear layer can share its weight with an embedding")
    engine.registry.given.update({f"{name}.{k}": v.detach() for k, v in own.items()})
    try:
        made = _convert(engine, name, layer, rule, have, shared)
    except Refused:
        raise
    except ValueError as e:  # a dimension that does not divide
        raise Refused(str(e)) from e
    finally:
        for key in own:
            engine.registry.given.pop(f"{name}.{key}")
    return made


def _convert(
    engine: Engine,
    name: str,
    layer: nn.Module,
    rule: str,
    have: Held | None,
    shared: dict[int, nn.Module],
) -> Converted:
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm):
        if rule not in {"follow", "replicated"}:
            raise Refused(f"{name}: a norm is split as its input is; its rule is 'follow'")
        if rule == "replicated" and have is not None:
            raise Refused(f"{name}: replicated, but its input is {have.words()}; use 'follow'")
        return (
            _group_norm(engine, name, layer, have)
            if isinstance(layer, nn.GroupNorm)
            else _norm(engine, name, layer, have)
        )
    if rule == "follow":
        raise Refused(f"{name} ({type(layer).__name__}): 'follow' is for norms")
    if type(layer) is nn.Linear:
        return _linear(engine, name, layer, AXES[rule], have, shared)
    if type(layer) is nn.Conv2d:
        return _convolution(engine, name, layer, AXES[rule], have)
    if type(layer) is nn.Embedding:
        return _embedding(engine, name, layer, rule, shared)
    raise Refused(
        f"{name} ({type(layer).__name__}): not known how to split it exactly; known are Linear, "
        f"Conv2d, LayerNorm, RMSNorm, GroupNorm and Embedding"
    )


def _linear(
    engine: Engine,
    name: str,
    layer: nn.Linear,
    axes: tuple[str, str],
    have: Held | None,
    shared: dict[int, nn.Module],
) -> Converted:
    takes = _input(engine, name, layer.in_features, axes[0], -1, have)
    gives = _output(engine, name, layer.out_features, axes[1], -1)
    bias = layer.bias is not None
    cols = None if takes is None else takes.features
    tied = shared.get(id(layer.weight))
    if tied is None:
        sizes = layer.in_features, layer.out_features
        new = Linear(engine, name, *sizes, axes=axes, bias=bias, inputs=cols)
        shared[id(layer.weight)] = new
        return new, takes, gives
    if not isinstance(tied, Embedding) or axes != AXES["normal"]:
        raise Refused(
            f"{name}: it shares its weight with {getattr(tied, 'name', '')}; known is only a "
            f"'normal' linear layer that shares with a 'normal' embedding before it"
        )
    rows = (Rows(name, tied.rows),)
    sizes = layer.in_features, layer.out_features
    return Linear(engine, name, *sizes, bias=bias, rows=rows, weight=tied.weight), takes, gives


def _convolution(
    engine: Engine, name: str, layer: nn.Conv2d, axes: tuple[str, str], have: Held | None
) -> Converted:
    odd = [
        word
        for word, wrong in (
            ("groups", layer.groups != 1),
            ("dilation", layer.dilation != (1, 1)),
            ("padding_mode", layer.padding_mode != "zeros"),
            ("kernel_size", len(set(layer.kernel_size)) != 1),
            ("stride", len(set(layer.stride)) != 1),
            ("padding", isinstance(layer.padding, str) or len(set(layer.padding)) != 1),
        )
        if wrong
    ]
    if odd:
        raise Refused(
            f"{name}: {odd[0]} = {getattr(layer, odd[0])}: only square kernels, strides and zero "
            f"paddings without groups or dilation are known"
        )
    takes = _input(engine, name, layer.in_channels, axes[0], 1, have)
    gives = _output(engine, name, layer.out_channels, axes[1], 1)
    new = Conv2d(
        engine,
        name,
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size[0],
        axes=axes,
        stride=layer.stride[0],
        padding=int(layer.padding[0]),
        bias=layer.bias is not None,
        inputs=None if takes is None else takes.features,
    )
    return new, takes, gives


def _norm(
    engine: Engine, name: str, layer: nn.LayerNorm | nn.RMSNorm, have: Held | None
) -> Converted:
    shape, centred = layer.normalized_shape, isinstance(layer, nn.LayerNorm)
    if len(shape) != 1:
        raise Refused(f"{name}: it normalises over {len(shape)} dimensions; known is the last one")
    if have is not None and (have.dim != -1 or have.features.size != shape[0]):
        raise Refused(f"{name}: it normalises {shape[0]} features, its input is {have.words()}")
    eps = torch.finfo(engine.registry.dtype).eps if layer.eps is None else layer.eps
    new = Norm(
        engine,
        name,
        shape[0],
        centred=centred,
        axis="" if have is None else have.features.axis,
        eps=eps,
        affine=layer.elementwise_affine,
        bias=getattr(layer, "bias", None) is not None,
        held=None if have is None else have.features,
    )
    return new, have, have


def _group_norm(engine: Engine, name: str, layer: nn.GroupNorm, have: Held | None) -> Converted:
    if not layer.affine:
        raise Refused(f"{name}: group norms without gain and bias are not known; set affine=True")
    channels, groups = layer.num_channels, layer.num_groups
    if have is not None and (have.dim != 1 or have.features.size != channels):
        raise Refused(f"{name}: it normalises {channels} channels, its input is {have.words()}")
    held = None if have is None or have.contiguous else have.features
    axis = "" if have is None else have.features.axis
    new = GroupNorm(engine, name, channels, groups, axis=axis, held=held, eps=layer.eps)
    return new, have, have


def _embedding(
    engine: Engine, name: str, layer: nn.Embedding, rule: str, shared: dict[int, nn.Module]
) -> Converted:
    if layer.padding_idx is not None or layer.max_norm is not None or layer.sparse:
        raise Refused(f"{name}: padding_idx, max_norm and sparse embeddings are not known")
    if rule not in {"normal", "replicated"}:
        raise Refused(f"{name}: an embedding is 'normal' or 'replicated'")
    y = engine.comm.grid["y"].size
    if layer.num_embeddings % y:
        raise Refused(f"{name}: {layer.num_embeddings} rows do not divide over y = {y}")
    whole = rule == "replicated"
    new = Embedding(engine, name, layer.num_embeddings, layer.embedding_dim, whole=whole)
    shared[id(layer.weight)] = new
    return new, None, None if whole else _output(engine, name, layer.embedding_dim, "x", -1)


def _input(
    engine: Engine, name: str, size: int, axis: str, dim: int, have: Held | None
) -> Held | None:
    """The layout a layer takes: its input's, if that is split over its in-axis."""
    if not axis:
        return None
    if have is not None and have.features.axis == axis and have.dim == dim:
        if have.features.size != size:
            raise Refused(f"{name}: it takes {size} features, its input is {have.words()}")
        return have
    return Held(_features(engine, name, size, axis), dim)


def _output(engine: Engine, name: str, size: int, axis: str, dim: int) -> Held | None:
    return Held(_features(engine, name, size, axis), dim) if axis else None


def _features(engine: Engine, name: str, size: int, axis: str) -> Features:
    return features(engine.comm.grid, axis, size, f"{name}: {size} features over {axis}")
