"""Made-up Kineto traces, one short call an event, whose answers can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tracekit.io import kineto
from tracekit.io.table import EventTable
from tracekit.model import names as naming
from tracekit.model.run import TraceSet
from tracekit.model.trace import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"
COPY = "Memcpy HtoD (Pinned -> Device)"


def exact_us(ns: int) -> str:
    """Nanoseconds as the µs text a profiler writes, with all its digits.

    Examples
    --------
    >>> exact_us(1_760_000_000_123_456_789), exact_us(-1)
    ('1760000000123456.789', '-0.001')
    """
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


class Kineto:
    """One file: every method appends one event (a launch beside it where asked for).

    Parameters
    ----------
    rank, world_size : int or None
        For ``distributedInfo``, which is left out when ``rank`` is None.
    unit_ns : int
        Length in ns of one unit of the times given to the methods; µs unless said.
    header : object
        More top-level keys.
    """

    def __init__(
        self,
        rank: int | None = 0,
        world_size: int | None = None,
        unit_ns: int = 1000,
        **header: Any,
    ) -> None:
        self.header: dict[str, Any] = {"schemaVersion": 1, **header}
        if rank is not None:
            self.header["distributedInfo"] = {"backend": "nccl", "rank": rank}
            if world_size is not None:
                self.header["distributedInfo"]["world_size"] = world_size
        self.unit_ns = unit_ns
        self.rows: list[str] = []
        self._correlation = 0

    # -- any event ----------------------------------------------------------------------------

    def raw(self, text: str) -> Kineto:
        """An event as JSON text, however odd."""
        self.rows.append(text)
        return self

    def event(
        self,
        start: int,
        end: int,
        name: str,
        cat: str,
        *,
        pid: Any = 4242,
        tid: Any = 1,
        args: dict[str, Any] | None = None,
    ) -> Kineto:
        """A complete event over ``[start, end)``."""
        ts, dur = exact_us(start * self.unit_ns), exact_us((end - start) * self.unit_ns)
        rest = json.dumps({"name": name, "cat": cat, "pid": pid, "tid": tid, "args": args or {}})
        return self.raw(f'{{"ph": "X", "ts": {ts}, "dur": {dur}, {rest[1:]}')

    # -- the device ---------------------------------------------------------------------------

    def kernel(
        self,
        start: int,
        end: int,
        name: str = "gemm",
        *,
        stream: int = 7,
        device: int = 0,
        launched: int | None = None,
        cat: str = "kernel",
        **args: Any,
    ) -> Kineto:
        """Device work; ``launched`` adds the host call that launched it, one unit long."""
        own: dict[str, Any] = {"stream": stream, "device": device, **args}
        if launched is not None:
            self._correlation += 1
            own["correlation"] = self._correlation
            self.launch(launched, self._correlation)
        return self.event(start, end, name, cat, pid=device, tid=f"stream {stream}", args=own)

    def comm(self, start: int, end: int, name: str = ALL_REDUCE, **more: Any) -> Kineto:
        """A communication kernel, on a stream of its own unless said."""
        return self.kernel(start, end, name, **{"stream": 20, **more})

    def copy(self, start: int, end: int, name: str = COPY, **more: Any) -> Kineto:
        """A copy between host and device."""
        return self.kernel(start, end, name, **{"stream": 30, "cat": "gpu_memcpy", **more})

    # -- the host -----------------------------------------------------------------------------

    def launch(self, at: int, correlation: int, *, tid: int = 1) -> Kineto:
        """A launch call, one unit long."""
        args = {"correlation": correlation}
        return self.event(at, at + 1, "cudaLaunchKernel", "cuda_runtime", tid=tid, args=args)

    def op(
        self, start: int, end: int, name: str = "aten::mm", *, tid: int = 1, **args: Any
    ) -> Kineto:
        """A host operator."""
        return self.event(start, end, name, "cpu_op", tid=tid, args=args)

    def mark(self, start: int, end: int, name: str, *, tid: int = 1, **args: Any) -> Kineto:
        """A host annotation."""
        return self.event(start, end, name, "user_annotation", tid=tid, args=args)

    def step(self, number: int, start: int, end: int) -> Kineto:
        """A profiler step."""
        return self.mark(start, end, f"ProfilerStep#{number}")

    def issue(self, start: int, end: int, external_id: int, *, tid: int = 1, **args: Any) -> Kineto:
        """The host row that issues a collective and describes it."""
        given = {"External id": external_id, **args}
        return self.event(start, end, "record_param_comms", "cpu_op", tid=tid, args=given)

    # -- the file -----------------------------------------------------------------------------

    def text(self, indent: str = "\n  ") -> bytes:
        """The whole file."""
        head = json.dumps(self.header)[:-1]
        body = ("," + indent).join(self.rows)
        return f'{head}, "traceEvents": [{indent}{body}\n]}}\n'.encode()

    def write(self, path: Path) -> Path:
        """Write the file and give its path back."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.text())
        return path

    def table(self, label: str = "trace.json") -> EventTable:
        """The file as the reader reads it."""
        return kineto.read(iter([self.text()]), label)

    def trace(self, names: naming.Names | None = None) -> Trace:
        """The file as one rank's trace."""
        rank = self.header.get("distributedInfo", {}).get("rank", 0)
        return Trace(rank, f"rank{rank}.json", self.table(), names or naming.load())


def collective(
    op: str | None = "allreduce",
    *,
    elems: int | None = None,
    out_elems: int | None = None,
    dtype: str = "Float",
    group: str = "0",
    ranks: Iterable[int] | None = (0, 1),
    size: int | None = None,
    desc: str | None = None,
    seq: int | None = None,
    comms_id: int | str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The arguments that describe a collective, as torch writes them; None leaves one out.

    Examples
    --------
    >>> collective("broadcast", ranks=None, size=4)
    {'Collective name': 'broadcast', 'dtype': 'Float', 'Group size': 4, 'Process Group Name': '0'}
    """
    members = None if ranks is None else list(ranks)
    given = {
        "Collective name": op,
        "In msg nelems": elems,
        "Out msg nelems": elems if out_elems is None else out_elems,
        "dtype": dtype,
        "Group size": len(members) if size is None and members is not None else size,
        "Process Group Name": group,
        "Process Group Description": desc,
        "Process Group Ranks": None if members is None else str(members),
        "Seq": seq,
        "Comms Id": comms_id,
        **more,
    }
    return {key: value for key, value in given.items() if value is not None}


def run_of(*files: Kineto, names: naming.Names | None = None) -> TraceSet:
    """A run of these files, held in memory; each has a rank of its own."""
    rules = names or naming.load()
    traces = {trace.rank: trace for trace in (file.trace(rules) for file in files)}
    assert len(traces) == len(files), "two files of one rank"
    loaders = {rank: (lambda trace=trace: trace) for rank, trace in traces.items()}
    return TraceSet(sorted(traces), [], rules, loaders)
