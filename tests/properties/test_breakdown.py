"""All figures of random small runs against an oracle that asks every nanosecond in turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import run_of
from tests.properties.oracle import Plan, count, judge, plans, share, step_of
from tracekit.core.errors import UsageError
from tracekit.report.document import document

FIGURES = (
    "window", "compute", "comm", "overlap", "exposed_comm", "memory", "exposed_memory", "idle",
    "exposed_wait", "exposed_transfer", "exposed_unknown", "edge_comm", "other",
)  # fmt: skip


def analyse(plan: Plan, **chosen: Any) -> dict[str, Any]:
    """The document of a run, after which the oracle knows its clocks."""
    found = document(run_of(*plan.files()), **chosen)
    offsets = {}
    for row in found["ranks"]:
        offsets[row["rank"]] = ahead_ns(row) // plan.unit_ns
    judge(plan, offsets)
    return found


def ahead_ns(row: dict[str, Any]) -> int:
    """What is taken off a rank's times: its clock's offset where that exceeds its spread."""
    if row["clock_offset_us"] is None or abs(row["clock_offset_us"]) <= row["clock_spread_us"]:
        return 0
    return ns(row["clock_offset_us"])


def ns(us: float) -> int:
    """Whole ns of a figure in µs; exact for figures below 100 days."""
    return round(us * 1000)


def figures(row: dict[str, Any], plan: Plan, names: tuple[str, ...] = FIGURES) -> dict[str, int]:
    """The figures of a row in units."""
    found = {name: ns(row[f"{name}_us"]) for name in names}
    assert all(value % plan.unit_ns == 0 for value in found.values())
    return {name: value // plan.unit_ns for name, value in found.items()}


@given(plans())
@settings(max_examples=120)
def test_every_figure_is_its_number_of_nanoseconds(plan: Plan) -> None:
    """Each figure of each rank is the number of nanoseconds that have the property."""
    found = analyse(plan)
    for own, row in zip(plan.ranks, found["ranks"], strict=True):
        assert figures(row, plan) == count(own.events), own
        comm = row["comm_us"]
        assert row["overlap_frac"] == (row["overlap_us"] / comm if comm else None)


@given(plans())
@settings(max_examples=100)
def test_every_figure_of_every_step(plan: Plan) -> None:
    """A step's figures are those of the work launched in it, over that work's own window."""
    found = analyse(plan)
    for own in plan.ranks:
        rows = [r for r in found["steps"] if r["rank"] == own.rank]
        assert [r["step"] for r in rows] == [number for number, _, _ in own.steps]
        previous: tuple[int, int] | None = None
        for at, (row, (number, start, end)) in enumerate(zip(rows, own.steps, strict=True)):
            inside = [e for e in own.events if step_of(own, e) == at]
            assert row["num_work"] == len(inside)
            assert ns(row["host_us"]) == end - start
            if not inside:
                assert row["window_us"] is None
                previous = None
                continue
            assert figures(row, plan) == count(inside, whole=own.events)
            first, last = min(e.start for e in inside), max(e.end for e in inside)
            follows = previous is not None and previous[0] == number - 1
            lead = first - previous[1] if follows and previous else None
            assert (None if row["lead_us"] is None else ns(row["lead_us"])) == lead
            period = None if row["period_us"] is None else ns(row["period_us"])
            assert period == (None if lead is None else lead + last - first)
            previous = (number, last)
        outside = [e for e in own.events if own.steps and step_of(own, e) is None]
        left = [r for r in found["no_step"] if r["rank"] == own.rank]
        assert len(left) == bool(outside)
        if outside:
            assert figures(left[0], plan) == count(outside, whole=own.events)


@given(st.sampled_from([1, 1000]).flatmap(plans))
@settings(max_examples=80)
def test_groups_share_the_exposed_time(plan: Plan) -> None:
    """Each exposed instant is divided evenly among the groups at it; the parts add up exactly."""
    found = analyse(plan)
    for own, row in zip(plan.ranks, found["ranks"], strict=True):
        rows = {r["group"]: r for r in found["groups"] if r["rank"] == own.rank}
        want = share(own.events, list(rows), plan.unit_ns)
        assert {g: shares_ns(r) for g, r in rows.items()} == {g: w for g, w in want.items() if w[0]}
        for r in rows.values():
            assert ns(r["overlap_us"]) == ns(r["comm_us"]) - ns(r["exposed_comm_us"])
        assert sum(ns(r["exposed_share_us"]) for r in rows.values()) == ns(row["exposed_comm_us"])


def shares_ns(row: dict[str, Any]) -> tuple[int, int, int]:
    """What `share` works out, from a row of the table of groups."""
    return ns(row["comm_us"]), ns(row["exposed_comm_us"]), ns(row["exposed_share_us"])


@given(plans(), st.integers(-5, 60), st.integers(1, 60))
@settings(max_examples=80)
def test_a_range_cuts_exactly(plan: Plan, low: int, length: int) -> None:
    """In a chosen range every event is cut at the borders, and the window is the range."""
    offsets = {row["rank"]: ahead_ns(row) for row in analyse(plan)["ranks"]}
    origin = min(min(e.start for e in r.events) - offsets[r.rank] for r in plan.ranks)
    begins = {r.rank: origin + offsets[r.rank] + low for r in plan.ranks}
    chosen = (low / 1000, (low + length) / 1000)
    if not any(
        e.start < begins[r.rank] + length and e.end > begins[r.rank]
        for r in plan.ranks
        for e in r.events
    ):
        with pytest.raises(UsageError, match="no work between"):
            analyse(plan, time_range_us=chosen)
        return
    found = analyse(plan, time_range_us=chosen)
    names = tuple(name for name in FIGURES if name != "edge_comm")
    for own, row in zip(plan.ranks, found["ranks"], strict=True):
        begin = begins[own.rank]
        want = count(own.events, begin, begin + length)
        assert figures(row, plan, names) == {name: want[name] for name in names}


@given(plans(), st.integers(0, 6), st.integers(0, 2))
@settings(max_examples=60)
def test_chosen_steps_are_chosen_by_membership(plan: Plan, first: int, more: int) -> None:
    """Figures of chosen steps are those of the work that belongs to them, as if alone."""
    if not any(first <= number <= first + more for r in plan.ranks for number, _, _ in r.steps):
        with pytest.raises(UsageError, match="no step in"):
            analyse(plan, steps=(first, first + more))
        return
    found = analyse(plan, steps=(first, first + more))
    for own, row in zip(plan.ranks, found["ranks"], strict=True):
        chosen = [
            e
            for e in own.events
            if (at := step_of(own, e)) is not None and first <= own.steps[at][0] <= first + more
        ]
        assert figures(row, plan) == count(chosen, whole=own.events)


@given(plans())
@settings(max_examples=40)
def test_totals_are_sums(plan: Plan) -> None:
    """The totals of a run are the sums over its ranks."""
    found = analyse(plan)
    for name in FIGURES:
        total = sum(ns(row[f"{name}_us"]) for row in found["ranks"])
        assert ns(found["totals"][f"{name}_us"]) == total
