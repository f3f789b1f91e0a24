"""Rows of a lane: nothing overlaps in a row, and callers stand above what they call."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.plot import rows
from tracekit.plot.rows import MAX_DEPTH, depths

Events = list[tuple[int, int]]
EVENTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=40)


def laid(events: Events) -> tuple[Events, list[int]]:
    """Events (start, end) in the order asked for, and their rows."""
    ordered = sorted(events, key=lambda e: (e[0], -e[1]))
    start = np.array([s for s, _ in ordered], dtype=np.int64)
    end = np.array([e for _, e in ordered], dtype=np.int64)
    return ordered, depths(start, end).tolist()


def first_fit(ordered: Events) -> list[int]:
    """The same, one event after the other: the lowest row whose last event has ended."""
    ends: list[int] = []
    found = []
    for start, end in ordered:
        row = next((r for r, last in enumerate(ends) if last <= start), len(ends))
        ends[row:] = [end] if row == len(ends) else [end, *ends[row + 1 :]]
        found.append(row)
    return found


@given(EVENTS)
def test_nothing_overlaps_in_a_row(pairs: Events) -> None:
    """Whatever crosses, the events of one row follow each other in time."""
    ordered, found = laid([(s, s + d) for s, d in pairs])
    for row in set(found):
        mine = [e for e, r in zip(ordered, found, strict=True) if r == row]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))


@given(EVENTS)
def test_no_row_more_than_running_at_once(pairs: Events) -> None:
    """There are never more rows than events at one instant (of no length: than at one start)."""
    ordered, found = laid([(s, s + d + 1) for s, d in pairs])
    most = max((sum(a <= s < b for a, b in ordered) for s, _ in ordered), default=0)
    assert max(found, default=-1) < max(most, 1)


@given(EVENTS, st.integers(0, 3))
def test_nested_events_lie_as_deep_as_they_are_nested(pairs: Events, wraps: int) -> None:
    """Of properly nested events the row is the number of events around."""
    nested = [(100 * i, 100 * i + 90 - s // 2) for i, (s, _) in enumerate(pairs)]
    inner = [(s + 1, max(s + 1, e - 1)) for s, e in nested]
    outer = [(-1 - w, 100_000 + w) for w in range(wraps)]
    ordered, found = laid(nested + inner + outer)
    around = [
        sum(a <= s and e <= b for j, (a, b) in enumerate(ordered) if j < i)
        for i, (s, e) in enumerate(ordered)
    ]
    assert found == around


@given(EVENTS)
def test_crossing_events_take_the_first_row_that_fits(pairs: Events) -> None:
    """Events that cross lie as a search of all rows, one event after the other, puts them."""
    ordered = sorted(((s, s + d) for s, d in pairs), key=lambda e: (e[0], -e[1]))
    start = np.array([s for s, _ in ordered], dtype=np.int64)
    end = np.array([e for _, e in ordered], dtype=np.int64)
    assert rows._first_fit(start, end).tolist() == first_fit(ordered)


@given(pairs=EVENTS)
def test_what_wraps_a_stretch_is_set_apart(pairs: Events) -> None:
    """Steps around events that cross stay above, and the others lie as if there were no steps."""
    inside = [(s, s + d + 1) for s, d in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SMALL", 0)
        _, found = laid([*inside, (-1, 1000), (-2, 1001)])
    assert found == [0, 1, *(row + 2 for row in laid(inside)[1])]


def test_what_lies_too_deep_is_marked() -> None:
    """Beyond the deepest row events get its number, so that they can be counted."""
    _, found = laid([(i, 1000 - i) for i in range(MAX_DEPTH + 3)])
    assert found == [*range(MAX_DEPTH), MAX_DEPTH, MAX_DEPTH, MAX_DEPTH]


def test_kernels_that_reach_into_the_next_alternate() -> None:
    """Two rows are enough for a stream whose kernels each reach into their successor."""
    assert laid([(10 * i, 10 * i + 11) for i in range(6)])[1] == [0, 1, 0, 1, 0, 1]
