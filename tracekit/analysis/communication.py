"""Collectives as rows: bytes, waiting, transfer, bandwidth, per operation on one group."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.rows import Row, us
from tracekit.model.collective import Collective


def collective_row(c: Collective, origin_ns: int, cut: bool = False) -> Row:
    """One collective as a row; times in µs on the corrected clock from the run's start.

    Parameters
    ----------
    c : Collective
    origin_ns : int
        Earliest start of all ranks.
    cut : bool
        Whether the chosen range cuts it; it then counts as an edge.
    """
    first = c.any
    sized = next((o for o in c.members.values() if o.num_bytes is not None), first)
    single = c.transfer is None
    return {
        "op": c.op,
        "group": c.group.name or None,
        "desc": c.group.desc or None,
        "axis": c.group.axis,
        "size": c.group.size if c.op != "send_recv" or first.src is None else 2,
        "ranks": sorted(c.members),
        "dtype": sized.dtype,
        "bytes": c.num_bytes,
        "in_elems": sized.in_elems,
        "out_elems": sized.out_elems,
        "start_us": us(c.start - origin_ns),
        "duration_us": {str(r): us(o.duration) for r, o in sorted(c.members.items())},
        "wait_us": None if single else {str(r): us(w) for r, w in sorted(c.wait.items())},
        "transfer_us": us(c.transfer),
        "start_skew_us": us(c.start_skew),
        "end_spread_us": us(c.end_spread),
        "last_rank": c.last_rank,
        "algbw_GBps": c.algbw(),
        "busbw_GBps": c.busbw(),
        "match": c.match,
        "complete": c.complete,
        "edge": c.edge or cut,
        "seq": first.seq,
        "comms_id": first.comms_id,
        "kernel": first.kernel,
        "phase": _text(first.detail.get("tracekit phase")),
        "layer": _text(first.detail.get("tracekit layer")),
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
