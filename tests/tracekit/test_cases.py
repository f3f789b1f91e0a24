"""The hand-made cases of the corpus: every figure written in them, and what their words ask for."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tracekit.core.errors import NoTraceError, TracekitError, UsageError
from tracekit.io.sources import Limits
from tracekit.model.files import OpenOptions
from tracekit.model.run import TraceSet, open_run
from tracekit.report.document import document

Document = dict[str, Any]

ABSENT = "the corpus is absent: set TRACEKIT_CORPUS to the folder with traces/ and cases/"
#: cases that ask for a behaviour, and have tests of their own below
BEHAVIOUR = {"03", "13", "17", "18", "22", "59", "61", "66"}
#: cases of the dashboard and of the training runtime, which the analyzer has no part in
OTHER_PARTS = {"52", "54", "55", "57", "60"}
#: figures that only a browser can show
IN_A_BROWSER = {"script_executed", "polluted"}
#: words for what cannot be told, which the document writes as null
NOT_KNOWN = {"not known", "not recorded", "does not apply", "none"}
#: names of the cases, where the document has another
NAMES = {
    "comm_us_all": "comm_us",
    "device_comm_us": "comm_us",
    "exposed_us": "exposed_comm_us",
    "mem_us": "memory_us",
    "exposed_mem_us": "exposed_memory_us",
    "group_size": "size",
}


# -- the figures ------------------------------------------------------------------------------


class Case:
    """A case, opened as far as its figures ask for it."""

    def __init__(self, folder: Path, only: Path | None = None) -> None:
        self.folder, self._path = folder, only or folder
        self.made: list[Document] = []

    @cached_property
    def run(self) -> TraceSet:
        """The traces of the case."""
        return open_run([str(self._path)])

    @cached_property
    def found(self) -> Document:
        """The analysis of all of them."""
        return self._document()

    @property
    def rank(self) -> dict[str, Any]:
        """The only rank."""
        (row,) = self.found["ranks"]
        return dict(row)

    def look(self, key: str) -> Any:
        """The value of a figure, by the name the cases give it."""
        head, _, rest = key.partition(".")
        if not rest:
            return PLAIN[head](self)
        if found := re.fullmatch(r"rank(\d+)", head):
            return self._of_rank(int(found[1]), rest)
        if found := re.fullmatch(r"step(\d+)", head):
            (row,) = (s for s in self.found["steps"] if s["step"] == int(found[1]))
        elif found := re.fullmatch(r"group(\d+)", head):
            row = self.found["groups"][int(found[1]) - 1]
        elif found := re.fullmatch(r"c(\d+)", head):
            row = self.found["collectives"][int(found[1]) - 1]
        elif head in ("ag", "rs"):
            op = {"ag": "all_gather", "rs": "reduce_scatter"}[head]
            (row,) = (c for c in self.found["collectives"] if c["op"] == op)
        else:
            return ELSEWHERE[head](self, rest)
        name, _, rank = rest.partition(".rank")
        return row[name][rank] if rank else row[NAMES.get(rest, rest)]

    def _of_rank(self, rank: int, name: str) -> Any:
        (row,) = (r for r in self.found["ranks"] if r["rank"] == rank)
        if name == "comm_us_without_edge":
            return row["comm_us"] - row["edge_comm_us"]
        if name == "median_comm_us":
            lengths = [c["duration_us"][str(rank)] for c in self.found["collectives"]]
            return statistics.median(lengths)
        return row[NAMES.get(name, name)]

    def of_steady(self, name: str) -> Any:
        """A figure of what follows the first collective, which starts with the recording."""
        first, rank = self.found["collectives"][0], self.found["ranks"][0]
        begin = first["start_us"] + first["duration_us"]["0"]
        return self._first_of(self._document(time_range_us=(begin, rank["window_us"])), name)

    def of_range(self, name: str) -> Any:
        """A figure of the time that the case asks for."""
        low, high = map(float, (self.folder / "range.txt").read_text("utf-8").split())
        return self._first_of(self._document(time_range_us=(low, high)), name)

    def of_part(self, part: str, name: str) -> Any:
        """A figure of one file or folder of the case."""
        one = Case(self.folder, self.folder / part)
        self.made.append(one.found)
        return one.look(f"rank{one.rank['rank']}.{name}")

    def of_each(self, name: str) -> Any:
        """A figure that all files of the case must have in common."""
        files = [p.name for p in self.folder.iterdir() if p.name != "expected.txt"]
        (value,) = {self.of_part(file, name) for file in files}
        return value

    def _document(self, **chosen: Any) -> Document:
        self.made.append(document(self.run, **chosen))
        return self.made[-1]

    @staticmethod
    def _first_of(found: Document, name: str) -> Any:
        return found["ranks"][0][NAMES.get(name, name)]


def joined(values: list[Any]) -> str | None:
    """Values as the cases list them."""
    return ",".join(map(str, values)) or None


PLAIN: dict[str, Callable[[Case], Any]] = {
    "ranks": lambda c: joined([r["rank"] for r in c.found["ranks"]]),
    "steps": lambda c: joined([s["step"] for s in c.found["steps"]]),
    "rank": lambda c: c.rank["rank"],
    "world_size": lambda c: c.rank["world_size"],
    "host": lambda c: joined(sorted({r["host"] for r in c.found["ranks"]})),
    "pid": lambda c: joined(sorted({r["pid"] for r in c.found["ranks"]})),
    "range_us": lambda c: c.of_range("window_us"),
    "busy_us": lambda c: c.rank["window_us"] - c.rank["idle_us"],
    "utilisation_pct": lambda c: 100 - 100 * c.rank["idle_us"] / c.rank["window_us"],
    "overlap_pct": lambda c: c.rank["overlap_frac"],
    "cpu_busy_us": lambda c: c.rank["compute_us"],
    "sum_of_kernel_us_not_to_be_used": lambda c: sum(k["total_us"] for k in c.found["kernels"]),
    "gpu_events": lambda c: 0 if c.rank["timeline"] == "host" else c.rank["events"]["timed"],
    "cpu_events": lambda c: c.rank["events"]["timed"],
    "events_recovered": lambda c: c.rank["events"]["recovered"],
    "dropped_events": lambda c: c.rank["events"]["dropped"],
    "comm_kernels": lambda c: c.rank["events"]["comm"],
    "compute_kernels": lambda c: c.rank["events"]["compute"],
    "edge_collectives": lambda c: sum(r["edge"] for r in c.found["collectives"]),
    "distinct_comms_ids": lambda c: len({r["comms_id"] for r in c.found["collectives"]}),
    "collectives_without_fields": lambda c: sum(r["bytes"] is None for r in c.found["collectives"]),
    "file_bytes": lambda c: re.findall(r"ends at byte ([\d,]+)", note(c.found, "truncated"))[0],
}
ELSEWHERE: dict[str, Callable[[Case, str], Any]] = {
    "steady": Case.of_steady,
    "range": Case.of_range,
    "each_file": Case.of_each,
    "off": lambda c, name: c.of_part("off.json", name),
    "on": lambda c, name: c.of_part("on.json", name),
    "sessionA": lambda c, name: c.of_part("A", name),
    "sessionB": lambda c, name: c.of_part("B", name),
}


def note(found: Document, code: str) -> str:
    """The text of the only note of a kind."""
    (text,) = (n["text"] for n in found["notes"] if n["code"] == code)
    return str(text)


def figures_of(case: Path) -> dict[str, str]:
    """The figures written in a case: the lines ``key = value`` under ``figures:``."""
    text = (case / "expected.txt").read_text("utf-8")
    block = re.search(r"^figures:\n((?:  .*\n)+)", text, re.MULTILINE)
    pairs = [line.split("=", 1) for line in block[1].splitlines()] if block else []
    return {k.strip(): v.strip() for k, v in pairs if k.strip() not in IN_A_BROWSER}


def is_as_written(got: Any, want: str) -> bool:
    """Whether a value is the one a case states, to 1e-6."""
    if want in NOT_KNOWN:
        return got is None
    if want == "0 or not known":
        return got in (0, None)
    if isinstance(got, str):
        return got.replace(",", "") == want.replace(",", "")
    return type(got) in (int, float) and abs(got - float(want)) <= 1e-6


def broken_identities(found: Document) -> list[Any]:
    """Rows whose window is not the sum of its parts, to the nanosecond."""
    bad = []
    for row in [*found["ranks"], *found["steps"], *found["no_step"], *found["phases"]]:
        parts = [row[f"{p}_us"] for p in ("compute", "exposed_comm", "exposed_memory", "idle")]
        if row["window_us"] is None or None in parts:
            continue
        if round(1000 * row["window_us"]) != sum(round(1000 * p) for p in parts):
            bad.append(row)
    return bad


def folders(*kinds: set[str]) -> list[Any]:
    """All cases but those of some kinds; without a corpus one that is skipped and says why."""
    given = os.environ.get("TRACEKIT_CORPUS")
    if not given:
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="corpus-absent")]
    left_out = set[str]().union(*kinds)
    found = sorted(f for f in (Path(given) / "cases").iterdir() if f.is_dir())
    return [pytest.param(f, id=f.name) for f in found if f.name[:2] not in left_out]


@pytest.mark.parametrize("folder", folders(BEHAVIOUR, OTHER_PARTS))
def test_figures_of_a_case(folder: Path, tmp_path: Path) -> None:
    """Every figure that a case states is in the document, and what is not known is null."""
    want = figures_of(folder)
    case = Case(generated(folder, tmp_path) if (folder / "gen.py").exists() else folder)
    got = {key: case.look(key) for key in want}
    wrong = {k: (got[k], want[k]) for k in want if not is_as_written(got[k], want[k])}
    assert wrong == {}
    assert want, "a case without figures needs a test of its own"
    assert [row for found in case.made for row in broken_identities(found)] == []


def generated(folder: Path, tmp_path: Path, *arguments: str) -> Path:
    """A copy of a case in which its generator has run."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    for path in (copy, *copy.iterdir()):
        path.chmod(0o755)
    subprocess.run([sys.executable, str(copy / "gen.py"), *arguments], check=True, timeout=60)
    return copy


