"""Promises of the bridge to Pipit: its frame written and read, intervals and names unharmed.

Pipit itself is not needed: its pairing rule is written out below, slowly, as the oracle.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.builder import Kineto, collective, run_of
from tracekit.api.run import Run
from tracekit.io.pipit import tables_of
from tracekit.io.pipit_frame import Timeline, frame_of, nested

TIME, TYPE = "Timestamp (ns)", "Event Type"
Interval = tuple[int, str, int, int]


def frame(*rows: tuple[Any, ...], thread: bool = True) -> pd.DataFrame:
    """A frame of (time, type letter, name[, process[, thread[, attributes]]])."""
    kinds = {"E": "Enter", "L": "Leave", "I": "Instant"}
    full = [(*row, *(0, 0, None)[len(row) - 3 :]) for row in rows]
    made = pd.DataFrame(
        {
            TIME: [r[0] for r in full],
            TYPE: [kinds.get(r[1], r[1]) for r in full],
            "Name": [r[2] for r in full],
            "Thread": [r[4] for r in full],
            "Process": [r[3] for r in full],
            "Attributes": pd.Series([r[5] for r in full], dtype=object),
        }
    )
    return made if thread else made.drop(columns=["Thread", "Attributes"])


def intervals_of(events: pd.DataFrame) -> Counter[Interval]:
    """What the reader makes of a frame: (process, name, start, end) from the first start on."""
    tables = tables_of(events, None)
    first = min(int((t["start_ns"] + t.base_ns).min()) for t in tables.values())
    return Counter(
        (process, t.names[name], start + t.base_ns - first, start + dur + t.base_ns - first)
        for process, t in tables.items()
        for name, start, dur in zip(
            t["name"].tolist(), t["start_ns"].tolist(), t["dur_ns"].tolist(), strict=True
        )
    )


def paired(events: pd.DataFrame) -> Counter[Interval]:
    """Pipit's rule: a Leave takes the nearest earlier open Enter of its name on its thread."""
    stacks: dict[Any, list[tuple[str, int]]] = defaultdict(list)
    found: list[Interval] = []
    columns = (events[c] for c in (TIME, TYPE, "Name", "Process", "Thread"))
    for time, kind, name, process, thread in zip(*columns, strict=True):
        stack = stacks[process, thread]
        if kind == "Enter":
            stack.append((name, time))
            continue
        for at in range(len(stack) - 1, -1, -1):
            if stack[at][0] == name:
                found.append((process, name, stack.pop(at)[1], time))
                break
    first = min((start for _, _, start, _ in found), default=0)
    return Counter((p, n, start - first, end - first) for p, n, start, end in found)


# -- reading: pairs ---------------------------------------------------------------------------


def test_nested_and_touching_events_are_paired() -> None:
    """Recursion, nesting, events that touch and events without length keep their times."""
    events = frame(
        (10, "E", "a"), (10, "E", "b"), (12, "E", "a"), (15, "L", "a"),
        (15, "E", "c"), (15, "L", "c"), (20, "L", "b"), (30, "L", "a"),
    )  # fmt: skip
    assert intervals_of(events) == Counter(
        [(0, "a", 0, 20), (0, "b", 0, 10), (0, "a", 2, 5), (0, "c", 5, 5)]
    )


def test_crossing_events_are_paired_by_name() -> None:
    """Events of different names that cross are each paired with their own."""
    events = frame((0, "E", "a"), (5, "E", "b"), (7, "L", "a"), (9, "L", "b"))
    assert intervals_of(events) == Counter([(0, "a", 0, 7), (0, "b", 5, 9)])


ROWS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["Enter", "Leave"]),
        st.sampled_from("abc"),
        st.integers(0, 1),
        st.integers(0, 1),
    ),
    max_size=40,
)


