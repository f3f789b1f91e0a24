"""Promises of the CSV and Parquet writers: fixed types, exact values, no formulas, no surprises."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tracekit.io.flat import BATCH, Column, is_csv, is_parquet, write_csv, write_parquet

COLUMNS = (
    Column("name", "text"),
    Column("count", "int"),
    Column("total_us", "float"),
    Column("known", "bool"),
    Column("ranks", "int_list"),
)
ROW = {"name": "gemm", "count": 3, "total_us": 0.001, "known": True, "ranks": [0, 2]}


def as_csv(*rows: dict[str, Any]) -> str:
    """The rows as CSV text."""
    sink = io.BytesIO()
    write_csv(sink, COLUMNS, rows)
    return sink.getvalue().decode()


def test_csv_word_by_word() -> None:
    """Numbers have all their digits, None is empty, lists are numbers with blanks between."""
    text = as_csv(ROW, {"name": None, "count": 2**70, "total_us": 1e9 + 0.123, "ranks": []})
    assert text == (
        "name,count,total_us,known,ranks\n"
        "gemm,3,0.001,true,0 2\n"
        ",1180591620717411303424,1000000000.123,,\n"
    )


@pytest.mark.parametrize("begin", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_csv_runs_no_formulas(begin: str) -> None:
    """A name that a spreadsheet would run is shown with an apostrophe before it."""
    rows = list(csv.reader(io.StringIO(as_csv({"name": begin, "count": -1}), newline="")))
    assert rows[1][:2] == [f"'{begin}", "-1"]


@pytest.mark.parametrize("name", ['a"b', "a,b", "a\nb", "über", "a=b", " =1"])
def test_csv_texts_come_back(name: str) -> None:
    """Quotes, separators and line ends inside a name change nothing."""
    rows = list(csv.reader(io.StringIO(as_csv({"name": name}), newline="")))
    assert rows[1][0] == name


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    """Text that has no UTF-8 form does not stop the writing."""
    assert as_csv({"name": "a\ud800"}).splitlines()[1].startswith("a?,")
    with open(tmp_path / "t", "wb") as sink:
        write_parquet(sink, COLUMNS, [{"name": "a\ud800"}])
    assert pq.read_table(tmp_path / "t")["name"].to_pylist() == ["a?"]


def test_parquet_types_and_values(tmp_path: Path) -> None:
    """Types are those of the columns even where every value is missing; texts are untouched."""
    with open(tmp_path / "t", "wb") as sink:
        write_parquet(sink, COLUMNS, [ROW, {"name": "=1+1", "count": 2**63}])
    found = pq.read_table(tmp_path / "t")
    assert {f.name: f.type for f in found.schema} == {
        "name": pa.string(),
        "count": pa.int64(),
        "total_us": pa.float64(),
        "known": pa.bool_(),
        "ranks": pa.list_(pa.int64()),
    }
    assert pq.read_metadata(tmp_path / "t").row_group(0).column(0).compression == "ZSTD"
    missing = dict.fromkeys(("count", "total_us", "known", "ranks"))
    assert found.to_pylist() == [ROW, {"name": "=1+1", **missing}]


def test_tables_without_rows_have_their_columns(tmp_path: Path) -> None:
    """No rows make a header, not an empty file."""
    assert as_csv() == "name,count,total_us,known,ranks\n"
    with open(tmp_path / "t", "wb") as sink:
        write_parquet(sink, COLUMNS, iter([]))
    found = pq.read_table(tmp_path / "t")
    assert (found.num_rows, found.schema.names) == (0, [c.name for c in COLUMNS])


def test_more_rows_than_a_batch(tmp_path: Path) -> None:
    """Rows are taken from an iterator in batches, none is lost between them."""
    num = BATCH + 2
    with open(tmp_path / "t", "wb") as sink:
        write_parquet(sink, COLUMNS[1:2], ({"count": i} for i in range(num)))
    assert pq.read_table(tmp_path / "t")["count"].to_pylist() == list(range(num))


def test_own_files_are_known_again(tmp_path: Path) -> None:
    """A CSV is ours by its whole header, a Parquet file by what it says of its writer."""
    own, other = tmp_path / "own", tmp_path / "other"
    own.write_text(as_csv(ROW))
    other.write_text(as_csv(ROW).replace("ranks", "ranks2", 1))
    assert (is_csv(own, COLUMNS), is_csv(other, COLUMNS), is_parquet(own)) == (True, False, False)
    with open(own, "wb") as sink:
        write_parquet(sink, COLUMNS, [ROW])
    pq.write_table(pa.table({"name": ["a"]}), other)
    assert (is_parquet(own), is_parquet(other), is_csv(own, COLUMNS)) == (True, False, False)
