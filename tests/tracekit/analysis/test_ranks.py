"""Promises of one rank's figures: whole, per step, per phase, per group, per operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Kineto, collective, run_of
from tracekit.analysis.ranks import RankFigures, rank_figures
from tracekit.analysis.rows import Row
from tracekit.analysis.selection import ALL, Selection, part_of

FIGURES = (
    "window_us", "compute_us", "comm_us", "overlap_us", "exposed_comm_us", "memory_us",
    "exposed_memory_us", "idle_us",
)  # fmt: skip


def figures(*files: Kineto, rank: int = 0, chosen: Selection = ALL) -> RankFigures:
    """The figures of one rank of a run of these files."""
    run = run_of(*files)
    return rank_figures(run, part_of(run, rank, chosen))


def values(row: Row, *names: str) -> list[Any]:
    """Some values of a row."""
    return [row[name] for name in names or FIGURES]


# -- the whole rank ---------------------------------------------------------------------------


def test_figures_of_a_rank() -> None:
    """Compute 0..60, communication 40..100, a copy 90..120, compute 150..160, in µs."""
    file = (
        Kineto(3, 8, host_name="node7")
        .kernel(0, 60)
        .comm(40, 100)
        .copy(90, 120)
        .kernel(150, 160, stream=9)
    )
    row = figures(file, rank=3).rank
    assert values(row) == [160, 70, 60, 20, 40, 30, 20, 30]
    assert row["overlap_frac"] == pytest.approx(1 / 3)
    who = ("rank", "world_size", "file", "host", "timeline")
    assert values(row, *who) == [3, 8, "rank3.json", "node7", "device"]
    assert values(row, "exposed_wait_us", "exposed_transfer_us", "exposed_unknown_us") == [0, 0, 40]


def test_events_are_counted_by_what_became_of_them() -> None:
    """Read, timed, roles, and what was dropped, clipped or has no launch."""
    file = Kineto().op(0, 500)  # one host row
    file.kernel(0, 10, launched=-5).kernel(20, 30).comm(30, 40, launched=3).copy(40, 50)
    file.kernel(100, 90)  # ends before it starts
    file.kernel(200, 10_000, stream=5).kernel(210, 220, stream=5).kernel(230, 240, stream=5)
    row = figures(file).rank
    assert row["events"] == {
        "read": 11, "timed": 7, "compute": 5, "comm": 1, "memory": 1, "dropped": 1, "clipped": 1,
        "recovered": 0, "unlinked": 5,
    }  # fmt: skip
    # the absurd end is cut at the next start: 200..210
    assert values(row, "window_us", "compute_us") == [240, 50]


def test_without_communication_there_is_no_overlap_fraction() -> None:
    """0 of 0 is not known; it is neither 0 nor NaN."""
    assert figures(Kineto().kernel(0, 10)).rank["overlap_frac"] is None


def test_a_clock_that_cannot_be_compared_is_unknown() -> None:
    """The lowest rank's clock is 0 by definition; one that shares nothing with it is unknown."""
    files = Kineto(0, 2).kernel(0, 10), Kineto(1, 2).kernel(0, 10)
    assert values(figures(*files).rank, "clock_offset_us", "clock_spread_us") == [0, 0]
    row = figures(*files, rank=1).rank
    assert values(row, "clock_offset_us", "clock_spread_us") == [None, None]


def test_communication_the_device_does_not_record() -> None:
    """Host rows of collectives beside a silent device: what needs both is unknown, never 0."""
    file = Kineto().kernel(0, 40, cat="kernel").copy(50, 60)
    file.event(20, 80, "oneccl:allreduce", "collective_comm", tid=3)
    row = figures(file).rank
    assert values(row) == [60, 40, None, None, None, 10, 10, None]
    assert values(row, "host_comm_us", "overlap_frac") == [60, None]
    assert values(row, "exposed_wait_us", "exposed_unknown_us", "edge_comm_us") == [None] * 3
    assert figures(file).groups == figures(file).operations == []


# -- steps ------------------------------------------------------------------------------------


def three_steps() -> Kineto:
    """Steps 4, 5 and 7, launched on the host in 0..300; their work runs later."""
    file = Kineto().step(4, 0, 100).step(5, 100, 190).step(7, 200, 300)
    file.kernel(50, 150, launched=10).comm(140, 170, launched=20)
    file.kernel(190, 240, launched=110).comm(200, 260, launched=120)
    file.kernel(400, 450, launched=210)
    return file


