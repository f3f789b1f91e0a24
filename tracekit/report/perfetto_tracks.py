"""Lay a run out as Perfetto tracks: a rank's steps, roles, exposed time, collectives, streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from tracekit.model.names import ROLES
from tracekit.model.operations import Group
from tracekit.model.run import TraceSet
from tracekit.model.steps import steps_of
from tracekit.model.trace import Trace
from tracekit.report import words

#: Chrome's name for the colour of each kind of time
COLOURS = {
    "compute": "thread_state_running",
    "comm": "thread_state_iowait",
    "memory": "olive",
    "wait": "terrible",
    "transfer": "yellow",
    "unknown": "grey",
    "idle": "thread_state_sleeping",
}
COMPUTING = Kind("compute", "role", COLOURS["compute"])
COMMUNICATING = Kind("communication", "role", COLOURS["comm"])
COPYING = Kind("memory copies", "role", COLOURS["memory"])
WAITING = Kind("waiting for a late rank", "exposed", COLOURS["wait"])
MOVING = Kind("moving bytes", "exposed", COLOURS["transfer"])
UNDECIDED = Kind("waiting or moving: not known", "exposed", COLOURS["unknown"])
COPYING_ALONE = Kind("exposed memory copies", "exposed", COLOURS["memory"])
IDLE = Kind("idle", "idle", COLOURS["idle"])


def write_tracks(run: TraceSet, sink: Sink) -> None:
    """Write all ranks of a run, on the corrected clock, as one Perfetto trace.

    A process is a rank; one rank's events are held at a time. A flow leads through all members of
    a matched collective, from the one that arrives first to the one that arrives last.

    Parameters
    ----------
    run : TraceSet
    sink : Sink
        Where the JSON text goes.
    """
    times = _placed(run)
    flows = _flows(run, times)
    about = {
        "time": "us on the clock of the lowest rank, from the first event shown",
        "range_zero_us": us(times.range_zero_ns),
        "ranks_with_unknown_clock": times.unknown,
    }
    writer = PerfettoWriter(sink, about, first_tid=max(run.ranks) + 1)
    for place, rank in enumerate(run.ranks):
        _Rank(run, rank, times, writer).write(place, flows)
    writer.close()


# -- one time line for all ranks --------------------------------------------------------------


@dataclass(slots=True)
class _Times:
    """Where each rank's times lie in the file.

    Attributes
    ----------
    shift : dict of int to int
        What to add to a rank's absolute times, ns.
    unknown : list of int
        Ranks whose clock could not be compared; shown as recorded, or where that is nowhere near
        the others, from the start of the others.
    range_zero_ns : int or None
        Where the zero of ``--range`` lies.
    """

    shift: dict[int, int]
    unknown: list[int]
    range_zero_ns: int | None


def _placed(run: TraceSet) -> _Times:
    spans = {rank: _span(run, rank) for rank in run.ranks}
    shift = {rank: -run.matching.offset_ns(rank) for rank in run.ranks}
    unknown = [r for r in run.ranks if run.matching.clocks.get(r) is None]
    there = [
        (spans[r][0] + shift[r], spans[r][1] + shift[r])
        for r in run.ranks
        if r not in unknown and spans[r] != (0, 0)
    ]
    low, high = min((s for s, _ in there), default=0), max((e for _, e in there), default=0)
    for rank in unknown:
        start, end = spans[rank]
        if there and (end < low or start > high):
            shift[rank] = low - start
    zero = min((spans[r][0] + shift[r] for r in run.ranks if spans[r] != (0, 0)), default=0)
    shift = {rank: by - zero for rank, by in shift.items()}
    return _Times(shift, unknown, None if unknown else run.origin_ns - zero)


def _span(run: TraceSet, rank: int) -> tuple[int, int]:
    """First start and last end of a rank's work and steps, absolute; 0 and 0 without any."""
    trace, work = run.work(rank)
    steps = steps_of(trace)
    start, end = np.concatenate((work.start, steps.start)), np.concatenate((work.end, steps.end))
    if not len(start):
        return 0, 0
    return int(start.min()) + trace.table.base_ns, int(end.max()) + trace.table.base_ns


# -- arrows between ranks ---------------------------------------------------------------------

