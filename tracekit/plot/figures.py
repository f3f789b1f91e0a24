"""Plotly figures of the frames a `Run` gives: each a pure function, small enough to stay quick.

No figure holds more than about 1,500 marks; what has more becomes a heat-map or is summed up.
Texts from traces are escaped, because Plotly reads a part of HTML. All take ``theme``, ``"light"``
or ``"dark"``; the ground is transparent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.plot import specs
from tracekit.plot.drawing import Spec, unpacked
from tracekit.plot.palette import Theme

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def _figure(spec: Spec) -> go.Figure:
    import plotly.graph_objects as go

    traces = [{**t, "z": unpacked(t["z"])} if "z" in t else t for t in spec["data"]]
    return go.Figure({**spec, "data": traces}).update_layout(template="none")


def division(
    frame: pd.DataFrame, *, by: str = "rank", share: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Each row's window as one bar of the parts that add up to it.

    Parameters
    ----------
    frame : DataFrame
        `Run.breakdown()`, `Run.phases()`, or any with the figures in µs.
    by : str
        The column that names a bar.
    share : bool
        Percent of the row's window instead of time.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        Bars; a heat-map of shares where there are more parts than 1,500.

    Examples
    --------
    >>> import tracekit
    >>> figure = division(tracekit.open("sample_traces/ddp_4").breakdown())
    >>> [bar.name for bar in figure.data][:3]
    ['compute', 'waiting for a late rank', 'moving bytes']
    """
    return _figure(specs.division(frame, by=by, share=share, theme=theme))


def trend(steps: pd.DataFrame, *, theme: Theme = "light") -> go.Figure:
    """How the steps go: the parts of each, mean over the ranks, and the slowest rank's window.

    Parameters
    ----------
    steps : DataFrame
        `Run.steps()`; rows without a step number are left out.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import tracekit
    >>> figure = trend(tracekit.open("sample_traces/ddp_4").steps())
    >>> figure.data[-1].name, figure.data[-1].x
    ('slowest rank', (4, 5, 6))
    """
    return _figure(specs.trend(steps, theme=theme))


def heatmap(
    steps: pd.DataFrame, column: str = "window_us", *, share: bool = False, theme: Theme = "light"
) -> go.Figure:
    """One figure of every rank and step, as a heat-map; what is not known stays blank.

    Parameters
    ----------
    steps : DataFrame
        `Run.steps()`.
    column : str
        What to show: a column in µs, or a fraction.
    share : bool
        Percent of the step's window instead of time.
    theme : {"light", "dark"}

    Raises
    ------
    ValueError
        When there is no such column.

    Examples
    --------
    >>> import tracekit
    >>> figure = heatmap(tracekit.open("sample_traces/ddp_4").steps(), "idle_us")
    >>> figure.data[0].z.shape
    (4, 3)
    """
    return _figure(specs.heatmap(steps, column, share=share, theme=theme))


def exposure(frame: pd.DataFrame, *, by: str, theme: Theme = "light") -> go.Figure:
    """Exposed and hidden communication summed over the ranks, a bar for each axis or operation.

    Parameters
    ----------
    frame : DataFrame
        `Run.groups()` or `Run.operations()`; exposed is ``exposed_share_us``, hidden is
        ``overlap_us``.
    by : str
        The column that names a bar, such as ``axis`` or ``op``.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import tracekit
    >>> figure = exposure(tracekit.open("sample_traces/tp_2x2").groups(), by="axis")
    >>> figure.data[0].y
    ('y', 'x')
    """
    return _figure(specs.exposure(frame, by=by, theme=theme))


def waiting(ranks: pd.DataFrame, *, theme: Theme = "light") -> go.Figure:
    """Each rank's exposed communication: waiting for a late rank, moving bytes, not known.

    Parameters
    ----------
    ranks : DataFrame
        `Run.breakdown()`.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import tracekit
    >>> figure = waiting(tracekit.open("sample_traces/ddp_4").breakdown())
    >>> [round(y, 3) for y in figure.data[0].y]
    [54.105, 50.199, 0.0, 48.413]
    """
    return _figure(specs.waiting(ranks, theme=theme))


def wait_matrix(members: pd.DataFrame, *, theme: Theme = "light") -> go.Figure:
    """How long each rank waited for each other one: rows wait, columns arrive last.

    Parameters
    ----------
    members : DataFrame
        With ``rank``, ``last_rank`` and ``wait_us``; rows of one pair are summed.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import tracekit
    >>> run = tracekit.open("sample_traces/ddp_4")
    >>> last = run.collectives()[["collective", "last_rank"]]
    >>> figure = wait_matrix(run.collective_members().merge(last, on="collective"))
    >>> figure.data[0].z.shape
    (4, 4)
    """
    return _figure(specs.wait_matrix(members, theme=theme))


def bandwidth(
    kinds: pd.DataFrame, *, limit_GBps: float | None = None, theme: Theme = "light"
) -> go.Figure:
    """Size of message against bus bandwidth, one mark for each operation, axis and size.

    Parameters
    ----------
    kinds : DataFrame
        With ``op``, ``label`` (axis or group), ``bytes``, ``busbw_GBps`` and ``count``.
    limit_GBps : float, optional
        What the link can carry, drawn as a line.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import tracekit
    >>> sizes = tracekit.open("sample_traces/tp_2x2").collectives().groupby(
    ...     ["op", "axis", "bytes"], as_index=False
    ... )
    >>> kinds = sizes.agg(busbw_GBps=("busbw_GBps", "median"), count=("collective", "count"))
    >>> figure = bandwidth(kinds.rename(columns={"axis": "label"}), limit_GBps=1.25)
    >>> [points.name for points in figure.data]
    ['all_gather, y', 'all_reduce, x', 'all_reduce, y']
    """
    return _figure(specs.bandwidth(kinds, limit_GBps=limit_GBps, theme=theme))


def names(frame: pd.DataFrame, *, top: int = 20, theme: Theme = "light") -> go.Figure:
    """The names that take the time, the longest first.

    Parameters
    ----------
    frame : DataFrame
        With ``name``, ``total_us``, ``count`` and, where known, ``role``; one bar a row.
    top : int
        How many to show.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import tracekit
    >>> figure = names(tracekit.open("sample_traces/ddp_4", ranks=0).kernels(), top=3)
    >>> figure.layout.yaxis.ticktext[0]
    'gloo:all_reduce'
    """
    return _figure(specs.names(frame, top=top, theme=theme))


def side_by_side(
    shares: pd.DataFrame, called: tuple[str, str], *, theme: Theme = "light"
) -> go.Figure:
    """Two runs' parts as two bars.

    Parameters
    ----------
    shares : DataFrame
        With ``role`` (a role of the palette), ``a_us`` and ``b_us``.
    called : (str, str)
        What the runs are called.
    theme : {"light", "dark"}

    Examples
    --------
    >>> import pandas as pd
    >>> shares = pd.DataFrame({"role": ["compute"], "a_us": [2000.0], "b_us": [1000.0]})
    >>> side_by_side(shares, ("before", "after")).data[0].x
    (2.0, 1.0)
    """
    return _figure(specs.side_by_side(shares, called, theme=theme))
