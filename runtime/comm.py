"""The only place that calls collectives: each knows its axis, operation, phase, layer and bytes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.agreement import Agreement, Call
from runtime.grid import Axis, Grid
from runtime.trace.records import Log, Record

#: torch renamed these two in 2.13
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class Handle:
    """A collective under way.

    Attributes
    ----------
    result : Tensor
        Holds the result once `wait` has returned.
    """

    def __init__(
        self,
        result: Tensor,
        work: Any = None,
        finish: Callable[[], None] | None = None,
        record: Record | None = None,
        keep: Tensor | None = None,
        log: Log | None = None,
    ) -> None:
        self.result = result
        self._keep = keep  # what is sent must live until the work is done
        self._work, self._finish, self._record, self._log = work, finish, record, log

    def wait(self) -> Tensor:
        """Block until the result is there; a second call returns at once."""
        work, self._work = self._work, None
        if work is not None:
            record = self._record
            if record is None or self._log is None:
                work.wait()
            else:
                record.wait_thread = threading.get_native_id()
                record.wait_start_ns = time.time_ns()
                with self._log.waiting():
                    work.wait()
                record.wait_ns = time.time_ns() - record.wait_start_ns
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish()
        return self.result


@dataclass
class Comm:
    """Collectives on the axes of one grid.

    Parameters
    ----------
    grid : Grid
    agreement : Agreement, optional
        Compares every collective across its group before it is issued (slow; for debugging).
    delay : callable, optional
        Called with axis and bytes before each collective is issued (a slow link put in on purpose).

    Attributes
    ----------
    log : Log
        Phase and step that the next collectives belong to, and their records while a recorder
        has a window open.
    volume : Counter
        Message bytes sent so far by (axis, operation, kind).
    """

    grid: Grid
    agreement: Agreement | None = None
    delay: Callable[[str, int], None] | None = None
    log: Log = field(default_factory=lambda: Log(phase="setup"))
    volume: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def phase(self) -> str:
        """Phase of the next collectives."""
        return self.log.phase

    @property
    def step(self) -> int:
        """Training step of the next collectives."""
        return self.log.step

    @step.setter
    def step(self, step: int) -> None:
        self.log.step = step

    def during(self, phase: str) -> AbstractContextManager[None]:
        """Name the phase of the collectives issued inside."""
        return self.log.during(phase)

    # -- operations ---------------------------------------------------------------------------

    def all_reduce(
        self, tensor: Tensor, axis: str, kind: str, *, op: str = "sum", layer: str = ""
    ) -> Handle:
        """Reduce in place over an axis; asynchronous."""
        place = self.grid[axis]
        if place.group is None:
            return Handle(tensor)

        def call(source: Tensor) -> Any:
            return dist.all_reduce(source, op=OPS[op], group=place.group, async_op=True)

        work, record = self._issue("all_reduce", place, kind, tensor, layer, tensor, call)
        return Handle(tensor, work, record=record, log=self.log)

    def all_gather(self, shard: Tensor, axis: str, kind: str, *, layer: str = "") -> Handle:
        """Concatenate flat shards along an axis; asynchronous.

        Parameters
        ----------
        shard : Tensor, shape (n,)

        Returns
        -------
        Handle
            Of a tensor of shape (n * axis size,).
        """
        place = self.grid[axis]
        if place.group is None:
            return Handle(shard)
        whole = shard.new_empty(shard.numel() * place.size)
        source = shard.contiguous()

        def call(source: Tensor) -> Any:
            into = whole.view(-1, *source.shape[1:])
            return _gather(into, source, group=place.group, async_op=True)

        work, record = self._issue("all_gather", place, kind, whole, layer, source, call)
        return Handle(whole, work, record=record, keep=source, log=self.log)

    def reduce_scatter(self, whole: Tensor, axis: str, kind: str, *, layer: str = "") -> Handle:
        """Sum flat tensors over an axis and keep this rank's part; asynchronous.

        On gloo an all-to-all and a local sum, which is half the traffic of its own
        reduce-scatter (that runs as an all-reduce).

        Parameters
        ----------
        whole : Tensor, shape (n * axis size,)

        Returns
        -------
        Handle
            Of a tensor of shape (n,).
        """
        place = self.grid[axis]
        if place.group is None:
            return Handle(whole)
        part = whole.new_empty(whole.numel() // place.size)
        if place.backend != "gloo":

            def scatter(source: Tensor) -> Any:
                return _scatter(part, source, group=place.group, async_op=True)

            work, record = self._issue("reduce_scatter", place, kind, whole, layer, whole, scatter)
            return Handle(part, work, record=record, log=self.log)
        parts = torch.empty_like(whole)

        def exchange(source: Tensor) -> Any:
            into = parts.view(source.shape)
            return dist.all_to_all_single(into, source, group=place.group, async_op=True)

        def add() -> None:
            torch.sum(parts.view(place.size, -1), dim=0, out=part)

        work, record = self._issue("reduce_scatter", place, kind, whole, layer, whole, exchange)
        if record is not None:
            record.span = "all_to_all"
        return Handle(part, work, finish=add, record=record, keep=whole, log=self.log)

    def sum_over(self, tensor: Tensor, axes: tuple[str, ...], kind: str, layer: str = "") -> Tensor:
        """Sum in place over several axes in turn; blocks."""
        for axis in axes:
            self.all_reduce(tensor, axis, kind, layer=layer).wait()
        return tensor

    def barrier(self) -> None:
        """Wait for all ranks of the job."""
        place = self.grid.world
        if place.group is not None:

            def call(_: Tensor) -> Any:
                return dist.barrier(group=place.group, async_op=True)

            nothing = torch.empty(0)
            work, record = self._issue("barrier", place, "barrier", nothing, "", nothing, call)
            Handle(nothing, work, record=record, log=self.log).wait()

    # -- records ------------------------------------------------------------------------------

    def _issue(
        self,
        op: str,
        place: Axis,
        kind: str,
        message: Tensor,
        layer: str,
        source: Tensor,
        call: Callable[[Tensor], Any],
    ) -> tuple[Any, Record | None]:
        """Count a collective and call it; the message is what nccl-tests calls its size."""
        log = self.log
        size = message.numel() * message.element_size()
        self.volume[place.name, op, kind] += size
        if self.delay is not None:
            self.delay(place.axis, size)
        if self.agreement is not None:
            self._agree(self.agreement, op, place, message, layer or kind)
        if not log.active:
            return call(source), None
        record = self._record(op, place, message, source, layer or kind)
        if log.tags and place.backend == "gloo":
            source = log.tag(record, source)
        with log.issuing(record, message):
            work = call(source)
        log.issued(record, work)
        return work, record

    def _record(self, op: str, place: Axis, message: Tensor, source: Tensor, layer: str) -> Record:
        n = source.numel()
        return Record(
            seq=place.next_seq(),
            op=op,
            axis=place.axis,
            group=place.name,
            bytes=message.numel() * message.element_size(),
            dtype=str(message.dtype).removeprefix("torch."),
            phase=self.log.phase,
            layer=layer,
            step=self.log.step,
            issue_ns=time.time_ns(),
            pg_name=place.pg_name,
            ranks=place.ranks,
            in_elems=n,
            out_elems=n // place.size if op == "reduce_scatter" else message.numel(),
            span=op,
            thread=threading.get_native_id(),
        )

    def _agree(
        self, agreement: Agreement, op: str, place: Axis, message: Tensor, layer: str
    ) -> None:
        call = Call(
            group=place.name,
            op=op,
            elems=message.numel(),
            dtype=str(message.dtype).removeprefix("torch."),
            seq=place.next_seq(),
            step=self.log.step,
            phase=self.log.phase,
            layer=layer,
        )
        agreement.check(place, call)
