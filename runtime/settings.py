"""Fill frozen dataclasses from TOML tables and flags; each wrong value gets one line.

Types, choices (`Literal`) and least values (`least`) are read from the dataclass, so that a setting
is described in one place only.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class ConfigError(ValueError):
    """A setting the user gave is wrong; the message is one line: value, rule, way out."""


def least(
    default: float,
    smallest: float,
    *,
    above: bool = False,
    most: float = math.inf,
    below: float = math.inf,
) -> Any:
    """A dataclass field of a number that is at least ``smallest``, or above it.

    It is also at most ``most``, and less than ``below``.
    """
    limits = {"least": smallest, "above": above, "most": most, "below": below}
    return field(default=default, metadata=limits)


def positive(**dims: int) -> None:
    """See that dimensions of a model are at least 1.

    Raises
    ------
    ConfigError
        Names the first that is not.
    """
    for name, size in dims.items():
        if size < 1:
            raise ConfigError(f"{name} = {size}: must be at least 1")


def share(**dims: float) -> None:
    """See that shares, such as of dropout, lie in [0, 1).

    Raises
    ------
    ConfigError
        Names the first that does not.
    """
    for name, size in dims.items():
        if not 0 <= size < 1:
            raise ConfigError(f"{name} = {size}: must be at least 0 and below 1")


def near(word: str, known: Iterable[str]) -> str:
    """``did you mean …?`` for a word close to a known one, else the list of those known."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def shown(given: object) -> str:
    """A wrong value as messages show it: at most 80 characters."""
    try:
        text = repr(given)
    except (ValueError, RecursionError):  # a number of thousands of digits, a deep nest
        return f"a {type(given).__name__} too long to show"
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises
    ------
    ConfigError
        When it cannot be read, or is no TOML (with the place).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}; give a TOML file that can be read") from e
    except RecursionError as e:
        raise ConfigError(f"{path}: no TOML of settings (its values are nested too deep)") from e
    except ValueError as e:  # no TOML, no UTF-8, a number of thousands of digits, NUL in the name
        raise ConfigError(f"{path}: no TOML ({e})") from e


def fill(kind: type[T], table: object, where: str) -> T:
    """A dataclass from a table; what is not named takes its default.

    Parameters
    ----------
    kind : type
        A dataclass.
    table : object
        Decoded TOML; must be a table.
    where : str
        Name of the table for messages; empty for the whole file.

    Raises
    ------
    ConfigError
        For an unknown key (with a near-miss), a wrong type, choice or size.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {shown(table)}: must be a table, such as [{where}]")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for name in table:
        if name not in known:
            place = f"in [{where}]" if where else "at the top"
            raise ConfigError(f"unknown setting {shown(name)} {place}: {near(name, known)}")
    hints = get_type_hints(kind)
    values = {
        name: value(hints[name], given, f"{where}.{name}" if where else name, known[name])
        for name, given in table.items()
    }
    for name, one in known.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise ConfigError(f"{where}: {name} is missing; it needs {_described(hints[name])}")
    try:
        return kind(**values)
    except ConfigError:
        raise
    except ValueError as e:
        raise ConfigError(f"{where}: {e}" if where else str(e)) from e


def value(hint: Any, given: object, where: str, about: Field[Any] | None = None) -> Any:
    """One setting in its type; texts (from flags) are read as the type's notation."""
    if is_dataclass(hint):
        return fill(hint, given, where)  # type: ignore[arg-type]
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _optional(hint, given, where, about)
    if origin is Literal:
        return _choice(get_args(hint), given, where)
    if origin is tuple:
        return _several(get_args(hint)[0], given, where)
    if origin is not None or hint not in NAMES:  # a free table, such as [machine]
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where} = {shown(given)}: must be a table")
        return dict(given)
    return _bounded(_plain(hint, given, where), where, about)


def _optional(hint: Any, given: object, where: str, about: Field[Any] | None) -> Any:
    (kind,) = (a for a in get_args(hint) if a is not type(None))
    return None if given in (None, "none") else value(kind, given, where, about)


def _plain(kind: type, given: object, where: str) -> Any:
    wrong = ConfigError(f"{where} = {shown(given)}: must be {NAMES[kind]}")
    if kind is bool and isinstance(given, str) and given.lower() in WORDS:
        return WORDS[given.lower()]
    if kind is bool or kind is str:
        if isinstance(given, kind):
            return given
        raise wrong
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise wrong
    if isinstance(given, str) and not given.isascii():
        raise wrong
    try:
        number = kind(given)
    except (ValueError, OverflowError):
        raise wrong from None
    if kind is int and isinstance(given, float) and number != given:
        raise wrong
    return number


def _bounded(number: Any, where: str, about: Field[Any] | None) -> Any:
    if isinstance(number, float) and not math.isfinite(number):
        raise ConfigError(f"{where} = {number}: must be finite")
    if about is None or "least" not in about.metadata:
        return number
    smallest, above = about.metadata["least"], about.metadata["above"]
    if number < smallest or (above and number == smallest):
        word = "above" if above else "at least"
        raise ConfigError(f"{where} = {shown(number)}: must be {word} {smallest}")
    if number > about.metadata["most"]:
        raise ConfigError(f"{where} = {shown(number)}: must be at most {about.metadata['most']}")
    if number >= (limit := about.metadata["below"]) and limit < math.inf:
        raise ConfigError(f"{where} = {shown(number)}: must be below {limit}")
    return number


def _choice(choices: tuple[str, ...], given: object, where: str) -> str:
    if given not in choices:
        raise ConfigError(f"{where} = {shown(given)}: choose from {', '.join(choices)}")
    return str(given)


def _several(kind: type, given: object, where: str) -> tuple[Any, ...]:
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, list | tuple):
        raise ConfigError(f"{where} = {shown(given)}: must be a list, such as 'x,y' or '1,2'")
    return tuple(_plain(kind, p.strip() if isinstance(p, str) else p, where) for p in parts)


def _described(hint: Any) -> str:
    return NAMES.get(hint, "a value") if isinstance(hint, type) else "a value"
