"""Real traces of the corpus against figures of an independent calculation."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import numpy as np
import pytest

from tracekit.analysis.breakdown import Split, breakdown
from tracekit.analysis.stragglers import lateness_ns
from tracekit.core.errors import ReadError
from tracekit.io.registry import read_source
from tracekit.io.sources import Limits, Source
from tracekit.model.names import load
from tracekit.model.files import OpenOptions
from tracekit.model.run import TraceSet, open_run
from tracekit.model.trace import Trace
from tracekit.model.work import Work, work_of

FIGURES = (
    "window", "compute", "comm", "overlap", "exposed_comm", "memory", "exposed_memory", "idle",
)  # fmt: skip
#: of the window
TOLERANCE = 1e-5


def work(path: Path) -> Work:
    """The work of all devices of a file together, as the reference counts it."""
    table = read_source(Source(path), Limits())
    return work_of(Trace(0, str(path), table, load()))


def test_every_file_of_the_reference(corpus: Path) -> None:
    """Each figure of each real file is that of the reference, within 0.001 % of the window."""
    with open(corpus / "traces" / "reference.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == 61
    wrong = []
    for row in rows:
        found = work(corpus / "traces" / row["file"])
        no = np.zeros(len(found), dtype=bool)
        figures = breakdown(found, Split(found.start, no, no))
        for name in FIGURES:
            got, want = int(getattr(figures, name)[0]) / 1000, float(row[f"{name}_us"])
            if abs(got - want) > TOLERANCE * float(row["window_us"]):
                wrong.append(f"{row['file']} {name}: {got}, not {want}")
        if found.counts["dropped"] != int(row["num_dropped"]):
            wrong.append(f"{row['file']} dropped: {found.counts['dropped']}")
    assert wrong == []


#: per kernel class: lateness in ms by the rank that came last, and how many were matched
LATENESS = {
    "torchrec_sst_long_a2a_optimizer": {"SendRecv": ({2: 3034.9}, 12)},
    "torchrec_sst_long_a2a_optimizer_3": {
        "SendRecv": ({2: 79.7, 3: 0.9, 1: 0.5, 0: 0.0}, 16),
        "AllReduce": ({2: 59.1, 3: 1.6, 1: 0.4, 0: 0.0}, 15),
    },
    "torchrec_sst_long_a2a_optimizer_4": {
        "SendRecv": ({2: 105.3, 3: 0.3, 1: 0.2}, 15),
        "AllReduce": ({3: 0.9, 0: 0.8, 2: 0.1}, 15),
    },
    "torchrec_sst_long_a2a_optimizer_5_qcomm_run1": {
        "SendRecv": ({2: 84.0, 0: 1.5, 3: 1.2, 1: 0.3}, 16),
        "AllReduce": ({2: 40.4, 3: 3.1, 1: 1.4, 0: 0.1}, 14),
    },
    "torchrec_sst_long_a2a_optimizer_5_qcomm_run2": {
        "SendRecv": ({2: 53.3, 0: 2.4, 3: 1.3, 1: 0.1}, 15),
        "AllReduce": ({2: 36.3, 0: 1.2, 1: 0.3}, 12),
    },
    "torchrec_resnet18": {"SendRecv": ({1: 7.2}, 12)},
    "megatron_tp2": {"AllReduce": ({0: 48.2}, 13)},
}  # fmt: skip
#: rightly paired, the ends of a collective lie this close (median); paired wrong, 10 ms and more
MOST_APART_US = 100


def opened(corpus: Path, name: str) -> TraceSet:
    """A set of the corpus."""
    return open_run([str(corpus / "traces" / name)], options=OpenOptions(store=False))


@pytest.mark.parametrize("name", LATENESS)
def test_who_was_late_and_by_how_much(corpus: Path, name: str) -> None:
    """Ranks that lack leading collectives are paired right: the late one is late as it was."""
    run = opened(corpus, name)
    for kind, (late_ms, num_matched) in LATENESS[name].items():
        matched = [
            c
            for c in run.matching.collectives
            if kind in c.any.kernel and len(c.members) == len(run.ranks)
        ]
        assert len(matched) == num_matched
        apart = [c.end_spread for c in matched if c.end_spread is not None]
        assert statistics.median(apart) <= MOST_APART_US * 1000
        for rank in run.ranks:
            got = sum(lateness_ns(c) for c in matched if c.last_rank == rank) / 1e6
            assert abs(got - late_ms.get(rank, 0.0)) <= 1.0, (kind, rank, got)


def test_every_other_file_opens_or_says_what_it_is(corpus: Path) -> None:
    """Files of every kind are read, or refused in one line that says what they seem to be."""
    said = {}
    for path in sorted((corpus / "traces").rglob("*")):
        if not path.is_file() or path.suffix in (".md", ".csv", ".tsv"):
            continue
        try:
            table = read_source(Source(path), Limits())
        except ReadError as e:
            said[path.name] = e.what
            assert "\n" not in str(e)
            assert str(path) in str(e)
        else:
            assert len(table) > 0
    wanted = {
        "megatron__tp2__final.0.et": "Chakra execution trace",
        "megatron__tp2__pytorch_et_0.json.gz": "PyTorch execution trace",
        "param__linear_et.json.gz": "PyTorch execution trace",
        "pipit__cloverleaf-nsys__perlmutter-cloverleaf-cuda.sqlite": "Nsight Systems",
        "traces.otf2": "OTF2 archive",
        "pingpong.prj.0.log.gz": "Projections",
        "pp_rank_0.json.gz": "pipeline schedule dump",
        "config.json": "pipeline schedule dump",
    }
    for name, words in wanted.items():
        assert words in said[name], (name, said[name])
    odd = [name for name, what in said.items() if "neither JSON" in what]
    # parts of archives that nobody opens by themselves
    assert sorted(odd) == sorted(set(odd) & {"traces.def", "0.def", "1.def", "0.evt", "1.evt",
                                             "scorep.cfg", "pingpong.prj.sts", "pingpong.prj.projrc"})  # fmt: skip
