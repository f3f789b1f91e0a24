"""Promises of the findings: what stands out is said with its evidence and the most it can bring."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.analysis.findings import findings
from tracekit.analysis.rows import Row


def totals(**us: float | None) -> Row:
    """Totals of 1000 µs of compute, but for the given figures."""
    row: Row = {
        "window_us": 1000.0, "compute_us": 1000.0, "comm_us": 0.0, "overlap_us": 0.0,
        "exposed_comm_us": 0.0, "memory_us": 0.0, "exposed_memory_us": 0.0, "idle_us": 0.0,
        "exposed_wait_us": 0.0, "exposed_transfer_us": 0.0, "exposed_unknown_us": 0.0,
        "edge_comm_us": 0.0, "other_us": 0.0,
    }  # fmt: skip
    return row | us


def straggler(rank: int, num_last: int, late_us: float, num_matched: int = 10) -> Row:
    """A row of the table of stragglers."""
    counts = {"rank": rank, "num_matched": num_matched, "num_last": num_last}
    return counts | {"late_us": late_us, "wait_us": 0.0}


def operation(op: str | None, share: float | None, overlap: float = 0.0, comm: float = 0.0) -> Row:
    """A row of the table of operations."""
    return {
        "rank": 0, "op": op, "comm_us": comm or (share or 0.0) + overlap, "overlap_us": overlap,
        "exposed_comm_us": share, "exposed_share_us": share,
    }  # fmt: skip


def step(number: int, window_us: float | None, lead_us: float | None = None, rank: int = 0) -> Row:
    """A row of the table of steps."""
    period = None if lead_us is None or window_us is None else window_us + lead_us
    return {
        "rank": rank, "step": number, "window_us": window_us, "lead_us": lead_us,
        "period_us": period,
    }  # fmt: skip


def found(
    whole: Row,
    *,
    steps: list[Row] | None = None,
    stragglers: list[Row] | None = None,
    operations: list[Row] | None = None,
    **more: Any,
) -> list[Row]:
    """The findings of such tables."""
    return findings(whole, steps or [], stragglers or [], operations or [], **more)


def one(*given: Any, **tables: Any) -> Row:
    """The only finding."""
    (row,) = found(*given, **tables)
    return row


def test_nothing_stands_out() -> None:
    """Compute alone, and no work at all, give no finding."""
    assert found(totals()) == []
    assert found(totals(window_us=0.0)) == []
    assert findings({"window_us": None}, [], [], []) == []


def test_findings_have_one_form() -> None:
    """Code, severity, one line of text, evidence, and the gain in µs and of the window."""
    row = one(totals(idle_us=250.0))
    assert list(row) == ["code", "severity", "text", "evidence", "gain_us", "gain_frac"]
    assert (row["code"], row["severity"], row["evidence"]) == ("idle", "warning", {"idle_us": 250})
    assert (row["gain_us"], row["gain_frac"]) == (250, 0.25)
    assert "25.0 %" in row["text"]
    assert "\n" not in row["text"]


def test_the_most_costly_comes_first() -> None:
    """Findings are in order of what mending them can bring."""
    rows = found(
        totals(idle_us=200.0, exposed_memory_us=300.0, exposed_comm_us=250.0),
        operations=[operation("all_reduce", 250.0)],
    )
    assert [r["code"] for r in rows] == ["exposed-memory", "exposed-all-reduce", "idle"]
    assert [r["gain_us"] for r in rows] == [300, 250, 200]


def test_what_brings_less_than_a_twentieth_is_not_worth_a_remark() -> None:
    """From 5 % of the window on a finding is shown."""
    assert found(totals(exposed_memory_us=49.9)) == []
    assert one(totals(exposed_memory_us=50.0))["gain_frac"] == 0.05


# -- late ranks -------------------------------------------------------------------------------


def test_a_rank_that_is_late_most_of_the_time_is_named() -> None:
    """Half the times last and half of the lateness: the others' waiting is that rank's."""
    waiting = totals(exposed_wait_us=400.0, exposed_comm_us=400.0)
    row = one(waiting, stragglers=[straggler(3, 5, 50.0), straggler(0, 5, 50.0)])
    assert (row["code"], row["gain_us"]) == ("late-rank", 400)
    assert row["evidence"] == {"rank": 3, "num_last": 5, "num_matched": 10, "late_us": 50}
    assert "rank 3 arrives last in 5 of 10 collectives" in row["text"]
    assert "no network problem" in row["text"]


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        # two ranks in turn: the worse of them is late half of the time by chance
        ([straggler(0, 4, 52.0), straggler(1, 6, 48.0)], "waiting"),
        # three ranks in turn
        ([straggler(0, 4, 40.0), straggler(1, 3, 30.0), straggler(2, 3, 30.0)], "waiting"),
        # often last, but by little: the lateness is others'
        ([straggler(0, 8, 40.0), straggler(1, 1, 30.0), straggler(2, 1, 30.0)], "waiting"),
        # seldom last, but nearly all the lateness is its own
        ([straggler(2, 4, 99.0), straggler(1, 6, 1.0)], "late-rank"),
    ],
)
def test_one_late_rank_is_told_from_jitter(rows: list[Row], code: str) -> None:
    """A rank is blamed for most of the lateness or for none."""
    waiting = totals(exposed_wait_us=400.0, exposed_comm_us=400.0)
    assert one(waiting, stragglers=rows)["code"] == code


def test_nobody_is_late_where_nobody_waits() -> None:
    """Lateness that compute hides, or waiting nobody is known to cause, is no finding."""
    late = [straggler(3, 10, 500.0)]
    assert found(totals(), stragglers=late) == []
    assert found(totals(exposed_wait_us=None), stragglers=late) == []
    assert found(totals(exposed_wait_us=400.0)) == []
    assert found(totals(exposed_wait_us=400.0), stragglers=[straggler(0, 0, 0.0)]) == []


# -- exposed communication --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("all_gather", "prefetch"),
        ("broadcast", "prefetch"),
        ("reduce_scatter", "as soon as its input is ready"),
        ("all_reduce", "as soon as its input is ready"),
        ("all_to_all", "overlap it with independent compute"),
    ],
)
def test_advice_fits_the_operation(op: str, advice: str) -> None:
    """What can run ahead is to be prefetched; what runs behind is to start early."""
    row = one(totals(exposed_comm_us=300.0), operations=[operation(op, 300.0, 100.0)])
    assert (row["code"], row["gain_us"]) == (f"exposed-{op.replace('_', '-')}", 300)
    assert advice in row["text"]
    assert "25.0 % of it runs under compute" in row["text"]
    assert row["evidence"] == {
        "op": op, "exposed_share_us": 300, "overlap_us": 100, "comm_us": 400,
    }  # fmt: skip


def test_operations_of_all_ranks_add_up() -> None:
    """An operation is one finding for all ranks together."""
    rows = [operation("all_reduce", 100.0), operation("all_gather", 90.0)]
    got = found(totals(exposed_comm_us=380.0), operations=rows * 2)
    assert [(r["code"], r["gain_us"]) for r in got] == [
        ("exposed-all-reduce", 200), ("exposed-all-gather", 180),
    ]  # fmt: skip


def test_waiting_is_no_gain_of_overlap() -> None:
    """Of exposed time that is half waiting, only the other half counts for the operations."""
    whole = totals(exposed_comm_us=400.0, exposed_wait_us=200.0)
    rows = found(whole, operations=[operation("all_reduce", 300.0), operation("all_gather", 100.0)])
    assert [(r["code"], r["gain_us"]) for r in rows] == [
        ("exposed-all-reduce", 150), ("exposed-all-gather", 50),
    ]  # fmt: skip


def test_what_is_overlapped_as_intended_is_no_finding() -> None:
    """An operation of which half runs under compute is left alone."""
    whole = totals(exposed_comm_us=300.0)
    assert found(whole, operations=[operation("all_reduce", 300.0, 300.0)]) == []
    assert len(found(whole, operations=[operation("all_reduce", 300.0, 299.0)])) == 1


def test_an_unknown_operation_has_a_name_in_words() -> None:
    """Communication whose operation is not known is told in words, with a code without blanks."""
    row = one(totals(exposed_comm_us=300.0), operations=[operation(None, 300.0)])
    assert "unknown" in row["text"]
    assert " " not in row["code"]


def test_what_is_not_known_gives_no_finding() -> None:
    """Recordings without compute or communication have nothing exposed to speak of."""
    unknown = dict.fromkeys(("exposed_comm_us", "exposed_wait_us", "idle_us", "other_us"))
    assert found(totals(**unknown), operations=[operation("all_reduce", None)]) == []


# -- idle time and steps ----------------------------------------------------------------------


def test_idle_time_is_normal_up_to_a_point() -> None:
    """From 15 % of the window on idle time stands out, less what other work fills."""
    assert found(totals(idle_us=149.0)) == []
    assert one(totals(idle_us=150.0))["gain_us"] == 150
    assert found(totals(idle_us=300.0, other_us=160.0)) == []
    assert one(totals(idle_us=300.0, other_us=100.0))["gain_us"] == 200


def test_a_device_and_a_host_are_idle_for_different_reasons() -> None:
    """CUDA graphs are no advice for a run on CPUs."""
    assert "CUDA graphs" in one(totals(idle_us=500.0))["text"]
    assert "CUDA" not in one(totals(idle_us=500.0), on_host=True)["text"]


def test_time_between_steps() -> None:
    """Positive leads are time lost; negative ones are overlap and make nothing up."""
    steps = [step(1, 300.0), step(2, 300.0, 60.0), step(3, 300.0, -20.0), step(4, 300.0, 40.0)]
    row = one(totals(), steps=steps)
    assert (row["code"], row["gain_us"], row["gain_frac"]) == ("between-steps", 100, 0.1)
    assert row["evidence"] == {"lead_us": 100, "period_us": 980}
    assert "data loading" in row["text"]
    assert found(totals(), steps=steps[:1]) == []


def test_a_slow_step() -> None:
    """A step half again as long as the median one is named, with what it takes more, on all ranks.

    Medians of the longest rank per step: 100, 100, 110, 400 have 105 in the middle.
    """
    lengths = {1: (100.0, 90.0), 2: (100.0, 80.0), 3: (110.0, 100.0), 4: (400.0, 255.0)}
    steps = [step(n, us, rank=r) for n, own in lengths.items() for r, us in enumerate(own)]
    row = one(totals(), steps=steps)
    assert row["code"] == "slow-step"
    assert row["evidence"] == {"step": 4, "window_us": 400, "median_us": 105}
    assert row["gain_us"] == 295 + 150


@pytest.mark.parametrize("lengths", [(100.0, 400.0), (100.0, 100.0, 149.0), (None, None, 400.0)])
def test_no_slow_step(lengths: tuple[float | None, ...]) -> None:
    """Two steps, usual scatter, or steps without work tell nothing."""
    assert found(totals(), steps=[step(n, us) for n, us in enumerate(lengths)]) == []


def test_copies_that_nothing_hides() -> None:
    """Exposed copies are told with what causes them."""
    row = one(totals(exposed_memory_us=123.0))
    assert (row["code"], row["gain_us"]) == ("exposed-memory", 123)
    assert row["evidence"] == {"exposed_memory_us": 123}


def test_no_gain_is_more_than_everything() -> None:
    """Leads of many ranks may exceed the windows; the fraction is at most 1."""
    row = one(totals(), steps=[step(1, 10.0), step(2, 10.0, 5000.0)])
    assert (row["gain_us"], row["gain_frac"]) == (5000, 1)
