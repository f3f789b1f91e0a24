"""Promises of the Python interface: frames of fixed form, exact figures, selections, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tracekit
from tests.builder import Kineto, collective, run_of
from tracekit.api import run as run_module
from tracekit.api.run import Run

SAMPLE = Path("sample_traces")
FRAMES = (
    "breakdown", "steps", "phases", "groups", "operations", "collectives", "collective_members",
    "stragglers", "kernels", "findings",
)  # fmt: skip
EXACT = (
    "window_us", "compute_us", "comm_us", "overlap_us", "exposed_comm_us", "memory_us",
    "exposed_memory_us", "idle_us",
)  # fmt: skip


def waiting_run() -> Run:
    """Rank 1 computes 50 us longer than rank 0, which waits for it in an all-reduce.

    ``rank 0: compute 0-100, all-reduce 80-200; rank 1: compute 0-150, all-reduce 150-200``, all
    in step 3, and a copy of rank 0 at 300-310 that belongs to no step.
    """
    made = collective("allreduce", elems=1000, seq=1)
    first = Kineto(0, 2).step(3, 0, 250).kernel(0, 100, launched=10)
    first.comm(80, 200, launched=20, **made).copy(300, 310)
    second = Kineto(1, 2).step(3, 0, 250).kernel(0, 150, launched=10)
    second.comm(150, 200, launched=20, **made)
    return Run(run_of(first, second))


def idle_run() -> Run:
    """One rank, one kernel, nothing to communicate with."""
    return Run(run_of(Kineto(0).kernel(5, 9)))


# -- figures ----------------------------------------------------------------------------------


def test_breakdown_divides_each_rank() -> None:
    """Each rank's window is divided as worked out by hand, waiting told from transfer."""
    got = waiting_run().breakdown().set_index("rank")
    assert got["window_us"].tolist() == [310.0, 200.0]
    assert got["compute_us"].tolist() == [100.0, 150.0]
    assert got["overlap_us"].tolist() == [20.0, 0.0]
    assert got["exposed_wait_us"].tolist() == [50.0, 0.0]
    assert got["exposed_transfer_us"].tolist() == [50.0, 50.0]
    assert got["idle_us"].tolist() == [100.0, 0.0]
    assert got["events_memory"].tolist() == [1, 0]


def test_steps_end_with_the_work_of_no_step() -> None:
    """Steps come first; work outside them follows with a missing step number."""
    got = waiting_run().steps()
    assert got["rank"].tolist() == [0, 1, 0]
    assert got["step"].tolist() == [3, 3, pd.NA]
    assert got["window_us"].tolist() == [200.0, 200.0, 10.0]


def test_collectives_and_their_members_belong_together() -> None:
    """A member row says when its rank came and how long it waited; its number is a row number."""
    run = waiting_run()
    one = run.collectives().iloc[0]
    assert (one["op"], one["ranks"], one["bytes"], one["last_rank"]) == (
        "all_reduce",
        (0, 1),
        4000,
        1,
    )
    assert (one["start_us"], one["transfer_us"], one["match"]) == (80.0, 50.0, "seq")
    members = run.collective_members()
    assert members["collective"].tolist() == [0, 0]
    assert members["rank"].tolist() == [0, 1]
    assert members["start_us"].tolist() == [80.0, 150.0]
    assert members["duration_us"].tolist() == [120.0, 50.0]
    assert members["wait_us"].tolist() == [70.0, 0.0]
    assert members["is_last"].tolist() == [False, True]


def test_stragglers_and_clocks() -> None:
    """The late rank comes first; one collective alone tells nothing about clocks."""
    run = waiting_run()
    got = run.stragglers()
    assert got["rank"].tolist() == [1, 0]
    assert got["late_us"].tolist() == [70.0, 0.0]
    clocks = run.clocks()
    assert clocks["offset_us"].tolist()[0] == 0.0
    assert np.isnan(clocks["offset_us"][1])
    assert clocks["num_shared"].tolist() == [0, pd.NA]


