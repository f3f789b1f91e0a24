"""Who arrives last at collectives, how often, and how late."""

from __future__ import annotations

from collections.abc import Iterable

from tracekit.analysis.rows import Row, us
from tracekit.model.collective import Collective


def straggler_rows(collectives: Iterable[Collective], ranks: list[int]) -> list[Row]:
    """Per rank: matched collectives, how often it came last, and by how much in sum.

    A collective's lateness is the last arrival less the second-last one: what the collective
    would have started earlier had that rank not been last. Edge collectives, whose arrivals the
    start of a recording distorts, are left out, and so are those of which a member is missing.

    Returns
    -------
    list of dict
        ``rank``, ``num_matched``, ``num_last``, ``late_us`` (sum), ``wait_us`` (sum of its own
        waiting), the latest rank first.
    """
    made = {r: {"rank": r, "num_matched": 0, "num_last": 0, "late": 0, "wait": 0} for r in ranks}
    for c in collectives:
        if c.last_rank is None or c.edge or not c.complete:
            continue
        for rank, wait in c.wait.items():
            made[rank]["num_matched"] += 1
            made[rank]["wait"] += wait
        made[c.last_rank]["num_last"] += 1
        made[c.last_rank]["late"] += lateness_ns(c)
    rows: list[Row] = []
    for row in sorted(made.values(), key=lambda r: (-r["late"], r["rank"])):
        if row["num_matched"]:
            counts = {k: row[k] for k in ("rank", "num_matched", "num_last")}
            rows.append({**counts, "late_us": us(row["late"]), "wait_us": us(row["wait"])})
    return rows


def lateness_ns(c: Collective) -> int:
    """Last arrival less second-last arrival, on the corrected clock; 0 for a single member."""
    return min((ns for r, ns in c.before_last.items() if r != c.last_rank), default=0)
