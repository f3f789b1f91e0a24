"""What a page shows when there is nothing to draw: on its way, failed, missing, none chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.report import words

if TYPE_CHECKING:
    from dash.development.base_component import Component


def loading(run: str, what: str, fraction: float) -> Component:
    """Work on its way, with how far it is, and a way to stop it."""
    percent = round(100 * min(1.0, max(0.0, fraction)))
    bar = dmc.Progress(
        value=max(3, percent),
        size="sm",
        className="tk-progress",
        **{"aria-label": f"{percent} % done"},
        animated=True,
    )
    return html.Section(
        [
            html.H2(f"Analysing {words.safe(run, 120)}"),
            bar,
            html.P(f"{percent} %: {words.safe(what, 120)}", className="tk-note", role="status"),
            html.Button("Stop", id={"type": "stop", "name": "load"}, className="tk-button"),
        ],
        className="tk-state",
    )


def stopped() -> Component:
    """Work that the viewer stopped."""
    again = html.Button("Load again", id={"type": "again", "name": "load"}, className="tk-button")
    return html.Section(
        [html.H2("Stopped"), html.P("Nothing was loaded."), again], className="tk-state"
    )


def failed(title: str, text: str, *, again: bool = True) -> Component:
    """What went wrong, in the words of the analyzer."""
    alert = dmc.Alert(words.safe(text, 800), title=title, color="red", variant="light")
    button = html.Button("Try again", id={"type": "again", "name": "load"}, className="tk-button")
    return html.Section([alert, *([button] if again else [])], className="tk-state", role="alert")


def missing(title: str, text: str, code: str = "") -> Component:
    """What the trace lacks for a page, and how to record it."""
    how = [html.Pre(html.Code(code), className="tk-code")] if code else []
    return html.Section([html.H2(title), html.P(text), *how], className="tk-state")


def choice(rows: Sequence[tuple[str, str, str]], title: str, text: str = "") -> Component:
    """Runs to choose from: address, name, what is known of it."""
    items = [
        html.Li([dcc.Link(words.safe(name, 200), href=href), html.Span(facts, className="tk-note")])
        for href, name, facts in rows
    ]
    note = [html.P(text)] if text else []
    return html.Section(
        [html.H2(title), *note, html.Ul(items, className="tk-runs")], className="tk-state"
    )