@given(ROWS)
def test_pairing_is_pipits(rows: list[tuple[int, str, str, int, int]]) -> None:
    """Whatever the rows, sound or not, the same pairs come out as by Pipit's rule."""
    rows = sorted(rows, key=lambda r: r[0])
    events = pd.DataFrame(rows, columns=[TIME, TYPE, "Name", "Process", "Thread"])
    expected = paired(events)
    if not expected:
        with pytest.raises(tracekit.UsageError, match="no complete event"):
            tables_of(events, None)
        return
    assert intervals_of(events) == expected


def test_rows_that_cannot_be_used_are_counted() -> None:
    """Lone halves, marks and rows without a time are left out, and each is told."""
    events = frame(
        (0, "E", "a"), (1, "I", "mark"), (2, "L", "a"), (3, "L", "a"), (4, "E", "b"),
        (float("nan"), "E", "c"), (5, "Loop Enter", "d"),
    )  # fmt: skip
    (table,) = tables_of(events, None, "my trace").values()
    told = {note.code: (note.text.split()[0], note.severity, note.file) for note in table.notes}
    assert told == {
        "bad-rows": ("1", "warning", "my trace"),
        "unpaired": ("2", "warning", "my trace"),
        "no-length": ("2", "info", "my trace"),
    }
    assert (len(table), table.counts["read"]) == (1, 6)


# -- reading: columns -------------------------------------------------------------------------


def test_times_are_exact() -> None:
    """Integer time stamps beyond 2**53 keep every nanosecond; fractions are rounded once."""
    late = 1_760_000_000_123_456_789
    (table,) = tables_of(frame((late, "E", "a"), (late + 1, "L", "a")), None).values()
    assert table.base_ns + int(table["start_ns"][0]) == late
    assert table["dur_ns"].tolist() == [1]
    (table,) = tables_of(frame((0.4, "E", "a"), (10.6, "L", "a")), None).values()
    assert table["dur_ns"].tolist() == [11]


def test_an_event_at_time_zero_is_sound() -> None:
    """An event without length at time 0 is kept; it is no fault of a profiler here."""
    run = tracekit.from_pipit(frame((0, "E", "a"), (0, "L", "a"), (0, "E", "b"), (4000, "L", "b")))
    assert run.trace(0).events["dur_us"].tolist() == [4.0, 0.0]


@pytest.mark.parametrize(
    ("processes", "ranks", "guessed"),
    [
        ([0, 1], [0, 1], False),
        ([7, 3], [3, 7], False),
        ([2.0, 0.0], [0, 2], False),
        (["10", "9"], [9, 10], False),
        (["b", "a"], [0, 1], True),
        ([-1, 4], [0, 1], True),
    ],
)
def test_processes_are_ranks(processes: list[Any], ranks: list[int], guessed: bool) -> None:
    """Whole numbers are ranks as they are; other values are numbered in order, and it is told."""
    first, second = processes
    events = frame(
        (0, "E", "a", first), (2, "L", "a", first), (0, "E", "b", second), (3, "L", "b", second)
    )
    for column in (events["Process"], events["Process"].astype("category")):
        run = tracekit.from_pipit(events.assign(Process=column))
        assert run.ranks == ranks
        assert ("rank-guessed" in {note.code for note in run.notes}) == guessed


def test_frames_without_process_thread_or_attributes_are_read() -> None:
    """Time, type and name are enough; a column of ranks wins over process ids."""
    bare = frame((0, "E", "a"), (2000, "L", "a"), thread=False).drop(columns="Process")
    assert tracekit.from_pipit(bare).ranks == [0]
    pids = frame((0, "E", "a", 4242), (2000, "L", "a", 4242)).assign(Rank=5)
    assert tracekit.from_pipit(pids).ranks == [5]


def test_missing_columns_are_named() -> None:
    """A frame that is none of Pipit's is refused in words that say what it lacks."""
    with pytest.raises(tracekit.UsageError) as caught:
        tracekit.from_pipit(pd.DataFrame({TIME: [1], "ts": [2]}))
    assert str(caught.value).startswith("no column 'Event Type' in the frame; its columns are")
    with pytest.raises(tracekit.UsageError, match="a dict is no Pipit trace"):
        tracekit.from_pipit({})
    with pytest.raises(tracekit.UsageError, match="no complete event"):
        tracekit.from_pipit(frame())


