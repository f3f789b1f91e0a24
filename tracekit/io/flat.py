"""Write plain rows as CSV or Parquet: every column has a fixed type, every text stays a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

Kind = Literal["int", "float", "text", "bool", "int_list"]
Row = Mapping[str, Any]

#: rows held at a time
BATCH = 65536
#: what a spreadsheet takes for the beginning of a formula
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NEEDS_QUOTES = frozenset(',"\r\n')


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, with the unit in it, and what its values are."""

    name: str
    kind: Kind


def write_csv(sink: IO[bytes], columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Write rows as CSV: UTF-8, a header, ``.`` as decimal point, an empty cell for None.

    A text that a spreadsheet would run as a formula gets an apostrophe before it; lists are
    numbers with blanks between them.
    """
    sink.write(_line(c.name for c in columns))
    for row in rows:
        sink.write(_line(_cell(row.get(c.name), c.kind) for c in columns))


def _line(cells: Iterable[str]) -> bytes:
    """One line; unlike the csv module's, a lone carriage return in a cell does not end it."""
    return (",".join(map(_quoted, cells)) + "\n").encode("utf-8", "replace")


def _quoted(cell: str) -> str:
    if not _NEEDS_QUOTES.isdisjoint(cell):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _cell(value: Any, kind: Kind) -> str:
    if value is None:
        return ""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int_list":
        return " ".join(map(str, value))
    if kind == "text":
        return f"'{value}" if str(value).startswith(FORMULA) else str(value)
    return repr(float(value)) if kind == "float" else str(int(value))


def write_parquet(sink: IO[bytes], columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Write rows as Parquet (zstd); None, and a whole number beyond 64 bits, becomes null.

    The file says who wrote it, and `is_parquet` knows it again.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bool": pa.bool_(),
        "int_list": pa.list_(pa.int64()),
    }
    fields = [pa.field(c.name, types[c.kind]) for c in columns]
    schema = pa.schema(fields, metadata={"written_by": "tracekit"})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            arrays = [
                pa.array([_plain(row.get(c.name), c.kind) for row in batch], types[c.kind])
                for c in columns
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch


def _plain(value: Any, kind: Kind) -> Any:
    if kind == "int" and value is not None and not -(2**63) <= value < 2**63:
        return None
    if kind != "text" or value is None:
        return value
    return str(value).encode("utf-8", "replace").decode()


def is_csv(path: Path, columns: Sequence[Column]) -> bool:
    """Whether a file begins with exactly the header that `write_csv` writes for these columns."""
    header = ",".join(c.name for c in columns).encode() + b"\n"
    with open(path, "rb") as file:
        return file.read(len(header)) == header


def is_parquet(path: Path) -> bool:
    """Whether a file was written by `write_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError):
        return False
    return bool(metadata.get(b"written_by") == b"tracekit")
