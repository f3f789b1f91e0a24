"""Promises of the exposed instants: their lengths are the figures of the breakdown."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.breakdown import Split, breakdown
from tracekit.analysis.exposure import exposure
from tracekit.core.intervals import Intervals, measure
from tracekit.model.names import COMM, COMPUTE, MEMORY
from tracekit.model.work import Work

#: (start, length, role, of which waiting, whether the rest moves bytes)
Piece = tuple[int, int, int, int, bool]


def work_of(pieces: list[Piece]) -> tuple[Work, Split]:
    """These pieces of work, and how their communication divides."""
    rows = sorted(pieces)
    start = np.array([p[0] for p in rows], dtype=np.int64)
    end = start + np.array([p[1] for p in rows], dtype=np.int64)
    role = np.array([p[2] for p in rows], dtype=np.int8)
    none = np.full(len(rows), -1, dtype=np.int64)
    work = Work("device", start, end, role, none, none, start, none)
    wait_end = np.minimum(end, start + np.array([p[3] for p in rows], dtype=np.int64))
    moves = np.array([p[4] for p in rows], dtype=bool)
    return work, Split(wait_end, moves, np.zeros(len(rows), dtype=bool))


def spans(found: Intervals) -> list[tuple[int, int]]:
    """A set as pairs."""
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def test_a_line_by_hand() -> None:
    """Waiting, moving, unknown, copies and idle time lie where they were put."""
    work, split = work_of([
        (0, 100, COMPUTE, 0, False),
        (100, 150, COMM, 100, True),  # waits until 200, moves until 250
        (220, 80, COMPUTE, 0, False),
        (310, 10, MEMORY, 0, False),
        (290, 40, COMM, 0, False),  # unmatched: 290..300 under compute
        (340, 5, COMPUTE, 0, False),
    ])  # fmt: skip
    found = exposure(work, split)
    assert spans(found.compute) == [(0, 100), (220, 300), (340, 345)]
    assert spans(found.comm) == [(100, 250), (290, 330)]
    assert spans(found.memory) == [(310, 320)]
    assert spans(found.wait) == [(100, 200)]
    assert spans(found.transfer) == [(200, 220)]
    assert spans(found.unknown) == [(300, 330)]
    assert spans(found.exposed_memory) == []
    assert spans(found.idle) == [(330, 340)]


def test_moving_bytes_wins_over_waiting() -> None:
    """While one collective waits and another moves bytes, bytes move."""
    work, split = work_of([(0, 10, COMM, 10, True), (4, 3, COMM, 0, True)])
    found = exposure(work, split)
    assert (spans(found.wait), spans(found.transfer)) == ([(0, 4), (7, 10)], [(4, 7)])


def test_no_work_has_no_instants() -> None:
    """An empty rank is empty in every set."""
    found = exposure(*work_of([]))
    sets = [getattr(found, name) for name in found.__dataclass_fields__]
    assert [spans(s) for s in sets] == [[]] * 8


piece = st.tuples(
    st.integers(-20, 60),
    st.integers(0, 15),
    st.sampled_from((COMPUTE, COMM, MEMORY)),
    st.integers(0, 20),
    st.booleans(),
)


@given(st.lists(piece, min_size=1, max_size=14))
def test_lengths_are_the_figures(pieces: list[Piece]) -> None:
    """Each set is as long as the breakdown's figure of that name, to the nanosecond."""
    work, split = work_of(pieces)
    found, figures = exposure(work, split), breakdown(work, split)
    of = {
        "compute": found.compute,
        "comm": found.comm,
        "memory": found.memory,
        "exposed_wait": found.wait,
        "exposed_transfer": found.transfer,
        "exposed_unknown": found.unknown,
        "exposed_memory": found.exposed_memory,
        "idle": found.idle,
    }
    assert {name: measure(*s) for name, s in of.items()} == {
        name: int(getattr(figures, name)[0]) for name in of
    }


@given(st.lists(piece, min_size=1, max_size=14))
def test_window_is_divided_without_overlap(pieces: list[Piece]) -> None:
    """Every instant of the window is compute, or exactly one of the exposed kinds, or idle."""
    work, split = work_of(pieces)
    found = exposure(work, split)
    parts = [found.compute, found.wait, found.transfer, found.unknown]
    parts += [found.exposed_memory, found.idle]
    held = [at for part in parts for low, high in spans(part) for at in range(low, high)]
    assert sorted(held) == list(range(int(work.start.min()), int(work.end.max())))
