"""Tables keep the figures' own values, in the CSV as on the page."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pandas as pd
import pytest

from dashboards.components.table import MAX_ROWS, Column, Table, few, grid, rows_of

COLUMNS = (
    Column("name", "name", "mono"),
    Column("wait_us", "wait", "us"),
    Column("share_frac", "share", "frac"),
    Column("count", "calls", "int"),
    Column("timeline", "timeline", "link"),
)
FORMULA = '=HYPERLINK("http://evil.example")'


def table(rows: list[dict[str, Any]]) -> Table:
    """A table of these rows."""
    return Table("t", "A table", COLUMNS, rows)


def test_the_csv_has_every_row_and_digit() -> None:
    """Names carry units, values all their digits, the unknown stays empty, links stay out."""
    rows = [
        {"name": "a", "wait_us": 1234.567, "share_frac": 0.25, "count": 7, "timeline": "/x"},
        {"name": "b,c", "wait_us": None, "share_frac": float("nan"), "count": 0, "timeline": "/x"},
    ]
    assert table(rows).csv().decode() == (
        'name,wait_us,share_frac,count\na,1234.567,0.25,7\n"b,c",,,0\n'
    )


def test_a_spreadsheet_runs_no_name() -> None:
    """A name that begins like a formula is marked as text."""
    text = table([{"name": FORMULA}]).csv().decode()
    (_, row) = csv.reader(io.StringIO(text))
    assert row[0] == "'" + FORMULA


@pytest.mark.parametrize(
    ("values_us", "decimals"),
    [([71_270.0, 69_933.0], 3), ([8_000_000.0], 1), ([5.0, 6.0], 5), ([None], 3)],
)
def test_decimals_suit_the_column(values_us: list[float | None], decimals: int) -> None:
    """Times of a column have the same decimals: three figures for most, five decimals at most."""
    rows = [{"wait_us": value} for value in values_us]
    made = grid(table(rows)).to_plotly_json()["props"]
    formula = made["columnDefs"][1]["valueFormatter"]["function"]
    assert formula == f"tk.ms(params.value, {decimals}, 'not known')"


def test_cells_are_values_and_never_markup() -> None:
    """Names go to the page as text in rows; what runs there is ours and names no row."""
    hostile = '<img src=x onerror="alert(1)">'
    made = grid(table([{"name": hostile, "wait_us": 1.0}])).to_plotly_json()["props"]
    assert made["rowData"][0]["name"] == hostile
    assert made["dangerously_allow_code"] is False
    assert hostile not in json.dumps([made["columnDefs"], made["dashGridOptions"]])


def test_rows_of_a_frame_are_plain_values() -> None:
    """Missing values of every kind become None, numbers stay numbers."""
    frame = pd.DataFrame(
        {
            "a": pd.array([1, None], dtype="Int64"),
            "b": [1.5, float("nan")],
            "c": pd.array(["x", None], dtype="string"),
        }
    )
    assert rows_of(frame) == [{"a": 1, "b": 1.5, "c": "x"}, {"a": None, "b": None, "c": None}]


def test_rows_are_made_when_they_are_looked_at() -> None:
    """A closed table costs nothing, an open one as many rows as are shown, the CSV all."""
    made: list[int | None] = []

    def rows(most: int | None) -> list[dict[str, Any]]:
        made.append(most)
        return [{"name": "a", "wait_us": 1.0}] * 3

    lazy = Table("t", "A table", COLUMNS, rows)
    assert made == []
    grid(lazy)
    assert made == [MAX_ROWS]
    assert len(lazy.csv().splitlines()) == 4
    assert made == [MAX_ROWS, None]


def test_a_short_table_says_what_a_grid_would() -> None:
    """Values as plain HTML: units and decimals by kind, words for what is not known."""
    from tests.dashboards.helpers import parts, plain

    columns = (
        *COLUMNS,
        Column("delta_frac", "change", "change", absent="–"),
        Column("size_bytes", "size", "bytes"),
        Column("rate_GBps", "rate", "GBps"),
        Column("edge", "edge", "bool"),
    )
    row = {
        "name": "<b>", "wait_us": 1234.5, "share_frac": 0.256, "count": 12345, "timeline": "/t?x=1",
        "delta_frac": 0.5, "size_bytes": 262144, "rate_GBps": 0.2459, "edge": True,
    }  # fmt: skip
    made = plain(few(Table("t", "A table", columns, [row, {}])))
    heads = [head["children"] for head in parts(made, "Th")]
    assert heads[1:3] == ["wait (ms)", "share (%)"]
    cells = [cell.get("children") for cell in parts(made, "Td")]
    first, second = cells[: len(columns)], cells[len(columns) :]
    assert [c for c in first if isinstance(c, str)] == [
        "<b>", "1.234", "25.6", "12\u202f345", "+50.0", "262 kB", "0.246", "yes",
    ]  # fmt: skip
    assert [c for c in second if c] == ["not known"] * 4 + ["–"] + ["not known"] * 3
