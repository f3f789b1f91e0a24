"""What the timeline is told of a run: lanes, times, bins, details, searches, flows."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tests.tracekit.plot.blocks import Block, read
from tracekit.analysis.overview import overview
from tracekit.core.errors import UsageError
from tracekit.model.run import TraceSet
from tracekit.plot import timeline as timeline_module
from tracekit.plot.lanes import DRAWN
from tracekit.plot.timeline import Timeline

BASE_NS = 1_700_000_000_000_000_000


def shown(run: TraceSet, *args: Any, **more: Any) -> Block:
    """What a block of the run holds."""
    return read(Timeline(run).block(*args, **more), DRAWN)


def nested() -> Kineto:
    """A step with operators two deep, a launch, two kernels and an all-reduce; times in µs."""
    made = Kineto(0, 1, baseTimeNanoseconds=BASE_NS)
    made.step(3, 0, 100).op(1, 50, "aten::linear").op(2, 40, "aten::mm")
    made.kernel(10, 20, "gemm", launched=5).kernel(30, 60, "gemm2", launched=6)
    made.comm(50, 90, ALL_REDUCE, **collective(elems=1000, ranks=[0]))
    return made


def two_ranks(ahead_us: int = 0) -> TraceSet:
    """Two ranks and three all-reduces; rank 1's clock is ahead, and it comes last by 5 µs."""
    files = []
    for rank, late, clock in ((0, 0, 0), (1, 5, ahead_us)):
        made = Kineto(rank, 2, baseTimeNanoseconds=BASE_NS)
        made.kernel(clock, clock + 1, "first")
        for n in range(3):
            at = 100 * (n + 1) + clock
            made.comm(at + late, at + 20, ALL_REDUCE, **collective(elems=256, seq=n))
        files.append(made)
    return run_of(*files)


def test_lanes_hold_what_was_recorded() -> None:
    """Streams and threads have their rows, names, roles and exact times from the first work."""
    found = {e.name: e for e in shown(run_of(nested())).events()}
    assert (found["gemm"].start, found["gemm"].dur, found["gemm"].role) == (0, 10_000, "compute")
    assert (found["gemm2"].start, found["gemm2"].lane) == (20_000, "stream 7")
    assert (found[ALL_REDUCE].start, found[ALL_REDUCE].role) == (40_000, "comm")
    assert found[ALL_REDUCE].lane == "stream 20"
    host = [(n, found[n].depth, found[n].role) for n in ("ProfilerStep#3", "aten::linear")]
    assert host == [("ProfilerStep#3", 0, "annotation"), ("aten::linear", 1, "operator")]
    assert found["aten::mm"].depth == 2
    assert found["cudaLaunchKernel"].role == "launch"
    assert found["ProfilerStep#3"].start == -10_000


def test_time_lane_adds_up_to_the_breakdown() -> None:
    """The lane of where the time goes divides the window exactly as the analysis does."""
    run = two_ranks()
    figures = {row["rank"]: row for row in overview(run).ranks}
    events = shown(run).events(("time",))
    names = {"wait": "exposed_wait", "transfer": "exposed_transfer", "unknown": "exposed_unknown"}
    for rank, row in figures.items():
        mine = [e for e in events if e.rank == rank]
        assert sum(e.dur for e in mine) / 1000 == row["window_us"]
        for role in ("compute", "wait", "transfer", "unknown", "idle"):
            length = sum(e.dur for e in mine if e.role == role)
            assert length / 1000 == row[f"{names.get(role, role)}_us"], (rank, role)


def test_clocks_are_corrected() -> None:
    """A rank 7 ms ahead is drawn where its collectives end with the others'."""
    ends = {
        (e.rank, e.start + e.dur)
        for e in shown(two_ranks(ahead_us=7000)).events()
        if e.name == ALL_REDUCE
    }
    assert {end for rank, end in ends if rank == 0} == {end for rank, end in ends if rank == 1}


def test_a_rank_without_a_clock_starts_with_the_others() -> None:
    """A recording from another year is shown beside the others, and its clock called unknown."""
    far = Kineto(1, 2, baseTimeNanoseconds=BASE_NS - 10**17).kernel(0, 10, "lonely")
    timeline = Timeline(run_of(nested(), far))
    events = {e.name: e for e in read(timeline.block(), DRAWN).events()}
    assert events["lonely"].start == events["gemm"].start == 0
    assert [r["clock"] for r in timeline.outline()["ranks"]] == ["unknown", "unknown"]


