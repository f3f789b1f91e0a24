"""One rank's events as a pandas frame, with units in the column names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracekit.model.links import Ints
from tracekit.model.names import NONE, ROLES
from tracekit.model.trace import (
    ANNOTATION,
    COLLECTIVE,
    KINDS,
    LAUNCH,
    OPERATOR,
    PYTHON,
    RECORDED,
    Trace,
)
from tracekit.model.work import Work, work_of

if TYPE_CHECKING:
    import pandas as pd

_HOST_KINDS = (LAUNCH, OPERATOR, ANNOTATION, COLLECTIVE, PYTHON, RECORDED)
#: integer columns of the table that the frame shows
NUMBERS = ("device", "stream", "correlation", "external_id", "bytes")


def events_frame(trace: Trace) -> pd.DataFrame:
    """All timed events of a rank in order of start, one row per event.

    Rows with impossible times (a negative duration; start and duration both 0) are left out, and
    so is the work of other devices where one file holds several.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    DataFrame
        ``start_us`` and ``dur_us`` (float64, µs from the file's time base); ``name``, ``cat``,
        ``kind``, ``role``, ``pid``, ``tid`` (categories); ``device``, ``stream``,
        ``correlation``, ``external_id``, ``bytes`` (Int64). The role is that of rows whose time is
        accounted for: device work or, where no device was recorded, the spans of collectives and
        the outermost operators.
    """
    import pandas as pd

    rows = rows_of(trace)
    table = trace.table
    pids, tids = lane_texts(trace)
    texts: dict[str, tuple[NDArray[Any], list[str]]] = {
        "name": (table["name"][rows], table.names),
        "cat": (table["cat"][rows], table.cats),
        "kind": (trace.kind[rows], list(KINDS)),
        "role": (roles(trace, work_of(trace))[rows], [str(role) for role in ROLES]),
        "pid": (pids[0][rows], pids[1]),
        "tid": (tids[0][rows], tids[1]),
    }
    columns: dict[str, object] = {
        "start_us": table["start_ns"][rows] / 1000.0,
        "dur_us": table["dur_ns"][rows] / 1000.0,
    }
    columns |= {name: _category(*coded) for name, coded in texts.items()}
    for name in NUMBERS:
        values = table[name][rows].astype(np.int64)
        columns[name] = pd.arrays.IntegerArray(values, values < 0)
    return pd.DataFrame(columns)


def rows_of(trace: Trace) -> Ints:
    """Sound rows of a rank in order of start, the outer before the inner."""
    mine = trace.sound
    if trace.device_rows is not None:
        on_device = (trace.table["device"] >= 0) & ~np.isin(trace.kind, _HOST_KINDS)
        mine = mine & (trace.device_rows | ~on_device)
    rows = np.flatnonzero(mine)
    start, dur = trace.table["start_ns"][rows], trace.table["dur_ns"][rows]
    found: Ints = rows[np.lexsort((-dur, start))]
    return found


def roles(trace: Trace, work: Work) -> NDArray[np.int8]:
    """Role code of each row of the table, -1 for rows whose time is not accounted for."""
    found = np.full(len(trace.table), -1, dtype=np.int8)
    found[work.row] = work.role
    found[found == NONE] = -1
    return found


def lane_texts(
    trace: Trace,
) -> tuple[tuple[Ints, list[str]], tuple[Ints, list[str]]]:
    """Codes and texts of each row's process id, and of its thread id."""
    lanes = trace.table.lanes
    lane = trace.table["lane"]

    def coded(texts: list[str]) -> tuple[Ints, list[str]]:
        unique = sorted(set(texts))
        place = {text: code for code, text in enumerate(unique)}
        codes = np.array([place[t] for t in texts] or [0], dtype=np.int64)
        return codes[lane], unique

    return coded([pid for pid, _ in lanes]), coded([tid for _, tid in lanes])


def _category(codes: NDArray[np.integer], texts: list[str]) -> pd.Categorical[str]:
    """Texts by code; negative codes and empty texts are missing."""
    import pandas as pd

    unique = sorted({t for t in texts if t})
    place = {text: code for code, text in enumerate(unique)}
    recode = np.array([place.get(t, -1) for t in texts] + [-1], dtype=np.int64)
    return pd.Categorical.from_codes(
        recode[np.where(codes < 0, len(texts), codes)], categories=pd.Index(unique, dtype=str)
    )
