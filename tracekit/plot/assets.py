"""The scripts and other files that pictures need in a browser, as texts."""

from __future__ import annotations

from importlib import resources


def script(name: str = "lanes.js") -> str:
    """The text of a file in ``static``.

    Examples
    --------
    >>> "export function mount(" in script()
    True
    """
    return (resources.files("tracekit.plot") / "static" / name).read_text("utf-8")
