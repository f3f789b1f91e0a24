"""Event names to meaning: roles, operations, dtypes, phases and axes, from ``names.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import UsageError, one_line
from tracekit.core.suggest import nearest
from tracekit.io.sources import small_text

Role = Literal["compute", "comm", "memory", "none"]
#: roles in the order of their codes
ROLES: tuple[Role, ...] = ("compute", "comm", "memory", "none")
COMPUTE, COMM, MEMORY, NONE = range(4)
_TABLES = (
    "rule", "host", "phases", "categories", "ops", "kernel_ops", "dtype_bytes", "axes",
)  # fmt: skip
#: how much of a name is looked at; patterns with ``.*`` take quadratic time in hostile names
NAME_LIMIT = 4096
#: of one element, far above any type there is
MAX_DTYPE_BYTES = 4096
_RULE_KEYS = ("role", "pattern", "library", "op")


@dataclass(frozen=True, slots=True)
class Rule:
    """One naming rule: names in which ``pattern`` is found have ``role``."""

    role: Role
    pattern: re.Pattern[str]
    library: str = ""
    op: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """All that is known about names.

    Attributes
    ----------
    rules : tuple of Rule
        The first rule that is found in a name gives its role.
    host, phases, kernel_ops : dict of str to compiled pattern
    categories : dict of str to frozenset of str
        Kind of row to the (lower-case) ``cat`` texts that mean it.
    ops : dict of str to str
        Spelling of an operation to torch's word.
    dtype_bytes : dict of str to int
    axes : dict of str to str
        Group description (lower case) to axis.
    """

    rules: tuple[Rule, ...]
    host: dict[str, re.Pattern[str]]
    phases: dict[str, re.Pattern[str]]
    kernel_ops: dict[str, re.Pattern[str]]
    categories: dict[str, frozenset[str]]
    ops: dict[str, str]
    dtype_bytes: dict[str, int]
    axes: dict[str, str]
    _seen: dict[str, Rule | None] = field(default_factory=dict, repr=False, compare=False)

    def rule(self, name: str) -> Rule | None:
        """The rule that knows a device event's name; None when none does.

        Examples
        --------
        >>> names = load()
        >>> names.rule("ncclDevKernel_AllReduce_Sum_f32_RING_LL").role
        'comm'
        >>> names.rule("void at::native::reduce_kernel<512, 1>").role
        'compute'
        >>> names.rule("my_kernel") is None
        True
        """
        if name not in self._seen:
            head = name[:NAME_LIMIT]
            self._seen[name] = next((r for r in self.rules if r.pattern.search(head)), None)
        return self._seen[name]

    def role_codes(self, names: list[str]) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
        """Role codes of many names, and which of them no rule knows.

        Returns
        -------
        codes : ndarray of int8, shape (len(names),)
            Index into `ROLES`.
        unknown : ndarray of bool, shape (len(names),)
        """
        found = [self.rule(n) for n in names]
        codes = np.array([ROLES.index(r.role) if r else COMPUTE for r in found], dtype=np.int8)
        return codes, np.array([r is None for r in found], dtype=bool)

    def kind(self, cat: str) -> str:
        """Kind of row a ``cat`` text means; empty when it is none of the known.

        Examples
        --------
        >>> load().kind("gpu_memcpy")
        'memory'
        """
        low = cat.lower()
        return next((kind for kind, cats in self.categories.items() if low in cats), "")

    def op(self, collective: str | None, kernel: str = "") -> str | None:
        """An operation in torch's word, from its recorded name or else the kernel's.

        Examples
        --------
        >>> load().op("_allgather_base")
        'all_gather'
        >>> load().op(None, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        'all_reduce'
        """
        if collective:
            word = collective.strip().lower().split(" ", 1)[0]
            if word in self.ops:
                return self.ops[word]
        rule = self.rule(kernel) if kernel else None
        if rule and rule.op:
            return rule.op
        return next((op for op, p in self.kernel_ops.items() if kernel and p.search(kernel)), None)

    def axis(self, desc: str | None) -> str | None:
        """Axis of the grid a process group description names; None when it names none.

        Examples
        --------
        >>> load().axis("mesh_dp"), load().axis("TENSOR_MODEL_PARALLEL_GROUP")
        ('dp', 'tp')
        >>> load().axis("default_pg") is None
        True
        """
        if not desc or desc in ("undefined", "default_pg"):
            return None
        low = desc.lower()
        if low in self.axes:
            return self.axes[low]
        if low.startswith("mesh_") and len(low) > 5:
            return self.axis(desc[5:]) or desc[5:]
        return None


def load(path: str | None = None) -> Names:
    """Load the naming rules, a user's own before the built-in ones.

    Parameters
    ----------
    path : str, optional
        A TOML file of the form of ``tracekit/model/names.toml``.

    Raises
    ------
    UsageError
        When the file cannot be read, is no TOML, or holds an unknown key or a bad pattern.
    """
    return _made(path or "names.toml", "" if path is None else _text(path))


@lru_cache(maxsize=8)
def _made(where: str, text: str) -> Names:
    """The rules of a user's file of that text, and the built-in ones."""
    builtin = _builtin()
    own = _parsed(text, where)
    _check(own, builtin, where)
    rules = [_rule(r, where) for r in own.get("rule", [])]
    rules += [_rule(r, "names.toml") for r in builtin["rule"]]
    merged = {t: {**builtin[t], **own.get(t, {})} for t in _TABLES if t != "rule"}
    for table in ("categories", "ops", "axes"):
        for key, values in own.get(table, {}).items():
            merged[table][key] = [*builtin[table].get(key, []), *values]
    axes = {d.lower(): axis for axis, descs in merged["axes"].items() for d in (axis, *descs)}
    return Names(
        rules=tuple(rules),
        host={k: _pattern(v, where) for k, v in merged["host"].items()},
        phases={k: _pattern(v, where) for k, v in merged["phases"].items()},
        kernel_ops={k: _pattern(v, where) for k, v in merged["kernel_ops"].items()},
        categories={k: frozenset(c.lower() for c in v) for k, v in merged["categories"].items()},
        ops={word.lower(): op for op, words in merged["ops"].items() for word in words},
        dtype_bytes=dict(merged["dtype_bytes"]),
        axes={**axes, **{a: a for a in ("x", "y", "z", "data", "pipe", "context")}},
    )


def _builtin() -> dict[str, Any]:
    text = resources.files("tracekit.model").joinpath("names.toml").read_text("utf-8")
    return tomllib.loads(text)


def _text(path: str) -> str:
    if not path:
        hint = "give a TOML file, or none for the built-in rules"
        raise UsageError("the name of the names file is empty", hint=hint)
    try:
        return small_text(path)
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
        raise UsageError(f"cannot read the names file ({reason})", where=path) from e


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"not valid TOML: {e}", where=where) from e
    except RecursionError as e:
        raise UsageError("nested too deeply to be a file of names", where=where) from e


