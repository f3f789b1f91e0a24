"""What the runtime writes the analyzer reads: each collective, with axis, phase, layer, bytes."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from tests.runtime import recording  # noqa: E402

ALL = "oar,ors,oag,bucket"
STEPS = 2
RUNS = [
    (f"{name}-{mode}", grid, ALL, mode)
    for name, grid in (("x", "x=2,data=2"), ("z", "z=2,data=2"))
    for mode in ("profile", "light")
]
NAMES = [name for name, *_ in RUNS]
EXAMPLES = ("ddp", "fsdp2", "mesh", "plain")
HOME = Path(__file__).parents[2]


def analyzed(folder: Path, *options: str) -> dict[str, Any]:
    """What ``tracekit analyze --json`` says of a run folder."""
    command = [sys.executable, "-m", "tracekit", "analyze", "--json", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HOME)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT trained on two grids, each recorded in both modes."""
    folder = tmp_path_factory.mktemp("runs")
    recording.run(folder, 4, recording.train, RUNS, STEPS)
    return folder


@pytest.fixture(scope="module")
def documents(runs: Path) -> dict[str, dict[str, Any]]:
    """The analyses of these runs."""
    return {name: analyzed(runs / name) for name in NAMES}


def described(c: dict[str, Any]) -> tuple[Any, ...]:
    """What is said of a collective that both sides must agree on."""
    return (c["op"], c["axis"], c["bytes"], c["phase"], c["layer"])


@pytest.mark.parametrize("name", NAMES)
def test_every_collective_is_read_as_it_was_written(
    runs: Path, documents: dict[str, dict[str, Any]], name: str
) -> None:
    """Each rank's collectives are all there, matched, with axis, phase, layer, bytes and type."""
    found = documents[name]
    for rank in range(4):
        written = recording.trace(runs / name, rank)["tracekit"]["collectives"]
        want = {(c["group"], c["seq"]): described(c) for c in written}
        mine = [c for c in found["collectives"] if rank in c["ranks"]]
        assert {(c["desc"], c["seq"]): described(c) for c in mine} == want
        assert len(mine) == len(written)
        assert all(None not in described(c) for c in mine)
    assert all(c["complete"] and c["match"] == "seq" for c in found["collectives"])
    assert all(c["dtype"] == "Float" for c in found["collectives"])
    assert set(found["unmatched"].values()) == {0}


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_that_were_sent(runs: Path, name: str) -> None:
    """The bytes of all records add up to what the runtime counted, per group and operation."""
    for rank in range(4):
        sent = json.loads((runs / f"{name}-{rank}.json").read_text())
        written = recording.trace(runs / name, rank)["tracekit"]["collectives"]
        total: Counter[str] = Counter()
        for c in written:
            total[f"{c['group']} {c['op']}"] += c["bytes"]
        assert dict(total) == sent


@pytest.mark.parametrize("name", NAMES)
def test_exposed_time_of_the_axes_adds_up(documents: dict[str, dict[str, Any]], name: str) -> None:
    """The axes' shares of the exposed communication are the rank's whole."""
    found = documents[name]
    axes = set()
    for rank in found["ranks"]:
        shares = [g for g in found["groups"] if g["rank"] == rank["rank"]]
        axes |= {g["axis"] for g in shares}
        total = sum(g["exposed_share_us"] for g in shares)
        assert total == pytest.approx(rank["exposed_comm_us"], abs=1e-3)
        assert rank["exposed_comm_us"] > 0
        assert rank["compute_us"] > 0
    assert axes == {name[0], "data"}


