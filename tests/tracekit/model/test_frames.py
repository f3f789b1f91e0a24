"""Promises of a trace's events as a frame."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.builder import Kineto
from tracekit.io.table import EventTable
from tracekit.model import names as naming
from tracekit.model.run import TraceSet
from tracekit.model.trace import Trace

COLUMNS = [
    "start_us", "dur_us", "name", "cat", "kind", "role", "pid", "tid", "device", "stream",
    "correlation", "external_id", "bytes",
]  # fmt: skip


def test_each_event_is_a_row_in_order_of_start() -> None:
    """Events come by start, the outer before the inner, with exact times and what is known."""
    file = Kineto(0, unit_ns=1).op(2001, 9003, "inner").mark(2001, 9004, "outer")
    file.kernel(5000, 6001, "gemm", launched=3000, bytes=4)
    got = file.trace().events
    assert list(got.columns) == COLUMNS
    assert list(got.index) == [0, 1, 2, 3]
    assert got["name"].tolist() == ["outer", "inner", "cudaLaunchKernel", "gemm"]
    assert got["start_us"].tolist() == [2.001, 2.001, 3.0, 5.0]
    assert got["dur_us"].tolist() == [7.003, 7.002, 0.001, 1.001]
    assert got["kind"].tolist() == ["annotation", "operator", "launch", "kernel"]
    assert got["stream"].tolist() == [pd.NA, pd.NA, pd.NA, 7]
    assert got["correlation"].tolist() == [pd.NA, pd.NA, 1, 1]
    assert got["tid"].tolist() == ["1", "1", "1", "stream 7"]


def test_role_is_given_to_accounted_time_alone() -> None:
    """On a device its work has roles; without one the outermost operators and the spans have."""
    device = Kineto(0).op(0, 9).kernel(1, 5).comm(5, 7).copy(7, 8).kernel(8, 9, "Stream Wait Event")
    roles = device.trace().events.set_index("name")["role"].astype("object")
    assert roles.fillna("-").tolist() == ["-", "compute", "comm", "memory", "-"]
    host = Kineto(0).op(0, 9, "outer").op(2, 4, "inner").mark(10, 12, "gloo:all_reduce", tid=2)
    roles = host.trace().events.set_index("name")["role"].astype("object")
    assert roles.fillna("-").to_dict() == {
        "outer": "compute",
        "inner": "-",
        "gloo:all_reduce": "comm",
    }


def test_impossible_times_are_left_out() -> None:
    """Rows with a negative duration, or with both times 0, are no events."""
    file = Kineto(0).kernel(0, 0, "both 0").kernel(9, 5, "negative").kernel(5, 5, "empty")
    assert file.trace().events["name"].tolist() == ["empty"]


def test_other_devices_of_the_file_are_left_out() -> None:
    """Where one file holds two devices, a rank's frame has its own device's work."""
    file = Kineto(0).op(0, 1).kernel(1, 2, "on 0").kernel(3, 4, "on 1", device=1)
    file.event(3, 4, "step on 1", "gpu_user_annotation", pid=1, tid=7, args={"device": 1})
    table: EventTable = file.table()
    own = (table["device"] == 0) & (table["stream"] >= 0)
    trace = Trace(0, "two.json", table, naming.load(), own)
    assert trace.events["name"].tolist() == ["aten::mm", "on 0"]


@pytest.mark.parametrize("cat", ["kernel", "cpu_op"])
def test_columns_are_there_without_events(cat: str) -> None:
    """A trace without a sound event gives the same columns."""
    full = Kineto(0).event(1, 2, "a", cat).trace().events
    bare = Kineto(0).event(0, 0, "a", cat).trace().events
    assert len(bare) == 0
    assert list(bare.columns) == list(full.columns)
    assert bare["device"].dtype == full["device"].dtype == "Int64"


def test_frame_belongs_to_the_rank_of_a_run() -> None:
    """A run's trace gives the same frame as the trace alone."""
    trace = Kineto(3).kernel(1, 2).trace()
    run = TraceSet([3], [], trace.names, {3: lambda: trace})
    pd.testing.assert_frame_equal(run.trace(3).events, trace.events)
