"""Pairing by order and time alone, for short and for very unequal lists of operations."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.model import align as aligning
from tracekit.model.align import align, guess_offsets
from tracekit.model.operations import Group, Operation


def operations(
    rank: int, ends: list[int], op: str = "all_reduce", length: int = 5_000
) -> list[Operation]:
    """Operations of a rank that end at these times (ns)."""
    return [Operation(rank, op, end - length, end, [n], Group()) for n, end in enumerate(ends)]


def irregular(num: int) -> list[int]:
    """Ends at distances of 20 µs to 2 ms."""
    return np.cumsum(np.random.default_rng(7).integers(20_000, 2_000_000, num)).tolist()


def pairs(hub: list[int], other: list[int], clock: int = 0) -> list[tuple[int | None, int | None]]:
    """Which operation of one rank was laid beside which of the other."""
    found = align({0: operations(0, hub), 1: operations(1, other)}, {0: 0, 1: clock}, 1_000)
    place = {rank: (lambda m, r=rank: m[r].entries[0] if r in m else None) for rank in (0, 1)}
    return [(place[0](m), place[1](m)) for m in found]


def offset(hub: list[int], other: list[int], op: str = "all_reduce") -> int | None:
    """What the second rank's clock is found to be ahead of the first one's."""
    bucket = {0: operations(0, hub, op), 1: operations(1, other, op)}
    return guess_offsets([bucket], {}).offsets.get(1)


def test_a_shared_difference_is_the_clock() -> None:
    """The difference that most pairs of ends share is how far the clock is ahead."""
    ends = irregular(12)
    assert offset(ends, [e + 9_000_000_123 for e in ends]) == 9_000_000_123
    assert offset(ends, [e - 77_000 for e in ends]) == -77_000


def test_a_small_difference_is_preferred() -> None:
    """Where operations come in a regular beat, the clock that is off least explains them."""
    ends = [1_000_000 * n for n in range(12)]
    assert offset(ends, [e + 3_000 for e in ends]) == 3_000
    assert offset(ends, [e + 3_000 for e in ends[1:]]) == 3_000


@pytest.mark.parametrize("clock", [40_000_000, -75_000_000, 0, 3_600_000_000_000])
def test_a_beat_does_not_hide_a_clock_that_is_off_by_more_than_it(clock: int) -> None:
    """Steps of about one length and a clock off by more: the one difference that all share."""
    drawn = np.random.default_rng(3)
    steps = np.cumsum(drawn.normal(35_000_000, 200_000, 12).astype(np.int64))
    first, second = (
        {
            rank: operations(rank, (steps + at + drawn.integers(0, 40_000, 12) + shift).tolist())
            for rank, shift in ((0, 0), (1, clock))
        }
        for at in (0, 9_000_000)
    )
    found = guess_offsets([first, second], {}).offsets[1]
    assert abs(found - clock) < 40_000


def test_all_kinds_of_operations_speak_for_a_clock() -> None:
    """A beat a kind of operation alone cannot place is placed by all kinds together."""
    beat = [35_000_000 * n for n in range(12)]
    kinds = [[t + at for t in beat] for at in (0, 2_000_000, 9_000_000, 17_000_000, 20_000_000)]
    buckets = [{0: operations(0, k), 1: operations(1, [e + 40_000_000 for e in k])} for k in kinds]
    assert guess_offsets(buckets, {}).offsets == {0: 0, 1: 40_000_000}


@pytest.mark.parametrize(
    ("hub", "other"), [([], []), ([5], []), ([5], [9]), ([10**6, 2 * 10**6], [10**6, 9 * 10**6])]
)
def test_too_little_tells_no_clock(hub: list[int], other: list[int]) -> None:
    """Without two ends that agree nothing is known of a clock."""
    if hub and other:
        assert offset(hub, other) is None
    assert aligning._coincidence([(np.array(hub), np.array(other))]) == []


def test_rooted_operations_tell_no_clock() -> None:
    """The ends of rooted operations differ on purpose, so no clock is read from them."""
    ends = irregular(12)
    assert offset(ends, [e + 5_000 for e in ends], "broadcast") is None


def test_known_clocks_are_left_as_they_are() -> None:
    """A clock that is known from identified collectives is not guessed again."""
    ends = irregular(12)
    bucket = {0: operations(0, ends), 1: operations(1, [e + 50_000 for e in ends])}
    assert guess_offsets([bucket], {0: 0, 1: 7}).offsets == {0: 0, 1: 7}


def test_lost_operations_leave_a_gap() -> None:
    """Operations that one rank lost, first, last or between, stay alone; the others pair."""
    ends = irregular(9)
    left = [e for n, e in enumerate(ends) if n not in (0, 4, 8)]
    found = pairs(ends, left)
    assert [a for a, b in found if b is None] == [0, 4, 8]
    assert [(a, b) for a, b in found if b is not None] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (5, 3),
        (6, 4),
        (7, 5),
    ]


def test_a_short_window_in_a_long_one() -> None:
    """A rank that recorded a quarter of the time is laid where it belongs, clock off or not."""
    ends = irregular(6_000)
    part = [e + 5_000_000 for e in ends[2_000:3_500]]
    assert offset(ends, part) == 5_000_000
    matched = [(a, b) for a, b in pairs(ends, part, 5_000_000) if b is not None and a is not None]
    assert matched == [(2_000 + n, n) for n in range(1_500)]


@pytest.mark.parametrize(
    "sizes", [(20_000, 5_000), (5_000, 20_000), (200_000, 200_000), (10, 10**5)]
)
def test_what_is_looked_at_is_bounded(sizes: tuple[int, int]) -> None:
    """However unequal two lists are, only so many differences are looked at."""
    hub, other = (np.arange(size, dtype=np.int64) * 1_000 for size in sizes)
    differences, num_asked = aligning._differences(hub, other)
    bound = aligning.MAX_DIFFERENCES + aligning.MAX_SHIFT * 2 * max(sizes)
    assert len(differences) <= bound
    assert 10 <= num_asked <= min(sizes)
    assert 0 in differences


def test_a_clock_that_a_beat_leaves_open_is_doubted() -> None:
    """Where another difference explains the ends nearly as well, that is kept beside the guess."""
    beat = [5_300_000 * n for n in range(20)]
    guess = guess_offsets(
        [{0: operations(0, beat), 1: operations(1, [e + 5_300_000 for e in beat])}], {}
    )
    assert {guess.offsets[1], guess.doubtful[1]} == {0, 5_300_000}
    ends = irregular(20)
    sure = guess_offsets(
        [{0: operations(0, ends), 1: operations(1, [e + 9_000 for e in ends])}], {}
    )
    assert (sure.offsets[1], sure.doubtful) == (9_000, {})
