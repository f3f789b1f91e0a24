"""What recording costs: steps that are recorded beside steps that are not, in one set of processes.

Blocks of steps take turns: recorded, not recorded, and not recorded again, in all orders. A pair is
the same step of two blocks of one turn.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from measure import default_results, machine_class, machine_line, table, write_section
from pairs import Side, agree, job, join, ratio
from torch.profiler import ProfilerAction

import runtime
from runtime.grid import GridShape
from runtime.models.gpt import GPTConfig

HEADING = "What recording costs"
SHAPE = GridShape(z=2)
WARM_UP = 4
#: each kind of block; the last two are the same, which shows the noise
KINDS = ("recorded", "not", "not again")


@dataclass(frozen=True, slots=True)
class Case:
    """A way of recording and a size of step; `share` of the pairs asked for."""

    mode: str
    samples: int
    block: int
    share: float


#: steps of about 80 ms and well above 200 ms on two cores
CASES = (Case("light", 8, 10, 1.0), Case("profile", 8, 5, 0.5), Case("profile", 32, 5, 0.25))


@dataclass(frozen=True, slots=True)
class Plan:
    """Which blocks come when.

    Attributes
    ----------
    kinds : tuple of int
        Of each block, by its place in `KINDS`.
    block : int
        Steps of a block.
    """

    kinds: tuple[int, ...]
    block: int

    @classmethod
    def of(cls, turns: int, block: int) -> "Plan":
        """All orders of the kinds in turn."""
        orders = itertools.cycle(itertools.permutations(range(len(KINDS))))
        return cls(tuple(itertools.chain(*itertools.islice(orders, turns))), block)

    def recorded(self, step: int) -> bool:
        """Whether a step is recorded."""
        at = step // self.block
        return at < len(self.kinds) and self.kinds[at] == 0

    def __call__(self, step: int) -> ProfilerAction:
        """What a profiler does in a step; two recorded blocks in a row are one window."""
        now, then = self.recorded(step), self.recorded(step + 1)
        if now:
            return ProfilerAction.RECORD if then else ProfilerAction.RECORD_AND_SAVE
        return ProfilerAction.WARMUP if then else ProfilerAction.NONE


def worker(rank: int, folder: str, case: Case, turns: int) -> None:
    """One rank; rank 0 writes the seconds of each block's steps, the slowest rank's."""
    join(rank, SHAPE.world_size, folder)
    config = GPTConfig(
        layers=4, features=240, heads=8, kv_heads=8, length=64, vocabulary=1920, tied=False
    )
    made = job(SHAPE, config, case.samples)
    side = made.side()
    agree([side], WARM_UP)
    plan = Plan.of(turns, case.block)
    with runtime.record(
        Path(folder, "run"),
        schedule=plan,
        mode="light" if case.mode == "light" else "profile",
        comm=made.engine.comm,
        model="gpt",
    ) as recorder:
        seconds = timed(side, recorder.step, plan)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    if rank == 0:
        Path(folder, "seconds.json").write_text(json.dumps(seconds.tolist()))
    dist.barrier()
    dist.destroy_process_group()


def timed(side: Side, end_step: Callable[[], None], plan: Plan) -> torch.Tensor:
    """Seconds by block, step, and part: the step itself, and the call that ends it."""
    seconds = torch.zeros(len(plan.kinds), plan.block, 2, dtype=torch.float64)
    for row in seconds.view(-1, 2):
        begin = time.perf_counter()
        side.step()
        middle = time.perf_counter()
        end_step()
        row[0], row[1] = middle - begin, time.perf_counter() - middle
    return seconds


def compare(case: Case, pairs: int) -> list[str]:
    """One row of the table."""
    turns = max(1, -(-round(pairs * case.share) // (case.block - 1)))
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (folder, case, turns), nprocs=SHAPE.world_size)
        seconds = json.loads(Path(folder, "seconds.json").read_text())
        if not list(Path(folder, "run", "traces").glob("rank00001*.json.gz")):
            raise RuntimeError(f"{case.mode}: nothing was recorded")
    kinds = Plan.of(turns, case.block).kinds
    # a block's last step is left out: the call that ends it opens or closes a window
    steps: list[list[float]] = [[], [], []]
    blocks: list[list[float]] = [[], [], []]
    for kind, block in zip(kinds, seconds, strict=True):
        steps[kind] += [sum(step) for step in block[:-1]]
        blocks[kind].append(sum(sum(step) for step in block))
    return [
        case.mode,
        f"{statistics.median(steps[1]) * 1e3:.0f}",
        str(len(steps[0])),
        ratio(steps[0], steps[1]),
        ratio(steps[2], steps[1]),
        opening(blocks, case.block) if case.mode == "light" else "",
    ]


def opening(blocks: Sequence[Sequence[float]], block: int) -> str:
    """The ratio of whole blocks, with what it takes to open and close their windows."""
    return f"{ratio(blocks[0], blocks[1])} of {block} steps"


def main() -> None:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=360, help="pairs of the light mode (360)")
    parser.add_argument("--only", choices=("light", "profile"), help="one mode")
    parser.add_argument("--out", help="results file, - for standard output only")
    given = parser.parse_args()
    rows = []
    for case in CASES:
        if given.only in (None, case.mode):
            rows.append(compare(case, given.pairs))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["mode", "step, ms", "pairs", "recorded / not", "not / not"]
    head.append("windows' opening and closing included")
    body = (
        f"{machine_line()}, torch {torch.__version__}, gloo, fp32. GPT of 4 layers of 240 on "
        f"z={SHAPE.z}; median ratio of the pairs, the slowest rank's time, 95 % bootstrap "
        "interval. The light mode closes a window every few thousand collectives; here it does "
        "so after each block.\n\n" + table(head, rows)
    )
    print(body)
    if given.out != "-":
        path = Path(given.out) if given.out else default_results(machine_class())
        write_section(path, HEADING, body)


if __name__ == "__main__":
    main()
