"""Turn a user's own module into one that runs on the grid, by explicit rules, or say why not.

The module's forward is traced with torch.fx, and the layout of every value is followed through it:
which axis its features are split over, or that every rank has them whole. What is not known to keep
the result exact is refused, in words that name the place and the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, fx, nn

from runtime.overlap import Engine
from runtime.parallel_layers import RULES, convert
from runtime.parallel_ops import Held, Refused, is_known, propagate
from runtime.relayout import gather_features, take_features


class _Take(nn.Module):
    """From whole features to this rank's."""

    def __init__(self, engine: Engine, held: Held, name: str) -> None:
        super().__init__()
        self.engine, self.held, self.name = engine, held, name

    def forward(self, t: Tensor) -> Tensor:
        """Cut."""
        return take_features(self.engine, t, self.held.features, self.held.dim, self.name)


class _Whole(nn.Module):
    """From this rank's features to all of them."""

    def __init__(self, engine: Engine, held: Held, name: str) -> None:
        super().__init__()
        self.engine, self.held, self.name = engine, held, name

    def forward(self, t: Tensor) -> Tensor:
        """Concatenate."""
        return gather_features(self.engine, t, self.held.features, self.held.dim, self.name)


@dataclass
class _Rewriter:
    """Walks the traced graph once, in order.

    Attributes
    ----------
    held : dict
        Layout of each value; None where every rank has it whole.
    """

    module: nn.Module
    engine: Engine
    rules: Mapping[str, str]
    graph: fx.Graph
    held: dict[fx.Node, Held | None] = field(default_factory=dict)
    made: dict[str, tuple[nn.Module, Held | None, Held | None]] = field(default_factory=dict)
    shared: dict[int, nn.Module] = field(default_factory=dict)
    extra: dict[str, nn.Module] = field(default_factory=dict)

    def run(self) -> nn.Module:
        """The new module."""
        self._check_ties()
        for node in list(self.graph.nodes):
            self._visit(node)
        self._check_complete()
        root = fx.GraphModule(self._parts(), self.graph)
        self.graph.lint()
        return root

    def _visit(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.held[node] = None
        elif node.op == "get_attr":
            self._attribute(node)
        elif node.op == "output":
            node.args = fx.map_arg(node.args, self._whole)
        elif node.op == "call_module" and self._rule(str(node.target)):
            self._layer(node)
        else:
            called = (
                self.module.get_submodule(str(node.target)) if node.op == "call_module" else None
            )
            self.held[node] = propagate(node, called, self.held)

    def _attribute(self, node: fx.Node) -> None:
        owner, _, last = str(node.target).rpartition(".")
        if isinstance(getattr(self.module.get_submodule(owner), last), nn.Parameter):
            raise Refused(
                f"{node.target}: a parameter that forward uses directly cannot be split by a rule; "
                f"put it into a layer of its own"
            )
        self.held[node] = None

    def _rule(self, name: str) -> str | None:
        called = self.module.get_submodule(name)
        rule = next((r for p, r in self.rules.items() if fnmatchcase(name, p)), None)
        if rule is not None and not is_known(called):
            return rule
        if rule is None and (list(called.parameters()) or list(called.buffers())):
            raise Refused(
                f"{name} ({type(called).__name__}): it has parameters or buffers, and no rule "
                f"names it; add a rule, for example {{{name!r}: 'replicated'}}, if it is a linear "
                f"layer, convolution, norm or embedding"
            )
        return None

    def _layer(self, node: fx.Node) -> None:
        """Replace a layer, and see that its input has the layout it takes."""
        name, source = str(node.target), node.args[0]
        assert isinstance(source, fx.Node)
        have = self.held[source]
        if name in self.made:
            _, takes, gives = self.made[name]
        else:
            rule = self._rule(name)
            assert rule is not None
            layer = self.module.get_submodule(name)
            new, takes, gives = convert(self.engine, name, layer, rule, have, self.shared)
            self.made[name] = new, takes, gives
        if takes is not None and have is None:
            source = self._insert(
                node, source, f"{_flat(name)}_take", _Take(self.engine, takes, name)
            )
            node.args = (source, *node.args[1:])
        elif not _same(takes, have):
            raise Refused(
                f"{name}: its input {source.name} is {_words(have)}, but it takes {_words(takes)}; "
                f"choose rules that chain (normal: x to y, transposed: y to x)"
            )
        self.held[node] = gives

    def _whole(self, node: fx.Node) -> fx.Node:
        """A value that the module returns, whole on every rank."""
        held = self.held[node]
        if held is None:
            return node
        if not held.contiguous:
            raise Refused(f"{node.name}: the result is a concatenation; put a layer behind it")
        name = f"{node.name}_whole"
        with self.graph.inserting_after(node):
            self.extra[name] = _Whole(self.engine, held, name)
            return self.graph.call_module(name, (node,))

    def _insert(self, before: fx.Node, source: fx.Node, name: str, module: nn.Module) -> fx.Node:
        self.extra[name] = module
        with self.graph.inserting_before(before):
            return self.graph.call_module(name, (source,))

    def _check_ties(self) -> None:
        owners: dict[int, list[str]] = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            owners.setdefault(id(parameter), []).append(name)
        for names in owners.values():
            layers = [self.module.get_submodule(n.rpartition(".")[0]) for n in names]
            fits = all(n.endswith(".weight") for n in names) and any(
                isinstance(m, nn.Embedding) for m in layers
            )
            if len(names) > 1 and not fits:
                raise Refused(
                    f"{' and '.join(names)} are one parameter: known is only a linear layer that "
                    f"shares the weight of an embedding"
                )

    def _check_complete(self) -> None:
        used = set(self.made)
        for name, _ in self.module.named_parameters(remove_duplicate=False):
            if name.rpartition(".")[0] not in used:
                raise Refused(
                    f"{name}: forward never uses this parameter, or only inside a layer that is "
                    f"not known; remove it or name its layer in a rule"
                )

    def _parts(self) -> nn.Module:
        """The modules and constants that the graph calls, old and new."""
        root = nn.Module()
        for node in self.graph.nodes:
            if node.op not in {"call_module", "get_attr"}:
                continue
            name = str(node.target)
            if name in self.made:
                value: Any = self.made[name][0]
            elif name in self.extra:
                value = self.extra[name]
            else:
                owner, _, last = name.rpartition(".")
                value = getattr(self.module.get_submodule(owner), last)
            _place(root, name, value)
        return root


def parallelize(module: nn.Module, engine: Engine, rules: Mapping[str, str]) -> nn.Module:
    """The module on a grid, with its own weights, each rank keeping its part.

    The result takes the same arguments, with this rank's samples, and gives the same values, whole
    on every rank of a (x, y) plane. Call ``engine.start()`` before a step, divide the loss by the
    global number of items, and call ``engine.finish()`` after backward.

    Parameters
    ----------
    module : nn.Module
        Its forward must be traceable by torch.fx: no branches on values.
    engine : Engine
    rules : dict of str to str
        From patterns of layer names (``fc*``, ``blocks.?.up``; the first that fits counts) to

        - ``normal``: split in-features over x and out-features over y
        - ``transposed``: in-features over y, out-features over x
        - ``enter``: whole in-features, out-features over x
        - ``leave``: in-features over x, whole out-features
        - ``replicated``: the whole layer on every rank
        - ``follow``: a norm, split as its input is

        An embedding is ``normal`` (vocabulary over y, features over x) or ``replicated``.

    Raises
    ------
    ValueError
        Where the rules do not fit, or something is not known to stay exact; it names the place.
    """
    for pattern, rule in rules.items():
        if rule not in RULES:
            raise Refused(f"rule {pattern!r}: {rule!r}: choose from {', '.join(RULES)}")
        if not any(fnmatchcase(name, pattern) for name, _ in module.named_modules()):
            raise Refused(f"rule {pattern!r}: no layer has such a name")
    try:
        graph = fx.Tracer().trace(module)
    except (fx.proxy.TraceError, TypeError) as e:
        raise Refused(
            f"{type(module).__name__}: its forward cannot be traced ({e}); parallelize the parts "
            f"whose course depends on no values"
        ) from e
    return _Rewriter(module, engine, rules, graph).run()


def _place(root: nn.Module, path: str, value: Any) -> None:
    *owners, last = path.split(".")
    for owner in owners:
        if not hasattr(root, owner):
            root.add_module(owner, nn.Module())
        root = getattr(root, owner)
    if isinstance(value, nn.Module):
        root.add_module(last, value)
    elif isinstance(value, torch.Tensor):
        root.register_buffer(last, value)
    else:
        setattr(root, last, value)


def _same(takes: Held | None, have: Held | None) -> bool:
    if takes is None or have is None:
        return takes is have
    return takes.same(have)


def _words(held: Held | None) -> str:
    return "whole on every rank" if held is None else held.words()


def _flat(name: str) -> str:
    return name.replace(".", "_")
