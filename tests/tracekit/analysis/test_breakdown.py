"""Dividing time by hand: the parts of a window, of its exposed part, and of that among groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.breakdown import Figures, Split, breakdown, exposed_shares
from tracekit.model.names import COMM, COMPUTE, MEMORY
from tracekit.model.work import Work

#: start, end, role
Piece = tuple[int, int, int]


def made(pieces: list[Piece]) -> Work:
    """These pieces as work, in the order given."""
    start, end, role = (np.array([p[i] for p in pieces], dtype=np.int64) for i in range(3))
    none = np.full(len(pieces), -1, dtype=np.int64)
    return Work("device", start, end, role.astype(np.int8), none, none, start, none)


def unsplit(work: Work) -> Split:
    """Communication of which nothing is known."""
    no = np.zeros(len(work), dtype=bool)
    return Split(work.start.copy(), no, no)


def parts(figures: Figures, at: int = 0) -> dict[str, int]:
    """The parts of one window."""
    names = (
        "window",
        "compute",
        "comm",
        "overlap",
        "exposed_comm",
        "memory",
        "exposed_memory",
        "idle",
    )
    return {name: int(getattr(figures, name)[at]) for name in names}


def test_the_parts_of_a_window() -> None:
    """Copies count only where nothing else runs, and the four parts add up to the window."""
    work = made([(0, 50, COMPUTE), (120, 130, COMPUTE), (40, 90, COMM), (30, 105, MEMORY)])
    assert parts(breakdown(work, unsplit(work))) == {
        "window": 130, "compute": 60, "comm": 50, "overlap": 10, "exposed_comm": 40,
        "memory": 75, "exposed_memory": 15, "idle": 15,
    }  # fmt: skip


def test_no_work_is_no_time() -> None:
    """Without any work every figure is 0."""
    work = made([])
    assert set(parts(breakdown(work, unsplit(work))).values()) == {0}


def test_far_from_zero_nothing_is_rounded() -> None:
    """At unix times in nanoseconds, where a double has steps of 256, figures are exact."""
    far = 1_760_000_000_123_456_789
    work = made([(far, far + 1, COMPUTE), (far + 2, far + 3, COMM)])
    assert parts(breakdown(work, unsplit(work)))["idle"] == 1


def test_spans_that_overlap_are_divided_each_for_itself() -> None:
    """Two spans over the same time each have their own window; what belongs to none is left out."""
    work = made([(0, 10, COMPUTE), (5, 30, COMM), (20, 40, COMPUTE), (0, 99, MEMORY)])
    figures = breakdown(work, unsplit(work), np.array([0, 1, 1, -1]), 3)
    assert (figures.window.tolist(), figures.count.tolist()) == ([10, 35, 0], [1, 2, 0])
    assert (figures.compute.tolist(), figures.overlap.tolist()) == ([10, 20, 0], [0, 10, 0])
    assert figures.exposed_comm.tolist() == [0, 15, 0]


def test_borders_make_the_window() -> None:
    """With borders the window is their distance and work is cut at them."""
    work = made([(-20, 70, COMPUTE), (60, 120, COMM)])
    borders = np.array([50]), np.array([100])
    found = parts(breakdown(work, unsplit(work), borders=borders))
    assert (found["window"], found["compute"], found["comm"], found["overlap"]) == (50, 20, 40, 10)


def test_waiting_moving_and_not_knowing() -> None:
    """Exposed communication is waiting up to its border, then moving or unknown."""
    work = made([(0, 100, COMM), (10, 30, COMPUTE), (200, 250, COMM), (300, 320, COMM)])
    split = Split(
        np.array([40, 10, 200, 310]), np.array([True, False, False, False]), np.zeros(4, bool)
    )
    figures = breakdown(work, split)
    assert int(figures.exposed_wait[0]) == 40 - 20 + 10
    assert int(figures.exposed_transfer[0]) == 60
    assert int(figures.exposed_unknown[0]) == 50 + 10


def test_edge_time_is_given_apart() -> None:
    """The time of edge collectives is a union of its own, inside the communication."""
    work = made([(0, 100, COMM), (50, 120, COMM), (200, 210, COMM)])
    split = Split(work.start, np.zeros(3, bool), np.array([True, True, False]))
    assert int(breakdown(work, split).edge_comm[0]) == 120


def test_figures_that_do_not_add_up_are_a_defect() -> None:
    """The identity is asserted on every division."""
    work = made([(0, 50, COMPUTE), (40, 90, COMM)])
    figures = breakdown(work, unsplit(work))
    for name in ("idle", "exposed_wait"):
        broken = breakdown(work, unsplit(work))
        setattr(broken, name, getattr(figures, name) + 1)
        with pytest.raises(AssertionError):
            broken.check()
    lower = breakdown(work, unsplit(work))
    lower.idle, lower.compute = lower.idle - 5, lower.compute + 5
    with pytest.raises(AssertionError, match="negative"):
        lower.check()


def shares(work: Work, groups: list[int], num: int) -> dict[str, list[int]]:
    """The figures per group as lists."""
    found = exposed_shares(work, np.array(groups, dtype=np.int64), num)
    return {name: values.tolist() for name, values in found.items()}


def test_two_groups_at_once_share_the_time() -> None:
    """Where two groups communicate at once each has its half, and the halves add up to the union."""
    work = made([(0, 100, COMM), (50, 150, COMM), (120, 200, COMPUTE)])
    assert shares(work, [0, 1, -1], 2) == {
        "comm": [100, 100], "overlap": [0, 30], "exposed_comm": [100, 70], "exposed_share": [75, 45],
    }  # fmt: skip


def test_what_cannot_be_divided_goes_to_the_first() -> None:
    """Three groups over 10 ns have 4, 3 and 3: the remainder goes to the first of them."""
    work = made([(0, 10, COMM), (0, 10, COMM), (0, 10, COMM)])
    assert shares(work, [0, 1, 2], 3)["exposed_share"] == [4, 3, 3]
    assert shares(work, [2, 2, 1], 3)["exposed_share"] == [0, 5, 5]


def test_no_groups_share_nothing() -> None:
    """Without groups there is nothing to divide."""
    work = made([(0, 10, COMPUTE)])
    assert shares(work, [-1], 0)["exposed_share"] == []


pieces = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 15), st.sampled_from([COMPUTE, COMM, COMM, MEMORY])
    ),
    min_size=1,
    max_size=10,
)


@given(pieces, st.lists(st.integers(0, 3), min_size=10, max_size=10))
def test_shares_are_a_partition(rows: list[Piece], groups: list[int]) -> None:
    """Whatever overlaps what, the shares of all groups add up to the exposed time, to the ns."""
    work = made([(start, start + length, role) for start, length, role in rows])
    found = shares(work, groups[: len(work)], 4)
    exposed = int(breakdown(work, unsplit(work)).exposed_comm[0])
    assert sum(found["exposed_share"]) == exposed
    for share, own, comm, over in zip(*(found[k] for k in (
        "exposed_share", "exposed_comm", "comm", "overlap")), strict=True):  # fmt: skip
        assert 0 <= share <= own <= comm
        assert over == comm - own
