"""Compares every model on every placement of 8 and of 6 processes with the model of one process.

In fp64: the loss, each gradient, the loss after five AdamW steps, and the bytes sent, which must be
those of `runtime.volume`. Placements are the grids (x, y, z, data) and the orders of their axes;
axes of one rank have no place. One launch is the whole table; about an hour on two cores.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from measure import default_results, machine_class, machine_line, table, write_section

from runtime.grid import AXES, GridShape
from runtime.models import GPTConfig, MLPConfig, ModelConfig, UNetConfig
from runtime.overlap import RECOMPUTE
from tests.runtime.exactness import Case, Result, run

LIMIT = 1e-12
HEADING = "exactness on every placement"
FLAGS = ("oar", "ors", "oag", "bucket")
TIED = GPTConfig(layers=2, features=24, heads=24, kv_heads=24, vocabulary=94, length=6, dropout=0.1)
MODELS: dict[str, ModelConfig] = {
    "GPT tied": TIED,
    "GPT untied": GPTConfig(
        layers=1, features=24, heads=24, kv_heads=24, vocabulary=94, length=6, tied=False
    ),
    "MLP": MLPConfig(layers=3, dropout=0.1),
    "U-Net": UNetConfig(image=4, groups=4, heads=24, dropout=0.1),
}
#: grouped queries for each world size: more ranks on y than groups in both, and fewer in the first
GROUPED = {
    8: GPTConfig(layers=1, features=24, heads=8, kv_heads=4, tied=False, rms=True, length=6),
    6: GPTConfig(layers=1, features=24, heads=12, kv_heads=1, tied=False, rms=True, length=6),
}
#: the grids on which all switches are combined
SWITCHED = (GridShape(x=2, y=2, z=2), GridShape(z=2, y=2, data=2, order=("data", "z", "y", "x")))


def placements(world: int) -> Iterator[GridShape]:
    """All distinct placements of so many ranks."""
    sizes = [n for n in range(1, world + 1) if world % n == 0]
    for degrees in itertools.product(sizes, repeat=4):
        grid = dict(zip(AXES, degrees, strict=True))
        split = [a for a in AXES if grid[a] > 1]
        if GridShape(**grid).world_size != world:
            continue
        for order in itertools.permutations(split):
            rest = tuple(a for a in AXES if a not in order)
            yield GridShape(**grid, order=(*order, *rest))


def everywhere(world: int, only: Sequence[str]) -> list[tuple[str, Case]]:
    """Each model on each placement: plainly, and with everything switched on."""
    cases = []
    models = {**MODELS, "GPT grouped queries": GROUPED[world]}
    for shape, (name, config) in itertools.product(placements(world), models.items()):
        if only and name not in only:
            continue
        batch = 2 * world
        plain = Case(shape, config, "none", "none", 1, batch)
        cases += [(name, plain), (name, Case(shape, config, "all", "full", 2, batch))]
    return cases


def switched() -> list[tuple[str, Case]]:
    """All combinations of overlaps, recomputation and accumulation on two grids of 8."""
    cases = []
    for shape, on, recompute, parts in itertools.product(
        SWITCHED, itertools.product((False, True), repeat=4), RECOMPUTE, (1, 2)
    ):
        overlap = ",".join(itertools.compress(FLAGS, on)) or "none"
        cases.append(("switches", Case(shape, TIED, overlap, recompute, parts, 16)))
    return cases


def is_right(result: Result) -> bool:
    """Whether a case keeps the limit and sends what the formulas say."""
    return result.gradient <= LIMIT and result.loss <= LIMIT and not result.volume


def summary(done: list[tuple[int, str, Case, Result]]) -> str:
    """One row for each model, world size and way."""
    rows, keys = [], {}
    for world, name, case, result in done:
        way = "all combinations"
        if name != "switches":
            way = "all off" if case.overlap == "none" else "all on, full, 2 micro-batches"
        keys.setdefault((world, name, way), []).append((case, result))
    for (world, name, way), found in keys.items():
        results = [r for _, r in found]
        rows.append(
            [
                name if name != "switches" else "GPT tied, two grids",
                str(world),
                way,
                str(len({c.shape for c, _ in found})),
                str(len(found)),
                f"{max(r.gradient for r in results):.1e}",
                f"{max(r.loss for r in results):.1e}",
                str(sum(bool(r.volume) for r in results)),
                f"{sum(map(is_right, results))} / {len(results)}",
            ]
        )
    head = ["model", "ranks", "overlaps, recomputation", "placements", "cases", "gradient", "loss"]
    return table([*head, "wrong volumes", "right"], rows)


def faults(done: list[tuple[int, str, Case, Result]]) -> str:
    """A line for each case that is not right."""
    return "\n".join(f"- {n}: {c} {r}" for _, n, c, r in done if not is_right(r))


def main() -> int:
    """Run the table; 1 if a case is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=[*MODELS, "switches"])
    parser.add_argument("--out", type=Path, help="results file (benchmarks/results/…)")
    parser.add_argument("--folder", type=Path, help="keep results here, and go on from them")
    options = parser.parse_args()
    done, begin = [], time.monotonic()
    for world in (8, 6):
        cases = everywhere(world, options.only)
        if world == 8 and (not options.only or "switches" in options.only):
            cases += switched()
        if not cases:
            continue
        print(f"{len(cases)} cases of {world} processes", file=sys.stderr)
        with tempfile.TemporaryDirectory() as passing:
            folder = options.folder / f"{world} ranks" if options.folder else Path(passing)
            folder.mkdir(parents=True, exist_ok=True)
            results = run(world, folder, [c for _, c in cases], progress=True)
        done += [(world, n, c, r) for (n, c), r in zip(cases, results, strict=True)]
    minutes = (time.monotonic() - begin) / 60
    body = (
        f"Machine: {machine_line()}. fp64, gloo, {len(done)} cases in {minutes:.0f} minutes. "
        f"Largest differences over all ranks and tensors: gradient max|Δ| / max|g|, loss over the "
        f"first and five AdamW steps |Δ| / loss; limit {LIMIT:.0e}. Volumes: bytes sent per axis, "
        f"operation and kind against `runtime.volume`.\n\n{summary(done)}\n\n{faults(done)}"
    )
    print(body)
    if not options.only:
        write_section(options.out or default_results(machine_class()), HEADING, body)
    return int(not all(is_right(r) for *_, r in done))


if __name__ == "__main__":
    sys.exit(main())
