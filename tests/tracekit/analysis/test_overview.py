"""The whole document of a run: collectives as rows, remarks, and nothing that is no number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tracekit.report.document import document


def notes(*files: Kineto) -> dict[str, str]:
    """The notes of a run's document, text by code."""
    return {n["code"]: n["text"] for n in document(run_of(*files))["notes"]}


def pair(**about: Any) -> list[Kineto]:
    """Two ranks of one all-reduce; rank 1 comes 50 µs late."""
    given = collective(elems=25_000, seq=3, desc="mesh_tp", **about)
    return [
        Kineto(0, 2).kernel(10, 90).comm(100, 200, **given),
        Kineto(1, 2).kernel(10, 140).comm(150, 201, **given),
    ]


def test_a_collective_as_a_row() -> None:
    """A collective's row holds all that is known, times from the start of the run."""
    (row,) = document(run_of(*pair()))["collectives"]
    assert row == {
        "op": "all_reduce", "group": "0", "desc": "mesh_tp", "axis": "tp", "size": 2,
        "ranks": [0, 1], "dtype": "Float", "bytes": 100_000, "in_elems": 25_000,
        "out_elems": 25_000, "start_us": 90.0, "duration_us": {"0": 100.0, "1": 51.0},
        "wait_us": {"0": 50.0, "1": 0.0}, "transfer_us": 51.0, "start_skew_us": 50.0,
        "end_spread_us": 1.0, "last_rank": 1, "algbw_GBps": 100_000 / 51_000,
        "busbw_GBps": 100_000 / 51_000, "match": "seq", "complete": True, "edge": False, "seq": 3,
        "comms_id": None, "kernel": ALL_REDUCE,
    }  # fmt: skip


def test_a_single_collective_has_no_waits() -> None:
    """Of a collective seen on one rank only, waits, transfer and last rank are null."""
    (row,) = document(run_of(pair()[1]))["collectives"]
    empty = ("wait_us", "transfer_us", "start_skew_us", "end_spread_us", "last_rank")
    assert [row[key] for key in empty] == [None] * 5
    assert (row["match"], row["complete"], row["duration_us"]) == ("single", False, {"1": 51.0})


def test_collectives_are_listed_by_start() -> None:
    """Whatever the groups, collectives are in order of start."""
    file = Kineto(0, 1).kernel(1, 2)
    for at, group in ((50, "b"), (10, "a"), (30, "a")):
        file.comm(at, at + 5, **collective(group=group, ranks=(0,)))
    starts = [c["start_us"] for c in document(run_of(file))["collectives"]]
    assert starts == [9.0, 29.0, 49.0]


def test_the_document_is_json_without_nan() -> None:
    """Every value of a document is a JSON value; what is unknown is null, never NaN or infinity."""
    file = Kineto(0, 4).comm(10, 10, **collective(elems=8)).comm(20, 30)
    file.comm(40, 50, **collective(elems=8, dtype="Wibble")).kernel(60, 60)
    text = json.dumps(document(run_of(file)), allow_nan=False)
    assert json.loads(text)["schema"] == "tracekit.analysis/1"


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("dropped", [Kineto(0, 1).kernel(0, 5).kernel(9, 4)]),
        ("clipped", [Kineto(0, 1).kernel(0, 99).kernel(5, 6).kernel(8, 9)]),
        ("unlinked", [Kineto(0, 1).kernel(0, 5)]),
        ("no-steps", [Kineto(0, 1).kernel(0, 5)]),
        ("no-work", [Kineto(0, 1).step(0, 0, 5)]),
        ("host-timeline", [Kineto(0, 1).op(0, 5)]),
        ("missing-ranks", [Kineto(0, 4).kernel(0, 5), Kineto(2, 4).kernel(0, 5)]),
        ("uneven-steps", [Kineto(0, 2).step(1, 0, 9).step(2, 9, 12).op(0, 5), Kineto(1, 2).step(1, 0, 9).op(1, 2)]),
        ("no-communication", [Kineto(0, 2).kernel(0, 5), Kineto(1, 2).kernel(0, 5)]),
        ("unknown-dtype", [Kineto(0, 1).comm(0, 5, **collective(elems=3, dtype="Wibble"))]),
    ],
)  # fmt: skip
def test_what_limits_the_answers_is_told(code: str, files: list[Kineto]) -> None:
    """Each limit of a run is a note beside its figures."""
    assert code in notes(*files)


def test_a_sound_run_has_no_remarks() -> None:
    """A run whose ranks, launches, steps and collectives are all there is told nothing."""
    files = []
    for rank in (0, 1):
        file = Kineto(rank, 2)
        for step in range(1, 7):
            at = 1_000 * step
            file.step(step, at, at + 990).kernel(at + 10, at + 200, "void at::add", launched=at + 5)
            file.comm(at + 300, at + 400, launched=at + 6, **collective(elems=4, seq=step))
        files.append(file)
    assert notes(*files) == {}
