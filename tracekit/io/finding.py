"""Find the files that paths stand for, and tell of all that was passed over."""

from __future__ import annotations

import glob
import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tracekit.core.errors import LimitError, Note, NoTraceError, ReadError, UsageError
from tracekit.io import temporary
from tracekit.io.sources import BLOCK_BYTES, PACKING_FAULTS, ZIP, Limits, Source

MAX_FOLDER_DEPTH = 6
#: where a process sees the pipes that its shell opened for it: ``<(command)``
_DESCRIPTORS = ("/dev/", "/proc/")
#: what a run folder of our runtime holds; its traces are in ``traces``, the rest is none
_RUN_FOLDER = {"run.json", "traces"}
_HINTS = {
    "outside-folder": "give the folder it leads to",
    "deep-folders": "give a folder further down",
    "unreadable-folder": "check that you may list it",
}


def find(paths: list[str], limits: Limits | None = None) -> tuple[list[Source], list[Note]]:
    """Expand paths, globs, folders and zip archives into sources, in a stable order.

    A pipe that the shell opened (``<(command)``) is written to a temporary file first; the caller
    removes it with `discard_spooled` once it is read.

    Parameters
    ----------
    paths : list of str
        Files, folders (searched down to six levels), glob patterns or pipes of the shell.
    limits : Limits, optional
        What a pipe may bring.

    Returns
    -------
    sources : list of Source
    notes : list of Note
        What was left out, and why.

    Raises
    ------
    NoTraceError
        When a path does not exist or nothing is found.
    ReadError
        When a pipe brings more than the limit, or cannot be written to a file.
    UsageError
        When a path is empty, or no file.
    """
    sources: list[Source] = []
    notes: list[Note] = []
    try:
        for text in dict.fromkeys(paths):
            sources += _found(text, notes, limits or Limits())
        unique = list(dict.fromkeys(sources))
        if not unique:
            raise _nothing(paths, notes)
    except BaseException:
        discard_spooled(sources)
        raise
    return unique, notes


def discard_spooled(sources: Iterable[Source]) -> None:
    """Remove the temporary files of what came from pipes."""
    for source in sources:
        if source.given:
            temporary.discard(source.path.parent)


def is_pipe(text: str) -> bool:
    """Whether a path is a pipe, which can be read only once."""
    try:
        return stat.S_ISFIFO(os.stat(text).st_mode)  # noqa: PTH116 - Path("") is the folder
    except (OSError, ValueError):
        return False


def _nothing(paths: list[str], notes: list[Note]) -> NoTraceError:
    if not notes:
        where = ", ".join(paths)
        return NoTraceError("no file found", where=where, hint="give a trace or a folder")
    worst = min(notes, key=lambda n: ("error", "warning", "info").index(n.severity))
    hint = _HINTS.get(worst.code, "give a trace or a folder")
    return NoTraceError(worst.text, where=worst.file, hint=hint)


def _found(text: str, notes: list[Note], limits: Limits) -> list[Source]:
    """What one path stands for."""
    if not text:
        hint = "give a trace, or a folder such as . (the current one)"
        raise UsageError("one of the paths is empty", hint=hint)
    path = Path(text)
    if not path.exists():
        passed = _Passed(path)
        hits = _hits(text)
        found = [s for hit in hits for s in _of_path(hit, notes, passed)]
        notes += passed.notes()
        return found
    if path.is_dir() or path.is_file():
        return _of_path(path, notes, _Passed(path))
    if path.is_fifo() and text.startswith(_DESCRIPTORS):
        return [_spooled(text, limits)]
    kind = "a named pipe" if path.is_fifo() else "a socket" if path.is_socket() else "a device"
    hint = "give a file, a folder, or the output of a command as <(command)"
    raise UsageError(f"{kind}, where a file is needed", where=text, hint=hint)


def _of_path(path: Path, notes: list[Note], passed: _Passed) -> list[Source]:
    """The sources of a folder or of a file."""
    if path.is_dir():
        inside = _Passed(path)
        found = list(_walk(path, 0, notes, inside))
        notes += inside.notes()
        return found
    if not path.is_file():
        passed.no_files.append(path)
        return []
    return _members(path, notes)


def _hits(text: str) -> list[Path]:
    """What a pattern matches."""
    hits = sorted(glob.glob(text, recursive=True), key=natural_key)
    if hits:
        return [Path(h) for h in hits]
    kind = "pattern matches nothing" if glob.has_magic(text) else "no such file or folder"
    raise NoTraceError(kind, where=text, hint=_near(Path(text)))


def _near(path: Path) -> str:
    from tracekit.core.suggest import nearest

    try:
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        names = []
    close = nearest(path.name, names)
    return f"did you mean {path.parent / close}?" if close else "check the path"


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``rank2`` before ``rank10``."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(p[:18]), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts if p]


