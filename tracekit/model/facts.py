"""What a check needs to know of one rank, small enough to be held for thousands of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.model.names import COMM, COMPUTE
from tracekit.model.run import TraceSet
from tracekit.model.steps import membership, steps_of
from tracekit.model.trace import LAUNCH, OTHER, Trace
from tracekit.model.work import Work

#: profiler options that torch writes into the header as the number 1
OPTIONS = ("record_shapes", "with_stack", "profile_memory", "with_modules", "with_flops")
_VERSIONS = (
    "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "hip_driver_version",
)  # fmt: skip
#: with fewer events nothing can be said about how finely the times are written
MIN_EVENTS = 64


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank's recording in a few figures.

    Attributes
    ----------
    span : (start, end) or None
        First start and last end of all rows, absolute ns on the rank's own clock.
    timeline : {"device", "host"}
    num_work, num_comm : int
    work_ns : int
        Lengths of all work, summed.
    median_ns : int
        Of the lengths.
    counts : dict
        ``timed``, ``dropped``, ``clipped``, ``unlinked``, ``recovered``.
    has_launches, has_issues : bool
        Whether host rows of launches, and rows that describe collectives, were recorded.
    steps, empty_steps : list of int
        Numbers of the steps annotated, and of those without any work.
    resolution_ns : int
        Greatest common divisor of the times of work; 1 where it cannot be told.
    has_base : bool
        Whether the file has a time base (``baseTimeNanoseconds``).
    options : frozenset of str
        Profiler options that were on.
    versions : dict of str to str
    device_name : str
        Empty when the file does not say.
    messages : tuple of str
        Errors that Kineto wrote into the header.
    """

    rank: int
    file: str
    world_size: int | None
    backend: str
    span: tuple[int, int] | None
    timeline: str
    compute_known: bool
    comm_known: bool
    num_work: int
    num_comm: int
    work_ns: int
    median_ns: int
    counts: dict[str, int]
    has_launches: bool
    has_issues: bool
    steps: list[int]
    empty_steps: list[int]
    resolution_ns: int
    has_base: bool
    options: frozenset[str]
    versions: dict[str, str]
    device_name: str
    messages: tuple[str, ...]


def facts_of(run: TraceSet, rank: int) -> RankFacts:
    """Look through one rank's trace."""
    trace, work = run.work(rank)
    table, length = trace.table, work.end - work.start
    labels, empty = _steps(trace, work)
    return RankFacts(
        rank=rank,
        file=trace.file,
        world_size=trace.world_size,
        backend=str(trace.distributed.get("backend", "")),
        span=_recorded(trace),
        timeline=work.timeline,
        compute_known=work.compute_known,
        comm_known=work.comm_known,
        num_work=len(work),
        num_comm=int((work.role == COMM).sum()),
        work_ns=int(length.sum()),
        median_ns=int(np.median(length)) if len(work) else 0,
        counts={**work.counts, "recovered": table.counts.get("recovered", 0)},
        has_launches=bool((trace.kind == LAUNCH).any()),
        has_issues=_describes_collectives(trace),
        steps=labels,
        empty_steps=empty,
        resolution_ns=_resolution(trace, work),
        has_base=table.base_ns > 0,
        options=frozenset(o for o in OPTIONS if table.meta.get(o)),
        versions=_versions(trace),
        device_name=_device_name(trace, work),
        messages=_messages(table.meta.get("ERROR")),
    )


def _steps(trace: Trace, work: Work) -> tuple[list[int], list[int]]:
    """Step numbers, and those of steps that hold the launch of no work."""
    spans = steps_of(trace)
    held = set(membership(work, spans).tolist()) if len(spans) else set()
    labels = [int(label) for label in spans.label]
    return labels, [label for at, label in enumerate(labels) if at not in held]


def _describes_collectives(trace: Trace) -> bool:
    """Whether host rows say of collectives what they are; torch before 2.3 writes them bare."""
    issuing = [i for i, n in enumerate(trace.table.names) if n == "record_param_comms"]
    return bool((np.isin(trace.table["name"], issuing) & (trace.table["detail"] >= 0)).any())


def _recorded(trace: Trace) -> tuple[int, int] | None:
    """First start and last end of all that was recorded, absolute; None when nothing was."""
    rows = trace.sound & (trace.kind != OTHER) if trace.has_cats else trace.sound
    if not rows.any():
        return None
    start, base = trace.table["start_ns"][rows], trace.table.base_ns
    return int(start.min()) + base, int((start + trace.table["dur_ns"][rows]).max()) + base


def _resolution(trace: Trace, work: Work) -> int:
    if len(work) < MIN_EVENTS:
        return 1
    starts, lengths = trace.table["start_ns"][work.row], trace.table["dur_ns"][work.row]
    return max(1, int(np.gcd.reduce(np.concatenate((starts, lengths)))))


def _versions(trace: Trace) -> dict[str, str]:
    found = {key: trace.table.meta.get(key) for key in _VERSIONS}
    found["nccl_version"] = trace.distributed.get("nccl_version")
    return {key: str(value) for key, value in found.items() if value not in (None, "")}


def _device_name(trace: Trace, work: Work) -> str:
    """Name of the device that ran most of the work, from the header."""
    listed = trace.table.meta.get("deviceProperties")
    if work.timeline != "device" or not isinstance(listed, list) or not len(work):
        return ""
    numbers, count = np.unique(trace.table["device"][work.row], return_counts=True)
    device = int(numbers[count.argmax()])
    names = (d.get("name") for d in listed if isinstance(d, dict) and d.get("id") == device)
    name = next(names, None)
    return name if isinstance(name, str) else ""


def unknown_names(run: TraceSet, rank: int) -> dict[str, tuple[int, int]]:
    """Names of a rank's device work that no naming rule knows: how often, and ns in all."""
    trace, work = run.work(rank)
    _, unknown = trace.name_codes
    if work.timeline != "device" or not unknown.any():
        return {}
    names = trace.table["name"][work.row]
    mine = unknown[names] & (work.role == COMPUTE)
    count = np.bincount(names[mine], minlength=len(unknown))
    total = np.zeros(len(unknown), dtype=np.int64)
    np.add.at(total, names[mine], (work.end - work.start)[mine])
    there = np.flatnonzero(count).tolist()
    return {trace.table.names[n]: (int(count[n]), int(total[n])) for n in there}


def _messages(lines: Any) -> tuple[str, ...]:
    return tuple(str(line) for line in lines[:8]) if isinstance(lines, list) else ()
