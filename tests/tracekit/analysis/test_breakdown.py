"""Promises of the division of time, on lines short enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.breakdown import Figures, Split, breakdown, exposed_shares
from tracekit.model.names import COMM, COMPUTE, MEMORY
from tracekit.model.work import Work

#: what is compared; the others are asked for by name
PARTS = (
    "window", "compute", "comm", "overlap", "exposed_comm", "memory", "exposed_memory", "idle",
)  # fmt: skip
SPLIT = ("exposed_wait", "exposed_transfer", "exposed_unknown")


@dataclass
class Piece:
    """Work over ``[start, end)``, in ns."""

    start: int
    end: int
    role: int = COMPUTE
    wait_end: int | None = None  # of a collective: its start where it does not wait
    moves: bool = False
    edge: bool = False


def line(*pieces: Piece) -> tuple[Work, Split]:
    """Pieces as the work of one rank, and how its communication divides."""
    rows = sorted(pieces, key=lambda p: p.start)
    start, end = (np.array([getattr(p, k) for p in rows], dtype=np.int64) for k in ("start", "end"))
    wait_end = [p.start if p.wait_end is None else p.wait_end for p in rows]
    none = np.full(len(rows), -1, dtype=np.int64)
    role = np.array([p.role for p in rows], dtype=np.int8)
    split = Split(
        np.array(wait_end, dtype=np.int64),
        np.array([p.moves for p in rows], dtype=bool),
        np.array([p.edge for p in rows], dtype=bool),
    )
    return Work("device", start, end, role, none, none, start, none), split


def comm(start: int, end: int, **more: Any) -> Piece:
    """A piece of communication."""
    return Piece(start, end, COMM, **more)


def memory(start: int, end: int) -> Piece:
    """A copy."""
    return Piece(start, end, MEMORY)


def ints(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """An array of ns."""
    return np.array(values, dtype=np.int64)


def values(found: Figures, names: tuple[str, ...] = PARTS, at: int = 0) -> list[int]:
    """Some figures of one span."""
    return [int(getattr(found, name)[at]) for name in names]


# -- one window -------------------------------------------------------------------------------


def test_window_is_the_sum_of_its_parts() -> None:
    """Compute, exposed communication, exposed copies and idle time add up to the window.

    Compute 0..50 and 120..130, communication 40..90, copies 30..105: shared 40..50, exposed
    50..90, copies alone 90..105, nothing 105..120.
    """
    found = breakdown(*line(Piece(0, 50), Piece(120, 130), comm(40, 90), memory(30, 105)))
    assert values(found) == [130, 60, 50, 10, 40, 75, 15, 15]
    assert (found.start.tolist(), found.end.tolist(), found.count.tolist()) == ([0], [130], [4])


def test_concurrent_work_counts_once() -> None:
    """What runs at the same time on several streams is one stretch of time."""
    found = breakdown(
        *line(Piece(0, 100), Piece(10, 90), Piece(50, 120), comm(110, 140), comm(120, 130))
    )
    assert values(found) == [140, 120, 30, 10, 20, 0, 0, 0]


def test_touching_work_leaves_no_gap() -> None:
    """An end is no part of an event: what starts there neither overlaps nor leaves idle time."""
    found = breakdown(*line(Piece(0, 10), comm(10, 20), memory(20, 30)))
    assert values(found) == [30, 10, 10, 0, 10, 10, 10, 0]


def test_an_event_without_length_only_stretches_the_window() -> None:
    """Events of length 0 take no time, but the window reaches to them."""
    found = breakdown(*line(Piece(0, 10), comm(25, 25)))
    assert values(found) == [25, 10, 0, 0, 0, 0, 0, 15]


def test_no_work_has_no_time() -> None:
    """An empty line is 0 in every figure."""
    found = breakdown(*line())
    assert values(found) == [0] * 8
    assert values(found, SPLIT) == [0, 0, 0]


def test_absolute_times_keep_every_nanosecond() -> None:
    """Times of 19 digits and negative ones lose nothing."""
    for base in (1_760_000_000_123_456_789, -(2**53)):
        found = breakdown(*line(Piece(base, base + 1), comm(base + 2, base + 5)))
        assert values(found) == [5, 1, 3, 0, 3, 0, 0, 1]


# -- why it is exposed ------------------------------------------------------------------------


def test_waiting_is_told_from_transfer() -> None:
    """A collective 100..200 whose last rank came at 160: what compute leaves of each part."""
    found = breakdown(
        *line(Piece(0, 120), comm(100, 200, wait_end=160, moves=True), Piece(190, 195))
    )
    assert values(found, SPLIT) == [40, 35, 0]
    assert values(found, ("exposed_comm", "overlap")) == [75, 25]


def test_without_all_members_the_rest_is_unknown() -> None:
    """After the wait for a rank that is here, one that is not may be waited for as well."""
    found = breakdown(*line(comm(0, 100, wait_end=30, moves=False)))
    assert values(found, SPLIT) == [30, 0, 70]


def test_transfer_wins_over_waiting_over_unknown() -> None:
    """Where several collectives run at an instant, it is what the best known of them does.

    One waits 0..60, one moves 40..50, one of which nothing is known runs 20..80.
    """
    found = breakdown(
        *line(comm(0, 60, wait_end=60, moves=True), comm(40, 50, moves=True), comm(20, 80))
    )
    assert values(found, SPLIT) == [50, 10, 20]


def test_waiting_ends_with_the_event() -> None:
    """A wait that is said to last longer than its event ends with it."""
    found = breakdown(*line(comm(0, 10, wait_end=99, moves=True), comm(50, 60)))
    assert values(found, SPLIT) == [10, 0, 10]


def test_edges_are_counted_apart() -> None:
    """The union of edge collectives is told, overlapped parts and all."""
    found = breakdown(
        *line(comm(0, 30, edge=True), comm(20, 40, edge=True), comm(50, 60), Piece(0, 10))
    )
    assert values(found, ("edge_comm", "comm", "exposed_comm")) == [40, 50, 40]


# -- several windows --------------------------------------------------------------------------


def test_spans_are_divided_each_by_itself() -> None:
    """Spans may overlap in time; each has the window of its own work.

    Span 0: compute 0..10 and communication 20..50. Span 1: compute 30..60. The piece of no span
    counts in neither.
    """
    work, split = line(Piece(0, 10), comm(20, 50), Piece(30, 60), Piece(5, 100))
    order = work.start.tolist()
    span = ints(*({0: 0, 20: 0, 30: 1, 5: -1}[s] for s in order))
    found = breakdown(work, split, span, 2)
    assert values(found, at=0) == [50, 10, 30, 0, 30, 0, 0, 10]
    assert values(found, at=1) == [30, 30, 0, 0, 0, 0, 0, 0]
    assert found.count.tolist() == [2, 1]


def test_a_span_without_work_is_empty() -> None:
    """Spans that nothing belongs to are 0 throughout, between others as at the end."""
    work, split = line(Piece(0, 10), Piece(20, 30))
    found = breakdown(work, split, ints(0, 2), 4)
    assert found.window.tolist() == [10, 0, 10, 0]
    assert found.idle.tolist() == [0, 0, 0, 0]
    assert found.count.tolist() == [1, 0, 1, 0]


def test_borders_cut_and_are_the_window() -> None:
    """Between fixed borders the window is their distance, and work is cut at them."""
    work, split = line(Piece(0, 70), comm(60, 120, wait_end=110, moves=True), memory(130, 140))
    found = breakdown(work, split, borders=(ints(50), ints(100)))
    assert values(found) == [50, 20, 40, 10, 30, 0, 0, 0]
    assert values(found, SPLIT) == [30, 0, 0]


def test_borders_around_nothing_are_idle() -> None:
    """A range without work is idle from end to end."""
    work, split = line(Piece(0, 10))
    found = breakdown(work, split, borders=(ints(20), ints(50)))
    assert values(found) == [30, 0, 0, 0, 0, 0, 0, 30]


def test_a_broken_identity_is_a_defect() -> None:
    """Figures that do not add up are never handed on."""
    for name in ("idle", "compute", "exposed_wait"):
        found = breakdown(*line(Piece(0, 10), comm(5, 20)))
        setattr(found, name, getattr(found, name) + 1)
        with pytest.raises(AssertionError):
            found.check()
    found = breakdown(*line(Piece(0, 10), comm(5, 20)))
    found.idle, found.compute = found.idle - 5, found.compute + 5
    with pytest.raises(AssertionError, match="negative"):
        found.check()


# -- among the groups -------------------------------------------------------------------------


def shares(pieces: list[tuple[Piece, int]], num_groups: int, **more: Any) -> dict[str, list[int]]:
    """The division among groups of pieces, each with its group."""
    work, _ = line(*(p for p, _ in pieces))
    groups = [g for _, g in sorted(pieces, key=lambda pair: pair[0].start)]
    found = exposed_shares(work, ints(*groups), num_groups, **more)
    return {name: each.tolist() for name, each in found.items()}


def test_groups_divide_the_exposed_time() -> None:
    """Alone a group has an instant to itself; two share it half and half.

    Group 0: 0..100, group 1: 60..160, compute 140..200: 60 alone, 40 shared, 40 alone.
    """
    found = shares([(comm(0, 100), 0), (comm(60, 160), 1), (Piece(140, 200), -1)], 2)
    assert found == {
        "comm": [100, 100],
        "overlap": [0, 20],
        "exposed_comm": [100, 80],
        "exposed_share": [80, 60],
    }


def test_what_cannot_be_halved_goes_to_the_first() -> None:
    """Shares are whole ns: of 11 ns among three groups the first two get one more."""
    found = shares([(comm(0, 11), 0), (comm(0, 11), 1), (comm(0, 11), 2)], 3)
    assert found["exposed_share"] == [4, 4, 3]
    # the first of those at the instant, be it the first group or not
    found = shares([(comm(0, 10), 0), (comm(20, 25), 1), (comm(20, 25), 2)], 3)
    assert found["exposed_share"] == [10, 3, 2]


def test_a_group_counts_once_at_an_instant() -> None:
    """Several operations of one group at a time are one share."""
    found = shares([(comm(0, 30), 0), (comm(10, 20), 0), (comm(10, 20), 1)], 2)
    assert (found["comm"], found["exposed_share"]) == ([30, 10], [25, 5])


def test_shares_of_a_range_are_cut() -> None:
    """Between borders only what lies there is divided."""
    pieces = [(comm(0, 100), 0), (comm(60, 160), 1)]
    found = shares(pieces, 2, borders=(ints(50), ints(80)))
    assert (found["comm"], found["exposed_share"]) == ([30, 20], [20, 10])


def test_no_groups_share_nothing() -> None:
    """Without groups there is nothing to divide."""
    assert shares([(Piece(0, 10), -1)], 0)["exposed_share"] == []


random_pieces = st.lists(
    st.tuples(
        st.builds(
            lambda start, length, role: Piece(start, start + length, role),
            st.integers(0, 30),
            st.integers(0, 15),
            st.sampled_from([COMPUTE, COMM, COMM, MEMORY]),
        ),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=10,
)


@given(random_pieces)
def test_shares_are_a_partition(pieces: list[tuple[Piece, int]]) -> None:
    """Whatever overlaps what, the shares of all groups add up to the exposed time, to the ns."""
    found = shares(pieces, 4)
    exposed = breakdown(*line(*(p for p, _ in pieces))).exposed_comm
    assert sum(found["exposed_share"]) == int(exposed[0])
    keys = ("exposed_share", "exposed_comm", "comm", "overlap")
    for share, own, length, overlap in zip(*(found[k] for k in keys), strict=True):
        assert 0 <= share <= own <= length
        assert overlap == length - own
