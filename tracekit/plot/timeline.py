"""Answer what a timeline asks of a run: its outline, blocks of lanes, one event, a search, a flow.

The canvas (``static/lanes.js``) asks the same of every host by `Timeline.answer`, be it a server, a
notebook or a test. Times are ns from the zero of the picture: the earliest start of work of all
ranks on the corrected clock, as ``--range`` counts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracekit.core.errors import UsageError, one_line
from tracekit.model.collective import Collective
from tracekit.model.run import TraceSet
from tracekit.model.steps import steps_of
from tracekit.model.trace import Trace
from tracekit.plot.block import View, pack
from tracekit.plot.facts import collective_facts, event_facts, members_of
from tracekit.plot.lanes import DRAWN, HATCHED_CODES, LABELS, RankLanes, drawn_rows, rank_lanes
from tracekit.plot.palette import GROUND, HOST_ROLES, ROLES
from tracekit.plot.search import found_names

#: lanes kept in memory, all ranks together
KEPT_BYTES = 512 << 20
#: events listed of one rank unless asked otherwise
LIMIT = 1_000_000
MAX_LISTED, MAX_BINS, MAX_HITS = 2 * LIMIT, 8192, 5000
#: further than this from the zero nothing is drawn (104 days: float64 holds each ns up to there)
FAR_NS = 2**53
TITLE_LIMIT = 120


class Timeline:
    """The data behind the timeline of one run; safe to ask from several threads.

    Parameters
    ----------
    run : TraceSet
        As `tracekit.model.run.open_run` opens it.
    """

    def __init__(self, run: TraceSet) -> None:
        self._run = run
        self._lock = threading.RLock()
        self._kept: dict[tuple[int, bool], RankLanes] = {}
        self._shift: dict[int, int] | None = None
        self._outline: dict[str, Any] | None = None

    # -- what is asked ------------------------------------------------------------------------

    def outline(self) -> dict[str, Any]:
        """What there is before anything is drawn: ranks, their names, the span of all.

        Returns
        -------
        dict
            ``t0`` and ``t1`` in ns; ``ranks``, each with ``rank``, ``title``, ``numEvents`` and
            ``clock`` (``compared``, ``alone`` or ``unknown``); ``roles`` with their words, and
            ``paints``, the name of each colour with its value on light and dark ground.
        """
        with self._lock:
            if self._outline is None:
                self._outline = self._outlined()
            return self._outline

    def block(
        self,
        ranks: Sequence[int] | None = None,
        t0: float | None = None,
        t1: float | None = None,
        pixels: int = 2000,
        *,
        limit: int = LIMIT,
        summary: bool = False,
    ) -> bytes:
        """The lanes of these ranks in a stretch of time, as `tracekit.plot.block` packs them.

        Parameters
        ----------
        ranks : sequence of int, optional
            All unless given.
        t0, t1 : float, optional
            ns; the span of everything unless given.
        pixels : int
            Bins for what is not listed, at most `MAX_BINS`.
        limit : int
            Events listed of each rank; beyond it the longest are, the others are binned.
        summary : bool
            Only the lanes time and steps.

        Raises
        ------
        UsageError
            For a rank that is not there, or a stretch that is none.
        """
        with self._lock:
            chosen = self._run.ranks if ranks is None else [self._rank(r) for r in ranks]
            span = self.outline()
            low = int(np.floor(_finite("t0", span["t0"] if t0 is None else t0)))
            high = int(np.ceil(_finite("t1", span["t1"] if t1 is None else t1)))
            if high <= low:
                raise UsageError(f"t1={high} does not lie after t0={low}")
            bins = min(max(int(_finite("pixels", pixels)), 16), MAX_BINS)
            most = min(max(int(_finite("limit", limit)), 0), MAX_LISTED)
            return pack((self._lanes(r, summary) for r in chosen), View(low, high, bins, most))

    def event(self, rank: int, row: int) -> dict[str, Any]:
        """All that is known of one event.

        Returns
        -------
        dict
            ``name``; ``start`` and ``dur`` in ns; ``facts`` and ``args``, lists of (label, text);
            ``launch``, the event that launched it or that it launched: ``rank``, ``row``,
            ``start``, ``dur``, or None.

        Raises
        ------
        UsageError
            When there is no such event.
        """
        with self._lock:
            trace = self._trace(rank, row)
            return event_facts(self._run, trace, row, self._shifts()[rank])

    def flow(self, rank: int, row: int) -> dict[str, Any] | None:
        """The members of the collective an event belongs to, None where it belongs to none.

        Returns
        -------
        dict
            ``facts``, a list of (label, text); ``members``: ``rank``, ``start``, ``dur`` and
            ``wait`` in ns, by arrival.

        Raises
        ------
        UsageError
            When there is no such event.
        """
        with self._lock:
            self._trace(rank, row)
            found = members_of(self._run, rank, row)
            return None if found is None else self.flow_of(found)

    def flow_of(self, found: Collective) -> dict[str, Any]:
        """The same for a collective of the run."""
        with self._lock:
            shifts = self._shifts()
        members = [
            {"rank": r, "start": o.start + shifts[r], "dur": o.duration, "wait": found.wait.get(r)}
            for r, o in found.members.items()
        ]
        members.sort(key=lambda m: (m["start"], m["rank"]))
        return {"facts": collective_facts(found), "members": members}

    def shift_ns(self, rank: int) -> int:
        """What to add to absolute times of a rank to get times of the picture."""
        with self._lock:
            return self._shifts()[self._rank(rank)]

    def search(
        self, text: str, *, regexp: bool = False, ranks: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Events whose names hold a text, or in which a pattern is found; case does not matter.

        Patterns are matched by RE2, whose time is linear in the names, so that none takes for ever.

        Returns
        -------
        dict
            ``total``; ``hits``, the first `MAX_HITS` by start: (rank, row, start, dur); ``names``
            as blocks have them.

        Raises
        ------
        UsageError
            When the pattern is none that RE2 knows.
        """
        with self._lock:
            chosen = self._run.ranks if ranks is None else [self._rank(r) for r in ranks]
            hits: list[tuple[int, int, int, int]] = []
            names: dict[str, None] = {}
            total = 0
            for rank in chosen:
                found, own = self._hits(self._run.trace(rank), text, regexp)
                names |= dict.fromkeys(own)
                total += len(found)
                hits = sorted([*hits, *found], key=lambda h: (h[2], h[0], h[1]))[:MAX_HITS]
            return {"total": total, "hits": hits, "names": list(names)[:MAX_HITS]}

    def answer(self, method: str, asked: Mapping[str, Any]) -> dict[str, Any] | bytes | None:
        """Answer a question as the canvas puts it; a block is bytes, all else is plain JSON.

        Parameters
        ----------
        method : {"outline", "block", "event", "flow", "search"}
        asked : mapping
            JSON values, or texts as they stand in a query string: ``ranks`` (``0,2``), ``t0``,
            ``t1``, ``pixels``, ``limit``, ``summary``; ``rank`` and ``row``; ``text``, ``regexp``.

        Raises
        ------
        UsageError
            For another method, or a value that is none.
        """
        if method == "outline":
            return self.outline()
        if method == "block":
            numbers = {k: _number(asked, k) for k in ("t0", "t1", "pixels", "limit") if k in asked}
            given = {k: v for k, v in numbers.items() if v is not None}
            return self.block(
                _ranks(asked.get("ranks")),
                given.get("t0"),
                given.get("t1"),
                int(given.get("pixels", 2000)),
                limit=int(given.get("limit", LIMIT)),
                summary=_flag(asked.get("summary")),
            )
        if method in ("event", "flow"):
            rank, row = (_number(asked, key) for key in ("rank", "row"))
            if rank is None or row is None:
                raise UsageError(f"{method} needs a rank and a row")
            ask = self.event if method == "event" else self.flow
            return ask(int(rank), int(row))
        if method == "search":
            text = str(asked.get("text") or "")
            return self.search(
                text, regexp=_flag(asked.get("regexp")), ranks=_ranks(asked.get("ranks"))
            )
        raise UsageError(f"a timeline answers no {one_line(method, 40)!r}")

    # -- within -------------------------------------------------------------------------------

    def _rank(self, rank: object) -> int:
        if isinstance(rank, int) and rank in self._run.ranks:
            return rank
        raise UsageError(f"no rank {one_line(str(rank), 40)} in this run")

    def _trace(self, rank: int, row: int) -> Trace:
        trace, _ = self._run.work(self._rank(rank))
        if not 0 <= row < len(trace.table):
            raise UsageError(f"rank {rank} has no event {row}")
        return trace

    def _lanes(self, rank: int, summary: bool) -> RankLanes:
        """A rank's lanes; those used last are kept."""
        key = (rank, summary)
        found = self._kept.pop(key, None)
        if found is None:
            found = rank_lanes(self._run, rank, self._shifts()[rank], summary=summary)
        self._kept[key] = found
        while len(self._kept) > 1 and sum(k.num_bytes for k in self._kept.values()) > KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        return found

    def _hits(
        self, trace: Trace, text: str, regexp: bool
    ) -> tuple[list[tuple[int, int, int, int]], list[str]]:
        numbers, names = found_names(trace.table.names, text, regexp=regexp)
        is_hit = np.zeros(max(len(trace.table.names), 1), dtype=bool)
        is_hit[numbers] = True
        rows = np.flatnonzero(is_hit[trace.table["name"]] & drawn_rows(trace))
        start = trace.table["start_ns"][rows] + (self._shifts()[trace.rank] + trace.table.base_ns)
        order = np.argsort(start, kind="stable")
        columns = rows[order], start[order], trace.table["dur_ns"][rows][order]
        listed = zip(*(c.tolist() for c in columns), strict=True)
        return [(trace.rank, row, s, d) for row, s, d in listed], names

    def _shifts(self) -> dict[int, int]:
        """What to add to each rank's absolute times.

        Ranks whose clock could not be compared are shown as recorded or, where that is nowhere
        near the others, from the start of the others.
        """
        if self._shift is None:
            self._shift = _shifts(self._run)
        return self._shift

    def _outlined(self) -> dict[str, Any]:
        spans, ranks = [], []
        for rank in self._run.ranks:
            trace, work = self._run.work(rank)
            shift = self._shifts()[rank] + trace.table.base_ns
            rows = drawn_rows(trace)
            span = _span(trace, work, rows)
            if span:
                spans.append((span[0] + shift, span[1] + shift))
            ranks.append(
                {
                    "rank": rank,
                    "title": _title(trace),
                    "numEvents": int(rows.sum()),
                    "timeline": work.timeline,
                    "clock": self._clock(rank),
                }
            )
        low, high = min((s for s, _ in spans), default=0), max((e for _, e in spans), default=0)
        return {
            "format": 1,
            "t0": low,
            "t1": max(high, low + 1),
            "ranks": ranks,
            "roles": [
                {"role": role, "label": LABELS[code], "hatched": code in HATCHED_CODES}
                for code, role in enumerate(DRAWN)
            ],
            "paints": [
                [name, paint.light, paint.dark]
                for name, paint in {**ROLES, **HOST_ROLES, **GROUND}.items()
            ],
        }

    def _clock(self, rank: int) -> str:
        if len(self._run.ranks) == 1:
            return "alone"
        known = [r for r, c in self._run.matching.clocks.items() if c is not None]
        others = set(known) - {self._run.ranks[0]}  # the one they are compared with
        is_known = rank in known if rank != self._run.ranks[0] else bool(others)
        return "compared" if is_known else "unknown"


