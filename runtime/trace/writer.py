"""Write the files of a run folder so that none is ever half there under its final name."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

#: fast, and within a few per cent of the best for this text
_LEVEL = 4


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name once it is whole and on the disk.

    Raises
    ------
    OSError
        When it cannot be written; nothing is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def write_json_atomically(path: Path, value: Any) -> None:
    """Write a value as JSON.

    Raises
    ------
    OSError
        When it cannot be written.
    ValueError
        For a number that JSON has no word for (NaN, infinity).
    """
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    with atomic(path) as f:
        f.write(text.encode())


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Append a value as one line of JSON; NaN and infinities become null.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(_finite(value), allow_nan=False) + "\n"
    with open(path, "ab") as f:
        f.write(line.encode())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def write_trace(path: Path, pieces: Iterable[str]) -> None:
    """Write the text of a trace, compressed.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    with atomic(path) as f, gzip.GzipFile("", "wb", _LEVEL, f, mtime=0) as packed:
        for piece in pieces:
            packed.write(piece.encode("utf-8", "surrogateescape"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is none, or none that can be read."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
