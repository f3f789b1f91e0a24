"""Compare: two runs side by side, per step and rank where both mark steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from dashboards.components import states
from dashboards.components.cards import figure_card, table_card
from dashboards.components.shell import MOST_RUNS, param
from dashboards.components.table import Column, Table
from dashboards.digest import Digest
from dashboards.loading import Ask
from dashboards.registry import Context, Page, own_digest
from tracekit.plot import specs
from tracekit.plot.drawing import PARTS
from tracekit.plot.palette import ROLES
from tracekit.report import summary, words

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

FIGURES = {
    "window_us": "window",
    "compute_us": "compute",
    "exposed_comm_us": "exposed communication",
    "exposed_wait_us": "… waiting for a late rank",
    "exposed_transfer_us": "… moving bytes",
    "exposed_unknown_us": "… not known",
    "exposed_memory_us": "exposed memory copies",
    "other_us": "other work",
    "idle_us": "idle",
    "comm_us": "communication, hidden or not",
}


@dataclass(frozen=True, slots=True)
class Means:
    """Mean figures of a run over its ranks, and over its steps where they are marked."""

    us: Mapping[str, float | None]
    per_step: bool


def needs(context: Context) -> dict[str, Ask]:
    """Both analyses and both lists of names; the steps chosen hold for both."""
    view = context.view
    asked = own_digest(context)
    other = context.catalog.get(view.params["with"]) if view.params.get("with") else None
    if other is not None:
        asked["names"] = Ask("names", context.run, view.steps, view.capture)
        asked["other"] = Ask("digest", other, view.steps, None)
        asked["other_names"] = Ask("names", other, view.steps, None)
    return asked


def means(digest: Digest, per_step: bool) -> Means:
    """Mean over the ranks and, if asked, the steps."""
    frame = digest.frame("steps") if per_step else digest.frame("ranks")
    row: dict[str, Any] = {}
    for name in FIGURES:
        known = frame[name].dropna()
        row[name] = float(known.mean()) if len(known) else None
    return Means(summary.divided(row), per_step)


def both(context: Context) -> tuple[Means, Means]:
    """The means of both runs, of the same kind."""
    a, b = context.digest, context.data["other"]
    per_step = bool(a.step_numbers) and bool(b.step_numbers)
    return means(a, per_step), means(b, per_step)


def _parts(context: Context) -> Table:
    a, b = both(context)
    rows = [
        {"what": told, **difference(a.us.get(name), b.us.get(name))}
        for name, told in FIGURES.items()
    ]
    per = "per rank and step" if a.per_step else "per rank"
    columns = (Column("what", "figure", width=200), *_DIFFERENCE)
    return Table("parts", f"Figures, mean {per}", columns, rows)


_DIFFERENCE = (
    Column("a_us", "A", "us", like="both", absent="–"),
    Column("b_us", "B", "us", like="both", absent="–"),
    Column("delta_us", "B − A", "us", like="both", absent="–"),
    Column("delta_frac", "change", "change", absent="–"),
)


def difference(a_us: float | None, b_us: float | None) -> dict[str, float | None]:
    """Two figures, how much more the second is, and that as a fraction of the first."""
    delta = None if a_us is None or b_us is None else b_us - a_us
    share = words.fraction(delta, a_us) if delta is not None else None
    return {"a_us": a_us, "b_us": b_us, "delta_us": delta, "delta_frac": share}


def _axes(context: Context) -> Table:
    def sums(digest: Digest) -> dict[str, float | None]:
        keys = ("exposed_share_us",)
        ranks = max(1, len(digest.rows("ranks")))
        return {
            group.label or words.NOT_KNOWN: (group.sums["exposed_share_us"] or 0.0) / ranks
            for group in summary.groups(digest.rows("groups"), keys)
        }

    a, b = sums(context.digest), sums(context.data["other"])
    rows = [{"label": label, **difference(a.get(label), b.get(label))} for label in {**a, **b}]
    columns = (Column("label", "axis or group", width=160), *_DIFFERENCE)
    return Table("axes", "Exposed time by axis or group, mean per rank", columns, rows)


def _names(context: Context) -> Table:
    """Names by how much more or less time they take per rank in the second run."""
    a = _per_rank(context.data["names"], context.digest)
    b = _per_rank(context.data["other_names"], context.data["other"])
    rows = []
    for key in {**a, **b}:
        mine, theirs = a.get(key, {}), b.get(key, {})
        told = difference(mine.get("us", 0.0), theirs.get("us", 0.0))
        rows.append(
            {
                "role": key[0], "name": key[1], **told,
                "a_count": mine.get("count", 0), "b_count": theirs.get("count", 0),
            }
        )  # fmt: skip
    rows.sort(key=lambda row: -abs(float(row["delta_us"] or 0.0)))
    columns = (
        Column("name", "name", "mono", 320), Column("role", "role"), *_DIFFERENCE,
        Column("a_count", "calls in A", "int"), Column("b_count", "calls in B", "int"),
    )  # fmt: skip
    return Table("names", "Work by name, per rank, the largest change first", columns, rows)


def _per_rank(held: Digest, digest: Digest) -> dict[tuple[str, str], dict[str, float]]:
    ranks = max(1, len(digest.rows("ranks")))
    frame = held.frame("kernels")
    sums = frame.groupby(["role", "name"], sort=False)[["total_us", "count"]].sum()
    return {
        (str(role), str(name)): {"us": total / ranks, "count": round(count / ranks)}
        for (role, name), total, count in zip(
            sums.index, sums["total_us"], sums["count"], strict=True
        )
    }


def shares(a: Means, b: Means) -> pd.DataFrame:
    """The parts of both windows, for the figure."""
    import pandas as pd

    rows = [
        {"role": role, "a_us": a.us.get(name), "b_us": b.us.get(name)}
        for role, name in PARTS
        if a.us.get(name) or b.us.get(name) or role == "compute"
    ]
    return pd.DataFrame(rows).astype({"a_us": float, "b_us": float})


def body(context: Context) -> Component:
    """The page."""
    picker = _picker(context)
    if "other" not in context.data:
        asked = context.view.params.get("with", "")
        text = f"There is no run {words.safe(asked, 100)!r}." if asked else "Choose a second run."
        alone = len(context.catalog.entries()) < 2
        how = "tracekit dashboard BEFORE AFTER" if alone else ""
        if alone:
            text = "Only one run was given. Give two, or a folder that holds several:"
        gone = states.missing("Two runs side by side", text, how)
        return html.Div([picker, gone], className="tk-page")
    a, b = both(context)
    names = context.run.name, context.view.params["with"]
    per = "rank and step" if a.per_step else "rank"
    spec = specs.side_by_side(shares(a, b), names, theme=context.theme)
    table = _parts(context)
    parts = [
        figure_card(
            context, headline(a, b, per), spec, name="parts", table=table, twin=False, wide=True,
            before=[picker], note=f"Mean of each {per}. {_scope(context)}",
        ),
        table_card(context, table, wide=False),
        table_card(context, _axes(context), wide=False),
        table_card(context, _names(context)),
    ]  # fmt: skip
    return html.Div(parts, className="tk-page")


def headline(a: Means, b: Means, per: str) -> str:
    """Which is faster, by how much, and which part makes the most of it."""
    told = difference(a.us.get("window_us"), b.us.get("window_us"))
    if told["delta_frac"] is None:
        return "The windows are not known"
    changes = [
        (abs(change), change, ROLES[role].label)
        for role, name in PARTS
        if (change := difference(a.us.get(name), b.us.get(name))["delta_us"])
    ]
    word = "longer" if told["delta_frac"] > 0 else "shorter"
    if abs(told["delta_frac"]) < 0.0005:
        return f"B is as long as A per {per}"
    text = f"B is {words.percent(abs(told['delta_frac']))} {word} than A per {per}"
    if changes:
        _, change, label = max(changes)
        text += f"; most of it {label}: {change / 1000:+.4g} ms"
    return text


def _scope(context: Context) -> str:
    if context.view.steps is None:
        return ""
    first, last = context.view.steps
    return f"Steps {first} to {last} of both."


def _picker(context: Context) -> Component:
    names = [e.name for e in context.catalog.entries() if e.name != context.run.name][:MOST_RUNS]
    given = context.view.params.get("with")
    choice = dmc.Select(
        id=param("with"), label="B: compare with", value=given if given in names else None,
        data=[{"value": name, "label": words.safe(name, 120)} for name in names],
        searchable=True, size="xs", w=320, placeholder="choose a run", disabled=not names,
    )  # fmt: skip
    return html.Div([choice], className="tk-row")


PAGE = Page(
    "compare",
    "Compare",
    60,
    body,
    needs=needs,
    tables={"parts": _parts, "axes": _axes, "names": _names},
)
