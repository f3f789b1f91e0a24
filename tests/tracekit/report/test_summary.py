"""Promises of the figures that the text report condenses from the document."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.report import summary


def collective(**changes: Any) -> dict[str, Any]:
    """A matched all-reduce of 1 MB on axis x."""
    row = {
        "op": "all_reduce",
        "group": "0",
        "axis": "x",
        "bytes": 1_000_000,
        "wait_us": {"0": 10.0, "1": 0.0},
        "duration_us": {"0": 110.0, "1": 100.0},
        "transfer_us": 100.0,
        "busbw_GBps": 10.0,
        "match": "seq",
        "edge": False,
    }
    return row | changes


def test_medians_leave_out_edge_collectives() -> None:
    """Edge collectives are counted but have no part in a median."""
    rows = [
        collective(transfer_us=100.0),
        collective(transfer_us=300.0, wait_us={"0": 0.0, "1": 50.0}, busbw_GBps=4.0),
        collective(transfer_us=9e6, wait_us={"0": 17e6}, busbw_GBps=1e-4, edge=True),
    ]
    (kind,) = summary.collectives(rows)
    assert (kind.count, kind.num_edge) == (3, 1)
    assert kind.transfer_us == 200.0
    assert kind.wait_us == 30.0  # longest waits 10 and 50
    assert kind.busbw_GBps == 7.0


def test_unknown_transfers_are_left_out_of_the_median() -> None:
    """A single event without a partner does not count as a transfer of 0."""
    rows = [
        collective(),
        collective(transfer_us=None, wait_us={}, busbw_GBps=None, match="single"),
    ]
    (kind,) = summary.collectives(rows)
    assert (kind.transfer_us, kind.wait_us, kind.num_single) == (100.0, 10.0, 1)
    assert not kind.is_bound


def test_incomplete_collectives_have_no_part_in_a_median_beside_complete_ones() -> None:
    """Where ranks are missing, transfer and wait are not the collective's: only counted."""
    rows = [
        collective(),
        collective(transfer_us=300.0, wait_us={"0": 50.0}, busbw_GBps=4.0),
        collective(
            transfer_us=9e6, wait_us={"0": 1.0}, busbw_GBps=1e-4, duration_us={}, complete=False
        ),
        collective(transfer_us=None, wait_us=None, busbw_GBps=1e-4, match="single"),
    ]
    (kind,) = summary.collectives(rows)
    assert (kind.count, kind.num_partial, kind.is_bound) == (4, 2, False)
    assert (kind.transfer_us, kind.wait_us, kind.busbw_GBps) == (200.0, 30.0, 7.0)
    assert kind.duration_us == 110.0


def test_incomplete_collectives_alone_give_bounds() -> None:
    """With no complete one the transfer is not known; wait and bandwidth are lower bounds."""
    rows = [
        collective(complete=False, wait_us={"0": 10.0}, busbw_GBps=2.0),
        collective(complete=False, wait_us={"1": 30.0}, busbw_GBps=4.0),
        collective(edge=True, busbw_GBps=100.0),
    ]
    (kind,) = summary.collectives(rows)
    assert (kind.is_bound, kind.num_partial, kind.num_edge) == (True, 0, 1)
    assert (kind.transfer_us, kind.wait_us, kind.busbw_GBps) == (None, 20.0, 3.0)


def test_edge_collectives_alone_give_nothing() -> None:
    """Where every collective is cut by the window's edge, nothing is told of their kind."""
    (kind,) = summary.collectives([collective(edge=True, complete=False)])
    assert (kind.is_bound, kind.wait_us, kind.busbw_GBps) == (False, None, None)


@pytest.mark.parametrize(
    ("figures", "idle_us", "other_us"),
    [
        ({"idle_us": 10.0, "other_us": 4.0}, 6.0, 4.0),
        ({"idle_us": 10.0, "other_us": None}, 10.0, 0.0),
        ({"idle_us": 10.0}, 10.0, 0.0),
        ({"idle_us": None, "other_us": None}, None, 0.0),
        ({"idle_us": 0.3, "other_us": 0.1 + 0.2}, 0.0, 0.1 + 0.2),
    ],
)
def test_idle_time_is_without_other_work(
    figures: dict[str, float | None], idle_us: float | None, other_us: float
) -> None:
    """Idle and other work are told apart and add up to the document's idle time."""
    found = summary.divided(figures)
    assert (found["idle_us"], found["other_us"]) == (idle_us, other_us)
    assert summary.has_other([figures]) == (other_us > 0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["/runs/a/r0.json"], "/runs/a/r0.json"),
        (["/runs/a/r0.json", "/runs/a/r1.json"], "/runs/a"),
        (["../a.zip!r0.json", "../a.zip!r1.json"], "../a.zip"),
        (["a.ZIP!x/r0.json", "a.ZIP!y!/r1.json"], "a.ZIP"),
        (["/runs/a.zip!r0.json", "/runs/b.zip!r1.json"], "/runs"),
        (["/runs/a.zip!r0.json", "/runs/r1.json"], "/runs"),
        (["/runs/wow!/r0.json", "/runs/wow!/r1.json"], "/runs/wow!"),
        (["/runs/r0.json", "r1.json"], ""),
        ([], ""),
    ],
)
def test_what_holds_all_files_is_named(files: list[str], expected: str) -> None:
    """The one file, the archive of all members, or the folder of all files."""
    assert summary.where(files) == expected


