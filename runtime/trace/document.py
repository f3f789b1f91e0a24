"""The text of a trace file: Kineto's, with what is known of each collective, or rows of our own."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from runtime.trace.records import HOST, PHASE, WAIT, Mark, Record
from runtime.trace.spans import Span

_KINDS = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def span_args(record: Record) -> dict[str, Any]:
    """What a span's row says of its collective, in the words NCCL's rows use, and in ours."""
    args: dict[str, Any] = {
        "Collective name": record.span if record.op == "send_recv" else record.op,
        "In msg nelems": record.in_elems,
        "Out msg nelems": record.out_elems,
        "Group size": len(record.ranks),
        "dtype": _KINDS.get(record.dtype, record.dtype),
        "Process Group Name": record.pg_name,
        "Process Group Description": record.group,
        "Process Group Ranks": str(list(record.ranks)),
        "tracekit phase": record.phase,
        "tracekit layer": record.layer,
        "tracekit step": record.step,
    }
    if record.seq is not None:
        args["Seq"] = record.seq
    if record.op == "send_recv":
        args["Src Rank"], args["Dst Rank"] = record.ends
    return args


def annotated(text: str, pairs: list[tuple[Span, Record]], key: dict[str, Any]) -> Iterator[str]:
    """A Kineto text with what is known in the rows of its collectives, and the top-level key.

    Rows are edited in place: every other byte stays as the profiler wrote it. The category of
    gloo's rows becomes that of collectives on the host.

    Raises
    ------
    OSError
        When the text is cut short, as the profiler leaves it on a full disk.
    """
    end = len(text.rstrip())
    if not end or text[end - 1] != "}" or '"traceEvents"' not in text:
        raise OSError("the profiler wrote only part of the trace")
    at = 0
    for span, record in sorted(pairs, key=lambda p: p[0].begin):
        yield text[at : span.begin]
        yield _edited(text[span.begin : span.end], span, record)
        at = span.end
    yield text[at : end - 1]
    yield f',\n"tracekit": {json.dumps(key, allow_nan=False)}}}\n'


def _edited(row: str, span: Span, record: Record) -> str:
    row = row.replace('"cat": "user_annotation"', '"cat": "collective_comm"', 1)
    new = {k: v for k, v in span_args(record).items() if k not in span.args}
    inside = json.dumps(new)[1:-1]
    at = row.find('"args": {')
    if at < 0:
        return f'{row[:-1]}, "args": {{{inside}}}}}'
    at += len('"args": {')
    comma = ", " if span.args else ""
    return f"{row[:at]}{inside}{comma}{row[at:]}"


def renamed_step(text: str, step: int) -> str:
    """The text with a step that never ended called otherwise, so that it counts as none."""
    return text.replace(f'"name": "ProfilerStep#{step}"', f'"name": "unfinished step {step}"')


# -- rows of our own --------------------------------------------------------------------------


@dataclass(slots=True)
class Marks:
    """What was noted in a window without operator rows."""

    records: list[Record]
    phases: list[Mark]
    steps: list[Mark]
    threads: dict[int, int]  # record's tag or id -> thread of its span

    def begin_ns(self) -> int:
        """The earliest time noted."""
        times = [m.start_ns for m in (*self.phases, *self.steps)]
        return min(times + [r.issue_ns for r in self.records], default=0)


def light_document(marks: Marks, key: dict[str, Any]) -> Iterator[str]:
    """A trace of steps, phases, collectives and waits alone."""
    base = marks.begin_ns() // 1_000_000_000 * 1_000_000_000
    head = {
        "schemaVersion": 1,
        "distributedInfo": distributed_info(),
        "host_name": platform.node(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
    }
    yield json.dumps(head)[:-1] + ',\n"traceEvents": [\n'
    yield ",\n".join(_rows(marks, base))
    yield f'\n],\n"tracekit": {json.dumps(key, allow_nan=False)}}}\n'


def _rows(marks: Marks, base: int) -> Iterator[str]:
    pid = os.getpid()
    yield json.dumps({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "python"}})
    for thread, name in sorted(_thread_names(marks).items()):
        yield json.dumps(
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": name}}
        )
    for name, cat, thread, start, end, args in sorted(_spans(marks), key=lambda s: (s[3], -s[4])):
        row = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": thread}
        text = json.dumps(row)[:-1] + f', "ts": {_us(start - base)}, "dur": {_us(end - start)}'
        yield f'{text}, "args": {json.dumps(args)}}}' if args else text + "}"


def _us(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _thread_names(marks: Marks) -> dict[int, str]:
    names = {m.thread: "python" for m in (*marks.phases, *marks.steps)}
    for record in marks.records:
        thread = marks.threads.get(id(record))
        if thread is not None:
            names.setdefault(thread, f"pt_gloo_runloop {record.group}")
    return names


_Row = tuple[str, str, int, int, int, dict[str, Any] | None]


def _spans(marks: Marks) -> Iterable[_Row]:
    for m in marks.steps:
        yield m.name, "user_annotation", m.thread, m.start_ns, m.end_ns, None
        if not any(m.start_ns <= p.start_ns < m.end_ns for p in marks.phases):
            # a loop that names no phases: its whole step is the host's work, but for waits
            yield HOST, "cpu_op", m.thread, m.start_ns, m.end_ns, None
    for m in marks.phases:
        yield PHASE + m.name, "cpu_op", m.thread, m.start_ns, m.end_ns, None
    for r in marks.records:
        yield f"dist.{r.op}", "cpu_op", r.thread, r.issue_ns, r.issue_end_ns, None
        if r.wait_start_ns is not None and r.wait_ns is not None:
            end = r.wait_start_ns + r.wait_ns
            yield WAIT, "user_annotation", r.wait_thread, r.wait_start_ns, end, None
        if r.start_ns is not None and r.end_ns is not None:
            thread = marks.threads.get(id(r), r.thread)
            name, args = f"gloo:{r.span}", span_args(r)
            yield name, "collective_comm", thread, r.start_ns, r.end_ns, args


def distributed_info() -> dict[str, Any]:
    """The job and its groups, as torch's profiler writes them; empty without a job."""
    if not dist.is_available() or not dist.is_initialized():
        return {}
    groups = dist.distributed_c10d._world.pg_config_info
    return {
        "backend": dist.get_backend(),
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "pg_count": dist.get_pg_count(),
        "pg_config": list(groups),
    }
