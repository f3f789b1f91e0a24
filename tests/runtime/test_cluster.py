"""The virtual cluster: its limits hold, its ranks meet, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from runtime import cluster, network
from runtime.cluster import RankFailedError, VirtualCluster
from runtime.network import ClusterError, bits_per_s
from runtime.settings import ConfigError

ROOT = Path(__file__).parents[2]
MARK = "tracekit-test-of-cluster"
#: an all-reduce of 2 MiB, its fastest of three, written by rank 0
REDUCE = """
import json, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
x, seconds = torch.ones(1 << 19), []
for _ in range(4):
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(x)
    seconds.append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    open(sys.argv[1], "w").write(json.dumps([min(seconds[1:]), float(x[0])]))
dist.destroy_process_group()
"""
#: says that it is there, then waits to be ended
LINGER = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], os.environ["RANK"]).touch()
time.sleep(300)
"""


@pytest.fixture
def able() -> Iterator[None]:
    """Skip where the machine cannot make namespaces; afterwards nothing may be left of ours."""
    try:
        with VirtualCluster(1):
            pass
    except ClusterError as e:
        pytest.skip(f"no virtual cluster here: {e}")
    before = set(network._spaces())
    yield
    assert left_over(before) == ([], [])


def left_over(before: set[str], patience_s: float = 10) -> tuple[list[str], list[str]]:
    """Namespaces and processes that the tests of this module have left."""
    deadline = time.monotonic() + patience_s
    while True:
        spaces = sorted(set(network._spaces()) - before)
        processes = [p for p in Path("/proc").iterdir() if p.name.isdecimal() and marked(p)]
        if not (spaces or processes) or time.monotonic() > deadline:
            return spaces, [p.name for p in processes]
        time.sleep(0.05)


def marked(process: Path) -> bool:
    """Whether a process is one that these tests started."""
    try:
        return MARK.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def program(folder: Path, text: str) -> list[str]:
    """The command that runs a program with the folder as its argument."""
    path = folder / f"{MARK}.py"
    path.write_text(text)
    return [sys.executable, str(path), str(folder)]


