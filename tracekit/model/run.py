"""A run: the traces of one job, opened from whatever the user pointed at."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import (
    NotATraceError,
    Note,
    NoTraceError,
    ReadError,
    Severity,
    UsageError,
)
from tracekit.io import store as stores
from tracekit.io.identity import key_of
from tracekit.io.pool import num_workers, read_all
from tracekit.io.registry import read_source
from tracekit.io.sources import Limits, Source, find
from tracekit.io.store import Store
from tracekit.io.table import EventTable
from tracekit.model import names as naming
from tracekit.model.collective import Collective, Matching, match
from tracekit.model.gloo_groups import infer_groups
from tracekit.model.operations import Operation, int_list, listed_groups, operations_of
from tracekit.model.trace import COPY, KERNEL, Trace
from tracekit.model.work import Work, work_of

_RANK_WORD = re.compile(
    r"(?:rank|worker|gpu|trainer|proc(?:ess)?|node_rank)[-_.\[ ]?0*(\d{1,7})", re.IGNORECASE
)
_SHORT_RANK = re.compile(r"(?:^|[-_.])r0*(\d{1,7})(?=$|[-_.])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """How to open a run.

    Attributes
    ----------
    names : str or None
        Path of a user's own naming rules.
    ranks : frozenset of int or None
        Only these ranks.
    capture : int or None
        Which capture (1 = first in time) where several files hold the same rank.
    store : bool
        Whether to keep and use entries in the user's cache folder.
    limits : Limits
        What a file may unpack to.
    progress : callable or None
        Called with (what, fraction done of all).
    """

    names: str | None = None
    ranks: frozenset[int] | None = None
    capture: int | None = None
    store: bool = True
    limits: Limits = field(default_factory=Limits)
    progress: Callable[[str, float], None] | None = None


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


@dataclass(slots=True, eq=False)
class _File:
    """A file that was read, and how to get at its table again."""

    source: Source
    load: Callable[[], EventTable]
    start_ns: int
    flight_recording: bool
    rank: int | None
    rank_source: str
    devices: list[tuple[str, int]]
    device_ranks: list[int]


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
    sources, notes = find(paths)
    files = _read_files(sources, names, options, notes)
    files = _kineto_first(files, notes)
    _name_ranks(files, notes)
    by_rank: dict[int, list[tuple[_File, Callable[[], Trace]]]] = {}
    for file in files:
        for rank, load in _split_devices(file, names, notes):
            by_rank.setdefault(rank, []).append((file, load))
    loaders = _captures(by_rank, options.capture)
    if options.ranks is not None:
        loaders = _chosen(loaders, options.ranks)
    return TraceSet(sorted(loaders), notes, names, loaders)


# -- reading ----------------------------------------------------------------------------------


def _read_files(
    sources: list[Source], names: naming.Names, options: OpenOptions, notes: list[Note]
) -> list[_File]:
    """Read all sources; those that cannot be read become notes."""
    given = _store_for(sources, options)
    files: list[_File] = []
    errors: list[ReadError] = []
    for source, key, table in _tables(sources, given, options, notes):
        if isinstance(table, ReadError):
            errors.append(table)
            continue
        # an entry may have been made under another path
        notes.extend(replace(n, file=source.label) for n in table.notes)
        files.append(_file(source, key, table, given, names))
    if not files:
        raise _nothing_readable(errors)
    several = len(sources) > 1
    for e in errors:
        foreign = isinstance(e, NotATraceError)
        code = "not-a-trace" if foreign else "unreadable"
        severity: Severity = "info" if foreign and several else "error"
        notes.append(Note(code, e.line(), severity, e.where))
    return files


def _nothing_readable(errors: list[ReadError]) -> NoTraceError:
    damaged = (e for e in errors if not isinstance(e, NotATraceError))
    known = (e for e in errors if e.hint)  # of a kind that is known, with something to do about it
    worst = next(damaged, None) or next(known, errors[0])
    more = f" (and {len(errors) - 1} more files that are no readable trace)"
    what = worst.what + (more if len(errors) > 1 else "")
    return NoTraceError(what, where=worst.where, hint=worst.hint)


def _store_for(sources: list[Source], options: OpenOptions) -> Store | None:
    """The user's store; without it a temporary one for several files, none for a single one."""
    if options.store:
        return Store()
    if len(sources) == 1:
        return None
    try:
        temporary = stores.temporary_store()
    except OSError:
        return None
    weakref.finalize(temporary, stores.discard, Store(temporary.path))
    return temporary