# -- reading: meaning -------------------------------------------------------------------------


def test_mpi_calls_are_communication() -> None:
    """A blocking call takes its time from the function around it, and what it calls is part of it.

    ``main 0-100, MPI_Allreduce 40-60, in it poll 45-50; Idle 70-80``: 20 us of communication, 70
    of compute, 10 of idling.
    """
    events = frame(
        (0, "E", "main"), (40_000, "E", "MPI_Allreduce"), (45_000, "E", "poll"),
        (50_000, "L", "poll"), (60_000, "L", "MPI_Allreduce"), (70_000, "E", "Idle"),
        (80_000, "L", "Idle"), (100_000, "L", "main"),
    )  # fmt: skip
    row = tracekit.from_pipit(events).breakdown().iloc[0]
    got = row[["window_us", "compute_us", "comm_us", "exposed_comm_us", "idle_us"]].tolist()
    assert got == [100.0, 70.0, 20.0, 20.0, 10.0]


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("MPI_Allreduce", "all_reduce"),
        ("PMPI_Iallreduce", "all_reduce"),
        ("MPI_Allgatherv", "all_gather"),
        ("MPI_Alltoallw", "all_to_all"),
        ("MPI_Reduce_scatter_block", "reduce_scatter"),
        ("MPI_Reduce", "reduce"),
        ("MPI_Bcast", "broadcast"),
        ("MPI_Gatherv", "gather"),
        ("MPI_Scatter", "scatter"),
        ("MPI_Barrier", "barrier"),
        ("MPI_Ssend", "send_recv"),
        ("MPI_Irecv", "send_recv"),
        ("MPI_Waitall", "send_recv"),
        ("MpiSend", "send_recv"),
        ("PMPI_Send [libmpi.so.12.1.1]", "send_recv"),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
    ],
)
def test_operations_are_known_by_name(name: str, op: str) -> None:
    """MPI calls and collective kernels are communication of their operation."""
    run = tracekit.from_pipit(frame((0, "E", name), (5000, "L", name)))
    assert run.breakdown()["comm_us"].tolist() == [5.0]
    assert run.collectives()["op"].tolist() == [op]


@pytest.mark.parametrize(
    "name",
    ["MPI_Init", "MPI_Comm_rank", "MPI_Alloc_mem", "MPI_Reduce_local", "MpiSendTag", "my_MPI_Send"],
)
def test_other_calls_are_compute(name: str) -> None:
    """MPI calls that move nothing, and names that only look alike, are no communication."""
    run = tracekit.from_pipit(frame((0, "E", name), (5000, "L", name)))
    assert run.breakdown()[["compute_us", "comm_us"]].values.tolist() == [[5.0, 0.0]]


def test_messages_pair_sends_with_receives() -> None:
    """OTF2's message marks tell peer and bytes, so that a send finds its receive across ranks."""
    to, back = {"receiver": 1, "msg_length": 4096}, {"sender": 0, "msg_length": 4096}
    events = frame(
        (10_000, "E", "MPI_Send", 0), (11_000, "I", "MpiSend", 0, 0, to),
        (30_000, "L", "MPI_Send", 0), (0, "E", "work", 0), (9_000, "L", "work", 0),
        (0, "E", "work", 1), (20_000, "L", "work", 1),
        (22_000, "E", "MPI_Recv", 1), (29_000, "I", "MpiRecv", 1, 0, back),
        (30_000, "L", "MPI_Recv", 1), (40_000, "E", "MPI_Wait", 1), (41_000, "L", "MPI_Wait", 1),
    )  # fmt: skip
    run = tracekit.from_pipit(events)
    pair = run.collectives().iloc[0]
    assert (pair["op"], pair["ranks"], pair["bytes"]) == ("send_recv", (0, 1), 4096)
    assert (pair["last_rank"], pair["transfer_us"]) == (1, 8.0)
    members = run.collective_members()
    assert members.loc[members["collective"] == 0, "wait_us"].tolist() == [12.0, 0.0]
    assert run.collectives()["match"].tolist() == ["order", "single"]


