"""Promises of the export: tracks and tables say what the analysis says; it is whole or absent."""

from __future__ import annotations

import csv
import gzip
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tracekit.core.errors import TracekitError, UsageError
from tracekit.model.run import TraceSet, open_run
from tracekit.report.document import document
from tracekit.report.export import export
from tracekit.report.tables import TABLES

REDUCE = collective(elems=250_000)  # 1 MB
TICK = 7  # rank 1's clock is ahead by so many us
Format = Literal["csv", "parquet", "perfetto"]


def pair() -> TraceSet:
    """Rank 0 waits 100 us for rank 1; times in us on rank 0's clock.

    Rank 0: compute 0..100, all-reduce 100..250, compute 220..300, copy 310..320, all-reduce
    340..390; launched in step 5, but for the last. Rank 1: compute 0..200, all-reduces 200..250
    and 340..390.
    """
    first = Kineto(0, 2, host_name="node-a").step(5, 0, 60)
    first.kernel(0, 100, launched=1).comm(100, 250, launched=2, **REDUCE)
    first.kernel(220, 300, launched=3).copy(310, 320, launched=4, bytes=4096)
    first.comm(340, 390, launched=70, **REDUCE)
    second = Kineto(1, 2, host_name="node-b")
    second.kernel(0 + TICK, 200 + TICK)
    second.comm(200 + TICK, 250 + TICK, **REDUCE).comm(340 + TICK, 390 + TICK, **REDUCE)
    return run_of(first, second)


# -- perfetto ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slice:
    """A slice of the file, times in ns."""

    start: int
    end: int
    name: str
    args: dict[str, Any]