#: number of a collective, and the ranks that arrive first and last
Flows = dict[Collective, tuple[int, int, int]]


def _flows(run: TraceSet, times: _Times) -> Flows:
    found: Flows = {}
    for number, c in enumerate(run.matching.collectives):
        arrival = sorted((o.start + times.shift[rank], rank) for rank, o in c.members.items())
        found[c] = (number, arrival[0][1], arrival[-1][1])
    return found


def _arrow(c: Collective, rank: int, flows: Flows) -> Arrow | None:
    """A rank's end of the flow through a collective; None for a single member."""
    number, first, last = flows[c]
    if len(c.members) < 2:
        return None
    return Arrow(number + 1, "start" if rank == first else "end" if rank == last else "step")


# -- the tracks of one rank -------------------------------------------------------------------


class _Rank:
    """Writes the tracks of one rank."""

    def __init__(self, run: TraceSet, rank: int, times: _Times, writer: PerfettoWriter) -> None:
        self._run, self._rank, self._writer = run, rank, writer
        self._part: Part = part_of(run, rank)
        self._trace: Trace = self._part.trace
        self._unknown = rank in times.unknown
        self._absolute = times.shift[rank]
        self._shift = times.shift[rank] + self._trace.table.base_ns

    def write(self, place: int, flows: Flows) -> None:
        """All tracks, the summarising ones above."""
        self._writer.process(self._rank, self._title(), place)
        if len(self._part.steps):
            self._steps()
        if len(self._part.work):
            self._roles()
        self._collectives(flows)
        self._streams(flows)

    def _title(self) -> str:
        host = f" ({words.safe(self._trace.host)})" if self._trace.host else ""
        return f"rank {self._rank}{host}{', clock unknown' if self._unknown else ''}"

    def _steps(self) -> None:
        """Each step as annotated on the host, and as the span of its own work with its figures."""
        part = self._part
        steps, each = part.steps, np.arange(len(part.steps))
        kinds = [Kind(f"step {label}", "step") for label in steps.label]
        shown = Slices(steps.start + self._shift, steps.end + self._shift, each, kinds)
        self._writer.track(self._rank, "steps (host)", shown)
        figures = breakdown(part.work, part.split, part.step, len(steps))
        there = np.flatnonzero(figures.count)
        start, end = figures.start[there] + self._shift, figures.end[there] + self._shift
        rows = {i: figure_row(figures, int(at)) for i, at in enumerate(there)}
        own = Slices(start, end, there, kinds, rows.__getitem__)
        self._writer.track(self._rank, "steps (work)", own)

    def _roles(self) -> None:
        """The instants of each role, and those whose lengths are the figures of the breakdown."""
        part = self._part
        found = exposure(part.work, part.split)
        self._sets("compute", (found.compute, COMPUTING))
        self._sets("communication", (found.comm, COMMUNICATING))
        self._sets("memory copies", (found.memory, COPYING))
        if not (part.work.comm_known and part.work.compute_known):
            return
        self._sets(
            "exposed communication",
            (found.wait, WAITING),
            (found.transfer, MOVING),
            (found.unknown, UNDECIDED),
        )
        self._sets("exposed memory copies", (found.exposed_memory, COPYING_ALONE))
        self._sets("idle", (found.idle, IDLE))

    def _sets(self, name: str, *sets: tuple[Intervals, Kind]) -> None:
        start = np.concatenate([s[0] for s, _ in sets]) + self._shift
        end = np.concatenate([s[1] for s, _ in sets]) + self._shift
        kind = np.repeat(np.arange(len(sets)), [len(s[0]) for s, _ in sets])
        self._writer.track(self._rank, name, Slices(start, end, kind, [k for _, k in sets]))

    def _collectives(self, flows: Flows) -> None:
        """The collectives of each group on a track of its own, with arrows to the other ranks."""
        groups: dict[Any, tuple[Group, list[Collective]]] = {}
        for c in self._run.collectives_of(self._rank):
            groups.setdefault(c.group.key, (c.group, []))[1].append(c)
        for group, held in groups.values():
            members = [c.members[self._rank] for c in held]
            ops = sorted({str(c.op or "collective") for c in held})
            kinds = [Kind(op, "collective", COLOURS["comm"]) for op in ops]
            kind = np.array([ops.index(str(c.op or "collective")) for c in held])
            args = [_collective_args(c, self._rank, flows) for c in held]
            arrows = {i: a for i, c in enumerate(held) if (a := _arrow(c, self._rank, flows))}
            start = np.array([o.start for o in members], dtype=np.int64) + self._absolute
            end = np.array([o.end for o in members], dtype=np.int64) + self._absolute
            shown = Slices(start, end, kind, kinds, args.__getitem__, arrows)
            self._writer.track(self._rank, _group_title(group), shown)

    def _streams(self, flows: Flows) -> None:
        """The work itself, by stream of the device or by thread of the host."""
        work, table = self._part.work, self._trace.table
        owner = {
            entry: c
            for c in self._run.collectives_of(self._rank)
            for entry in c.members[self._rank].entries
        }
        codes = table["name"][work.row].astype(np.int64) * len(ROLES) + work.role
        for stream in np.unique(work.stream).tolist():
            at = np.flatnonzero(work.stream == stream)
            present, kind = np.unique(codes[at], return_inverse=True)
            kinds = [self._kind(*divmod(code, len(ROLES))) for code in present.tolist()]
            start, end = work.start[at] + self._shift, work.end[at] + self._shift
            shown = Slices(start, end, kind, kinds, self._work_args(at, owner, flows))
            self._writer.track(self._rank, self._stream_title(stream), shown)

    def _kind(self, name: int, role: int) -> Kind:
        return Kind(self._trace.table.names[name], ROLES[role], COLOURS[ROLES[role]])

    def _stream_title(self, stream: int) -> str:
        on_host = self._part.work.timeline == "host"
        if stream >= 0 and not on_host:
            return f"stream {stream}"
        lane = stream if on_host else -2 - stream
        tid, name = self._trace.table.lanes[lane][1], self._trace.table.lane_names.get(lane, "")
        return words.clip(name if name and tid in name else f"{name or 'thread'} {tid}", 80)

    def _work_args(
        self, at: Ints, owner: Mapping[int, Collective], flows: Flows
    ) -> Callable[[int], Mapping[str, Any]]:
        part, table = self._part, self._trace.table
        labels = part.steps.label

        def args(i: int) -> Mapping[str, Any]:
            entry = int(at[i])
            row, step = int(part.work.row[entry]), int(part.step[entry])
            num_bytes, correlation = int(table["bytes"][row]), int(table["correlation"][row])
            c = owner.get(entry)
            return {
                "step": labels[step] if step >= 0 else None,
                "bytes": num_bytes if num_bytes >= 0 else None,
                "correlation": correlation if correlation >= 0 else None,
                **(_collective_args(c, self._rank, flows) if c else {}),
            }

        return args


