"""Communication: by axis and operation, waiting or moving, size against bandwidth, who waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from dashboards.components import states
from dashboards.components.cards import figure_card, table_card
from dashboards.components.shell import param
from dashboards.components.table import Column, Table, framed, rows_of
from dashboards.registry import Context, Page
from tracekit.plot import specs
from tracekit.report import summary, words

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

NO_COMM = "No work of this run counts as communication. If some should, give its names as rules:"
HOW_NAMES = "tracekit analyze RUN --names rules.toml"
HOW_SIZES = """torch.profiler.profile(..., record_shapes=True)   # torch 2.4 or later, NCCL
# on gloo, record with tracekit train, which names group, size and axis itself"""


# -- tables ---------------------------------------------------------------------------------------


def _axes(context: Context) -> Table:
    window = context.digest.totals.get("window_us")
    keys = ("comm_us", "overlap_us", "exposed_comm_us", "exposed_share_us")
    rows = [
        {
            "label": group.label or words.NOT_KNOWN,
            "sizes": words.number_list(group.sizes) or words.NOT_KNOWN,
            "num_groups": group.num_groups,
            **group.sums,
            "hidden_frac": words.fraction(group.sums["overlap_us"], group.sums["comm_us"]),
            "window_frac": words.fraction(group.sums["exposed_share_us"], window),
        }
        for group in summary.groups(context.digest.rows("groups"), keys)
    ]
    columns = (
        Column("label", "axis or group", width=110), Column("sizes", "size"),
        Column("num_groups", "groups", "int"), Column("comm_us", "communication", "us"),
        Column("overlap_us", "hidden", "us"), Column("hidden_frac", "hidden", "frac"),
        Column("exposed_share_us", "exposed share", "us"),
        Column("window_frac", "of the time", "frac"),
    )  # fmt: skip
    return Table("axes", "By axis or group, sum over the ranks", columns, rows)


def _operations(context: Context) -> Table:
    columns = (
        Column("rank", "rank", "int"), Column("op", "operation"),
        Column("comm_us", "communication", "us"), Column("overlap_us", "hidden", "us"),
        Column("exposed_comm_us", "exposed", "us"),
        Column("exposed_share_us", "share of the exposed", "us"),
    )  # fmt: skip
    rows = context.digest.rows("operations")
    return Table("operations", "By rank and operation", columns, rows)


def _waits(context: Context) -> Table:
    columns = (
        Column("rank", "rank", "int"), Column("comm_us", "communication", "us"),
        Column("exposed_comm_us", "exposed", "us"), Column("exposed_wait_us", "waiting", "us"),
        Column("exposed_transfer_us", "moving", "us"),
        Column("exposed_unknown_us", "not known", "us"),
        Column("edge_comm_us", "at the edge", "us"),
        Column("clock_offset_us", "clock ahead", "us"),
        Column("clock_spread_us", "its scatter", "us"),
    )  # fmt: skip
    return Table("waits", "Waiting and moving by rank", columns, context.digest.rows("ranks"))


def _pairs(context: Context) -> Table:
    columns = (
        Column("rank", "rank that waits", "int"), Column("last_rank", "for rank", "int"),
        Column("wait_us", "waited", "us"), Column("count", "collectives", "int"),
    )  # fmt: skip
    frame = context.digest.frame("pairs")
    frame = frame[frame["rank"] != frame["last_rank"]]
    rows = rows_of(frame.sort_values("wait_us", ascending=False, kind="stable"))
    return Table("pairs", "Who waits for whom", columns, rows)


def _stragglers(context: Context) -> Table:
    rows = [
        {**row, "share_frac": words.fraction(row["num_last"], row["num_matched"])}
        for row in context.digest.rows("stragglers")
    ]
    columns = (
        Column("rank", "rank", "int"), Column("num_last", "came last in", "int"),
        Column("num_matched", "of", "int"), Column("share_frac", "share", "frac"),
        Column("late_us", "behind the last but one", "us"),
        Column("wait_us", "waited itself", "us"),
    )  # fmt: skip
    return Table("stragglers", "Who arrives last", columns, rows)


def _kinds(context: Context) -> Table:
    columns = (
        Column("op", "operation", width=110), Column("label", "axis or group", width=110),
        Column("bytes", "size", "bytes"), Column("count", "count", "int"),
        Column("wait_us", "first arriver waits", "us"), Column("transfer_us", "transfer", "us"),
        Column("busbw_GBps", "bus bandwidth", "GBps"), Column("total_us", "total", "us"),
    )  # fmt: skip
    rows = rows_of(context.digest.frame("kinds"))
    return Table("kinds", "Collectives by operation, axis and size (medians)", columns, rows)