def test_kinds_are_told_apart_by_operation_axis_and_size() -> None:
    """Unknown sizes form a kind of their own; the kind with the most time comes first."""
    rows = [
        collective(),
        collective(bytes=None, duration_us={}),
        collective(axis="data", duration_us={"0": 900.0}),
        collective(op="all_gather", duration_us={"0": 50.0}),
    ]
    kinds = [(k.op, k.label, k.num_bytes) for k in summary.collectives(rows)]
    assert kinds == [
        ("all_reduce", "data", 1_000_000),
        ("all_reduce", "x", 1_000_000),
        ("all_gather", "x", 1_000_000),
        ("all_reduce", "x", None),
    ]


def test_collectives_are_named_after_axis_description_or_group() -> None:
    """A bare number, as torch names groups, is said to be a group."""
    rows = [
        collective(desc="mesh_tp"),
        collective(axis=None, desc="mesh_tp"),
        collective(axis=None, desc="undefined", group="13"),
        collective(axis=None, group="ep"),
        collective(axis=None, group=None),
    ]
    labels = [k.label for k in summary.collectives(rows)]
    assert labels == ["", "ep", "group 13", "mesh_tp", "x"]


def test_duration_is_that_of_the_longest_member() -> None:
    """For events without a partner the own duration is all there is."""
    rows = [
        collective(duration_us={"0": 5.0, "1": 7.0}),
        collective(duration_us={"1": 3.0}),
        collective(duration_us={"1": 9000.0}, edge=True),
    ]
    (kind,) = summary.collectives(rows)
    assert (kind.duration_us, kind.total_us) == (5.0, 10.0)


def test_groups_of_one_axis_are_summed() -> None:
    """An axis gathers its groups and ranks; the axis with the most exposed time leads."""
    row = {"desc": "", "size": 2, "comm_us": 10.0, "exposed_share_us": 1.0}
    rows = [
        row | {"axis": "x", "group": "1", "ranks": [0, 1]},
        row | {"axis": "x", "group": "2", "ranks": [2, 3]},
        row | {"axis": "data", "group": "3", "ranks": [0, 2], "exposed_share_us": 5.0},
    ]
    found = summary.groups(rows, ("comm_us", "exposed_share_us"))
    assert [(g.label, g.num_groups, g.sums["comm_us"]) for g in found] == [
        ("data", 1, 10.0),
        ("x", 2, 20.0),
    ]


def test_group_without_any_name_is_unnamed() -> None:
    """A group torch left undefined gets an empty label, not the word undefined."""
    row = {"axis": None, "desc": "undefined", "group": "", "size": None, "comm_us": None}
    (found,) = summary.groups([row], ("comm_us",))
    assert (found.label, found.sizes, found.sums) == ("", (), {"comm_us": None})


def test_means_are_over_the_ranks_that_know_the_figure() -> None:
    """A step's mean leaves out ranks that do not know the figure; the slowest rank is named."""
    rows = [
        {"step": 6, "rank": 0, "window_us": 10.0, "lead_us": None},
        {"step": 6, "rank": 1, "window_us": 30.0, "lead_us": 4.0},
        {"step": 5, "rank": 0, "window_us": 8.0, "lead_us": None},
    ]
    six, five = summary.means(rows, "step", ("window_us", "lead_us"))
    assert (five.of, five.mean_us) == (5, {"window_us": 8.0, "lead_us": None})
    assert six.mean_us == {"window_us": 20.0, "lead_us": 4.0}
    assert (six.slowest_rank, six.slowest_us, six.num_ranks) == (1, 30.0, 2)


def test_spread_names_where_the_extremes_are() -> None:
    """Ranks without the figure are left out of least, median and most."""
    rows = [{"rank": r, "idle_us": v} for r, v in enumerate([5.0, None, 1.0, 9.0])]
    found = summary.spread(rows, "idle_us", "rank")
    assert (found.low, found.low_at, found.middle) == (1.0, 2, 5.0)
    assert (found.high, found.high_at) == (9.0, 3)


def test_spread_of_nothing_is_unknown() -> None:
    """A figure no rank has gives no spread instead of an error."""
    assert summary.spread([{"rank": 0, "idle_us": None}], "idle_us", "rank").middle is None


def test_notes_are_grouped_errors_first() -> None:
    """Errors lead, then the code with the most notes; each group keeps its first text."""
    rows = [
        {"code": "a", "severity": "warning", "text": "one", "file": "f"},
        {"code": "b", "severity": "warning", "text": "two", "file": "g"},
        {"code": "b", "severity": "warning", "text": "three", "file": "h"},
        {"code": "i", "severity": "info", "text": "four", "file": ""},
        {"code": "e", "severity": "error", "text": "five", "file": ""},
    ]
    found = [(g.code, g.count, g.text) for g in summary.notes(rows)]
    assert found == [("e", 1, "five"), ("b", 2, "two"), ("a", 1, "one"), ("i", 1, "four")]
