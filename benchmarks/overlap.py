"""Times the step with all overlaps against none, on a virtual cluster with slow links.

Links are limited so that communication is a third to a half of the step that hides none of it. Both
sides run in the same processes, step after step. Needs root and iproute2.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import default_results, machine_class, machine_line, table, write_section
from measure import run as execute

HEADING = "What the overlaps gain on slow links"
WARM_UP = 3
RECORDED = 3
SIDES = ("none", "all")


@dataclass(frozen=True, slots=True)
class Case:
    """A grid, one rank a node, and a batch that makes communication 30 to 60 % of the step."""

    link: str
    degrees: str
    nodes: int
    samples: int


CASES = (
    Case("400mbit", "z=2,data=2", 4, 96),
    Case("400mbit", "y=2,z=2,data=2", 8, 64),
    Case("200mbit", "z=2,data=2", 4, 160),
)


# -- in a rank --------------------------------------------------------------------------------


def worker(folder: Path, case: Case, pairs: int) -> None:
    """One rank: rank 0 writes the times of each round, and each side a run folder."""
    import torch
    import torch.distributed as dist
    from pairs import agree, job, rounds

    from runtime.grid import GridShape
    from runtime.models.gpt import GPTConfig

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    config = GPTConfig(
        layers=2, features=480, heads=8, kv_heads=8, length=64, vocabulary=960, tied=False
    )
    shape = GridShape.parse(case.degrees)
    jobs = [job(shape, config, case.samples, overlap) for overlap in (*SIDES, SIDES[0])]
    sides = [made.side() for made in jobs]
    agree(sides, WARM_UP, planes=shape.x * shape.y)
    found = rounds(sides, pairs)
    if dist.get_rank() == 0:
        (folder / "times.json").write_text(json.dumps(found))
    for name, made, side in zip(SIDES, jobs, sides, strict=False):
        record(folder / name, made, side)
    dist.barrier()
    dist.destroy_process_group()


def record(folder: Path, made: Any, side: Any) -> None:
    """Write a run folder of a few more steps, all of them in one window of the light mode."""
    import runtime

    comm = made.engine.comm
    with runtime.record(folder, mode="light", comm=comm, model="gpt") as recorder:
        for _ in range(RECORDED):
            side.step()
            recorder.step()


# -- outside ----------------------------------------------------------------------------------


def measure(case: Case, pairs: int) -> list[str]:
    """One row of the table."""
    from pairs import ratio

    from runtime.cluster import VirtualCluster

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        flags = ["--worker", scratch, "--case", str(CASES.index(case)), "--pairs", str(pairs)]
        with VirtualCluster(nodes=case.nodes, link=case.link) as cluster:
            cluster.run([sys.executable, __file__, *flags], timeout_s=580)
        found = json.loads((folder / "times.json").read_text())
        without, overlapped, again = ([times[side][1] for times in found] for side in range(3))
        traces = [analyzed(folder / name) for name in SIDES]
    return [
        f"{case.degrees}, {case.link}",
        f"{statistics.median(without) * 1e3:.0f}",
        f"{statistics.median(overlapped) * 1e3:.0f}",
        ratio(overlapped, without),
        ratio(again, without),
        *(f"{exposed:.0%}" for exposed, _ in traces),
        *(f"{hidden:.0%}" for _, hidden in traces),
    ]


def analyzed(run: Path) -> tuple[float, float]:
    """What the traces say: exposed communication by the window, and the hidden part of it."""
    argv = [sys.executable, "-m", "tracekit", "analyze", str(run), "--json", "--no-store"]
    totals: dict[str, Any] = json.loads(execute(argv).stdout)["totals"]
    exposed = totals["exposed_comm_us"] / totals["window_us"]
    return exposed, totals["overlap_us"] / totals["comm_us"]


def check_cluster() -> None:
    """End in one line where no cluster can be made."""
    from runtime.network import ClusterError, check

    try:
        check()
    except ClusterError as e:
        sys.exit(str(e))


def main() -> None:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=18, help="rounds of each case (18)")
    parser.add_argument("--only", type=int, choices=range(len(CASES)), help="one case")
    parser.add_argument("--out", help="results file, - for standard output only")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, CASES[given.case], given.pairs)
        return
    check_cluster()
    rows = []
    for number, case in enumerate(CASES):
        if given.only in (None, number):
            rows.append(measure(case, given.pairs))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["grid, links", "no overlap, ms", "all, ms", "all / none", "none / none"]
    head += [f"{what}, {side}" for what in ("exposed of step", "hidden of comm.") for side in SIDES]
    body = (
        f"{machine_line()}, gloo, fp32. A node for each rank, links limited each way. GPT of 2 "
        "layers of 480; OAR, ORS, OAG and buckets (all) against none of them; median ratio of the "
        "rounds, the slowest rank's time, 95 % bootstrap interval. The last columns are the "
        "traces'.\n\n" + table(head, rows)
    )
    print(body)
    if given.out != "-":
        path = Path(given.out) if given.out else default_results(machine_class())
        write_section(path, HEADING, body)


if __name__ == "__main__":
    main()
