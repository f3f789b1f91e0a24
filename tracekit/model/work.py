"""A rank's work: the intervals whose time is accounted for, with their roles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tracekit.core.intervals import measure, union
from tracekit.model.host import host_work
from tracekit.model.links import Ints, external_ids_usable, launches, lookup, places_of
from tracekit.model.names import COMM, COMPUTE, MEMORY, NONE
from tracekit.model.trace import COLLECTIVE, COPY, RECORDED, Trace


@dataclass(slots=True)
class Work:
    """Work of one rank in order of start; times in ns relative to the trace's base.

    Attributes
    ----------
    timeline : {"device", "host"}
    start, end : ndarray of int64, shape (num_work,)
    role : ndarray of int8
        `COMPUTE`, `COMM` or `MEMORY`.
    row : ndarray of int64
        Row of the event table.
    launch : ndarray of int64
        Row of the host call that launched it, -1 when unlinked (device) or not asked (host).
    at : ndarray of int64
        Time that decides which step it belongs to: start of the launch, or its own start on the
        host timeline; -2**62 where it is unlinked.
    stream : ndarray of int64
    counts : dict of str to int
        ``timed``, ``dropped``, ``clipped``, ``unlinked``.
    host_comm_ns : int or None
        Length of host rows of collectives where the device records none (XPU).
    compute_known : bool
        False where the recording holds collectives only.
    """

    timeline: Literal["device", "host"]
    start: Ints
    end: Ints
    role: NDArray[np.int8]
    row: Ints
    launch: Ints
    at: Ints
    stream: Ints
    counts: dict[str, int] = field(default_factory=dict)
    host_comm_ns: int | None = None
    compute_known: bool = True

    def __len__(self) -> int:
        return len(self.start)

    @property
    def comm_known(self) -> bool:
        """Whether communication is on the same timeline as the other work."""
        return self.host_comm_ns is None

    def select(self, mask: NDArray[np.bool_]) -> Work:
        """The same work narrowed to some of its entries."""
        return Work(
            self.timeline,
            self.start[mask],
            self.end[mask],
            self.role[mask],
            self.row[mask],
            self.launch[mask],
            self.at[mask],
            self.stream[mask],
            dict(self.counts),
            self.host_comm_ns,
            self.compute_known,
        )


UNLINKED = -(2**62)


def work_of(trace: Trace) -> Work:
    """The work of a rank: its device rows, or its host rows where no device recorded any."""
    return _device_work(trace) if trace.timeline == "device" else _host_work(trace)


def _device_work(trace: Trace) -> Work:
    table = trace.table
    rows = np.flatnonzero(trace.is_device_row)
    roles = _roles(trace, rows)
    timed = roles != NONE
    rows, roles = rows[timed], roles[timed]
    sound = trace.sound[rows]
    dropped = int((~sound).sum())
    rows, roles = rows[sound], roles[sound]
    order = np.argsort(table["start_ns"][rows], kind="stable")
    rows, roles = rows[order], roles[order]
    start = table["start_ns"][rows]
    end, clipped = _clip_absurd(start, start + table["dur_ns"][rows], trace.streams[rows])
    launch = launches(trace, rows)
    at = np.where(launch >= 0, table["start_ns"][launch], UNLINKED)
    counts = {"timed": len(rows), "dropped": dropped, "clipped": clipped}
    counts["unlinked"] = int((launch < 0).sum())
    work = Work("device", start, end, roles, rows, launch, at, trace.streams[rows], counts)
    if not (roles == COMM).any():
        work.host_comm_ns = _host_comm(trace)
    return work


def _roles(trace: Trace, rows: Ints) -> NDArray[np.int8]:
    """Role of each device row: by category for copies, by name else, copy engines by link."""
    codes, _ = trace.name_codes
    by_name = codes[trace.table["name"][rows]] if len(codes) else np.empty(0, dtype=np.int8)
    is_copy = trace.kind[rows] == COPY
    roles = np.where(is_copy, np.int8(MEMORY), by_name).astype(np.int8)
    carried = _carried_by_copies(trace, rows, roles)
    roles[carried] = COMM
    return roles


def _carried_by_copies(trace: Trace, rows: Ints, roles: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Copies that carry out a collective: linked to one that has no kernel of its own."""
    none = np.zeros(len(rows), dtype=bool)
    table = trace.table
    issued = np.flatnonzero((table["detail"] >= 0) & ~trace.is_device_row)
    issued = issued[[_is_collective(trace, r) for r in issued.tolist()]] if len(issued) else issued
    if not len(issued) or not external_ids_usable(trace, rows):
        return none
    owner = lookup(table["external_id"][issued], issued, table["external_id"][rows])
    with_kernel = np.unique(owner[(roles == COMM) & (owner >= 0)])
    carried: NDArray[np.bool_] = (roles == MEMORY) & (owner >= 0) & ~np.isin(owner, with_kernel)
    return carried


