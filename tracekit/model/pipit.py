"""A run as Pipit's trace, and Pipit's trace as a run; Pipit's Process is our rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.core.errors import UsageError
from tracekit.io.pipit import HEADER, NUMBERS, tables_of
from tracekit.io.pipit_frame import Timeline, definitions_of, frame_of
from tracekit.io.table import EventTable
from tracekit.model import names as naming
from tracekit.model.frames import roles, rows_of
from tracekit.model.links import Ints
from tracekit.model.names import ROLES
from tracekit.model.run import TraceSet
from tracekit.model.trace import Trace
from tracekit.model.work import Work

if TYPE_CHECKING:
    import pandas as pd

_LABEL = "Pipit trace"


def pipit_frame(run: TraceSet) -> pd.DataFrame:
    """All events of a run as Pipit's events frame; see `tracekit.Run.to_pipit`."""
    return frame_of([_timeline(run, rank) for rank in run.ranks])


def pipit_trace(run: TraceSet) -> Any:
    """A run as ``pipit.trace.Trace``, or as its events frame where Pipit is not installed."""
    from importlib import import_module

    try:
        kind = import_module("pipit.trace").Trace
    except (ImportError, AttributeError):  # the package index holds another, empty "pipit"
        return pipit_frame(run)
    headers = {trace.rank: _header(trace) for trace in run.traces()}
    return kind(definitions_of(headers), pipit_frame(run))


def _header(trace: Trace) -> dict[str, Any]:
    """What is known of a rank as a whole; the times in our own header are on another clock."""
    found = {key: trace.table.meta[key] for key in HEADER if key in trace.table.meta}
    if trace.own:
        found["tracekit"] = {k: v for k, v in trace.own.items() if k != "collectives"}
    return found


def run_of(trace: Any, names: str | None = None) -> TraceSet:
    """The run in a Pipit trace or in its events frame; see `tracekit.from_pipit`.

    Raises
    ------
    UsageError
        When it is neither, lacks a column, or holds no complete event.
    """
    import pandas as pd

    events = trace if isinstance(trace, pd.DataFrame) else getattr(trace, "events", None)
    if not isinstance(events, pd.DataFrame):
        hint = "give a pipit.Trace or its events frame"
        raise UsageError(f"a {type(trace).__name__} is no Pipit trace", hint=hint)
    definitions = getattr(trace, "definitions", None)
    known = definitions if isinstance(definitions, pd.DataFrame) else None
    tables = tables_of(events, known, _LABEL)
    rules = naming.load(names)
    notes = [note for table in tables.values() for note in table.notes]

    def opener(rank: int, table: EventTable) -> Any:
        return lambda: Trace(rank, _LABEL, table, rules, None, "Pipit's Process")

    loaders = {rank: opener(rank, table) for rank, table in tables.items()}
    return TraceSet(sorted(loaders), notes, rules, loaders)


def _timeline(run: TraceSet, rank: int) -> Timeline:
    trace, work = run.work(rank)
    rows = rows_of(trace)
    table = trace.table
    shift = table.base_ns - run.matching.offset_ns(rank)
    start = table["start_ns"][rows] + shift
    return Timeline(
        process=rank,
        start_ns=start,
        end_ns=start + table["dur_ns"][rows],
        name=table["name"][rows],
        lane=table["lane"][rows],
        names=table.names,
        attributes=_attributes(trace, work, rows),
    )


def _attributes(trace: Trace, work: Work, rows: Ints) -> list[dict[str, Any]]:
    """What is known of each row besides name, time and thread."""
    table = trace.table
    origins = zip(table["cat"][rows].tolist(), table["lane"][rows].tolist(), strict=True)
    found = []
    for cat, lane in origins:
        pid, tid = table.lanes[lane]
        found.append({"cat": table.cats[cat], "pid": pid, "tid": tid})
    role = roles(trace, work)[rows]
    for at in np.flatnonzero(role >= 0).tolist():
        found[at]["role"] = ROLES[role[at]]
    for key in NUMBERS:
        values = table[key][rows]
        for at in np.flatnonzero(values >= 0).tolist():
            found[at][key] = int(values[at])
    detail = table["detail"][rows]
    for at in np.flatnonzero(detail >= 0).tolist():
        found[at]["args"] = dict(table.details[detail[at]])
    return found