def _group_title(group: Group) -> str:
    """What a group's track is called: its axis, its names, its members."""
    desc = "" if group.desc in ("undefined", group.axis) else group.desc
    name = f"group {group.name}" if group.name else ""
    named = " ".join(words.clip(text, 40) for text in (group.axis, desc, name) if text)
    members = f" [{words.number_list(group.ranks)}]" if group.ranks else ""
    return f"collectives: {named or 'group not known'}{members}"


def _collective_args(c: Collective, rank: int, flows: Flows) -> dict[str, Any]:
    """What is known of a collective and of this rank's part in it; unknown values are None."""
    first = c.any
    return {
        "collective": flows[c][0],
        "op": c.op,
        "group": c.group.name or None,
        "axis": c.group.axis,
        "size": c.group.size,
        "ranks": words.number_list(c.members),
        "message_bytes": c.num_bytes,
        "dtype": first.dtype,
        "wait_us": us(c.wait.get(rank)),
        "transfer_us": us(c.transfer),
        "start_skew_us": us(c.start_skew),
        "end_spread_us": us(c.end_spread),
        "last_rank": c.last_rank,
        "algbw_GBps": c.algbw(),
        "busbw_GBps": c.busbw(),
        "match": c.match,
        "complete": c.complete,
        "edge": c.edge,
        "seq": first.seq,
        "comms_id": first.comms_id,
        "kernel": first.kernel or None,
    }
