"""The hand-made cases of the corpus: every figure their authors worked out, and every refusal."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracekit.core.errors import NoTraceError, UsageError
from tracekit.model.files import OpenOptions
from tracekit.model.run import open_run
from tracekit.report.document import document

Document = dict[str, Any]

#: words for a figure that the document leaves null
UNKNOWN = ("not known", "not recorded", "does not apply", "none")
#: the cases' names for figures that the document calls otherwise
OTHER_NAMES = {
    "exposed_us": "exposed_comm_us", "mem_us": "memory_us", "exposed_mem_us": "exposed_memory_us",
    "comm_us_all": "comm_us", "device_comm_us": "comm_us", "group_size": "size",
}  # fmt: skip
#: figures that are about the input, or that are said to be of no use
NOT_OURS = {"file_bytes", "sum_of_kernel_us_not_to_be_used", "script_executed", "polluted"}

#: cases whose folder is opened as it is; every figure in expected.txt is compared
WHOLE = [
    "01", "02", "04", "05", "06", "07", "10", "11", "12", "14", "15", "19", "20", "24", "25", "26",
    "27", "28", "29", "31", "32", "33", "34", "35", "37", "38", "40", "41", "42", "44", "46", "48",
    "49", "50", "56", "58", "62", "63", "67",
]  # fmt: skip


def folder(corpus: Path, number: str) -> Path:
    """The folder of a case."""
    (found,) = (corpus / "cases").glob(f"{number}-*")
    return found


def expected(case: Path) -> dict[str, str]:
    """The figures of a case, as texts."""
    text = (case / "expected.txt").read_text("utf-8")
    block = re.search(r"^figures:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert block, f"{case.name} has no figures"
    lines = (line.strip().split(" = ", 1) for line in block[1].splitlines())
    return {key: value for key, value in lines if key not in NOT_OURS}


def analyse(path: Path, **chosen: Any) -> Document:
    """The document of a path."""
    return document(open_run([str(path)], options=OpenOptions(store=False)), **chosen)


# -- finding a figure in a document -------------------------------------------------------------


def rank_row(doc: Document, rank: int) -> dict[str, Any]:
    """The row of a rank."""
    (row,) = (r for r in doc["ranks"] if r["rank"] == rank)
    return dict(row)


def steady(doc: Document, case: Path) -> dict[str, Any]:
    """Rank 0 from the end of its edge collective on."""
    edge = next(c for c in doc["collectives"] if c["edge"])
    begin = edge["start_us"] + edge["duration_us"]["0"]
    return rank_row(analyse(case, time_range_us=(begin, doc["ranks"][0]["window_us"])), 0)


def single(doc: Document, key: str) -> Any:
    """A figure of the whole run."""
    first = doc["ranks"][0]
    events, collectives = first["events"], doc["collectives"]
    simple: dict[str, Callable[[], Any]] = {
        "ranks": lambda: ",".join(str(r["rank"]) for r in doc["ranks"]),
        "rank": lambda: first["rank"],
        "world_size": lambda: first["world_size"],
        "host": lambda: first["host"],
        "pid": lambda: first["pid"],
        "steps": lambda: ",".join(str(s["step"]) for s in doc["steps"]) or None,
        "events_recovered": lambda: events["recovered"],
        "dropped_events": lambda: events["dropped"],
        "comm_kernels": lambda: events["comm"],
        "compute_kernels": lambda: events["compute"],
        "gpu_events": lambda: 0 if first["timeline"] == "host" else events["timed"],
        "cpu_events": lambda: events["timed"],
        "cpu_busy_us": lambda: first["compute_us"],
        "busy_us": lambda: first["window_us"] - first["idle_us"],
        "utilisation_pct": lambda: 100 * (1 - first["idle_us"] / first["window_us"]),
        "overlap_pct": lambda: first["overlap_frac"],
        "distinct_comms_ids": lambda: len({c["comms_id"] for c in collectives}),
        "collectives_without_fields": lambda: sum(c["bytes"] is None for c in collectives),
        "edge_collectives": lambda: sum(c["edge"] for c in collectives),
    }
    return simple[key]()


def figure(doc: Document, key: str, case: Path) -> Any:
    """The value a document has for a figure of a case."""
    head, _, rest = key.partition(".")
    name = OTHER_NAMES.get(rest, rest)
    if found := re.fullmatch(r"rank(\d+)", head):
        row = rank_row(doc, int(found[1]))
        if name == "comm_us_without_edge":
            return row["comm_us"] - row["edge_comm_us"]
        if name == "median_comm_us":
            whole = (c["duration_us"][found[1]] for c in doc["collectives"] if not c["edge"])
            return statistics.median(whole)
        return row[name]
    if found := re.fullmatch(r"step(\d+)", head):
        return next(s for s in doc["steps"] if s["step"] == int(found[1]))[name]
    if found := re.fullmatch(r"group(\d+)", head):
        return doc["groups"][int(found[1]) - 1][name]
    if head == "steady":
        return steady(doc, case)[name]
    if not rest:
        return single(doc, key)
    row = collective_row(doc, head)
    if found := re.fullmatch(r"wait_us\.rank(\d+)", rest):
        return row["wait_us"][found[1]]
    return row[name]


def collective_row(doc: Document, label: str) -> dict[str, Any]:
    """A collective by its number, or by the two letters of its operation."""
    if label in ("ag", "rs"):
        op = {"ag": "all_gather", "rs": "reduce_scatter"}[label]
        return next(c for c in doc["collectives"] if c["op"] == op)
    return dict(doc["collectives"][int(label.removeprefix("c")) - 1])


def differs(got: Any, want: str) -> bool:
    """Whether a value is not the one that was worked out."""
    if want in UNKNOWN:
        return got is not None
    if want == "0 or not known":
        return got not in (0, None)
    if got is None or isinstance(got, str):
        return got != want
    return abs(float(got) - float(want)) > 1e-6 * max(1.0, abs(float(want)))


def faults(doc: Document, wanted: dict[str, str], case: Path) -> list[str]:
    """The figures that a document has wrong."""
    got = {key: figure(doc, key, case) for key in wanted}
    return [f"{k}: {got[k]}, not {want}" for k, want in wanted.items() if differs(got[k], want)]


# -- the cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", WHOLE)
def test_the_figures_of_a_case(corpus: Path, number: str) -> None:
    """Every figure of a hand-made case is the one its author worked out."""
    case = folder(corpus, number)
    wanted = expected(case)
    assert wanted
    assert faults(analyse(case), wanted, case) == []


@pytest.mark.parametrize("name", ["a.json", "b.json.gz", "c.zip"])
def test_case_23_content_under_a_wrong_name(corpus: Path, name: str) -> None:
    """Gzip, plain and zip give the same figures under names that lie."""
    case = folder(corpus, "23")
    wanted = {f"rank0.{k.partition('.')[2]}": v for k, v in expected(case).items()}
    assert faults(analyse(case / name), wanted, case) == []


@pytest.mark.parametrize("stem", ["off", "on"])
def test_case_64_prefetch(corpus: Path, stem: str) -> None:
    """With and without prefetching, what is hidden is counted as it is."""
    case = folder(corpus, "64")
    mine = {k: v for k, v in expected(case).items() if k.startswith(f"{stem}.")}
    wanted = {f"rank0.{k.partition('.')[2]}": v for k, v in mine.items()}
    assert faults(analyse(case / f"{stem}.json"), wanted, case) == []


def test_case_65_a_chosen_range(corpus: Path) -> None:
    """A range of 50 µs is cut at both borders and adds up to itself."""
    case = folder(corpus, "65")
    wanted = {k.replace("range.", "rank0."): v for k, v in expected(case).items()}
    assert wanted.pop("range_us") == "50"
    wanted["rank0.window_us"] = "50"
    found = analyse(case / "trace.json", time_range_us=(50.0, 100.0))
    assert faults(found, wanted, case) == []


def test_case_03_a_cut_archive(corpus: Path) -> None:
    """A gzip file that ends early is one error note; the other rank is shown."""
    found = analyse(folder(corpus, "03"))
    assert [r["rank"] for r in found["ranks"]] == [1]
    (note,) = (n for n in found["notes"] if n["severity"] == "error")
    assert re.search(r"rank0\.json\.gz: this gzip file ends early \(got [\d,]+ bytes", note["text"])


def test_case_13_the_same_rank_twice(corpus: Path) -> None:
    """Two files of one rank stop with both names."""
    with pytest.raises(UsageError, match=r"rank 0 is in .*a\.json and .*b\.json"):
        analyse(folder(corpus, "13"))


def test_case_17_two_writers(corpus: Path) -> None:
    """Mixed texts of several ranks are refused with the question about the path."""
    with pytest.raises(NoTraceError, match=r"byte [\d,]+: two headers found.*several ranks\?"):
        analyse(folder(corpus, "17"))


def test_case_18_nothing_timed(corpus: Path) -> None:
    """A file of names alone is refused as one without timed events."""
    with pytest.raises(NoTraceError, match="no timed events in this file"):
        analyse(folder(corpus, "18"))


def test_case_22_two_headers_in_one_file(corpus: Path) -> None:
    """A rank that is written twice is told with both values."""
    notes = {n["code"]: n["text"] for n in analyse(folder(corpus, "22"))["notes"]}
    assert "rank 3, then rank 0" in notes["two-distributed-infos"]
