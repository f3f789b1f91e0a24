"""What the pages need of one run, condensed so that a thousand steps of 64 ranks stay light.

Many rows travel as columns: numbers as bytes of float64 (NaN for what is not known), texts as
lists. The small tables travel as they stand in the analysis document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
Columns = dict[str, bytes | list[str | None]]

#: tables that stay rows, as `tracekit.report.tables.Tables` gives them
SMALL = (
    "ranks", "phases", "groups", "operations", "stragglers", "findings", "notes",
)  # fmt: skip


def columns(rows: Sequence[Row], numbers: Iterable[str], texts: Iterable[str] = ()) -> Columns:
    """Rows as columns."""
    made: Columns = {}
    for name in numbers:
        values = [np.nan if row.get(name) is None else row[name] for row in rows]
        made[name] = np.array(values, dtype=np.float64).tobytes()
    for name in texts:
        made[name] = [None if row.get(name) is None else str(row[name]) for row in rows]
    return made


def to_frame(held: Columns) -> pd.DataFrame:
    """Columns as a frame: float64 for numbers, objects for texts."""
    import pandas as pd

    return pd.DataFrame(
        {
            name: np.frombuffer(values, dtype=np.float64)
            if isinstance(values, bytes)
            else np.array(values, dtype=object)
            for name, values in held.items()
        }
    )


class Digest:
    """The analysis of one run, as the pages use it.

    Parameters
    ----------
    text : bytes
        What `packed` made of it.
    """

    def __init__(self, text: bytes) -> None:
        self._held: dict[str, Any] = msgspec.msgpack.decode(text)
        self.num_bytes = len(text)
        self._frames: dict[str, pd.DataFrame] = {}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a small table, as the Python interface has them."""
        held: list[dict[str, Any]] = self._held["small"][table]
        return held

    def frame(self, table: str) -> pd.DataFrame:
        """A table as a frame; do not change it, others look at the same."""
        if table not in self._frames:
            self._frames[table] = self._made(table)
        return self._frames[table]

    def _made(self, table: str) -> pd.DataFrame:
        if table in self._held["large"]:
            return to_frame(self._held["large"][table])
        from tracekit.report.frames import frame
        from tracekit.report.tables import TABLES

        return frame(self.rows(table), TABLES[table])

    @cached_property
    def totals(self) -> dict[str, Any]:
        """The figures summed over the ranks."""
        held: dict[str, Any] = self._held["totals"]
        return held

    @property
    def facts(self) -> dict[str, Any]:
        """Single values: ``captures``, ``capture``, ``missing_steps``, ``unmatched``."""
        held: dict[str, Any] = self._held["facts"]
        return held

    @cached_property
    def step_numbers(self) -> list[int]:
        """The steps there are, in order."""
        if "step" not in self.frame("steps"):
            return []
        return sorted({int(step) for step in self.frame("steps")["step"].dropna()})


def packed(
    small: dict[str, Any], large: dict[str, Columns], totals: Row, facts: dict[str, Any]
) -> bytes:
    """A digest as bytes, to pass between processes."""
    held = {"small": small, "large": large, "totals": dict(totals), "facts": facts}
    return msgspec.msgpack.encode(held)
