"""The sample traces against their known answers, which a script of its own worked out."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tracekit.model.files import OpenOptions
from tracekit.model.run import open_run
from tracekit.report.document import document

FOLDER = Path(__file__).parents[2] / "sample_traces"
SETS = ("ddp_4", "tp_2x2")
#: gloo carries a reduce-scatter out as an all-reduce, and its span says so
SPAN_OF = {"reduce_scatter": "all_reduce"}
FIGURES = (
    "window_us", "compute_us", "comm_us", "overlap_us", "exposed_comm_us", "memory_us",
    "exposed_memory_us", "idle_us",
)  # fmt: skip


@cache
def found(name: str) -> dict[str, Any]:
    """The analysis of a set."""
    return document(open_run([str(FOLDER / name)], options=OpenOptions(store=False)))


@cache
def answers(name: str) -> dict[str, Any]:
    """The answers of a set."""
    sets = json.loads((FOLDER / "answers.json").read_text("utf-8"))["sets"]
    return dict(sets[name])


def compared(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[list[Any]]:
    """The values of some keys, times to 1e-6 µs (a picosecond)."""
    return [[round(v, 6) if type(v := row[k]) is float else v for k in keys] for row in rows]


@pytest.mark.parametrize("name", SETS)
def test_figures_of_every_rank(name: str) -> None:
    """Every figure of every rank is the answer's, as are who it is and what was read."""
    keys = ("rank", "timeline", "world_size", "host", *FIGURES, "overlap_frac")
    mine, want = found(name)["ranks"], answers(name)["ranks"]
    assert compared(mine, keys) == compared(want, keys)
    assert [Path(r["file"]).name for r in mine] == [r["file"] for r in want]
    assert [r["events"]["read"] for r in mine] == [r["num_events"] for r in want]
    assert [r["events"]["comm"] for r in mine] == [sum(r["gloo_spans"].values()) for r in want]


@pytest.mark.parametrize("name", SETS)
def test_figures_of_every_step(name: str) -> None:
    """Every figure of every step is the answer's, with its length on the host and its lead."""
    keys = ("rank", "step", *FIGURES, "overlap_frac", "host_us", "lead_us", "period_us")
    assert compared(found(name)["steps"], keys) == compared(answers(name)["steps"], keys)
    assert found(name)["missing_steps"] == answers(name)["missing_steps"] == []
    assert found(name)["no_step"] == answers(name)["no_step"] == []


@pytest.mark.parametrize("name", SETS)
def test_totals_are_the_sums_of_the_answers(name: str) -> None:
    """The totals are those of the answers."""
    assert compared([found(name)["totals"]], FIGURES) == compared(
        [answers(name)["totals"]], FIGURES
    )


@pytest.mark.parametrize("name", SETS)
def test_members_of_every_collective(name: str) -> None:
    """The collectives are the answer's: on which ranks, in which order, what, and who was last.

    gloo names no groups; members are found from the threads and paired by order.
    """
    keys = ("ranks", "size", "dtype", "bytes", "in_elems", "last_rank")
    mine, want = found(name)["collectives"], answers(name)["collectives"]
    assert compared(mine, keys) == compared(want, keys)
    assert [c["op"] for c in mine] == [SPAN_OF.get(c["op"], c["op"]) for c in want]
    assert {c["complete"] for c in mine} == {True}
    assert set(found(name)["unmatched"].values()) == {0}


@pytest.mark.parametrize("name", SETS)
def test_times_of_every_collective(name: str) -> None:
    """All ranks ran on one host: on its clock, every wait, transfer and bandwidth is the answer's.

    The scatter of the ends exceeds their median difference, so no clock is corrected.
    """
    keys = ("start_us", "transfer_us", "start_skew_us", "end_spread_us", "algbw_GBps")
    mine, want = found(name)["collectives"], answers(name)["collectives"]
    assert compared(mine, keys) == compared(want, keys)
    assert [c["wait_us"] for c in mine] == [c["wait_us"] for c in want]
    alike = [(a, b) for a, b in zip(mine, want, strict=True) if a["op"] == b["op"]]
    assert [a["busbw_GBps"] for a, _ in alike] == [
        pytest.approx(b["busbw_GBps"], rel=1e-12) for _, b in alike
    ]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("ahead_ns", [900_000, -5_000_000_000, 3_600_000_000_000])
@pytest.mark.parametrize("rank", [1, 3])
def test_a_clock_that_is_off_loses_no_collective(
    name: str, ahead_ns: int, rank: int, tmp_path: Path
) -> None:
    """With one rank's clock ahead or behind, the same operations of the same ranks belong together.

    Their order of start is then no longer that of the answers.
    """
    for source in sorted((FOLDER / name).glob("*.json.gz")):
        text = gzip.decompress(source.read_bytes()).decode()
        if json.loads(text)["distributedInfo"]["rank"] == rank:
            base = re.search(r'"baseTimeNanoseconds": (\d+)', text)
            assert base is not None
            text = text.replace(base[1], str(int(base[1]) + ahead_ns))
        (tmp_path / source.name).write_bytes(gzip.compress(text.encode(), 1))
    mine = document(open_run([str(tmp_path)], options=OpenOptions(store=False)))
    keys = ("ranks", "size", "bytes")
    assert sorted(compared(mine["collectives"], keys)) == sorted(
        compared(answers(name)["collectives"], keys)
    )
    assert set(mine["unmatched"].values()) == {0}


@pytest.mark.parametrize("name", SETS)
def test_waiting_of_every_rank(name: str) -> None:
    """A rank's waiting in all collectives is the sum of the answers'."""
    want = dict.fromkeys(("0", "1", "2", "3"), 0.0)
    for c in answers(name)["collectives"]:
        for rank, wait in c["wait_us"].items():
            want[rank] += wait
    rows = found(name)["stragglers"]
    assert {str(r["rank"]): r["wait_us"] for r in rows} == pytest.approx(want, abs=1e-6)


def test_the_rank_that_slept_is_found() -> None:
    """Rank 2 of ddp_4 sleeps before every backward pass: it is last in all six all-reduces."""
    first = found("ddp_4")["stragglers"][0]
    assert (first["rank"], first["num_last"], first["num_matched"]) == (2, 6, 6)
    (finding,) = (f for f in found("ddp_4")["findings"] if f["code"] == "late-rank")
    assert finding["evidence"]["rank"] == 2
