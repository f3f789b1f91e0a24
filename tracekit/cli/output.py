"""What goes where: data on stdout (JSON or tables), words on stderr, one line each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.core.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

MIN_WIDTH = 80


def say(text: str) -> None:
    """One line on stderr, named after the program."""
    if sys.stderr is not None:
        sys.stderr.write(f"tracekit: {one_line(text, limit=2000)}\n")


def write_json(document: dict[str, Any]) -> None:
    """Write ``document`` as one JSON text on stdout; NaN and infinity become null."""
    sys.stdout.buffer.write(_encoded(document) + b"\n")
    sys.stdout.buffer.flush()


def write_paths(paths: Iterable[Path]) -> None:
    """Write paths on stdout, one a line, in the bytes by which the system knows them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(b"".join(os.fsencode(path) + b"\n" for path in paths))
    sys.stdout.buffer.flush()


def _encoded(document: dict[str, Any]) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(document)
    except (UnicodeEncodeError, OverflowError):
        # a file name that is not UTF-8, or an id beyond 64 bits: rare, so the slow way will do
        import json

        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", errors="replace")


def stdout_console() -> Console:
    """A console on stdout that obeys no markup, and ``NO_COLOR`` and a pipe's lack of colours."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(markup=False, highlight=False, emoji=False)
    # figures cut in two would be misread: below this width the terminal may wrap whole lines
    console.width = max(console.width, MIN_WIDTH)
    return console
