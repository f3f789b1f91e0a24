"""Whose trace a file is: its rank, its devices, and which of several captures is meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tracekit.core.errors import Note, UsageError
from tracekit.io.sources import Source
from tracekit.model import names as naming
from tracekit.model.devices import rows_of_device
from tracekit.model.files import File
from tracekit.model.trace import Trace

_RANK_WORD = re.compile(
    r"(?:rank|worker|gpu|trainer|proc(?:ess)?|node_rank)[-_.\[ ]?0*(\d{1,7})", re.IGNORECASE
)
_SHORT_RANK = re.compile(r"(?:^|[-_.])r0*(\d{1,7})(?=$|[-_.])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


def traces_first(files: list[File], notes: list[Note]) -> list[File]:
    """Traces win over flight-recorder dumps that lie beside them."""
    traces = [f for f in files if not f.flight_recording]
    dumps = [f for f in files if f.flight_recording]
    if not traces or not dumps:
        return files
    text = (
        f"{len(dumps)} flight-recorder dumps lie beside traces and were left out; "
        "open them by themselves"
    )
    left_out = {f.source.label for f in dumps}
    notes[:] = [n for n in notes if n.file not in left_out]  # remarks on what is not shown
    notes.append(Note("flight-recorder-left-out", text, "info", dumps[0].source.label))
    return traces


def name_ranks(files: list[File], notes: list[Note]) -> None:
    """Give a rank to files without one: from the name, else by order."""
    nameless = [f for f in files if f.rank is None]
    if not nameless:
        return
    taken = {f.rank for f in files if f.rank is not None}
    named = {id(f): rank_in_name(f.source) for f in nameless}
    if len(nameless) > 1 and (None in named.values() or len(set(named.values())) < len(nameless)):
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
    if source.given:  # a pipe: the number is that of a descriptor
        return None
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


def split_devices(
    file: File, names: naming.Names, notes: list[Note]
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
    if file.num_strays:
        text = f"{file.num_strays:,} events of devices without kernels belong to no rank; left out"
        notes.append(Note("stray-device-events", text, "warning", label))

    def loader(number: int, device: tuple[str, int]) -> Callable[[], Trace]:
        def make() -> Trace:
            table = load()
            rows = rows_of_device(table, device)
            return Trace(number, label, table, names, rows, "the device order of one file")

        return make

    return [(n, loader(n, d)) for n, d in zip(numbers, devices, strict=True)]


def one_capture(
    by_rank: dict[int, list[tuple[File, Callable[[], Trace]]]], wanted: int | None
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


def _same_rank_twice(by_rank: dict[int, list[tuple[File, Callable[[], Trace]]]]) -> UsageError:
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


def chosen_ranks(
    loaders: dict[int, Callable[[], Trace]], ranks: frozenset[int]
) -> dict[int, Callable[[], Trace]]:
    """Only the ranks the user asked for.

    Raises
    ------
    UsageError
        When one of them is absent.
    """
    missing = sorted(ranks - loaders.keys())
    if missing:
        have = ", ".join(map(str, sorted(loaders)[:16])) + (", …" if len(loaders) > 16 else "")
        raise UsageError(f"no rank {missing[0]} in this run", hint=f"its ranks are {have}")
    return {r: load for r, load in loaders.items() if r in ranks}
