"""How a file is unpacked, and where that stops."""

from __future__ import annotations

import bz2
import gzip
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builder import Kineto
from tracekit.core.errors import LimitError, ReadError
from tracekit.io import sources
from tracekit.io.finding import find
from tracekit.io.sources import Limits, Source, prefetch

TEXT = Kineto().kernel(0, 5).text()
MANY = Limits()


def unpacked(path: Path, limits: Limits = MANY) -> list[bytes]:
    """What the sources of a path unpack to."""
    return [b"".join(s.blocks(limits)) for s in find([str(path)])[0]]


def drained(blocks: Iterator[bytes], got: list[bytes]) -> None:
    """Take all blocks there are, so that what came before an error can be seen."""
    got.extend(blocks)


# -- unpacking --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.zip", "a", "a.txt"])
@pytest.mark.parametrize("kind", ["plain", "gzip", "two gzip members", "zip", "zip of gzip"])
def test_content_decides_not_the_name(tmp_path: Path, name: str, kind: str) -> None:
    """Plain, gzip and zip are told apart by their first bytes, whatever the file is called."""
    path = tmp_path / name
    if kind.startswith("zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.json", gzip.compress(TEXT) if "gzip" in kind else TEXT)
    elif kind == "plain":
        path.write_bytes(TEXT)
    else:
        cut = len(TEXT) // 2 if "two" in kind else len(TEXT)
        path.write_bytes(
            gzip.compress(TEXT[:cut]) + (gzip.compress(TEXT[cut:]) if "two" in kind else b"")
        )
    assert unpacked(path) == [TEXT]


def test_a_member_s_path_is_only_a_name(tmp_path: Path) -> None:
    """An archive that names files outside of it is read from itself, and nothing is written."""
    path = tmp_path / "in" / "evil.zip"
    path.parent.mkdir()
    (tmp_path / "victim.json").write_bytes(b"do not read")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../victim.json", TEXT)
        archive.writestr("/etc/hostname", TEXT)
    assert unpacked(path) == [TEXT, TEXT]
    assert sorted(p.name for p in tmp_path.rglob("*.json")) == ["victim.json"]


PACKED = gzip.compress(bytes(range(256)) * 600 + os.urandom(3000))


@pytest.mark.parametrize("damage", ["cut", "flipped", "flipped head", "inserted"])
def test_damaged_archives_are_one_line(tmp_path: Path, damage: str) -> None:
    """Whatever is wrong with a packed file, it is one line that says how far it could be read."""
    path = tmp_path / "t.json.gz"
    middle = len(PACKED) // 2
    text = {
        "cut": PACKED[:middle],
        "flipped": PACKED[:middle] + bytes([PACKED[middle] ^ 0x55]) + PACKED[middle + 1 :],
        "flipped head": PACKED[:2] + b"\x63" + PACKED[3:],
        "inserted": PACKED[:middle] + b"xxxx" + PACKED[middle:],
    }[damage]
    path.write_bytes(text)
    source = Source(path)
    with pytest.raises(ReadError, match="unpacked") as caught:
        list(source.blocks(MANY))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_no_archive(tmp_path: Path) -> None:
    """A file that went away is not said to be one that cannot be unpacked."""
    with pytest.raises(
        ReadError, match=r"cannot be opened \(No such file or directory\)"
    ) as caught:
        list(Source(tmp_path / "t.json.gz").blocks(MANY))
    assert "unpack" not in str(caught.value)


