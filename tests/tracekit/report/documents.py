"""Small analysis documents whose every figure is known."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def figures(window_us: float = 3000.0, **changes: Any) -> dict[str, Any]:
    """Figures that add up: window = compute + exposed comm + exposed memory + idle."""
    made = {
        "window_us": window_us,
        "compute_us": window_us / 3,
        "comm_us": window_us / 2,
        "overlap_us": window_us / 6,
        "exposed_comm_us": window_us / 3,
        "memory_us": 0.0,
        "exposed_memory_us": 0.0,
        "idle_us": window_us / 3,
        "overlap_frac": 1 / 3,
        "exposed_wait_us": window_us / 4,
        "exposed_transfer_us": window_us / 12,
        "exposed_unknown_us": 0.0,
        "edge_comm_us": 0.0,
        "host_comm_us": 0.0,
    }
    return made | changes


def rank(number: int, **changes: Any) -> dict[str, Any]:
    """One rank's row."""
    events = {"read": 1200, "timed": 1000, "dropped": 2, "clipped": 0, "unlinked": 7}
    head = {
        "rank": number,
        "world_size": 4,
        "file": f"/runs/a/rank{number}.json.gz",
        "host": "node1",
        "timeline": "device",
        "clock_offset_us": 0.0,
        "events": events,
    }
    return head | figures() | changes


def step(number: int, of_rank: int, **changes: Any) -> dict[str, Any]:
    """One rank's row of one step."""
    head = {"step": number, "rank": of_rank, "lead_us": None, "period_us": None}
    return head | figures(1500.0) | changes


def document_of(rows: list[dict[str, Any]], **changes: Any) -> Document:
    """A document with these ranks; totals are their sums where every rank knows the figure."""
    totals: dict[str, Any] = {
        key: None if any(r[key] is None for r in rows) else sum(r[key] for r in rows)
        for key in figures()
        if key != "overlap_frac"
    }
    comm_us = totals["comm_us"]
    known = comm_us and totals["overlap_us"] is not None
    totals["overlap_frac"] = totals["overlap_us"] / comm_us if known else None
    made: Document = {
        "schema": "tracekit.analysis/1",
        "ranks": rows,
        "steps": [],
        "missing_steps": [],
        "no_step": [],
        "groups": [],
        "collectives": [],
        "unmatched": {},
        "totals": totals,
        "findings": [],
        "notes": [],
    }
    return made | changes