def test_kernels_are_listed_by_role() -> None:
    """``top`` counts names of each role of each rank; None lists all."""
    file = Kineto(0).kernel(0, 30, "slow").kernel(30, 50, "fast").comm(60, 65).copy(70, 71)
    run = Run(run_of(file))
    got = run.kernels(top=1)
    assert got[["role", "name", "total_us"]].values.tolist() == [
        ["compute", "slow", 30.0],
        ["comm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5.0],
        ["memory", "Memcpy HtoD (Pinned -> Device)", 1.0],
    ]
    assert len(run.kernels(top=None)) == 4


def test_ops_are_host_operators_of_each_rank() -> None:
    """Operators are summed by name, launches and annotations are none."""
    file = (
        Kineto(0).op(0, 10).op(20, 25).op(30, 32, "aten::add").mark(0, 50, "forward").kernel(1, 2)
    )
    got = Run(run_of(file)).ops()
    assert got.values.tolist() == [[0, "aten::mm", 2, 15.0, 7.5], [0, "aten::add", 1, 2.0, 2.0]]
    assert len(Run(run_of(file)).ops(top=1)) == 1


@pytest.mark.parametrize("sample", ["ddp_4", "tp_2x2"])
def test_sample_traces_give_their_known_answers(sample: str) -> None:
    """Real traces give, per rank and step, what an independent sweep of them gave."""
    answers = json.loads((SAMPLE / "answers.json").read_text())["sets"][sample]
    run = tracekit.open(SAMPLE / sample)
    for got, key in ((run.breakdown(), "ranks"), (run.steps(), "steps")):
        wanted = pd.DataFrame(answers[key])
        assert got["rank"].tolist() == wanted["rank"].tolist()
        for figure in EXACT:
            assert got[figure].tolist() == wanted[figure].tolist(), figure
    assert len(run.collectives()) == len(answers["collectives"])
    assert run.world_size == 4


# -- selections -------------------------------------------------------------------------------


def test_selection_narrows_every_frame() -> None:
    """Steps select by membership; a range cuts at its borders."""
    run = waiting_run()
    assert run.breakdown(steps=3)["window_us"].tolist() == [200.0, 200.0]
    assert run.breakdown(steps=(3, 4))["window_us"].tolist() == [200.0, 200.0]
    assert run.breakdown(range_us=(250, 400))["memory_us"].tolist() == [10.0, 0.0]
    assert len(run.collectives(range_us=(250, 400))) == 0
    assert len(run.collective_members(range_us=(250, 400))) == 0
    assert len(run.collective_members(range_us=(0, 90))) == 2
    assert run.kernels(range_us=(250, 400))["role"].tolist() == ["memory"]


def test_members_count_the_collectives_of_the_same_selection() -> None:
    """For every step the members' numbers are the rows of that step's collectives."""
    run = tracekit.open(SAMPLE / "tp_2x2")
    for step in (4, 5, 6):
        table = run.collectives(steps=step)
        members = run.collective_members(steps=step)
        assert members["collective"].drop_duplicates().tolist() == list(range(len(table)))
        whole = table.iloc[members["collective"].tolist()]
        assert members["op"].tolist() == whole["op"].tolist()
        assert all(r in own for r, own in zip(members["rank"], whole["ranks"], strict=True))
        first = members.groupby("collective")["start_us"].min()
        assert first.tolist() == table["start_us"].tolist()


def test_analysis_is_made_once_for_a_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for another table of the same selection does not analyze again."""
    calls: list[Any] = []
    genuine = run_module.document

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(more)
        return genuine(*args, **more)

    monkeypatch.setattr(run_module, "document", counted)
    run = waiting_run()
    run.breakdown()
    run.steps()
    run._repr_html_()
    assert len(calls) == 1
    run.breakdown(steps=3)
    run.breakdown(steps=(3, 3))
    assert len(calls) == 2
    for first in range(run_module.KEPT + 1):
        run.breakdown(steps=(first - 20, 3))
    assert len(run._documents) == run_module.KEPT


def test_answers_are_the_callers_own() -> None:
    """Changing a frame or a document that was given does not change the next one."""
    run = waiting_run()
    frame = run.breakdown()
    frame["window_us"] = 0.0
    document = run.document()
    document["ranks"][0]["window_us"] = 0.0
    assert run.breakdown()["window_us"].tolist() == [310.0, 200.0]
    assert run.document()["ranks"][0]["window_us"] == 310.0


# -- the form of frames -----------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMES)
def test_frames_keep_their_form_without_rows(name: str) -> None:
    """Columns and types are the same whether there are rows or none; the index is plain."""
    full, bare = getattr(waiting_run(), name)(), getattr(idle_run(), name)()
    assert full.dtypes.to_dict() == bare.dtypes.to_dict()
    assert list(full.columns) == list(bare.columns)
    assert list(full.index) == list(range(len(full)))


@pytest.mark.parametrize("name", [*FRAMES, "clocks", "ops"])
def test_columns_say_their_unit(name: str) -> None:
    """Every float column names its unit, and no column is called by a unit it has not."""
    got = getattr(waiting_run(), name)()
    for column, dtype in got.dtypes.items():
        assert (dtype == np.float64) == str(column).endswith(("_us", "_frac", "_GBps")), column


def test_frames_hold_every_figure_of_the_document() -> None:
    """No figure of the JSON document is lost on the way into its frame."""
    run = waiting_run()
    document = run.document()
    for key, method in (("ranks", "breakdown"), ("steps", "steps"), ("groups", "groups"),
                        ("operations", "operations"), ("collectives", "collectives"),
                        ("stragglers", "stragglers"), ("kernels", "kernels")):  # fmt: skip
        rows, columns = document[key], set(getattr(run, method)().columns)
        assert rows, key
        nested = {"events", "wait_us", "duration_us"} if key in ("ranks", "collectives") else set()
        assert rows[0].keys() - columns - nested == set(), key


def test_unknown_is_missing_and_never_zero() -> None:
    """What is not known is NaN or <NA>."""
    row = idle_run().breakdown().iloc[0]
    assert row["world_size"] is pd.NA
    assert np.isnan(row["overlap_frac"])
    file = Kineto(0).kernel(0, 5).comm(5, 9)
    single = Run(run_of(file)).collectives().iloc[0]
    assert single["bytes"] is pd.NA
    assert np.isnan(single["transfer_us"])
    assert np.isnan(Run(run_of(file)).collective_members().iloc[0]["wait_us"])


def test_ranks_can_be_grouped_by() -> None:
    """Rank lists are tuples, so that frames can be grouped by them."""
    counts = waiting_run().collectives().groupby("ranks").size()
    assert counts.to_dict() == {(0, 1): 1}


def test_impossible_message_sizes_are_not_known() -> None:
    """A message of 2**62 elements is a fault of the writer: its bytes are not known."""
    huge = collective("allreduce", elems=2**62, seq=1)
    run = Run(run_of(Kineto(0).kernel(0, 1).comm(1, 2, **huge)))
    assert run.document()["collectives"][0]["bytes"] is None
    assert run.collectives()["bytes"].tolist() == [pd.NA]


# -- opening and errors -----------------------------------------------------------------------


def write_two(folder: Path) -> None:
    """Two ranks' files."""
    for rank in (0, 1):
        Kineto(rank, 2).kernel(0, 10 + rank).write(folder / f"rank{rank}.json")


def test_open_takes_paths_and_ranks(tmp_path: Path) -> None:
    """Folders and files may be texts or paths; one rank or several can be chosen."""
    write_two(tmp_path)
    assert tracekit.open(tmp_path).ranks == [0, 1]
    assert tracekit.open(str(tmp_path / "rank0.json"), tmp_path / "rank1.json").ranks == [0, 1]
    assert tracekit.open(tmp_path, ranks=1).ranks == [1]
    assert tracekit.open(tmp_path, ranks=np.array([0, 1])).ranks == [0, 1]
    assert repr(tracekit.open(tmp_path, ranks=[1])) == "<tracekit.Run: rank 1>"


def test_open_takes_names_limits_and_progress(tmp_path: Path) -> None:
    """The user's naming rules, the limit and the progress function are used."""
    Kineto(0).kernel(0, 10, "my_exchange").write(tmp_path / "rank0.json")
    (tmp_path / "names.toml").write_text('[[rule]]\nrole = "comm"\npattern = "my_exchange"\n')
    seen: list[str] = []
    run = tracekit.open(
        tmp_path / "rank0.json", names=tmp_path / "names.toml", store=False, limit_gib=1,
        progress=lambda what, _fraction: seen.append(what),
    )  # fmt: skip
    assert run.breakdown()["comm_us"].tolist() == [10.0]
    assert seen[0] == "reading rank0.json"
    with pytest.raises(tracekit.NoTraceError, match="limit"):
        tracekit.open(tmp_path / "rank0.json", store=False, limit_gib=1e-9)


def test_store_false_leaves_nothing(tmp_path: Path, store_folder: Path) -> None:
    """Without the store nothing is kept in the cache folder; with it something is."""
    Kineto(0).kernel(0, 10).write(tmp_path / "rank0.json")
    tracekit.open(tmp_path / "rank0.json", store=False).breakdown()
    assert not store_folder.exists()
    tracekit.open(tmp_path / "rank0.json").breakdown()
    assert list(store_folder.iterdir())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"steps": "5"}, "steps='5' are no steps; give one number, or (first, last)"),
        ({"steps": (1, 2, 3)}, "steps=(1, 2, 3) are no steps"),
        ({"steps": 1.5}, "steps=1.5 are no steps"),
        ({"steps": (8, 5)}, "steps 8:5"),
        ({"range_us": 5}, "range_us=5 is no time range; give (start, end)"),
        ({"range_us": (0, float("nan"))}, "is no time range"),
        ({"range_us": (9, 9)}, "the range 9:9 is empty"),
    ],
)
def test_selection_that_is_none_is_refused(asked: dict[str, Any], words: str) -> None:
    """A selection that cannot be meant fails in one line that says what to give."""
    run = waiting_run()
    for method in (run.breakdown, run.collective_members, run.kernels):
        with pytest.raises(tracekit.UsageError) as caught:
            method(**asked)
        assert words in str(caught.value)


