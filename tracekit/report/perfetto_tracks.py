"""Lay a run out as Perfetto tracks: per rank its steps, roles, exposed time, collectives, streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracekit.analysis.breakdown import breakdown
from tracekit.analysis.exposure import exposure
from tracekit.analysis.rows import figure_row, us
from tracekit.analysis.selection import Part, part_of
from tracekit.core.intervals import Intervals
from tracekit.io.perfetto import Arrow, Kind, PerfettoWriter, Sink, Slices
from tracekit.model.collective import Collective
from tracekit.model.links import Ints
from tracekit.model.names import COMM, COMPUTE, MEMORY, ROLES
from tracekit.model.operations import Group
from tracekit.model.run import TraceSet
from tracekit.model.trace import Trace
from tracekit.model.work import Work
from tracekit.report import words

#: Chrome's name of the colour of each kind of time
COLOURS = {
    "compute": "thread_state_running",
    "comm": "thread_state_iowait",
    "memory": "olive",
    "wait": "terrible",
    "transfer": "yellow",
    "unknown": "grey",
    "idle": "thread_state_sleeping",
}
COMPUTING = Kind("compute", "compute", COLOURS["compute"])
COMMUNICATING = Kind("communication", "comm", COLOURS["comm"])
COPYING = Kind("memory copies", "memory", COLOURS["memory"])
WAITING = Kind("waiting for a late rank", "exposed", COLOURS["wait"])
MOVING = Kind("moving bytes", "exposed", COLOURS["transfer"])
UNDECIDED = Kind("waiting or moving: not known", "exposed", COLOURS["unknown"])
EXPOSED_COPY = Kind("exposed memory copies", "exposed", COLOURS["memory"])
IDLE = Kind("idle", "idle", COLOURS["idle"])
#: figures of a step that its slice shows, in the order of tables
STEP_FIGURES = (
    "window_us", "compute_us", "comm_us", "overlap_us", "exposed_comm_us", "exposed_wait_us",
    "exposed_transfer_us", "exposed_unknown_us", "memory_us", "exposed_memory_us", "idle_us",
    "overlap_frac",
)  # fmt: skip

Shifts = dict[int, int]
Args = Callable[[int], Mapping[str, Any]]


def write_tracks(
    run: TraceSet, sink: Sink, progress: Callable[[str, float], None] | None = None
) -> None:
    """Write all ranks of a run, on the corrected clock, as one Perfetto trace.

    One rank's events are held at a time. A process is a rank; a flow leads through all members
    of a matched collective, from the one that arrives first to the one that arrives last.

    Parameters
    ----------
    run : TraceSet
    sink : Sink
        Where the JSON text goes.
    progress : callable, optional
        Called with (what, fraction done).
    """
    shifts, apart = _shifts(run)
    origin = min((run.origin_ns + shift for shift in shifts.values()), default=0)
    about = {
        "format": 1,
        "time": "us from the first event shown, on the clock of the lowest rank",
        "range_zero_us": us(run.origin_ns + shifts[run.ranks[0]]) if origin >= 0 else None,
        "ranks_not_on_one_clock": apart,
    }
    writer = PerfettoWriter(sink, about, first_tid=max(run.ranks) + 1)
    arrows = _arrows(run, shifts)
    for place, rank in enumerate(run.ranks):
        if progress:
            progress(f"writing rank {rank}", place / len(run.ranks))
        _Rank(run, rank, shifts[rank], writer).write(place, rank in apart, arrows)
    writer.close()
