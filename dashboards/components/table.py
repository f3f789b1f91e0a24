"""Tables: on the page, sortable and filterable, and as CSV with units in the names."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from dash import dcc, html
from dash_ag_grid import AgGrid

from tracekit.io import flat
from tracekit.report import words

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from dashboards.registry import Context

Row = Mapping[str, Any]
Kind = Literal["text", "mono", "int", "us", "frac", "change", "bytes", "GBps", "bool", "link"]
#: rows sent to a page; the CSV has all
MAX_ROWS = 2000
ROW_PX, HEAD_PX, MAX_PX = 27, 32, 430
#: so many rows are drawn as plain HTML, in a tenth of the time a grid takes
FEW_ROWS = 12
_CSV: dict[str, flat.Kind] = {
    "text": "text",
    "mono": "text",
    "int": "int",
    "us": "float",
    "frac": "float",
    "change": "float",
    "bytes": "int",
    "GBps": "float",
    "bool": "bool",
}
_FORMATS = {
    "frac": "tk.percent",
    "change": "tk.change",
    "bytes": "tk.size",
    "GBps": "tk.rate",
    "int": "tk.whole",
    "bool": "tk.yes",
}
_LEAST_PX = {"us": 78, "bytes": 84, "GBps": 84}
_UNITS = {"us": "ms", "frac": "%", "change": "%", "GBps": "GB/s"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    field : str
        Its name in rows and in the CSV, with the unit.
    title : str
        What the page calls it, without the unit.
    kind : str
        ``us`` is shown in ms; ``link`` is an address of ours, and no column of the CSV.
    width : int
        Least width in pixels.
    like : str
        Columns of one word here have the same decimals.
    absent : str
        What stands where nothing is known.
    """

    field: str
    title: str
    kind: Kind = "text"
    width: int = 0
    like: str = ""
    absent: str = words.NOT_KNOWN


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes
    ----------
    name : str
        For addresses.
    title : str
    columns : sequence of Column
    made : sequence of mapping, or callable
        The rows, or what makes the first so many of them (all for None) once they are needed: of
        a thousand steps of 64 ranks most are never looked at.
    """

    name: str
    title: str
    columns: Sequence[Column]
    made: Sequence[Row] | Callable[[int | None], Sequence[Row]]

    @property
    def rows(self) -> Sequence[Row]:
        """All rows."""
        return self.first(None)

    def first(self, most: int | None) -> Sequence[Row]:
        """The first rows."""
        return self.made(most) if callable(self.made) else self.made[:most]

    def csv(self) -> bytes:
        """All rows as CSV; a text that a spreadsheet would run is marked as text."""
        told = [c for c in self.columns if c.kind != "link"]
        sink = io.BytesIO()
        columns = [flat.Column(c.field, _CSV[c.kind]) for c in told]
        rows = ({c.field: _plain(row.get(c.field)) for c in told} for row in self.rows)
        flat.write_csv(sink, columns, rows)
        return sink.getvalue()


def framed(
    make: Callable[[], Any], finish: Callable[[dict[str, Any]], None] = lambda _row: None
) -> Callable[[int | None], Sequence[Row]]:
    """The rows of a frame, once they are needed.

    Parameters
    ----------
    make : callable
        Makes the frame.
    finish : callable
        Completes a row.
    """

    def first(most: int | None) -> Sequence[Row]:
        frame = make()
        rows = rows_of(frame if most is None else frame.head(most))
        for row in rows:
            finish(row)
        return rows

    return first


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame as plain values, None for what is not known."""
    columns = {name: [_plain(value) for value in frame[name].tolist()] for name in frame}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    """None for NaN, infinite and ``<NA>``; texts without control characters."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return words.safe(value, 4000)
    if isinstance(value, tuple | list):
        return words.number_list(value)
    return None


def few(table: Table) -> Component:
    """The first rows of a table as plain HTML."""
    shown = table.first(FEW_ROWS)
    head = [
        html.Th(_title(c), scope="col", title=c.field, className=_side(c)) for c in table.columns
    ]
    decimals = {c.field: _decimals(c, table, shown) for c in table.columns if c.kind == "us"}
    rows = [
        html.Tr([_cell(c, _plain(row.get(c.field)), decimals) for c in table.columns])
        for row in shown
    ]
    parts = [html.Thead(html.Tr(head)), html.Tbody(rows)]
    made = html.Table(parts, className="tk-table", id={"type": "table", "name": table.name})
    return html.Div(made, className="tk-scroll", tabIndex="0", role="region", title=table.title)


def _cell(column: Column, value: Any, decimals: Mapping[str, int]) -> Component:
    if column.kind == "link":
        return html.Td(dcc.Link("show", href=value) if value else "")
    text = _said(column, value, decimals.get(column.field, 3))
    clipped = {"title": text} if column.kind in ("text", "mono") else {}
    return html.Td(text, className=_side(column), **clipped)


def _said(column: Column, value: Any, decimals: int) -> str:
    """A value as the page shows it; the script of the page says the same in grids."""
    if value is None or value == "":
        return column.absent
    if column.kind in ("text", "mono"):
        return str(value)
    if column.kind == "us":
        return words.ms(value, decimals)
    if column.kind == "bool":
        return "yes" if value else "no"
    said: dict[str, Callable[[Any], str]] = {
        "frac": lambda v: f"{100 * v:.1f}",
        "change": lambda v: f"{100 * v:+.1f}" if v else "0.0",
        "bytes": words.size,
        "GBps": words.rate,
        "int": lambda v: f"{v:,.0f}".replace(",", "\u202f"),
    }
    return said[column.kind](value)


def _side(column: Column) -> str:
    """The class of a cell: numbers stand at the right."""
    return f"tk-{column.kind}" if column.kind in ("text", "mono", "link") else "tk-number"


def _title(column: Column) -> str:
    unit = _UNITS.get(column.kind)
    return f"{column.title} ({unit})" if unit else column.title


def grid(table: Table) -> Component:
    """A table on the page that can be sorted and searched."""
    shown = table.first(MAX_ROWS)
    fields = [c.field for c in table.columns]
    rows = [{name: _plain(row.get(name)) for name in fields} for row in shown]
    return AgGrid(
        id={"type": "table", "name": table.name},
        rowData=rows,
        columnDefs=[_definition(c, table, shown) for c in table.columns],
        defaultColDef={
            "sortable": True, "resizable": True, "minWidth": 64, "cellDataType": False,
            "wrapHeaderText": True, "autoHeaderHeight": True, "suppressHeaderFilterButton": True,
        },
        columnSize="responsiveSizeToFit",
        dangerously_allow_code=False,
        dashGridOptions={
            "rowHeight": ROW_PX, "headerHeight": HEAD_PX, "floatingFiltersHeight": HEAD_PX,
            "rowBuffer": 4, "animateRows": False, "tooltipShowDelay": 400,
            "enableCellTextSelection": True, "ensureDomOrder": True,
            "suppressFieldDotNotation": True,
            "theme": {"function": "tk.gridTheme(themeQuartz)"},
        },
        style={"height": MAX_PX, "width": "100%"},
        className="tk-grid",
    )  # fmt: skip


def _definition(column: Column, table: Table, shown: Sequence[Row]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "field": column.field,
        "headerName": _title(column),
        "headerTooltip": column.field,
    }
    least = column.width or _LEAST_PX.get(column.kind, 0)
    if least:
        made["minWidth"] = least
    if column.kind == "link":
        return {**made, "cellRenderer": "Link", "sortable": False, "minWidth": 86, "maxWidth": 86}
    if column.kind in ("text", "mono"):
        words_of = {"function": f"tk.text(params.value, {column.absent!r})"}
        made |= {"tooltipField": column.field, "valueFormatter": words_of}
        made |= {"floatingFilter": True, "suppressFloatingFilterButton": True}
        return {**made, "filter": "agTextColumnFilter", "cellClass": f"tk-{column.kind}"}
    if column.kind == "us":
        formula = f"tk.ms(params.value, {_decimals(column, table, shown)}, {column.absent!r})"
    else:
        formula = f"{_FORMATS[column.kind]}(params.value, {column.absent!r})"
    numeric: dict[str, Any] = {"type": "rightAligned", "valueFormatter": {"function": formula}}
    if any(c.kind in ("text", "mono") for c in table.columns):
        numeric["maxWidth"] = 150  # what is left is for the texts
    return {**made, **numeric}


def _decimals(column: Column, table: Table, shown: Sequence[Row]) -> int:
    """So many decimals of a millisecond that most values have three figures, at most five."""
    same = [c.field for c in table.columns if c is column or (c.like and c.like == column.like)]
    held = [abs(v) for row in shown for field in same if (v := _known(row.get(field)))]
    if not held:
        return 3
    middle = 2 - math.floor(math.log10(median(held) / 1000))
    return max(words.decimals(max(held)), min(5, middle))


def _known(value: Any) -> float:
    return float(value) if words.known(value) else 0.0


def csv_link(context: Context, table: str) -> str:
    """The address of a table's CSV."""
    page = quote(context.view.page, safe="")
    return f"{context.base}export/{page}/{quote(table, safe='')}.csv{context.view.search}"
