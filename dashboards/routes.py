"""What is fetched besides pages: tables as CSV, and what the timeline asks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dash.exceptions import DependencyException
from flask import Response, request, send_file

from dashboards.loading import Ask
from dashboards.state import MAX_VALUE, read_view
from tracekit.report import words

if TYPE_CHECKING:
    from pathlib import Path

    from flask import Flask

    from dashboards.app import Dashboard

#: how long a request may wait for an answer before it says to come again
PATIENCE_S = 25.0
_PLAIN = "text/plain; charset=utf-8"


def add(server: Flask, board: Dashboard) -> None:
    """Add the routes to a server."""

    @server.get("/export/<page>/<table>.csv")
    def export(page: str, table: str) -> Response:
        return _csv(board, page, table)

    @server.get("/timeline/<method>")
    def timeline(method: str) -> Response:
        return _timeline(board, method)

    @server.errorhandler(DependencyException)
    def no_such_script(_: Exception) -> Response:
        return _plain("there is no such script", 404)

    @server.before_request
    def only_pages() -> tuple[str, int] | None:
        """Dash answers any path with its page; here what is no page is not found."""
        path = request.path.strip("/")
        is_catch_all = request.endpoint is not None and "path:path" in request.endpoint
        return (board.dash.index(), 404) if is_catch_all and path not in board.pages else None

    @server.get("/lanes.js")
    def lanes() -> Response:
        return send_file(_lanes_file(), mimetype="text/javascript", max_age=0)


def _lanes_file() -> Path:
    from pathlib import Path

    import tracekit.plot

    return Path(tracekit.plot.__path__[0]) / "static" / "lanes.js"


def _csv(board: Dashboard, page_name: str, table_name: str) -> Response:
    """A table of a page, all its rows."""
    page = board.pages.get(page_name)
    make = page.tables.get(table_name) if page else None
    view = read_view(page_name, request.query_string.decode("utf-8", "replace"))
    run = board.catalog.get(view.run)
    if page is None or make is None or run is None:
        return _plain("there is no such table", 404)
    context = board.context(view, run, "light")
    data: dict[str, Any] = {}
    for name, ask in page.needs(context).items():
        reply = board.loader.wait(ask, PATIENCE_S)
        if reply.status == "failed":
            return _plain(reply.what, 422)
        if reply.status == "pending":
            return _plain("still being analysed; try again in a moment", 503)
        data[name] = reply.value
    text = make(board.context(view, run, "light", **data)).csv()
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in f"{run.name}-{table_name}")
    heads = {"Content-Disposition": f'attachment; filename="{name[-100:]}.csv"'}
    return Response(text, 200, heads, content_type="text/csv; charset=utf-8")


def _timeline(board: Dashboard, method: str) -> Response:
    """What the timeline asks of a run: JSON, or a block of bytes."""
    view = read_view("timeline", request.query_string.decode("utf-8", "replace"))
    run = board.catalog.get(view.run)
    if run is None:
        return _plain("there is no such run", 404)
    asked = {key: value for key, value in request.args.items() if len(value) <= MAX_VALUE}
    more = json.dumps([method, asked])
    reply = board.loader.fetch(Ask("timeline", run, None, view.capture, more), PATIENCE_S)
    if reply.status != "ready":
        still = "the timeline is still being read; try again in a moment"
        return _plain(still if reply.status == "pending" else reply.what, 503)
    text: bytes = reply.value
    if text[:1] == b"B":
        return Response(text[1:], 200, content_type="application/octet-stream")
    return Response(text, 200, content_type="application/json")


def _plain(text: str, status: int) -> Response:
    return Response(words.safe(text) + "\n", status, content_type=_PLAIN)
