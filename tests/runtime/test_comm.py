"""Collectives do what they say, note themselves while recorded, and tell ranks that diverge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402

from runtime.agreement import Agreement, DivergedError  # noqa: E402
from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from tests.runtime import recording  # noqa: E402


def write(folder: str, *lines: str) -> None:
    """Leave what this rank found."""
    Path(folder, f"rank{dist.get_rank()}").write_text("\n".join(lines))


def read(folder: Path, rank: int) -> list[str]:
    """What a rank left."""
    return (folder / f"rank{rank}").read_text().splitlines()


def compute(folder: str) -> None:
    """Every operation on every axis, marked and not, on a 2 x 2 grid."""
    grid = Grid(GridShape(x=2, data=2))
    comm, me = Comm(grid), float(dist.get_rank())
    lines = []
    for tags in (False, True):
        comm.log.active = comm.log.tags = tags
        for axis in ("x", "data"):
            own = torch.arange(4.0) + 10 * me
            lines += [
                str(comm.all_reduce(own.clone(), axis, "test").wait().tolist()),
                str(comm.all_reduce(own.clone(), axis, "test", op="max").wait().tolist()),
                str(comm.all_gather(own, axis, "test").wait().tolist()),
                str(comm.reduce_scatter(own, axis, "test").wait().tolist()),
            ]
    comm.barrier()
    lines.append(str(len(comm.log.records)))
    lines.append(str(sorted(comm.volume.items())))
    mesh = grid.mesh()
    assert mesh is not None
    lines.append(f"{mesh.mesh_dim_names} {mesh.get_coordinate()} {mesh.mesh.tolist()}")
    write(folder, *lines)


def test_operations_on_a_grid(tmp_path: Path) -> None:
    """Each operation gives the worked-out numbers, recorded or not, and counts its message."""
    recording.run(tmp_path, 4, compute)
    # rank r = 2 * data + x holds 10 r + (0, 1, 2, 3)
    for rank in range(4):
        got = read(tmp_path, rank)
        want = []
        for other in (rank ^ 1, rank ^ 2):
            low, high = 10.0 * min(rank, other), 10.0 * max(rank, other)
            total = [low + high + 2.0 * i for i in range(4)]
            mine = total[:2] if rank < other else total[2:]
            both = [low + i for i in range(4)] + [high + i for i in range(4)]
            want += [str(total), str([high + i for i in range(4)]), str(both), str(mine)]
        assert got[:16] == want * 2
        assert got[16] == "9"  # the eight that were marked, and the barrier
        volume = {(axis, "all_reduce", "test"): 4 * 16 for axis in ("data", "x")}
        volume |= {(axis, "all_gather", "test"): 2 * 32 for axis in ("data", "x")}
        volume |= {(axis, "reduce_scatter", "test"): 2 * 16 for axis in ("data", "x")}
        volume["world", "barrier", "barrier"] = 0
        assert got[17] == str(sorted(volume.items()))
        assert got[18] == f"('data', 'x') ({rank // 2}, {rank % 2}) [[0, 1], [2, 3]]"


def diverge(folder: str) -> None:
    """Ranks that call different operations, then one rank that calls none."""
    grid = Grid(GridShape(x=2, data=2))
    comm = Comm(grid, Agreement(timeout_s=3))
    comm.step = 7
    one = torch.ones(4)
    lines = []
    with comm.during("forward"):
        comm.all_reduce(one, "x", "test", layer="same").wait()
    odd = grid["x"].index == 1
    call, layer = (comm.all_gather, "up") if odd else (comm.all_reduce, "down")
    with comm.during("backward"), pytest.raises(DivergedError) as caught:
        call(one, "x", "test", layer=layer)
    lines.append(str(caught.value))
    if dist.get_rank() < 2:
        with pytest.raises(DivergedError) as caught:
            comm.all_reduce(one, "data", "test", layer="late")
        lines.append(str(caught.value))
    write(folder, *lines)


def test_ranks_that_diverge_are_named(tmp_path: Path) -> None:
    """Within the timeout each rank says which rank called what instead, at which step."""
    recording.run(tmp_path, 4, diverge)
    reduce = "all_reduce #2 of 4 float32 on x (backward, down, step 7)"
    gather = "all_gather #2 of 8 float32 on x (backward, up, step 7)"
    for rank in range(4):
        other = rank ^ 1
        mine, its = (gather, reduce) if rank % 2 else (reduce, gather)
        want = f"collectives diverge: rank {rank} calls {mine}, rank {other} calls {its}"
        assert read(tmp_path, rank)[0] == want
    late = read(tmp_path, 0)[1]
    assert late == (
        "rank 2 did not come to all_reduce #1 of 4 float32 on data (setup, late, step 7) of "
        f"rank 0 within 3 s; its last call is {reduce}"
    )


def test_a_grid_of_one_sends_nothing() -> None:
    """Without a job every operation returns its input, and nothing is counted."""
    comm = Comm(Grid(GridShape(), alone=True))
    one = torch.ones(4)
    assert comm.all_reduce(one, "x", "test").wait() is one
    assert comm.all_gather(one, "z", "test").wait() is one
    assert comm.reduce_scatter(one, "data", "test").wait() is one
    comm.barrier()
    assert not comm.volume
    assert comm.grid.mesh() is None


def test_phases_nest() -> None:
    """The phase before is back after an inner one, also after an error."""
    comm = Comm(Grid(GridShape(), alone=True))
    seen = [comm.phase]
    with comm.during("backward"):
        inner = comm.during("checkpoint")
        inner.__enter__()
        seen.append(comm.phase)
        assert not inner.__exit__(KeyError, KeyError(), None)
        seen.append(comm.phase)
    assert [*seen, comm.phase] == ["setup", "checkpoint", "backward", "setup"]


def test_only_comm_and_the_recorder_call_collectives() -> None:
    """No other file of the runtime names a collective of torch.distributed."""
    home = Path(__file__).parents[2] / "runtime"
    calls = re.compile(r"dist\.(all_|reduce|broadcast|barrier|gather|scatter|i?send|i?recv|batch)")
    allowed = {home / "comm.py", home / "trace" / "probe.py"}
    guilty = [
        str(file.relative_to(home))
        for file in sorted(home.rglob("*.py"))
        if file not in allowed and calls.search(file.read_text("utf-8"))
    ]
    assert guilty == []