def _shifts(run: TraceSet) -> dict[int, int]:
    shift = {rank: -run.matching.offset_ns(rank) for rank in run.ranks}
    spans = {r: (s[0] + shift[r], s[1] + shift[r]) for r, s in run.spans.items() if s is not None}
    known = [r for r in spans if run.matching.clocks.get(r) is not None] or list(spans)[:1]
    low = min((spans[r][0] for r in known), default=0)
    high = max((spans[r][1] for r in known), default=0)
    for rank, (start, end) in spans.items():
        if rank not in known and (end < low or start > high):
            shift[rank] += low - start
    zero = min((run.spans[r][0] + shift[r] for r in spans), default=0)  # type: ignore[index]
    return {rank: by - zero for rank, by in shift.items()}


def _span(trace: Trace, work: Any, rows: Any) -> tuple[int, int] | None:
    """From the first to the last event drawn; of host rows only those near the work and steps."""
    table = trace.table
    start = table["start_ns"][rows]
    if not len(start):
        return None
    end = start + table["dur_ns"][rows]
    low, high = int(start.min()), int(end.max())
    steps = steps_of(trace)
    if len(work):
        first = min([int(work.start[0]), *steps.start[:1].tolist()])
        last = max([int(work.end.max()), *steps.end[-1:].tolist()])
        low, high = max(low, 2 * first - last), min(high, 2 * last - first)
    return low, high


