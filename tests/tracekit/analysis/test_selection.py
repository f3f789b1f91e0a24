"""Choosing steps or a time: what stays, what is cut, and choices that are none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import Kineto, collective, run_of
from tracekit.analysis.selection import ALL, Selection, selection
from tracekit.core.errors import UsageError
from tracekit.report.document import document


def two_ranks(ahead: int = 0) -> tuple[Kineto, Kineto]:
    """Two ranks of three all-reduces; the second one's clock is ahead by so many µs."""
    files = []
    for rank, shift in ((0, 0), (1, ahead)):
        file = Kineto(rank, 2).kernel(100 + shift, 150 + shift)
        for seq in (1, 2, 3):
            at = 100 * seq + 100 + shift
            file.kernel(at, at + 50, stream=8).comm(
                at + 40, at + 90, **collective(elems=4, seq=seq)
            )
        files.append(file)
    return files[0], files[1]


def figures(document_: dict[str, Any]) -> list[tuple[float, ...]]:
    """Window, compute, communication and overlap of each rank."""
    names = ("window_us", "compute_us", "comm_us", "overlap_us")
    return [tuple(row[n] for n in names) for row in document_["ranks"]]


def test_a_range_is_cut_on_the_corrected_clock() -> None:
    """The same range means the same time on every rank, whatever its clock says."""
    for ahead in (0, 77_000):
        found = document(run_of(*two_ranks(ahead)), time_range_us=(120.0, 180.0))
        # from the first start: kernel 100..150, communication 140..190
        assert figures(found) == [(60.0, 30.0, 40.0, 10.0)] * 2


def test_collectives_of_a_range() -> None:
    """Listed are the collectives of which something lies in the range; cut ones are edges."""
    found = document(run_of(*two_ranks()), time_range_us=(120.0, 345.0))
    assert [(c["seq"], c["edge"]) for c in found["collectives"]] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert found["ranks"][0]["edge_comm_us"] == 5.0
    assert found["stragglers"][0]["num_matched"] == 2


def test_collectives_of_chosen_steps() -> None:
    """Chosen steps leave the collectives that were launched in them."""
    file = Kineto(0, 1)
    for step in (1, 2):
        file.step(step, 100 * step, 100 * step + 100)
        file.comm(100 * step + 20, 100 * step + 40, launched=100 * step + 5, **collective(seq=step))
    found = document(run_of(file), steps=(2, 2))
    assert [c["seq"] for c in found["collectives"]] == [2]
    assert [s["step"] for s in found["steps"]] == [2]
    assert found["no_step"] == []


def test_steps_and_a_range_together() -> None:
    """Both choices hold at once: only work of the steps, cut at the borders."""
    file = Kineto(0, 1).step(1, 0, 50).step(2, 50, 100)
    file.kernel(10, 60, launched=5).kernel(70, 90, launched=55)
    found = document(run_of(file), steps=(1, 1), time_range_us=(30.0, 70.0))
    assert figures(found) == [(40.0, 20.0, 0.0, 0.0)]


def test_empty_steps_of_a_selection() -> None:
    """Of steps without work only those asked for are listed."""
    file = (
        Kineto(0, 1).step(1, 0, 50).step(2, 50, 100).step(3, 100, 150).kernel(60, 70, launched=55)
    )
    run = run_of(file)
    assert [s["step"] for s in document(run, steps=(2, 3))["steps"]] == [2, 3]
    assert [s["step"] for s in document(run)["steps"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("steps", "time_range", "chosen"),
    [
        (None, None, ALL),
        ((5, 8), None, Selection(steps=(5, 8))),
        ((5, 5), (0.0, 0.001), Selection((5, 5), (0, 1))),
        (None, (-1.5, 2.0004), Selection(range_ns=(-1500, 2000))),
    ],
)
def test_what_was_given_becomes_a_selection(
    steps: tuple[int, int] | None, time_range: tuple[float, float] | None, chosen: Selection
) -> None:
    """Steps stay as given, times become whole nanoseconds."""
    assert selection(steps, time_range) == chosen


@pytest.mark.parametrize(
    ("steps", "time_range", "words"),
    [
        ((8, 5), None, "steps 8:5 end before they start"),
        (None, (5.0, 5.0), "the range 5:5 is empty"),
        (None, (6.0, 5.0), "the range 6:5 is empty"),
        (None, (1.0, 1.0004), "is empty"),
        (None, (0.0, float("inf")), "not within three years"),
        (None, (float("nan"), 5.0), "not within three years"),
        (None, (-1e300, 5.0), "not within three years"),
    ],
)
def test_choices_that_are_none(
    steps: tuple[int, int] | None, time_range: tuple[float, float] | None, words: str
) -> None:
    """A choice that is turned around, empty or beyond reason is refused in one line."""
    with pytest.raises(UsageError, match=words):
        selection(steps, time_range)
