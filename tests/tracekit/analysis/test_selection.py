"""Promises of the selection: which work a question is about, and where it is cut."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import Kineto, collective, run_of
from tracekit.analysis.selection import ALL, Part, Selection, part_of, selection, split_of
from tracekit.core.errors import UsageError
from tracekit.model.run import TraceSet
from tracekit.report.document import document


def reduce(seq: int, **more: Any) -> dict[str, Any]:
    """Arguments of the all-reduces of a run, told apart by number."""
    return collective(elems=1000, seq=seq, **more)


def two_ranks(ahead: int = 1000) -> TraceSet:
    """Two all-reduces 100..150 and 300..350; rank 1 comes at 120 and at 310, its clock ahead."""
    zero, one = Kineto(0, 2), Kineto(1, 2)
    zero.kernel(0, 100).comm(100, 150, **reduce(0)).comm(300, 350, **reduce(1))
    one.kernel(ahead + 10, ahead + 120).comm(ahead + 120, ahead + 150, **reduce(0))
    one.comm(ahead + 310, ahead + 350, **reduce(1))
    return run_of(zero, one)


def spans_us(part: Part) -> list[tuple[float, float]]:
    """Selected work in µs on the rank's own clock."""
    work = part.work
    return [
        (s / 1000, e / 1000) for s, e in zip(work.start.tolist(), work.end.tolist(), strict=True)
    ]


# -- what was asked for -----------------------------------------------------------------------


def test_a_selection_is_whole_nanoseconds() -> None:
    """A range in µs is rounded to whole ns; nothing given is everything."""
    assert selection(None, None) == ALL
    assert selection((3, 5), None) == Selection((3, 5))
    assert selection((4, 4), (0.0005, 1.2344)).range_ns == (0, 1234)
    assert selection(None, (-10, 0.001)) == Selection(None, (-10_000, 1))


@pytest.mark.parametrize(
    ("steps", "range_us", "said"),
    [
        ((5, 4), None, "steps 5:4 end before they start; give FIRST:LAST"),
        (None, (10, 10), "the range 10:10 is empty"),
        (None, (10, 9), "the range 10:9 is empty"),
        (None, (1, 1.0001), "the range 1:1.0001 is empty"),
        (None, (0, float("inf")), "the range 0:inf is not within three years"),
        (None, (float("nan"), 5), "the range nan:5 is not within three years"),
        (None, (-2e14, 5), "the range -2e+14:5 is not within three years"),
    ],
)
def test_a_selection_of_nothing_is_refused(
    steps: tuple[int, int] | None, range_us: tuple[float, float] | None, said: str
) -> None:
    """Empty, turned-around and endless ranges are named, with the form that is wanted."""
    with pytest.raises(UsageError) as caught:
        selection(steps, range_us)
    assert str(caught.value).startswith(said)


# -- everything -------------------------------------------------------------------------------


def test_all_is_all() -> None:
    """Without a choice every piece of work is there, uncut, in order of start."""
    part = part_of(two_ranks(), 1)
    assert spans_us(part) == [(1010, 1120), (1120, 1150), (1310, 1350)]
    assert (part.entry.tolist(), part.step.tolist()) == ([0, 1, 2], [-1, -1, -1])
    assert part.borders is None


# -- steps ------------------------------------------------------------------------------------


def stepped() -> TraceSet:
    """Steps 5, 6 and 7 of 100 µs; work is launched early and runs late."""
    file = Kineto().step(5, 0, 100).step(6, 100, 200).step(7, 200, 300)
    file.kernel(50, 150, launched=10).kernel(160, 170, launched=99)
    file.kernel(180, 400, launched=100)
    file.kernel(500, 510)  # nobody knows its launch
    file.kernel(520, 530, launched=320)  # after the last step
    return run_of(file)


def test_work_belongs_to_the_step_of_its_launch() -> None:
    """A launch at a step's start is inside it, one at its end is in the next."""
    part = part_of(stepped(), 0)
    assert part.steps.label == [5, 6, 7]
    assert part.step.tolist() == [0, 0, 1, -1, -1]


@pytest.mark.parametrize(
    ("first", "last", "entries"), [(5, 5, [0, 1]), (6, 6, [2]), (5, 7, [0, 1, 2]), (7, 9, [])]
)
def test_chosen_steps_are_whole(first: int, last: int, entries: list[int]) -> None:
    """Both ends are included; work keeps its length, and what is in no step is left out."""
    part = part_of(stepped(), 0, Selection((first, last)))
    assert part.entry.tolist() == entries
    assert spans_us(part) == [spans_us(part_of(stepped(), 0))[e] for e in entries]


def test_steps_without_work_are_asked_for_by_number() -> None:
    """Whether a step was asked for does not depend on work in it."""
    part = part_of(stepped(), 0, Selection((6, 9)))
    assert [part.asks_for(at) for at in range(3)] == [False, True, True]
    assert [part_of(stepped(), 0).asks_for(at) for at in range(3)] == [True, True, True]
    # in a range, those whose annotation touches it: 100..200 here
    part = part_of(stepped(), 0, Selection(range_ns=(50_000, 150_000)))
    assert [part.asks_for(at) for at in range(3)] == [False, True, False]


# -- a range ----------------------------------------------------------------------------------


