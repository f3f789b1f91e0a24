"""Choose the reader for a file by its first bytes, or say what the file seems to be."""

from __future__ import annotations

from collections.abc import Callable

from tracekit.core.errors import NotATraceError, ReadError
from tracekit.io import flight_recorder, kineto
from tracekit.io.perfetto import SIGNATURE
from tracekit.io.sources import SQLITE, ZIP, Limits, Source, prefetch
from tracekit.io.table import EventTable

HEAD_BYTES = 65536
#: flight-recorder dumps are read whole; a ring buffer of 20,000 entries is about 20 MB
FLIGHT_RECORDER_BYTES = 1 << 30

#: what other tools' files begin with (at most this far in), and what to say about them
_FOREIGN = (
    (b"OTF2", 16, "an OTF2 archive (Score-P)", "open it with Pipit and tracekit.from_pipit"),
    (b"\x03B", 2, "part of an OTF2 archive (Score-P)", "open the archive with Pipit"),
    (b"PROJECTIONS", 11, "a Charm++ Projections log", "open it with Pipit"),
    (b"chakra", 64, "a Chakra execution trace (protobuf)", "give the Kineto trace of the run"),
    (b"schema\xea", 64, "a Chakra execution trace (protobuf)", "give the Kineto trace of the run"),
    (b"BZh", 0, "a file packed with bzip2", "unpack it first (bunzip2)"),
    (b"\xfd7zXZ\0", 0, "a file packed with xz", "unpack it first (unxz)"),
    (b"\x5d\0\0", 0, "a file packed with lzma", "unpack it first (unlzma)"),
    (b"\x28\xb5\x2f\xfd", 0, "a file packed with Zstandard", "unpack it first (unzstd)"),
    (b"\x04\x22\x4d\x18", 0, "a file packed with LZ4", "unpack it first (unlz4)"),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7-Zip archive", "unpack it first"),
    (b"ustar", 257, "a tar archive", "unpack it first (tar -x)"),
    (b"\x7fELF", 4, "a program", ""),
    (b"\x89PNG", 4, "a picture", ""),
    (b"%PDF", 4, "a PDF document", ""),
    (b"PAR1", 4, "a Parquet file", ""),
    (b"ARROW1", 6, "an Arrow file", ""),
)

#: the mark that such a text begins with, or a JSON document without one
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[")


def read_source(
    source: Source, limits: Limits, progress: Callable[[float], None] | None = None
) -> EventTable:
    """Read one file with the reader its content asks for.

    Parameters
    ----------
    source : Source
    limits : Limits
    progress : callable, optional
        Called with the fraction done, as far as it can be known.

    Raises
    ------
    NotATraceError
        When it is some other format; the text says which.
    ReadError
        When it is damaged beyond recovery, or a limit was reached.
    """
    head = source.head(limits, HEAD_BYTES)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    is_json = start in (b"{", b"[")
    if not is_json or head[1:2] == b"\0":
        _refuse_foreign(source, head)
    if head.startswith(SIGNATURE):
        what = "a timeline that tracekit exported, not a trace"
        raise NotATraceError(what, where=source.label, hint="give the traces it was made of")
    if flight_recorder.sniff(head):
        return flight_recorder.read(_whole(source, limits), source.label)
    if not is_json and not _blank(head):
        raise NotATraceError("neither JSON nor a flight-recorder dump", where=source.label)
    blocks = source.blocks(limits)
    if source.is_packed():
        blocks = prefetch(blocks)
    whole = source.unpacked_guess()

    def report(done: int) -> None:
        if progress:
            progress(min(0.99, done / whole))

    return kineto.read(blocks, source.label, report)


def _blank(head: bytes) -> bool:
    return len(head) == HEAD_BYTES and not head.strip()


def _refuse_foreign(source: Source, head: bytes) -> None:
    if not head:
        raise ReadError("empty file", where=source.label, hint="copy or record it again")
    if head.startswith(ZIP) and source.member:
        what = "a zip archive inside a zip archive"
        raise NotATraceError(what, where=source.label, hint="unpack the outer one first")
    if head.startswith(ZIP):
        what = "a zip archive that is damaged or holds no file"
        raise ReadError(what, where=source.label, hint="copy it again or unpack it by hand")
    if head.startswith(_UTF16):
        hint = "write it anew as UTF-8 (iconv -f UTF-16 -t UTF-8)"
        raise ReadError("a text in UTF-16, where JSON is UTF-8", where=source.label, hint=hint)
    if head.startswith(SQLITE):
        what = "an SQLite database, probably an Nsight Systems export; it cannot be read yet"
        raise NotATraceError(what, where=source.label, hint="give the Kineto trace of the run")
    for magic, within, what, hint in _FOREIGN:
        if magic in head[: within + len(magic)]:
            raise NotATraceError(f"{what}, not a Kineto trace", where=source.label, hint=hint)


def _whole(source: Source, limits: Limits) -> bytes:
    bound = min(limits.unpacked_bytes, FLIGHT_RECORDER_BYTES)
    return b"".join(source.blocks(Limits(bound, limits.ratio)))