def test_a_call_with_several_messages_has_no_one_peer() -> None:
    """A call that completes two messages is communication, but no pair is made up for it."""
    first, second = ({"sender": peer, "msg_length": 8} for peer in (1, 2))
    events = frame(
        (0, "E", "MPI_Waitall"), (1000, "I", "MpiIrecv", 0, 0, first),
        (2000, "I", "MpiIrecv", 0, 0, second), (5000, "L", "MPI_Waitall"),
    )  # fmt: skip
    run = tracekit.from_pipit(events)
    member = run.collective_members().iloc[0]
    assert member["duration_us"] == 5.0
    assert member[["src", "dst", "bytes"]].isna().all()


def test_names_of_the_user_decide(tmp_path: Path) -> None:
    """A user's naming rules apply to a Pipit trace as to any."""
    rules = tmp_path / "names.toml"
    rules.write_text('[host]\nblocking = "^exchange_"\n')
    events = frame((0, "E", "exchange_halo"), (5000, "L", "exchange_halo"))
    assert tracekit.from_pipit(events).breakdown()["comm_us"].tolist() == [0.0]
    assert tracekit.from_pipit(events, names=rules).breakdown()["comm_us"].tolist() == [5.0]


# -- writing ----------------------------------------------------------------------------------


def check_nesting(events: pd.DataFrame) -> None:
    """On each thread every Leave closes the last open Enter, and time does not run back."""
    assert list(events.index) == list(range(len(events)))
    assert events[TIME].is_monotonic_increasing
    stacks: dict[Any, list[str]] = defaultdict(list)
    columns = (events[c] for c in (TYPE, "Name", "Process", "Thread"))
    for kind, name, process, thread in zip(*columns, strict=True):
        if kind == "Enter":
            stacks[process, thread].append(name)
        else:
            assert stacks[process, thread].pop() == name
    assert not any(stacks.values())


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 1)), max_size=25)


@given(SPANS, st.integers(0, 3))
def test_any_intervals_are_written_nested_and_read_back(
    spans: list[tuple[int, int, int]], rank: int
) -> None:
    """Crossing, equal, touching and empty intervals come back as they were, whatever the mix."""
    if not spans:
        return
    spans = sorted(spans, key=lambda s: (s[0], -s[1]))
    start = np.array([s[0] for s in spans], dtype=np.int64)
    end = start + np.array([s[1] for s in spans], dtype=np.int64)
    names = ["x", "y", "z"]
    code = np.array([i % 3 for i in range(len(spans))])
    lane = np.array([s[2] for s in spans])
    events = frame_of([Timeline(rank, start, end, code, lane, names, [{} for _ in spans])])
    check_nesting(events)
    first = int(start.min())
    wanted = Counter(
        (rank, names[c], int(s) - first, int(e) - first)
        for c, s, e in zip(code, start, end, strict=True)
    )
    assert paired(events) == wanted
    assert intervals_of(events) == wanted


def test_threads_are_as_few_as_crossings_need() -> None:
    """Nested and touching intervals share a thread; each crossing of open ones needs one more."""
    assert nested([0, 1, 2], [0, 0, 5], [9, 5, 9]) == [[0, 1, -2, 2, -3, -1]]
    assert nested([0, 1, 2], [0, 1, 2], [5, 6, 7]) == [[0, -1], [1, -2], [2, -3]]
    assert nested([], [], []) == []


def test_further_threads_come_after_the_recorded_ones() -> None:
    """Threads keep the order of the lanes; what crosses on any of them comes after the last."""
    start, end = np.array([0, 1, 2]), np.array([5, 6, 7])
    line = Timeline(0, start, end, np.zeros(3, int), np.array([0, 0, 1]), ["x"], [{}, {}, {}])
    events = frame_of([line])
    enters = events.loc[events[TYPE] == "Enter"]
    assert enters["Thread"].tolist() == [0, 2, 1]


