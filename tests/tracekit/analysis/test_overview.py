"""Promises of the whole analysis: all ranks in one pass, their totals, and what is remarked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tracekit.analysis.overview import MAX_MISSING, TOP_NAMES, Overview, overview
from tracekit.analysis.rows import FIGURES
from tracekit.analysis.selection import Selection
from tracekit.core.errors import UsageError
from tracekit.model.run import TraceSet
from tracekit.report.document import document


def pair(ahead: int = 0) -> TraceSet:
    """Two ranks and three all-reduces of 4 kB; rank 1 comes 20, 30 and 0 µs after rank 0.

    Rank 0: compute 0..100, all-reduces 100..160, 200..260, 300..350; rank 1 likewise, its clock
    ahead. Steps 1 and 2 begin at 0 and at 190 on the host.
    """
    files = []
    for rank, lags in ((0, (0, 0, 0)), (1, (20, 30, 0))):
        by = rank * ahead
        file = Kineto(rank, 2).step(1, by, by + 190).step(2, by + 190, by + 360)
        file.kernel(by, by + 100, launched=by)
        for seq, (start, end, lag) in enumerate(
            zip((100, 200, 300), (160, 260, 350), lags, strict=True)
        ):
            about = collective(elems=1000, seq=seq)
            file.comm(by + start + lag, by + end, launched=by + start - 5, **about)
        files.append(file)
    return run_of(*files)


def codes(found: Overview) -> list[str]:
    """The kinds of remarks."""
    return [n.code for n in found.notes]


# -- all ranks --------------------------------------------------------------------------------


def test_ranks_steps_and_totals() -> None:
    """Figures of every rank in order, and their sums, whatever the clocks."""
    for ahead in (0, 123_456):
        found = overview(pair(ahead))
        names = ("window_us", "compute_us", "exposed_wait_us", "exposed_transfer_us", "idle_us")
        assert [[r[n] for n in names] for r in found.ranks] == [
            [350, 100, 50, 120, 80], [350, 100, 0, 120, 130],
        ]  # fmt: skip
        assert [found.totals[n] for n in names] == [700, 200, 50, 240, 210]
        assert [(s["rank"], s["step"], s["window_us"]) for s in found.steps] == [
            (0, 1, 160), (0, 2, 150), (1, 1, 160), (1, 2, 120),
        ]  # fmt: skip
        assert [r["clock_offset_us"] for r in found.ranks] == [0, ahead]
        assert found.unmatched == {"0": 0, "1": 0}


def test_totals_of_unknown_figures_are_unknown() -> None:
    """A sum with an unknown part is unknown, not the sum of the rest."""
    silent = Kineto(1, 2).kernel(0, 40)
    silent.event(20, 80, "oneccl:allreduce", "collective_comm", tid=3)
    found = overview(run_of(Kineto(0, 2).kernel(0, 10).comm(10, 20), silent))
    assert (found.totals["compute_us"], found.totals["window_us"]) == (50, 60)
    assert [found.totals[f"{n}_us"] for n in ("comm", "idle", "exposed_comm")] == [None] * 3
    assert found.totals["overlap_frac"] is None


def test_collectives_by_start_on_one_clock() -> None:
    """Collectives with what each member waited, in µs from the start of the run."""
    found = overview(pair(ahead=5000)).collectives
    keys = ("op", "ranks", "start_us", "transfer_us", "last_rank", "match", "edge", "bytes")
    assert [[c[k] for k in keys] for c in found] == [
        ["all_reduce", [0, 1], 100, 40, 1, "seq", False, 4000],
        ["all_reduce", [0, 1], 200, 30, 1, "seq", False, 4000],
        ["all_reduce", [0, 1], 300, 50, 0, "seq", False, 4000],
    ]
    assert [c["wait_us"] for c in found] == [{"0": 20, "1": 0}, {"0": 30, "1": 0}, {"0": 0, "1": 0}]
    # 4000 bytes in 40 µs, twice (2-1)/2
    assert found[0]["algbw_GBps"] == found[0]["busbw_GBps"] == pytest.approx(0.1)


def test_operations_without_a_partner_are_counted_per_rank() -> None:
    """A rank whose partner is here but ran less has unmatched operations."""
    zero, one = Kineto(0, 2).kernel(0, 5), Kineto(1, 2).kernel(0, 5)
    for seq in (0, 1, 2):
        zero.comm(100 * seq + 10, 100 * seq + 50, **collective(elems=4, seq=seq))
    for seq in (0, 1):
        one.comm(100 * seq + 10, 100 * seq + 50, **collective(elems=4, seq=seq))
    found = overview(run_of(zero, one))
    assert found.unmatched == {"0": 1, "1": 0}
    assert [c["match"] for c in found.collectives] == ["seq", "seq", "single"]
    # the partner is not here at all: nothing to match
    assert overview(run_of(zero)).unmatched == {"0": 0}


def test_kernels_are_the_longest_names_of_each_rank() -> None:
    """Names by rank and role, the longest first, at most so many."""
    file = Kineto().kernel(0, 10, "a").kernel(20, 50, "b").kernel(60, 75, "a").comm(80, 100)
    found = overview(run_of(file)).kernels
    assert [(k["role"], k["name"], k["count"], k["total_us"]) for k in found] == [
        ("compute", "b", 1, 30), ("compute", "a", 2, 25), ("comm", ALL_REDUCE, 1, 20),
    ]  # fmt: skip
    many = Kineto()
    for n in range(TOP_NAMES + 5):
        many.kernel(100 * n, 100 * n + n + 1, f"k{n}")
    assert len(overview(run_of(many)).kernels) == TOP_NAMES


def test_a_collective_as_a_row() -> None:
    """A collective's row holds all that is known; on one rank alone, waiting is not."""
    about = collective(elems=25_000, seq=3, desc="mesh_tp")
    files = [
        Kineto(0, 2).kernel(10, 90).comm(100, 200, **about),
        Kineto(1, 2).kernel(10, 140).comm(150, 201, **about),
    ]
    (row,) = overview(run_of(*files)).collectives
    assert row == {
        "op": "all_reduce", "group": "0", "desc": "mesh_tp", "axis": "tp", "size": 2,
        "ranks": [0, 1], "dtype": "Float", "bytes": 100_000, "in_elems": 25_000,
        "out_elems": 25_000, "start_us": 90, "duration_us": {"0": 100, "1": 51},
        "wait_us": {"0": 50, "1": 0}, "transfer_us": 51, "start_skew_us": 50, "end_spread_us": 1,
        "last_rank": 1, "algbw_GBps": 100_000 / 51_000, "busbw_GBps": 100_000 / 51_000,
        "match": "seq", "complete": True, "edge": False, "seq": 3, "comms_id": None,
        "kernel": ALL_REDUCE, "phase": None, "layer": None,
    }  # fmt: skip
    (alone,) = overview(run_of(files[1])).collectives
    unknown = ("wait_us", "transfer_us", "start_skew_us", "end_spread_us", "last_rank")
    assert [alone[key] for key in unknown] == [None] * 5
    assert (alone["match"], alone["complete"], alone["duration_us"]) == ("single", False, {"1": 51})


