"""A run: the traces of one job, opened from whatever the user pointed at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tracekit.core.errors import Note, UsageError
from tracekit.io.finding import find
from tracekit.model import names as naming
from tracekit.model.collective import Collective, Matching, match
from tracekit.model.files import File, OpenOptions, read_files
from tracekit.model.gloo_groups import infer_groups
from tracekit.model.operations import Operation, listed_groups, operations_of
from tracekit.model.trace import Trace
from tracekit.model.whose import (
    chosen_ranks,
    name_ranks,
    one_capture,
    split_devices,
    traces_first,
)
from tracekit.model.work import Work, work_of


@dataclass(slots=True)
class _Survey:
    """What the other ranks need to know of one."""

    world_size: int | None
    span_ns: tuple[int, int] | None
    operations: list[Operation]


@dataclass(eq=False)
class TraceSet:
    """The traces of one job.

    Attributes
    ----------
    ranks : list of int
        Sorted.
    notes : list of Note
        What was odd in reading.
    names : Names
        The naming rules in force.
    """

    ranks: list[int]
    notes: list[Note]
    names: naming.Names
    _loaders: dict[int, Callable[[], Trace]]
    _last: tuple[Trace, Work] | None = field(default=None, repr=False)

    def trace(self, rank: int) -> Trace:
        """The trace of one rank; opened anew (a memory map) on each call.

        Raises
        ------
        UsageError
            When the rank is not among `ranks`.
        """
        if rank not in self._loaders:
            have = ", ".join(map(str, self.ranks[:16])) + (", …" if len(self.ranks) > 16 else "")
            raise UsageError(f"no rank {rank} in this run", hint=f"its ranks are {have}")
        return self._loaders[rank]()

    def traces(self) -> Iterator[Trace]:
        """Each rank's trace in turn; only one is held at a time."""
        for rank in self.ranks:
            yield self.trace(rank)

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the job, as the files say; None when none does."""
        sizes = [s.world_size for s in self._survey.values()]
        return max((s for s in sizes if s is not None), default=None)

    def work(self, rank: int) -> tuple[Trace, Work]:
        """A rank's trace and its work; the last one asked for is kept."""
        if self._last is None or self._last[0].rank != rank:
            self._last = None
            trace = self.trace(rank)
            self._last = trace, work_of(trace)
        return self._last

    @cached_property
    def _survey(self) -> dict[int, _Survey]:
        """What the ranks need to know of each other, from one pass over their events."""
        found = {}
        listed = {}
        for rank in self.ranks:
            trace, work = self.work(rank)
            base = trace.table.base_ns
            span = (int(work.start[0]) + base, int(work.end.max()) + base) if len(work) else None
            found[rank] = _Survey(trace.world_size, span, operations_of(trace, work))
            listed[rank] = listed_groups(trace)
        if infer_groups({r: s.operations for r, s in found.items()}, listed, self.names):
            text = "gloo records no groups; they were found from the threads the spans ran on"
            self.notes.append(Note("groups-from-threads", text, "info"))
        return found

    @property
    def operations(self) -> dict[int, list[Operation]]:
        """The communication of each rank."""
        return {rank: s.operations for rank, s in self._survey.items()}

    @cached_property
    def origin_ns(self) -> int:
        """Earliest start of work of all ranks, absolute on the corrected clock; 0 without work."""
        return min(self._borders(0), default=0)

    @property
    def length_ns(self) -> int:
        """From the earliest start to the latest end of work, on the corrected clock."""
        return max(self._borders(1), default=0) - self.origin_ns

    @property
    def spans(self) -> dict[int, tuple[int, int] | None]:
        """First start and last end of each rank's work, absolute on its own clock."""
        return {rank: s.span_ns for rank, s in self._survey.items()}

    def _borders(self, which: int) -> list[int]:
        return [
            span[which] - self.matching.offset_ns(rank)
            for rank, span in self.spans.items()
            if span is not None
        ]

    @cached_property
    def matching(self) -> Matching:
        """Collectives matched across ranks, and the clocks they gave."""
        return match(self.operations, self.names, self.world_size)

    def collectives_of(self, rank: int) -> list[Collective]:
        """The collectives a rank took part in, by start."""
        return self._by_rank.get(rank, [])

    @cached_property
    def _by_rank(self) -> dict[int, list[Collective]]:
        found: dict[int, list[Collective]] = {}
        for c in self.matching.collectives:
            for rank in c.members:
                found.setdefault(rank, []).append(c)
        return found


def open_run(paths: list[str], *, options: OpenOptions | None = None) -> TraceSet:
    """Open the traces at the given paths.

    Parameters
    ----------
    paths : list of str
        Files, folders, glob patterns, zip archives.
    options : OpenOptions, optional

    Raises
    ------
    NoTraceError
        When nothing readable is found.
    UsageError
        When two files hold the same rank, or a chosen rank or capture is absent.
    """
    options = options or OpenOptions()
    names = naming.load(options.names)
    sources, notes = find(paths, options.limits)
    files = read_files(sources, names, options, notes)
    files = traces_first(files, notes)
    name_ranks(files, notes)
    by_rank: dict[int, list[tuple[File, Callable[[], Trace]]]] = {}
    for file in files:
        for rank, load in split_devices(file, names, notes):
            by_rank.setdefault(rank, []).append((file, load))
    loaders = one_capture(by_rank, options.capture)
    if options.ranks is not None:
        loaders = chosen_ranks(loaders, options.ranks)
    return TraceSet(sorted(loaders), notes, names, loaders)