def started(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    """``tracekit cluster`` with two lingering ranks, once both are there."""
    argv = [sys.executable, "-m", "runtime.cluster", "--nodes", "2", "--ranks-per-node", "1"]
    process = subprocess.Popen(
        [*argv, *flags, "--", *program(folder, LINGER)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not all((folder / rank).exists() for rank in "01"):
        assert process.poll() is None, "it ended before its ranks began"
        assert time.monotonic() < deadline, "its ranks did not begin"
        time.sleep(0.05)
    return process


@pytest.mark.usefixtures("able")
def test_the_link_has_its_rate(tmp_path: Path) -> None:
    """An all-reduce takes the time of its bytes on a link of that rate, changed ones included.

    Two ranks send each other 2 MiB: 0.168 s at 100 Mbit/s, 0.042 s at 400.
    """
    command = [*program(tmp_path, REDUCE)[:2], str(tmp_path / "found")]
    with VirtualCluster(nodes=2, link="400mbit", links={1: "100mbit"}) as both:
        both.run(command)
        slow, total = json.loads((tmp_path / "found").read_text())
        both.limit(1, "400mbit")
        both.run(command)
        fast, _ = json.loads((tmp_path / "found").read_text())
    assert total == 16
    assert 0.8 < slow / 0.1678 < 2
    assert 0.8 < fast / 0.0419 < 3
    assert fast < slow


@pytest.mark.usefixtures("able")
def test_ranks_get_torchruns_variables(tmp_path: Path) -> None:
    """Each rank knows its number, its node, and where rank 0 is."""
    names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT"
    text = (
        "import os, pathlib, sys\n"
        f"values = ' '.join(os.environ[n] for n in {names.split()})\n"
        "pathlib.Path(sys.argv[1], os.environ['RANK']).write_text(values)\n"
    )
    with VirtualCluster(nodes=2, ranks_per_node=2) as four:
        four.run(program(tmp_path, text))
    assert [(tmp_path / rank).read_text() for rank in "0123"] == [
        "0 0 2 4 0 10.77.0.1 29500",
        "1 1 2 4 0 10.77.0.1 29500",
        "2 0 2 4 1 10.77.0.1 29500",
        "3 1 2 4 1 10.77.0.1 29500",
    ]


@pytest.mark.usefixtures("able")
def test_a_failing_rank_is_named_and_ends_the_others(tmp_path: Path) -> None:
    """The error names rank, node and its last line, and nothing goes on running."""
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '3':\n"
        "    sys.exit('no more paper')\n"
        "time.sleep(300)\n"
    )
    before = set(network._spaces())
    with VirtualCluster(nodes=2, ranks_per_node=2) as four:
        with pytest.raises(RankFailedError, match="rank 3 on node 1 failed: no more paper;") as e:
            four.run(program(tmp_path, text))
        assert e.value.status == 1
        assert left_over(before)[1] == []


@pytest.mark.usefixtures("able")
def test_wrong_arguments_of_a_job_give_status_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What rank 0 says of them is all that is said."""
    text = "import sys\nprint('it is wrong', file=sys.stderr)\nsys.exit(2)\n"
    flags = ["--nodes", "2", "--ranks-per-node", "2", "--"]
    assert cluster.main([*flags, *program(tmp_path, text)]) == 2
    assert capfd.readouterr().err == "it is wrong\n"


@pytest.mark.usefixtures("able")
def test_a_job_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A timeout names a rank that still ran."""
    with (
        VirtualCluster(nodes=1) as one,
        pytest.raises(ClusterError, match=r"rank 0 on node 0 still ran after 0\.5 s"),
    ):
        one.run(program(tmp_path, LINGER), timeout_s=0.5)


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_signals_leave_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """A signal to the command ends its ranks and removes its nodes (the fixture looks)."""
    process = started(tmp_path)
    process.send_signal(number)
    assert process.wait(20) == status


@pytest.mark.usefixtures("able")
def test_the_next_start_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """After SIGKILL the ranks die at once and the next start deletes the nodes."""
    before = set(network._spaces())
    process = started(tmp_path)
    process.kill()
    process.wait()
    left, running = left_over(before, patience_s=0.5)
    assert sorted(name.rpartition("-")[2] for name in left) == ["node0", "node1", "switch"]
    assert running == []
    with VirtualCluster(nodes=1):
        assert not set(left) & set(network._spaces())


@pytest.mark.usefixtures("able")
def test_clusters_of_living_processes_are_left_alone(tmp_path: Path) -> None:
    """Two at once do not disturb each other."""
    process = started(tmp_path)
    mine = {name for name in network._spaces() if name.startswith(f"tracekit-{process.pid}-")}
    with VirtualCluster(nodes=2):
        pass
    assert len(mine) == 3
    assert mine <= set(network._spaces())
    assert process.poll() is None
    process.terminate()
    process.wait(20)


@pytest.mark.usefixtures("able")
def test_a_process_id_that_came_again_is_another_process() -> None:
    """What belonged to an earlier process with the id of a living one is removed."""
    own, begun = os.getpid(), network._start_ticks(os.getpid())
    old, new = f"tracekit-{own}-{begun - 1}-0a-node0", f"tracekit-{own}-{begun}-0a-node0"
    for name in (old, new):
        network._ip("netns", "add", name)
    assert network.reap() == [old]
    assert new in network._spaces()
    network._delete(new)


@pytest.mark.parametrize(
    ("rate", "bits"),
    [("400mbit", 400_000_000), ("1Gbit", 10**9), ("2.5gbit", 2_500_000_000), ("64kbit", 64_000)],
)
def test_rates(rate: str, bits: int) -> None:
    """A rate is a number and a unit of bits a second."""
    assert bits_per_s(rate) == bits


@pytest.mark.parametrize("rate", ["fast", "100", "-1mbit", "0mbit", "1kbit", "100MB/s", ""])
def test_wrong_rates_are_refused(rate: str) -> None:
    """What is no rate is named, with an example of one."""
    with pytest.raises(ConfigError, match="write a rate such as 100mbit"):
        VirtualCluster(nodes=2, link=rate or " ")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nodes", "2"], "what to run is missing"),
        (["--nodes", "0", "--", "true"], "0 nodes: choose 1 to 254"),
        (["--ranks-per-node", "0", "--", "true"], "0 ranks per node: at least 1"),
        (["--link", "fast", "--", "true"], "link 'fast': write a rate"),
        (["--node-link", "1", "--", "true"], "node link '1': write NODE=RATE"),
        (["--node-link", "9=1mbit", "--", "true"], "link of node 9: nodes are 0 to 3"),
        (["--nodes", "two", "--", "true"], "invalid int value: 'two'"),
    ],
)
def test_wrong_flags_get_one_line(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and one line that says what is wrong."""
    try:
        status = cluster.main(argv)
    except SystemExit as e:
        status = int(e.code or 0)
    said = capsys.readouterr().err
    assert status == 2
    assert said.count("\n") == 1
    assert words in said


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without root and iproute2 it says so in one line, before it makes anything."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert cluster.main(["--", "true"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "tracekit: a virtual cluster needs root (try sudo) and iproute2 (ip and tc not found)\n"
    )