def _check(own: dict[str, Any], builtin: dict[str, Any], path: str) -> None:
    for key, value in own.items():
        if key not in _TABLES:
            near = nearest(key, _TABLES) or "rule"
            hint = f"did you mean [{near}]? known tables: {', '.join(_TABLES)}"
            raise UsageError(f"unknown table {key!r}", where=path, hint=hint)
        if not isinstance(value, list if key == "rule" else dict):
            raise UsageError(f"{key!r} must be written as [[rule]] or [{key}]", where=path)
    for table in ("host", "categories"):  # their keys mean something to the analysis
        known = builtin[table]
        for key in own.get(table, {}):
            if key not in known:
                meant = nearest(key, known)
                hint = f"did you mean {meant}? " if meant else ""
                hint += f"known keys: {', '.join(known)}"
                raise UsageError(f"unknown key {key!r} in [{table}]", where=path, hint=hint)
    _check_values(own, path)


def _check_values(own: dict[str, Any], path: str) -> None:
    """Tables of lists hold lists of texts, and sizes are whole numbers (patterns fail later)."""
    for table in ("categories", "ops", "axes"):
        for key, values in own.get(table, {}).items():
            if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
                raise UsageError(f"[{table}] {key} must be a list of texts", where=path)
    for key, size in own.get("dtype_bytes", {}).items():
        if type(size) is not int or not 0 <= size <= MAX_DTYPE_BYTES:
            raise UsageError(f"[dtype_bytes] {key} must be a whole number of bytes", where=path)


def _rule(raw: Any, where: str) -> Rule:
    if not isinstance(raw, dict) or raw.get("role") not in ROLES or "pattern" not in raw:
        hint = f"each [[rule]] needs role (one of {', '.join(ROLES)}) and pattern"
        raise UsageError(f"bad rule {_shown(raw)}", where=where, hint=hint)
    if extra := set(raw) - set(_RULE_KEYS):
        hint = f"known keys: {', '.join(_RULE_KEYS)}"
        raise UsageError(f"unknown key {min(extra)!r} in a rule", where=where, hint=hint)
    for key in ("library", "op"):
        if not isinstance(raw.get(key, ""), str):
            raise UsageError(f"{key} = {_shown(raw[key])} in a rule is no text", where=where)
    pattern = _pattern(raw["pattern"], where)
    return Rule(raw["role"], pattern, raw.get("library", ""), raw.get("op"))


def _shown(value: Any) -> str:
    """A value in a message, not too long."""
    return one_line(repr(value), 80)


def _pattern(text: Any, where: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, TypeError, OverflowError) as e:
        raise UsageError(f"bad pattern {_shown(text)}: {e}", where=where) from e
    except RecursionError as e:
        what = f"bad pattern {_shown(text)}: its brackets are nested too deeply"
        raise UsageError(what, where=where) from e
