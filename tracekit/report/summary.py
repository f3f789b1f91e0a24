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
class StepMean:
    """One step's figures: means over the ranks (None where no rank has one), slowest rank."""

    step: int
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


def steps(rows: Iterable[Row], keys: Sequence[str]) -> list[StepMean]:
    """Means per step over the ranks, in step order.

    Parameters
    ----------
    rows : iterable of mapping
        The document's ``steps``.
    keys : sequence of str
        Figures to average, in microseconds.
    """
    found = _gather(rows, lambda row: row["step"])
    return [_step(number, found[number], keys) for number in sorted(found)]


def _step(number: int, rows: list[Row], keys: Sequence[str]) -> StepMean:
    timed = [(row["window_us"], row["rank"]) for row in rows if row.get("window_us") is not None]
    slow_us, slow_rank = max(timed, key=lambda pair: pair[0]) if timed else (None, None)
    means = {key: mean(row.get(key) for row in rows) for key in keys}
    return StepMean(number, len(rows), means, slow_rank, slow_us)


def label(row: Row) -> str | None:
    """What a group is called: its axis, else its description, else its name."""
    for key in ("axis", "desc", "group"):
        if row.get(key) not in (None, "", "undefined"):
            return str(row[key])
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


def group_labels(rows: Iterable[Row]) -> dict[str, str]:
    """Labels by group name, for names that stand for one label only (torch reuses names)."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(str(row.get("group")), set()).add(label(row) or "")
    return {name: next(iter(labels)) for name, labels in found.items() if len(labels) == 1}


def collectives(rows: Iterable[Row], labels: Mapping[str, str]) -> list[CollectiveKind]:
    """Kinds of collectives, those with the most time first.

    Parameters
    ----------
    rows : iterable of mapping
        The document's ``collectives``.
    labels : mapping of str to str
        What groups are called, from `group_labels`; used where a collective carries no axis.
    """

    def kind(row: Row) -> tuple[str, str, float | None]:
        name = row.get("axis") or labels.get(str(row.get("group"))) or label(row) or ""
        return str(row.get("op")), str(name), row.get("bytes")

    found = _gather(rows, kind)
    result = [_kind(op, name, size, same) for (op, name, size), same in found.items()]
    return sorted(result, key=lambda k: (-k.total_us, k.op, k.label, k.num_bytes or 0))


def _kind(op: str, name: str, num_bytes: float | None, rows: list[Row]) -> CollectiveKind:
    whole = [row for row in rows if not row.get("edge")]
    waits = [longest_wait_us(row) for row in whole]
    moved = [row.get("transfer_us") for row in whole]
    return CollectiveKind(
        op=op,
        label=name,
        num_bytes=num_bytes,
        count=len(rows),
        num_edge=len(rows) - len(whole),
        num_single=sum(row.get("match") == "single" for row in rows),
        transfer_us=middle(moved),
        wait_us=middle(waits),
        busbw_GBps=middle(row.get("busbw_GBps") for row in whole),
        total_us=(total(moved) or 0.0) + (total(waits) or 0.0),
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
