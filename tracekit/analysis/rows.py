"""Plain rows (dicts of µs and counts) from figures: the form tables, frames and JSON share."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.breakdown import Figures
from tracekit.model.links import Ints

Row = dict[str, Any]

#: figures in the order of tables, each the name of a `Figures` field
FIGURES = (
    "window", "compute", "comm", "overlap", "exposed_comm", "memory", "exposed_memory", "idle",
    "exposed_wait", "exposed_transfer", "exposed_unknown", "edge_comm", "other",
)  # fmt: skip
#: what is unknown where the device does not record its communication
_NEEDS_COMM = frozenset((
    "comm", "overlap", "exposed_comm", "idle", "exposed_wait", "exposed_transfer",
    "exposed_unknown", "edge_comm", "other",
))  # fmt: skip
#: what is unknown where only collectives were recorded
_NEEDS_COMPUTE = frozenset((
    "compute", "overlap", "exposed_comm", "memory", "exposed_memory", "idle", "exposed_wait",
    "exposed_transfer", "exposed_unknown", "other",
))  # fmt: skip


def us(ns: int | None) -> float | None:
    """Nanoseconds as µs."""
    return None if ns is None else ns / 1000.0


def figure_row(figures: Figures, at: int = 0) -> Row:
    """The figures of one span, in µs; None where the recording cannot tell."""
    row: Row = {}
    for name in FIGURES:
        unknown = (not figures.known_comm and name in _NEEDS_COMM) or (
            not figures.known_compute and name in _NEEDS_COMPUTE
        )
        value: Ints = getattr(figures, name)
        row[f"{name}_us"] = None if unknown else us(int(value[at]))
    row["overlap_frac"] = overlap_frac(row)
    return row


def overlap_frac(row: Row) -> float | None:
    """Overlap / communication; None without communication or where either is unknown."""
    if not row["comm_us"] or row["overlap_us"] is None:
        return None
    return float(row["overlap_us"] / row["comm_us"])


def total_row(rows: list[Row]) -> Row:
    """Figures summed over rows; None where a row's is unknown."""
    total: Row = {}
    for name in FIGURES:
        values = [r[f"{name}_us"] for r in rows]
        total[f"{name}_us"] = None if not rows or None in values else sum(values)
    total["overlap_frac"] = overlap_frac(total) if rows else None
    return total
