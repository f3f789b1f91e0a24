"""Real traces of the corpus: their figures, their late ranks, and what is no trace at all."""

from __future__ import annotations

import csv
import os
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from tracekit.analysis.stragglers import lateness_ns
from tracekit.core.errors import NoTraceError
from tracekit.model.collective import Collective
from tracekit.model.files import OpenOptions
from tracekit.model.run import TraceSet, open_run
from tracekit.report.document import document

Row = dict[str, str]

ABSENT = "the corpus is absent: set TRACEKIT_CORPUS to the folder with traces/ and cases/"
FIGURES = (
    "window_us", "compute_us", "comm_us", "overlap_us", "exposed_comm_us", "memory_us",
    "exposed_memory_us", "idle_us",
)  # fmt: skip


def table(name: str, delimiter: str) -> list[Row]:
    """A table of the corpus; empty without one."""
    given = os.environ.get("TRACEKIT_CORPUS")
    if not given:
        return []
    with open(Path(given) / "traces" / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def each(rows: list[Any], names: list[str]) -> list[Any]:
    """A parameter per row; without a corpus one that is skipped and says why."""
    if not rows:
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="corpus-absent")]
    return [pytest.param(row, id=name) for row, name in zip(rows, names, strict=True)]


REFERENCE = table("reference.csv", ",")
INDEX = {row["file"]: row for row in table("INDEX.tsv", "\t")}


def opened(corpus: Path, path: str) -> TraceSet:
    """A file or folder of the traces."""
    return open_run([str(corpus / "traces" / path)], options=OpenOptions(store=False))


# -- the figures ------------------------------------------------------------------------------


@pytest.mark.parametrize("row", each(REFERENCE, [r["file"] for r in REFERENCE]))
def test_figures_agree_with_an_independent_calculation(corpus: Path, row: Row) -> None:
    """Every figure lies within 0.001 % of the window; work is counted as the reference does."""
    (rank,) = document(opened(corpus, row["file"]))["ranks"]
    apart = {name: abs(rank[name] - float(row[name])) for name in FIGURES}
    assert max(apart.values()) <= 1e-5 * float(row["window_us"]), apart
    parts = ("compute_us", "exposed_comm_us", "exposed_memory_us", "idle_us")
    assert rank["window_us"] == pytest.approx(sum(rank[p] for p in parts), abs=1e-6)
    if row["rank"]:
        assert rank["rank"] == int(row["rank"])
    events = rank["events"]
    counts = [events["comm"], events["memory"], events["dropped"]]
    assert counts == [int(row[f"num_{c}"]) for c in ("comm", "memory", "dropped")]
    assert events["compute"] + events["comm"] == int(row["num_kernels"])


def test_times_are_exact_to_the_nanosecond(corpus: Path) -> None:
    """A trace with ns resolution and a time base gives the reference's figures digit for digit."""
    (row,) = (r for r in REFERENCE if r["file"] == "hta_ns_resolution/rank0.json.gz")
    (rank,) = document(opened(corpus, row["file"]))["ranks"]
    assert {n: f"{rank[n]:.3f}" for n in FIGURES} == {n: row[n] for n in FIGURES}


# -- what is in the other files ---------------------------------------------------------------

#: what a refused file seems to be, by its name
REFUSED = (
    (r"\.et$", "a Chakra execution trace"),
    (r"_et(_\d+)?\.json\.gz$", "a PyTorch execution trace"),
    (r"\.sqlite$", "an SQLite database, probably an Nsight Systems export"),
    (r"^primus_pp/", "a pipeline schedule dump"),
    (r"traces\.otf2$", "an OTF2 archive"),
    (r"\.(def|evt)$", "part of an OTF2 archive"),
    (r"\.(log\.gz|sts)$", "a Charm++ Projections log"),
    (r"\.(md|cfg|projrc|csv|tsv)$", "neither JSON nor a flight-recorder dump"),
)


def other_files() -> list[str]:
    """The files of the traces folder without reference figures."""
    given = os.environ.get("TRACEKIT_CORPUS")
    if not given:
        return []
    folder = Path(given) / "traces"
    found = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    return sorted(set(found) - {r["file"] for r in REFERENCE})


