"""See the collectives of anyone's loop below Python, where DDP's reducer and FSDP2 issue them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from runtime.trace.records import Log, Record


@dataclass(frozen=True, slots=True)
class _Op:
    """How a c10d operation is called.

    Attributes
    ----------
    op, span : str
        In torch's words, and what gloo names its span.
    source, result : int
        Which arguments hold its input and its output; -1 for none.
    flat : bool
        Whether both may be seen as (n, 1) instead of (n,), which nobody is handed back.
    """

    op: str
    span: str
    source: int
    result: int
    flat: bool = False


_OPS = {
    "allreduce_": _Op("all_reduce", "all_reduce", 0, 0),
    "allreduce_coalesced_": _Op("all_reduce", "all_reduce", 0, 0),
    "_allgather_base_": _Op("all_gather", "all_gather", 1, 0, flat=True),
    "allgather_": _Op("all_gather", "all_gather", 1, 0),
    "allgather_coalesced_": _Op("all_gather", "all_gather", 1, 0),
    "allgather_into_tensor_coalesced_": _Op("all_gather", "all_gather", 1, 0),
    # gloo runs it as an all-reduce
    "_reduce_scatter_base_": _Op("reduce_scatter", "all_reduce", 1, 0),
    "reduce_scatter_": _Op("reduce_scatter", "all_reduce", 1, 0),
    "reduce_scatter_tensor_coalesced_": _Op("reduce_scatter", "all_reduce", 1, 0),
    "alltoall_base_": _Op("all_to_all", "all_to_all", 1, 0),
    "alltoall_": _Op("all_to_all", "all_to_all", 1, 0),
    "broadcast_": _Op("broadcast", "broadcast", 0, 0),
    "reduce_": _Op("reduce", "reduce", 0, 0),
    "gather_": _Op("gather", "gather", 1, 0),
    "scatter_": _Op("scatter", "scatter", 1, 0),
    "barrier": _Op("barrier", "barrier", -1, -1),
    "send": _Op("send_recv", "send", 0, 0),
    "recv_": _Op("send_recv", "recv", 0, 0),
}


_HERE = torch._C.DispatchKey.BackendSelect
_BELOW_AUTOGRAD = torch._C._after_ADInplaceOrView_keyset


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A process group of the job that this rank belongs to."""

    group: ProcessGroup = field(repr=False)
    name: str
    desc: str
    axis: str | None
    ranks: tuple[int, ...]
    backend: str


def axis_of(desc: str, axes: Mapping[str, str]) -> str | None:
    """The axis a group's description names: as told, or a mesh's dimension.

    Examples
    --------
    >>> axis_of("mesh_dp", {}), axis_of("default_pg", {"default_pg": "data"})
    ('dp', 'data')
    """
    if desc in axes:
        return axes[desc]
    name = desc.removeprefix("mesh_")
    return axes.get(name, name) if desc.startswith("mesh_") and name else None


def seen_group(group: ProcessGroup, axes: Mapping[str, str]) -> SeenGroup:
    """What a process group says of itself."""
    desc = str(group.group_desc)
    ranks = tuple(dist.get_process_group_ranks(group))
    backend = str(dist.get_backend(group))
    return SeenGroup(group, str(group.group_name), desc, axis_of(desc, axes), ranks, backend)


def groups_of_job(axes: Mapping[str, str]) -> list[SeenGroup]:
    """The groups of more than one rank, in the order in which they were made."""
    known = dist.distributed_c10d._world.pg_map
    groups = [g for g in known if isinstance(g, ProcessGroup)]
    seen = [seen_group(g, axes) for g in groups]
    return [s for s in seen if len(s.ranks) > 1]