def _title(trace: Trace) -> str:
    coords = trace.own.get("coords")
    place = ""
    if isinstance(coords, dict):
        place = " ".join(f"{k}{v}" for k, v in list(coords.items())[:8])
    parts = [f"rank {trace.rank}", place, trace.host or ""]
    return one_line(" · ".join(p for p in parts if p), TITLE_LIMIT)


# -- values from outside ----------------------------------------------------------------------


def _finite(what: str, value: float) -> float:
    if not abs(value) <= FAR_NS:
        raise UsageError(f"{what}={value!r} is no number within 104 days of ns")
    return value


def _number(asked: Mapping[str, Any], key: str) -> float | None:
    value = asked.get(key)
    if value is None or value == "":
        return None
    try:
        return _finite(key, float(value))
    except (TypeError, ValueError):
        raise UsageError(f"{key}={one_line(str(value), 40)!r} is no number") from None


def _flag(value: Any) -> bool:
    return value in (True, 1, "1", "true")


def _ranks(value: Any) -> list[int] | None:
    if value is None or value == "":
        return None
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise UsageError(f"ranks={one_line(str(value), 40)!r} is no list of ranks")
    try:
        return [int(str(part)) for part in parts]
    except ValueError:
        raise UsageError(f"ranks={one_line(str(value), 40)!r} is no list of ranks") from None
