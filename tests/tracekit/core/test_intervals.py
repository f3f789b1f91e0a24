"""Interval algebra on hand-worked values."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.core.intervals import (
    Intervals,
    clip,
    coverage,
    intersect,
    measure,
    subtract,
    union,
)

EMPTY: list[tuple[int, int]] = []


def raw(pairs: list[tuple[int, int]]) -> Intervals:
    """Pairs as two int64 arrays, in the order given."""
    borders = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return borders[:, 0], borders[:, 1]


def pairs(intervals: Intervals) -> list[tuple[int, int]]:
    """Two arrays as pairs, after a check that both are int64 and equally long."""
    start, end = intervals
    assert start.dtype == end.dtype == np.int64
    return list(zip(start.tolist(), end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(EMPTY, EMPTY, id="nothing"),
        pytest.param([(3, 8)], [(3, 8)], id="one"),
        pytest.param([(0, 5), (5, 9)], [(0, 9)], id="touching"),
        pytest.param([(0, 5), (6, 9)], [(0, 5), (6, 9)], id="one-apart"),
        pytest.param([(0, 5), (3, 9)], [(0, 9)], id="overlapping"),
        pytest.param([(0, 20), (3, 9), (10, 12)], [(0, 20)], id="nested"),
        pytest.param([(0, 20), (3, 9), (21, 30)], [(0, 20), (21, 30)], id="gap-after-nested"),
        pytest.param([(6, 9), (0, 2), (2, 5), (1, 2)], [(0, 5), (6, 9)], id="unordered"),
        pytest.param([(4, 7), (4, 7), (4, 6)], [(4, 7)], id="same-start"),
        pytest.param([(5, 5), (9, 9)], EMPTY, id="empty-vanish"),
        pytest.param([(0, 2), (2, 2), (3, 3), (4, 6)], [(0, 2), (4, 6)], id="empty-bridge-nothing"),
        pytest.param([(8, 3), (0, 2)], [(0, 2)], id="negative-length-vanish"),
        pytest.param([(-9, -4), (-5, 1)], [(-9, 1)], id="below-zero"),
    ],
)
def test_union(given: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """Overlapping and touching intervals merge, empty ones vanish, the order is that of time."""
    assert pairs(union(*raw(given))) == expected


def test_union_keeps_its_input() -> None:
    """The arrays given to a union are left as they were."""
    start, end = raw([(6, 9), (0, 2), (1, 7)])
    union(start, end)
    assert pairs((start, end)) == [(6, 9), (0, 2), (1, 7)]


@pytest.mark.parametrize(
    ("given", "expected"), [(EMPTY, 0), ([(3, 8)], 5), ([(-4, -1), (0, 5), (7, 9)], 10)]
)
def test_measure(given: list[tuple[int, int]], expected: int) -> None:
    """The measure is the sum of the lengths, as a plain int."""
    got = measure(*raw(given))
    assert (got, type(got)) == (expected, int)


def test_coverage() -> None:
    """Each point gets the length below it, whether before, on a border, inside, between or after.

    The set [10, 15) ∪ [20, 22) ∪ [30, 40) has 5, 7 and 17 ns below its three ends.
    """
    at = np.array([99, 0, 10, 11, 15, 17, 20, 21, 22, 30, 39, 40], dtype=np.int64)
    expected = [17, 0, 0, 1, 5, 5, 5, 6, 7, 7, 16, 17]
    assert coverage(*raw([(10, 15), (20, 22), (30, 40)]), at).tolist() == expected


def test_coverage_of_touching_neighbours() -> None:
    """A border shared by two intervals counts once."""
    at = np.array([0, 5, 7, 9], dtype=np.int64)
    assert coverage(*raw([(0, 5), (5, 9)]), at).tolist() == [0, 5, 7, 9]


def test_coverage_of_nothing() -> None:
    """Nothing lies below any point of an empty set, and the shape is that of the points."""
    got = coverage(*raw(EMPTY), np.array([[1, 2, 3]], dtype=np.int64))
    assert (got.tolist(), got.dtype) == ([[0, 0, 0]], np.int64)


def test_coverage_at_the_ends_of_time() -> None:
    """The smallest and the largest int64 are points like any other."""
    at = np.array([-(2**63), 2**63 - 1], dtype=np.int64)
    assert coverage(*raw([(-3, 4)]), at).tolist() == [0, 7]


@pytest.mark.parametrize(
    ("a", "b", "both", "a_only"),
    [
        pytest.param(EMPTY, EMPTY, EMPTY, EMPTY, id="nothing"),
        pytest.param([(0, 9)], EMPTY, EMPTY, [(0, 9)], id="second-empty"),
        pytest.param(EMPTY, [(0, 9)], EMPTY, EMPTY, id="first-empty"),
        pytest.param([(0, 9)], [(0, 9)], [(0, 9)], EMPTY, id="equal"),
        pytest.param([(0, 5)], [(5, 9)], EMPTY, [(0, 5)], id="touching"),
        pytest.param([(0, 9)], [(3, 5)], [(3, 5)], [(0, 3), (5, 9)], id="hole"),
        pytest.param([(3, 5)], [(0, 9)], [(3, 5)], EMPTY, id="covered"),
        pytest.param([(0, 6)], [(4, 9)], [(4, 6)], [(0, 4)], id="tail"),
        pytest.param([(4, 9)], [(0, 6)], [(4, 6)], [(6, 9)], id="head"),
        pytest.param(
            [(0, 10), (20, 30), (40, 50)],
            [(5, 25), (30, 35), (45, 46), (48, 60)],
            [(5, 10), (20, 25), (45, 46), (48, 50)],
            [(0, 5), (25, 30), (40, 45), (46, 48)],
            id="many",
        ),
        pytest.param(
            [(0, 9)], [(2, 4), (4, 6)], [(2, 4), (4, 6)], [(0, 2), (6, 9)], id="b-touches"
        ),
        pytest.param(
            [(0, 4), (4, 9)], [(3, 6)], [(3, 4), (4, 6)], [(0, 3), (6, 9)], id="a-touches"
        ),
    ],
)
def test_intersect_and_subtract(
    a: list[tuple[int, int]],
    b: list[tuple[int, int]],
    both: list[tuple[int, int]],
    a_only: list[tuple[int, int]],
) -> None:
    """Instants of both sets, and those of the first alone, are told apart at each border."""
    assert pairs(intersect(raw(a), raw(b))) == both
    assert pairs(subtract(raw(a), raw(b))) == a_only


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(-5, 99, [(0, 10), (20, 30)], id="all"),
        pytest.param(5, 25, [(5, 10), (20, 25)], id="both-cut"),
        pytest.param(10, 20, EMPTY, id="in-the-gap"),
        pytest.param(0, 10, [(0, 10)], id="on-the-borders"),
        pytest.param(22, 23, [(22, 23)], id="within-one"),
        pytest.param(5, 5, EMPTY, id="empty-window"),
    ],
)
def test_clip(low: int, high: int, expected: list[tuple[int, int]]) -> None:
    """A window keeps what lies inside it, cut at its borders."""
    assert pairs(clip(*raw([(0, 10), (20, 30)]), low, high)) == expected


def test_clip_refuses_a_reversed_window() -> None:
    """A window that ends before it starts is refused with both its borders."""
    with pytest.raises(ValueError, match=r"\[25, 5\) ends before it starts"):
        clip(*raw([(0, 10)]), 25, 5)


def test_unix_nanoseconds_are_exact() -> None:
    """Two times of 19 digits that differ by 1 ns, equal as floats, stay apart."""
    now = 1_760_000_000_123_456_789
    assert float(now) == float(now + 1)
    a, b = raw([(now, now + 1), (now + 2, now + 3)]), raw([(now, now + 3)])
    assert pairs(union(*a)) == pairs(a)
    assert pairs(subtract(b, a)) == [(now + 1, now + 2)]
    assert measure(*a) == 2


def test_a_span_of_nearly_all_of_int64_does_not_overflow() -> None:
    """Members 2**63 - 1 ns from first start to last end are measured and cut without overflow."""
    far = 2**62
    ends = union(*raw([(far - 3, far - 1), (-far, -far + 2)]))
    whole = union(*raw([(-far, far - 1)]))
    assert pairs(ends) == [(-far, -far + 2), (far - 3, far - 1)]
    assert measure(*whole) == 2**63 - 1
    assert pairs(subtract(whole, ends)) == [(-far + 2, far - 3)]
    assert coverage(*ends, np.array([far - 2], dtype=np.int64)).tolist() == [3]
