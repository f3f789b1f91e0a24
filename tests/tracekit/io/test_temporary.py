"""Temporary folders: those of living processes stay, those of dead ones go."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tracekit.io import temporary
from tracekit.io.temporary import discard, make_folder


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders lie in the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def dead_pid() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_folder_is_private_and_goes(tmp_path: Path) -> None:
    """A folder is readable by its owner alone, and is gone with its content once discarded."""
    folder = make_folder()
    (folder / "x").write_bytes(b"x")
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0
    discard(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="needs process numbers that can be asked for")
def test_only_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Folders of the living, of other containers, of other names, and links are left alone."""
    space, dead, alive = temporary._pid_space(), dead_pid(), os.getpid()
    kept = [
        f"tracekit-{space}-{alive}-abc",
        f"tracekit-{space + 1}-{dead}-abc",
        f"tracekit-{space}-{dead}",
        f"tracekit-load-{dead}",
        f"other-{space}-{dead}-abc",
        f"tracekit-{space}-{'9' * 30}-abc",
    ]
    for name in [*kept, f"tracekit-{space}-{dead}-gone"]:
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / f"tracekit-{space}-{dead}-link").symlink_to(tmp_path / kept[0])
    (tmp_path / f"tracekit-{space}-{dead}-file").write_bytes(b"")
    temporary.reap()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*kept, f"tracekit-{space}-{dead}-link", f"tracekit-{space}-{dead}-file"}
    assert (tmp_path / kept[0] / "inside").is_dir()


@pytest.mark.skipif(os.name != "posix", reason="needs owners of files")
def test_folders_of_others_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another user left is not ours to remove."""
    theirs = tmp_path / f"tracekit-{temporary._pid_space()}-{dead_pid()}-abc"
    theirs.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: theirs.stat().st_uid + 1)
    temporary.reap()
    assert theirs.is_dir()
