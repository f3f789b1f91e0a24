"""The figures as plain dicts for plotly.js: made in milliseconds, without plotly's own checks.

Each function here is described under its name in `tracekit.plot.figures`, which gives the same as
plotly's class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.plot.drawing import (
    MAX_MARKS,
    MONO,
    PARTS,
    Spec,
    bar,
    figure,
    floats,
    heat,
    ints,
    is_missing,
    lying_bar,
    name,
    parts,
    percent,
    shown,
    unit_of,
    whole,
)
from tracekit.plot.palette import GROUND, ROLES, Theme, axis_paints

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.plot.drawing import Floats

#: steps up to this number are bars, more are lines
MAX_STEP_BARS = 60
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
#: so that a figure of a few bars suits one beside it
_LEAST_PX = 250
_STACK = {"barmode": "stack", "bargap": 0.25}
_DOWN = {"autorange": "reversed", "type": "category"}


# -- where the time goes --------------------------------------------------------------------------


def division(
    frame: pd.DataFrame, *, by: str = "rank", share: bool = False, theme: Theme = "light"
) -> Spec:
    """Each row's window as one bar of the parts that add up to it."""
    names = [name(f"{by} {value}" if by == "rank" else value) for value in frame[by]]
    window = floats(frame, "window_us")
    if len(frame) * len(PARTS) > MAX_MARKS:
        return _shares(frame, names, by, theme)
    factor, unit = unit_of(window)
    traces = []
    for role, values in parts(frame).items():
        of_window = percent(values, window)
        traces.append(
            lying_bar(
                of_window if share else values / factor,
                role,
                theme,
                y=names,
                customdata=list(zip(shown(values / factor), shown(of_window), strict=True)),
                hovertemplate=f"%{{y}}<br>%{{customdata[0]:.4g}} {unit}, %{{customdata[1]:.1f}} %",
            )
        )
    title = "% of the window" if share else f"time ({unit})"
    height = max(_LEAST_PX, 90 + 22 * len(frame))
    return figure(traces, theme, height, {"title": title}, _DOWN, **_STACK)


def _shares(frame: pd.DataFrame, names: list[str], by: str, theme: Theme) -> Spec:
    """The parts of very many rows, as a heat-map."""
    window, found = floats(frame, "window_us"), parts(frame)
    z = np.array([percent(values, window) for values in found.values()])
    trace = heat(z, names, [ROLES[role].label for role in found], "%", "%{x}, %{y}")
    return figure([trace], theme, 320, {"title": by, "type": "category"}, _DOWN)


def trend(steps: pd.DataFrame, *, theme: Theme = "light") -> Spec:
    """How the steps go: the parts of each, mean over the ranks, and the slowest rank's window."""
    held = steps[steps["step"].notna()]
    numbers, where = np.unique(np.array(ints(held, "step"), dtype=np.int64), return_inverse=True)
    x = numbers.tolist()
    slowest = np.full(len(x), np.nan)
    np.fmax.at(slowest, where, floats(held, "window_us"))
    factor, unit = unit_of(slowest)
    few = len(x) <= MAX_STEP_BARS
    more: Spec = {"x": x, "hovertemplate": f"step %{{x}}: %{{y:.4g}} {unit}"}
    count = np.bincount(where, minlength=len(x))
    traces = []
    for role, values in parts(held).items():
        y = np.bincount(where, weights=values, minlength=len(x)) / np.maximum(1, count) / factor
        if few:
            traces.append(bar(y, role, theme, **more))
        else:
            color = ROLES[role].on(theme)
            line = {"width": 0.5, "color": color}
            area = {"stackgroup": "parts", "mode": "lines", "line": line, "fillcolor": color}
            base = {"type": "scatter", "y": shown(y), "name": ROLES[role].label}
            traces.append({**base, **area, **more})
    traces.append(
        {
            "type": "scatter",
            "y": shown(slowest / factor),
            "name": "slowest rank",
            "mode": "lines+markers" if few else "lines",
            "line": {"color": GROUND["ink"].on(theme), "width": 1.5, "dash": "dot"},
            "marker": {"symbol": "line-ew-open", "size": 9},
            **more,
        }
    )
    y_axis = {"title": f"mean over ranks ({unit})", "rangemode": "tozero"}
    x_axis = {"title": "step", **whole(x)}
    return figure(traces, theme, 300, x_axis, y_axis, barmode="stack", bargap=0.2)


