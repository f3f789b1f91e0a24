"""Find the files a path stands for, and unpack them within limits, judging by content alone."""

from __future__ import annotations

import glob
import lzma
import os
import queue
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from isal import igzip, isal_zlib

from tracekit.core.errors import LimitError, Note, NoTraceError, ReadError

BLOCK_BYTES = 1 << 21
GZIP, ZIP, SQLITE = b"\x1f\x8b", b"PK\x03\x04", b"SQLite format 3\x00"
#: below this much unpacked data the compression ratio is not judged
RATIO_FREE_BYTES = 64 << 20
MAX_FOLDER_DEPTH = 6
#: what the unpackers raise on damaged or unfit archives
_PACKING_FAULTS: tuple[type[Exception], ...] = (
    OSError, zlib.error, cast("type[Exception]", isal_zlib.error), lzma.LZMAError,
    zipfile.BadZipFile, struct.error, RuntimeError, NotImplementedError, ValueError, KeyError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may unpack to.

    Attributes
    ----------
    unpacked_bytes : int
        Most bytes a file may hold once unpacked.
    ratio : int
        Most unpacked bytes per packed byte, judged beyond 64 MiB of output. Kineto traces reach
        10–40; a decompression bomb about 1,000.
    """

    unpacked_bytes: int = 64 << 30
    ratio: int = 250


@dataclass(frozen=True, slots=True)
class Source:
    """One file, or one member of a zip archive."""

    path: Path
    member: str = ""

    @property
    def label(self) -> str:
        """The name shown to the user."""
        return f"{self.path}!{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """The last part of the name, from which a rank may be read."""
        return self.member.rsplit("/", 1)[-1] if self.member else self.path.name

    def packed_bytes(self) -> int:
        """Size on disk (of the archive, for a member)."""
        return self.path.stat().st_size

    def is_packed(self) -> bool:
        """Whether the content has to be inflated."""
        if self.member:
            return True
        with open(self.path, "rb") as f:
            return f.read(2) == GZIP

    def unpacked_guess(self) -> int:
        """About how many bytes it unpacks to, for progress only."""
        size = self.packed_bytes()
        return max(1, size * 14 if self.is_packed() else size)

    def blocks(self, limits: Limits) -> Iterator[bytes]:
        """Yield the unpacked content in blocks.

        Raises
        ------
        LimitError
            When a limit is reached; raised while unpacking, not after.
        ReadError
            When the file cannot be opened or its compressed stream is damaged.
        """
        done = 0
        try:
            with _open(self) as stream:
                packed = max(1, self.packed_bytes())
                while block := stream.read(BLOCK_BYTES):
                    done += len(block)
                    _check(self, done, packed, limits)
                    yield block
        except EOFError as e:
            kind = "zip member" if self.member else "gzip file"
            raise ReadError(
                f"this {kind} ends early (got {done:,} bytes unpacked)",
                where=self.label,
                hint="copy it again from where it was written",
            ) from e
        except _PACKING_FAULTS as e:
            raise ReadError(
                f"cannot be unpacked after {done:,} bytes ({_reason(e)})",
                where=self.label,
                hint="copy it again or unpack it by hand",
            ) from e

    def head(self, limits: Limits, size: int = 4096) -> bytes:
        """The first unpacked bytes, for sniffing."""
        for block in self.blocks(limits):
            return block[:size]
        return b""


def prefetch(blocks: Iterator[bytes], depth: int = 3) -> Iterator[bytes]:
    """Unpack ahead in a thread: inflating releases the interpreter lock, decoding does not."""
    ready: queue.Queue[bytes | BaseException | None] = queue.Queue(depth)
    stop = threading.Event()

    def work() -> None:
        try:
            for block in blocks:
                while not stop.is_set():
                    try:
                        ready.put(block, timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if stop.is_set():
                    return
            _put(ready, None, stop)
        except BaseException as e:  # noqa: BLE001 - handed to the reading thread
            _put(ready, e, stop)

    thread = threading.Thread(target=work, daemon=True, name="tracekit-unpack")
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


def _put(
    ready: queue.Queue[bytes | BaseException | None],
    item: BaseException | None,
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.2)
            return
        except queue.Full:
            continue


def _reason(e: BaseException) -> str:
    if isinstance(e, OSError) and e.strerror:
        return e.strerror
    return str(e) or type(e).__name__


def _check(source: Source, done: int, packed: int, limits: Limits) -> None:
    if done > limits.unpacked_bytes:
        raise LimitError(
            f"unpacks to more than the limit of {limits.unpacked_bytes / 2**30:.6g} GiB",
            where=source.label,
            hint="raise it with --limit-gib if you trust this file",
        )
    if done > RATIO_FREE_BYTES and done > packed * limits.ratio:
        raise LimitError(
            f"unpacks to more than {limits.ratio} times its size, which no trace does",
            where=source.label,
            hint="unpack it by hand if you trust this file",
        )


def _open(source: Source) -> IO[Any]:
    if source.member:
        archive = zipfile.ZipFile(source.path)
        inner = archive.open(source.member)
        if inner.read(2) == GZIP:
            inner.seek(0)
            return cast("IO[Any]", igzip.IGzipFile(fileobj=inner))  # type: ignore[no-untyped-call]
        inner.seek(0)
        return inner
    with open(source.path, "rb") as f:
        magic = f.read(4)
    if magic[:2] == GZIP:
        opened: IO[Any] = igzip.open(source.path, "rb")  # type: ignore[no-untyped-call]
        return opened
    return open(source.path, "rb")  # the caller closes it


def find(paths: list[str]) -> tuple[list[Source], list[Note]]:
    """Expand paths, globs, folders and zip archives into sources, in a stable order.

    Parameters
    ----------
    paths : list of str
        Files, folders (searched down to six levels) or glob patterns.

    Returns
    -------
    sources : list of Source
    notes : list of Note
        What was left out, and why.

    Raises
    ------
    NoTraceError
        When a path does not exist or nothing is found.
    """
    sources: list[Source] = []
    notes: list[Note] = []
    for text in paths:
        for path in _expand(text):
            if path.is_dir():
                sources += _walk(path, notes)
            else:
                sources += _members(path)
    unique = list(dict.fromkeys(sources))
    if not unique and notes:
        raise NoTraceError(notes[0].text, where=notes[0].file, hint="give the folder it leads to")
    if not unique:
        raise NoTraceError("no file found", where=", ".join(paths), hint="give a trace or a folder")
    return unique, notes


def _expand(text: str) -> list[Path]:
    path = Path(text)
    if path.exists():
        return [path]
    hits = sorted(glob.glob(text, recursive=True), key=natural_key)
    if hits:
        return [Path(h) for h in hits]
    kind = "pattern matches nothing" if glob.has_magic(text) else "no such file or folder"
    raise NoTraceError(kind, where=text, hint=_near(path))


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
    import re

    parts = re.split(r"(\d+)", text)
    return [(0, int(p[:18]), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts if p]


def _walk(folder: Path, notes: list[Note]) -> list[Source]:
    root = folder.resolve()
    found: list[Source] = []
    for top, dirs, files in os.walk(folder):
        depth = len(Path(top).relative_to(folder).parts)
        dirs[:] = sorted((d for d in dirs if not d.startswith(".")), key=natural_key)
        if depth >= MAX_FOLDER_DEPTH:
            dirs[:] = []
        for name in sorted(files, key=natural_key):
            path = Path(top, name)
            if name.startswith(".") or not path.is_file():
                continue
            if not path.resolve().is_relative_to(root):
                text = f"{name} is a link that leads out of the folder; it was not read"
                notes.append(Note("outside-folder", text, "warning", str(path)))
                continue
            found += _members(path)
    return found


def _members(path: Path) -> list[Source]:
    """The members of a zip archive that can be traces, or the file itself."""
    try:
        with open(path, "rb") as f:
            if f.read(4) != ZIP:
                return [Source(path)]
        with zipfile.ZipFile(path) as archive:
            names = [i.filename for i in archive.infolist() if not i.is_dir()]
    except _PACKING_FAULTS:
        return [Source(path)]
    wanted = [n for n in names if not n.rsplit("/", 1)[-1].startswith((".", "_"))]
    return [Source(path, n) for n in sorted(wanted, key=natural_key)] or [Source(path)]