def test_collectives_are_listed_by_start() -> None:
    """Whatever the groups, collectives are in order of start."""
    file = Kineto(0, 1).kernel(1, 2)
    for at, group in ((50, "b"), (10, "a"), (30, "a")):
        file.comm(at, at + 5, **collective(group=group, ranks=(0,)))
    assert [c["start_us"] for c in overview(run_of(file)).collectives] == [9, 29, 49]


# -- steps that are not there -----------------------------------------------------------------


def test_missing_step_numbers() -> None:
    """Numbers between the first and the last of all ranks that no rank has."""
    zero, one = Kineto(0, 2).kernel(0, 5), Kineto(1, 2).kernel(0, 5)
    for at, number in enumerate((3, 5, 9)):
        zero.step(number, 100 * at, 100 * at + 100)
    one.step(4, 0, 100).step(12, 100, 200)
    assert overview(run_of(zero, one)).missing_steps == [6, 7, 8, 10, 11]


def test_missing_steps_have_a_limit() -> None:
    """A hostile number does not make a list of 10**17 of them."""
    file = Kineto().kernel(0, 5).step(1, 0, 100).step(10**17, 100, 200)
    found = overview(run_of(file)).missing_steps
    assert found == list(range(2, 2 + MAX_MISSING))


# -- a part of the run ------------------------------------------------------------------------


def test_chosen_steps() -> None:
    """Everything is of the chosen steps: figures, collectives, names, stragglers."""
    found = overview(pair(), Selection((2, 2)))
    assert [r["window_us"] for r in found.ranks] == [150, 120]
    assert [(s["rank"], s["step"]) for s in found.steps] == [(0, 2), (1, 2)]
    assert [c["start_us"] for c in found.collectives] == [200, 300]
    assert {k["name"] for k in found.kernels} == {ALL_REDUCE}
    assert found.no_step == []
    assert [(r["rank"], r["late_us"]) for r in found.stragglers] == [(1, 30), (0, 0)]