def test_long_lanes_are_cut_to_the_longest() -> None:
    """Beyond the limit the longest are listed, and the rest is busy time in bins, none lost."""
    made = Kineto(0, 1)
    for i in range(100):
        made.kernel(10 * i, 10 * i + (9 if i % 10 == 0 else 1 + i % 4), f"k{i}")
    run = run_of(made)
    cut = shown(run, None, 0, 1_000_000, 100, limit=12)
    listed = cut.events(("stream", "time"))
    (told,) = cut.header["ranks"]
    assert (len(cut.columns["start"]), told["numShaded"]) == (12, told["numEvents"] - 12)
    assert told["shadedBelowNs"] <= min(e.dur for e in listed)
    bins = cut.bins(0, "stream 7")
    rest = sum(busy / 255 * cut.header["binNs"] for busy, _ in bins)
    everything = sum(e.dur for e in shown(run).events(("stream",)))
    known = sum(e.dur for e in cut.events(("stream",)))
    assert known + rest == pytest.approx(everything, abs=len(bins) * cut.header["binNs"] / 510)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=1, max_size=30),
    st.integers(0, 300),
    st.integers(1, 300),
)
def test_bins_hold_the_busy_time(pairs: list[tuple[int, int]], t0: int, span: int) -> None:
    """In any view each bin is as busy as the events in it, added up nanosecond by nanosecond."""
    made = Kineto(0, 1, unit_ns=1).kernel(0, 1, "zero", stream=1)
    for start, dur in pairs:
        made.kernel(start + 1, start + 1 + dur, "k")
    run = run_of(made)
    whole = [e for e in shown(run).events(("stream",)) if e.name == "k"]
    cut = shown(run, None, t0, t0 + 16 * span, 16, limit=0)
    for depth in {e.depth for e in whole}:
        mine = [e for e in whole if e.depth == depth]
        found = cut.bins(0, "stream 7", depth)
        for i in range(16):
            low, high = t0 + i * span, t0 + (i + 1) * span
            busy = sum(max(0, min(e.start + e.dur, high) - max(e.start, low)) for e in mine)
            shade = found[i][0] if found else 0
            assert abs(shade - 255 * busy / span) <= (1 if busy else 255)
            starts = any(low <= e.start < high for e in mine)
            assert (shade > 0) == bool(busy or starts or (shade and i == 0))


def test_a_view_lists_what_it_shows() -> None:
    """A stretch of time lists the events that reach into it, and no other."""
    names = {e.name for e in shown(run_of(nested()), None, 21_000, 30_000, 16).events()}
    assert names == {"gemm2", "aten::linear", "ProfilerStep#3", "aten::mm"}


def test_closed_ranks_need_only_their_summary() -> None:
    """The summary of a rank holds the lanes time and steps alone."""
    (rank,) = shown(run_of(nested()), summary=True).header["ranks"]
    assert [lane["kind"] for lane in rank["lanes"]] == ["time", "steps"]


def test_details_name_the_launch_and_the_arguments() -> None:
    """An event tells its exact times, what launched it, and what was kept of its arguments."""
    run = run_of(nested())
    timeline = Timeline(run)
    events = {e.name: e for e in read(timeline.block(), DRAWN).events()}
    told = timeline.event(0, events["gemm"].row)
    assert ("duration", "10.000 µs") in told["facts"]
    assert told["launch"]["name"] == "cudaLaunchKernel"
    assert timeline.event(0, told["launch"]["row"])["launch"]["row"] == events["gemm"].row
    assert ("dtype", "Float") in timeline.event(0, events[ALL_REDUCE].row)["args"]


def test_a_flow_leads_through_all_members() -> None:
    """The members of a collective come in the order of arrival, with what each waited."""
    timeline = Timeline(two_ranks(ahead_us=7000))
    events = read(timeline.block(), DRAWN).events()
    second = sorted((e for e in events if e.name == ALL_REDUCE), key=lambda e: e.start)[2]
    flow = timeline.flow(second.rank, second.row)
    assert flow is not None
    assert [(m["rank"], m["wait"]) for m in flow["members"]] == [(0, 5000), (1, 0)]
    starts = {(e.rank, e.start) for e in events}
    assert all((m["rank"], m["start"]) in starts for m in flow["members"])
    first = next(e for e in events if e.name == "first")
    assert timeline.flow(first.rank, first.row) is None


def test_search_finds_texts_and_patterns() -> None:
    """Texts match anywhere in either case, patterns as RE2 has them; hits come by start."""
    timeline = Timeline(two_ranks())
    found = timeline.search("allREDUCE")
    assert (found["total"], found["names"]) == (6, [ALL_REDUCE])
    assert [h[2] for h in found["hits"]] == sorted(h[2] for h in found["hits"])
    assert timeline.search("^fir.t$", regexp=True)["total"] == 2
    assert timeline.search("fir.t")["total"] == 0
    assert timeline.search("", regexp=True) == {"total": 0, "hits": [], "names": []}


