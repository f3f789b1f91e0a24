"""The runs below the given paths, each under a name of its own; nothing else is ever opened.

A run is asked for by its name here and never by a path, and links that lead out of a given folder
are not followed, so that no address reaches a file outside.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.core.errors import UsageError
from tracekit.core.suggest import nearest
from tracekit.io.finding import natural_key

#: folders deeper than this are not searched for runs, nor runs for files
MAX_DEPTH = 6
#: a folder is looked at again after this time
FRESH_S = 0.4
TRACE_SUFFIXES = (".json", ".gz", ".zip")
#: files of a run folder that are no traces
_BESIDE = frozenset(("run.json", "metrics.jsonl", "plan.toml"))

#: what files of traces are called; another .json beside folders of runs is about them
_LIKE = re.compile(r"rank|trace|worker|profil|\.gz$|\.zip$", re.IGNORECASE)

Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One run.

    Attributes
    ----------
    name : str
        Its name in addresses.
    path : Path
        What to open.
    """

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Facts:
    """What a listing tells of a run without opening it."""

    num_files: int
    num_bytes: int
    changed_unix: float


class Catalog:
    """The runs below some paths.

    Parameters
    ----------
    paths : sequence of str
        Runs, trace files, or folders that hold runs.
    may_come : bool
        Whether a path may be missing still: a run that is about to begin.

    Raises
    ------
    UsageError
        When a path does not exist.
    """

    def __init__(self, paths: Sequence[str], *, may_come: bool = False) -> None:
        if not paths:
            raise UsageError("no run to show", hint="name a run folder, or a folder of runs")
        self._roots = [Path(path) for path in dict.fromkeys(paths)]
        for root in self._roots:
            if not root.exists() and not may_come:
                raise UsageError("no such file or folder", where=str(root), hint=_near(root))
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._listed_at = -FRESH_S
        self._signatures: dict[str, tuple[float, Signature]] = {}

    def entries(self) -> list[Entry]:
        """All runs there are now, in the order given and by name."""
        with self._lock:
            if time.monotonic() - self._listed_at >= FRESH_S:
                self._entries = {entry.name: entry for entry in self._listed()}
                self._listed_at = time.monotonic()
            return list(self._entries.values())

    def get(self, name: str) -> Entry | None:
        """The run of that name; the only one for an empty name; None when there is none."""
        entries = self.entries()
        if not name:
            return entries[0] if len(entries) == 1 else None
        return next((entry for entry in entries if entry.name == name), None)

    def near(self, name: str) -> str | None:
        """The name closest to one that there is not."""
        return nearest(name, (entry.name for entry in self.entries()))

    def signature(self, entry: Entry) -> Signature:
        """Name, size and time of every file of a run: another signature, another content."""
        now = time.monotonic()
        with self._lock:
            at, held = self._signatures.get(entry.name, (-FRESH_S, ()))
            if now - at < FRESH_S:
                return held
        made = tuple(_files(entry.path))
        with self._lock:
            self._signatures[entry.name] = now, made
        return made

    def facts(self, entry: Entry) -> Facts:
        """How many files a run has, how large, how old."""
        files = self.signature(entry)
        newest = max((mtime for _, _, mtime in files), default=0)
        return Facts(len(files), sum(size for _, size, _ in files), newest / 1e9)

    def _listed(self) -> Iterator[Entry]:
        taken: dict[str, int] = {}
        for root in self._roots:
            real = root.resolve()
            found = list(_runs(root, real, 0)) or [root]
            for path in found:
                name = _name(path, root, alone=len(found) == 1)
                taken[name] = taken.get(name, 0) + 1
                yield Entry(name if taken[name] == 1 else f"{name}~{taken[name]}", path)


def _name(path: Path, root: Path, *, alone: bool) -> str:
    """A printable name: below a folder of runs its way from there, else the last part."""
    inside = path.relative_to(root).as_posix() if path != root and not alone else ""
    text = inside or path.resolve().name or "run"
    if text == "traces":  # of a run folder, whose own name says more
        text = path.resolve().parent.name or text
    return "".join(c if c.isprintable() else "?" for c in text.encode("utf-8", "replace").decode())


def _runs(path: Path, real: Path, depth: int) -> Iterator[Path]:
    """The runs at or below a path: itself when it has traces, else what its folders hold."""
    if not path.is_dir():
        if path.is_file():
            yield path
        return
    entries = _listing(path, real)
    names = {entry.name for entry in entries}
    traces = [entry.name for entry in entries if _is_trace(entry)]
    if "run.json" in names or "traces" in names or any(map(_LIKE.search, traces)):
        yield path
        return
    inside = []
    if depth < MAX_DEPTH:
        folders = [e for e in entries if e.is_dir() and not e.is_symlink()]
        inside = [run for e in folders for run in _runs(Path(e.path), real, depth + 1)]
    yield from inside or ([path] if traces else [])


def _is_trace(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(TRACE_SUFFIXES) and entry.name not in _BESIDE


def _listing(folder: Path, real: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, but for the hidden and what leads out of ``real``."""
    try:
        with os.scandir(folder) as listed:
            found = [entry for entry in listed if not entry.name.startswith(".")]
        found = [e for e in found if not e.is_symlink() or _inside(Path(e.path), real)]
    except OSError:
        return []
    return sorted(found, key=lambda entry: natural_key(entry.name))


def _inside(path: Path, real: Path) -> bool:
    try:
        return path.resolve().is_relative_to(real)
    except (OSError, RuntimeError):  # a link to itself
        return False


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of the trace files of a run, sorted."""
    real = path.resolve()
    ahead: list[tuple[Path, int]] = [(path, 0)]
    found: list[tuple[str, int, int]] = []
    if path.is_file():
        found += _stat(path)
    while ahead:
        folder, depth = ahead.pop()
        for entry in _listing(folder, real):
            if entry.is_dir():
                if depth < MAX_DEPTH and not entry.is_symlink():
                    ahead.append((Path(entry.path), depth + 1))
            elif _is_trace(entry):
                found += _stat(Path(entry.path))
    yield from sorted(found)


def _stat(path: Path) -> Iterator[tuple[str, int, int]]:
    try:
        known = path.stat()
    except OSError:  # gone between listing and looking
        return
    yield str(path), known.st_size, known.st_mtime_ns


def _near(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "check the path"
    close = nearest(path.name, names)
    return f"did you mean {path.parent / close}?" if close else "check the path"