def two_ranks() -> Run:
    """Two ranks with everything that must survive: links, bytes, groups, steps, a late rank."""
    files = []
    for rank in (0, 1):
        made = collective("allreduce", elems=1000, seq=1, group="7", desc="tp")
        file = Kineto(rank, 2, host_name="node1").step(3, 0, 250).op(1, 30, "aten::mm")
        file.kernel(0, 100 + 50 * rank, launched=10).copy(300, 310, bytes=64)
        file.comm(80 + 70 * rank, 200, launched=20, **made)
        files.append(file)
    return Run(run_of(*files))


def exported(run: Run) -> pd.DataFrame:
    """The events frame of a run, whether or not Pipit is installed."""
    trace = run.to_pipit()
    return getattr(trace, "events", trace)


def test_columns_are_pipits() -> None:
    """Columns, their order and their types are those of Pipit's own readers."""
    events = exported(two_ranks())
    assert list(events.columns) == [TIME, TYPE, "Name", "Thread", "Process", "Attributes"]
    assert events[TIME].dtype == np.int64
    assert all(events[c].dtype == "category" for c in (TYPE, "Name", "Thread", "Process"))
    assert events["Process"].cat.categories.dtype == np.int32
    assert events["Thread"].cat.categories.dtype == np.int32
    assert set(events[TYPE]) == {"Enter", "Leave"}
    assert events[TIME].iloc[0] == 0
    assert all(events.loc[events[TYPE] == "Leave", "Attributes"].isna())
    enters = events.loc[events[TYPE] == "Enter"]
    assert all(isinstance(a, dict) for a in enters["Attributes"])
    one = enters.loc[enters["Name"].str.contains("AllReduce")].iloc[0]["Attributes"]
    assert (one["cat"], one["role"], one["stream"]) == ("kernel", "comm", 20)
    assert one["args"]["Process Group Name"] == "7"
    assert sorted(set(events.loc[events["Process"] == 1, "Thread"])) == [0, 1, 2, 3]
    check_nesting(events)


def test_times_are_on_the_corrected_clock() -> None:
    """A rank whose clock is 1000 us ahead is shifted back by that."""
    files = []
    for rank, ahead in ((0, 0), (1, 1000)):
        file = Kineto(rank, 2).kernel(ahead, ahead + 5)
        for n in (1, 2, 3):
            made = collective("allreduce", elems=10, seq=n)
            file.comm(ahead + 10 * n, ahead + 10 * n + 5, **made)
        files.append(file)
    events = exported(Run(run_of(*files)))
    for rank in (0, 1):
        own = events.loc[events["Process"] == rank, TIME]
        assert own.tolist() == [t * 1000 for t in (0, 5, 10, 15, 20, 25, 30, 35)]


def install_stand_in(monkeypatch: pytest.MonkeyPatch) -> type:
    """Put a class in the place of ``pipit.trace.Trace``."""

    class Trace:
        def __init__(self, definitions: Any, events: Any) -> None:
            self.definitions, self.events = definitions, events

    package, module = ModuleType("pipit"), ModuleType("pipit.trace")
    vars(module)["Trace"] = Trace
    monkeypatch.setitem(sys.modules, "pipit", package)
    monkeypatch.setitem(sys.modules, "pipit.trace", module)
    return Trace


FIGURES = (
    "breakdown", "steps", "phases", "groups", "operations", "collectives", "collective_members",
    "stragglers", "kernels", "ops",
)  # fmt: skip


