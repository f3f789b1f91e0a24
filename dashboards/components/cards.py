"""Cards: a title, a figure or a table, and the ways to take it along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from dashboards.components.table import FEW_ROWS, Table, csv_link, few, grid

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from dashboards.registry import Context

_CONFIG = {"displayModeBar": False, "responsive": True, "doubleClick": "reset+autosize"}


def card(
    title: str, *children: Any, note: str = "", tools: Any = (), wide: bool = False
) -> Component:
    """A titled part of a page."""
    head = [html.H2(title), html.Div(tools, className="tk-tools")]
    hint = [html.P(note, className="tk-note")] if note else []
    kind = "tk-card tk-wide" if wide else "tk-card"
    return html.Section([html.Div(head, className="tk-head"), *hint, *children], className=kind)


def figure_card(  # noqa: PLR0913 - a card has as many parts as it shows
    context: Context,
    title: str,
    spec: dict[str, Any],
    *,
    name: str,
    table: Table,
    note: str = "",
    click: str = "",
    wide: bool = False,
    before: Any = (),
    twin: bool = True,
) -> Component:
    """A figure with its table twin, CSV and image exports.

    Parameters
    ----------
    context : Context
    title : str
    spec : dict
        As `tracekit.plot.specs` makes it.
    name : str
        Tells the figure from the others of the page.
    table : Table
        The same in figures.
    note : str
        One sentence below the title.
    click : str
        Where a click leads: an address with ``{x}`` and ``{y}`` in it.
    wide : bool
        Over the whole width of the page.
    before : components
        Between title and figure.
    twin : bool
        Whether the table opens below the figure; not where it has a card of its own.
    """
    layout = {**spec["layout"], "meta": {"click": click, "name": name}, "uirevision": name}
    words = _legend(spec["data"])
    if words is not None or not layout["showlegend"]:
        layout |= {"showlegend": False, "margin": {**layout["margin"], "t": 6}}
        layout["height"] -= 28
    height = layout["height"]
    is_open = twin and context.view.table == table.name
    picture = html.Div(
        dcc.Graph(
            id={"type": "figure", "name": name},
            figure={"data": spec["data"], "layout": layout},
            config=_CONFIG,
            style={"height": f"{height}px"},
        ),
        className="tk-figure tk-clicks" if click else "tk-figure",
        style={"minHeight": f"{height}px"},
        role="img",
        **{"aria-label": f"{title}. The table below it tells the same."},
    )
    tools = image_tools(name)
    if twin:
        tools += table_tools(context, table, is_open=is_open)
    below = [html.Div(_opened(table), className="tk-twin")] if is_open else []
    keys = [words] if words is not None else []
    return card(
        title, *before, *keys, picture, *below, note=note, tools=tools, wide=wide or is_open
    )


def _legend(traces: list[dict[str, Any]]) -> Component | None:
    """Colours and words of bars and areas in one line; None where marks are told apart by shape."""
    told = [trace for trace in traces if trace.get("name")]
    if len(told) < 2 or any(trace.get("mode") == "markers" for trace in told):
        return None
    items = [html.Li([_swatch(trace), html.Span(trace["name"])]) for trace in told]
    return html.Ul(items, className="tk-key-line")


def _swatch(trace: dict[str, Any]) -> Component:
    marker = trace.get("marker", {})
    if trace["type"] == "scatter" and "stackgroup" not in trace:
        return html.Span(className="tk-dash", style={"borderColor": trace["line"]["color"]})
    hatched = " tk-hatched" if "pattern" in marker else ""
    color = marker.get("color") or trace.get("fillcolor")
    return html.Span(className=f"tk-swatch{hatched}", style={"backgroundColor": color})


def table_card(context: Context, table: Table, note: str = "", wide: bool = True) -> Component:
    """A table: its first rows, and all of them when it is opened."""
    is_long = len(table.first(FEW_ROWS + 1)) > FEW_ROWS
    is_open = is_long and context.view.table == table.name
    tools = [csv_button(context, table)]
    if is_long:
        told = "First rows" if is_open else "All rows"
        href = context.table_link(table.name)
        tools.insert(0, dcc.Link(told, href=href, className="tk-tool", title="Sort and search"))
    content = grid(table) if is_open else few(table)
    return card(table.title, content, note=note, tools=tools, wide=wide)


def _opened(table: Table) -> Component:
    """A table whole: as a grid where it is long."""
    return grid(table) if len(table.first(FEW_ROWS + 1)) > FEW_ROWS else few(table)


def table_tools(context: Context, table: Table, *, is_open: bool) -> list[Component]:
    """Open or close a table, and take it along."""
    words = "Hide table" if is_open else "Table"
    toggle = dcc.Link(
        words, href=context.table_link(table.name), className="tk-tool", title=table.title
    )
    return [toggle, csv_button(context, table)]


def csv_button(context: Context, table: Table) -> Component:
    """Save a table as CSV."""
    title = f"Save “{table.title}” as CSV"
    return html.A(
        "CSV", href=csv_link(context, table.name), download="", className="tk-tool", title=title
    )


def image_tools(name: str) -> list[Component]:
    """Save a figure as a picture; the script of the page does it."""
    return [
        html.Button(
            kind.upper(),
            className="tk-tool tk-image",
            title=f"Save the figure as {kind.upper()}",
            **{"data-figure": name, "data-format": kind},
        )
        for kind in ("png", "svg")
    ]
