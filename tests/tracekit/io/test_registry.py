"""Which reader a file gets, by its first bytes; and what is said of files that get none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.builder import Kineto
from tracekit.core.errors import LimitError, NotATraceError, ReadError, TracekitError
from tracekit.io.finding import find
from tracekit.io.registry import HEAD_BYTES, read_source
from tracekit.io.sources import Limits, Source
from tracekit.io.table import EventTable

TEXT = Kineto(5, 8).kernel(0, 5).text()


def read(path: Path, text: bytes, limits: Limits | None = None) -> EventTable:
    """Read a file with this content."""
    path.write_bytes(text)
    return read_source(Source(path), limits or Limits())


@pytest.mark.parametrize("name", ["t.json", "t.pickle", "t.sqlite", "t.otf2", "t"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_read_under_any_name(tmp_path: Path, name: str, packed: bool) -> None:
    """The content decides the reader; the file's name and its packing do not."""
    table = read(tmp_path / name, gzip.compress(TEXT) if packed else TEXT)
    assert table["dur_ns"].tolist() == [5_000]


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\n\n  ", b" " * (2 * HEAD_BYTES)])
def test_space_before_the_trace(tmp_path: Path, before: bytes) -> None:
    """A byte-order mark and any amount of white space before the document are no hindrance."""
    assert read(tmp_path / "t.json", before + TEXT)["dur_ns"].tolist() == [5_000]


def test_a_flight_recorder_dump_is_recognised(tmp_path: Path) -> None:
    """A pickled dump gets the reader of flight recordings."""
    entry = {
        "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce", "time_created_ns": 1_760_000_000_000_000_000,
        "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
        "output_dtypes": ["Float"], "state": "completed", "is_p2p": False, "frames": [],
        "time_discovered_started_ns": 1_760_000_000_000_001_000,
        "time_discovered_completed_ns": 1_760_000_000_000_009_000, "duration_ms": None,
    }  # fmt: skip
    dump = {"version": "2.5", "entries": [entry], "pg_config": {}, "pg_status": {}}
    table = read(tmp_path / "nccl_trace_rank_5", pickle.dumps(dump))
    assert table.meta["tracekit_source"] == "flight_recorder"


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"SQLite format 3\0" + b"\0" * 80, "SQLite database, probably an Nsight Systems export"),
        (b"OTF2\x00\x01" + b"\0" * 80, "OTF2 archive"),
        (b"\x00\x00\x03B" + b"\0" * 80, "OTF2 archive"),
        (b"PROJECTIONS_ID \n", "Projections log"),
        (b"\x7fELF\x02\x01", "a program"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"%PDF-1.7", "a PDF document"),
        (b"PAR1....", "a Parquet file"),
        (b"ARROW1\0\0", "an Arrow file"),
        (bz2.compress(TEXT), r"packed with bzip2, not a Kineto trace; unpack it first \(bunzip2\)"),
        (lzma.compress(TEXT), "packed with xz"),
        (lzma.compress(TEXT, lzma.FORMAT_ALONE), "packed with lzma"),
        (b"\x28\xb5\x2f\xfd\x04\x00" + b"\0" * 80, "packed with Zstandard"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "a 7-Zip archive"),
        (b"t.json" + b"\0" * 251 + b"ustar  \0", "a tar archive"),
        (TEXT.decode().encode("utf-16"), "a text in UTF-16, where JSON is UTF-8; .*iconv"),
        (TEXT.decode().encode("utf-16-le"), "a text in UTF-16"),
        (TEXT.decode().encode("utf-16-be"), "a text in UTF-16"),
        (b"hello, this is text", "neither JSON nor a flight-recorder dump"),
        (b"<html></html>", "neither JSON nor a flight-recorder dump"),
        (b'"just a string"', "neither JSON nor a flight-recorder dump"),
        (b"17", "neither JSON nor a flight-recorder dump"),
        (b" \n ", "neither JSON nor a flight-recorder dump"),
        (b"{'single': 'quotes'}", "the header breaks off or is damaged"),
        (b'{"traceEvents": 5}', "no traceEvents"),
        (b'{"name": "chakra", "nodes": [], "schema": "1.1.1-chakra.0.0.4"}', "execution trace"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, head: bytes, words: str) -> None:
    """What is no trace is refused in one line that says what it seems to be."""
    with pytest.raises(ReadError, match=words) as caught:
        read(tmp_path / "t.json", head)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "t.json") in str(caught.value)
    assert isinstance(caught.value, NotATraceError) or "damaged" in words or "16" in words