@pytest.mark.parametrize("sample", ["hand-made", "ddp_4", "tp_2x2"])
def test_a_run_comes_back_from_pipit_as_it_was(
    sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written for Pipit and read again, a run gives the same figures to the nanosecond."""
    kind = install_stand_in(monkeypatch)
    run = two_ranks() if sample == "hand-made" else tracekit.open(f"sample_traces/{sample}")
    trace = run.to_pipit()
    assert isinstance(trace, kind)
    check_nesting(trace.events)
    back = tracekit.from_pipit(trace)
    assert (back.ranks, back.world_size) == (run.ranks, run.world_size)
    for name in FIGURES:
        before, after = getattr(run, name)(), getattr(back, name)()
        own = {"file", "pid", "clock_offset_us", "clock_spread_us", "events_read", "events_timed"}
        kept = [c for c in before.columns if c not in own]
        pd.testing.assert_frame_equal(before[kept], after[kept], rtol=0, atol=1e-6)
    for rank in run.ranks:
        before, after = run.trace(rank).events, back.trace(rank).events
        wanted = Counter(zip(before["name"], before["dur_us"], before["tid"], strict=True))
        assert Counter(zip(after["name"], after["dur_us"], after["tid"], strict=True)) == wanted


def test_header_is_kept_in_the_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipit's definitions hold each rank's header; times of the header's own clock are not kept."""
    install_stand_in(monkeypatch)
    own = {"format": 1, "coords": {"x": 1}, "collectives": [{"start_ns": 5}]}
    run = Run(run_of(Kineto(2, 8, host_name="node1", tracekit=own).kernel(0, 5)))
    definitions = run.to_pipit().definitions
    assert definitions["Definition Type"].tolist() == ["Process"]
    assert definitions["ID"].tolist() == [2.0]
    assert definitions["Attributes"][0] == {
        "distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 8},
        "host_name": "node1",
        "tracekit": {"format": 1, "coords": {"x": 1}},
    }
    back = tracekit.from_pipit(run.to_pipit())
    assert (back.world_size, back.breakdown()["host"].tolist()) == (8, ["node1"])


def test_without_pipit_the_frame_itself_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Pipit is absent, or another package has its name, the events frame is given."""
    monkeypatch.setitem(sys.modules, "pipit", None)
    monkeypatch.setitem(sys.modules, "pipit.trace", None)
    assert isinstance(two_ranks().to_pipit(), pd.DataFrame)
    monkeypatch.setitem(sys.modules, "pipit", ModuleType("pipit"))
    monkeypatch.setitem(sys.modules, "pipit.trace", ModuleType("pipit.trace"))
    events = two_ranks().to_pipit()
    assert isinstance(events, pd.DataFrame)
    assert tracekit.from_pipit(events).breakdown()["window_us"].tolist() == [310.0, 310.0]


def test_real_traces_come_back(corpus: Path) -> None:
    """Device traces whose rows cross on a thread are written nested and come back exact."""
    folder = corpus / "traces" / "torchrec_sst_long_a2a_optimizer_4"
    run = tracekit.open(folder)
    events = exported(run)
    check_nesting(events)
    lanes = len(np.unique(run.trace(0).table["lane"]))
    assert events.loc[events["Process"] == 0, "Thread"].nunique() > lanes
    back = tracekit.from_pipit(events).breakdown()
    for figure in ("window_us", "compute_us", "comm_us", "exposed_comm_us", "memory_us", "idle_us"):
        assert back[figure].tolist() == run.breakdown()[figure].tolist()


def test_hostile_values_stay_values() -> None:
    """Odd names and attributes of a frame are read as text or not at all."""
    odd = {"cat": ["kernel"], "device": -5, "stream": 2**80, "pid": "1", "tid": 7, "args": "x"}
    events = frame((0, "E", "", 0, 0, odd), (2000, "L", "", 0, 0))
    events["Name"] = pd.Series(["\ud800<b>"] * 2, dtype=object)
    (table,) = tables_of(events, None).values()
    assert (table["device"].tolist(), table["stream"].tolist()) == ([-1], [-1])
    got = tracekit.from_pipit(events).trace(0).events
    assert got["name"].tolist() == ["?<b>"]
    assert got["cat"].isna().all()
    assert got[["device", "stream"]].isna().to_numpy().all()
