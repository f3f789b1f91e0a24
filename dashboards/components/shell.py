"""The frame around every page: runs, steps and theme above, pages at the left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.report import words

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from dashboards.registry import Context, Page

#: more runs than this are not listed in the picker at once
MOST_RUNS = 500
KEYS = (
    ("1 … 9", "go to the page with that number"),
    ("s", "steps to look at"),
    ("r", "another run"),
    ("Tab, Enter", "move on, open"),
    ("Esc", "leave a field"),
    ("?", "these keys"),
)


def frame() -> Component:
    """What stays while pages change; the script of the page fills in the rest."""
    parts = [
        dcc.Location(id="url", refresh="callback-nav"),
        dcc.Store(id="request"),
        dcc.Store(id="scheme"),
        dcc.Store(id="mark"),
        dcc.Store(id="halted"),
        dcc.Store(id="drawn"),
        dcc.Store(id="tick"),
        dcc.Interval(id="poll", interval=400, disabled=True),
        html.A("Skip to the content", href="#content", className="tk-skip"),
        html.Header(
            [
                html.Div("tracekit", className="tk-brand"),
                html.Div(id="controls", className="tk-controls"),
                html.Div(
                    [
                        html.Span(id="live", className="tk-live", role="status"),
                        html.Button("?", id="keys-button", className="tk-tool", title="Keys (?)"),
                        dmc.ColorSchemeToggle(
                            lightIcon="☀", darkIcon="☾", size="sm", variant="subtle",
                            color="gray", **{"aria-label": "Light or dark"},
                        ),
                    ],
                    className="tk-right",
                ),
            ],
            className="tk-header",
        ),
        html.Nav(id="pages", className="tk-nav", **{"aria-label": "Pages"}),
        html.Main(html.Div(className="tk-blank"), id="content", className="tk-main", tabIndex="-1"),
        _keys(),
    ]  # fmt: skip
    return dmc.MantineProvider(
        html.Div(parts, className="tk-shell"), theme=_theme(), defaultColorScheme="auto"
    )


def _theme() -> dict[str, Any]:
    from dashboards.theme import MANTINE

    return MANTINE


def _keys() -> Component:
    rows = [html.Div([html.Kbd(key), html.Span(told)]) for key, told in KEYS]
    close = html.Form(html.Button("Close", className="tk-button"), method="dialog")
    return html.Dialog([html.H2("Keys"), *rows, close], id="keys", className="tk-keys")


def page_links(context: Context, pages: Iterable[Page]) -> list[Component]:
    """Links to all pages, on the same run and steps."""
    made: list[Component] = []
    for number, page in enumerate(pages, 1):
        here = page.path == context.view.page
        view = replace(context.view.elsewhere(page.path), run=context.view.run)
        link = dcc.Link(
            [html.Span(str(number), className="tk-key", **{"aria-hidden": "true"}), page.title],
            href=context.href(view),
            className="tk-page-link tk-here" if here else "tk-page-link",
            title=f"{page.title} ({number})",
        )
        made.append(link)
    return made


def controls(context: Context, captures: int, capture: int, last_step: str) -> list[Component]:
    """Which run, which recording, which steps."""
    view = context.view
    names = [entry.name for entry in context.catalog.entries()][:MOST_RUNS]
    if context.run.name not in names:
        names.append(context.run.name)
    made: list[Component] = []
    if len(names) > 1:
        made.append(
            dmc.Select(
                id=param("run"), data=[{"value": n, "label": words.safe(n, 120)} for n in names],
                value=context.run.name, searchable=True, allowDeselect=False, size="xs", w=260,
                checkIconPosition="right", nothingFoundMessage="no such run",
                **{"aria-label": "Run"},
            )
        )  # fmt: skip
    else:
        made.append(html.Span(words.safe(context.run.name, 120), className="tk-run"))
    if captures > 1:
        numbers = [
            {"value": str(n), "label": f"recording {n} of {captures}"} for n in _down(captures)
        ]
        made.append(
            dmc.Select(
                id=param("capture", str(captures)), data=numbers, value=str(capture),
                allowDeselect=False, size="xs", w=170, **{"aria-label": "Recording"},
            )
        )  # fmt: skip
    first, last = view.steps or (None, None)
    shown = view.bad_steps if first is None else str(first) if first == last else f"{first}:{last}"
    made.append(
        dmc.TextInput(
            id=param("steps"), value=shown, placeholder=f"all steps{last_step}", size="xs", w=170,
            debounce=True, error=view.bad or None, leftSection="steps", leftSectionWidth=44,
            **{"aria-label": "Steps, such as 5:8"},
        )
    )  # fmt: skip
    return made


def _down(captures: int) -> range:
    return range(captures, 0, -1)


def param(name: str, as_ever: str = "") -> dict[str, str]:
    """The id of a control whose value is kept in the address under this name.

    Parameters
    ----------
    name : str
    as_ever : str
        The value that holds where the address says nothing.
    """
    return {"type": "param", "name": name, "as_ever": as_ever}