def _is_collective(trace: Trace, row: int) -> bool:
    return "Collective name" in trace.table.details[trace.table["detail"][row]]


def _clip_absurd(start: Ints, end: Ints, stream: Ints) -> tuple[Ints, int]:
    """Cut ends that reach past the starts of two or more later events of their stream.

    Such ends are writer faults (old roctracer); they are cut to the next start. A kernel that
    reaches into its successor alone stays: programmatic dependent launch does that.
    """
    out, clipped = end.copy(), 0
    for rows in places_of(stream).values():
        s, e = start[rows], end[rows]
        later = np.searchsorted(s, s, side="right")  # equal starts are no later ones
        # the second later event starts after the first, so two are passed if it is
        absurd = later + 1 < len(s)
        absurd[absurd] = e[absurd] > s[later[absurd] + 1]
        out[rows[absurd]] = s[later[absurd]]
        clipped += int(absurd.sum())
    return out, clipped


def _host_comm(trace: Trace) -> int | None:
    """Length of host-side collective rows; None when there are none."""
    rows = np.flatnonzero((trace.kind == COLLECTIVE) & trace.sound)
    if not len(rows):
        return None
    start = trace.table["start_ns"][rows]
    return measure(*union(start, start + trace.table["dur_ns"][rows]))


def _host_work(trace: Trace) -> Work:
    if trace.is_flight_recording:
        return _recorded_work(trace)
    start, end, role, row = host_work(trace)
    order = np.argsort(start, kind="stable")
    start, end, role, row = start[order], end[order], role[order], row[order]
    counts = {
        "timed": int((trace.sound & (trace.kind != 0)).sum()) if trace.has_cats else len(row),
        "dropped": int((~trace.sound).sum()),
        "clipped": 0,
        "unlinked": 0,
    }
    nothing = np.full(len(row), -1, dtype=np.int64)
    lane = trace.table["lane"][row].astype(np.int64)
    # our own recorder says so where it saw neither operators nor waits
    known = trace.own.get("compute_known") is not False
    return Work(
        "host", start, end, role, row, nothing, start.copy(), lane, counts, compute_known=known
    )


def _recorded_work(trace: Trace) -> Work:
    rows = np.flatnonzero((trace.kind == RECORDED) & trace.sound)
    rows = rows[np.argsort(trace.table["start_ns"][rows], kind="stable")]
    start = trace.table["start_ns"][rows]
    role = np.full(len(rows), COMM, dtype=np.int8)
    nothing = np.full(len(rows), -1, dtype=np.int64)
    counts = {"timed": len(rows), "dropped": 0, "clipped": 0, "unlinked": 0}
    lane = trace.table["lane"][rows].astype(np.int64)
    end = start + trace.table["dur_ns"][rows]
    return Work(
        "host", start, end, role, rows, nothing, start.copy(), lane, counts, compute_known=False
    )


def role_counts(work: Work) -> dict[str, int]:
    """How many entries each role has."""
    return {
        "compute": int((work.role == COMPUTE).sum()),
        "comm": int((work.role == COMM).sum()),
        "memory": int((work.role == MEMORY).sum()),
    }
