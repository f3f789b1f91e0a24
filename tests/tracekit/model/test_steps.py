"""Steps and phases: where their spans lie and which work belongs to which."""

from __future__ import annotations

import pytest

from tests.builder import Kineto
from tracekit.model.links import enclosing, external_ids_usable, innermost, lookup, parents
from tracekit.model.steps import membership, phases_of, steps_of
from tracekit.model.work import work_of

import numpy as np  # isort: skip


def belongs(file: Kineto) -> list[int | None]:
    """The number of the step that each piece of work belongs to, in order of start."""
    trace = file.trace()
    steps = steps_of(trace)
    found = membership(work_of(trace), steps).tolist()
    return [int(steps.label[at]) if at >= 0 else None for at in found]


def test_a_step_is_its_annotation() -> None:
    """Steps are numbered by their annotations on the host, in order of start."""
    file = Kineto().step(8, 100, 190).step(7, 0, 90)
    file.event(0, 50, "ProfilerStep#9", "gpu_user_annotation", pid=0, tid="stream 7")
    file.event(5, 10, "ProfilerStep#7", "python_function")
    steps = steps_of(file.trace())
    assert steps.label == [7, 8]
    assert (steps.start.tolist(), steps.end.tolist()) == ([0, 100_000], [90_000, 190_000])


@pytest.mark.parametrize(
    ("name", "number"),
    [("ProfilerStep#12", 12), ("ProfilerStep #3", 3), ("ProfilerStep#", None),
     ("MyProfilerStep#1", None), ("ProfilerStep#99999999999999999999999", -1)],
)  # fmt: skip
def test_numbers_of_steps(name: str, number: int | None) -> None:
    """The number is read from the name; one beyond 18 digits is no number."""
    steps = steps_of(Kineto().mark(0, 9, name).trace())
    assert steps.label == ([] if number is None else [number])


def test_old_traces_have_steps_among_operators() -> None:
    """Until 2021 steps were written as operators, and files without categories have them too."""
    old = Kineto().event(0, 9, "ProfilerStep#1", "Operator")
    bare = Kineto(None).event(0, 9, "ProfilerStep#2", "")
    assert [steps_of(f.trace()).label for f in (old, bare)] == [[1], [2]]


def test_work_belongs_to_the_step_of_its_launch() -> None:
    """The launch decides, however late the kernel runs; unlinked work belongs to no step."""
    file = Kineto().step(1, 0, 50).step(2, 50, 100)
    file.kernel(10, 20, launched=5).kernel(90, 95, launched=40).kernel(95, 99, launched=60)
    file.kernel(99, 120).kernel(130, 140, launched=120)
    assert belongs(file) == [1, 1, 2, None, None]


def test_a_step_holds_its_first_instant_and_not_its_last() -> None:
    """Where steps touch, a launch at the border belongs to the later one."""
    file = Kineto().step(1, 0, 50).step(2, 50, 100)
    file.kernel(10, 20, launched=0).kernel(60, 70, launched=49).kernel(70, 80, launched=50)
    file.kernel(110, 120, launched=100)
    assert belongs(file) == [1, 1, 2, None]


def test_steps_that_cross() -> None:
    """Where two steps hold a launch it belongs to the one that began later."""
    file = Kineto().step(1, 0, 100).step(2, 50, 150)
    file.kernel(10, 20, launched=60).kernel(20, 30, launched=40).kernel(200, 210, launched=120)
    assert belongs(file) == [2, 1, 2]


def test_graph_launches_give_all_their_kernels_a_step() -> None:
    """All kernels of one graph launch belong to the step that launched the graph."""
    file = Kineto().step(2, 0, 40).launch(10, 5)
    for at in (50, 80, 130):
        file.kernel(at, at + 30, correlation=5)
    assert belongs(file) == [2, 2, 2]


