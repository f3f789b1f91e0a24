"""Rows of the analysis as pandas frames: fixed columns and types, also without any row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.io.flat import Column, Kind
from tracekit.report.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

_DTYPES: dict[Kind, str] = {
    "int": "Int64",
    "float": "float64",
    "text": "string",
    "bool": "boolean",
    "int_list": "object",
}
#: frames that only the Python interface has
CLOCKS = (
    Column("rank", "int"),
    Column("offset_us", "float"),
    Column("spread_us", "float"),
    Column("num_shared", "int"),
)
OPERATORS = (
    Column("rank", "int"),
    Column("name", "text"),
    Column("count", "int"),
    Column("total_us", "float"),
    Column("mean_us", "float"),
)
MEMBERS = (
    *TABLES["members"],
    Column("op", "text"),
    Column("group", "text"),
    Column("desc", "text"),
    Column("axis", "text"),
    Column("dtype", "text"),
    Column("bytes", "int"),
    Column("src", "int"),
    Column("dst", "int"),
    Column("kernel", "text"),
)


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> pd.DataFrame:
    """Rows as a frame with exactly these columns and a plain index.

    Parameters
    ----------
    rows : iterable of mapping
        What they lack is missing.
    columns : sequence of Column

    Returns
    -------
    DataFrame
        Numbers of a unit are float64 with NaN, counts Int64 with ``<NA>``, texts ``string``, yes
        and no ``boolean``; a list of ranks is a tuple, so that frames can be grouped by it.
    """
    import pandas as pd

    held = list(rows)
    return pd.DataFrame(
        {
            c.name: pd.Series([_value(r.get(c.name), c.kind) for r in held], dtype=_DTYPES[c.kind])
            for c in columns
        }
    )


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "int_list":
        return tuple(value)
    if kind == "int":
        return value if -(2**63) <= value < 2**63 else None
    return value
