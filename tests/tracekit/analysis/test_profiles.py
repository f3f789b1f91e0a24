"""Which names take the time, on the device and on the host."""

from __future__ import annotations

from typing import Any

from tests.builder import ALL_REDUCE, COPY, Kineto
from tracekit.analysis.profiles import kernel_rows, operator_rows
from tracekit.model.work import work_of


def kernels(file: Kineto) -> list[dict[str, Any]]:
    """The names of a file's work."""
    trace = file.trace()
    return kernel_rows(trace, work_of(trace))


def test_names_by_role_and_total() -> None:
    """Names are listed with count, total, mean, shortest and longest, the largest total first."""
    file = Kineto(2).kernel(0, 5).kernel(10, 25).comm(0, 100).copy(0, 2)
    assert kernels(file) == [
        {"rank": 2, "role": "comm", "name": ALL_REDUCE, "count": 1, "total_us": 100.0,
         "mean_us": 100.0, "min_us": 100.0, "max_us": 100.0, "known": True},
        {"rank": 2, "role": "compute", "name": "gemm", "count": 2, "total_us": 20.0,
         "mean_us": 10.0, "min_us": 5.0, "max_us": 15.0, "known": True},
        {"rank": 2, "role": "memory", "name": COPY, "count": 1, "total_us": 2.0, "mean_us": 2.0,
         "min_us": 2.0, "max_us": 2.0, "known": True},
    ]  # fmt: skip


def test_whether_a_rule_knew_the_name() -> None:
    """What no rule knows counts as compute and is marked, so that it can be named."""
    rows = kernels(Kineto().kernel(0, 9, "void at::native::add<1>").kernel(9, 10, "my_kernel"))
    assert [(r["name"], r["known"]) for r in rows] == [
        ("void at::native::add<1>", True), ("my_kernel", False),
    ]  # fmt: skip


def test_one_name_of_two_roles() -> None:
    """The same name in two roles, such as a copy that carries out a collective, is listed twice."""
    file = Kineto().issue(1, 2, 7, **{"Collective name": "_allgather_base"})
    file.copy(10, 30, **{"External id": 7}).copy(40, 45, **{"External id": 8})
    assert [(r["role"], r["total_us"]) for r in kernels(file)] == [("comm", 20.0), ("memory", 5.0)]


def test_no_work_has_no_names() -> None:
    """A trace without work lists nothing."""
    assert kernels(Kineto().step(0, 0, 5)) == []


def test_operators_are_counted_inclusively() -> None:
    """Host operators are listed by name with calls and inclusive length, the longest first."""
    file = Kineto(1).op(0, 100, "aten::linear").op(10, 50, "aten::mm").op(60, 90, "aten::mm")
    file.op(200, 190, "aten::broken").mark(0, 500, "forward").kernel(0, 5)
    assert operator_rows(file.trace()) == [
        {"rank": 1, "name": "aten::linear", "count": 1, "total_us": 100.0, "mean_us": 100.0},
        {"rank": 1, "name": "aten::mm", "count": 2, "total_us": 70.0, "mean_us": 35.0},
    ]
