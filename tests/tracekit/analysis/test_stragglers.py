"""Who comes last, how often and how late."""

from __future__ import annotations

from typing import Any

from tests.builder import Kineto, collective, run_of
from tracekit.report.document import document

#: start of each rank's part (µs) in the collectives of a run; all end 100 after the last
Starts = list[tuple[int, ...]]


def run(starts: Starts, **about: Any) -> list[dict[str, Any]]:
    """The stragglers of a run."""
    num = len(starts[0])
    files = [Kineto(rank, num).kernel(1, 2) for rank in range(num)]
    for seq, row in enumerate(starts):
        given = {"ranks": range(num), **about}
        for file, start in zip(files, row, strict=True):
            file.comm(start, max(row) + 100, **collective(elems=4, seq=seq, **given))
    found: list[dict[str, Any]] = document(run_of(*files))["stragglers"]
    return found


def test_lateness_is_what_the_last_one_cost() -> None:
    """Late is the last arrival less the second-last one; waiting is each rank's own."""
    assert run([(100, 150, 170), (1_000, 1_090, 1_020), (2_000, 2_010, 2_050)]) == [
        {"rank": 1, "num_matched": 3, "num_last": 1, "late_us": 70.0, "wait_us": 20.0 + 40.0},
        {"rank": 2, "num_matched": 3, "num_last": 2, "late_us": 20.0 + 40.0, "wait_us": 70.0},
        {"rank": 0, "num_matched": 3, "num_last": 0, "late_us": 0.0, "wait_us": 70.0 + 90.0 + 50.0},
    ]  # fmt: skip


def test_all_at_once_are_not_late() -> None:
    """Where all come at the same time the lowest rank is last, by nothing."""
    rows = run([(100, 100), (500, 500)])
    assert [(r["rank"], r["num_last"], r["late_us"]) for r in rows] == [(0, 2, 0.0), (1, 0, 0.0)]


def test_edges_do_not_count() -> None:
    """A collective with which some rank's recording begins says nothing about who was late."""
    about = collective(elems=4, seq=1)
    first = Kineto(0, 2).comm(10, 5_000, **about)
    second = Kineto(1, 2).kernel(1, 5).comm(4_990, 5_000, **about)
    assert document(run_of(first, second))["stragglers"] == []


def test_absent_members_leave_the_question_open() -> None:
    """Where a member of the group is not here, it may have come last: nobody is blamed."""
    assert run([(100, 150), (500, 560)], size=3, ranks=None) == []


def test_a_rank_alone_is_no_straggler() -> None:
    """Without a second rank nobody is late."""
    assert run([(100,), (200,)]) == []