@pytest.mark.parametrize("axis", ["x", "z"])
def test_both_modes_see_the_same(documents: dict[str, dict[str, Any]], axis: str) -> None:
    """Light and profiled recordings agree in steps, phases and every collective."""
    light, full = documents[f"{axis}-light"], documents[f"{axis}-profile"]
    for what in (described, lambda c: (c["desc"], c["size"], tuple(c["ranks"]))):
        assert Counter(map(what, light["collectives"])) == Counter(map(what, full["collectives"]))
    for found in (light, full):
        assert sorted({s["step"] for s in found["steps"]}) == [2, 3]
        assert {p["phase"] for p in found["phases"]} == {"forward", "backward", "optimizer"}
    assert [s["rank"] for s in light["steps"]] == [s["rank"] for s in full["steps"]]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_the_job_was(runs: Path, name: str) -> None:
    """Rank, place, axis order, groups and overlaps are in the key; the run's facts in run.json."""
    for rank in range(4):
        key = recording.trace(runs / name, rank)["tracekit"]
        axis = name[0]
        place = {"x": 0, "y": 0, "z": 0, "data": 0} | {axis: rank % 2, "data": rank // 2}
        assert (key["format"], key["rank"], key["coords"]) == (1, rank, place)
        assert key["axis_order"] == ["x", "y", "z", "data"]
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        assert {"name": axis, "axis": axis, "ranks": pair} in key["groups"]
        assert {"name": "data", "axis": "data", "ranks": [rank % 2, rank % 2 + 2]} in key["groups"]
        assert key["overlap"] == ALL.split(",")
        assert key["joined"]["tag"] == len(key["collectives"])
    facts = json.loads((runs / name / "run.json").read_text())
    assert facts["grid"] == {"x": 1, "y": 1, "z": 1, "data": 2} | {name[0]: 2}
    assert (facts["world_size"], facts["backend"]) == (4, "gloo")
    assert len(facts["hosts"]) == 4
    assert not list((runs / name).rglob("*.part"))
    assert not list((runs / name).rglob("*.json.tmp"))


# -- loops that are not ours ------------------------------------------------------------------


def _example(rank: int, folder: str, ports: list[int]) -> None:
    """Run every example as one rank of a job."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}
    os.environ["KINETO_LOG_LEVEL"] = "99"
    for name, port in zip(EXAMPLES, ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        loop = runpy.run_path(str(HOME / "docs" / "examples" / f"record_{name}.py"))
        loop["main"](f"{folder}/{name}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documented examples, run on four ranks."""
    folder = tmp_path_factory.mktemp("examples")
    ports = _free_ports(len(EXAMPLES))
    torch.multiprocessing.spawn(_example, (str(folder), ports), nprocs=4)
    return folder


#: per step and rank: how many, of what, on which axis, in which phase
WANTED = {
    "ddp": {("all_reduce", "data", "backward"): None},
    "fsdp2": {
        ("all_gather", "shard", "forward"): 3,
        ("all_gather", "shard", "backward"): None,
        ("reduce_scatter", "shard", "backward"): 3,
        ("all_reduce", "dp", "backward"): 3,
    },
    "mesh": {
        ("all_reduce", "tp", "forward"): 1,
        ("all_reduce", "data", "backward"): 4,
    },
    "plain": {
        ("send_recv", "context", "forward"): 2,
        ("all_reduce", "data", "backward"): 2,
    },
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_collectives_of_other_loops_are_seen(examples: Path, name: str) -> None:
    """Those of DDP's reducer, of FSDP2, of DTensor and of torch's functions, with their spans."""
    for rank in range(4):
        key = recording.trace(examples / name, rank)["tracekit"]
        assert all(c["start_ns"] is not None and c["bytes"] for c in key["collectives"])
        for step in {c["step"] for c in key["collectives"]}:
            mine = [c for c in key["collectives"] if c["step"] == step]
            counts = Counter((c["op"], c["axis"], c["phase"]) for c in mine)
            assert counts.keys() == WANTED[name].keys()
            for what, count in WANTED[name].items():
                assert count is None or counts[what] == count


@pytest.mark.parametrize("name", EXAMPLES[:3])
def test_other_loops_are_read(examples: Path, name: str) -> None:
    """The analyzer matches all of them, and their axes' shares add up."""
    found = analyzed(examples / name)
    assert set(found["unmatched"].values()) == {0}
    assert all(c["complete"] and c["match"] == "seq" for c in found["collectives"])
    for rank in found["ranks"]:
        shares = [g["exposed_share_us"] for g in found["groups"] if g["rank"] == rank["rank"]]
        assert sum(shares) == pytest.approx(rank["exposed_comm_us"], abs=1e-3)
    assert {g["axis"] for g in found["groups"]} == {axis for _, axis, _ in WANTED[name]}


def test_two_windows_are_two_captures(examples: Path) -> None:
    """A schedule that repeats writes captures; the analyzer asks which one is meant."""
    command = [sys.executable, "-m", "tracekit", "analyze", "--json", str(examples / "plain")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HOME)
    assert done.returncode == 2
    assert "--capture" in done.stderr
    first, second = (
        {s["step"] for s in analyzed(examples / "plain", "--capture", n)["steps"]}
        for n in ("1", "2")
    )
    assert (first, second) == ({2, 3}, {6, 7})