@pytest.mark.parametrize("path", each(other_files(), other_files()))
def test_every_other_file_opens_or_is_named_for_what_it_is(corpus: Path, path: str) -> None:
    """A trace opens whole; anything else is refused in one line that says what it seems to be."""
    what = next((what for pattern, what in REFUSED if re.search(pattern, path)), None)
    if what is not None:
        with pytest.raises(NoTraceError) as caught:
            opened(corpus, path)
        said = str(caught.value)
        assert said.startswith(f"{corpus / 'traces' / path}: {what}")
        assert len(said.splitlines()) == 1
        return
    for rank in document(opened(corpus, path))["ranks"]:
        parts = ("compute_us", "exposed_comm_us", "exposed_memory_us", "idle_us")
        if rank["idle_us"] is not None:
            assert rank["window_us"] == pytest.approx(sum(rank[p] for p in parts), abs=1e-6)
        if path in INDEX and INDEX[path]["events"]:
            assert rank["events"]["read"] == int(INDEX[path]["events"])


def test_a_folder_of_foreign_files_is_named_for_what_it_is(corpus: Path) -> None:
    """Of a folder without a trace, the file whose kind is known stands for it."""
    with pytest.raises(NoTraceError, match=r"OTF2 archive .* \(and \d+ more files"):
        opened(corpus, "pipit")


def test_an_unterminated_array_is_recovered(corpus: Path) -> None:
    """A timeline whose array was never closed is read to its last event, and that is said."""
    path = "misc/byteps__mxnet-image-classification__timeline_worker.json.gz"
    found = document(opened(corpus, path))
    (text,) = (n["text"] for n in found["notes"] if n["code"] == "truncated")
    assert "cut short after 2,302 whole events" in text


def test_events_without_a_launch_are_kept(corpus: Path) -> None:
    """968 of 3,653 device events have no launch record; they count in the window, not in steps."""
    found = document(opened(corpus, "tl_mi300_resnet_ddp_r0of8"))
    events = found["ranks"][0]["events"]
    assert (events["unlinked"], events["timed"]) == (968, 3653)
    assert any(n["code"] == "unlinked" and "968 of 3,653" in n["text"] for n in found["notes"])
    in_steps = sum(s["num_work"] for s in found["steps"])
    assert (in_steps, found["no_step"][0]["num_work"]) == (3653 - 968, 968)


# -- who was late -----------------------------------------------------------------------------

RESNET, FIRST = "torchrec_resnet18", "torchrec_sst_long_a2a_optimizer"
#: set and kernel class: how many collectives all ranks share, and by the rank that came last the
#: sum of (last arrival - second-last arrival) in ms
LATENESS: dict[tuple[str, str], tuple[int, dict[int, float]]] = {
    (FIRST, "SendRecv"): (12, {2: 3034.9}),
    (f"{FIRST}_3", "SendRecv"): (16, {2: 79.7, 3: 0.9, 1: 0.5, 0: 0.0}),
    (f"{FIRST}_3", "AllReduce"): (15, {2: 59.1, 3: 1.6, 1: 0.4, 0: 0.0}),
    (f"{FIRST}_4", "SendRecv"): (15, {2: 105.3, 3: 0.3, 1: 0.2}),
    (f"{FIRST}_4", "AllReduce"): (15, {3: 0.9, 0: 0.8, 2: 0.1}),
    (f"{FIRST}_5_qcomm_run1", "SendRecv"): (16, {2: 84.0, 0: 1.5, 3: 1.2, 1: 0.3}),
    (f"{FIRST}_5_qcomm_run1", "AllReduce"): (14, {2: 40.4, 3: 3.1, 1: 1.4, 0: 0.1}),
    (f"{FIRST}_5_qcomm_run2", "SendRecv"): (15, {2: 53.3, 0: 2.4, 3: 1.3, 1: 0.1}),
    (f"{FIRST}_5_qcomm_run2", "AllReduce"): (12, {2: 36.3, 0: 1.2, 1: 0.3}),
    (RESNET, "SendRecv"): (12, {1: 7.2}),
}


def shared(run: TraceSet, kernel: str) -> list[Collective]:
    """Collectives of a kernel class in which every rank took part."""
    every = [c for c in run.matching.collectives if len(c.members) == len(run.ranks)]
    return [c for c in every if kernel in c.any.kernel]


