"""What all figures share: units, escaped names, paints of roles, and one quiet look.

Everything is the plain dicts that plotly.js reads, so that neither plotly nor pandas is needed.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.core.errors import one_line
from tracekit.plot.palette import GROUND, HATCHED, ROLES, Theme

if TYPE_CHECKING:
    import pandas as pd

    Floats = np.ndarray[Any, np.dtype[np.float64]]

Spec = dict[str, Any]
#: what SVG draws and redraws within a third of a second
MAX_MARKS = 1500
MAX_NAME = 60
#: parts of a window that add up to it: role of the palette, figure
PARTS: tuple[tuple[str, str], ...] = (
    ("compute", "compute_us"),
    ("wait", "exposed_wait_us"),
    ("transfer", "exposed_transfer_us"),
    ("unknown", "exposed_unknown_us"),
    ("memory", "exposed_memory_us"),
    ("other", "other_us"),
    ("idle", "idle_us"),
)
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, monospace"


# -- figures of frames ----------------------------------------------------------------------------


def floats(frame: pd.DataFrame, column: str) -> Floats:
    """A column as floats, NaN where it is missing."""
    if column not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(frame[column].to_numpy(dtype=float, na_value=np.nan), dtype=np.float64)


def ints(frame: pd.DataFrame, column: str) -> list[int]:
    """A column without gaps as whole numbers."""
    return [int(value) for value in frame[column]]


def parts(frame: pd.DataFrame) -> dict[str, Floats]:
    """The parts of each row's window by role; idle time is without what other work keeps busy."""
    found = {role: np.nan_to_num(floats(frame, figure)) for role, figure in PARTS}
    found["idle"] = np.maximum(0.0, found["idle"] - found["other"])
    return {role: values for role, values in found.items() if role == "compute" or values.any()}


def percent(part: Floats, whole: Floats) -> Floats:
    """``part`` in percent of ``whole``, NaN where that is 0 or not known."""
    share = np.full(np.shape(part), np.nan)
    np.divide(100.0 * part, whole, out=share, where=np.nan_to_num(whole) > 0)
    return share


def unit_of(values_us: Any) -> tuple[float, str]:
    """What to divide microseconds by so that the largest reads well, and the unit.

    Examples
    --------
    >>> unit_of([3.0, float("nan")]), unit_of([2500.0]), unit_of([2.5e7])
    ((1.0, 'µs'), (1000.0, 'ms'), (1000000.0, 's'))
    """
    known = np.abs(np.asarray(values_us, dtype=float))
    largest = float(np.max(known[np.isfinite(known)], initial=0.0))
    if largest >= 1e7:
        return 1e6, "s"
    return (1e3, "ms") if largest >= 1e3 else (1.0, "µs")


def is_missing(value: Any) -> bool:
    """Whether a cell of a frame holds nothing: None, NaN or ``<NA>``."""
    return value is None or value != value or str(value) == "<NA>"  # noqa: PLR0124 - NaN


def name(text: Any, limit: int = MAX_NAME) -> str:
    """A foreign text as Plotly shows it unchanged: one line, no markup, cut in the middle.

    Examples
    --------
    >>> name("<b>gemm</b>"), name("abcdefghij", limit=6)
    ('&lt;b&gt;gemm&lt;/b&gt;', 'abcd…j')
    """
    flat = one_line(str(text), limit=4000).strip() or "(no name)"
    if len(flat) > limit:
        flat = f"{flat[: limit * 2 // 3]}…{flat[len(flat) - limit // 3 + 1 :]}"
    return html.escape(flat, quote=False)


def packed(values: Any) -> Any:
    """Numbers as plotly.js reads them fastest: base64 of float32, which halves what is sent."""
    array = np.ascontiguousarray(values, dtype=np.float32)
    spec = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode("ascii")}
    if array.ndim > 1:
        spec["shape"] = ", ".join(map(str, array.shape))
    return spec


def unpacked(spec: Spec) -> Floats:
    """The numbers `packed` made.

    Examples
    --------
    >>> unpacked(packed([[1.0, 2.0], [3.0, 4.5]])).tolist()
    [[1.0, 2.0], [3.0, 4.5]]
    """
    flat = np.frombuffer(base64.b64decode(spec["bdata"]), dtype=np.float32)
    sides = [int(side) for side in spec.get("shape", str(len(flat))).split(",")]
    return flat.reshape(sides).astype(np.float64)


