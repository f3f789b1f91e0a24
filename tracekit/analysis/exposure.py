"""When exactly the time was lost: the instants whose lengths are the figures of a breakdown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.breakdown import Split
from tracekit.core.intervals import Intervals, intersect, subtract, union
from tracekit.model.names import COMM, COMPUTE, MEMORY
from tracekit.model.work import Work


@dataclass(frozen=True, slots=True)
class Exposure:
    """Sets of instants of one rank's window, each in ns on the clock of its work.

    Attributes
    ----------
    compute, comm, memory : Intervals
        When any work of that role runs.
    wait, transfer, unknown : Intervals
        Exposed communication: waiting for the last rank, moving bytes, or one of the two. They
        are disjoint, and together they are the instants that communicate and do not compute.
    exposed_memory : Intervals
        Copies and fills while nothing computes or communicates.
    idle : Intervals
        The rest, from the first start to the last end.
    """

    compute: Intervals
    comm: Intervals
    memory: Intervals
    wait: Intervals
    transfer: Intervals
    unknown: Intervals
    exposed_memory: Intervals
    idle: Intervals


def exposure(work: Work, split: Split) -> Exposure:
    """The instants behind the figures that `breakdown` gives for all of a rank's work.

    Parameters
    ----------
    work : Work
    split : Split
        Of ``work``.

    Returns
    -------
    Exposure
        `measure` of each set is the figure of that name, to the nanosecond.
    """
    is_comm = work.role == COMM
    compute, comm, memory = (_of_role(work, role) for role in (COMPUTE, COMM, MEMORY))
    waits = union(work.start[is_comm], np.minimum(split.wait_end, work.end)[is_comm])
    moving = is_comm & split.moves
    moves = union(np.maximum(split.wait_end, work.start)[moving], work.end[moving])
    exposed = subtract(comm, compute)
    # where one collective waits while another moves bytes, bytes move
    still = subtract(exposed, moves)
    busy = union(work.start, work.end)
    return Exposure(
        compute=compute,
        comm=comm,
        memory=memory,
        wait=intersect(still, waits),
        transfer=intersect(exposed, moves),
        unknown=subtract(still, waits),
        exposed_memory=subtract(busy, union(*_joined(compute, comm))),
        idle=subtract(_window(work), busy),
    )


def _of_role(work: Work, role: int) -> Intervals:
    mine = work.role == role
    return union(work.start[mine], work.end[mine])


def _window(work: Work) -> Intervals:
    """From the first start to the last end; nothing where there is no work."""
    if not len(work):
        return work.start, work.end
    return union(work.start.min(keepdims=True), work.end.max(keepdims=True))


def _joined(a: Intervals, b: Intervals) -> Intervals:
    return np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1]))
