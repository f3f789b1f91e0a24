"""Print what the cache folder holds as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from tracekit.report import words
from tracekit.report.layout import Look, table


def render_cache(
    folder: str,
    entries: Sequence[Mapping[str, Any]],
    freed_bytes: int | None,
    console: Console,
) -> None:
    """Print the entries (``key``, ``source``, ``bytes``, ``last_used_unix``), newest first."""
    lines: list[RenderableType] = []
    if freed_bytes is not None:
        lines.append(Text(f"freed {words.size(freed_bytes)}"))
    whole = sum(entry["bytes"] for entry in entries)
    held = f"{words.counted(len(entries), 'item')}, {words.size(whole)}"
    lines.append(Text(f"{words.safe(folder)}: {held if entries else 'empty'}"))
    if entries:
        look = Look.of(console, None)
        newest = sorted(entries, key=lambda entry: -entry["last_used_unix"])
        rows = [_row(entry, look) for entry in newest]
        lines.append(table(look, ("source", "size", "last used"), rows))
    for line in lines:
        console.print(line, markup=False, highlight=False, emoji=False)


def _row(entry: Mapping[str, Any], look: Look) -> tuple[str, str, str]:
    used = datetime.fromtimestamp(entry["last_used_unix"]).strftime("%Y-%m-%d %H:%M")
    return words.clip(entry["source"], look.width - 30), words.size(entry["bytes"]), used
