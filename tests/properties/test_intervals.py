"""Laws of interval algebra, and agreement with an oracle that marks unit cells in a Python set."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.core.intervals import (
    Intervals,
    clip,
    coverage,
    intersect,
    measure,
    subtract,
    union,
)

#: near 2**62 a float64 has steps of 512 ns and more, so that any rounding shows
FAR = 2**62
origins = st.sampled_from([0, -FAR, FAR, 1_760_000_000_123_456_789])
#: short and crowded on purpose: borders coincide, touch and nest in most examples
spans = st.lists(st.tuples(st.integers(-32, 32), st.integers(-3, 12)), max_size=12)
Spans = list[tuple[int, int]]


def raw(spans_: Spans, origin: int) -> Intervals:
    """Spans (start, length) moved to ``origin``, as two int64 arrays."""
    start = [origin + begin for begin, _ in spans_]
    end = [origin + begin + length for begin, length in spans_]
    return np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)


def cells(intervals: Intervals) -> set[int]:
    """The oracle: every unit cell that some interval holds."""
    borders = zip(intervals[0].tolist(), intervals[1].tolist(), strict=True)
    return {cell for start, end in borders for cell in range(start, end)}


def pairs(intervals: Intervals) -> Spans:
    """Two arrays as pairs."""
    return list(zip(intervals[0].tolist(), intervals[1].tolist(), strict=True))


def assert_canonical(intervals: Intervals) -> None:
    """Sorted, disjoint, apart from each other, no empty member, int64."""
    start, end = intervals
    assert start.dtype == end.dtype == np.int64
    assert bool((start < end).all())
    assert bool((end[:-1] < start[1:]).all())


@given(spans, origins)
def test_union_holds_the_cells_of_its_members(a: Spans, origin: int) -> None:
    """A union holds each cell of each member and no other, in canonical form."""
    got = union(*raw(a, origin))
    assert_canonical(got)
    assert cells(got) == cells(raw(a, origin))


@given(spans, origins)
def test_measure_counts_cells(a: Spans, origin: int) -> None:
    """The measure of a set is the number of its unit cells."""
    assert measure(*union(*raw(a, origin))) == len(cells(raw(a, origin)))


@given(spans.flatmap(lambda a: st.tuples(st.just(a), st.permutations(a))), origins)
def test_union_does_not_depend_on_order(orders: tuple[Spans, Spans], origin: int) -> None:
    """Any order of the members gives the same union."""
    one, other = orders
    assert pairs(union(*raw(one, origin))) == pairs(union(*raw(other, origin)))


@given(spans, origins)
def test_idempotence(a: Spans, origin: int) -> None:
    """A set united with itself or cut with itself is itself, and less itself is nothing."""
    one = union(*raw(a, origin))
    assert pairs(union(*one)) == pairs(one)
    assert pairs(union(*raw(a + a, origin))) == pairs(one)
    assert pairs(intersect(one, one)) == pairs(one)
    assert pairs(subtract(one, one)) == []


@given(spans, spans, origins)
def test_intersect_and_subtract_agree_with_cells(a: Spans, b: Spans, origin: int) -> None:
    """Intersection and difference hold the cells that Python's sets say, in canonical form."""
    one, two = union(*raw(a, origin)), union(*raw(b, origin))
    both, rest = intersect(one, two), subtract(one, two)
    assert_canonical(both)
    assert_canonical(rest)
    assert cells(both) == cells(one) & cells(two)
    assert cells(rest) == cells(one) - cells(two)


@given(spans, spans, origins)
def test_inclusion_and_exclusion(a: Spans, b: Spans, origin: int) -> None:
    """|A ∪ B| = |A| + |B| − |A ∩ B|."""
    one, two = union(*raw(a, origin)), union(*raw(b, origin))
    total = measure(*union(*raw(a + b, origin)))
    assert total == measure(*one) + measure(*two) - measure(*intersect(one, two))


@given(spans, spans, origins)
def test_intersection_and_difference_partition(a: Spans, b: Spans, origin: int) -> None:
    """A ∩ B and A less B are apart from each other and together make A."""
    one, two = union(*raw(a, origin)), union(*raw(b, origin))
    both, rest = intersect(one, two), subtract(one, two)
    assert pairs(intersect(both, rest)) == []
    joined = union(np.concatenate((both[0], rest[0])), np.concatenate((both[1], rest[1])))
    assert pairs(joined) == pairs(one)


@given(spans, spans, origins)
def test_intersection_commutes(a: Spans, b: Spans, origin: int) -> None:
    """A ∩ B = B ∩ A."""
    one, two = union(*raw(a, origin)), union(*raw(b, origin))
    assert pairs(intersect(one, two)) == pairs(intersect(two, one))


@given(spans, spans, origins)
def test_touching_members_change_no_cell(a: Spans, b: Spans, origin: int) -> None:
    """Sets cut into unit pieces give the same cells as the merged ones."""
    one, two = union(*raw(a, origin)), union(*raw(b, origin))
    pieces_of_one, pieces_of_two = unit_pieces(one), unit_pieces(two)
    assert cells(intersect(pieces_of_one, pieces_of_two)) == cells(one) & cells(two)
    assert cells(subtract(pieces_of_one, pieces_of_two)) == cells(one) - cells(two)
    assert measure(*pieces_of_one) == measure(*one)


@given(spans, origins, st.lists(st.integers(-50, 60), max_size=8))
def test_coverage_counts_cells_below(a: Spans, origin: int, points: list[int]) -> None:
    """The coverage at a point is the number of cells below it."""
    one = union(*raw(a, origin))
    at = np.array([origin + point for point in points], dtype=np.int64)
    held = cells(one)
    assert coverage(*one, at).tolist() == [sum(c < p for c in held) for p in at.tolist()]


@given(spans, origins, st.integers(-50, 60), st.integers(0, 60))
def test_clip_is_coverage_is_intersection(a: Spans, origin: int, low: int, width: int) -> None:
    """Cutting at a window, cutting with a one-member set and the coverage difference agree."""
    one = union(*raw(a, origin))
    left, right = origin + low, origin + low + width
    inside = clip(*one, left, right)
    assert_canonical(inside)
    assert cells(inside) == {cell for cell in cells(one) if left <= cell < right}
    assert pairs(inside) == pairs(intersect(one, union(*raw([(low, width)], origin))))
    below = coverage(*one, np.array([left, right], dtype=np.int64))
    assert measure(*inside) == below[1] - below[0]


def unit_pieces(intervals: Intervals) -> Intervals:
    """A set as touching pieces of 1 ns."""
    start = np.array(sorted(cells(intervals)), dtype=np.int64)
    return start, start + 1