def test_other_wrong_arguments_are_refused(tmp_path: Path) -> None:
    """Ranks, counts, formats and sizes that are none fail in one line each."""
    write_two(tmp_path)
    run = waiting_run()
    wrong = (
        (tracekit.open, "no path to open"),
        (lambda: tracekit.open(tmp_path, ranks="0"), "ranks='0' are no ranks"),
        (lambda: tracekit.open(tmp_path, ranks=[0.5]), "ranks=[0.5] are no ranks"),
        (lambda: tracekit.open(tmp_path, ranks=7), "no rank 7 in this run; its ranks are 0, 1"),
        (lambda: tracekit.open(tmp_path, limit_gib=-1), "limit_gib=-1 is no size"),
        (lambda: tracekit.open(tmp_path, capture=1.5), "capture=1.5 is no whole number"),
        (lambda: tracekit.open(tmp_path, names=""), "the name of the names file is empty"),
        (lambda: tracekit.open(""), "one of the paths is empty"),
        (lambda: run.trace(5), "no rank 5 in this run; its ranks are 0, 1"),
        (lambda: run.kernels(top=0), "top=0 is no count"),
        (lambda: run.ops(top=2.5), "top=2.5 is no count"),  # type: ignore[arg-type]
        (lambda: run.export("xlsx", tmp_path), "to='xlsx' is no format; give one of csv"),  # type: ignore[arg-type]
    )
    for call, words in wrong:
        with pytest.raises(tracekit.UsageError) as caught:
            call()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_export_writes_what_the_frames_hold(tmp_path: Path) -> None:
    """A table exported as Parquet is the frame of the same name."""
    run = waiting_run()
    files = run.export("parquet", tmp_path / "out")
    stored = pd.read_parquet(next(f for f in files if f.name == "steps.parquet"))
    frame = run.steps()
    assert list(stored.columns) == list(frame.columns)
    assert stored["window_us"].tolist() == frame["window_us"].tolist()


def test_notes_are_a_tuple_of_notes(tmp_path: Path) -> None:
    """Notes are told one a line, the gravest first, and can be a frame."""
    whole = Kineto(0).kernel(0, 10).kernel(20, 30).text()
    (tmp_path / "rank0.json").write_bytes(whole[: len(whole) * 2 // 3])
    notes = tracekit.open(tmp_path).notes
    assert notes[0].code == "truncated"
    assert notes[0].severity != "info"
    assert repr(notes).splitlines()[0].startswith(f"{notes[0].severity}: the file is cut short")
    assert notes.to_frame()["code"].tolist() == [note.code for note in notes]
    assert repr(type(notes)()) == "no notes"