class Watch:
    """Notes every c10d operation of this process in a log, between `start` and `stop`.

    The only state outside of it is what registering with the dispatcher needs, and `stop` undoes
    that.

    Parameters
    ----------
    log : Log
    axes : mapping of str to str
        Axis by description of a group or by mesh dimension.
    """

    def __init__(self, log: Log, axes: Mapping[str, str]) -> None:
        self._log, self._axes = log, axes
        self._library: Any = None
        self._groups: dict[str, SeenGroup] = {}

    def start(self) -> None:
        """Register.

        Raises
        ------
        RuntimeError
            When another recorder of this process already watches.
        """
        if torch._C._dispatch_has_kernel_for_dispatch_key("c10d::allreduce_", "BackendSelect"):
            raise RuntimeError("this process is being recorded already: end that first")
        self._library = torch.library.Library("c10d", "IMPL")
        for name, how in _OPS.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is not None:
                seen = partial(self._seen, packet.default, how)
                self._library.impl(name, seen, "BackendSelect", with_keyset=True)

    def stop(self) -> None:
        """Take the registration back; nothing of it stays."""
        if self._library is not None:
            self._library._destroy()
            self._library = None

    # -- one operation ------------------------------------------------------------------------

    def _seen(self, op: Any, how: _Op, keys: Any, *args: Any, **named: Any) -> Any:
        # below autograd, which functional collectives have left when they come here, and above
        # the kernels of every device
        call = partial(op.redispatch, (keys & _BELOW_AUTOGRAD).remove(_HERE))
        if not self._log.active:
            return call(*args, **named)
        return self._note(call, how, args, named)

    def _note(
        self, op: Callable[..., Any], how: _Op, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        group = self._group_of(args)
        source = _tensors(args[how.source]) if how.source >= 0 else []
        result = _tensors(args[how.result]) if how.result >= 0 else []
        record = self._record(how, group, source, result, args)
        given = args
        if self._log.tags and group.backend.endswith("gloo") and len(source) == 1:
            given = self._tagged(how, record, args, source[0])
        with self._log.issuing(record, source[0] if source else torch.empty(0)):
            out = op(*given, **named)
        work = out[-1] if isinstance(out, tuple) else out
        # gloo never says that these are done, or only to who waits
        silent = how.op in ("reduce_scatter", "send_recv") and group.backend.endswith("gloo")
        self._log.issued(record, None if silent else dist.Work.unbox(work))
        if given is not args and isinstance(out, tuple):
            return (args[how.result], *out[1:])
        return out

    def _group_of(self, args: tuple[Any, ...]) -> SeenGroup:
        boxed = next(a for a in args if isinstance(a, torch.ScriptObject | torch._C.ScriptObject))
        group = ProcessGroup.unbox(boxed)
        name = str(group.group_name)
        if name not in self._groups:
            self._groups[name] = seen_group(group, self._axes)
        return self._groups[name]

    def _record(
        self,
        how: _Op,
        group: SeenGroup,
        source: list[Tensor],
        result: list[Tensor],
        args: tuple[Any, ...],
    ) -> Record:
        taken, given = sum(t.numel() for t in source), sum(t.numel() for t in result)
        first = next(iter(source or result), None)
        width = first.element_size() if first is not None else 0
        record = Record(
            op=how.op,
            axis=group.axis,
            group=group.desc,
            bytes=_message(how.op, taken, given) * width,
            dtype=str(first.dtype).removeprefix("torch.") if first is not None else "",
            phase=self._log.phase or _phase(),
            layer="",
            step=self._log.step,
            issue_ns=time.time_ns(),
            seq=int(group.group._get_sequence_number_for_group()) + 1,
            pg_name=group.name,
            ranks=group.ranks,
            in_elems=taken,
            out_elems=given,
            span=how.span if group.backend.endswith("gloo") else how.op,
            thread=threading.get_native_id(),
        )
        if how.op == "send_recv":
            me, other = dist.get_rank(), group.ranks[args[2]]
            record.ends = (me, other) if how.span == "send" else (other, me)
        return record

    def _tagged(
        self, how: _Op, record: Record, args: tuple[Any, ...], source: Tensor
    ) -> tuple[Any, ...]:
        """The arguments with a marked input, where that changes nothing that anyone sees."""
        given = list(args)
        if 1 in source.shape and source.is_contiguous() and source.numel() > 0:
            marked = self._log.tag_in_place(record, source)
            given[how.source] = [marked] if isinstance(args[how.source], list) else marked
            return tuple(given)
        result = args[how.result]
        if how.flat and source.dim() == 1 and result.dim() == 1 and result.is_contiguous():
            given[how.source] = self._log.tag(record, source)
            given[how.result] = result.view(-1, *given[how.source].shape[1:])
            return tuple(given)
        return args


def _phase() -> str:
    """``backward`` inside of autograd's backward, else not known."""
    return "backward" if torch._C._current_graph_task_id() != -1 else ""


def _message(op: str, taken: int, given: int) -> int:
    """Elements of the message, as nccl-tests counts it."""
    if op in ("all_gather", "gather"):
        return given
    return max(taken, given) if op == "all_to_all" else taken or given


def _tensors(value: Any) -> list[Tensor]:
    """All tensors in an argument, which may be lists of lists of them."""
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []
