"""Clock differences between ranks, from the ends of what they did together."""

from __future__ import annotations

import pytest

from tracekit.model.clock import Clock, clocks, median
from tracekit.model.operations import Group, Operation

Ends = dict[int, int]


def member(rank: int, end: int, op: str = "all_reduce") -> Operation:
    """One rank's part in an operation that ends at a time (ns)."""
    return Operation(rank, op, end - 10, end, [0], Group())


def found(
    *collectives: Ends, op: str = "all_reduce", ranks: int | None = None
) -> dict[int, Clock | None]:
    """The clocks that collectives with these ends give."""
    every = {rank for ends in collectives for rank in ends}
    given = range(ranks) if ranks is not None else sorted(every)
    return clocks(given, [{r: member(r, end, op) for r, end in c.items()} for c in collectives])


def test_the_offset_is_the_median_difference_of_ends() -> None:
    """A rank is ahead by the median of what its ends lie behind those of the lowest rank."""
    ends = [{0: 100, 1: 140}, {0: 200, 1: 250}, {0: 300, 1: 345}]
    assert found(*ends) == {0: Clock(), 1: Clock(45, 5, 3)}


def test_ahead_is_positive_and_behind_negative() -> None:
    """Positive means ahead of the lowest rank, which is 0 by itself."""
    behind = found({0: 100, 1: 60}, {0: 200, 1: 160})[1]
    assert behind == Clock(-40, 0, 2)


def test_one_shared_collective_is_no_measure() -> None:
    """A clock is unknown below two shared collectives."""
    assert found({0: 100, 1: 140}) == {0: Clock(), 1: None}
    assert found(ranks=2) == {0: Clock(), 1: None}
    assert found(ranks=0) == {}


@pytest.mark.parametrize(
    ("op", "counts"),
    [("all_reduce", True), ("all_gather", True), ("reduce_scatter", True), ("all_to_all", True),
     ("barrier", True), ("broadcast", False), ("reduce", False), ("gather", False),
     ("scatter", False), ("send_recv", False), (None, False)],
)  # fmt: skip
def test_only_what_synchronises_compares_clocks(op: str, counts: bool) -> None:
    """Rooted operations and messages end at different times on purpose: they compare nothing."""
    ends = ({0: 100, 1: 140}, {0: 200, 1: 240})
    assert (found(*ends, op=op)[1] is not None) == counts


def test_ranks_are_reached_over_others() -> None:
    """A rank that shares nothing with the lowest is compared over ranks that do."""
    ends = [{0: 0, 1: 10}, {0: 100, 1: 112}, {1: 0, 2: 30}, {1: 100, 2: 134}]
    assert found(*ends) == {0: Clock(), 1: Clock(11, 1, 2), 2: Clock(11 + 32, 1 + 2, 2)}


def test_the_way_of_least_spread_is_taken() -> None:
    """Of several ways to a rank the one whose differences scatter least counts, longer or not."""
    ends = [{0: 0, 2: 500}, {0: 100, 2: 1600}]  # directly: 1000 with a spread of 500
    ends += [{0: 0, 1: 10}, {0: 100, 1: 110}, {1: 0, 2: 20}, {1: 100, 2: 120}]
    assert found(*ends)[2] == Clock(30, 0, 2)


def test_ways_of_the_same_spread() -> None:
    """On a grid of groups, where several ways are equally good, the shortest is taken."""
    ends: list[Ends] = []
    for at in (0, 100, 200):
        ends += [{0: at, 1: at}, {2: at, 3: at}, {0: at, 2: at}, {1: at, 3: at}, {0: at, 3: at + 7}]
    assert found(*ends)[3] == Clock(7, 0, 3)
    square = [e for e in ends if e.keys() != {0, 3}]
    assert found(*square)[3] == Clock(0, 0, 3)


def test_clocks_without_a_common_base_are_exact() -> None:
    """One file with unix times and one with times from 0 differ by 10**18 ns, to the ns."""
    far = 1_760_000_000_123_456_789
    ends = [{0: 5, 1: far + 5}, {0: 1_000, 1: far + 1_003}, {0: 2_000, 1: far + 2_001}]
    assert found(*ends)[1] == Clock(far + 1, 1, 3)


def test_a_clock_in_doubt() -> None:
    """An offset within its own scatter is no evidence of a clock that is off."""
    assert Clock(50, 49, 9).is_certain
    assert not Clock(-50, 50, 9).is_certain
    assert not Clock().is_certain


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([7], 7),
        ([1, 2], 1),
        ([-2, -1], -2),
        ([3, 1, 2], 2),
        ([4, 1, 9, 2], 3),
        ([2**62, 2**62 + 1], 2**62),
    ],
)
def test_the_median_is_whole_and_moves_with_its_values(values: list[int], middle: int) -> None:
    """The median of whole numbers is whole, rounded down, and shifted values shift it exactly."""
    assert median(values) == middle
    for shift in (-1, 1, -(10**18)):
        assert median([v + shift for v in values]) == middle + shift
