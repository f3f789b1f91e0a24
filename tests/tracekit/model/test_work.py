"""Which rows are work, what role it has, what is dropped or cut, and what each count says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import ALL_GATHER, ALL_REDUCE, Kineto, collective
from tracekit.model.names import ROLES, load
from tracekit.model.trace import Trace
from tracekit.model.work import Work, role_counts, work_of


def spans(work: Work) -> list[tuple[str, int, int]]:
    """Role, start and end (µs) of each piece, in order of start."""
    times = zip(work.role.tolist(), work.start.tolist(), work.end.tolist(), strict=True)
    return [(ROLES[role], start // 1000, end // 1000) for role, start, end in times]


def of(file: Kineto) -> Work:
    """The work of a file."""
    return work_of(file.trace())


# -- what is work -----------------------------------------------------------------------------


def test_only_device_rows_are_work() -> None:
    """Kernels, copies and fills are work; host rows, annotations and waits never are."""
    file = Kineto().kernel(10, 20).copy(30, 40).kernel(50, 60, "Memset (Device)", cat="gpu_memset")
    file.op(0, 99).launch(5, 1).step(0, 0, 99).mark(1, 98, "nccl:all_reduce")
    for cat in ("gpu_user_annotation", "cuda_sync", "python_function", "ac2g", "overhead", "Trace"):
        file.event(0, 99, "whatever", cat, tid="stream 7")
    assert spans(of(file)) == [("compute", 10, 20), ("memory", 30, 40), ("memory", 50, 60)]


def test_work_is_in_order_of_start() -> None:
    """Whatever the order in the file, work is in order of start."""
    work = of(Kineto().kernel(50, 60).comm(10, 90).kernel(20, 30))
    assert [start for _, start, _ in spans(work)] == [10, 20, 50]


def test_a_category_decides_and_a_stream_does_not() -> None:
    """Stream 0 is a stream like others, and a host row with a stream stays a host row."""
    file = Kineto().kernel(0, 30, stream=0).comm(30, 50, stream=0)
    file.event(0, 500, "triton_kernel", "cpu_op", args={"stream": 0})
    assert spans(of(file)) == [("compute", 0, 30), ("comm", 30, 50)]


@pytest.mark.parametrize("cat", ["kernel", "Kernel", "mtia_ccp_events", "hpu_op"])
def test_kernels_of_all_vendors_and_years(cat: str) -> None:
    """A kernel is one in every spelling of its category."""
    assert spans(of(Kineto().kernel(5, 9, cat=cat))) == [("compute", 5, 9)]


def test_waits_among_kernels_are_no_work() -> None:
    """Rows that a device records among its kernels but that only wait are left out."""
    file = Kineto().kernel(5, 9, cat="mtia_ccp_events")
    file.kernel(0, 99, "event_wait", cat="mtia_ccp_events")
    assert spans(of(file)) == [("compute", 5, 9)]


def test_copies_written_as_kernels_are_memory() -> None:
    """Copies and fills that older ROCm writes as kernels are memory by their name."""
    file = Kineto().kernel(0, 5, "__amd_rocclr_copyBuffer").kernel(5, 9, "FillBuffer").kernel(9, 12)
    assert [role for role, _, _ in spans(of(file))] == ["memory", "memory", "compute"]


# -- faults -----------------------------------------------------------------------------------


def test_impossible_times_are_dropped_and_counted() -> None:
    """Negative lengths, rows at 0 of length 0 and rows of no time are dropped, each counted."""
    file = Kineto().kernel(100, 140)
    file.kernel(0, 0).kernel(110, 105).kernel(120, 119)
    file.raw('{"ph": "X", "name": "k", "cat": "kernel", "ts": "soon", "dur": 1}')
    file.raw('{"ph": "X", "name": "k", "cat": "kernel", "ts": 100}')
    work = of(file)
    assert spans(work) == [("compute", 100, 140)]
    assert (work.counts["timed"], work.counts["dropped"]) == (1, 5)


def test_a_row_months_away_is_impossible() -> None:
    """A row whose stamp lies more than 104 days from the others is dropped, whichever way."""
    far = 200 * 86_400_000_000
    file = (
        Kineto()
        .kernel(far, far + 5)
        .kernel(far + 5, far + 9)
        .kernel(7, 9)
        .kernel(far * 2, far * 2 + 1)
    )
    work = of(file)
    assert spans(work) == [("compute", far, far + 5), ("compute", far + 5, far + 9)]
    assert work.counts["dropped"] == 2


def test_a_device_clock_of_its_own_is_kept() -> None:
    """Device rows whose clock is years from that of the host rows are still all there is."""
    day = 86_400_000_000
    file = Kineto().kernel(day * 900, day * 900 + 5)
    for at in range(5):
        file.op(at, at + 1)
    assert spans(of(file)) == [("compute", day * 900, day * 900 + 5)]


def test_an_empty_event_is_kept() -> None:
    """An event of no length at a possible time is work of no length."""
    work = of(Kineto().kernel(5, 5).kernel(7, 9))
    assert spans(work) == [("compute", 5, 5), ("compute", 7, 9)]
    assert work.counts["dropped"] == 0


@pytest.mark.parametrize(
    ("events", "ends", "clipped"),
    [
        ([(0, 100), (10, 20), (30, 40)], [10, 20, 40], 1),  # past two later starts
        ([(0, 31), (10, 20), (30, 40)], [10, 20, 40], 1),
        ([(0, 30), (10, 20), (30, 40)], [30, 20, 40], 0),  # only up to the second
        ([(0, 25), (10, 20), (30, 40)], [25, 20, 40], 0),  # past one: an early launch
        ([(0, 100), (0, 100), (0, 100)], [100, 100, 100], 0),  # equal starts are no later ones
        ([(0, 100), (10, 20), (10, 20)], [10, 20, 20], 1),
        ([(0, 100), (10, 90)], [100, 90], 0),
        ([(0, 100)], [100], 0),
        ([(0, 100), (10, 100), (20, 100), (30, 100)], [10, 20, 100, 100], 2),
    ],
)
def test_absurd_ends_are_cut_at_the_next_start(
    events: list[tuple[int, int]], ends: list[int], clipped: int
) -> None:
    """An end past the starts of two later events of its stream is cut at the first of them."""
    file = Kineto()
    for start, end in events:
        file.kernel(start + 5, end + 5)
    work = of(file)
    assert [end - 5 for _, _, end in spans(work)] == ends
    assert work.counts["clipped"] == clipped


def test_streams_do_not_cut_each_other() -> None:
    """Events of other streams, or of lanes without a stream, never count as later ones."""
    file = Kineto().kernel(5, 100)
    for at in range(3):
        file.kernel(10 + at, 20, stream=8 + at)
        file.event(10 + at, 20, "k", "kernel", pid=0, tid=f"lane {at}")
    assert of(file).counts["clipped"] == 0


# -- launches ---------------------------------------------------------------------------------


def test_a_launch_is_found_by_correlation() -> None:
    """A device row belongs to the launch of its correlation; without one it is unlinked."""
    file = Kineto().kernel(50, 60, launched=7).kernel(60, 70)
    file.launch(8, 77).kernel(70, 80, correlation=77).kernel(80, 90, correlation=77)
    file.kernel(90, 95, correlation=99)
    work = of(file)
    assert [at // 1000 if at > 0 else None for at in work.at.tolist()] == [7, None, 8, 8, None]
    assert work.counts["unlinked"] == 2


# -- copies that carry out a collective ---------------------------------------------------------


def issued(file: Kineto, external_id: int, **args: Any) -> Kineto:
    """A host row that issues an all-gather under an id."""
    about = collective("_allgather_base", elems=8, out_elems=16, **args)
    return file.issue(1, 3, external_id, **about)


def test_a_copy_engine_carries_out_a_collective() -> None:
    """Copies linked to a collective without a kernel of its own are communication."""
    file = issued(Kineto(), 7).kernel(0, 50, **{"External id": 6})
    file.copy(20, 60, **{"External id": 7}).copy(60, 90, **{"External id": 7})
    file.copy(90, 95, **{"External id": 8})
    assert [role for role, _, _ in spans(of(file))] == ["compute", "comm", "comm", "memory"]


def test_a_copy_beside_a_collective_s_kernel_stays_memory() -> None:
    """Where the collective has a kernel, a copy under the same id is only a copy."""
    file = issued(Kineto(), 7).comm(20, 60, ALL_GATHER, **{"External id": 7})
    file.copy(10, 20, **{"External id": 7})
    assert [role for role, _, _ in spans(of(file))] == ["memory", "comm"]


def test_ids_that_are_correlations_link_nothing() -> None:
    """Where a writer puts the correlation into the external id, copies are not linked by it."""
    file = issued(Kineto(), 7)
    for number in (7, 8, 9):
        file.copy(10 * number, 10 * number + 5, **{"External id": number, "correlation": number})
    assert {role for role, _, _ in spans(of(file))} == {"memory"}


# -- devices without recorded communication ---------------------------------------------------


def test_communication_on_the_host_alone_is_given_apart() -> None:
    """Where only host rows of collectives exist, their union is known and the device's is not."""
    file = Kineto().event(0, 40, "gemm", "kernel", pid=0, tid=3)
    file.event(20, 80, "oneccl::allreduce", "collective_comm", tid=5)
    file.event(60, 90, "oneccl::allreduce", "collective_comm", tid=6)
    work = of(file)
    assert work.host_comm_ns == 70_000
    assert not work.comm_known
    assert of(file.comm(50, 60)).comm_known


