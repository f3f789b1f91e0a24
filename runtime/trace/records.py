"""What is noted while a loop is recorded: collectives, phases and steps, with their times."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function

#: strides from here on are marks of ours: no tensor is that large
FIRST_TAG = 1 << 40
WAIT = "tracekit:wait"
ISSUE = "tracekit:issue:"
PHASE = "tracekit:phase:"
HOST = "tracekit:host"


@dataclass(slots=True)
class Record:
    """One collective as the recorder knows it; times are unix ns, None where not known.

    Attributes
    ----------
    seq : int or None
        Torch's own sequence number on the group.
    op : str
        In torch's words (``all_reduce``, ...), whatever the backend runs for it.
    axis : str or None
        Axis of the grid.
    group : str
        Description of the process group.
    bytes : int
        The message as nccl-tests counts it.
    phase, layer : str
        Empty where not known.
    start_ns, end_ns : int or None
        Of the transfer itself.
    wait_start_ns, wait_ns : int or None
        When a thread began to wait for it, and for how long.
    pg_name : str
        Torch's name of the group, the same on all of its members.
    in_elems, out_elems : int
        Elements of this rank's input and output.
    span : str
        Name of the span the backend writes for it, without the backend's.
    tag : int
        Stride that marks its span; 0 for none.
    thread, wait_thread : int
        Native ids of the threads that issued it and that waited for it.
    ends : (int, int)
        Sender and receiver of a message between two ranks.
    """

    op: str
    axis: str | None
    group: str
    bytes: int
    dtype: str
    phase: str
    layer: str
    step: int
    issue_ns: int
    seq: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    wait_start_ns: int | None = None
    wait_ns: int | None = None
    issue_end_ns: int = 0
    pg_name: str = ""
    ranks: tuple[int, ...] = ()
    in_elems: int = 0
    out_elems: int = 0
    span: str = ""
    tag: int = 0
    thread: int = 0
    wait_thread: int = 0
    ends: tuple[int, int] = (-1, -1)

    def as_dict(self) -> dict[str, Any]:
        """The record as the trace file holds it."""
        return {
            "seq": self.seq,
            "op": self.op,
            "axis": self.axis,
            "group": self.group,
            "bytes": self.bytes,
            "dtype": self.dtype,
            "phase": self.phase or None,
            "layer": self.layer or None,
            "step": self.step,
            "issue_ns": self.issue_ns,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "wait_start_ns": self.wait_start_ns,
            "wait_ns": self.wait_ns,
        }


@dataclass(frozen=True, slots=True)
class Mark:
    """A step or a phase: its name and span in unix ns, and the thread it ran on."""

    name: str
    start_ns: int
    end_ns: int
    thread: int


@dataclass
class Log:
    """Where collectives and phases are noted while a window is open.

    Attributes
    ----------
    active : bool
        Whether a window is open; else nothing is noted.
    rows : {"", "operator", "annotation"}
        What the calls that issue collectives are shown as to the profiler.
    tags : bool
        Whether inputs are marked so that their spans can be told apart (gloo).
    watched : bool
        Whether a recorder uses it, window or not.
    phase : str
    step : int
    """

    active: bool = False
    rows: str = ""
    tags: bool = False
    watched: bool = False
    phase: str = ""
    step: int = 0
    records: list[Record] = field(default_factory=list)
    phases: list[Mark] = field(default_factory=list)
    steps: list[Mark] = field(default_factory=list)
    _flying: deque[Any] = field(default_factory=deque)
    _tags: Iterator[int] = field(default_factory=lambda: count(FIRST_TAG))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Name the phase of what happens inside."""
        before, self.phase = self.phase, phase
        begin = time.time_ns()
        shown = record_function(PHASE + phase) if self.rows else nullcontext()
        try:
            with shown:
                yield
        finally:
            self.phase = before
            if self.active and before != phase:
                self.phases.append(Mark(phase, begin, time.time_ns(), threading.get_native_id()))

    def tag(self, record: Record, tensor: Tensor) -> Tensor:
        """The same memory under a stride that no other tensor has, by which its span is known.

        The profiler writes the strides of a collective's input; that of a dimension of one has no
        meaning of its own. The shape becomes (n, 1).
        """
        if not tensor.numel() or not tensor.is_contiguous():
            return tensor
        record.tag = next(self._tags)
        plain = tensor.detach() if tensor.requires_grad else tensor
        return plain.as_strided((tensor.numel(), 1), (1, record.tag))

    def tag_in_place(self, record: Record, tensor: Tensor) -> Tensor:
        """As `tag`, for a contiguous tensor that has a dimension of one: the shape stays."""
        record.tag = next(self._tags)
        strides = list(tensor.stride())
        strides[tensor.shape.index(1)] = record.tag
        return tensor.detach().as_strided(tensor.shape, strides)

    def issuing(self, record: Record, message: Tensor) -> AbstractContextManager[Any]:
        """Show the call that issues a collective to the profiler, with what is known of it."""
        if self.rows == "operator":
            return _row(record, message)
        if self.rows == "annotation":
            return record_function(f"{ISSUE}{record.pg_name}:{record.seq}")
        return nullcontext()

    def waiting(self) -> AbstractContextManager[Any]:
        """Show a wait to the profiler."""
        return record_function(WAIT) if self.rows == "operator" else nullcontext()

    def issued(self, record: Record, work: Any) -> None:
        """Keep the record, and the work until it is done."""
        record.issue_end_ns = time.time_ns()
        self.records.append(record)
        flying = self._flying
        while flying and flying[0].is_completed():
            flying.popleft()
        if work is not None:
            flying.append(work)

    def drain(self, timeout_s: float) -> bool:
        """Let what is under way end, so that its spans are whole; False when it did not in time."""
        deadline = time.monotonic() + timeout_s
        while self._flying:
            if self._flying[0].is_completed():
                self._flying.popleft()
            elif time.monotonic() > deadline:
                self._flying.clear()
                return False
            else:
                time.sleep(0.0002)
        return True

    def take(self) -> tuple[list[Record], list[Mark], list[Mark]]:
        """Hand over the records, phases and steps noted so far, and forget them."""
        taken = self.records, self.phases, self.steps
        self.records, self.phases, self.steps = [], [], []
        return taken


def _row(record: Record, message: Tensor) -> AbstractContextManager[Any]:
    """An operator row ``dist.<op>`` with arguments, where this torch can write them."""
    name = f"dist.{record.op}"
    try:
        make = torch._C._profiler._RecordFunctionFast
    except AttributeError:
        return record_function(name)
    values = {
        "axis": record.axis or "",
        "group": record.group,
        "phase": record.phase,
        "layer": record.layer,
        "step": record.step,
        "seq": record.seq or 0,
        "bytes": record.bytes,
    }
    made: AbstractContextManager[Any] = make(name, [message], values)
    return made
