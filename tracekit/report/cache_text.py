"""Print what the cache folder holds as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from tracekit.report import words
from tracekit.report.layout import Look, put, remark, table

MAX_ROWS = 20
#: what the store gives as the source of a kept answer
ANALYSIS = "(an analysis)"


def render_cache(
    folder: str,
    entries: Sequence[Mapping[str, Any]],
    freed_bytes: int | None,
    console: Console,
) -> None:
    """Print how much is kept and the traces used last.

    Parameters
    ----------
    entries : sequence of mapping
        ``key``, ``source``, ``bytes`` and ``last_used_unix`` (seconds) of each, in any order.
        Kept analyses are counted, not listed.
    freed_bytes : int or None
        How much was just removed; None when nothing was asked to be.
    """
    lines: list[RenderableType] = []
    if freed_bytes is not None:
        lines.append(Text(f"freed {words.size(freed_bytes)}"))
    traces = [entry for entry in entries if entry["source"] != ANALYSIS]
    analyses = [entry for entry in entries if entry["source"] == ANALYSIS]
    held = [_held(traces, "trace", "traces"), _held(analyses, "analysis", "analyses")]
    told = ", ".join(filter(None, held)) or "nothing"
    lines.append(Text(f"{told} kept in {words.safe(folder)}"))
    if traces:
        look = Look.of(console, None)
        newest = sorted(traces, key=lambda entry: -entry["last_used_unix"])
        rows = [_row(entry, look) for entry in newest[:MAX_ROWS]]
        lines.append(table(look, ("source", "size", "last used"), rows))
    if len(traces) > MAX_ROWS:
        more = words.counted(len(traces) - MAX_ROWS, "trace")
        lines.append(remark(f"and {more} used before (--json lists all)"))
    put(lines, console)


def _held(entries: Sequence[Mapping[str, Any]], one: str, several: str) -> str:
    size = words.size(sum(entry["bytes"] for entry in entries))
    return f"{words.counted(len(entries), one, several)} ({size})" if entries else ""


def _row(entry: Mapping[str, Any], look: Look) -> tuple[str, str, str]:
    used = datetime.fromtimestamp(entry["last_used_unix"]).strftime("%Y-%m-%d %H:%M")
    return words.clip(entry["source"], look.width - 30), words.size(entry["bytes"]), used
