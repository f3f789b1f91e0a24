"""The only place that calls collectives: each knows its axis, operation, phase, layer and bytes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.grid import Grid

OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


@dataclass(slots=True)
class Record:
    """One collective as the runtime saw it; times are unix ns, None where not known."""

    seq: int
    op: str
    axis: str
    group: str
    bytes: int
    dtype: str
    phase: str
    layer: str
    step: int
    issue_ns: int
    start_ns: int | None = None
    end_ns: int | None = None
    wait_ns: int | None = None


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
    ) -> None:
        self.result = result
        self._keep = keep  # what is sent must live until the work is done
        self._work, self._finish, self._record = work, finish, record

    def wait(self) -> Tensor:
        """Block until the result is there; a second call returns at once."""
        if self._work is not None:
            begin = time.time_ns()
            self._work.wait()
            if self._record is not None:
                self._record.wait_ns = time.time_ns() - begin
            self._work = None
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
    keep : bool
        Whether to keep a record of every collective (for the trace).

    Attributes
    ----------
    phase, layer, step
        What the next collectives belong to; set by `during` and the training loop.
    volume : Counter
        Message bytes sent so far by (axis, operation, kind).
    """

    grid: Grid
    keep: bool = True
    phase: str = "setup"
    layer: str = ""
    step: int = 0
    records: list[Record] = field(default_factory=list)
    volume: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _seq: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Name the phase of the collectives issued inside."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    # -- operations ---------------------------------------------------------------------------

    def all_reduce(
        self, tensor: Tensor, axis: str, kind: str, *, op: str = "sum", layer: str = ""
    ) -> Handle:
        """Reduce in place over an axis; asynchronous."""
        group = self.grid[axis].group
        if group is None:
            return Handle(tensor)
        record = self._note("all_reduce", axis, kind, tensor, layer)
        work = dist.all_reduce(tensor, op=OPS[op], group=group, async_op=True)
        return Handle(tensor, work, record=record)

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
        record = self._note("all_gather", axis, kind, whole, layer)
        source = shard.contiguous()
        work = dist.all_gather_into_tensor(whole, source, group=place.group, async_op=True)
        return Handle(whole, work, record=record, keep=source)

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
        record = self._note("reduce_scatter", axis, kind, whole, layer)
        part = whole.new_empty(whole.numel() // place.size)
        if dist.get_backend(place.group) == "gloo":
            parts = torch.empty_like(whole)
            work = dist.all_to_all_single(parts, whole, group=place.group, async_op=True)

            def add() -> None:
                torch.sum(parts.view(place.size, -1), dim=0, out=part)

            return Handle(part, work, finish=add, record=record)
        work = dist.reduce_scatter_tensor(part, whole, group=place.group, async_op=True)
        return Handle(part, work, record=record)

    def sum_over(self, tensor: Tensor, axes: tuple[str, ...], kind: str, layer: str = "") -> Tensor:
        """Sum in place over several axes in turn; blocks."""
        for axis in axes:
            self.all_reduce(tensor, axis, kind, layer=layer).wait()
        return tensor

    def barrier(self) -> None:
        """Wait for all ranks of the job."""
        if dist.is_initialized():
            dist.barrier()

    # -- records ------------------------------------------------------------------------------

    def _note(self, op: str, axis: str, kind: str, message: Tensor, layer: str) -> Record | None:
        """Count and record a collective; the message is what nccl-tests calls its size."""
        size = message.numel() * message.element_size()
        self.volume[axis, op, kind] += size
        self._seq[axis] += 1
        if not self.keep:
            return None
        record = Record(
            seq=self._seq[axis],
            op=op,
            axis="z" if axis == "z_rs" else axis,
            group=axis,
            bytes=size,
            dtype=str(message.dtype).removeprefix("torch."),
            phase=self.phase,
            layer=layer or kind,
            step=self.step,
            issue_ns=time.time_ns(),
        )
        self.records.append(record)
        return record