def test_chosen_range() -> None:
    """Windows are the range exactly; collectives it cuts are edges and blame nobody."""
    found = overview(pair(ahead=777), Selection(range_ns=(110_000, 260_000)))
    assert [r["window_us"] for r in found.ranks] == [150, 150]
    assert [(c["start_us"], c["edge"]) for c in found.collectives] == [(100, True), (200, False)]
    assert [r["num_matched"] for r in found.stragglers] == [1, 1]
    # rank 0: 110..160 and 200..260, of which it waits 110..120 and 200..230
    row = found.ranks[0]
    assert (row["exposed_wait_us"], row["exposed_transfer_us"]) == (40, 70)
    # nothing is cut by borders at which it starts and ends
    found = overview(pair(ahead=777), Selection(range_ns=(100_000, 260_000)))
    assert [(c["start_us"], c["edge"]) for c in found.collectives] == [(100, False), (200, False)]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (Selection((7, 9)), "no step in 7:9; there are steps 1 to 2"),
        (Selection(range_ns=(400_000, 500_000)), "no work between 400 and 500 us; the run lasts"),
    ],
)
def test_a_selection_without_anything_is_refused(chosen: Selection, said: str) -> None:
    """A question about nothing is a mistake, answered with what there is."""
    with pytest.raises(UsageError) as caught:
        overview(pair(), chosen)
    assert str(caught.value).startswith(said)


def test_steps_of_a_trace_without_any_are_refused() -> None:
    """Where no step is marked none can be chosen."""
    with pytest.raises(UsageError, match="no steps are marked"):
        overview(run_of(Kineto().kernel(0, 10)), Selection((0, 0)))


# -- remarks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([Kineto(0).op(0, 10)], "host-timeline"),
        ([Kineto(0).step(0, 0, 5)], "no-work"),
        ([Kineto(0).kernel(0, 10)], "no-steps"),
        ([Kineto(0).kernel(0, 10)], "unlinked"),
        ([Kineto(0).kernel(0, 10).kernel(50, 40)], "dropped"),
        ([Kineto(0).kernel(0, 99).kernel(1, 2).kernel(3, 4)], "clipped"),
        ([Kineto(0).step(3, 100, 200).kernel(0, 10, launched=1)], "empty-steps"),
        ([Kineto(0, 4).comm(0, 10)], "missing-ranks"),
        ([Kineto(0, 4).comm(0, 10), Kineto(3, 4).comm(0, 10)], "missing-ranks"),
        ([Kineto(0, 2).kernel(0, 10), Kineto(1, 2).kernel(0, 10)], "no-communication"),
        ([Kineto(0, 2).comm(0, 10), Kineto(1, 2).comm(0, 10)], "unknown-groups"),
        ([Kineto(0, 2).comm(0, 10, **collective(elems=4, dtype="Odd"))], "unknown-dtype"),
    ],
)
def test_what_limits_the_answers_is_said(files: list[Kineto], code: str) -> None:
    """Whatever makes a figure less than it seems stands beside it."""
    assert code in codes(overview(run_of(*files)))


def test_a_clean_run_has_no_remarks() -> None:
    """Nothing is remarked where nothing is odd."""
    assert codes(overview(pair())) == []


def test_steps_that_only_some_ranks_have() -> None:
    """Ranks that were recorded over different steps cannot be compared in them."""
    zero = Kineto(0, 2).step(1, 0, 50).step(2, 50, 100).comm(10, 20, launched=5)
    one = Kineto(1, 2).step(1, 0, 50).comm(10, 20, launched=5)
    assert "uneven-steps" in codes(overview(run_of(zero, one)))


def test_the_document_is_json_without_nan() -> None:
    """Every value of a document is a JSON value; what is unknown is null, never NaN or infinity."""
    file = Kineto(0, 4).comm(10, 10, **collective(elems=8)).comm(20, 30)
    file.comm(40, 50, **collective(elems=8, dtype="Wibble")).kernel(60, 60)
    text = json.dumps(document(run_of(file)), allow_nan=False)
    assert json.loads(text)["schema"] == "tracekit.analysis/1"


def rows_of(found: Overview) -> list[dict[str, Any]]:
    """All rows that divide a window."""
    return [*found.ranks, *found.steps, *found.no_step, *found.phases, found.totals]


def test_every_row_has_every_figure() -> None:
    """All tables that divide time have the same figures, so that they can be laid side by side."""
    files = [
        Kineto(r, 2).mark(0, 9, "forward").step(1, 0, 9).comm(5, 20, launched=1) for r in (0, 1)
    ]
    files[0].kernel(50, 60)
    found = overview(run_of(*files))
    assert all(f"{name}_us" in row for row in rows_of(found) for name in FIGURES)
    assert [len(found.steps), len(found.no_step), len(found.phases)] == [2, 1, 2]