def test_words_of_other_formats_in_a_trace_mean_nothing(tmp_path: Path) -> None:
    """A trace whose first keys mention other formats is a trace."""
    text = b'{"traceName": "chakra/PAR1/OTF2.json", ' + TEXT[1:]
    assert read(tmp_path / "t.json", text)["dur_ns"].tolist() == [5_000]


@pytest.mark.parametrize("text", [b"", gzip.compress(b"")])
def test_an_empty_file_is_told(tmp_path: Path, text: bytes) -> None:
    """A file without content is an error of its own."""
    with pytest.raises(ReadError, match="empty file; copy or record it again"):
        read(tmp_path / "t.json", text)


@pytest.mark.parametrize("cut", [10, 60, 200])
def test_a_damaged_zip_is_told(tmp_path: Path, cut: int) -> None:
    """A zip archive that is cut short is called that, not 'no JSON'."""
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("t.json", TEXT)
    path.write_bytes(path.read_bytes()[:-cut])
    (source,) = find([str(path)])[0]
    with pytest.raises(ReadError, match="zip archive that is damaged or holds no file"):
        read_source(source, Limits())


def test_an_archive_in_an_archive_is_told(tmp_path: Path) -> None:
    """A zip archive that is a member of another is called that, not damaged."""
    path, inner = tmp_path / "t.zip", io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("t.json", TEXT)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in.zip", inner.getvalue())
    (source,) = find([str(path)])[0]
    with pytest.raises(NotATraceError, match=r"a zip archive inside .*; unpack the outer"):
        read_source(source, Limits())


def test_a_file_cut_while_packed_is_told(tmp_path: Path) -> None:
    """A gzip file that ends early is an error that says how much of it could be unpacked."""
    packed = gzip.compress(TEXT * 50)
    with pytest.raises(ReadError, match=r"this gzip file ends early \(got [\d,]+ bytes unpacked\)"):
        read(tmp_path / "t.json.gz", packed[: len(packed) // 2])


@pytest.mark.parametrize("packed", [False, True])
def test_the_limit_holds_while_reading(tmp_path: Path, packed: bool) -> None:
    """A trace that unpacks to more than the limit is refused while it is read."""
    text = Kineto()
    for at in range(3000):
        text.kernel(at, at + 1)
    whole = text.text()
    content = gzip.compress(whole) if packed else whole
    with pytest.raises(LimitError, match="limit"):
        read(tmp_path / "t.json", content, Limits(len(whole) - 1))
    assert len(read(tmp_path / "t.json", content, Limits(len(whole)))) == 3000


#: opens a file under a limit and tells by how many bytes the process grew at its largest
MEASURED = """
import resource, sys
from pathlib import Path
from tracekit.core.errors import LimitError
from tracekit.io.registry import read_source
from tracekit.io.sources import Limits, Source
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small, bomb, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
read_source(Source(small), Limits())
before = peak()
try:
    read_source(Source(bomb), Limits(limit))
except LimitError:
    print(peak() - before)
"""


@pytest.mark.parametrize("inside", ["space", "one text", "events"])
def test_a_bomb_takes_little_memory(tmp_path: Path, inside: str) -> None:
    """Whatever a bomb unpacks to, memory stays near the limit, however much more would come."""
    limit, bomb = 24 << 20, tmp_path / "bomb.json.gz"
    event = b'{"ph": "X", "name": "k", "ts": 1, "dur": 1, "args": {"x": "' + b"a" * 450 + b'"}},'
    part = {"space": b" " * 4096, "one text": b"a" * 4096, "events": event * 8}
    start = {"space": b'{"traceEvents": [', "one text": b'{"x": "', "events": b'{"traceEvents": ['}
    with gzip.open(bomb, "wb", compresslevel=1) as f:
        f.write(start[inside])
        for _ in range(8 * limit // (256 * 4096)):
            f.write(part[inside] * 256)
    small = Kineto().kernel(0, 5).write(tmp_path / "small.json")
    command = [sys.executable, "-c", MEASURED, str(small), str(bomb), str(limit)]
    home = Path(__file__).parents[3]
    ended = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
    assert int(ended.stdout) < 4 * limit


def test_progress_rises_to_less_than_done(tmp_path: Path) -> None:
    """Progress is told in rising fractions below 1."""
    path = Kineto().kernel(0, 5).write(tmp_path / "t.json")
    told: list[float] = []
    read_source(Source(path), Limits(), told.append)
    assert told == sorted(told)
    assert told
    assert all(0 < t < 1 for t in told)


def test_a_folder_given_as_file_is_told(tmp_path: Path) -> None:
    """A source that is no file is an error of tracekit, not of Python."""
    with pytest.raises(TracekitError):
        read_source(Source(tmp_path), Limits())
