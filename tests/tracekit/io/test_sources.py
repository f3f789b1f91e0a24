"""What a path stands for, how it is unpacked, and where that stops."""

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
from tracekit.core.errors import LimitError, NoTraceError, ReadError
from tracekit.io import sources
from tracekit.io.sources import Limits, Source, find, natural_key, prefetch

TEXT = Kineto().kernel(0, 5).text()
MANY = Limits()


def names(found: list[Source]) -> list[str]:
    """Last parts of the sources' names."""
    return [s.name for s in found]


def unpacked(path: Path, limits: Limits = MANY) -> list[bytes]:
    """What the sources of a path unpack to."""
    return [b"".join(s.blocks(limits)) for s in find([str(path)])[0]]


def drained(blocks: Iterator[bytes], got: list[bytes]) -> None:
    """Take all blocks there are, so that what came before an error can be seen."""
    got.extend(blocks)


# -- which files ------------------------------------------------------------------------------


def test_numbers_sort_as_numbers() -> None:
    """Rank 2 comes before rank 10, however the numbers are written."""
    ranks = ["rank10", "rank2", "rank1", "rank02b", "a", "rank"]
    assert sorted(ranks, key=natural_key) == ["a", "rank", "rank1", "rank02b", "rank2", "rank10"]


def test_a_folder_is_searched_in_natural_order(tmp_path: Path) -> None:
    """A folder gives the files of all its folders; hidden ones and what lies too deep are left."""
    for name in ("r10/t.json", "r2/t.json", "r2/a.json", ".hidden/t.json", "r2/.t.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "t.json").write_bytes(TEXT)
    (deep.parents[1] / "t.json").write_bytes(TEXT)
    found, notes = find([str(tmp_path)])
    shown = [str(s.path.relative_to(tmp_path)) for s in found]
    assert shown == ["a/b/c/d/e/f/t.json", "r2/a.json", "r2/t.json", "r10/t.json"]
    assert notes == []


def test_a_given_file_is_the_only_one(tmp_path: Path) -> None:
    """Asked for one file of a folder, no other is looked at."""
    for name in ("kineto.0.json", "kineto.1.json", "et.0.json"):
        (tmp_path / name).write_bytes(TEXT)
    assert names(find([str(tmp_path / "kineto.0.json")])[0]) == ["kineto.0.json"]


def test_patterns_and_repeated_paths(tmp_path: Path) -> None:
    """A pattern gives its hits in natural order; a file named twice is one source."""
    for name in ("a10.json", "a9.json", "b.json"):
        (tmp_path / name).write_bytes(TEXT)
    paths = [str(tmp_path / "a*.json"), str(tmp_path / "a9.json"), str(tmp_path / "**" / "b.json")]
    assert names(find(paths)[0]) == ["a9.json", "a10.json", "b.json"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("traec.json", r"no such file or folder; did you mean .*trace\.json"),
        ("zzzzz", "no such file or folder; check the path"),
        ("x*.json", "pattern matches nothing"),
        ("empty", "no file found; give a trace or a folder"),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, path: str, words: str) -> None:
    """A path that leads nowhere is one line that names it, with the nearest name there is."""
    (tmp_path / "trace.json").write_bytes(TEXT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoTraceError, match=words) as caught:
        find([str(tmp_path / path)])
    assert str(tmp_path / path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    """A link out of the folder is left out and told; one that stays inside is read."""
    (tmp_path / "secret.json").write_bytes(TEXT)
    run = tmp_path / "run"
    run.mkdir()
    (run / "trace.json").write_bytes(TEXT)
    (run / "out.json").symlink_to(tmp_path / "secret.json")
    (run / "in.json").symlink_to("trace.json")
    (run / "dangling.json").symlink_to("nowhere")
    (run / "folder").symlink_to(tmp_path, target_is_directory=True)
    found, notes = find([str(run)])
    assert names(found) == ["in.json", "trace.json"]
    assert [n.code for n in notes] == ["outside-folder"]
    assert "out.json" in notes[0].text


def test_pipes_and_sockets_are_no_files(tmp_path: Path) -> None:
    """What would block when opened is not taken for a file of the folder."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "trace.json").write_bytes(TEXT)
    assert names(find([str(tmp_path)])[0]) == ["trace.json"]


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


def test_a_zip_holds_several_traces(tmp_path: Path) -> None:
    """Each file of an archive is a source of its own, named after archive and member."""
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (
            "run/rank10.json",
            "run/rank2.json",
            "__MACOSX/._x",
            "run/.DS_Store",
            "run/d/",
        ):
            archive.writestr(name, b"" if name.endswith("/") else TEXT)
    found, _ = find([str(path)])
    assert names(found) == ["rank2.json", "rank10.json"]
    assert found[0].label == f"{path}!run/rank2.json"
    assert [b"".join(s.blocks(MANY)) for s in found] == [TEXT, TEXT]


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


@pytest.mark.parametrize("damage", ["cut", "flipped", "flipped head", "inserted", "no file"])
def test_damaged_archives_are_one_line(tmp_path: Path, damage: str) -> None:
    """Whatever is wrong with a packed file, it is one line that says how far it could be read."""
    path = tmp_path / "t.json.gz"
    middle = len(PACKED) // 2
    text = {
        "cut": PACKED[:middle],
        "flipped": PACKED[:middle] + bytes([PACKED[middle] ^ 0x55]) + PACKED[middle + 1 :],
        "flipped head": PACKED[:2] + b"\x63" + PACKED[3:],
        "inserted": PACKED[:middle] + b"xxxx" + PACKED[middle:],
        "no file": b"",
    }[damage]
    path.write_bytes(text)
    source = Source(path)
    if damage == "no file":
        path.unlink()
    with pytest.raises(ReadError, match="unpacked") as caught:
        list(source.blocks(MANY))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


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
