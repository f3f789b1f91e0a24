"""What is known of one event and of its collective, as lines of label and text."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.core.errors import one_line
from tracekit.model.collective import Collective
from tracekit.model.run import TraceSet
from tracekit.model.trace import LAUNCH, Trace

Fact = tuple[str, str]
VALUE_LIMIT = 4000
#: arguments shown
MAX_ARGS = 64


def event_facts(run: TraceSet, trace: Trace, row: int, shift_ns: int) -> dict[str, Any]:
    """All that is known of one event; see `tracekit.plot.timeline.Timeline.event`."""
    table = trace.table
    start = int(table["start_ns"][row]) + table.base_ns + shift_ns
    pid, tid = table.lanes[table["lane"][row]]
    facts = [
        ("rank", str(trace.rank)),
        ("start", time_text(start)),
        ("duration", time_text(int(table["dur_ns"][row]))),
        ("category", table.cats[table["cat"][row]]),
        ("process", pid),
        ("thread", tid),
    ]
    for column, label in (
        ("stream", "stream"),
        ("device", "device"),
        ("correlation", "correlation"),
        ("external_id", "external id"),
    ):
        if int(table[column][row]) >= 0:
            facts.append((label, str(int(table[column][row]))))
    if int(table["bytes"][row]) >= 0:
        facts.append(("bytes", f"{int(table['bytes'][row]):,} B"))
    found = members_of(run, trace.rank, row)
    if found:
        facts += collective_facts(found)
        facts.append(("waited here", time_text(found.wait.get(trace.rank))))
    return {
        "name": _text(table.names[table["name"][row]]),
        "start": start,
        "dur": int(table["dur_ns"][row]),
        "facts": [(label, _text(value)) for label, value in facts],
        "args": _args(trace, row),
        "launch": _launch(trace, row, shift_ns),
    }


def members_of(run: TraceSet, rank: int, row: int) -> Collective | None:
    """The collective a row of a rank belongs to; None where it belongs to none."""
    _, work = run.work(rank)
    entries = np.flatnonzero(work.row == row).tolist()
    if not entries:
        return None
    for c in run.collectives_of(rank):
        if not set(entries).isdisjoint(c.members[rank].entries):
            return c
    return None


def collective_facts(c: Collective) -> list[Fact]:
    """A collective in words."""
    group = " ".join(dict.fromkeys(p for p in (c.group.axis, c.group.desc, c.group.name) if p))
    ranks = sorted(c.members)
    shown = ", ".join(map(str, ranks[:16])) + (f", … ({len(ranks)})" if len(ranks) > 16 else "")
    busbw = c.busbw()
    facts = [
        ("operation", c.op or "not known"),
        ("group", group or "not known"),
        ("ranks matched", f"{shown} (by {c.match})" if len(ranks) > 1 else f"{shown} (none other)"),
        ("message", "not known" if c.num_bytes is None else f"{c.num_bytes:,} B"),
        ("transfer", time_text(c.transfer)),
        ("last to arrive", "not known" if c.last_rank is None else f"rank {c.last_rank}"),
        ("bus bandwidth", "not known" if busbw is None else f"{busbw:.3g} GB/s"),
    ]
    if c.edge:
        facts.append(("edge", "began before the recording: left out of medians"))
    return [(label, _text(value)) for label, value in facts]


def time_text(ns: int | None) -> str:
    """A time to the nanosecond, in the unit that suits it.

    Examples
    --------
    >>> time_text(1_234_567), time_text(-900), time_text(3_000_000_000), time_text(None)
    ('1.234567 ms', '-900 ns', '3.000000000 s', 'not known')
    """
    if ns is None:
        return "not known"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, digits in (("s", 9), ("ms", 6), ("µs", 3)):
        if ns >= 10**digits:
            return f"{sign}{ns // 10**digits}.{ns % 10**digits:0{digits}d} {unit}"
    return f"{sign}{ns} ns"


def _args(trace: Trace, row: int) -> list[Fact]:
    detail = int(trace.table["detail"][row])
    if detail < 0:
        return []
    items = list(trace.table.details[detail].items())[:MAX_ARGS]
    return [(_text(key), _text(value)) for key, value in items]


def _launch(trace: Trace, row: int, shift_ns: int) -> dict[str, Any] | None:
    """The host call behind device work, or the first device work of a host call."""
    table = trace.table
    correlation = int(table["correlation"][row])
    if correlation < 0:
        return None
    wanted = (trace.kind == LAUNCH) if trace.is_device_row[row] else trace.is_device_row
    there = np.flatnonzero((table["correlation"] == correlation) & wanted & trace.sound)
    if not len(there):
        return None
    other = int(there[0])
    start = int(table["start_ns"][other]) + table.base_ns + shift_ns
    return {
        "label": "launched by" if trace.is_device_row[row] else "launched",
        "name": one_line(table.names[table["name"][other]], 160),
        "rank": trace.rank,
        "row": other,
        "start": start,
        "dur": int(table["dur_ns"][other]),
    }


def _text(value: object) -> str:
    return one_line(str(value), VALUE_LIMIT)