def _tables(
    sources: list[Source], store: Store | None, options: OpenOptions, notes: list[Note]
) -> Iterator[tuple[Source, str, EventTable | ReadError]]:
    keys = {s: _key(s, options.limits) if store else "" for s in sources}
    missing = [s for s in sources if not (store and keys[s] and store.has(keys[s]))]
    errors: dict[Source, ReadError] = {}
    jobs = [(s, keys[s]) for s in missing if keys[s]]
    workers = num_workers([s for s, _ in jobs])
    told = _Told(len(missing), options.progress)
    if store and workers > 1:
        errors = read_all(jobs, store, options.limits, workers, told.one_done)
        told = _Told(len(missing), None)
    for source in sources:
        table: EventTable | ReadError | None = errors.get(source)
        if table is None and store and keys[source]:
            table = store.get(keys[source])
        if table is None:
            table = _read_here(source, keys[source], store, options, told, notes)
        yield source, keys[source], table


class _Told:
    """Progress over several files."""

    def __init__(self, num_files: int, progress: Callable[[str, float], None] | None) -> None:
        self._num, self._progress, self._done = max(1, num_files), progress, 0

    def one_done(self, label: str) -> None:
        self._done += 1
        self.at(label, 0.0)

    def at(self, label: str, fraction: float) -> None:
        if self._progress:
            self._progress(f"reading {Path(label).name}", (self._done + fraction) / self._num)


def _key(source: Source, limits: Limits) -> str:
    try:
        return key_of(source, limits)
    except OSError:
        return ""  # reading it will say what is wrong


def _read_here(
    source: Source,
    key: str,
    store: Store | None,
    options: OpenOptions,
    told: _Told,
    notes: list[Note],
) -> EventTable | ReadError:
    try:
        table = read_source(source, options.limits, lambda f: told.at(source.label, f))
    except ReadError as e:
        told.one_done(source.label)
        return e
    told.one_done(source.label)
    if store and key:
        reason = store.put(key, table, source.label)
        if reason and not any(n.code == "store-unavailable" for n in notes):
            text = f"the store in {store.path} cannot be written ({reason}); working without it"
            notes.append(Note("store-unavailable", text, "info"))
    return table


def _file(
    source: Source, key: str, table: EventTable, store: Store | None, names: naming.Names
) -> _File:
    info = table.meta.get("distributedInfo")
    own = table.meta.get("tracekit")
    rank, said = None, ""
    for header, words in ((info, "distributedInfo"), (own, "the tracekit header")):
        value = header.get("rank") if isinstance(header, dict) else None
        value = int(value) if isinstance(value, str) and value.isdecimal() else value
        if rank is None and type(value) is int and 0 <= value < 2**31:
            rank, said = value, words
    start = table["start_ns"]
    first = int(start[start > 0].min()) if (start > 0).any() else 0
    kept = _keep(table, key, store)
    recording = table.meta.get("tracekit_source") == "flight_recorder"
    whole = Trace(0, source.label, table, names)
    devices = _devices(whole)
    numbers = _device_ranks(whole, len(devices)) if len(devices) > 1 else []
    return _File(source, kept, first + table.base_ns, recording, rank, said, devices, numbers)