def _collectives(context: Context) -> Table:
    columns = (
        Column("collective", "#", "int"), Column("op", "operation", width=100),
        Column("label", "axis or group"), Column("ranks", "ranks"), Column("dtype", "type"),
        Column("bytes", "size", "bytes"), Column("start_us", "start", "us"),
        Column("longest_wait_us", "first waits", "us"), Column("transfer_us", "transfer", "us"),
        Column("last_rank", "last rank", "int"), Column("busbw_GBps", "busbw", "GBps"),
        Column("match", "matched by"), Column("edge", "at the edge", "bool"),
        Column("timeline", "timeline", "link"),
    )  # fmt: skip
    frame = context.digest.frame("collectives")

    def finish(row: dict[str, Any]) -> None:
        start_us = row["start_us"] or 0.0
        end_us = start_us + (row["longest_us"] or 1.0)
        at = {"t0": f"{start_us:.3f}", "t1": f"{end_us:.3f}"}
        row["timeline"] = context.href(context.view.elsewhere("timeline", **at))
        row["edge"] = bool(row["edge"])

    def by_wait() -> pd.DataFrame:
        return frame.sort_values("longest_wait_us", ascending=False, kind="stable")

    return Table(
        "collectives", "All collectives, the longest waits first", columns, framed(by_wait, finish)
    )


# -- the page -------------------------------------------------------------------------------------


def link_GBps(context: Context) -> float | None:
    """What the link can carry, as the address says: traces do not tell."""
    try:
        given = float(context.view.params.get("link", ""))
    except ValueError:
        return None
    return given if math.isfinite(given) and given > 0 else None


def body(context: Context) -> Component:
    """The page."""
    digest, theme = context.digest, context.theme
    if not digest.totals.get("comm_us") and not any(
        r["host_comm_us"] for r in digest.rows("ranks")
    ):
        return states.missing("No communication", NO_COMM, HOW_NAMES)
    parts = [table_card(context, _axes(context))]
    if digest.rows("operations"):
        spec = specs.exposure(digest.frame("operations"), by="op", theme=theme)
        parts.append(
            figure_card(
                context, "Exposed and hidden, by operation", spec, name="operations",
                table=_operations(context),
                note="Hidden runs under compute and costs nothing; exposed is what to shorten.",
            )
        )  # fmt: skip
    spec = specs.waiting(digest.frame("ranks"), theme=theme)
    parts.append(
        figure_card(
            context, "Waiting and moving, by rank", spec, name="waiting", table=_waits(context),
            note="Waiting is for a rank that arrives late; a faster network does not shorten it.",
        )
    )  # fmt: skip
    parts += [_matrix(context), _bandwidth(context)]
    parts.append(table_card(context, _stragglers(context), wide=False))
    parts.append(table_card(context, _kinds(context)))
    parts.append(table_card(context, _collectives(context)))
    return html.Div(parts, className="tk-page")


def _matrix(context: Context) -> Component:
    frame = context.digest.frame("pairs")
    if not len(frame) or frame["rank"].nunique() < 2:
        text = (
            "No collective was matched across ranks, so who waits for whom is not known. "
            "Give the traces of all ranks of one job."
        )
        return states.missing("Who waits for whom", text)
    spec = specs.wait_matrix(frame, theme=context.theme)
    return figure_card(
        context, "Who waits for whom", spec, name="matrix", table=_pairs(context),
        note="A bright column is a rank the others wait for.",
    )  # fmt: skip


def _bandwidth(context: Context) -> Component:
    frame = context.digest.frame("kinds")
    limit = link_GBps(context)
    field = dmc.NumberInput(
        id=param("link"), label="Link's limit (GB/s)", value=limit or "", min=0,
        size="xs", w=150, placeholder="not known", debounce=True, hideControls=True,
    )  # fmt: skip
    if not (frame["busbw_GBps"].notna() & frame["bytes"].notna()).any():
        text = "The traces tell no sizes of messages, so bandwidth is not known. To record them:"
        return states.missing("Size against bandwidth", text, HOW_SIZES)
    spec = specs.bandwidth(frame, limit_GBps=limit, theme=context.theme)
    bound = (
        " Where not all ranks are given, it is a lower bound." if frame["is_bound"].any() else ""
    )
    return figure_card(
        context, "Size against bandwidth", spec, name="bandwidth", twin=False,
        table=_kinds(context),
        note=f"Medians by operation, axis and size; bus bandwidth as nccl-tests has it.{bound}",
        before=[html.Div([field], className="tk-row")],
    )  # fmt: skip


PAGE = Page(
    "communication",
    "Communication",
    40,
    body,
    tables={
        "axes": _axes,
        "operations": _operations,
        "waits": _waits,
        "pairs": _pairs,
        "stragglers": _stragglers,
        "kinds": _kinds,
        "collectives": _collectives,
    },
)
