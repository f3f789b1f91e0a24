"""Work on the host: operators and collectives of a run that used no device."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import Kineto
from tracekit.core.intervals import union
from tracekit.model.names import COMM, COMPUTE
from tracekit.model.work import Work, work_of


def sets(work: Work) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """When compute and when communication runs, in µs."""
    found = []
    for role in (COMPUTE, COMM):
        mine = work.role == role
        start, end = union(work.start[mine], work.end[mine])
        found.append(
            [(s // 1000, e // 1000) for s, e in zip(start.tolist(), end.tolist(), strict=True)]
        )
    return found[0], found[1]


def of(file: Kineto) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Compute and communication of a file."""
    work = work_of(file.trace())
    assert work.timeline == "host"
    return sets(work)


def test_nested_operators_count_once() -> None:
    """An operator inside another adds nothing; gaps between operators are no compute."""
    file = Kineto().op(0, 100, "aten::linear").op(5, 95, "aten::mm").op(120, 130)
    assert of(file) == ([(0, 100), (120, 130)], [])


def test_spans_of_gloo_are_communication_and_calls_are_not() -> None:
    """The span on gloo's thread is the collective; the call that issues it is neither."""
    file = Kineto().op(0, 50).op(50, 60, "c10d::allreduce_").mark(55, 160, "gloo:all_reduce", tid=9)
    assert of(file) == ([(0, 50)], [(55, 160)])


def test_a_call_inside_an_operator_takes_its_time_away() -> None:
    """Where the innermost row is a collective call the thread does not compute."""
    file = Kineto().op(0, 100, "MyBackward").op(20, 60, "c10d::allreduce_")
    assert of(file) == ([(0, 20), (60, 100)], [])


def test_an_operator_inside_a_call_computes() -> None:
    """Work that a call does by itself, such as a copy of its input, counts as work."""
    file = (
        Kineto().op(0, 100, "MyBackward").op(20, 60, "c10d::allreduce_").op(30, 40, "aten::copy_")
    )
    assert of(file) == ([(0, 20), (30, 40), (60, 100)], [])


def test_an_operator_that_only_wraps_a_call_does_not_compute() -> None:
    """Of an operator and a call with the same span the call is the inner one."""
    file = Kineto().op(0, 100, "Wrapper").op(0, 100, "c10d::allreduce_")
    assert of(file.mark(5, 90, "gloo:all_reduce", tid=9)) == ([], [(5, 90)])


def test_a_call_inside_a_call_is_no_hole() -> None:
    """Calls within calls, such as the record of a call, are calls all the same."""
    file = Kineto().op(0, 100).op(20, 60, "c10d::allreduce_").op(25, 50, "record_param_comms")
    file.op(30, 35, "aten::view")
    assert of(file) == ([(0, 20), (30, 35), (60, 100)], [])


def test_recorded_waits_are_no_compute() -> None:
    """A thread that waits for a collective does not compute."""
    file = Kineto().op(0, 100).op(40, 90, "_c10d_functional::wait_tensor")
    assert of(file) == ([(0, 40), (90, 100)], [])
    file = Kineto().op(0, 100).mark(40, 90, "tracekit:wait").mark(120, 150, "tracekit:wait")
    assert of(file) == ([(0, 40), (90, 100)], [])


def test_threads_compute_each_for_itself() -> None:
    """A call on one thread takes nothing from an operator of another at the same time."""
    file = Kineto().op(0, 100, tid=1).op(20, 60, "c10d::allreduce_", tid=1).op(30, 50, tid=2)
    assert of(file) == ([(0, 20), (30, 50), (60, 100)], [])


def test_without_categories_every_row_is_an_operator() -> None:
    """In a file that gives no categories each row is host work, gloo's spans are collectives."""
    file = Kineto(None)
    for start, end, name in (
        (0, 54, "aten::mul"),
        (60, 67, "aten::add"),
        (50, 90, "gloo:all_reduce"),
    ):
        file.event(start, end, name, "", pid="CPU functions", tid=name[:2])
    assert of(file) == ([(0, 54), (60, 67)], [(50, 90)])


def test_impossible_rows_are_left_out() -> None:
    """Host rows of negative length, or at 0 with no length, are dropped and counted."""
    file = Kineto().op(5, 20).op(30, 25).op(0, 0)
    work = work_of(file.trace())
    assert sets(work)[0] == [(5, 20)]
    assert work.counts["dropped"] == 2


Row = tuple[int, int, int, bool]  # thread, start, end, is a call


@st.composite
def nests(draw: st.DrawFn) -> list[Row]:
    """Rows of two threads, properly nested on each; some have the span of the one around them."""
    rows: list[Row] = []

    def fill(thread: int, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and len(rows) < 40 and draw(st.integers(0, 4)):
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start + 1, high))
            at = end
            rows.append((thread, start, end, draw(st.integers(0, 2)) == 0))
            if depth < 4:
                fill(thread, start, end, depth + 1)

    fill(1, 1, 41, 0)
    fill(2, 1, 41, 0)
    return draw(st.permutations(rows))


@given(nests())
@settings(max_examples=150)
def test_compute_is_where_the_innermost_row_is_no_call(rows: list[Row]) -> None:
    """For any nest of rows, an instant computes when some thread's innermost row is an operator.

    Of rows with one span a call is the innermost.
    """
    file = Kineto().mark(0, 50, "gloo:barrier", tid=9)
    for thread, start, end, call in rows:
        file.op(start, end, "c10d::broadcast_" if call else "aten::add", tid=thread)
    computes = []
    for t in range(50):
        innermost: dict[int, tuple[int, int, bool]] = {}
        for thread, start, end, call in rows:
            if start <= t < end:
                best = innermost.get(thread)
                if best is None or (end - start, not call) < (best[1] - best[0], not best[2]):
                    innermost[thread] = (start, end, call)
        computes.append(any(not call for _, _, call in innermost.values()))
    want = [t for t, yes in enumerate(computes) if yes]
    got = [t for start, end in of(file)[0] for t in range(start, end)]
    assert got == want