def heatmap(
    steps: pd.DataFrame, column: str = "window_us", *, share: bool = False, theme: Theme = "light"
) -> Spec:
    """One figure of every rank and step, as a heat-map; what is not known stays blank."""
    if column not in steps:
        raise ValueError(f"column={column!r}: there is no such column; give one of the figures")
    ranks, numbers, grid = pivot(steps, column)
    unit = "%"
    if column.endswith("_frac"):
        grid = 100 * grid
    elif share:
        grid = percent(grid, pivot(steps, "window_us")[2])
    else:
        factor, unit = unit_of(grid)
        grid = grid / factor
    trace = heat(grid, numbers, ranks, unit, "rank %{y}, step %{x}")
    height = int(min(760, max(220, 120 + 22 * len(ranks))))
    y = {"title": "rank", "autorange": "reversed", **whole(ranks)}
    return figure([trace], theme, height, {"title": "step", **whole(numbers)}, y)


def pivot(steps: pd.DataFrame, column: str) -> tuple[list[int], list[int], Floats]:
    """Ranks, steps and the figure by rank (rows) and step (columns), NaN where not known."""
    held = steps[steps["step"].notna()]
    ranks, row = np.unique(held["rank"].to_numpy(dtype=np.int64), return_inverse=True)
    numbers, at = np.unique(held["step"].to_numpy(dtype=np.int64), return_inverse=True)
    grid = np.full((len(ranks), len(numbers)), np.nan)
    grid[row, at] = floats(held, column)
    return ranks.tolist(), numbers.tolist(), grid


# -- communication --------------------------------------------------------------------------------


