"""Timeline: every rank, stream and thread on one canvas; the script of the page mounts it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dash import html

from dashboards.registry import Context, Page

if TYPE_CHECKING:
    from dash.development.base_component import Component


def body(context: Context) -> Component:
    """The page: a place for the canvas that says which run, and which part of it first."""
    view = context.view
    asked = {"run": context.run.name}
    if view.capture:
        asked["capture"] = str(view.capture)
    steps = view.params.get("step") or (f"{view.steps[0]}:{view.steps[1]}" if view.steps else "")
    files = context.catalog.signature(context.run)
    place = html.Div(
        html.P("Reading the run …", className="tk-note", role="status"),
        id="timeline",
        className="tk-timeline",
        **{
            "data-own-keys": "yes",
            "data-source": f"{context.base}timeline",
            "data-module": f"{context.base}lanes.js",
            "data-asked": urlencode(asked),
            "data-steps": steps,
            "data-rank": view.params.get("rank", ""),
            "data-version": f"{len(files)}-{max((mtime for _, _, mtime in files), default=0)}",
        },
    )
    return html.Div([place], className="tk-page")


PAGE = Page("timeline", "Timeline", 20, body, eager=True)
