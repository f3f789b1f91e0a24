"""The analysis as one JSON document, schema ``tracekit.analysis/1``."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.overview import overview
from tracekit.analysis.selection import selection
from tracekit.model.run import TraceSet

SCHEMA = "tracekit.analysis/1"


def document(
    run: TraceSet,
    *,
    steps: tuple[int, int] | None = None,
    time_range_us: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Analyze a run and lay the result out as the JSON document.

    Parameters
    ----------
    run : TraceSet
    steps : (first, last), optional
        Only these steps, both included.
    time_range_us : (start, end), optional
        Only this time, µs from the earliest start of all ranks on the corrected clock.

    Returns
    -------
    dict
        Numbers are numbers, what is not known is None.

    Raises
    ------
    UsageError
        When the steps or the range are empty or turned around.
    """
    found = overview(run, selection(steps, time_range_us))
    return {
        "schema": SCHEMA,
        "ranks": found.ranks,
        "steps": found.steps,
        "missing_steps": found.missing_steps,
        "no_step": found.no_step,
        "phases": found.phases,
        "groups": found.groups,
        "operations": found.operations,
        "collectives": found.collectives,
        "unmatched": found.unmatched,
        "stragglers": found.stragglers,
        "kernels": found.kernels,
        "totals": found.totals,
        "findings": found.findings,
        "notes": [n.as_dict() for n in found.notes],
    }
