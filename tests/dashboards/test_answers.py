"""The overview's answers, on runs whose answers are known by construction."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards import answers
from tests.builder import ALL_REDUCE, Kineto
from tests.dashboards.helpers import digest_of


def two_ranks(folder: Path, lengths: list[int], late: int) -> Path:
    """Steps of given lengths; rank ``late`` comes 30 µs after the other to their all-reduce."""
    for rank in (0, 1):
        trace = Kineto(rank=rank, world_size=2)
        at = 0
        for number, length in enumerate(lengths):
            trace.event(at, at + length, f"ProfilerStep#{number}", "user_annotation")
            work = length - 60 if rank == late else length - 90
            trace.kernel(at + 2, at + 2 + work, launched=at + 1)
            trace.comm(at + 2 + work, at + length - 20, ALL_REDUCE, launched=at + 1)
            at += length + 10
        trace.write(folder / f"rank{rank}.json")
    return folder


@pytest.mark.parametrize("late", [0, 1])
def test_the_rank_that_comes_last_is_named(tmp_path: Path, late: int) -> None:
    """The late rank is named, with how often and by how much; it is not the one that waits."""
    found = answers.last_rank(digest_of(two_ranks(tmp_path, [200] * 4, late)))
    assert found.answer == f"rank {late}"
    assert "120 µs behind the others (100.0 % of all)" in found.detail


def test_waiting_and_moving_are_told_apart(tmp_path: Path) -> None:
    """30 µs of waiting and twice 38 µs of transfer a step: 28 % waits, 72 % moves."""
    found = answers.waits_or_moves(digest_of(two_ranks(tmp_path, [200] * 4, 0)))
    moves = 2 * 38 / (2 * 38 + 30)
    assert found.answer == f"{100 * moves:.1f} % moving bytes"
    assert found.detail == "120 µs waiting, 304 µs moving bytes"


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([200] * 12, "no, steady"),
        (list(range(200, 320, 10)), "yes, +"),
        (list(range(320, 200, -10)), "no, -"),
        ([200, 300] * 6, "no, steady"),
        ([200, 210, 220], "too few steps to tell"),
    ],
)
def test_a_trend_is_told_from_scatter(tmp_path: Path, lengths: list[int], said: str) -> None:
    """Rising steps get worse, falling ones better, alternating ones are steady."""
    found = answers.trend(digest_of(two_ranks(tmp_path, lengths, 0)))
    assert found.answer.startswith(said)


def test_what_is_not_known_is_said_with_the_way_out(tmp_path: Path) -> None:
    """One rank without groups: neither axis nor late rank is guessed."""
    Kineto(rank=0).kernel(0, 50).comm(50, 90, ALL_REDUCE).write(tmp_path / "rank0.json")
    digest = digest_of(tmp_path)
    axis, last = answers.exposed_axis(digest), answers.last_rank(digest)
    assert (axis.answer, axis.is_known) == ("not known", False)
    assert "group_desc" in axis.detail
    assert (last.answer, last.is_known) == ("not known", False)
    assert answers.waits_or_moves(digest).answer == "100.0 % not known"


def test_the_axis_that_costs_most_is_named(samples: Path) -> None:
    """Of two axes the one with the larger share of the exposed time, and by how much."""
    found = answers.exposed_axis(digest_of(samples / "tp_2x2"))
    assert found.answer == "y"
    assert found.detail == "54.3 % of the exposed communication"


def test_parts_add_up_to_the_window(samples: Path) -> None:
    """The fractions of the division add up to 1."""
    told = answers.shares(digest_of(samples / "ddp_4").totals)
    assert sum(part for _, _, _, part in told) == pytest.approx(1.0)
