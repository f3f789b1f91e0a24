"""Read the files of a run, from the store where they were read before."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracekit.core.errors import NotATraceError, Note, NoTraceError, ReadError, Severity
from tracekit.io import store as stores
from tracekit.io.finding import discard_spooled
from tracekit.io.identity import key_of
from tracekit.io.pool import num_workers, read_all
from tracekit.io.registry import read_source
from tracekit.io.sources import Limits, Source
from tracekit.io.store import Store
from tracekit.io.table import EventTable
from tracekit.model import names as naming
from tracekit.model.devices import device_ranks_of, devices_of, num_strays
from tracekit.model.trace import Trace


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


@dataclass(slots=True, eq=False)
class File:
    """A file that was read, and how to get at its table again."""

    source: Source
    load: Callable[[], EventTable]
    start_ns: int
    flight_recording: bool
    rank: int | None
    rank_source: str
    devices: list[tuple[str, int]]
    device_ranks: list[int]
    num_strays: int  # device rows of none of several devices


def read_files(
    sources: list[Source], names: naming.Names, options: OpenOptions, notes: list[Note]
) -> list[File]:
    """Read all sources; those that cannot be read become notes."""
    try:
        return _read_files(sources, names, options, notes)
    finally:
        discard_spooled(sources)


def _read_files(
    sources: list[Source], names: naming.Names, options: OpenOptions, notes: list[Note]
) -> list[File]:
    given = _store_for(sources, options)
    files: list[File] = []
    errors: list[ReadError] = []
    for source, key, table in _tables(sources, given, options, notes):
        if isinstance(table, ReadError):
            errors.append(table)
            continue
        try:
            files.append(_file(source, key, table, given, names))
        except ReadError as unfit:
            errors.append(unfit)
            continue
        # an entry may have been made under another path
        notes.extend(replace(n, file=source.label) for n in table.notes)
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
) -> File:
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
    devices = devices_of(whole)
    several = len(devices) > 1
    numbers = device_ranks_of(whole, len(devices)) if several else []
    strays = num_strays(whole, devices) if several else 0
    return File(
        source, kept, first + table.base_ns, recording, rank, said, devices, numbers, strays
    )


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