@pytest.mark.parametrize(("name", "kernel"), sorted(LATENESS))
def test_unequal_counts_are_paired_rightly(corpus: Path, name: str, kernel: str) -> None:
    """Ranks with unequal numbers of collectives are paired as their ends say.

    The lateness of each rank is the independent calculation's to 1 ms, and the ends of a
    collective, as recorded, lie 26 to 115 µs apart (10 to 150 ms when paired from the front).
    """
    num_shared, late_ms = LATENESS[name, kernel]
    run = opened(corpus, name)
    found = shared(run, kernel)
    assert len(found) == num_shared
    sums = dict.fromkeys(run.ranks, 0.0)
    for c in found:
        assert c.last_rank is not None
        sums[c.last_rank] += lateness_ns(c) / 1e6
    apart = {r: abs(sums[r] - late_ms.get(r, 0.0)) for r in run.ranks}
    assert max(apart.values()) <= 1.0, sums
    ends = [[o.end for o in c.members.values()] for c in found]
    assert 26e3 <= statistics.median(max(e) - min(e) for e in ends) <= 115e3


@pytest.mark.parametrize("name", sorted({name for name, _ in LATENESS} - {RESNET}))
def test_the_rank_that_slept_is_the_straggler(corpus: Path, name: str) -> None:
    """Rank 2, which was late in every set, heads the table of stragglers with nearly all of it."""
    rows = document(opened(corpus, name))["stragglers"]
    assert rows[0]["rank"] == 2
    assert rows[0]["late_us"] > 0.9 * sum(r["late_us"] for r in rows)


def test_a_slow_rank_is_no_slow_network(corpus: Path) -> None:
    """Of rank 1's 48 ms of exposed communication nearly all is waiting for rank 0."""
    found = document(opened(corpus, "megatron_tp2"))
    zero, one = found["ranks"]
    assert one["comm_us"] == pytest.approx(48_428, abs=1)
    assert one["exposed_wait_us"] == pytest.approx(48_018, abs=1)
    assert one["exposed_wait_us"] > 0.99 * one["exposed_comm_us"]
    assert zero["exposed_wait_us"] < 5
    assert (zero["exposed_unknown_us"], one["exposed_unknown_us"]) == (0, 0)
    every = found["collectives"]
    assert [(c["op"], c["ranks"], c["edge"]) for c in every] == [("all_reduce", [0, 1], False)] * 13
    assert sum(c["wait_us"]["1"] for c in every) == pytest.approx(48_200, abs=100)
    (finding,) = (f for f in found["findings"] if f["code"] == "late-rank")
    assert finding["evidence"]["rank"] == 0


def test_gloo_groups_are_found_from_threads(corpus: Path) -> None:
    """Four CPU ranks: nine DDP all-reduces over all ranks, for which all wait for rank 2.

    gloo records no groups. Six further all-reduces are on the pairs 0, 1 and 2, 3, three
    all-gathers on all; sends and receives tell no peer.
    """
    found = document(opened(corpus, "generated/gloo_ddp_4_slow2"))
    assert any(n["code"] == "groups-from-threads" for n in found["notes"])
    # the dumps beside the traces are left out, and so is what could be said of them
    of_dumps = [n["code"] for n in found["notes"] if "fr_gloo" in n["file"]]
    assert of_dumps == ["flight-recorder-left-out"]
    by_op = {op: [c for c in found["collectives"] if c["op"] == op] for op in ("all_reduce",)}
    everybody = [c for c in by_op["all_reduce"] if c["ranks"] == [0, 1, 2, 3]]
    assert [(c["last_rank"], c["bytes"], c["complete"]) for c in everybody] == (
        [(2, 2_101_248, True)] * 9
    )
    pairs = sorted(c["ranks"] for c in by_op["all_reduce"] if len(c["ranks"]) == 2)
    assert pairs == [[0, 1]] * 3 + [[2, 3]] * 3
    gathers = [c for c in found["collectives"] if c["op"] == "all_gather"]
    assert [c["ranks"] for c in gathers] == [[0, 1, 2, 3]] * 3
    assert found["stragglers"][0]["rank"] == 2
    assert found["unmatched"] == {"0": 3, "1": 3, "2": 0, "3": 0}