# -- the behaviour ----------------------------------------------------------------------------


def case(corpus: Path, number: str) -> Path:
    """The folder of a case."""
    (folder,) = (corpus / "cases").glob(f"{number}-*")
    return folder


def refusal(path: Path, kind: type[TracekitError], **options: Any) -> str:
    """What is said of something that cannot be opened; always one line."""
    with pytest.raises(kind) as caught:
        open_run([str(path)], options=OpenOptions(**options))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_an_interrupted_copy_is_named_and_the_rest_is_shown(corpus: Path) -> None:
    """A gzip file that ends early is one error in the notes; the other rank is analysed (03)."""
    folder = case(corpus, "03")
    found = document(open_run([str(folder)]))
    assert [r["rank"] for r in found["ranks"]] == [1]
    assert (found["ranks"][0]["window_us"], found["ranks"][0]["comm_us"]) == (20, 10)
    (error,) = (n for n in found["notes"] if n["severity"] == "error")
    assert error["file"] == str(folder / "rank0.json.gz")
    assert "ends early (got 0 bytes unpacked)" in error["text"]
    assert "copy it again" in error["text"]
    alone = refusal(folder / "rank0.json.gz", NoTraceError)
    assert "this gzip file ends early (got 0 bytes unpacked)" in alone


def test_two_files_of_one_rank_are_both_named(corpus: Path) -> None:
    """Two files of rank 0 stop with both names and the rank; either can be chosen (13)."""
    folder = case(corpus, "13")
    said = refusal(folder, UsageError)
    assert f"rank 0 is in {folder / 'a.json'} and {folder / 'b.json'}" in said
    assert "--capture" in said
    for number, name in ((1, "a.json"), (2, "b.json")):
        run = open_run([str(folder)], options=OpenOptions(capture=number))
        assert [r["file"] for r in document(run)["ranks"]] == [str(folder / name)]


