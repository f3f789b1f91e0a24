"""The plain column table that every reader hands upward: one row per timed event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import Note

#: integer columns, their type, and what stands for "not recorded"
COLUMNS: dict[str, Any] = {
    "start_ns": np.int64,  # relative to EventTable.base_ns
    "dur_ns": np.int64,
    "name": np.int32,  # row of EventTable.names
    "cat": np.int32,  # row of EventTable.cats
    "lane": np.int32,  # row of EventTable.lanes
    "device": np.int32,  # -1 when not recorded
    "stream": np.int64,  # -1 when not recorded
    "correlation": np.int64,  # -1 when not recorded
    "external_id": np.int64,  # -1 when not recorded
    "bytes": np.int64,  # of copies and fills; -1 when not recorded
    "detail": np.int32,  # row of EventTable.details, -1 for none
}


@dataclass(slots=True)
class EventTable:
    """Timed events of one file, in file order, as numpy columns.

    Attributes
    ----------
    columns : dict of str to ndarray, shape (num_events,)
        The columns named in `COLUMNS`.
    names, cats : list of str
        Texts the ``name`` and ``cat`` columns point to; ``cats`` are as written in the file.
    lanes : list of (str, str)
        ``(pid, tid)`` of each lane, as text.
    details : list of dict
        Arguments kept for the few rows that need them (collectives, gloo spans, sync rows).
    meta : dict
        The header: every top-level key of the file but ``traceEvents``.
    base_ns : int
        Unix time of ``start_ns == 0``; 0 where the file has absolute or unknown time.
    lane_names : dict of int to str
        Thread names by lane, where the file gives them.
    counts : dict of str to int
        ``read`` rows seen, ``timed`` rows kept, ``dropped``, ``clipped``, ``recovered``.
    notes : list of Note
        What was odd in this file.
    """

    columns: dict[str, NDArray[Any]]
    names: list[str]
    cats: list[str]
    lanes: list[tuple[str, str]]
    details: list[dict[str, Any]]
    meta: dict[str, Any]
    base_ns: int = 0
    lane_names: dict[int, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.columns["start_ns"])

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]
