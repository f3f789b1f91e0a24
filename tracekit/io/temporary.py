"""Temporary folders that do not outlive their process for long, however it ends."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"tracekit-(\d+)-(\d+)-\w+")


def make_folder() -> Path:
    """A new folder of this process alone; those that dead processes of ours left are removed.

    Raises
    ------
    OSError
        When it cannot be made.
    """
    reap()
    return Path(tempfile.mkdtemp(prefix=f"tracekit-{_pid_space()}-{os.getpid()}-"))


def discard(folder: Path) -> None:
    """Remove a folder and all in it."""
    shutil.rmtree(folder, ignore_errors=True)


def reap() -> None:
    """Remove the folders that processes of this user left when they were killed."""
    if os.name != "posix":  # no harmless way to ask whether a process lives
        return
    try:
        entries = list(os.scandir(tempfile.gettempdir()))
    except OSError:
        return
    for entry in entries:
        made_by = _NAME.fullmatch(entry.name)
        if made_by and int(made_by[1]) == _pid_space() and not _lives(int(made_by[2])):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                    discard(Path(entry.path))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another's, or no number of a process at all
        return True
    return True


def _pid_space() -> int:
    """Which numbering of processes ours is part of: containers may share the folder."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