def test_host_work_belongs_by_its_own_start() -> None:
    """Without a device, an operator belongs to the step in which it starts."""
    file = Kineto().step(1, 0, 50).step(2, 50, 100).op(45, 60).op(60, 70)
    assert belongs(file) == [1, 2]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("forward", "forward"), ("Forward", "forward"), ("fwd", "forward"),
        ("## forward ##", "forward"), ("forward_step", "forward"), ("Forward 3", "forward"),
        ("backward", "backward"), ("Backward 3", "backward"), ("bwd", "backward"),
        ("optimizer", "optimizer"),
        ("Optimizer.step#AdamW.step", "optimizer"), ("optimizer_step", "optimizer"),
        ("## optimizer ##", "optimizer"), ("forwarding", None), ("my backward pass", None),
        ("Optimizer.zero_grad#AdamW.zero_grad", None), ("FullyShardedDataParallel.forward", None),
    ],
)  # fmt: skip
def test_phases_by_name(name: str, phase: str | None) -> None:
    """The usual names of phases are known, whatever decorates them; others are none."""
    assert phases_of(Kineto().mark(0, 9, name).trace()).label == ([phase] if phase else [])


def test_the_inner_phase_wins() -> None:
    """Work launched in a phase inside another belongs to the inner one."""
    file = Kineto().mark(0, 100, "forward").mark(40, 60, "optimizer")
    file.kernel(110, 120, launched=10).kernel(120, 130, launched=50).kernel(130, 140, launched=70)
    trace = file.trace()
    phases = phases_of(trace)
    assert [phases.label[i] for i in membership(work_of(trace), phases)] == [
        "forward", "optimizer", "forward",
    ]  # fmt: skip


# -- the searches behind them -----------------------------------------------------------------


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """An array of whole numbers."""
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("spread", [1, 10**7, 2**60])
def test_lookup_finds_the_first_of_equal_keys(spread: int) -> None:
    """Keys near and far apart are found alike; of equal keys the first one counts."""
    keys = ints(5 * spread, 3 * spread, 5 * spread, -1)
    found = lookup(keys, ints(50, 30, 51, 99), ints(3 * spread, 5 * spread, 4 * spread, -1, 0))
    assert found.tolist() == [30, 50, -1, -1, -1]


def test_lookup_of_nothing() -> None:
    """Without keys, or with nothing wanted, nothing is found."""
    assert lookup(ints(), ints(), ints(1, 2)).tolist() == [-1, -1]
    assert lookup(ints(-1, -1), ints(7, 8), ints(-1)).tolist() == [-1]
    assert lookup(ints(1), ints(7), ints()).tolist() == []


def test_innermost_of_crossing_intervals() -> None:
    """Of several intervals that hold a point the one that began last is found, crossing or not."""
    start, end = ints(0, 10, 20, 30), ints(100, 50, 80, 40)
    found = innermost(start, end, ints(5, 15, 25, 35, 45, 60, 90, 100, -1))
    assert found.tolist() == [0, 1, 2, 3, 2, 2, 0, -1, -1]
    assert parents(start, end).tolist() == [-1, 0, 0, 2]
    assert innermost(ints(), ints(), ints(5)).tolist() == [-1]


def test_enclosing_looks_at_its_own_lane() -> None:
    """The span around a point is looked for on the point's own thread."""
    trace = Kineto().op(0, 100, tid=1).op(10, 50, tid=1).op(0, 30, tid=2).trace()
    rows, lanes = np.arange(3), trace.table["lane"].astype(np.int64)
    at = ints(20_000, 60_000, 20_000, 60_000)
    found = enclosing(trace, rows, lanes[[0, 0, 2, 2]], at)
    assert found.tolist() == [1, 0, 2, -1]


def test_ids_are_usable_unless_they_are_correlations() -> None:
    """External ids that mostly equal the correlation name no operator."""
    good, bad, none = Kineto(), Kineto(), Kineto()
    for n in range(4):
        good.kernel(n, n + 1, **{"External id": n, "correlation": 10 + n})
        bad.kernel(n, n + 1, **{"External id": n + (n == 3), "correlation": n})
        none.kernel(n, n + 1)
    for file, usable in ((good, True), (bad, False), (none, True)):
        trace = file.trace()
        assert external_ids_usable(trace, np.arange(4)) is usable


def test_marks_of_one_phase_that_overlap_are_one_span() -> None:
    """An optimizer's own mark inside the loop's adds no span, and no time is counted twice."""
    file = Kineto().mark(1000, 2000, "optimizer").mark(1300, 1700, "Optimizer.step#AdamW.step")
    phases = phases_of(file.mark(3000, 3500, "optimizer").trace())
    assert phases.label == ["optimizer", "optimizer"]
    assert phases.start.tolist() == [1_000_000, 3_000_000]
    assert phases.end.tolist() == [2_000_000, 3_500_000]