def _keep(table: EventTable, key: str, store: Store | None) -> Callable[[], EventTable]:
    """How to get at the table again: from the store where it is in, else it is held."""
    if store is None or not key or not (store.path / (key + stores.SUFFIX)).is_file():
        return lambda: table

    def load() -> EventTable:
        again = store.get(key, check=False)
        if again is None:
            raise ReadError(
                "the stored copy vanished while it was in use",
                where=str(store.path),
                hint="run again, or with --no-store",
            )
        return again

    return load


# -- whose is it ------------------------------------------------------------------------------


def _kineto_first(files: list[_File], notes: list[Note]) -> list[_File]:
    """Traces win over flight-recorder dumps that lie beside them."""
    traces = [f for f in files if not f.flight_recording]
    dumps = [f for f in files if f.flight_recording]
    if not traces or not dumps:
        return files
    text = (
        f"{len(dumps)} flight-recorder dumps lie beside traces and were left out; "
        "open them by themselves"
    )
    notes.append(Note("flight-recorder-left-out", text, "info", dumps[0].source.label))
    return traces


def _name_ranks(files: list[_File], notes: list[Note]) -> None:
    """Give a rank to files without one: from the name, else by order."""
    nameless = [f for f in files if f.rank is None]
    if not nameless:
        return
    taken = {f.rank for f in files if f.rank is not None}
    named = {id(f): rank_in_name(f.source) for f in nameless}
    if None in named.values() and len(nameless) > 1:
        numbers = [_last_number(f.source) for f in nameless]
        if None not in numbers and len(set(numbers)) == len(numbers):
            named = {id(f): n for f, n in zip(nameless, numbers, strict=True)}
    free = iter(r for r in range(len(files) + len(taken)) if r not in taken)
    for file in nameless:
        rank = named[id(file)]
        how = "the file name"
        if rank is None:
            rank = next(r for r in free if r not in named.values())
            how = "the order of the files"
        file.rank, file.rank_source = rank, how
    how = ", ".join(sorted({f.rank_source for f in nameless}))
    text = f"{len(nameless)} of {len(files)} files do not say their rank; taken from {how}"
    notes.append(Note("rank-guessed", text, "info", nameless[0].source.label))


def rank_in_name(source: Source) -> int | None:
    """The last rank-like number of a file's name, else of its folders; None when there is none.

    Examples
    --------
    >>> rank_in_name(Source(Path("run/trace-rank-10.json")))
    10
    >>> rank_in_name(Source(Path("rank3/hostA_1.1711964646000000000.pt.trace.json")))
    3
    """
    parts = [source.name, *reversed(Path(source.member or source.path).parts[:-1])]
    for part in parts[:3]:
        stem = re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?$|\.gz$", "", part)
        for pattern in (_RANK_WORD, _SHORT_RANK):
            if found := pattern.findall(stem):
                return int(found[-1])
    if source.name.startswith(("nccl_trace", "fr_", "comm_lib_trace")):
        return _last_number(source)
    return None


def _last_number(source: Source) -> int | None:
    """The last number of the file's name, when it can be a rank."""
    stem = re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?$|\.gz$", "", source.name)
    numbers = _NUMBER.findall(stem)
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 7 else None


def _split_devices(
    file: _File, names: naming.Names, notes: list[Note]
) -> list[tuple[int, Callable[[], Trace]]]:
    """A file with work on several devices holds several ranks, one per device."""
    assert file.rank is not None
    rank, label, load = file.rank, file.source.label, file.load
    devices, numbers = file.devices, file.device_ranks
    if len(devices) < 2:
        return [(rank, lambda: Trace(rank, label, load(), names, None, file.rank_source))]
    text = (
        f"work on {len(devices)} devices in one file; shown as ranks "
        f"{', '.join(map(str, numbers))}, one per device"
    )
    notes.append(Note("several-devices", text, "info", label))

    def loader(number: int, device: tuple[str, int]) -> Callable[[], Trace]:
        def make() -> Trace:
            table = load()
            rows = _rows_of(table, device)
            return Trace(number, label, table, names, rows, "the device order of one file")

        return make

    return [(n, loader(n, d)) for n, d in zip(numbers, devices, strict=True)]