def test_a_run_without_any_collective_knows_its_communication() -> None:
    """Without rows of collectives anywhere, communication is 0, not unknown."""
    assert of(Kineto().kernel(0, 5)).comm_known


# -- counts -----------------------------------------------------------------------------------


def test_counts_by_role() -> None:
    """Every piece of work is counted under its role."""
    file = Kineto().kernel(0, 5).kernel(5, 9).comm(9, 12, ALL_REDUCE).copy(12, 14)
    assert role_counts(of(file)) == {"compute": 2, "comm": 1, "memory": 1}


def test_narrowed_work_keeps_what_is_not_per_piece() -> None:
    """Selecting pieces keeps counts and what is known, and every column in step."""
    work = of(Kineto().kernel(0, 5, launched=-3).kernel(5, 9).comm(9, 12))
    part = work.select(work.role == ROLES.index("comm"))
    assert spans(part) == [("comm", 9, 12)]
    assert part.counts == work.counts
    assert len(part) == len(part.at) == len(part.launch) == len(part.stream) == len(part.row) == 1


def test_a_file_without_work_has_none() -> None:
    """A trace of annotations alone has a host timeline without any work."""
    trace: Trace = Kineto().step(0, 0, 50).trace(load())
    work = work_of(trace)
    assert (len(work), work.timeline) == (0, "host")