def test_figures_of_steps() -> None:
    """A step's window is that of its own work; its length on the host stands beside it."""
    found = figures(three_steps()).steps
    assert values(found[0]) == [120, 100, 30, 10, 20, 0, 0, 0]
    assert values(found[1]) == [70, 50, 60, 40, 20, 0, 0, 0]
    assert values(found[2]) == [50, 50, 0, 0, 0, 0, 0, 0]
    assert [values(s, "step", "host_us", "num_work") for s in found] == [
        [4, 100, 2], [5, 90, 2], [7, 100, 1],
    ]  # fmt: skip


def test_lead_and_period_refer_to_the_step_before() -> None:
    """Step 5 starts 20 after step 4's work ended; after a missing number nothing is known."""
    found = figures(three_steps()).steps
    assert [values(s, "lead_us", "period_us") for s in found] == [
        [None, None], [20, 90], [None, None],
    ]  # fmt: skip


def test_lead_is_negative_where_steps_overlap() -> None:
    """Work of a step that begins before the last one is done leads it; periods still add up."""
    file = Kineto().step(0, 0, 10).step(1, 10, 20).step(2, 20, 30)
    file.kernel(0, 100, launched=1).kernel(80, 180, launched=11, stream=8)
    file.kernel(200, 300, launched=21)
    found = figures(file).steps
    assert [values(s, "lead_us", "period_us") for s in found] == [
        [None, None], [-20, 80], [20, 120],
    ]  # fmt: skip
    # from the first step's end to the last one's
    assert sum(s["period_us"] for s in found[1:]) == 300 - 100


def test_a_step_without_work_is_listed_empty() -> None:
    """Of a step whose work was cut off only the annotation is known; the next has no lead."""
    file = Kineto().step(0, 0, 10).step(1, 10, 40).step(2, 40, 50).step(3, 50, 70)
    file.kernel(5, 8, launched=1).kernel(45, 55, launched=41)
    found = figures(file).steps
    assert [values(s, "step", "num_work", "host_us") for s in found] == [
        [0, 1, 10], [1, 0, 30], [2, 1, 10], [3, 0, 20],
    ]  # fmt: skip
    assert values(found[1], *FIGURES, "overlap_frac", "lead_us", "period_us") == [None] * 11
    assert {**found[1], "step": 3, "host_us": 20} == found[3]
    assert found[0].keys() == found[1].keys()
    assert values(found[2], "lead_us", "period_us") == [None, None]


def test_only_chosen_steps_are_listed() -> None:
    """With a choice of steps those are listed, be they empty; their figures are unchanged."""
    file = three_steps().step(8, 300, 310)
    every = figures(file).steps
    found = figures(file, chosen=Selection((5, 8)))
    assert found.steps == [
        {**every[1], "lead_us": None, "period_us": None}, every[2], every[3],
    ]  # fmt: skip
    assert values(found.steps[2], "step", "num_work") == [8, 0]
    # the rank's own figures are those of the chosen work
    assert values(found.rank) == [260, 100, 60, 40, 20, 0, 0, 140]


def test_work_of_no_step_is_listed_as_such() -> None:
    """Launched outside all steps, or by nobody knows what: figures of their own."""
    file = three_steps().kernel(500, 510, launched=195).comm(520, 530)
    found = figures(file).no_step
    assert [values(row) for row in found] == [[30, 10, 10, 0, 10, 0, 0, 10]]
    assert found[0]["num_work"] == 2
    assert figures(three_steps()).no_step == []


def test_without_steps_there_is_no_work_of_no_step() -> None:
    """A trace without annotations is one window, and nothing is listed as outside."""
    found = figures(Kineto().kernel(0, 10))
    assert (found.steps, found.no_step) == ([], [])


def test_idle_time_of_a_step_may_be_used_by_others() -> None:
    """What one step leaves idle another may fill; that part is told apart."""
    file = Kineto().step(0, 0, 10).step(1, 10, 20)
    file.kernel(0, 20, launched=1).kernel(100, 120, launched=2)
    file.kernel(30, 60, launched=11)
    first = figures(file).steps[0]
    assert values(first, "window_us", "idle_us", "other_us") == [120, 80, 30]


# -- phases -----------------------------------------------------------------------------------