@dataclass
class Shown:
    """A Perfetto file as its reader sees it."""

    processes: dict[int, str]
    tracks: dict[tuple[int, str], list[Slice]]
    flows: dict[int, list[tuple[str, int, int]]]  # phase, pid, start of the slice it binds to
    about: dict[str, Any]

    def spans(self, rank: int, track: str) -> list[tuple[int, int, str]]:
        """Slices of a track in µs."""
        found = self.tracks[rank, track]
        return [(s.start // 1000, s.end // 1000, s.name) for s in found]


def ns(written: str) -> int:
    """Exact ns of µs as written with three decimals."""
    whole, part = written.split(".")
    assert len(part) == 3
    return int(whole) * 1000 + int(part)


def read(path: Path) -> Shown:
    """Read an export by the rules of ui.perfetto.dev, and check that it drops nothing."""
    content = path.read_bytes()
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    made = json.loads(text, parse_float=str)
    events = made["traceEvents"]
    named = [e for e in events if e["ph"] == "M"]
    shown = Shown({}, {}, {}, made["otherData"])
    shown.processes = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
    titles = {e["tid"]: (e["pid"], e["args"]["name"]) for e in named if e["name"] == "thread_name"}
    assert sorted(titles) == sorted({e["tid"] for e in events if e["ph"] == "X"})
    assert not titles.keys() & shown.processes.keys(), "a thread would be taken for the main one"
    at: dict[int, Slice] = {}
    for e in events:
        if e["ph"] == "X":
            start = ns(e["ts"])
            found = Slice(start, start + ns(e["dur"]), e["name"], e.get("args", {}))
            before = at.get(e["tid"])
            assert before is None or before.end <= found.start, "the viewer would drop one"
            assert titles[e["tid"]][0] == e["pid"]
            at[e["tid"]] = found
            shown.tracks.setdefault(titles[e["tid"]], []).append(found)
        elif e["ph"] in "stf":
            bound = at[e["tid"]]
            assert ns(e["ts"]) == bound.start, "an arrow binds to the slice written before it"
            shown.flows.setdefault(e["id"], []).append((e["ph"], e["pid"], bound.start))
    return shown


def tracks_of(run: TraceSet, folder: Path) -> Shown:
    """A run exported and read again."""
    (path,) = export(run, "perfetto", folder / "tracks.json")
    return read(path)


def test_tracks_of_a_rank_in_their_order(tmp_path: Path) -> None:
    """Steps are on top, then roles, exposed time, collectives and the streams themselves."""
    shown = tracks_of(pair(), tmp_path)
    assert shown.processes == {0: "rank 0 (node-a)", 1: "rank 1 (node-b)"}
    assert [name for rank, name in shown.tracks if rank == 0] == [
        "steps (host)",
        "steps (work)",
        "compute",
        "communication",
        "memory copies",
        "exposed communication",
        "exposed memory copies",
        "idle",
        "collectives: group 0 [0,1]",
        "stream 7",
        "stream 20",
        "stream 30",
    ]


def test_instants_by_hand(tmp_path: Path) -> None:
    """Roles, waiting, transfer, lone copies and idle time lie where they were put."""
    shown = tracks_of(pair(), tmp_path)
    assert shown.spans(0, "compute") == [(0, 100, "compute"), (220, 300, "compute")]
    assert shown.spans(0, "communication") == [
        (100, 250, "communication"),
        (340, 390, "communication"),
    ]
    assert shown.spans(0, "memory copies") == [(310, 320, "memory copies")]
    assert shown.spans(0, "exposed communication") == [
        (100, 200, "waiting for a late rank"),
        (200, 220, "moving bytes"),
        (340, 390, "moving bytes"),
    ]
    assert shown.spans(0, "exposed memory copies") == [(310, 320, "exposed memory copies")]
    assert shown.spans(0, "idle") == [(300, 310, "idle"), (320, 340, "idle")]


def test_all_ranks_share_one_clock(tmp_path: Path) -> None:
    """The clock difference of rank 1 is taken out, so collectives end together."""
    shown = tracks_of(pair(), tmp_path)
    assert shown.spans(1, "compute") == [(0, 200, "compute")]
    assert shown.spans(1, "communication") == [
        (200, 250, "communication"),
        (340, 390, "communication"),
    ]
    assert shown.about["range_zero_us"] == "0.0"
    assert shown.about["ranks_with_unknown_clock"] == []


def test_collectives_carry_their_figures(tmp_path: Path) -> None:
    """A collective's slice says who waited, for whom, and how fast it was."""
    shown = tracks_of(pair(), tmp_path)
    first, second = shown.tracks[0, "collectives: group 0 [0,1]"]
    assert (first.start, first.end, first.name) == (100_000, 250_000, "all_reduce")
    assert first.args == {
        "collective": 0,
        "op": "all_reduce",
        "group": "0",
        "size": 2,
        "ranks": "0,1",
        "message_bytes": 1_000_000,
        "dtype": "Float",
        "wait_us": "100.0",
        "transfer_us": "50.0",
        "start_skew_us": "100.0",
        "end_spread_us": "0.0",
        "last_rank": 1,
        "algbw_GBps": "20.0",
        "busbw_GBps": "20.0",  # 1 MB in 50 us; 2 (n - 1) / n = 1
        "match": "order",
        "complete": True,
        "edge": False,
        "kernel": ALL_REDUCE,
    }
    assert second.args["wait_us"] == "0.0"
    assert shown.tracks[1, "collectives: group 0 [0,1]"][0].args["wait_us"] == "0.0"


def test_streams_hold_the_work_itself(tmp_path: Path) -> None:
    """Kernels and copies keep their names, steps, links and bytes."""
    shown = tracks_of(pair(), tmp_path)
    assert shown.spans(0, "stream 7") == [(0, 100, "gemm"), (220, 300, "gemm")]
    (copy,) = shown.tracks[0, "stream 30"]
    assert copy.args == {"step": 5, "bytes": 4096, "correlation": 4}
    (kernel, _) = shown.tracks[0, "stream 20"]
    assert kernel.name == ALL_REDUCE
    assert (kernel.args["step"], kernel.args["collective"], kernel.args["wait_us"]) == (
        5,
        0,
        "100.0",
    )


def test_steps_carry_their_figures(tmp_path: Path) -> None:
    """A step is shown as annotated, and as the span of its own work with the figures of it."""
    shown = tracks_of(pair(), tmp_path)
    assert shown.spans(0, "steps (host)") == [(0, 60, "step 5")]
    (own,) = shown.tracks[0, "steps (work)"]
    assert (own.start, own.end, own.name) == (0, 320_000, "step 5")
    row = document(pair())["steps"][0]
    keys = [key for key in own.args if key.endswith("_us")]
    assert {key: float(own.args[key]) for key in keys} == {key: row[key] for key in keys}
    assert (own.args["window_us"], own.args["exposed_wait_us"]) == ("320.0", "100.0")


def test_arrows_lead_from_the_first_to_the_last(tmp_path: Path) -> None:
    """Each matched collective has one flow that visits every member in order of arrival."""
    files = [Kineto(r, 3) for r in range(3)]
    reduce = collective(elems=8, ranks=(0, 1, 2))
    for rank, arrival in enumerate((20, 30, 10)):
        files[rank].kernel(0, 5).comm(arrival, 50, **reduce).comm(60, 70, **reduce)
    shown = tracks_of(run_of(*files), tmp_path)
    assert sorted(shown.flows) == [1, 2]
    by_time = {flow: sorted(e, key=lambda x: x[2]) for flow, e in shown.flows.items()}
    assert by_time[1] == [("s", 2, 10_000), ("t", 0, 20_000), ("f", 1, 30_000)]
    # those that arrive together go by rank, the order in which the file has them
    assert shown.flows[2] == [("s", 0, 60_000), ("t", 1, 60_000), ("f", 2, 60_000)]


def test_single_collectives_have_no_arrow(tmp_path: Path) -> None:
    """What found no partner is shown, and leads nowhere."""
    run = run_of(Kineto(0, 2).kernel(0, 10).comm(10, 20, **REDUCE))
    shown = tracks_of(run, tmp_path)
    (alone,) = shown.tracks[0, "collectives: group 0 [0,1]"]
    assert (alone.args["match"], shown.flows) == ("single", {})
    assert shown.spans(0, "exposed communication") == [(10, 20, "waiting or moving: not known")]


def test_kernels_that_overlap_are_all_shown(tmp_path: Path) -> None:
    """A kernel that starts before its predecessor ends goes to a second lane of the stream."""
    shown = tracks_of(run_of(Kineto(0).kernel(0, 10).kernel(8, 20).kernel(20, 30)), tmp_path)
    assert shown.spans(0, "stream 7") == [(0, 10, "gemm"), (20, 30, "gemm")]
    assert shown.spans(0, "stream 7 (2)") == [(8, 20, "gemm")]


def test_times_keep_every_nanosecond(tmp_path: Path) -> None:
    """19-digit times lose nothing on the way."""
    base = 1_760_000_000_123_456_789
    file = Kineto(0, unit_ns=1).kernel(base, base + 3).kernel(base + 1001, base + 2003)
    shown = tracks_of(run_of(file), tmp_path)
    found = shown.tracks[0, "stream 7"]
    assert [(s.start, s.end) for s in found] == [(0, 3), (1001, 2003)]


def test_steps_before_the_first_work_are_not_negative(tmp_path: Path) -> None:
    """The file begins with the first step, and says where the zero of --range lies."""
    run = run_of(Kineto(0).step(1, 100, 300).kernel(150, 350, launched=120))
    shown = tracks_of(run, tmp_path)
    assert shown.spans(0, "steps (host)") == [(0, 200, "step 1")]
    assert shown.spans(0, "compute") == [(50, 250, "compute")]
    assert shown.about["range_zero_us"] == "50.0"


def test_a_clock_of_another_day_is_brought_near(tmp_path: Path) -> None:
    """A rank that shares no collective and lies days apart is shown from the start, and said so."""
    day = 86_400_000_000
    run = run_of(Kineto(0, 2).kernel(10, 20), Kineto(1, 2).kernel(day, day + 5))
    shown = tracks_of(run, tmp_path)
    assert shown.processes == {0: "rank 0", 1: "rank 1, clock unknown"}
    assert (shown.spans(0, "stream 7"), shown.spans(1, "stream 7")) == (
        [(0, 10, "gemm")],
        [(0, 5, "gemm")],
    )
    assert shown.about["range_zero_us"] is None


def test_host_runs_show_their_threads(tmp_path: Path) -> None:
    """Without a device, tracks are threads, called by the names the file gives them."""
    file = Kineto(0).op(0, 10, "aten::mm", tid=5).mark(4, 20, "gloo:all_reduce", tid=6)
    file.raw('{"ph":"M","name":"thread_name","pid":4242,"tid":6,"args":{"name":"gloo loop"}}')
    shown = tracks_of(run_of(file), tmp_path)
    assert shown.spans(0, "thread 5") == [(0, 10, "aten::mm")]
    assert shown.spans(0, "gloo loop 6") == [(4, 20, "gloo:all_reduce")]


def test_names_from_traces_stay_text(tmp_path: Path) -> None:
    """Markup and quotes in names neither break the file nor change."""
    name = '</script><img onerror="x">\\'
    shown = tracks_of(run_of(Kineto(0, host_name=name).kernel(0, 1, name)), tmp_path)
    assert shown.processes[0] == f"rank 0 ({name})"
    assert shown.spans(0, "stream 7") == [(0, 1, name)]


def made_up(seed: int) -> TraceSet:
    """Two ranks with random work on several streams, and collectives of which some match."""
    draw = np.random.default_rng(seed)
    files = []
    for rank in range(2):
        file = Kineto(rank, 2, unit_ns=1)
        for start in np.sort(draw.integers(0, 10_000, 30)).tolist():
            end = start + int(draw.integers(1, 900))
            file.kernel(start, end, stream=int(draw.integers(1, 4)))
        for start in np.sort(draw.integers(0, 10_000, 8)).tolist():
            file.comm(start, start + int(draw.integers(1, 1500)), **REDUCE)
        for start in draw.integers(0, 10_000, 5).tolist():
            file.copy(start, start + int(draw.integers(1, 300)))
        files.append(file)
    return run_of(*files)


@pytest.mark.parametrize("seed", range(8))
def test_lanes_add_up_to_the_figures(seed: int, tmp_path: Path) -> None:
    """Exposed lanes and roles have exactly the lengths the analysis reports, whatever overlaps."""
    run = made_up(seed)
    shown = tracks_of(run, tmp_path)
    for row in document(run)["ranks"]:
        length: dict[str, int] = {}
        for (rank, track), held in shown.tracks.items():
            if rank == row["rank"]:
                for s in held:
                    for key in {track, s.name}:
                        length[key] = length.get(key, 0) + s.end - s.start
        expected = {
            "compute": row["compute_us"],
            "communication": row["comm_us"],
            "memory copies": row["memory_us"],
            "exposed communication": row["exposed_comm_us"],
            "waiting for a late rank": row["exposed_wait_us"],
            "moving bytes": row["exposed_transfer_us"],
            "waiting or moving: not known": row["exposed_unknown_us"],
            "exposed memory copies": row["exposed_memory_us"],
            "idle": row["idle_us"],
        }
        found = {key: length.get(key, 0) / 1000 for key in expected}
        assert found == expected
    flows = [[phase for phase, _, _ in events] for events in shown.flows.values()]
    matched = [c for c in run.matching.collectives if len(c.members) > 1]
    assert sorted(map(sorted, flows)) == [["f", "s"]] * len(matched)


def test_real_traces_lose_no_slice(corpus: Path, tmp_path: Path) -> None:
    """On a real job all work is shown, all collectives are matched by arrows, lanes add up."""
    run = open_run([str(corpus / "traces" / "torchrec_sst_long_a2a_optimizer_3")])
    shown = tracks_of(run, tmp_path)
    rows = document(run)["ranks"]
    for row in rows:
        held = {t: s for (rank, t), s in shown.tracks.items() if rank == row["rank"]}
        streams = sum(len(s) for t, s in held.items() if t.startswith("stream "))
        assert streams == row["events"]["timed"]
        exposed = sum(s.end - s.start for s in held["exposed communication"])
        assert exposed / 1000 == row["exposed_comm_us"]
    assert len(shown.flows) == 32
    assert sum(map(len, shown.flows.values())) == sum(
        len(c.members) for c in run.matching.collectives
    )


# -- tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_one_file_per_table(to: Format, tmp_path: Path) -> None:
    """Every table has its file with all its columns, also those without rows."""
    written = export(pair(), to, tmp_path / "new" / "out")
    assert written == [tmp_path / "new" / "out" / f"{name}.{to}" for name in TABLES]
    assert sorted((tmp_path / "new" / "out").iterdir()) == sorted(written)
    for path in written:
        columns = [c.name for c in TABLES[path.stem]]
        if to == "csv":
            assert path.read_text().splitlines()[0] == ",".join(columns)
        else:
            assert pq.read_schema(path).names == columns


def test_tables_say_what_the_document_says(tmp_path: Path) -> None:
    """Rows and figures are those of the analysis, to the last digit."""
    run = pair()
    made = document(run)
    export(run, "parquet", tmp_path / "out")
    tables = {n: pq.read_table(tmp_path / "out" / f"{n}.parquet").to_pylist() for n in TABLES}
    for name in ("phases", "groups", "operations", "stragglers", "kernels", "notes"):
        assert tables[name] == made[name], name
    missing = dict.fromkeys(("step", "host_us", "lead_us", "period_us"))
    assert tables["steps"] == [*made["steps"], *(missing | row for row in made["no_step"])]
    assert [row["step"] for row in tables["steps"]] == [5, None]
    ranks = [{k: v for k, v in row.items() if k != "events"} for row in made["ranks"]]
    plain = [
        {k: v for k, v in row.items() if not k.startswith("events_")} for row in tables["ranks"]
    ]
    assert plain == ranks
    assert [row["events_read"] for row in tables["ranks"]] == [11, 3]
    found = [json.loads(row.pop("evidence")) for row in tables["findings"]]
    assert found == [row["evidence"] for row in made["findings"]]


def test_every_figure_has_a_column() -> None:
    """What the document gains must not be lost on the way to the tables."""
    made = document(pair())
    for name in ("ranks", "steps", "groups", "operations", "collectives", "stragglers", "kernels"):
        keys = {key for row in made[name] for key in row}
        columns = {c.name for c in TABLES[name]}
        in_other_form = {"events", "duration_us", "wait_us"} if name != "stragglers" else set()
        assert keys - columns <= in_other_form, name


def test_members_join_their_collectives(tmp_path: Path) -> None:
    """One row per collective and rank: when it came, how long it waited, whether it was last."""
    export(pair(), "csv", tmp_path / "out")
    with open(tmp_path / "out" / "members.csv", newline="") as file:
        found = list(csv.reader(file))
    assert found == [
        ["collective", "rank", "start_us", "duration_us", "wait_us", "before_last_us", "is_last"],
        ["0", "0", "100.0", "150.0", "100.0", "100.0", "false"],
        ["0", "1", "200.0", "50.0", "0.0", "0.0", "true"],
        ["1", "0", "340.0", "50.0", "0.0", "0.0", "true"],
        ["1", "1", "340.0", "50.0", "0.0", "0.0", "false"],
    ]
    with open(tmp_path / "out" / "collectives.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["collective"], r["ranks"], r["bytes"], r["transfer_us"]) for r in rows] == [
        ("0", "0 1", "1000000", "50.0"),
        ("1", "0 1", "1000000", "50.0"),
    ]


def test_names_from_traces_are_no_formulas(tmp_path: Path) -> None:
    """A kernel called like a formula is harmless in a spreadsheet, and itself in Parquet."""
    name = '=HYPERLINK("http://x")'
    run = run_of(Kineto(0).kernel(0, 10, name))
    export(run, "csv", tmp_path / "csv")
    export(run, "parquet", tmp_path / "parquet")
    with open(tmp_path / "csv" / "kernels.csv", newline="") as file:
        assert next(csv.DictReader(file))["name"] == f"'{name}"
    assert pq.read_table(tmp_path / "parquet" / "kernels.parquet")["name"].to_pylist() == [name]


# -- what is already there --------------------------------------------------------------------


@pytest.mark.parametrize("to", ["csv", "parquet", "perfetto"])
def test_own_exports_are_replaced(to: Format, tmp_path: Path) -> None:
    """The same command may run twice; the second result stands, and nothing is left over."""
    out = tmp_path / "out.json.gz" if to == "perfetto" else tmp_path / "out"
    export(run_of(Kineto(0).kernel(0, 10)), to, out)
    written = export(pair(), to, out)
    again = [path.read_bytes() for path in written]
    assert export(pair(), to, out) == written
    assert [path.read_bytes() for path in written] == again
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted(written)


def test_tables_of_both_formats_share_a_folder(tmp_path: Path) -> None:
    """CSV beside Parquet is no foreign content."""
    export(pair(), "csv", tmp_path / "out")
    export(pair(), "parquet", tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 2 * len(TABLES)


@pytest.mark.parametrize("name", ["notes.txt", "ranks.csv", "ranks.parquet", ".hidden"])
def test_folders_of_other_content_are_left_alone(name: str, tmp_path: Path) -> None:
    """Not even a file of a table's name is replaced when an export did not write it."""
    (tmp_path / name).write_text("rank,mine\n")
    with pytest.raises(UsageError) as refused:
        export(pair(), "csv", tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: holds {name}, which no export of tracekit wrote; nothing was changed; "
        "give a new or an empty folder"
    )
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "rank,mine\n")]


def test_tables_do_not_replace_a_file(tmp_path: Path) -> None:
    """A file where the folder should be is refused."""
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="a file, where tables need a folder"):
        export(pair(), "csv", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_tracks_do_not_replace_other_files(tmp_path: Path) -> None:
    """A trace at that name, the input itself perhaps, stays as it is."""
    path = Kineto(0).kernel(0, 10).write(tmp_path / "rank0.json")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="exists and is no Perfetto export of tracekit"):
        export(open_run([str(path)]), "perfetto", path)
    assert path.read_bytes() == before