def _devices(trace: Trace) -> list[tuple[str, int]]:
    """(pid, device) pairs that bear kernels, in order of device."""
    table = trace.table
    rows = trace.sound & (trace.kind == KERNEL)
    if not rows.any():
        rows = trace.sound & (trace.kind == COPY)
    pids = sorted({p for p, _ in table.lanes})
    device = table["device"][rows].astype(np.int64)
    low = int(device.min(initial=0))
    width = int(device.max(initial=0)) - low + 1
    codes = np.unique(_pid_codes(table)[rows] * width + device - low)
    found = [(pids[c // width], c % width + low) for c in codes.tolist()]
    return sorted(found, key=lambda f: (f[1], len(f[0]), f[0]))


def _pid_codes(table: EventTable) -> NDArray[np.int64]:
    """Code of each row's pid, an index into the sorted distinct pids."""
    pids = sorted({p for p, _ in table.lanes})
    of_lane = np.array([pids.index(p) for p, _ in table.lanes] or [0], dtype=np.int64)
    codes: NDArray[np.int64] = of_lane[table["lane"]]
    return codes


def _rows_of(table: EventTable, device: tuple[str, int]) -> NDArray[np.bool_]:
    pids = sorted({p for p, _ in table.lanes})
    rows: NDArray[np.bool_] = (_pid_codes(table) == pids.index(device[0])) & (
        table["device"] == device[1]
    )
    return rows


def _device_ranks(trace: Trace, num_devices: int) -> list[int]:
    """Ranks of a file's devices: the job's rank list when it fits, else by order."""
    for group in trace.pg_config:
        ranks = int_list(group.get("ranks"))
        if ranks and len(ranks) == num_devices:
            return ranks
    return list(range(num_devices))


# -- several files of one rank ----------------------------------------------------------------


def _captures(
    by_rank: dict[int, list[tuple[_File, Callable[[], Trace]]]], wanted: int | None
) -> dict[int, Callable[[], Trace]]:
    """One trace per rank; several files of a rank are captures, of which one must be chosen."""
    for held in by_rank.values():
        held.sort(key=lambda h: h[0].start_ns)
    most = max(len(held) for held in by_rank.values())
    if wanted is not None and not 1 <= wanted <= most:
        have = "there is 1" if most == 1 else f"there are {most}, counted from 1"
        raise UsageError(f"no capture {wanted}", hint=have)
    if most > 1 and wanted is None:
        raise _same_rank_twice(by_rank)
    at = (wanted or 1) - 1
    return {r: held[at][1] for r, held in by_rank.items() if at < len(held)}


def _same_rank_twice(by_rank: dict[int, list[tuple[_File, Callable[[], Trace]]]]) -> UsageError:
    rank, held = next((r, h) for r, h in sorted(by_rank.items()) if len(h) > 1)
    both = " and ".join(h[0].source.label for h in held[:4])
    most = max(len(h) for h in by_rank.values())
    listed = []
    for n in range(most):
        inside = [h[n][0].source for _, h in sorted(by_rank.items()) if n < len(h)]
        shown = f"{inside[0].path.parent.name}/{inside[0].name}"
        shown += f" and {len(inside) - 1} more" if len(inside) > 1 else ""
        listed.append(f"{n + 1}: {shown}")
    return UsageError(
        f"rank {rank} is in {both}",
        hint=f"pick one of {most} captures with --capture N: by time they are {'; '.join(listed)}",
    )


def _chosen(
    loaders: dict[int, Callable[[], Trace]], ranks: frozenset[int]
) -> dict[int, Callable[[], Trace]]:
    missing = sorted(ranks - loaders.keys())
    if missing:
        have = ", ".join(map(str, sorted(loaders)[:16])) + (", …" if len(loaders) > 16 else "")
        raise UsageError(f"no rank {missing[0]} in this run", hint=f"its ranks are {have}")
    return {r: load for r, load in loaders.items() if r in ranks}
