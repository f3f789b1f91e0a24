"""Verbs that other packages add through the entry-point group ``tracekit.commands``.

An entry point's name is the verb. What it points to is called with the list of the remaining
arguments and returns an exit status (or None for 0). It is imported only when its verb is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.core.errors import TracekitError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tracekit.commands"
Command = Callable[[list[str]], int | None]


def found() -> dict[str, EntryPoint]:
    """The installed verbs by name; the first of several with one name."""
    from importlib.metadata import entry_points

    verbs: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        verbs.setdefault(point.name, point)
    return dict(sorted(verbs.items()))


def load(point: EntryPoint) -> Command:
    """Import what the verb runs.

    Raises
    ------
    TracekitError
        When the import fails, whatever the reason, or gives nothing that can be called.
    """
    try:
        command = point.load()
    except Exception as e:  # foreign code may raise anything
        raise TracekitError(
            f"the command {point.name!r} cannot be loaded from {point.value} "
            f"({type(e).__name__}: {e})",
            hint=_hint(point, e),
        ) from e
    if not callable(command):
        raise TracekitError(
            f"the command {point.name!r} cannot be run: {point.value} is no function",
            hint=f"update or remove {_package(point)}",
        )
    return command  # type: ignore[no-any-return]


def summary(point: EntryPoint) -> str:
    """What a verb does: the first line of its docstring, read without importing its module."""
    import ast
    from importlib.util import find_spec

    try:
        spec = find_spec(point.module)
        tree = ast.parse(Path(str(spec and spec.origin)).read_text("utf-8"))
    except Exception:  # noqa: BLE001 - a foreign package may raise anything
        tree = ast.Module([], [])
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    text = ast.get_docstring(functions[point.attr]) if point.attr in functions else None
    return text.splitlines()[0] if text else f"Provided by {point.module}."


def _hint(point: EntryPoint, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install {error.name.partition('.')[0]}, or the extra of {_package(point)} for it"
    return f"update or remove {_package(point)}"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "the package that brings it"