def exposure(frame: pd.DataFrame, *, by: str, theme: Theme = "light") -> Spec:
    """Exposed and hidden communication summed over the ranks, a bar for each axis or operation."""
    sums: dict[str, list[float]] = {}
    exposed, hidden = floats(frame, "exposed_share_us"), floats(frame, "overlap_us")
    for called, *values in zip(frame[by], exposed, hidden, strict=True):
        held = sums.setdefault("not known" if is_missing(called) else str(called), [0.0, 0.0])
        for at, value in enumerate(np.nan_to_num(values)):
            held[at] += float(value)
    order = sorted(sums, key=lambda key: -sums[key][0])[: MAX_MARKS // 2]
    factor, unit = unit_of([sum(sums[key]) for key in order])
    labels = [name(key) for key in order]
    traces = [
        lying_bar(
            [sums[key][at] / factor for key in order],
            role,
            theme,
            y=labels,
            name=label,
            hovertemplate=f"%{{y}}: %{{x:.4g}} {unit}",
        )
        for at, role, label in (
            (0, "comm", "exposed"),
            (1, "hidden_comm", "hidden under compute"),
        )
    ]
    height = max(_LEAST_PX, 96 + 26 * len(order))
    return figure(traces, theme, height, {"title": f"sum over ranks ({unit})"}, _DOWN, **_STACK)


def waiting(ranks: pd.DataFrame, *, theme: Theme = "light") -> Spec:
    """Each rank's exposed communication: waiting for a late rank, moving bytes, not known."""
    roles = {role: np.nan_to_num(floats(ranks, column)) for role, column in PARTS[1:4]}
    factor, unit = unit_of(sum(roles.values()))
    x = ints(ranks, "rank")
    hover = f"rank %{{x}}: %{{y:.4g}} {unit}"
    traces = [
        bar(values / factor, role, theme, x=x, hovertemplate=hover)
        for role, values in roles.items()
    ]
    y_axis = {"title": f"exposed communication ({unit})"}
    return figure(traces, theme, 280, {"title": "rank", **whole(x)}, y_axis, **_STACK)


def wait_matrix(members: pd.DataFrame, *, theme: Theme = "light") -> Spec:
    """How long each rank waited for each other one: rows wait, columns arrive last."""
    held = members[members["last_rank"].notna() & members["wait_us"].notna()]
    rank = held["rank"].to_numpy(dtype=np.int64)
    last = held["last_rank"].to_numpy(dtype=np.int64)
    ranks = np.unique(np.concatenate([rank, last]))
    grid = np.zeros((len(ranks), len(ranks)))
    at = np.searchsorted(ranks, rank), np.searchsorted(ranks, last)
    np.add.at(grid, at, floats(held, "wait_us"))
    np.fill_diagonal(grid, np.nan)
    factor, unit = unit_of(grid)
    names = ranks.tolist()
    trace = heat(grid / factor, names, names, unit, "rank %{y} waits for rank %{x}")
    height = int(min(640, max(360, 130 + 26 * len(names))))
    y = {"title": "rank that waits", "autorange": "reversed", **whole(names)}
    return figure([trace], theme, height, {"title": "rank that arrives last", **whole(names)}, y)


def bandwidth(
    kinds: pd.DataFrame, *, limit_GBps: float | None = None, theme: Theme = "light"
) -> Spec:
    """Size of message against bus bandwidth, one mark for each operation, axis and size."""
    held = kinds[kinds["busbw_GBps"].notna() & kinds["bytes"].notna()]
    held = held[floats(held, "bytes") > 0].head(MAX_MARKS)
    paints = axis_paints(list(dict.fromkeys(str(label) for label in held["label"])))
    ops = list(dict.fromkeys(str(op) for op in held["op"]))
    ink = GROUND["ink"].on(theme)
    traces = []
    for (op, label), rows in held.groupby(["op", "label"], sort=False):
        symbol = _SYMBOLS[ops.index(str(op)) % len(_SYMBOLS)]
        color = paints[str(label)].on(theme)
        traces.append(
            {
                "type": "scatter",
                "x": shown(floats(rows, "bytes")),
                "y": shown(floats(rows, "busbw_GBps")),
                "customdata": shown(floats(rows, "count")),
                "mode": "markers",
                "name": f"{name(op)}, {name(label)}",
                "marker": {
                    "color": color,
                    "symbol": symbol,
                    "size": 9,
                    "line": {"width": 1, "color": ink},
                },
                "hovertemplate": "%{x:.4s}B: %{y:.3g} GB/s, median of %{customdata:.0f}",
            }
        )
    layout: Spec = {} if limit_GBps is None else _limit_line(limit_GBps, theme)
    x = {"title": "message (bytes)", "type": "log", "ticksuffix": "B", "exponentformat": "SI"}
    y = {"title": "bus bandwidth (GB/s)", "type": "log"}
    return figure(traces, theme, 340, x, y, **layout)


def _limit_line(limit_GBps: float, theme: Theme) -> Spec:
    color = GROUND["focus"].on(theme)
    across = {"xref": "paper", "x0": 0, "x1": 1, "y0": limit_GBps, "y1": limit_GBps}
    words = {"xref": "paper", "x": 1, "xanchor": "right", "y": float(np.log10(limit_GBps))}
    text = {"text": f"link: {limit_GBps:.4g} GB/s", "showarrow": False, "yanchor": "bottom"}
    return {
        "shapes": [{"type": "line", **across, "line": {"color": color, "dash": "dash"}}],
        "annotations": [{**words, **text, "font": {"size": 11, "color": color}}],
    }


# -- names and comparison -------------------------------------------------------------------------


def names(frame: pd.DataFrame, *, top: int = 20, theme: Theme = "light") -> Spec:
    """The names that take the time, the longest first."""
    held = frame.sort_values("total_us", ascending=False, kind="stable").head(min(top, MAX_MARKS))
    total = floats(held, "total_us")
    factor, unit = unit_of(total)
    roles = [str(role) for role in held["role"]] if "role" in held else ["compute"] * len(held)
    tips = [
        [name(text, 200), int(count)]
        for text, count in zip(held["name"], held["count"], strict=True)
    ]
    traces = []
    for role in dict.fromkeys(roles):
        mine = [at for at, other in enumerate(roles) if other == role]
        traces.append(
            lying_bar(
                total[mine] / factor,
                role if role in ROLES else "other",
                theme,
                y=mine,
                width=0.74,
                customdata=[tips[at] for at in mine],
                hovertemplate=f"%{{customdata[0]}}<br>%{{x:.4g}} {unit}, %{{customdata[1]}} calls",
            )
        )
    y: dict[str, Any] = {
        "autorange": "reversed",
        "tickvals": list(range(len(tips))),
        "ticktext": [name(text, 44) for text in held["name"]],
        "tickfont": {"family": MONO, "size": 11},
    }
    height = 90 + 20 * max(2, len(held))
    title = {"title": f"total ({unit})"}
    return figure(traces, theme, height, title, y, barmode="overlay", bargap=0.25)


def side_by_side(shares: pd.DataFrame, called: tuple[str, str], *, theme: Theme = "light") -> Spec:
    """Two runs' parts as two bars."""
    a, b = floats(shares, "a_us"), floats(shares, "b_us")
    factor, unit = unit_of([np.nansum(a), np.nansum(b)])
    labels = [f"{letter}: {name(text, 30)}" for letter, text in zip("AB", called, strict=True)]
    traces = [
        lying_bar(
            np.nan_to_num([a[at], b[at]]) / factor,
            role,
            theme,
            y=labels,
            hovertemplate=f"%{{y}}: %{{x:.4g}} {unit}",
        )
        for at, role in enumerate(shares["role"])
    ]
    return figure(traces, theme, 170, {"title": unit}, _DOWN, **_STACK)
