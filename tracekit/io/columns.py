"""Collect decoded rows piece by piece into the columns of an event table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracekit.io.table import COLUMNS, EventTable


class Codes(dict[Any, int]):
    """Numbers texts in order of first appearance, at the cost of one dictionary look-up."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


def _hashable(values: list[Any]) -> list[Any]:
    """Values as dictionary keys; lists and objects (hostile input) become their text."""
    return [v if isinstance(v, str | int | float | type(None)) else str(v) for v in values]


class ColumnBuilder:
    """Grows the columns of one file.

    Parameters
    ----------
    detail_keys : collection of str
        Arguments whose values are kept in details (for the reader's reference only).
    """

    def __init__(self, detail_keys: dict[str, str] | None = None) -> None:
        self.detail_keys = detail_keys or {}
        self.num_read = 0
        self.unpaired = 0
        self._parts: dict[str, list[NDArray[Any]]] = {key: [] for key in COLUMNS}
        self._names, self._cats, self._lanes = Codes(), Codes(), Codes()
        self._origins = Codes()
        self._cat_of: list[int] = []
        self._lane_of: list[int] = []
        self._wanted: list[bool] = []
        self._details: list[dict[str, Any]] = []
        self._lane_names: dict[tuple[Any, Any], str] = {}
        self._open: dict[tuple[Any, Any], list[tuple[Any, Any, int]]] = {}
        self._pairs: list[tuple[int, int, Any, Any, tuple[Any, Any]]] = []

    def add(
        self,
        *,
        start_ns: NDArray[np.int64],
        dur_ns: NDArray[np.int64],
        names: list[Any],
        origins: list[tuple[Any, Any, Any]],
        external_id: NDArray[np.int64],
    ) -> None:
        """Append rows; all arguments have one entry per row.

        ``origins`` are (cat, pid, tid), coded together because rows of one lane mostly share
        their category. The columns not given are -1 until `fill` sets them.
        """
        parts = self._parts
        parts["start_ns"].append(start_ns)
        parts["dur_ns"].append(dur_ns)
        parts["name"].append(self._code(self._names, names))
        origin = self._code(self._origins, origins)
        cats, lanes = self._split_origins()
        parts["cat"].append(cats[origin])
        parts["lane"].append(lanes[origin])
        parts["external_id"].append(external_id)
        for key in ("device", "stream", "correlation", "bytes", "detail"):
            parts[key].append(np.full(len(names), -1, dtype=COLUMNS[key]))

    def _split_origins(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Cat and lane code of each origin code."""
        for cat, pid, tid in list(self._origins)[len(self._cat_of) :]:
            self._cat_of.append(self._cats[cat])
            self._lane_of.append(self._lanes[pid, tid])
        return np.array(self._cat_of, dtype=np.int32), np.array(self._lane_of, dtype=np.int32)

    def fill(self, rows: list[int], **columns: NDArray[np.int64]) -> None:
        """Set columns of some of the rows added last."""
        for key, values in columns.items():
            fits = np.clip(values, -1, 2**31 - 1) if COLUMNS[key] is np.int32 else values
            self._parts[key][-1][rows] = fits

    def rows_named(self, wanted: Callable[[str], bool]) -> list[int]:
        """Rows added last whose name is wanted; asked once per distinct name."""
        for name in list(self._names)[len(self._wanted) :]:
            self._wanted.append(isinstance(name, str) and wanted(name))
        hits = np.array(self._wanted, dtype=bool)[self._parts["name"][-1]]
        return [int(row) for row in np.flatnonzero(hits)]

    def add_detail(self, row: int, detail: dict[str, Any]) -> None:
        """Attach arguments to row ``row`` of the rows added last."""
        self._parts["detail"][-1][row] = len(self._details)
        self._details.append(detail)

    @staticmethod
    def _code(codes: Codes, values: list[Any]) -> NDArray[np.int64]:
        try:
            return np.array([codes[v] for v in values], dtype=np.int64)
        except TypeError:
            if values and isinstance(values[0], tuple):
                keys: list[Any] = [tuple(_hashable(list(v))) for v in values]
            else:
                keys = _hashable(values)
            return np.array([codes[v] for v in keys], dtype=np.int64)

    def name_lane(self, kind: str, lane: tuple[Any, Any], name: Any) -> None:
        """Keep the name the file gives a thread."""
        if kind == "thread_name" and isinstance(name, str):
            pid, tid = _hashable(list(lane))
            self._lane_names[pid, tid] = name

    def half(self, begins: bool, lane: tuple[Any, Any], name: Any, cat: Any, ts_ns: int) -> None:
        """Take a begin or an end row; pairs become complete rows when the table is made."""
        pid, tid = _hashable(list(lane))
        stack = self._open.setdefault((pid, tid), [])
        if begins:
            stack.append((name, cat, ts_ns))
        elif stack:
            opened, opened_cat, start = stack.pop()
            self._pairs.append((start, ts_ns - start, opened, opened_cat, (pid, tid)))
        else:
            self.unpaired += 1

    def _flush_pairs(self) -> None:
        self.unpaired += sum(map(len, self._open.values()))
        self._open.clear()
        pairs, self._pairs = self._pairs, []
        if not pairs:
            return
        self.add(
            start_ns=np.array([p[0] for p in pairs], dtype=np.int64),
            dur_ns=np.array([p[1] for p in pairs], dtype=np.int64),
            names=[p[2] for p in pairs],
            origins=[(p[3], *p[4]) for p in pairs],
            external_id=np.full(len(pairs), -1, dtype=np.int64),
        )

    def table(self, meta: dict[str, Any]) -> EventTable:
        """The finished table; the builder is empty afterwards."""
        self._flush_pairs()
        columns = {}
        for key, kind in COLUMNS.items():
            parts = self._parts.pop(key)
            whole = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
            columns[key] = whole.astype(kind, copy=False)
        lanes = [(_text(pid), _text(tid)) for pid, tid in self._lanes]
        lane_names = {
            code: self._lane_names[lane]
            for lane, code in self._lanes.items()
            if lane in self._lane_names
        }
        return EventTable(
            columns=columns,
            names=[_text(n) for n in self._names],
            cats=[_text(c) for c in self._cats],
            lanes=lanes,
            details=self._details,
            meta=meta,
            lane_names=lane_names,
            counts={"read": self.num_read, "timed": len(columns["start_ns"])},
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
