"""Condense the analysis document into the few rows a screen holds; plain values, no drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Row = Mapping[str, Any]
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, middle and largest value of one figure, and where the extremes are."""

    key: str
    low: float | None
    low_at: int | None
    middle: float | None
    high: float | None
    high_at: int | None


@dataclass(frozen=True, slots=True)
class Mean:
    """Figures of one step (or phase): means over the ranks that know them, slowest rank."""

    of: Any
    num_ranks: int
    mean_us: dict[str, float | None]
    slowest_rank: int | None
    slowest_us: float | None


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """Communication of one axis (or, where no axis is known, one group), summed over ranks."""

    label: str
    sizes: tuple[int, ...]
    num_groups: int
    sums: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """Collectives of one operation, axis and size; medians leave out the edge ones."""

    op: str
    label: str
    num_bytes: float | None
    count: int
    num_edge: int
    num_single: int
    duration_us: float | None
    transfer_us: float | None
    wait_us: float | None
    busbw_GBps: float | None
    total_us: float


@dataclass(frozen=True, slots=True)
class NoteGroup:
    """Notes of one code and severity: how many, and the first one's words."""

    code: str
    severity: str
    count: int
    text: str
    file: str


def middle(values: Iterable[float | None]) -> float | None:
    """Median of the known values; None when there are none."""
    there = [v for v in values if v is not None]
    return median(there) if there else None


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known values; None when there are none."""
    there = [v for v in values if v is not None]
    return sum(there) / len(there) if there else None


def total(values: Iterable[float | None]) -> float | None:
    """Sum of the known values; None when there are none."""
    there = [v for v in values if v is not None]
    return sum(there) if there else None


def spread(rows: Sequence[Row], key: str, at: str) -> Spread:
    """The `Spread` of ``row[key]`` over ``rows``, named by ``row[at]``."""
    there = [(row[key], row[at]) for row in rows if row.get(key) is not None]
    if not there:
        return Spread(key, None, None, None, None, None)
    low, high = min(there), max(there, key=lambda pair: pair[0])
    return Spread(key, low[0], low[1], median(v for v, _ in there), high[0], high[1])


def _gather(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def means(rows: Iterable[Row], of: str, keys: Sequence[str]) -> list[Mean]:
    """Means over the ranks of what has the same ``row[of]``, in the order met.

    Parameters
    ----------
    rows : iterable of mapping
        The document's ``steps`` or ``phases``.
    of : str
        What to keep apart: ``step`` or ``phase``.
    keys : sequence of str
        Figures to average, in microseconds.
    """
    return [_mean(what, same, keys) for what, same in _gather(rows, lambda r: r[of]).items()]


def _mean(what: Any, rows: list[Row], keys: Sequence[str]) -> Mean:
    timed = [(row["window_us"], row["rank"]) for row in rows if row.get("window_us") is not None]
    slow_us, slow_rank = max(timed, key=lambda pair: pair[0]) if timed else (None, None)
    return Mean(
        of=what,
        num_ranks=len(rows),
        mean_us={key: mean(row.get(key) for row in rows) for key in keys},
        slowest_rank=slow_rank,
        slowest_us=slow_us,
    )


def label(row: Row) -> str | None:
    """What a group is called: its axis, else its description, else its name."""
    for key in ("axis", "desc", "group"):
        if row.get(key) not in (None, "", "undefined"):
            name = str(row[key])
            return f"group {name}" if name.isdecimal() else name
    return None


def groups(rows: Iterable[Row], keys: Sequence[str]) -> list[GroupTotal]:
    """Communication per axis (or group), the one with the most exposed time first."""
    found = _gather(rows, label)
    result = [_group(name, found[name], keys) for name in found]
    return sorted(result, key=lambda g: (-(g.sums.get("exposed_share_us") or 0.0), g.label))


def _group(name: str | None, rows: list[Row], keys: Sequence[str]) -> GroupTotal:
    sizes = {row["size"] for row in rows if row.get("size") is not None}
    names = {(row.get("group"), str(row.get("ranks"))) for row in rows}
    sums = {key: total(row.get(key) for row in rows) for key in keys}
    return GroupTotal(name or "", tuple(sorted(sizes)), len(names), sums)


def longest_wait_us(row: Row) -> float | None:
    """How long the first arriver of a collective waited; None where it was not matched."""
    waits = [w for w in (row.get("wait_us") or {}).values() if w is not None]
    return max(waits) if waits else None


def longest_us(row: Row) -> float | None:
    """Duration of the longest member of a collective, waiting included."""
    there = [d for d in (row.get("duration_us") or {}).values() if d is not None]
    return max(there) if there else None


def collectives(rows: Iterable[Row]) -> list[CollectiveKind]:
    """Kinds of collectives in the document's ``collectives``, those with the most time first."""
    found = _gather(
        rows, lambda row: (str(row.get("op") or ""), label(row) or "", row.get("bytes"))
    )
    result = [_kind(op, name, size, same) for (op, name, size), same in found.items()]
    return sorted(result, key=lambda k: (-k.total_us, k.op, k.label, k.num_bytes or 0))


def _kind(op: str, name: str, num_bytes: float | None, rows: list[Row]) -> CollectiveKind:
    whole = [row for row in rows if not row.get("edge")]
    lengths = [longest_us(row) for row in whole]
    return CollectiveKind(
        op=op,
        label=name,
        num_bytes=num_bytes,
        count=len(rows),
        num_edge=len(rows) - len(whole),
        num_single=sum(row.get("match") == "single" for row in rows),
        duration_us=middle(lengths),
        transfer_us=middle(row.get("transfer_us") for row in whole),
        wait_us=middle(longest_wait_us(row) for row in whole),
        busbw_GBps=middle(row.get("busbw_GBps") for row in whole),
        total_us=total(lengths) or 0.0,
    )


def notes(rows: Iterable[Row]) -> list[NoteGroup]:
    """Notes grouped by severity and code: errors first, then by how many there are."""
    found = _gather(rows, lambda row: (str(row.get("severity")), str(row.get("code"))))
    result = [
        NoteGroup(code, severity, len(same), str(same[0]["text"]), str(same[0].get("file") or ""))
        for (severity, code), same in found.items()
    ]
    return sorted(result, key=lambda g: (_weight(g.severity), -g.count, g.code))


def _weight(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
