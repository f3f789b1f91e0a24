"""One rank's trace: its event table, who it is, and which rows are whose."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import Note
from tracekit.io.table import EventTable
from tracekit.model.names import Names

if TYPE_CHECKING:
    import pandas as pd

#: kinds of rows in the order of their codes (`Trace.kind`)
KINDS = (
    "", "kernel", "memory", "launch", "operator", "annotation", "collective", "python", "recorded",
)  # fmt: skip
(OTHER, KERNEL, COPY, LAUNCH, OPERATOR, ANNOTATION, COLLECTIVE, PYTHON, RECORDED) = range(9)
#: 104 days; keeps sums of times within 64 bits
FAR_NS = 2**53
_HOST_PID = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.\d{10,}(?:\.pt)?\.trace\.json")


@dataclass(eq=False)
class Trace:
    """What one rank recorded.

    Attributes
    ----------
    rank : int
        Global rank.
    file : str
        Where it was read from.
    table : EventTable
        Events of the whole file; times relative to ``table.base_ns``.
    names : Names
        The naming rules in force.
    device_rows : ndarray of bool or None
        Which device rows of the file are this rank's, when the file holds several devices.
    rank_source : str
        Where the rank was read from, in words.
    """

    rank: int
    file: str
    table: EventTable
    names: Names
    device_rows: NDArray[np.bool_] | None = None
    rank_source: str = ""
    notes: list[Note] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Trace rank {self.rank}: {len(self.table):,} events, {self.timeline} timeline>"

    @cached_property
    def kind(self) -> NDArray[np.int8]:
        """Kind code of each row, an index into `KINDS`."""
        codes = [KINDS.index(self.names.kind(c)) for c in self.table.cats] or [OTHER]
        kinds: NDArray[np.int8] = np.array(codes, dtype=np.int8)[self.table["cat"]]
        return kinds

    @cached_property
    def has_cats(self) -> bool:
        """Whether the file says of any row what kind it is."""
        return any(self.names.kind(c) for c in self.table.cats)

    @cached_property
    def sound(self) -> NDArray[np.bool_]:
        """Rows whose times are possible.

        No negative duration, not both times 0, and not months away from the other rows (device
        and host rows each by themselves: some writers give them different clocks).
        """
        start, dur = self.table["start_ns"], self.table["dur_ns"]
        ok: NDArray[np.bool_] = (dur >= 0) & (dur <= FAR_NS) & (start > -(2**61))
        ok &= ~((start == 0) & (dur == 0))
        on_device = (self.kind == KERNEL) | (self.kind == COPY)
        for rows in (np.flatnonzero(ok & on_device), np.flatnonzero(ok & ~on_device)):
            times = start[rows]
            if len(times) and int(times.max()) - int(times.min()) > FAR_NS:
                middle = np.partition(times, len(times) // 2)[len(times) // 2]
                ok[rows] = np.abs(times - middle) <= FAR_NS
        return ok

    @cached_property
    def is_device_row(self) -> NDArray[np.bool_]:
        """Rows that a device recorded and that are this rank's."""
        mine: NDArray[np.bool_] = (self.kind == KERNEL) | (self.kind == COPY)
        return mine if self.device_rows is None else mine & self.device_rows

    @property
    def timeline(self) -> str:
        """``device`` when the file has device work, else ``host``."""
        return "device" if self.is_device_row.any() else "host"

    @property
    def is_flight_recording(self) -> bool:
        """Whether this is a flight-recorder dump: collectives only."""
        return self.table.meta.get("tracekit_source") == "flight_recorder"

    @property
    def distributed(self) -> dict[str, Any]:
        """The ``distributedInfo`` header, empty when absent or malformed."""
        info = self.table.meta.get("distributedInfo")
        return info if isinstance(info, dict) else {}

    @property
    def own(self) -> dict[str, Any]:
        """The ``tracekit`` header of our own runtime, empty when absent."""
        info = self.table.meta.get("tracekit")
        return info if isinstance(info, dict) else {}

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the job; None when the file does not say."""
        size = self.distributed.get("world_size")
        return size if type(size) is int and size > 0 else None

    @property
    def host(self) -> str | None:
        """Host name, from the header or the file name."""
        name = self.table.meta.get("host_name")
        if isinstance(name, str) and name:
            return name
        found = _HOST_PID.match(self.file_name)
        return found["host"] if found else None

    @property
    def pid(self) -> int | None:
        """Process id, from the file name or the host rows."""
        if found := _HOST_PID.match(self.file_name):
            return int(found["pid"])
        rows = self.kind == OPERATOR
        if not rows.any():
            return None
        lane = int(np.bincount(self.table["lane"][rows]).argmax())
        pid = self.table.lanes[lane][0]
        return int(pid) if pid.isdecimal() and len(pid) < 19 else None

    @property
    def file_name(self) -> str:
        """Last part of `file`."""
        return re.split(r"[/\\!]", self.file)[-1]

    @cached_property
    def streams(self) -> NDArray[np.int64]:
        """Stream of each row: as recorded, else one negative number per lane."""
        stream, lane = self.table["stream"], self.table["lane"].astype(np.int64)
        found: NDArray[np.int64] = np.where(stream >= 0, stream, -2 - lane)
        return found

    @cached_property
    def pg_config(self) -> list[dict[str, Any]]:
        """Process groups the header lists; malformed entries left out."""
        raw = self.distributed.get("pg_config")
        return [g for g in raw if isinstance(g, dict)] if isinstance(raw, list) else []

    @cached_property
    def name_codes(self) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
        """Role code of each name, and which names no rule knows."""
        return self.names.role_codes(self.table.names)

    def name_matches(self, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
        """Rows in whose name ``pattern`` is found."""
        hit = np.array([bool(pattern.search(n)) for n in self.table.names] or [False])
        rows: NDArray[np.bool_] = hit[self.table["name"]]
        return rows

    @property
    def events(self) -> pd.DataFrame:
        """All timed events as a frame, one row per event, in order of start.

        Columns: ``start_us`` and ``dur_us`` (float, µs from the file's time base), ``name``,
        ``cat``, ``kind``, ``role`` (device rows), ``pid``, ``tid``, ``device``, ``stream``,
        ``correlation``, ``external_id``, ``bytes``; missing values are ``<NA>``.
        """
        from tracekit.model.frames import events_frame

        return events_frame(self)