def test_what_follows_gzip_data_is_told(tmp_path: Path) -> None:
    """Bytes behind the gzip data are called that; zeros, which tapes leave, are no hindrance."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(100))
    assert unpacked(path) == [TEXT]
    path.write_bytes(gzip.compress(TEXT) + b"other data")
    with pytest.raises(ReadError, match="no gzip data follow the gzip data; unpack it by hand"):
        unpacked(path)


@pytest.mark.parametrize("seed", range(40))
def test_any_flipped_byte_is_an_error_or_harmless(tmp_path: Path, seed: int) -> None:
    """A byte changed anywhere in a gzip or zip file ends in the content or in a ReadError."""
    gz, zipped = tmp_path / "t.gz", tmp_path / "t.zip"
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(zipped, "w", methods[seed % 4]) as archive:
        archive.writestr("t.json", TEXT * 20)
    for path, packed in ((gz, gzip.compress(TEXT * 20)), (zipped, zipped.read_bytes())):
        for at in range(seed, len(packed), 97):
            path.write_bytes(packed[:at] + bytes([packed[at] ^ (1 << seed % 8)]) + packed[at + 1 :])
            try:
                for source in find([str(path)])[0]:
                    source.head(MANY)
                    b"".join(source.blocks(MANY))
            except ReadError:
                continue


# -- limits -----------------------------------------------------------------------------------


def counted(limit: int) -> tuple[list[int], Iterator[bytes]]:
    """Zeros that would go on far beyond the limit, and how much was asked of them."""
    packer, done = zlib.compressobj(9, wbits=31), [0]

    def pack() -> Iterator[bytes]:
        while done[0] < 20 * limit:
            done[0] += 1 << 20
            yield packer.compress(bytes(1 << 20))
        yield packer.flush()

    return done, pack()


@pytest.mark.parametrize("kind", ["gzip", "zip"])
def test_a_bomb_stops_at_the_limit(tmp_path: Path, kind: str) -> None:
    """Unpacking ends once the limit is passed, not after the whole file, in bounded blocks."""
    limit = 4 << 20
    path = tmp_path / "bomb"
    _, parts = counted(limit)
    if kind == "gzip":
        path.write_bytes(b"".join(parts))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.json", bytes(20 * limit))
    assert path.stat().st_size < 1 << 20
    (source,) = find([str(path)])[0]
    got: list[bytes] = []
    with pytest.raises(LimitError, match=r"more than the limit of 0\.00390625 GiB; raise it"):
        drained(source.blocks(Limits(limit)), got)
    assert sum(map(len, got)) <= limit
    assert max(map(len, got)) <= sources.BLOCK_BYTES


def test_a_ratio_no_trace_reaches_is_refused(tmp_path: Path) -> None:
    """Beyond 64 MiB the ratio of a file to its packed size is judged; below it is not."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(b"".join(counted(5 << 20)[1]))
    assert sum(map(len, Source(path).blocks(Limits(ratio=100_000)))) == 100 << 20
    got: list[bytes] = []
    with pytest.raises(LimitError, match="more than 250 times its size"):
        drained(Source(path).blocks(MANY), got)
    assert sum(map(len, got)) <= sources.RATIO_FREE_BYTES


def test_a_file_at_the_limit_passes(tmp_path: Path) -> None:
    """A limit is what may be reached; one byte more is refused."""
    path = tmp_path / "t.json"
    path.write_bytes(TEXT)
    assert b"".join(Source(path).blocks(Limits(len(TEXT)))) == TEXT
    with pytest.raises(LimitError):
        list(Source(path).blocks(Limits(len(TEXT) - 1)))


def test_other_packings_are_not_guessed_at(tmp_path: Path) -> None:
    """A packing that is not known is handed on as it is, for the registry to name."""
    path = tmp_path / "t.bz2"
    path.write_bytes(bz2.compress(TEXT))
    assert unpacked(path) == [bz2.compress(TEXT)]
    assert not Source(path).is_packed()


# -- reading ahead ----------------------------------------------------------------------------


def alive() -> int:
    """Threads that unpack."""
    return sum(t.name == "tracekit-unpack" for t in threading.enumerate())


def test_prefetch_keeps_order_and_errors() -> None:
    """Blocks arrive in order, and an error arrives where it happened."""

    def blocks() -> Iterator[bytes]:
        for i in range(50):
            yield bytes([i])
        raise ReadError("cut here")

    got: list[bytes] = []
    with pytest.raises(ReadError, match="cut here"):
        drained(prefetch(blocks()), got)
    assert got == [bytes([i]) for i in range(50)]
    assert alive() == 0


def test_prefetch_ends_with_its_reader() -> None:
    """A reader that stops early leaves no thread behind, and little has been read ahead."""
    made = 0

    def blocks() -> Iterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b"x"

    ahead = prefetch(blocks(), depth=2)
    assert next(ahead) == b"x"
    ahead.close()  # type: ignore[attr-defined]
    assert alive() == 0
    assert made <= 5
