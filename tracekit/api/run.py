"""A run as notebooks and scripts see it: frames with units in their column names."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracekit.analysis.members import member_rows
from tracekit.analysis.profiles import kernel_rows, operator_rows
from tracekit.analysis.rows import Row, us
from tracekit.analysis.selection import part_of, selection
from tracekit.api.asked import Key, RangeUs, Steps, check_top, selection_key
from tracekit.core.errors import UsageError
from tracekit.model.pipit import pipit_trace
from tracekit.model.run import TraceSet
from tracekit.model.trace import Trace
from tracekit.report import words
from tracekit.report.document import document
from tracekit.report.frames import CLOCKS, MEMBERS, OPERATORS, frame
from tracekit.report.notebook import Notes, card, notes_of
from tracekit.report.tables import TABLES, Tables

if TYPE_CHECKING:
    import pandas as pd
    from anywidget import AnyWidget

    from tracekit.plot.timeline import Timeline

FORMATS = ("csv", "parquet", "perfetto")
#: analyses kept in memory, one per selection of steps and time
KEPT = 8


class Run:
    """The traces of one job, and what they tell; made by `tracekit.open`.

    Every method that takes ``steps`` and ``range_us`` answers for that part of the run: ``steps``
    is one step number or (first, last), both included; ``range_us`` is (start, end) in µs from the
    earliest start of all ranks on the corrected clock. What was analysed once is kept. Each call
    gives a frame of its own: float64 µs with NaN for what is not known, Int64 counts with
    ``<NA>``.

    Parameters
    ----------
    traces : TraceSet
        The opened traces.

    Examples
    --------
    >>> import tracekit
    >>> tracekit.open("sample_traces/ddp_4", ranks=[0, 2])
    <tracekit.Run: ranks 0,2>
    """

    def __init__(self, traces: TraceSet) -> None:
        self._traces = traces
        self._documents: dict[Key, dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"<tracekit.Run: {words.ranks(self.ranks)}>"

    def _repr_html_(self) -> str:
        """A card: ranks, steps, the division of time, what stands out; analyzes the run."""
        return card(self._document())

    # -- what it is ---------------------------------------------------------------------------

    @property
    def ranks(self) -> list[int]:
        """The ranks whose traces are here, sorted."""
        return list(self._traces.ranks)

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the job, as the traces say; None when none does."""
        return self._traces.world_size

    def trace(self, rank: int) -> Trace:
        """One rank's trace; its ``events`` are a frame with one row per event.

        Raises
        ------
        UsageError
            When the rank is not among `ranks`.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> events = run.trace(2).events
        >>> events.loc[events["role"] == "comm", ["name", "dur_us"]].head(2)
                        name    dur_us
        178  gloo:all_reduce  2430.281
        219  gloo:all_reduce  1595.639
        """
        return self._traces.trace(rank)

    @property
    def notes(self) -> Notes:
        """What was odd in the traces, and what limits the answers; the gravest first.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4", ranks=[2])
        >>> run.notes[0].code
        'host-timeline'
        """
        return notes_of(self._document())

    def findings(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """What stands out and what to do about it, the most costly first.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Returns
        -------
        DataFrame
            ``gain_us`` is the most that mending it can bring, summed over ranks; ``gain_frac`` the
            same as a fraction of the summed window; ``evidence`` is JSON.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> run.findings()["code"].iloc[0]
        'late-rank'
        """
        return self._frame("findings", steps, range_us)

    # -- where the time goes ------------------------------------------------------------------

    def breakdown(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """The division of each rank's time, one row per rank.

        ``window_us = compute_us + exposed_comm_us + exposed_memory_us + idle_us``, and
        ``exposed_comm_us = exposed_wait_us + exposed_transfer_us + exposed_unknown_us``, to the
        nanosecond.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Raises
        ------
        UsageError
            When the selection is none, empty or turned around.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> run.breakdown(steps=5)[["rank", "window_us", "comm_us", "overlap_frac"]]
           rank  window_us    comm_us  overlap_frac
        0     0  26302.715  22399.526      0.023758
        1     1  30528.457  22079.131      0.027298
        2     2  28462.316   4007.269      0.191474
        3     3  23627.790  18196.442      0.048898
        """
        return self._frame("ranks", steps, range_us)

    def steps(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """The same division per rank and step.

        ``host_us`` is the length of the step's annotation, ``lead_us`` its own start less the
        previous step's end (negative where they overlap), ``period_us`` window + lead. A rank's
        work that belongs to no step follows with ``<NA>`` as its step.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> run.steps().groupby("step")["window_us"].max()
        step
        4    34022.811
        5    30528.457
        6    42307.860
        Name: window_us, dtype: float64
        """
        return self._frame("steps", steps, range_us)

    def phases(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """The same division per rank and phase (forward, backward, optimizer), where annotated.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4", ranks=2)
        >>> run.phases()[["phase", "num_spans", "window_us", "idle_us"]]
               phase  num_spans  window_us   idle_us
        0    forward          3   3975.752   574.607
        1   backward          3  24870.032  3092.803
        2  optimizer          3    242.399    22.494
        """
        return self._frame("phases", steps, range_us)

    def groups(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """Communication per rank and process group.

        ``exposed_share_us`` divides each exposed instant among the groups that communicate at it,
        so that a rank's shares add up to its exposed communication.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/tp_2x2")
        >>> run.groups().groupby("axis")["comm_us"].sum()
        axis
        x     92958.767
        y    121019.834
        Name: comm_us, dtype: float64
        """
        return self._frame("groups", steps, range_us)

    def operations(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """Communication per rank and operation, with the exposed time divided as in `groups`.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4", ranks=[0, 1])
        >>> run.operations()[["rank", "op", "comm_us", "exposed_comm_us"]]
           rank          op    comm_us  exposed_comm_us
        0     0  all_reduce  77427.729        75373.077
        1     1  all_reduce  77504.221        73132.302
        """
        return self._frame("operations", steps, range_us)

    # -- communication ------------------------------------------------------------------------

    def collectives(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """Collectives matched across ranks, one row each, by start.

        ``transfer_us`` is the last arriver's end less its start, ``algbw_GBps`` bytes over it
        (1 GB = 1e9 bytes), ``busbw_GBps`` the bus bandwidth as nccl-tests defines it. ``match``
        says how the members were found; ``edge`` ones began before the recording, or are cut.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> run.collectives()[["op", "ranks", "bytes", "last_rank", "match"]].head(2)
                   op         ranks   bytes  last_rank  match
        0  all_reduce  (0, 1, 2, 3)  526336          2  order
        1  all_reduce  (0, 1, 2, 3)  263168          2  order
        """
        return self._frame("collectives", steps, range_us)

    def collective_members(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """One row per collective and rank: when it came, how long it waited.

        ``collective`` is the row of `collectives` for the same selection. ``wait_us`` is the time
        until the last rank came, at most the own duration; NaN where no partner was found.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> members = run.collective_members()
        >>> members[["collective", "rank", "duration_us", "is_last"]].head(4)
           collective  rank  duration_us  is_last
        0           0     0    23159.273    False
        1           0     1    19609.391    False
        2           0     2     2430.281     True
        3           0     3    22661.441    False
        """
        return frame(member_rows(self._traces, selection(*selection_key(steps, range_us))), MEMBERS)

    def stragglers(self, steps: Steps = None, range_us: RangeUs = None) -> pd.DataFrame:
        """Per rank, how often it came last to a collective and by how much, the worst first.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Returns
        -------
        DataFrame
            ``late_us`` sums the last arrival less the second-last one over the collectives the
            rank came last to; ``wait_us`` sums its own waiting.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> run.stragglers()[["rank", "num_matched", "num_last"]]
           rank  num_matched  num_last
        0     2            6         6
        1     0            6         0
        2     1            6         0
        3     3            6         0
        """
        return self._frame("stragglers", steps, range_us)

    def clocks(self) -> pd.DataFrame:
        """Each rank's clock against the lowest rank's.

        Returns
        -------
        DataFrame
            ``offset_us`` (positive = ahead), ``spread_us`` (median absolute deviation) and
            ``num_shared``, the collectives they rest on; NaN where it cannot be told.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> run.clocks()[["rank", "num_shared"]]
           rank  num_shared
        0     0           0
        1     1           6
        2     2           6
        3     3           6
        """
        clocks = self._traces.matching.clocks
        rows = [
            {"rank": rank}
            if clock is None
            else {
                "rank": rank,
                "offset_us": us(clock.offset_ns),
                "spread_us": us(clock.spread_ns),
                "num_shared": clock.num_shared,
            }
            for rank, clock in sorted(clocks.items())
        ]
        return frame(rows, CLOCKS)

    # -- names --------------------------------------------------------------------------------

    def kernels(
        self, top: int | None = 20, steps: Steps = None, range_us: RangeUs = None
    ) -> pd.DataFrame:
        """The names that take the time: work by rank, role and name, the longest first.

        Sums count concurrent work several times: they rank names, they do not divide the window.

        Parameters
        ----------
        top : int or None
            Names per rank and role; None for all.
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4", ranks=[0])
        >>> run.kernels(top=1)[["role", "count", "total_us", "mean_us"]]
              role  count    total_us       mean_us
        0     comm      6  143043.805  23840.634167
        1  compute      9   11515.402   1279.489111
        """
        check_top(top)
        chosen = selection(*selection_key(steps, range_us))
        rows: list[Row] = []
        for rank in self.ranks:
            part = part_of(self._traces, rank, chosen)
            rows += _top_by_role(kernel_rows(part.trace, part.work), top)
        return frame(rows, TABLES["kernels"])

    def ops(self, top: int | None = 20) -> pd.DataFrame:
        """Host operators of the whole recording by rank and name, the longest first.

        Parameters
        ----------
        top : int or None
            Names per rank; None for all.

        Returns
        -------
        DataFrame
            ``total_us`` includes the operators inside, so nested ones count several times.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4", ranks=0)
        >>> run.ops(top=3)[["name", "count", "total_us"]]
                                                        name  count   total_us
        0  autograd::engine::evaluate_function: AddmmBack...      9  11515.402
        1                                     AddmmBackward0      9  11030.698
        2                                           aten::mm     15  10550.464
        """
        check_top(top)
        traces = self._traces.traces()
        return frame([row for t in traces for row in operator_rows(t)[:top]], OPERATORS)

    # -- pictures -----------------------------------------------------------------------------

    def timeline(self, height: int = 620) -> AnyWidget:
        """The timeline of all ranks as a notebook widget; needs the extra ``notebook``.

        Lanes per rank, stream and thread, on the corrected clock: zoom with the wheel, move by
        dragging, search with ``/``, and ``?`` lists all keys.

        Parameters
        ----------
        height : int
            In pixels, 260 to 4000.

        Raises
        ------
        UsageError
            When anywidget is not installed.
        """
        from tracekit.plot.widget import timeline_widget

        return timeline_widget(self.lanes(), height)

    def lanes(self) -> Timeline:
        """The data behind the timeline, for programs that show it elsewhere.

        Examples
        --------
        >>> import tracekit
        >>> lanes = tracekit.open("sample_traces/ddp_4").lanes()
        >>> lanes.search("all_reduce")["total"]
        24
        """
        from tracekit.plot.timeline import Timeline

        return Timeline(self._traces)

    # -- taking it elsewhere ------------------------------------------------------------------

    def document(self, steps: Steps = None, range_us: RangeUs = None) -> dict[str, Any]:
        """The whole analysis as ``tracekit analyze --json`` prints it.

        Parameters
        ----------
        steps : int or (first, last), optional
        range_us : (start, end), optional

        Examples
        --------
        >>> import tracekit
        >>> tracekit.open("sample_traces/ddp_4").document()["schema"]
        'tracekit.analysis/1'
        """
        return copy.deepcopy(self._document(steps, range_us))

    def export(
        self, to: Literal["csv", "parquet", "perfetto"], out: str | os.PathLike[str]
    ) -> list[Path]:
        """Write the figures as tables, or the time lines as one Perfetto trace.

        Parameters
        ----------
        to : {"csv", "parquet", "perfetto"}
        out : str or path
            A folder for tables, a file for Perfetto.

        Returns
        -------
        list of Path
            The files written.

        Raises
        ------
        UsageError
            For another format, or when there is something at ``out`` that no export wrote.
        TracekitError
            When it cannot be written; then nothing there has changed.

        Examples
        --------
        >>> import tempfile, tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = run.export("csv", folder)
        >>> [file.name for file in files][:3]
        ['ranks.csv', 'steps.csv', 'phases.csv']
        """
        from tracekit.report.export import export

        if to not in FORMATS:
            raise UsageError(f"to={to!r} is no format", hint=f"give one of {', '.join(FORMATS)}")
        return export(self._traces, to, Path(out))

    def to_pipit(self) -> Any:
        """All events as a trace of Pipit, the Process being the rank.

        Times are ns on the corrected clock from the first event of all ranks. Threads are numbered
        from 0 in each process, host threads and device streams alike; an event that crosses
        another of its thread goes to a further one, so that callers can be found. The attributes
        of an Enter row hold category, role, process and thread as recorded, links and what is
        known of the collective. Events with impossible times are left out.

        Returns
        -------
        pipit.trace.Trace or DataFrame
            Pipit's own class where Pipit is installed, else its events frame.

        Examples
        --------
        >>> import tracekit
        >>> run = tracekit.open("sample_traces/ddp_4")
        >>> trace = run.to_pipit()
        >>> events = getattr(trace, "events", trace)
        >>> events[["Timestamp (ns)", "Event Type", "Name", "Process"]].head(3)
           Timestamp (ns) Event Type                  Name Process
        0               0      Enter  PyTorch Profiler (0)       0
        1           56627      Enter  PyTorch Profiler (0)       3
        2          292384      Enter        ProfilerStep#4       0
        """
        return pipit_trace(self._traces)

    # -- within -------------------------------------------------------------------------------

    def _frame(self, table: str, steps: Steps, range_us: RangeUs) -> pd.DataFrame:
        made = Tables(self._traces, self._document(steps, range_us))
        return frame(made.rows(table), TABLES[table])

    def _document(self, steps: Steps = None, range_us: RangeUs = None) -> dict[str, Any]:
        """The analysis of a selection, made once; the oldest of many is forgotten."""
        key = selection_key(steps, range_us)
        if key not in self._documents:
            made = document(self._traces, steps=key[0], time_range_us=key[1])
            while len(self._documents) >= KEPT:
                del self._documents[next(iter(self._documents))]
            self._documents[key] = made
        return self._documents[key]


def _top_by_role(rows: list[Row], top: int | None) -> list[Row]:
    """The first rows of each role, in their order."""
    seen: dict[str, int] = {}
    kept = []
    for row in rows:
        seen[row["role"]] = seen.get(row["role"], 0) + 1
        if top is None or seen[row["role"]] <= top:
            kept.append(row)
    return kept