def test_a_range_is_the_same_time_on_every_rank() -> None:
    """A range counts from the earliest start of all ranks, on the corrected clock.

    Rank 1's clock is 1000 µs ahead, so that 110..320 is 1110..1320 on it.
    """
    run = two_ranks()
    chosen = Selection(range_ns=(110_000, 320_000))
    zero, one = part_of(run, 0, chosen), part_of(run, 1, chosen)
    assert spans_us(zero) == [(110, 150), (300, 320)]
    assert spans_us(one) == [(1110, 1120), (1120, 1150), (1310, 1320)]
    for part, low in ((zero, 110_000), (one, 1_110_000)):
        assert part.borders is not None
        assert [b.tolist() for b in part.borders] == [[low], [low + 210_000]]


def test_work_at_a_border_is_outside() -> None:
    """Work that ends where the range starts, or starts where it ends, is no part of it."""
    part = part_of(two_ranks(), 0, Selection(range_ns=(100_000, 300_000)))
    assert spans_us(part) == [(100, 150)]


def test_what_a_range_cuts_is_an_edge() -> None:
    """Communication cut by a range says little: it is an edge, as what began the recording is."""
    run = two_ranks()
    assert part_of(run, 0).split.edge.tolist() == [False, False, False]
    part = part_of(run, 0, Selection(range_ns=(0, 320_000)))
    assert part.split.edge.tolist() == [False, False, True]


def test_the_origin_is_the_first_start_of_all() -> None:
    """The range starts at the earliest work of any rank, be it not the lowest."""
    zero, one = Kineto(0, 2).kernel(500, 600), Kineto(1, 2).kernel(400, 450)
    part = part_of(run_of(zero, one), 0, Selection(range_ns=(100_000, 150_000)))
    assert spans_us(part) == [(500, 550)]


def test_steps_and_range_narrow_together() -> None:
    """With both, work must belong to the steps and lie in the range."""
    part = part_of(stepped(), 0, Selection((5, 5), (10_000, 115_000)))
    # from the first start at 50: 60..165
    assert spans_us(part) == [(60, 150), (160, 165)]


# -- waiting ----------------------------------------------------------------------------------


def test_waiting_ends_when_the_last_rank_comes() -> None:
    """On the rank's own clock: rank 0 waits until 120 and 310, rank 1 not at all."""
    run = two_ranks()
    zero, one = part_of(run, 0).split, part_of(run, 1).split
    assert zero.wait_end.tolist() == [0, 120_000, 310_000]
    assert one.wait_end.tolist() == [1_010_000, 1_120_000, 1_310_000]
    assert zero.moves.tolist() == one.moves.tolist() == [False, True, True]


def test_a_time_base_changes_nothing() -> None:
    """Files with time bases of their own give the same waiting, relative to them."""
    zero, one = Kineto(0, 2, baseTimeNanoseconds=10**18), Kineto(1, 2, baseTimeNanoseconds=10**18)
    for seq, start in enumerate((0, 100, 230)):
        zero.comm(start, start + 50, **reduce(seq))
        one.comm(start + 30, start + 50, **reduce(seq))
    run = run_of(zero, one)
    trace, work = run.work(0)
    assert split_of(run, trace, work).wait_end.tolist() == [30_000, 130_000, 260_000]


def test_without_a_member_the_rest_is_not_known_to_move() -> None:
    """Where a member of the group is missing, what follows the wait may be more waiting."""
    zero, one = Kineto(0, 3), Kineto(1, 3)
    for seq, start in enumerate((0, 100, 230)):
        zero.kernel(start - 10, start)
        one.kernel(start - 10, start)
        zero.comm(start, start + 50, **reduce(seq, ranks=(0, 1, 2)))
        one.comm(start + 30, start + 50, **reduce(seq, ranks=(0, 1, 2)))
    split = part_of(run_of(zero, one), 0).split
    assert split.moves.tolist() == [False] * 6
    assert split.wait_end.tolist()[1::2] == [30_000, 130_000, 260_000]


def test_alone_nothing_is_known_of_waiting() -> None:
    """A single rank's collective has no known wait and no known transfer."""
    split = part_of(run_of(Kineto(0, 2).kernel(0, 5).comm(10, 20, **reduce(0))), 0).split
    assert (split.wait_end.tolist(), split.moves.tolist()) == ([0, 10_000], [False, False])


def test_the_first_work_of_a_member_makes_an_edge() -> None:
    """A collective with which some member's recording begins is an edge on every member."""
    zero, one = Kineto(0, 2).kernel(0, 10), Kineto(1, 2)
    for seq, start in enumerate((10, 100)):
        zero.comm(start, start + 50, **reduce(seq))
        one.comm(start + 30, start + 50, **reduce(seq))
    run = run_of(zero, one)
    assert part_of(run, 0).split.edge.tolist() == [False, True, False]
    assert part_of(run, 1).split.edge.tolist() == [True, False]


# -- in the document --------------------------------------------------------------------------


def test_collectives_of_a_range() -> None:
    """Listed are the collectives of which something lies in the range; cut ones are edges."""
    found = document(two_ranks(), time_range_us=(0, 320))
    assert [(c["seq"], c["edge"]) for c in found["collectives"]] == [(0, False), (1, True)]
    assert [r["edge_comm_us"] for r in found["ranks"]] == [20, 10]
    assert found["stragglers"][0]["num_matched"] == 1


def test_collectives_of_chosen_steps() -> None:
    """Chosen steps leave the collectives that were launched in them, and nothing of no step."""
    file = Kineto(0, 1)
    for step in (1, 2):
        start = 100 * step
        file.step(step, start, start + 100)
        file.comm(start + 20, start + 40, launched=start + 5, **reduce(step, ranks=(0,)))
    found = document(run_of(file.kernel(500, 510)), steps=(2, 2))
    assert [c["seq"] for c in found["collectives"]] == [2]
    assert [s["step"] for s in found["steps"]] == [2]
    assert found["no_step"] == []
