"""Open the traces of one job, or take over a trace that Pipit has read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from tracekit.api.asked import rank_set
from tracekit.api.run import Run
from tracekit.core.errors import UsageError
from tracekit.io.sources import Limits
from tracekit.model.files import OpenOptions
from tracekit.model.pipit import run_of
from tracekit.model.run import open_run


def open(  # noqa: A001  # the word everybody knows; it is called as tracekit.open
    *paths: str | os.PathLike[str],
    names: str | os.PathLike[str] | None = None,
    ranks: int | Iterable[int] | None = None,
    capture: int | None = None,
    store: bool = True,
    limit_gib: float | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Run:
    """Open the traces of one job.

    Parameters
    ----------
    *paths : str or path
        Files, folders, glob patterns, zip archives.
    names : str or path, optional
        TOML file with your own rules for event names.
    ranks : int or iterable of int, optional
        Only these ranks.
    capture : int, optional
        Which capture (1 = first in time), where a folder holds several of each rank.
    store : bool
        Whether to keep what was read in the user's cache folder, so that the next opening is
        fast.
    limit_gib : float, optional
        Most GiB that one file may unpack to.
    progress : callable, optional
        Called with (what, fraction done) while files are read.

    Returns
    -------
    Run

    Raises
    ------
    NoTraceError
        When nothing readable is found.
    UsageError
        When two files hold the same rank, or a chosen rank or capture is absent.

    Examples
    --------
    >>> import tracekit
    >>> run = tracekit.open("sample_traces/ddp_4")
    >>> run.breakdown()[["rank", "window_us", "compute_us", "exposed_comm_us", "idle_us"]]
       rank   window_us  compute_us  exposed_comm_us    idle_us
    0     0  101632.182   18283.932        75373.077   7975.173
    1     1   87307.632   12190.152        73132.302   1985.178
    2     2   91515.871   12252.426        13145.853  66117.592
    3     3   94985.155   21492.953        64534.621   8957.581
    """
    if not paths:
        raise UsageError("no path to open", hint='call open("folder")')
    if capture is not None and type(capture) is not int:
        raise UsageError(f"capture={capture!r} is no whole number", hint="they count from 1")
    limits = Limits()
    if limit_gib is not None:
        if not (math.isfinite(limit_gib) and limit_gib > 0):
            raise UsageError(f"limit_gib={limit_gib!r} is no size", hint="give a number above 0")
        limits = Limits.of_gib(limit_gib)
    options = OpenOptions(
        names=None if names is None else os.fspath(names),
        ranks=None if ranks is None else rank_set(ranks),
        capture=capture,
        store=store,
        limits=limits,
        progress=progress,
    )
    return Run(open_run([os.fspath(p) for p in paths], options=options))


def from_pipit(trace: Any, *, names: str | os.PathLike[str] | None = None) -> Run:
    """A run of whatever Pipit has read: OTF2, Projections, Nsight, HPCToolkit, CSV.

    Every Process becomes a rank. What `Run.to_pipit` wrote comes back with its categories and
    links. Of other traces there is no more than names: MPI calls (``MPI_Allreduce``) and
    collective libraries' kernels are communication, ``Idle`` is no work, all else is compute.
    Communicators are not read: MPI collectives are matched by operation, order and time.

    Parameters
    ----------
    trace : pipit.Trace or DataFrame
        The trace, or its events frame.
    names : str or path, optional
        TOML file with your own rules for event names.

    Returns
    -------
    Run

    Raises
    ------
    UsageError
        When it is neither, lacks a column, or holds no complete event.

    Examples
    --------
    >>> import pandas as pd, tracekit
    >>> events = pd.DataFrame({
    ...     "Timestamp (ns)": [0, 2000, 5000, 9000],
    ...     "Event Type": ["Enter", "Enter", "Leave", "Leave"],
    ...     "Name": ["main", "MPI_Allreduce", "MPI_Allreduce", "main"],
    ...     "Process": [0, 0, 0, 0],
    ... })
    >>> tracekit.from_pipit(events).breakdown()[["window_us", "compute_us", "exposed_comm_us"]]
       window_us  compute_us  exposed_comm_us
    0        9.0         6.0              3.0
    """
    return Run(run_of(trace, None if names is None else os.fspath(names)))