def test_no_pattern_takes_for_ever() -> None:
    """A pattern that backtracking engines never finish is answered within a second."""
    timeline = Timeline(run_of(Kineto(0, 1).kernel(0, 5, "a" * 4000 + "!")))
    begun = time.monotonic()
    assert timeline.search("(a+)+$", regexp=True)["total"] == 0
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", "a{100000}", "\\1"])
def test_bad_patterns_are_refused_in_a_line(pattern: str) -> None:
    """What is no pattern is said to be none, with the way out."""
    with pytest.raises(UsageError, match=r"is no pattern.*search for plain text"):
        Timeline(run_of(nested())).search(pattern, regexp=True)


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("block", {"ranks": "0,x"}),
        ("block", {"ranks": "7"}),
        ("block", {"ranks": {"__proto__": 1}}),
        ("block", {"t0": "nan"}),
        ("block", {"t0": "1e300"}),
        ("block", {"t0": 5, "t1": 5}),
        ("block", {"pixels": "many"}),
        ("event", {"rank": 0}),
        ("event", {"rank": 0, "row": 10**6}),
        ("event", {"rank": 0, "row": -1}),
        ("flow", {"rank": 9, "row": 0}),
        ("search", {"text": "x" * 301}),
        ("__class__", {}),
    ],
)
def test_bad_questions_are_refused(method: str, asked: dict[str, Any]) -> None:
    """Values from a query string that are none end in a UsageError, never in anything else."""
    with pytest.raises(UsageError):
        Timeline(run_of(nested())).answer(method, asked)


def test_questions_may_be_texts_or_numbers() -> None:
    """A query string and a message of a notebook are answered alike."""
    timeline = Timeline(run_of(nested()))
    texts = {"ranks": "0", "t0": "0", "t1": "50000", "pixels": "32", "limit": "3", "summary": "1"}
    numbers = {"ranks": [0], "t0": 0, "t1": 5e4, "pixels": 32, "limit": 3, "summary": True}
    assert timeline.answer("block", texts) == timeline.answer("block", numbers)


def test_hostile_names_stay_texts() -> None:
    """Markup, keys of prototypes and control characters travel as texts, cut to a length."""
    made = Kineto(0, 1)
    names = ["__proto__", "</script><img onerror=x>", "constructor", "a\x00b\u202e", "n" * 5000]
    for i, name in enumerate(names):
        made.kernel(10 * i, 10 * i + 5, name)
    timeline = Timeline(run_of(made))
    block = read(timeline.block(), DRAWN)
    found = {e.row: e.name for e in block.events()}
    assert [found[i] for i in range(5)] == [*names[:3], "a b ", "n" * 159 + "…"]
    assert timeline.event(0, 4)["name"] == "n" * 3999 + "…"


def test_an_event_far_away_does_not_stretch_the_picture() -> None:
    """One host row a month off leaves the span at what lies near the work."""
    made = nested().op(30 * 86_400 * 10**6, 30 * 86_400 * 10**6 + 5, "far")
    span = Timeline(run_of(made)).outline()
    assert span["t1"] - span["t0"] <= 300_000


def test_lanes_are_kept_within_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes asked for again are there already, and the oldest go when there are too many."""
    timeline = Timeline(two_ranks())
    timeline.block([0])
    kept = timeline._kept[0, False]
    timeline.block([0])
    assert timeline._kept[0, False] is kept
    monkeypatch.setattr(timeline_module, "KEPT_BYTES", 1)
    timeline.block([1])
    assert list(timeline._kept) == [(1, False)]


def test_nothing_recorded_is_an_empty_picture() -> None:
    """A trace whose only event is faulty has an outline and an empty block."""
    timeline = Timeline(run_of(Kineto(0, 1).kernel(9, 3, "ends before it starts")))
    assert timeline.outline()["t1"] > timeline.outline()["t0"]
    assert read(timeline.block(), DRAWN).events() == []


def test_times_keep_every_nanosecond() -> None:
    """Starts and lengths are whole ns, also 90 days after the zero."""
    far = 90 * 86_400 * 10**9
    made = Kineto(0, 1, unit_ns=1).kernel(0, 7, "a").kernel(far + 1, far + 4, "b")
    found = {e.name: (e.start, e.dur) for e in shown(run_of(made)).events()}
    assert found == {"a": (0, 7), "b": (far + 1, 3)}
    assert math.ulp(far) <= 1
