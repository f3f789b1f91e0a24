"""The run folder: refuse one that cannot be used before anything starts, and clear it when asked.

Needs no torch, so that the launcher can look first.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from runtime.config import TrainSettings
from runtime.settings import ConfigError

#: what a run leaves in its folder
OWN = ("run.json", "metrics.jsonl", "traces", "checkpoints")
#: enough for run.json and the first metrics
PROBE_BYTES = 16 << 10


def check(settings: TrainSettings) -> Path:
    """Make the run folder and see that it can be used.

    Raises
    ------
    ConfigError
        When it holds a run that is neither gone on with nor replaced, or cannot be written to.
    """
    folder = Path(settings.out)
    _see_kind(folder)
    if _held(folder) and not settings.resume and not settings.overwrite:
        raise ConfigError(
            f"{folder} holds a run already; give --resume, --overwrite or another --out"
        )
    probe = folder / ".probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(PROBE_BYTES))
    except OSError as e:
        raise ConfigError(f"{folder}: {e.strerror}; choose an --out that can be written to") from e
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return folder


def _see_kind(folder: Path) -> None:
    """That the name can be a folder's, and is none of a file."""
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # `check` makes it, or says what is in the way
    except OSError as e:
        name = str(folder)[:80]
        raise ConfigError(f"--out {name}: {e.strerror}; choose another") from e
    if not folder.is_dir():
        raise ConfigError(f"--out {folder}: is a file; choose a folder")


def clear(settings: TrainSettings) -> None:
    """Remove the run that is replaced, or the traces of the part that is gone on with.

    Another grid has other ranks, so traces of an earlier part would mislead.
    """
    folder = Path(settings.out)
    gone = ["traces"] if settings.resume else _held(folder) if settings.overwrite else []
    for name in gone:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sweep(settings: TrainSettings) -> None:
    """Remove what ranks that were ended left half-written; it never has a final name."""
    folder = Path(settings.out)
    for path in (*folder.glob("traces/.*"), *folder.glob("checkpoints/.*")):
        with contextlib.suppress(OSError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _held(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):  # `check` finds out and says so
        return [name for name in OWN if (folder / name).exists()]
    return []
