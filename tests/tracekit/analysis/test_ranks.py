"""Figures of a rank's steps, phases and groups, and what stands where nothing is known."""

from __future__ import annotations

from typing import Any

from tests.builder import ALL_GATHER, Kineto, collective, run_of
from tracekit.report.document import document


def rows_of(kind: str, *files: Kineto, **chosen: Any) -> list[dict[str, Any]]:
    """The rows of one kind of a run's document."""
    found: list[dict[str, Any]] = document(run_of(*files), **chosen)[kind]
    return found


def picked(rows: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    """Some columns of some rows."""
    return [tuple(row[key] for key in keys) for row in rows]


def three_steps() -> Kineto:
    """Steps 3, 4 and 6; the device runs behind the host, step 5 is missing."""
    file = Kineto(0, 1).step(3, 0, 100).step(4, 100, 200).step(6, 300, 400)
    file.kernel(50, 90, launched=10).kernel(90, 120, launched=60)
    file.kernel(150, 180, launched=110).kernel(170, 260, stream=8, launched=150)
    return file.kernel(250, 300, stream=9, launched=310).kernel(500, 510)


# -- steps ------------------------------------------------------------------------------------


def test_a_step_has_its_own_window() -> None:
    """A step's figures are over its own work; its host length is beside them."""
    rows = rows_of("steps", three_steps())
    assert picked(rows, "step", "window_us", "compute_us", "idle_us", "host_us", "num_work") == [
        (3, 70.0, 70.0, 0.0, 100.0, 2), (4, 110.0, 110.0, 0.0, 100.0, 2), (6, 50.0, 50.0, 0.0, 100.0, 1),
    ]  # fmt: skip


def test_lead_and_period_of_consecutive_steps() -> None:
    """Lead is the gap to the step before, period the window and the lead; a gap breaks both."""
    rows = rows_of("steps", three_steps())
    assert picked(rows, "lead_us", "period_us") == [(None, None), (30.0, 140.0), (None, None)]


def test_lead_is_negative_where_steps_overlap() -> None:
    """A step whose work begins before the last of the one before has a negative lead."""
    file = Kineto(0, 1).step(1, 0, 50).step(2, 50, 100)
    file.kernel(60, 120, launched=10).kernel(100, 150, stream=8, launched=60)
    assert picked(rows_of("steps", file), "lead_us", "period_us") == [(None, None), (-20.0, 30.0)]


def test_steps_without_work_are_listed_empty() -> None:
    """A step whose work was cut off is listed with its host length and no figures, first or last."""
    file = Kineto(0, 1).step(0, 0, 100).step(1, 100, 200).step(2, 200, 300).step(3, 300, 310)
    file.kernel(150, 190, launched=110).kernel(250, 260, launched=210)
    rows = rows_of("steps", file)
    assert picked(rows, "step", "window_us", "host_us", "num_work", "lead_us") == [
        (0, None, 100.0, 0, None), (1, 40.0, 100.0, 1, None), (2, 10.0, 100.0, 1, 60.0),
        (3, None, 10.0, 0, None),
    ]  # fmt: skip
    notes = [n["text"] for n in document(run_of(file))["notes"] if n["code"] == "empty-steps"]
    assert len(notes) == 1
    assert "0, 3" in notes[0]


def test_missing_numbers_and_work_of_no_step() -> None:
    """Numbers no rank has are listed, and so is the work that belongs to no step."""
    found = document(run_of(three_steps()))
    assert found["missing_steps"] == [5]
    assert picked(found["no_step"], "rank", "window_us", "compute_us", "num_work") == [
        (0, 10.0, 10.0, 1)
    ]


def test_a_trace_without_steps_is_one_window() -> None:
    """Without steps there are no step rows, nothing is of no step, and a note says so."""
    found = document(run_of(Kineto(0, 1).kernel(0, 70).comm(60, 100)))
    assert (found["steps"], found["no_step"], found["missing_steps"]) == ([], [], [])
    assert "no-steps" in [n["code"] for n in found["notes"]]


def test_idle_time_of_a_step_in_which_other_work_runs() -> None:
    """What is idle in a step's window but busy with other work is told."""
    file = Kineto(0, 1).step(1, 0, 50).kernel(10, 20, launched=5).kernel(90, 100, launched=6)
    file.kernel(30, 70, stream=8)
    (row,) = rows_of("steps", file)
    assert (row["idle_us"], row["other_us"]) == (70.0, 40.0)


# -- phases -----------------------------------------------------------------------------------


def test_phases_are_summed_over_their_spans() -> None:
    """A phase's figures are the sums over all of its spans, with their number."""
    file = Kineto(0, 1)
    for at in (0, 100):
        file.mark(at, at + 40, "forward").mark(at + 40, at + 90, "backward")
        file.kernel(at + 10, at + 30, launched=at + 5)
        file.kernel(at + 50, at + 60, launched=at + 45).kernel(at + 70, at + 80, launched=at + 46)
    assert picked(rows_of("phases", file), "phase", "num_spans", "window_us", "compute_us", "idle_us") == [
        ("forward", 2, 40.0, 40.0, 0.0), ("backward", 2, 60.0, 40.0, 20.0),
    ]  # fmt: skip


# -- groups and operations ----------------------------------------------------------------------


def two_groups() -> Kineto:
    """Two groups that communicate 0..100 and 50..150; compute from 120 to 200."""
    file = Kineto(0, 4).comm(
        0, 100, stream=20, **collective(group="1", desc="mesh_tp", ranks=(0, 1))
    )
    about = collective("_allgather_base", group="2", desc="data", ranks=(0, 2))
    return file.comm(50, 150, ALL_GATHER, stream=21, **about).kernel(120, 200)


def test_groups_are_told_apart() -> None:
    """Each group has its own figures and its share of the exposed time; shares add up."""
    found = document(run_of(two_groups()))
    columns = (
        "group",
        "desc",
        "axis",
        "size",
        "ranks",
        "rank",
        "comm_us",
        "overlap_us",
        "exposed_comm_us",
    )
    assert picked(found["groups"], *columns) == [
        ("1", "mesh_tp", "tp", 2, [0, 1], 0, 100.0, 0.0, 100.0),
        ("2", "data", "data", 2, [0, 2], 0, 100.0, 30.0, 70.0),
    ]  # fmt: skip
    assert [g["exposed_share_us"] for g in found["groups"]] == [75.0, 45.0]
    (rank,) = found["ranks"]
    assert (rank["comm_us"], rank["exposed_comm_us"]) == (150.0, 120.0)


def test_groups_in_a_range_are_cut() -> None:
    """In a chosen range the figures of groups are cut like all others, and still add up."""
    found = document(run_of(two_groups()), time_range_us=(90.0, 140.0))
    assert picked(found["groups"], "group", "comm_us", "exposed_comm_us", "exposed_share_us") == [
        ("1", 10.0, 10.0, 5.0), ("2", 50.0, 30.0, 25.0),
    ]  # fmt: skip
    assert found["ranks"][0]["exposed_comm_us"] == 30.0


def test_operations_share_the_time_like_groups() -> None:
    """The exposed time is also divided among kinds of operations, of all groups together."""
    file = two_groups().comm(150, 160, **collective(group="3", ranks=(0, 3)))
    rows = rows_of("operations", file)
    assert picked(rows, "rank", "op", "comm_us", "exposed_comm_us", "exposed_share_us") == [
        (0, "all_reduce", 110.0, 100.0, 75.0), (0, "all_gather", 100.0, 70.0, 45.0),
    ]  # fmt: skip


# -- what is not known ------------------------------------------------------------------------


def test_communication_recorded_on_the_host_alone() -> None:
    """Where the device records no communication, what needs it is null and the host's is given."""
    file = Kineto(0, 2).event(0, 40, "gemm", "kernel", pid=0, tid=3)
    file.event(20, 80, "oneccl::allreduce", "collective_comm", tid=5)
    found = document(run_of(file))
    (row,) = found["ranks"]
    assert (row["compute_us"], row["host_comm_us"], row["window_us"]) == (40.0, 60.0, 40.0)
    for name in ("comm", "overlap", "exposed_comm", "idle", "exposed_wait", "edge_comm"):
        assert row[f"{name}_us"] is None
    assert row["overlap_frac"] is None
    assert found["groups"] == []
    assert found["totals"]["comm_us"] is None
    assert "host-comm-only" in [n["code"] for n in found["notes"]]


def test_no_communication_is_zero_and_has_no_fraction() -> None:
    """Without communication its time is 0 and the overlap does not apply."""
    (row,) = rows_of("ranks", Kineto(0, 1).kernel(0, 30).kernel(50, 60))
    assert (row["comm_us"], row["overlap_us"], row["idle_us"]) == (0.0, 0.0, 20.0)
    assert row["overlap_frac"] is None
    assert row["host_comm_us"] is None


def test_a_rank_says_who_it_is() -> None:
    """A rank's row names its file, its job and its timeline, and counts its events."""
    file = Kineto(3, 8, host_name="node7").kernel(10, 20, launched=5).comm(20, 30).copy(30, 40)
    file.kernel(50, 45).op(1, 9)
    (row,) = rows_of("ranks", file)
    keys = ("rank", "world_size", "file", "host", "pid", "timeline")
    assert picked([row], *keys) == [(3, 8, "rank3.json", "node7", 4242, "device")]
    assert row["events"] == {
        "read": 6, "timed": 3, "compute": 1, "comm": 1, "memory": 1, "dropped": 1, "clipped": 0,
        "recovered": 0, "unlinked": 2,
    }  # fmt: skip


def test_totals_are_unknown_where_a_part_is() -> None:
    """The sum over ranks is null for a figure that one of them does not know."""
    known = Kineto(1, 2).kernel(0, 10).comm(10, 20)
    apart = Kineto(0, 2).event(0, 40, "gemm", "kernel", pid=0, tid=3)
    apart.event(20, 80, "oneccl::allreduce", "collective_comm", tid=5)
    totals = document(run_of(apart, known))["totals"]
    assert (totals["compute_us"], totals["comm_us"]) == (50.0, None)
