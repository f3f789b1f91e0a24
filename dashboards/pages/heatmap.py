"""Ranks × steps: any figure of every rank and step, one glance for a thousand steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from dashboards.components import states
from dashboards.components.cards import figure_card
from dashboards.components.shell import param
from dashboards.components.table import Column, Kind, Table, framed
from dashboards.registry import Context, Page
from tracekit.plot import specs

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

FIGURES: Mapping[str, str] = {
    "window_us": "window",
    "period_us": "period (window and the gap before)",
    "lead_us": "gap before the step",
    "compute_us": "compute",
    "exposed_comm_us": "exposed communication",
    "exposed_wait_us": "exposed: waiting for a late rank",
    "exposed_transfer_us": "exposed: moving bytes",
    "exposed_unknown_us": "exposed: waiting or moving not known",
    "exposed_memory_us": "exposed memory copies",
    "idle_us": "idle",
    "other_us": "other work",
    "comm_us": "communication",
    "overlap_us": "communication under compute",
    "overlap_frac": "share of communication under compute",
    "host_us": "host annotation",
}
SCALES: Mapping[str, str] = {"time": "time", "share": "% of the step's window"}
NO_STEPS = """with torch.profiler.profile(...) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()          # marks the step"""


def no_steps() -> Component:
    """What to do where a trace marks no steps."""
    text = "The traces mark no steps. Call prof.step() after each training step when recording:"
    return states.missing("No steps to show", text, NO_STEPS)


def _cells(context: Context) -> Table:
    column = context.param("figure", FIGURES, "window_us")
    kind: Kind = "frac" if column.endswith("_frac") else "us"

    def sorted_frame() -> pd.DataFrame:
        frame = context.digest.frame("steps")[["rank", "step", column]]
        return frame.sort_values(column, ascending=False, kind="stable", na_position="last")

    def finish(row: dict[str, Any]) -> None:
        where = context.view.elsewhere(
            "timeline", step=f"{row['step']:.0f}", rank=f"{row['rank']:.0f}"
        )
        row["timeline"] = context.href(where)

    columns = (
        Column("rank", "rank", "int"), Column("step", "step", "int"),
        Column(column, FIGURES[column], kind, 160), Column("timeline", "timeline", "link"),
    )  # fmt: skip
    return Table(
        "cells", "Every rank and step, the largest first", columns, framed(sorted_frame, finish)
    )


def _choices(column: str, scale: str) -> Component:
    figures = [{"value": key, "label": told} for key, told in FIGURES.items()]
    picker = dmc.Select(
        id=param("figure", "window_us"), label="Figure", data=figures, value=column,
        allowDeselect=False, searchable=True, size="xs", w=300,
    )  # fmt: skip
    scales = [{"value": key, "label": told} for key, told in SCALES.items()]
    measure = dmc.SegmentedControl(
        id=param("scale", "time"), data=scales, value=scale, size="xs",
        disabled=column.endswith("_frac"), **{"aria-label": "Scale"},
    )  # fmt: skip
    return html.Div([picker, measure], className="tk-row")


def body(context: Context) -> Component:
    """The page."""
    if not context.digest.step_numbers:
        return no_steps()
    column = context.param("figure", FIGURES, "window_us")
    scale = context.param("scale", SCALES, "time")
    frame = context.digest.frame("steps")
    choices = _choices(column, scale)
    if frame[column].isna().all():
        text = f"No step of this run knows its {FIGURES[column]}."
        gone = states.missing("Nothing to show", text)
        return html.Div([choices, gone], className="tk-page")
    spec = specs.heatmap(frame, column, share=scale == "share", theme=context.theme)
    card = figure_card(
        context, f"Ranks × steps: {FIGURES[column]}", spec, name="heatmap", table=_cells(context),
        click=context.href(context.view.elsewhere("timeline", step="{x}", rank="{y}")),
        note="A click opens the step in the timeline. Blank is not known.", wide=True,
        before=[choices],
    )  # fmt: skip
    return html.Div([card], className="tk-page")


PAGE = Page("heatmap", "Ranks × steps", 30, body, tables={"cells": _cells})