def test_a_file_of_two_writers_is_refused(corpus: Path) -> None:
    """A file with two headers is not shown in part; the reason is given with a byte (17)."""
    said = refusal(case(corpus, "17") / "trace.json", NoTraceError)
    assert re.search(r"not valid JSON near byte \d+: two headers found", said)
    assert "was one path used by several ranks?" in said


def test_a_file_without_events_is_refused(corpus: Path, tmp_path: Path) -> None:
    """A file with names only is refused in words; beside a trace it is listed (18)."""
    folder = case(corpus, "18")
    assert "no timed events in this file" in refusal(folder / "trace.json", NoTraceError)
    shutil.copy(folder / "trace.json", tmp_path / "rank0.json")
    shutil.copy(case(corpus, "49") / "trace.json", tmp_path / "rank1.json")
    found = document(open_run([str(tmp_path / "rank*.json")]))
    assert [(Path(r["file"]).name, r["window_us"]) for r in found["ranks"]] == [("rank1.json", 60)]
    (error,) = (n for n in found["notes"] if n["severity"] == "error")
    assert (Path(error["file"]).name, "no timed events" in error["text"]) == ("rank0.json", True)


def test_two_headers_that_differ_are_both_named(corpus: Path) -> None:
    """Of two ``distributedInfo`` keys the first is used, and both ranks are said (22)."""
    folder = case(corpus, "22")
    found = document(open_run([str(folder)]))
    assert joined(re.findall(r"rank (\d+)", note(found, "two-distributed-infos"))) == "3,0"
    assert figures_of(folder) == {"rank_values_found": "3,0"}
    assert [r["rank"] for r in found["ranks"]] == [3]


