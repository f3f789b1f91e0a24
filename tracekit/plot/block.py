"""Pack the lanes of ranks, or what fits of them, into one block of bytes for a canvas.

A block is little-endian:

| bytes | what |
|---|---|
| 0-3 | ``TKL1`` |
| 4-7 | length *h* of the header, uint32 |
| 8 … 8+h | the header, JSON in UTF-8, blanks at its end so that 8+h is a multiple of 8 |
| 8+h … | the columns, each from a multiple of 8 |

The header::

    {"format": 1,
     "t0": ns, "t1": ns,            what was asked for, from the zero of the picture
     "binNs": ns,                   length of a bin
     "numBins": n,
     "names": ["gemm", ...],        of the events listed, at most 160 characters of each
     "columns": {"start": ["f8", offset, length], "dur": ["f8", ...], "name": ["u4", ...],
                 "row": ["i4", ...], "role": ["u1", ...], "busy": ["u1", ...], "most": ["u1", ...]},
     "ranks": [{"rank": 0, "whole": true, "numEvents": n, "numShaded": n, "shadedBelowNs": ns,
                "numDeeper": n, "numLanesLeftOut": n,
                "lanes": [{"kind": "stream", "title": "stream 7", "numEvents": n,
                           "rows": [[first, count, bins], ...]}]}]}

Offsets count bytes from the end of the header. Events are sorted by rank, lane, row of the lane and
start; no two of a row overlap. ``start`` and ``dur`` are whole ns as float64 (exact to 104 days);
``row`` is the row of the rank's event table, -1 for what is no event of the trace; ``role`` is an
index into `tracekit.plot.lanes.DRAWN`. Where a rank has more events in view than may be listed, the
longest are, and the others are in bins: ``busy`` is the part of a bin they take in 255ths (at least
1 where there is any) and ``most`` the role that takes most of it. ``bins`` is the place of a row's
``numBins`` bins in both columns, or -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import one_line
from tracekit.model.links import Ints
from tracekit.plot.lanes import DRAWN, RankLanes

MAGIC = b"TKL1"
NAME_LIMIT = 160
_TYPES = {"f8": "<f8", "u4": "<u4", "i4": "<i4", "u1": "u1"}
_COLUMNS = (
    ("start", "f8"), ("dur", "f8"), ("name", "u4"), ("row", "i4"), ("role", "u1"),
    ("busy", "u1"), ("most", "u1"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """What is asked for.

    Attributes
    ----------
    t0, t1 : int
        ns from the zero of the picture; t1 > t0.
    bins : int
        Bins over that time for what is not listed.
    limit : int
        Events listed of each rank.
    """

    t0: int
    t1: int
    bins: int
    limit: int

    @property
    def bin_ns(self) -> float:
        """Length of a bin."""
        return (self.t1 - self.t0) / self.bins


@dataclass(slots=True)
class _Parts:
    """Columns as they are collected."""

    columns: dict[str, list[NDArray[Any]]] = field(
        default_factory=lambda: {key: [] for key, _ in _COLUMNS}
    )
    num_events: int = 0
    num_bins: int = 0
    names: dict[str, int] = field(default_factory=dict)


def pack(ranks: Iterable[RankLanes], view: View) -> bytes:
    """One block of these ranks; one is held at a time."""
    parts = _Parts()
    described = [_add(parts, lanes, view) for lanes in ranks]
    columns, offset, where = [], 0, {}
    for key, kind in _COLUMNS:
        column = np.concatenate([np.empty(0), *parts.columns[key]]).astype(_TYPES[kind])
        where[key] = [kind, offset, len(column)]
        columns.append(column.tobytes())
        columns.append(b"\0" * (-len(columns[-1]) % 8))
        offset += len(columns[-1]) + len(columns[-2])
    header = msgspec.json.encode(
        {
            "format": 1,
            "t0": view.t0,
            "t1": view.t1,
            "binNs": view.bin_ns,
            "numBins": view.bins,
            "names": list(parts.names),
            "columns": where,
            "ranks": described,
        }
    )
    header += b" " * (-(8 + len(header)) % 8)
    return b"".join((MAGIC, len(header).to_bytes(4, "little"), header, *columns))


def _add(parts: _Parts, lanes: RankLanes, view: View) -> dict[str, Any]:
    """Add what one rank shows; its part of the header."""
    seen = [(_inside(lanes, row, view), lane) for lane in lanes.lanes for row in lane.rows]
    at = np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(a, b) for (a, b), _ in seen)])
    listed, below = _longest(lanes.dur[at], view.limit)
    described, first = [], 0
    rows = iter(seen)
    for lane in lanes.lanes:
        own = []
        for _ in lane.rows:
            (a, b), _lane = next(rows)
            mine = listed[first : first + b - a]
            own.append([parts.num_events, int(mine.sum()), _bins(parts, lanes, (a, b), mine, view)])
            parts.num_events += own[-1][1]
            first += b - a
        total = lane.rows[-1][1] - lane.rows[0][0] if lane.rows else 0
        described.append({"kind": lane.kind, "title": lane.title, "numEvents": total, "rows": own})
    chosen = at[listed]
    for key, values in (
        ("start", lanes.start[chosen]),
        ("dur", lanes.dur[chosen]),
        ("row", np.where(lanes.row[chosen] < 2**31, lanes.row[chosen], -1)),
        ("role", lanes.role[chosen]),
        ("name", _numbered(parts, lanes.name[chosen], lanes.names)),
    ):
        parts.columns[key].append(values)
    return {
        "rank": lanes.rank,
        "whole": len(at) == len(lanes),
        "numEvents": len(lanes),
        "numShaded": len(at) - len(chosen),
        "shadedBelowNs": below,
        "numDeeper": lanes.num_deeper,
        "numLanesLeftOut": lanes.num_lanes_left_out,
        "lanes": described,
    }


def _inside(lanes: RankLanes, row: tuple[int, int], view: View) -> tuple[int, int]:
    """First and last + 1 event of a row that the view shows a part of."""
    first, last = row
    start = lanes.start[first:last]
    low = int(np.searchsorted(start, view.t0, side="right"))
    if low and start[low - 1] + lanes.dur[first + low - 1] >= view.t0:
        low -= 1  # began before and reaches in
    high = int(np.searchsorted(start, view.t1, side="right"))
    return first + low, first + max(low, high)


def _longest(dur: Ints, limit: int) -> tuple[NDArray[np.bool_], int]:
    """Which events are listed, and how long the longest of the others is."""
    listed = np.ones(len(dur), dtype=bool)
    if len(dur) <= limit:
        return listed, 0
    shortest = np.argpartition(dur, len(dur) - limit - 1)[: len(dur) - limit]
    listed[shortest] = False
    return listed, int(dur[shortest].max())


def _bins(
    parts: _Parts,
    lanes: RankLanes,
    span: tuple[int, int],
    listed: NDArray[np.bool_],
    view: View,
) -> int:
    """Add the bins of a row's events that are not listed; their place, -1 without any."""
    rest = np.arange(*span)[~listed]
    if not len(rest):
        return -1
    start, dur, role = lanes.start[rest], lanes.dur[rest], lanes.role[rest]
    edges: NDArray[np.float64] = view.t0 + view.bin_ns * np.arange(view.bins + 1, dtype=np.float64)
    present = np.unique(role)
    taken = np.array([_taken(start[role == r], dur[role == r], edges) for r in present.tolist()])
    busy = taken.sum(axis=0) / view.bin_ns
    first = np.clip(((start - view.t0) / view.bin_ns).astype(np.int64), 0, view.bins - 1)
    some = np.zeros(view.bins, dtype=bool)
    some[first] = True  # also what takes no time leaves a trace
    shade = np.clip(np.rint(busy * 255), 0, 255)
    shade[(shade == 0) & (some | (busy > 0))] = 1
    most = present[taken.argmax(axis=0)]
    idle = taken.sum(axis=0) == 0
    most[first[idle[first]]] = role[idle[first]]
    parts.columns["busy"].append(shade.astype(np.uint8))
    parts.columns["most"].append(most.astype(np.uint8))
    parts.num_bins += view.bins
    return parts.num_bins - view.bins


def _taken(start: Ints, dur: Ints, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of each stretch between edges the events take; they do not overlap."""
    before = np.concatenate(([0], np.cumsum(dur)))
    at = np.searchsorted(start, edges, side="right")
    running = np.maximum(at - 1, 0)
    cut = np.clip(edges - start[running], 0, dur[running])
    covered = np.where(at > 0, before[running] + cut, 0)
    return np.diff(covered)


def _numbered(parts: _Parts, names: NDArray[np.int32], texts: list[str]) -> Ints:
    """The numbers of names in the block; new ones are added."""
    present, codes = np.unique(names, return_inverse=True)
    own = [
        parts.names.setdefault(one_line(texts[i], NAME_LIMIT), len(parts.names))
        for i in present.tolist()
    ]
    return np.array(own or [0], dtype=np.int64)[codes]


assert len(DRAWN) < 256