def shown(values: Any) -> list[Any]:
    """Numbers as a list with None for what is not known; of few marks, so that tests can read."""
    return [None if v != v else float(v) for v in np.asarray(values, dtype=float)]  # noqa: PLR0124


# -- the look -------------------------------------------------------------------------------------


def paint(role: str, theme: Theme) -> Spec:
    """The marker of a role: its colour, with lines over it where the palette says so."""
    marker: Spec = {"color": ROLES[role].on(theme), "line": {"width": 0}}
    if role in HATCHED:
        ink = "rgba(0,0,0,0.4)"
        marker["pattern"] = {"shape": "/", "fgcolor": ink, "size": 5, "solidity": 0.2}
        marker["pattern"] |= {"bgcolor": marker["color"], "fgopacity": 1}
    return marker


def whole(numbers: Sequence[int]) -> Spec:
    """An axis of whole numbers: none between them, a tick on each where there is room.

    Examples
    --------
    >>> whole([4, 5]), whole(range(100))
    ({'tickformat': 'd', 'tickmode': 'array', 'tickvals': [4, 5]}, {'tickformat': 'd'})
    """
    if len(numbers) > 1 and numbers[-1] - numbers[0] > 24:
        return {"tickformat": "d"}
    return {"tickformat": "d", "tickmode": "array", "tickvals": list(numbers)}


def bar(values: Any, role: str, theme: Theme, **more: Any) -> Spec:
    """A trace of vertical bars in the paint of a role; ``more`` is as plotly.js names it."""
    return {
        "type": "bar",
        "y": shown(values),
        "name": ROLES[role].label,
        "marker": paint(role, theme),
        **more,
    }


def lying_bar(values: Any, role: str, theme: Theme, **more: Any) -> Spec:
    """A trace of horizontal bars in the paint of a role."""
    return {**bar([], role, theme, **more), "x": shown(values), "orientation": "h"}


def heat(z: Floats, x: Sequence[Any], y: Sequence[Any], unit: str, hover: str) -> Spec:
    """A heat-map trace; what is NaN stays blank. Values on both sides of 0 diverge from it."""
    scale: Mapping[str, Any] = {"colorscale": "Cividis"}
    if np.nanmin(z, initial=0.0) < 0:
        scale = {"colorscale": "RdBu", "zmid": 0, "reversescale": False}
    return {
        "type": "heatmap",
        "z": packed(z),
        "x": list(x),
        "y": list(y),
        "xgap": 1 if len(x) <= 120 else 0,
        "ygap": 1 if len(y) <= 64 else 0,
        "hoverongaps": False,
        "hovertemplate": f"{hover}: %{{z:.4g}} {unit}<extra></extra>",
        "colorbar": {"title": {"text": unit}, "thickness": 12, "outlinewidth": 0},
        **scale,
    }


def figure(traces: list[Spec], theme: Theme, height: int, x: Spec, y: Spec, **layout: Any) -> Spec:
    """A whole figure in the look all share, on the ground of the page around.

    Parameters
    ----------
    traces : list of dict
    theme : {"light", "dark"}
    height : int
        In pixels.
    x, y : dict
        The axes; ``title`` is a plain text.
    **layout
        What else plotly.js calls layout.
    """
    ink, line = GROUND["ink"].on(theme), GROUND["line"].on(theme)
    return {
        "data": traces,
        "layout": {
            "height": height,
            "margin": {"l": 8, "r": 8, "t": 34, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": _FONT, "size": 12, "color": ink},
            "hoverlabel": {
                "bgcolor": GROUND["panel"].on(theme),
                "bordercolor": line,
                "align": "left",
                "font": {"color": ink, "family": _FONT},
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": 1,
                "yanchor": "bottom",
                "traceorder": "normal",
                "font": {"size": 11},
            },
            "showlegend": len(traces) > 1,
            "xaxis": _axis(x, theme),
            "yaxis": _axis(y, theme),
            **layout,
        },
    }


def _axis(given: Spec, theme: Theme) -> Spec:
    ink, line, faint = (GROUND[part].on(theme) for part in ("ink", "line", "faint"))
    title = {"text": given.get("title", ""), "font": {"size": 11, "color": faint}, "standoff": 8}
    return {
        "gridcolor": line,
        "zerolinecolor": line,
        "linecolor": line,
        "automargin": True,
        "tickfont": {"size": 11, "color": ink},
        **given,
        "title": title,
    }