def _spooled(text: str, limits: Limits) -> Source:
    """What a pipe brings, in a temporary file: a trace is read twice, a pipe can be only once."""
    folder: Path | None = None
    try:
        folder = temporary.make_folder()
        source, done = Source(folder / "pipe", given=text), 0
        with open(text, "rb") as pipe, open(source.path, "xb") as file:
            while block := pipe.read(BLOCK_BYTES):
                done += len(block)
                if done > limits.unpacked_bytes:
                    what = f"brings more than the limit of {limits.unpacked_bytes / 2**30:.6g} GiB"
                    hint = "raise it with --limit-gib if you trust it"
                    raise LimitError(what, where=text, hint=hint)
                file.write(block)
    except BaseException as e:
        if folder:
            temporary.discard(folder)
        if not isinstance(e, OSError):
            raise
        what = f"what this pipe brings cannot be kept in a temporary file ({e.strerror or e})"
        hint = "free some space, or let TMPDIR name another folder"
        raise ReadError(what, where=text, hint=hint) from e
    return source


# -- folders ----------------------------------------------------------------------------------


class _Passed:
    """What was passed over below one path."""

    def __init__(self, root: Path) -> None:
        self.root, self._real = root, root.resolve()
        self.too_deep: list[Path] = []
        self.linked: list[Path] = []
        self.no_files: list[Path] = []

    def leads_out(self, path: Path) -> bool:
        """Whether a link leads out of the folder."""
        return not path.resolve().is_relative_to(self._real)

    def notes(self) -> Iterator[Note]:
        """One note for each kind of thing."""
        if self.too_deep:
            text = (
                f"{self._several(self.too_deep, 'folder')} deeper than {MAX_FOLDER_DEPTH} levels "
                "not searched; give a folder further down"
            )
            yield Note("deep-folders", text, "warning", str(self.root))
        if self.linked:
            text = f"{self._several(self.linked, 'link')} to folders inside not followed"
            yield Note("folder-link", text, "info", str(self.root))
        if self.no_files:
            text = (
                f"{self._several(self.no_files, 'entry', 'entries')} not read: a pipe, a socket, a "
                "device or a link that leads nowhere"
            )
            yield Note("no-file", text, "info", str(self.root))

    def _several(self, paths: list[Path], one: str, more: str = "") -> str:
        """``2 links (a/b and others)``."""
        first = os.path.relpath(paths[0], self.root) if self.root.is_dir() else paths[0]
        others = " and others" if len(paths) > 1 else ""
        return f"{len(paths):,} {one if len(paths) == 1 else more or one + 's'} ({first}{others})"


def _walk(folder: Path, depth: int, notes: list[Note], passed: _Passed) -> Iterator[Source]:
    """The files of a folder, then those of the folders in it."""
    try:
        with os.scandir(folder) as listed:
            entries = [e for e in listed if not e.name.startswith(".")]
    except OSError as e:
        text = f"this folder cannot be searched ({e.strerror or e}); what it holds is missing"
        notes.append(Note("unreadable-folder", text, "error", str(folder)))
        return
    entries.sort(key=lambda e: natural_key(e.name))
    if {e.name for e in entries} >= _RUN_FOLDER:
        entries = [e for e in entries if e.name == "traces"]
    folders = []
    for entry in entries:
        path = folder / entry.name
        if entry.is_symlink() and not _may_follow(path, notes, passed):
            continue
        if _is_dir(entry):
            folders.append(entry)
        elif _is_file(entry):
            yield from _members(path, notes)
        else:
            passed.no_files.append(path)
    for entry in folders:
        path = folder / entry.name
        if entry.is_symlink():
            passed.linked.append(path)
        elif depth >= MAX_FOLDER_DEPTH:
            passed.too_deep.append(path)
        else:
            yield from _walk(path, depth + 1, notes, passed)


def _may_follow(link: Path, notes: list[Note], passed: _Passed) -> bool:
    """Whether a link stays inside the folder; else that is told."""
    if not passed.leads_out(link):
        return True
    if link.exists():
        text = f"{link.name} is a link that leads out of the folder; it was not read"
        notes.append(Note("outside-folder", text, "warning", str(link)))
    else:
        passed.no_files.append(link)
    return False


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a folder whose entries may not be looked at
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return True  # reading it will say what is wrong


def _members(path: Path, notes: list[Note]) -> list[Source]:
    """The members of a zip archive that can be traces, or the file itself."""
    try:
        with open(path, "rb") as f:
            if f.read(4) != ZIP:
                return [Source(path)]
        with zipfile.ZipFile(path) as archive:
            count = Counter(i.filename for i in archive.infolist() if not i.is_dir())
    except PACKING_FAULTS:
        return [Source(path)]
    wanted = [n for n in count if not n.rsplit("/", 1)[-1].startswith((".", "_"))]
    for name in wanted:
        if count[name] > 1:
            text = f"the archive holds {name} {count[name]} times; only the last of them was read"
            notes.append(Note("same-member-twice", text, "warning", str(path)))
    return [Source(path, n) for n in sorted(wanted, key=natural_key)] or [Source(path)]
