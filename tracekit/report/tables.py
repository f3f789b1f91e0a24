"""The analysis as flat tables: which there are, their columns with types and units, their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tracekit.analysis.members import member_rows
from tracekit.analysis.rows import FIGURES, Row
from tracekit.io.flat import Column, Kind
from tracekit.io.perfetto import encoded
from tracekit.model.run import TraceSet
from tracekit.report.document import document

EVENTS = (
    "read", "timed", "compute", "comm", "memory", "dropped", "clipped", "recovered", "unlinked",
)  # fmt: skip
_FIGURES = (*(f"{name}_us" for name in FIGURES), "overlap_frac")
_TEXTS = (
    "file", "host", "timeline", "phase", "group", "desc", "axis", "op", "dtype", "match",
    "comms_id", "kernel", "layer", "role", "name", "code", "severity", "text", "evidence",
)  # fmt: skip
#: columns that are no numbers; all others are float where their name ends in a unit, else int
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(("complete", "edge", "known", "is_last"), "bool"),
    "ranks": "int_list",
}
_UNITS = ("_us", "_frac", "_GBps")


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(
        Column(name, _KINDS.get(name, "float" if name.endswith(_UNITS) else "int"))
        for name in names
    )


#: tables in the order they are written, each with its columns
TABLES: dict[str, tuple[Column, ...]] = {
    "ranks": _columns(
        "rank", *_FIGURES, "host_comm_us", "clock_offset_us", "clock_spread_us", "timeline",
        "world_size", "host", "pid", "file", *(f"events_{name}" for name in EVENTS),
    ),
    "steps": _columns("rank", "step", *_FIGURES, "host_us", "lead_us", "period_us", "num_work"),
    "phases": _columns("rank", "phase", "num_spans", *_FIGURES),
    "groups": _columns(
        "rank", "group", "desc", "axis", "size", "ranks", "comm_us", "overlap_us",
        "exposed_comm_us", "exposed_share_us",
    ),
    "collectives": _columns(
        "collective", "op", "group", "desc", "axis", "size", "ranks", "dtype", "bytes",
        "in_elems", "out_elems", "start_us", "transfer_us", "start_skew_us", "end_spread_us",
        "last_rank", "algbw_GBps", "busbw_GBps", "match", "complete", "edge", "seq", "comms_id",
        "kernel", "phase", "layer",
    ),
    "members": _columns(
        "collective", "rank", "start_us", "duration_us", "wait_us", "before_last_us", "is_last",
    ),
    "operations": _columns(
        "rank", "op", "comm_us", "overlap_us", "exposed_comm_us", "exposed_share_us",
    ),
    "stragglers": _columns("rank", "num_matched", "num_last", "late_us", "wait_us"),
    "kernels": _columns(
        "rank", "role", "name", "count", "total_us", "mean_us", "min_us", "max_us", "known",
    ),
    "findings": _columns("code", "severity", "text", "evidence", "gain_us", "gain_frac"),
    "notes": _columns("code", "severity", "file", "text"),
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Tables:
    """The rows of each table of one run."""

    run: TraceSet
    made: dict[str, Any]

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table named in `TABLES`.

        The steps table also holds, with no step number, the work of each rank that belongs to no
        step; ``collective`` numbers the collectives by start and joins collectives and members;
        the evidence of a finding is JSON.
        """
        if table == "ranks":
            for row in self.made["ranks"]:
                yield {**row, **{f"events_{k}": n for k, n in row["events"].items()}}
        elif table == "steps":
            yield from self.made["steps"]
            yield from self.made["no_step"]
        elif table == "collectives":
            for number, row in enumerate(self.made["collectives"]):
                yield {"collective": number, **row}
        elif table == "findings":
            for row in self.made["findings"]:
                yield {**row, "evidence": encoded(row["evidence"]).decode()}
        elif table == "members":
            yield from member_rows(self.run)
        else:
            yield from self.made[table]


def tables_of(run: TraceSet) -> Tables:
    """Analyze a run and make its tables."""
    return Tables(run, document(run))
