"""Kernels & operators: the names that take the time, summed over the ranks or of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from dashboards.components import states
from dashboards.components.cards import figure_card, table_card
from dashboards.components.shell import param
from dashboards.components.table import Column, Table, rows_of
from dashboards.loading import Ask
from dashboards.registry import Context, Page, own_digest
from tracekit.plot import specs
from tracekit.report import words

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

TOP = 20
ROLES: Mapping[str, str] = {
    "all": "all work",
    "compute": "compute",
    "comm": "communication",
    "memory": "copies and fills",
}


def needs(context: Context) -> dict[str, Ask]:
    """The analysis, and all names."""
    view = context.view
    return own_digest(context) | {"names": Ask("names", context.run, view.steps, view.capture)}


def _chosen_rank(context: Context) -> str:
    ranks = {str(row["rank"]): row for row in context.digest.rows("ranks")}
    return context.param("rank", ranks, "")


def summed(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Rows of several ranks with the same name as one: sums, the mean, the extremes."""
    how: dict[str, Any] = {"total_us": ("total_us", "sum"), "count": ("count", "sum")}
    if "min_us" in frame:
        how |= {"min_us": ("min_us", "min"), "max_us": ("max_us", "max"), "known": ("known", "min")}
    made = frame.groupby(by, sort=False).agg(num_ranks=("rank", "nunique"), **how).reset_index()
    made["mean_us"] = made["total_us"] / made["count"]
    return made.sort_values("total_us", ascending=False, kind="stable").reset_index(drop=True)


def _frame(context: Context, which: str, by: list[str]) -> pd.DataFrame:
    frame = context.data["names"].frame(which)
    rank = _chosen_rank(context)
    frame = frame[frame["rank"] == float(rank)] if rank else frame
    role = context.param("role", ROLES, "all")
    if role != "all" and "role" in frame:
        frame = frame[frame["role"] == role]
    made = summed(frame, by)
    total = float(made["total_us"].sum()) or 1.0
    return made.assign(share_frac=made["total_us"] / total)


def _kernels(context: Context) -> Table:
    rows = rows_of(_frame(context, "kernels", ["role", "name"]))
    for row in rows:
        row["known"] = bool(row["known"])
    columns = (
        Column("name", "name", "mono", 320), Column("role", "role"),
        Column("count", "calls", "int"),
        Column("total_us", "total", "us"), Column("share_frac", "of all", "frac"),
        Column("mean_us", "mean", "us"), Column("min_us", "least", "us"),
        Column("max_us", "most", "us"), Column("num_ranks", "ranks", "int"),
        Column("known", "named by a rule", "bool"),
    )  # fmt: skip
    return Table("kernels", "Work by name", columns, rows)


def _operators(context: Context) -> Table:
    columns = (
        Column("name", "name", "mono", 320), Column("count", "calls", "int"),
        Column("total_us", "total", "us"), Column("mean_us", "mean", "us"),
        Column("num_ranks", "ranks", "int"),
    )  # fmt: skip
    frame = _frame(context, "operators", ["name"])
    return Table("operators", "Host operators by name", columns, rows_of(frame))


def _choices(context: Context) -> Component:
    ranks = [{"value": "all", "label": "all ranks"}]
    ranks += [
        {"value": str(row["rank"]), "label": f"rank {row['rank']}"}
        for row in context.digest.rows("ranks")
    ]
    roles = [{"value": key, "label": told} for key, told in ROLES.items()]
    rank = dmc.Select(
        id=param("rank", "all"), label="Rank", data=ranks, value=_chosen_rank(context) or "all",
        allowDeselect=False, searchable=True, size="xs", w=130,
    )  # fmt: skip
    role = dmc.SegmentedControl(
        id=param("role", "all"), data=roles, value=context.param("role", ROLES, "all"),
        size="xs", **{"aria-label": "Role"},
    )  # fmt: skip
    return html.Div([rank, role], className="tk-row")


def body(context: Context) -> Component:
    """The page."""
    if not len(context.data["names"].frame("kernels")):
        return states.missing("No work", "No work was recorded, so there are no names to show.")
    frame = _frame(context, "kernels", ["role", "name"])
    choices = _choices(context)
    parts: list[Component] = []
    if len(frame):
        table = _kernels(context)
        spec = specs.names(frame, top=TOP, theme=context.theme)
        picture = figure_card(
            context, f"The {min(TOP, len(frame))} names that take most time", spec, name="names",
            table=table, twin=False, wide=True, before=[choices],
            note="Sums count work that runs at the same time several times.",
        )  # fmt: skip
        parts += [picture, table_card(context, table, note=_unknown(table))]
    else:
        parts += [choices, states.missing("None", "No work of this role and rank was recorded.")]
    if len(context.data["names"].frame("operators")):
        note = "Of the whole recording; the time of inner operators counts in outer ones too."
        parts.append(table_card(context, _operators(context), note=note))
    return html.Div(parts, className="tk-page")


def _unknown(table: Table) -> str:
    count = sum(not row["known"] for row in table.rows)
    if not count:
        return ""
    return f"{words.counted(count, 'name')} no rule knows count as compute; --names adds rules."


PAGE = Page(
    "kernels",
    "Kernels & operators",
    50,
    body,
    needs=needs,
    tables={"kernels": _kernels, "operators": _operators},
)
