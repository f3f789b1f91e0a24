"""What the files of a run say of the job: its grid, groups, versions and hosts."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from runtime.comm import Comm
from runtime.trace.profiler import on_device
from runtime.trace.records import Record
from runtime.trace.seen import groups_of_job

if TYPE_CHECKING:
    from runtime.trace.recorder import About

FORMAT = 1
#: who has not come by then is not waited for
_MEETING = timedelta(seconds=60)


def trace_key(mode: str, comm: Comm | None, about: About, records: list[Record]) -> dict[str, Any]:
    """The top-level key ``tracekit`` of a trace."""
    return {
        "format": FORMAT,
        "mode": mode,
        # without waits the host's busy time cannot be told from its waiting
        "compute_known": mode == "profile" or comm is not None or on_device(),
        "rank": dist.get_rank() if dist.is_initialized() else 0,
        **_place(comm, about.mesh),
        "groups": _groups(comm, about),
        "model": about.model,
        "flops_per_step": about.flops_per_step,
        "tokens_per_step": about.tokens_per_step,
        "overlap": list(about.overlap),
        "collectives": [r.as_dict() for r in records],
    }


def _place(comm: Comm | None, mesh: DeviceMesh | None) -> dict[str, Any]:
    """Coordinates of this rank, and the axes from innermost to outermost."""
    if comm is not None:
        return {"coords": comm.grid.coords, "axis_order": list(comm.grid.shape.order)}
    names = list(mesh.mesh_dim_names or ()) if mesh is not None else []
    at = mesh.get_coordinate() if mesh is not None else None
    coords = dict(zip(names, at, strict=True)) if at and names else {}
    return {"coords": coords, "axis_order": names[::-1]}


def _groups(comm: Comm | None, about: About) -> list[dict[str, Any]]:
    if comm is not None:
        return comm.grid.table()
    return [
        {"name": g.desc, "axis": g.axis, "ranks": list(g.ranks)} for g in groups_of_job(about.axes)
    ]


def run_facts(
    mode: str, comm: Comm | None, about: About, hosts: list[str | None]
) -> dict[str, Any]:
    """The recorder's part of ``run.json``."""
    facts: dict[str, Any] = {
        "format": FORMAT,
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": mode,
        "command": sys.argv,
        "world_size": dist.get_world_size() if dist.is_initialized() else 1,
        "backend": dist.get_backend() if dist.is_initialized() else None,
        "grid": _degrees(comm, about.mesh),
        "axis_order": _place(comm, about.mesh)["axis_order"],
        "model": about.model,
        "flops_per_step": about.flops_per_step,
        "tokens_per_step": about.tokens_per_step,
        "overlap": list(about.overlap),
        "versions": _versions(),
        "hosts": hosts,
    }
    return facts if about.config is None else {**facts, "config": dict(about.config)}


def _degrees(comm: Comm | None, mesh: DeviceMesh | None) -> dict[str, int]:
    if comm is not None:
        return {axis: comm.grid.shape.size(axis) for axis in comm.grid.shape.order}
    if mesh is None or not mesh.mesh_dim_names:
        return {}
    return dict(zip(mesh.mesh_dim_names, mesh.mesh.shape, strict=True))


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    found["cuda"] = torch.version.cuda
    if torch.cuda.is_available() and dist.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def meet() -> list[str | None]:
    """Wait until all ranks are here, so that their windows begin together.

    Ranks meet at the job's store, not by a collective.

    Returns
    -------
    list of str or None
        Host of each rank, on rank 0; None for one that did not come.
    """
    if not dist.is_initialized():
        return [platform.node()]
    store = dist.PrefixStore("tracekit-meet", dist.distributed_c10d._get_default_store())
    meeting = store.add(f"number of {dist.get_rank()}", 1)  # a job may record several times
    store.set(f"{meeting} {dist.get_rank()}", platform.node())
    if dist.get_rank() != 0:
        _wait(store, f"{meeting} all")
        return []
    ranks = range(dist.get_world_size())
    here = [_wait(store, f"{meeting} {rank}") for rank in ranks]
    store.set(f"{meeting} all", "")
    return here


def _wait(store: Any, key: str) -> str | None:
    try:
        store.wait([key], _MEETING)
    except RuntimeError:
        return None
    return str(store.get(key).decode())