def test_tracks_need_the_name_of_a_file(tmp_path: Path) -> None:
    """A folder is refused with an example of what to give."""
    with pytest.raises(UsageError) as refused:
        export(pair(), "perfetto", tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: a folder, where --to perfetto writes one file; give a file name such as "
        f"{tmp_path}/run.perfetto.json.gz"
    )
    for folder in (".", "/", ".."):
        with pytest.raises(UsageError, match="a folder, where --to perfetto writes one file"):
            export(pair(), "perfetto", Path(folder))


@pytest.mark.parametrize(
    ("given", "made", "packed"),
    [
        ("a.json", "a.json", False),
        ("a.json.gz", "a.json.gz", True),
        ("a.b", "a.b.json.gz", True),
        ("sub/a", "sub/a.json.gz", True),
    ],
)
def test_the_name_says_how_tracks_are_packed(
    given: str, made: str, packed: bool, tmp_path: Path
) -> None:
    """.json is plain text, everything else gzip under a name that says so."""
    assert export(pair(), "perfetto", tmp_path / given) == [tmp_path / made]
    assert ((tmp_path / made).read_bytes()[:2] == b"\x1f\x8b") is packed
    assert read(tmp_path / made).processes.keys() == {0, 1}


def test_an_empty_file_may_be_filled(tmp_path: Path) -> None:
    """What mktemp made beforehand is no content."""
    (tmp_path / "a.json").touch()
    assert export(pair(), "perfetto", tmp_path / "a.json") == [tmp_path / "a.json"]


# -- trouble ----------------------------------------------------------------------------------


@contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("to", ["csv", "parquet", "perfetto"])
def test_nothing_half_written_stays(to: Format, tmp_path: Path) -> None:
    """When the disk is full there is one line about it and no file, not even a folder."""
    out = tmp_path / "new" / ("a.json" if to == "perfetto" else "tables")
    with full_disk(600), pytest.raises(TracekitError) as refused:
        export(made_up(0), to, out)
    assert str(refused.value) == (
        f"{out}: cannot be written (File too large); free some space or give another place"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", ["csv", "perfetto"])
def test_the_earlier_export_survives_a_full_disk(to: Format, tmp_path: Path) -> None:
    """What stands under the final names is whole, before and after."""
    out = tmp_path / "a.json" if to == "perfetto" else tmp_path / "tables"
    written = export(pair(), to, out)
    before = [path.read_bytes() for path in written]
    with full_disk(600), pytest.raises(TracekitError, match="File too large"):
        export(made_up(0), to, out)
    assert [path.read_bytes() for path in written] == before
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(".")]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A file in the way of a folder is one line, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TracekitError, match=r"file/out: cannot be written \(Not a directory\)"):
        export(pair(), "csv", tmp_path / "file" / "out")
