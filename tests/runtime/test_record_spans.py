"""Every collective gets the times of its own span, whatever is in flight beside it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402
from torch.profiler import schedule  # noqa: E402

import runtime  # noqa: E402
from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.trace.records import FIRST_TAG, Record  # noqa: E402
from runtime.trace.spans import join  # noqa: E402
from tests.runtime import recording  # noqa: E402

NUM = 350
ONE = schedule(wait=0, warmup=1, active=1, repeat=1)


def numbered(by: random.Random) -> list[tuple[int, int, int]]:
    """Operation, group, and a size that no other collective of the job has."""
    return [(by.randrange(3), by.randrange(3), 8 + 4 * i) for i in range(NUM)]


def through_comm(folder: str, mode: str) -> None:
    """Many collectives at once on three groups, through `Comm`."""
    comm = Comm(Grid(GridShape(x=2, z=2)))
    by = random.Random(3)
    flying = []
    with runtime.record(Path(folder, mode), mode=mode, comm=comm, schedule=ONE) as rec:
        rec.step()
        for op, group, size in numbered(by):
            axis = ("x", "z", "z_rs")[group]
            issue = (comm.all_reduce, comm.all_gather, comm.reduce_scatter)[op]
            flying.append(issue(torch.ones(size), axis, "test", layer=str(size)))
            if len(flying) > 12 or by.random() < 0.1:
                while flying:
                    flying.pop().wait()
        while flying:
            flying.pop().wait()
        rec.step()


def below_python(folder: str, mode: str) -> None:
    """The same, and messages between neighbours, by torch's own functions."""
    groups = [dist.new_group([0, 1, 2, 3], group_desc=f"g{i}") for i in range(3)]
    by = random.Random(5)
    flying: list[Any] = []
    right, left = (dist.get_rank() + 1) % 4, (dist.get_rank() - 1) % 4
    with runtime.record(Path(folder, mode), mode=mode, schedule=ONE) as rec:
        rec.step()
        for i, (op, at, size) in enumerate(numbered(by)):
            group, one = groups[at], torch.ones(size)
            if op == 0:
                flying.append(dist.all_reduce(one, group=group, async_op=True))
            elif op == 1:
                into = torch.empty(4 * size)
                flying.append(dist.all_gather_into_tensor(into, one, group=group, async_op=True))
            else:
                into = torch.empty(size // 4)
                flying.append(dist.reduce_scatter_tensor(into, one, group=group, async_op=True))
            if i % 10 == 0:
                sent = dist.isend(torch.ones(size + 1), right, group=group)
                got = dist.irecv(torch.empty(size + 1), left, group=group)
                sent.wait()
                got.wait()
            if len(flying) > 12 or by.random() < 0.1:
                while flying:
                    flying.pop().wait()
        while flying:
            flying.pop().wait()
        rec.step()


def check(found: dict[str, Any], num: int, *, shapes: bool) -> None:
    """Each record's span is the row that has its times and, as the profiler saw it, its size."""
    records = found["tracekit"]["collectives"]
    assert len(records) == num
    assert all(r["start_ns"] is not None for r in records)
    by_times = {(e["start_ns"], e["end_ns"]): e for e in recording.rows(found, "gloo:")}
    for r in records:
        row = by_times.pop((r["start_ns"], r["end_ns"]))
        assert row["args"]["Seq"] == r["seq"]
        assert r["start_ns"] > r["issue_ns"] - 100_000  # two clocks, set by one another
        if shapes:
            [dims] = row["args"]["Input Dims"]
            elems = 1
            for d in dims:
                elems *= d
            assert elems == row["args"]["In msg nelems"], r
    seqs: dict[str, list[int]] = {}
    for r in records:
        seqs.setdefault(r["group"], []).append(r["seq"])
    for of_group in seqs.values():
        assert of_group == list(range(of_group[0], of_group[0] + len(of_group)))


@pytest.mark.parametrize("mode", ["profile", "light"])
def test_spans_through_comm_are_their_own(tmp_path: Path, mode: str) -> None:
    """Of 1,400 collectives on three groups with many in flight, each has its own span."""
    recording.run(tmp_path, 4, through_comm, mode)
    for rank in range(4):
        found = recording.trace(tmp_path / mode, rank)
        check(found, NUM, shapes=mode == "profile")
        assert found["tracekit"]["joined"] == {"tag": NUM, "order": 0, "seq": 0, "open": 0}
        sizes = [int(r["layer"]) for r in found["tracekit"]["collectives"]]
        assert sizes == [size for _, _, size in numbered(random.Random(3))]


def test_spans_below_python_are_their_own(tmp_path: Path) -> None:
    """So have those of torch's own functions, reduce-scatters, sends and receives included."""
    recording.run(tmp_path, 4, below_python, "profile")
    sent = NUM // 10
    for rank in range(4):
        found = recording.trace(tmp_path / "profile", rank)
        records = found["tracekit"]["collectives"]
        ops = Counter(r["op"] for r in records)
        assert ops["send_recv"] == 2 * sent
        assert ops["reduce_scatter"] > NUM // 4
        check(found, NUM + 2 * sent, shapes=True)


# -- joining by itself ------------------------------------------------------------------------


def record_of(**values: Any) -> Record:
    """A record on group 7, unless told otherwise."""
    usual = {"op": "all_reduce", "axis": "x", "group": "x", "bytes": 4, "dtype": "float32"}
    usual |= {"phase": "", "layer": "", "step": 0, "issue_ns": 0, "pg_name": "7"}
    usual |= {"span": "all_reduce", "in_elems": 1}
    return Record(**{**usual, **values})


def span_of(tid: int, ts: str, elems: int, stride: int = 1, name: str = "gloo:all_reduce") -> str:
    """A row as Kineto writes it, 1 us long."""
    return (
        f'{{"ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": {tid}, '
        f'"ts": {ts}, "dur": 1.000, "args": {{"Input Dims": [[{elems}, 1]], '
        f'"Input Strides": [[1, {stride}]]}}}}'
    )


def text_of(*spans: str) -> str:
    """A Kineto text of some rows."""
    return f'{{"baseTimeNanoseconds": 1000, "traceEvents": [{", ".join(spans)}]}}'


def test_a_mark_beats_the_order() -> None:
    """Two spans that began in the wrong order go to the collectives whose marks they carry."""
    first, second = record_of(tag=FIRST_TAG), record_of(tag=FIRST_TAG + 1)
    text = text_of(span_of(1, "5.000", 1, FIRST_TAG + 1), span_of(2, "6.001", 1, FIRST_TAG))
    threads: dict[int, str] = {}
    join(text, [first, second], threads)
    assert (first.start_ns, first.end_ns) == (7001, 8001)
    assert (second.start_ns, second.end_ns) == (6000, 7000)
    assert threads == {1: "7", 2: "7"}


def test_a_size_beats_the_order() -> None:
    """Without marks, spans that began in the wrong order are told apart by their sizes."""
    first, second = record_of(in_elems=8), record_of(in_elems=9)
    join(text_of(span_of(1, "5", 9), span_of(2, "6", 8)), [first, second], {1: "7", 2: "7"})
    assert (first.start_ns, second.start_ns) == (7000, 6000)


def test_numbers_that_differ_leave_open() -> None:
    """One span for two collectives of one kind is nobody's."""
    pair = [record_of(), record_of()]
    found = join(text_of(span_of(1, "5", 1)), pair, {1: "7"})
    assert [r.start_ns for r in pair] == [None, None]
    assert found.open == 2


def test_unknown_threads_are_those_of_the_only_group_without() -> None:
    """A thread that no mark names works for the one group that lacks threads."""
    own, other = record_of(pg_name="8"), record_of()
    join(text_of(span_of(1, "5", 1), span_of(2, "6", 1)), [other, own], {1: "7", 9: "7"})
    assert (other.start_ns, own.start_ns) == (6000, 7000)


def test_two_groups_without_threads_stay_open() -> None:
    """Nothing is guessed where two groups could own a thread."""
    pair = [record_of(pg_name="8"), record_of()]
    join(text_of(span_of(1, "5", 1), span_of(2, "6", 1)), pair, {})
    assert [r.start_ns for r in pair] == [None, None]


KERNEL = (
    '{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, '
    '"ts": %s, "dur": 2.5, "args": {"stream": 20%s}}'
)


def test_kernels_are_known_by_group_and_number() -> None:
    """A NCCL kernel belongs to the record of its group and number; several kernels are one."""
    args = ', "Seq": 4, "Process Group Name": "7"'
    text = text_of(KERNEL % ("5", args), KERNEL % ("8", args), KERNEL % ("20", ', "Seq": 5'))
    four, five = record_of(seq=4), record_of(seq=5)
    found = join(text, [four, five], {})
    assert (four.start_ns, four.end_ns) == (6000, 11500)
    assert five.start_ns is None
    assert (found.by_seq, found.open) == (1, 1)


def test_kernels_without_metadata_are_known_by_the_annotation_around() -> None:
    """Where only annotations are recorded, the device's copy of ours names the kernel."""
    around = (
        '{"ph": "X", "cat": "gpu_user_annotation", "name": "tracekit:issue:7:4", "pid": 0, '
        '"tid": 20, "ts": 5, "dur": 3}'
    )
    record = record_of(seq=4)
    join(text_of(around, KERNEL % ("5", ""), KERNEL % ("9", "")), [record], {})
    assert (record.start_ns, record.end_ns) == (6000, 8500)
