"""Condense the analysis document into the few rows a screen holds; plain values, no drawing."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tracekit.report import words

Row = Mapping[str, Any]
SEVERITIES = ("error", "warning", "info")
EACH_ALONE = "each is the most that mending it alone can bring; they overlap"


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
    """Collectives of one operation, axis and size.

    Medians are over the complete ones that are no edge. Where there is none, over the incomplete
    ones: ``is_bound`` then says that wait and bandwidth are lower bounds, and the transfer is None.
    ``num_partial`` counts the incomplete ones that complete ones kept out of the medians.
    """

    op: str
    label: str
    num_bytes: float | None
    count: int
    num_edge: int
    num_single: int
    num_partial: int
    is_bound: bool
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


def divided(row: Row) -> Row:
    """A row whose idle time is without what other work keeps busy, which is ``other_us``.

    The document's ``idle_us`` holds it; an absent or unknown ``other_us`` counts as none.
    """
    idle_us, other_us = row.get("idle_us"), row.get("other_us")
    if idle_us is None or other_us is None or not words.known(other_us):
        return {**row, "other_us": 0.0}
    return {**row, "idle_us": max(0.0, idle_us - other_us)}  # no -1e-13 from binary fractions


def has_other(rows: Iterable[Row]) -> bool:
    """Whether other work keeps the device busy in any row's window."""
    return any(divided(row)["other_us"] for row in rows)


def where(files: Sequence[str]) -> str:
    """The one file, or the zip archive or folder that holds all; empty when there is none."""
    if len(files) == 1:
        return files[0]
    archive = archive_of(files)
    if archive:
        return archive
    try:
        return os.path.commonpath(files)
    except ValueError:  # no file at all, absolute and relative paths, or several drives
        return ""


def archive_of(files: Sequence[str]) -> str:
    """The zip archive that all files are members of (``run.zip!rank0.json``), else empty."""
    archives = {file.partition("!")[0] for file in files if "!" in file}
    (archive,) = archives if len(archives) == 1 else ("",)
    inside = archive.lower().endswith(".zip") and all(f.startswith(f"{archive}!") for f in files)
    return archive if inside else ""


def worth(finding: Row) -> str:
    """How much mending a finding can bring, in words; empty where it is not known."""
    gain = finding.get("gain_frac")
    return f"worth at most {words.percent(gain)} of the time" if words.known(gain) else ""


def longest_window_us(rows: Sequence[Row]) -> float | None:
    """The longest window of any rank; all times of a report have the decimals that suit it."""
    return spread(rows, "window_us", "rank").high


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


def is_complete(row: Row) -> bool:
    """Whether all members of a collective are there, so that its last arriver is known."""
    return row.get("complete") is not False and row.get("match") != "single"


def _kind(op: str, name: str, num_bytes: float | None, rows: list[Row]) -> CollectiveKind:
    whole = [row for row in rows if not row.get("edge")]
    complete = [row for row in whole if is_complete(row)]
    told = complete or whole
    return CollectiveKind(
        op=op,
        label=name,
        num_bytes=num_bytes,
        count=len(rows),
        num_edge=len(rows) - len(whole),
        num_single=sum(row.get("match") == "single" for row in rows),
        num_partial=len(whole) - len(told),
        is_bound=bool(whole) and not complete,
        duration_us=middle(longest_us(row) for row in told),
        transfer_us=middle(row.get("transfer_us") for row in complete),
        wait_us=middle(longest_wait_us(row) for row in told),
        busbw_GBps=middle(row.get("busbw_GBps") for row in told),
        total_us=total(longest_us(row) for row in whole) or 0.0,
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