def test_a_pickle_that_runs_code_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a hostile dump is executed; the good one beside it loads (59)."""
    monkeypatch.chdir(tmp_path)
    folder = case(corpus, "59")
    found = document(open_run([str(folder)]))
    assert list(tmp_path.rglob("PICKLE_CANARY*")) == []
    assert [(r["rank"], r["events"]["read"]) for r in found["ranks"]] == [(1, 2)]
    (error,) = (n for n in found["notes"] if n["severity"] == "error")
    assert error["file"] == str(folder / "nccl_trace_rank_0")
    assert "asks to import posix.mkdir" in error["text"]


def test_unpacking_stops_at_a_limit(corpus: Path, tmp_path: Path) -> None:
    """A small file with large content is refused, by size or by ratio, naming the limit (61)."""
    folder = generated(case(corpus, "61"), tmp_path, "80")
    bomb = folder / "bomb.json.gz"
    assert bomb.stat().st_size < 1 << 18
    said = refusal(bomb, NoTraceError, limits=Limits(unpacked_bytes=16 << 20))
    assert "unpacks to more than the limit of 0.015625 GiB" in said
    assert "unpacks to more than 250 times its size" in refusal(bomb, NoTraceError)


def dump(*entries: dict[str, Any]) -> bytes:
    """A flight-recorder dump."""
    return json.dumps({"version": "2.10", "pg_config": {}, "entries": list(entries)}).encode()


def entry(start_ns: int, num_ns: int, seq: int) -> dict[str, Any]:
    """A completed all-reduce of a dump."""
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": start_ns,
        "time_discovered_started_ns": start_ns,
        "time_discovered_completed_ns": start_ns + num_ns,
        "duration_ms": num_ns / 1e6,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
    }


@pytest.mark.parametrize("one_is_empty", [False, True])
def test_ranks_of_dumps_are_the_last_numbers_of_their_names(
    corpus: Path, tmp_path: Path, one_is_empty: bool
) -> None:
    """Host and rank in a dump's name are told apart; a dump without entries is listed (66)."""
    names = (case(corpus, "66") / "names.txt").read_text("utf-8").split()
    at = 10**18
    contents = [
        dump(entry(at, 9000, 1), entry(at + 20_000, 5000, 2)),
        dump() if one_is_empty else dump(entry(at + 2000, 7000, 1), entry(at + 20_000, 5000, 2)),
    ]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    found = document(open_run([str(tmp_path / "nccl*")]))
    ranks = joined([r["rank"] for r in found["ranks"]])
    assert ranks == figures_of(case(corpus, "66"))["ranks"]
    if one_is_empty:
        (empty,) = (n for n in found["notes"] if n["code"] == "no-entries")
        assert Path(empty["file"]).name == names[1]
        assert [c["ranks"] for c in found["collectives"]] == [[5], [5]]
    else:
        assert [c["last_rank"] for c in found["collectives"]] == [40, 5]
