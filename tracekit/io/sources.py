"""Unpack a file within limits, judging by its content alone."""

from __future__ import annotations

import gzip
import lzma
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

from tracekit.core.errors import LimitError, ReadError, UsageError

BLOCK_BYTES = 1 << 21
GZIP, ZIP, SQLITE = b"\x1f\x8b", b"PK\x03\x04", b"SQLite format 3\x00"
#: below this much unpacked data the compression ratio is not judged
RATIO_FREE_BYTES = 64 << 20
SMALL_BYTES = 4 << 20
#: what the unpackers raise on damaged or unfit archives
PACKING_FAULTS: tuple[type[Exception], ...] = (
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

    @classmethod
    def of_gib(cls, gib: float) -> Limits:
        """The limits with so many GiB, at least one byte and at most what a machine can count."""
        return cls(unpacked_bytes=max(1, int(min(gib, 2.0**32) * 2**30)))


@dataclass(frozen=True, slots=True)
class Source:
    """One file, or one member of a zip archive.

    Attributes
    ----------
    path : Path
    member : str
        Empty for a file that is no archive.
    given : str
        What the user named, where ``path`` is a temporary copy of what came from a pipe.
    """

    path: Path
    member: str = ""
    given: str = ""

    @property
    def label(self) -> str:
        """The name shown to the user."""
        if self.given:
            return self.given
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
        except PACKING_FAULTS as e:
            what, hint = _fault(e, done)
            raise ReadError(what, where=self.label, hint=hint) from e

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


def _fault(e: Exception, done: int) -> tuple[str, str]:
    """What went wrong after so many unpacked bytes, and what to do about it."""
    if isinstance(e, FileNotFoundError | PermissionError):
        return f"cannot be opened ({e.strerror})", "check that it is there and that you may read it"
    if isinstance(e, OSError) and e.strerror:
        return f"cannot be read after {done:,} bytes ({e.strerror})", "copy it again"
    if isinstance(e, gzip.BadGzipFile) and "Not a gzipped" in str(e):  # it began as one
        what = "bytes that are no gzip data follow the gzip data"
        return what, "unpack it by hand (gzip -dc leaves them out), or copy it again"
    what = f"cannot be unpacked after {done:,} bytes ({str(e) or type(e).__name__})"
    return what, "copy it again or unpack it by hand"


def small_text(path: str) -> str:
    """The text of a small regular file, such as one of settings.

    Raises
    ------
    OSError, UnicodeDecodeError
        When it cannot be opened, or is not UTF-8.
    UsageError
        When it is no regular file, which may never end, or a large one.
    """
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise UsageError("a pipe or device, where a file is needed", where=path)
    with open(path, "rb") as f:
        text = f.read(SMALL_BYTES + 1)
    if len(text) > SMALL_BYTES:
        raise UsageError(f"larger than {SMALL_BYTES >> 20} MiB, so not what is needed", where=path)
    return text.decode("utf-8")


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