def test_phases_are_sums_over_their_spans() -> None:
    """Work belongs to the innermost phase that launched it; the spans of a phase add up."""
    file = Kineto().mark(0, 10, "forward").mark(10, 30, "backward")
    file.mark(100, 110, "forward").mark(110, 130, "backward")
    file.mark(130, 140, "Optimizer.step#SGD.step").mark(0, 140, "something else")
    file.kernel(5, 15, launched=1).kernel(20, 25, launched=2)
    file.kernel(30, 40, launched=12).comm(35, 60, launched=14)
    file.kernel(105, 120, launched=101)
    file.kernel(120, 160, launched=111)
    file.kernel(200, 210, launched=135).kernel(300, 310, launched=139)
    file.kernel(500, 510, launched=145)  # after all of them
    found = figures(file).phases
    assert [values(p, "phase", "num_spans") for p in found] == [
        ["forward", 2], ["backward", 2], ["optimizer", 1],
    ]  # fmt: skip
    assert values(found[0]) == [35, 30, 0, 0, 0, 0, 0, 5]
    assert values(found[1]) == [70, 50, 25, 5, 20, 0, 0, 0]
    assert values(found[2]) == [110, 20, 0, 0, 0, 0, 0, 90]
    assert found[1]["overlap_frac"] == pytest.approx(0.2)


def test_no_phases_without_annotations() -> None:
    """Without annotations of phases there are none."""
    assert figures(three_steps()).phases == []


# -- groups and operations --------------------------------------------------------------------


def mesh() -> Kineto:
    """Tensor-parallel all-reduces and data-parallel gathers and scatters that overlap them.

    tp 0..40, dp 20..100 (gather) and 100..120 (scatter), compute 90..110.
    """
    tp = {"group": "1", "desc": "mesh_tp", "ranks": (0, 1), "elems": 8}
    dp = {"group": "2", "desc": "mesh_dp", "ranks": (0, 2), "elems": 8}
    file = Kineto(0, 4)
    file.comm(0, 40, ALL_REDUCE, **collective("allreduce", **tp))
    file.comm(20, 100, ALL_GATHER, stream=21, **collective("_allgather_base", out_elems=16, **dp))
    file.comm(
        100, 120, REDUCE_SCATTER, stream=21, **collective("_reduce_scatter_base", out_elems=4, **dp)
    )
    return file.kernel(90, 110)


SHARES = ("comm_us", "overlap_us", "exposed_comm_us", "exposed_share_us")


def test_groups_with_their_shares() -> None:
    """Groups by first appearance; 20..40 is shared, so that shares add up to the exposed time."""
    found = figures(mesh())
    assert [values(g, *SHARES) for g in found.groups] == [[40, 0, 40, 30], [100, 20, 80, 70]]
    assert sum(g["exposed_share_us"] for g in found.groups) == found.rank["exposed_comm_us"] == 100
    assert [values(g, "group", "desc", "axis", "size", "ranks", "rank") for g in found.groups] == [
        ["1", "mesh_tp", "tp", 2, [0, 1], 0],
        ["2", "mesh_dp", "dp", 2, [0, 2], 0],
    ]


def test_operations_with_their_shares() -> None:
    """The same by operation, whatever the group."""
    found = figures(mesh()).operations
    assert [values(o, "rank", "op", *SHARES) for o in found] == [
        [0, "all_reduce", 40, 0, 40, 30],
        [0, "all_gather", 80, 10, 70, 60],
        [0, "reduce_scatter", 20, 10, 10, 10],
    ]


def test_groups_of_one_name_are_told_apart_by_their_ranks() -> None:
    """Neither name nor ranks alone are a group: all three of these are groups of their own."""
    file = Kineto(0, 4)
    for at, (name, ranks) in enumerate((("0", (0, 1)), ("0", (0, 1, 2, 3)), ("7", (0, 1)))):
        file.comm(at * 100, at * 100 + 50, **collective(elems=4, group=name, ranks=ranks))
    found = figures(file).groups
    assert [values(g, "group", "ranks", "comm_us") for g in found] == [
        ["0", [0, 1], 50], ["0", [0, 1, 2, 3], 50], ["7", [0, 1], 50],
    ]  # fmt: skip


def test_shares_of_a_selection() -> None:
    """In a range shares are of the cut work; a group with nothing in it is not listed."""
    found = figures(mesh(), chosen=Selection(range_ns=(50_000, 105_000)))
    assert [values(g, "group", *SHARES) for g in found.groups] == [["2", 55, 15, 40, 40]]
    assert [values(o, "op", "comm_us") for o in found.operations] == [
        ["all_gather", 50], ["reduce_scatter", 5],
    ]  # fmt: skip


def test_no_communication_has_no_groups() -> None:
    """Without communication there are neither groups nor operations."""
    found = figures(Kineto().kernel(0, 10))
    assert (found.groups, found.operations) == ([], [])
