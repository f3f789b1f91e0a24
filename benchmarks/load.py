"""Times loading one trace and breaking it down: tracekit, HolisticTraceAnalysis and the floor.

Every figure comes from a process of its own. Rounds are interleaved, one run of each kind per
round, and a ratio is the median of the rounds' own ratios, so that a machine that slows down for
a minute slows both sides. See README.md in this folder.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grow
import measure
from measure import Cost

# The first is HolisticTraceAnalysis's own example (A100, NCCL, 2022: whole microseconds), so that
# no one can say it was chosen against it; the second is what today's profiler writes (fractions,
# a base time, collective metadata, Python stacks).
_DEFAULT_SOURCES = (
    "traces/hta_trace_diff_control_r3of8/rank3.json.gz",
    "traces/tl_mi300_resnet_ddp_r0of8/rank0.json.gz",
)

# The size is in gzip's trailer; with it isal needs no second buffer. Of isal with the size, isal
# without it and zlib, this one is the fastest.
_FLOOR = """
import json, sys, time
import simdjson
from isal import isal_zlib
t0 = time.perf_counter()
packed = open(sys.argv[1], "rb").read()
text = isal_zlib.decompress(packed, 31, int.from_bytes(packed[-4:], "little"))
t1 = time.perf_counter()
document = simdjson.Parser().parse(text)
t2 = time.perf_counter()
print(json.dumps({"load_s": t1 - t0, "total_s": t2 - t0}))
"""

# A running session is measured: a trace of one kernel is opened before the clock starts, so that
# imports are not counted, as they are not on the other side.
_TRACEKIT = """
import json, sys, time
import pandas
from tracekit import open as open_run
store = sys.argv[2] == "store"
open_run(sys.argv[3], store=store).breakdown()
t0 = time.perf_counter()
run = open_run(sys.argv[1], store=store)
t1 = time.perf_counter()
run.breakdown()
t2 = time.perf_counter()
print(json.dumps({"load_s": t1 - t0, "total_s": t2 - t0}))
"""

_HTA = """
import json, sys, time
from hta.trace_analysis import TraceAnalysis
t0 = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
t1 = time.perf_counter()
times = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
t2 = time.perf_counter()
print()
print(json.dumps({"load_s": t1 - t0, "total_s": t2 - t0,
                  "compute_us": float(times["compute_time(us)"].iloc[0])}))
"""
#: runs whose output is the analysis itself
_COMMANDS = {"command", "recommand", "again"}


@dataclass(slots=True)
class Samples:
    """The runs of one kind, by round."""

    label: str
    costs: dict[int, Cost] = field(default_factory=dict)
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, num: int, cost: Cost, reports: bool = True) -> None:
        """Keeps the run of round `num`; `reports` if its last line is a JSON object."""
        self.costs[num] = cost
        if reports:
            self.reports[num] = cost.report()

    def inside(self, key: str) -> dict[int, float]:
        """Seconds that the process itself measured, by round."""
        return {num: report[key] for num, report in self.reports.items()}

    def wall(self) -> dict[int, float]:
        """Seconds of the whole process, by round."""
        return {num: cost.wall_s for num, cost in self.costs.items()}

    def peak(self) -> dict[int, float]:
        """Peak memory in MB, by round."""
        return {num: cost.peak_mb for num, cost in self.costs.items()}

    def row(self) -> list[str]:
        """Label, load, load + breakdown, whole process, peak memory: medians."""
        load, total = self.inside("load_s"), self.inside("total_s")
        figures = [load, total, self.wall()]
        texts = [f"{statistics.median(f.values()):.3f}" if f else "–" for f in figures]
        return [
            self.label,
            *texts,
            f"{statistics.median(self.peak().values()):.0f}",
            str(len(self.costs)),
        ]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of run: how the table calls it, and how it is done with a given store folder."""

    label: str
    call: Callable[[Path], Cost]


def analyze(trace: Path, *options: str, cache: Path) -> Cost:
    """`tracekit analyze TRACE --json` as a fresh command."""
    argv = [sys.executable, "-m", "tracekit", "analyze", str(trace), "--json", *options]
    return measure.run(argv, {"TRACEKIT_CACHE": str(cache)})


def opened(trace: Path, store: bool, cache: Path) -> Cost:
    """`tracekit.open(TRACE).breakdown()` in a fresh interpreter."""
    tiny = measure.tiny_trace(cache.parent / "one-kernel.json")
    mode = "store" if store else "no-store"
    env = {"TRACEKIT_CACHE": str(cache)}
    return measure.python(_TRACEKIT, str(trace), mode, str(tiny), env=env)


def kinds(trace: Path, hta_python: str | None, with_tracekit: bool) -> dict[str, Kind]:
    """The runs of one round, in order; each is given the round's own, at first empty, store.

    The third of tracekit fills the store that the others open; the command keeps its answer, which
    the last one gives again.
    """
    runs: dict[str, Kind] = {
        "floor": Kind(
            "floor: gunzip (isal) + bare simdjson parse",
            lambda _: measure.python(_FLOOR, str(trace)),
        )
    }
    if with_tracekit:
        runs |= {
            "open": Kind("first load, in process", lambda c: opened(trace, False, c)),
            "command": Kind(
                "first load, `analyze --json --no-store`",
                lambda c: analyze(trace, "--no-store", cache=c),
            ),
            "fill": Kind("first load, store written, in process", lambda c: opened(trace, True, c)),
            "reopen": Kind("second open, in process", lambda c: opened(trace, True, c)),
            "recommand": Kind(
                "second open, `analyze --json`, table kept", lambda c: analyze(trace, cache=c)
            ),
            "again": Kind("the same command again, answer kept", lambda c: analyze(trace, cache=c)),
        }
    if hta_python:
        runs["hta"] = Kind(
            "HolisticTraceAnalysis",
            lambda _: measure.python(_HTA, str(trace), interpreter=hta_python),
        )
    return runs


def measure_rounds(
    trace: Path,
    work: Path,
    rounds: int,
    hta_rounds: int,
    hta_python: str | None,
    with_tracekit: bool,
) -> dict[str, Samples]:
    """Runs the rounds, interleaved; round 0 warms files and bytecode and is not kept."""
    runs = kinds(trace, hta_python, with_tracekit)
    samples = {key: Samples(kind.label) for key, kind in runs.items()}
    for num in range(rounds + 1):
        cache = Path(tempfile.mkdtemp(prefix="cache-", dir=work))
        for key, kind in runs.items():
            if key == "hta" and not 1 <= num <= hta_rounds:
                continue
            cost = kind.call(cache)
            seen = f"{cost.wall_s:.2f} s, {cost.peak_mb:.0f} MB"
            print(f"round {num}: {key}: {seen}", file=sys.stderr)
            if num:
                samples[key].add(num, cost, reports=key not in _COMMANDS)
        shutil.rmtree(cache)
    return samples


def ratios(above: dict[int, float], below: dict[int, float]) -> list[float]:
    """Quotients of the rounds that both sides have."""
    return [above[num] / below[num] for num in sorted(above.keys() & below.keys())]


def goals(samples: dict[str, Samples]) -> list[list[str]]:
    """Rows of the table of goals: what, limit, measured with spread, met or not."""
    if "open" not in samples:
        return []
    first, command = samples["open"].inside("total_s"), samples["command"]
    floor = samples["floor"].inside("total_s")
    rows = [
        _goal("≤", 2.5, "first load + breakdown / floor, in process", first, floor),
        _goal("≤", 2.5, "first load as a fresh command / floor", command.wall(), floor),
    ]
    if "hta" in samples:
        hta, again = samples["hta"], samples["reopen"].inside("total_s")
        load, total = hta.inside("load_s"), hta.inside("total_s")
        reopened = samples["again"].wall()
        rows += [
            _goal("≥", 10, "HTA load + breakdown / the same, in process", total, first),
            _goal("≥", 10, "the same as whole processes", hta.wall(), command.wall()),
            _goal("≤", 0.5, "peak memory of the command / HTA", command.peak(), hta.peak()),
            _goal("≥", 100, "HTA load / second open + breakdown, in process", load, again),
            _goal("≥", 50, "HTA load / the command a second time", load, reopened),
        ]
    return rows


def _goal(
    sign: str, limit: float, what: str, above: dict[int, float], below: dict[int, float]
) -> list[str]:
    values = ratios(above, below)
    middle = statistics.median(values)
    met = middle >= limit if sign == "≥" else middle <= limit
    return [what, f"{sign} {limit:g}", measure.spread(values), "yes" if met else "**no**"]


def grown(source: Path, mb: float, work: Path) -> tuple[Path, str]:
    """Grows `source` to `mb` MB in `work`; returns the file and the line that describes it."""
    # In a child, so that the memory of growing is not handed down to what is measured.
    out = work / f"{source.parent.name}-{source.name.removesuffix('.gz')}-{mb:g}.json.gz"
    cost = measure.run(
        [sys.executable, grow.__file__, str(source), str(out), "--mb", str(mb), "--gzip", "--json"]
    )
    counts = cost.report()
    return out, (
        f"Trace: {counts['copies']} × `{source.parent.name}/{source.name}`, "
        f"{counts['events']} events, {counts['bytes'] / measure.MB:.0f} MB unpacked, "
        f"{out.stat().st_size / measure.MB:.1f} MB gzipped."
    )


def big(source: Path, work: Path, rounds: int) -> str:
    """The memory a 1.5 GB trace takes: tracekit alone, as commands."""
    trace, line = grown(source, 1500, work)
    runs = [("analyze --json --no-store", ["--no-store"]), ("analyze --json, store written", [])]
    rows = []
    for label, options in runs:
        costs = []
        for _ in range(rounds):
            cache = Path(tempfile.mkdtemp(prefix="cache-", dir=work))
            costs.append(analyze(trace, *options, cache=cache))
            shutil.rmtree(cache)
        peaks = [cost.peak_mb for cost in costs]
        rows.append(
            [
                label,
                measure.spread([cost.wall_s for cost in costs]),
                measure.spread(peaks, 0),
                "yes" if max(peaks) < 2000 else "**no**",
            ]
        )
    head = ["1.5 GB", "wall, s", "peak memory, MB", "under 2 GB"]
    return f"{line}\n\n{measure.table(head, rows)}"


def compared(samples: dict[str, Samples]) -> str:
    """The compute time both tools report, so that a fast wrong answer would show."""
    parts = []
    if "hta" in samples:
        parts.append(f"HTA {next(iter(samples['hta'].reports.values()))['compute_us']:.0f} µs")
    if "command" in samples:
        document = next(iter(samples["command"].costs.values())).report()
        parts.append(f"tracekit {document['ranks'][0]['compute_us']:.0f} µs")
    if len(parts) < 2:
        return ""
    return (
        f"Compute time reported: {', '.join(parts)} (HTA leaves out the last ProfilerStep "
        "and what was launched before the window, and rounds fractions of a µs away)."
    )


def report(source: Path, work: Path, args: argparse.Namespace) -> str:
    """Grows, measures and renders one source trace."""
    trace, line = grown(source, args.mb, work)
    samples = measure_rounds(
        trace, work, args.rounds, args.hta_rounds, args.hta_python, not args.no_tracekit
    )
    head = ["medians", "load, s", "load + breakdown, s", "whole process, s", "peak, MB", "runs"]
    parts = [line, measure.table(head, [s.row() for s in samples.values()]), compared(samples)]
    rows = goals(samples)
    if rows:
        parts.append(measure.table(["goal", "limit", "median (lowest–highest)", "met"], rows))
    if not args.hta_python:
        parts.append("HolisticTraceAnalysis was not measured: no `--hta-python` was given.")
    if args.big:
        parts.append(big(source, work, rounds=2))
    return "\n\n".join(filter(None, parts))


def setting(args: argparse.Namespace) -> str:
    """The machine and the versions measured."""
    own = measure.versions(
        sys.executable,
        "tracekit-torch",
        "numpy",
        "msgspec",
        "isal",
        "pysimdjson",
        "pyarrow",
        "pandas",
    )
    lines = [f"Machine: {measure.machine_line()}.", f"Versions: {own}."]
    if args.hta_python:
        theirs = measure.versions(args.hta_python, "HolisticTraceAnalysis", "pandas", "numpy")
        lines.append(f"HTA's environment: {theirs}.")
    return "  \n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--src",
        type=Path,
        nargs="+",
        help="traces to grow, each measured apart "
        "(default: two of the corpus in $TRACEKIT_CORPUS, see README.md)",
    )
    parser.add_argument("--mb", type=float, default=260, help="uncompressed size, MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hta-rounds", type=int, default=3, help="of these rounds, with HTA")
    parser.add_argument("--hta-python", help="python that has HolisticTraceAnalysis installed")
    parser.add_argument("--no-tracekit", action="store_true", help="floor and HTA alone")
    parser.add_argument("--big", action="store_true", help="also a trace of 1.5 GB")
    parser.add_argument("--work", type=Path, help="keeps the grown traces in this folder")
    parser.add_argument("--machine", default=measure.machine_class(), help="machine class")
    parser.add_argument(
        "--out", help="results file; - writes none (default: results/<month>-<machine class>.md)"
    )
    args = parser.parse_args(argv)
    corpus = os.environ.get("TRACEKIT_CORPUS")
    if args.src is None and corpus is None:
        parser.error("no trace to grow: give --src FILE, or set TRACEKIT_CORPUS to the corpus")
    args.src = args.src or [Path(corpus or "") / name for name in _DEFAULT_SOURCES]
    missing = [str(path) for path in args.src if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Command line: see README.md in this folder."""
    args = parse(argv)
    with tempfile.TemporaryDirectory(prefix="tracekit-load-") as temporary:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for source in args.src:
            body = f"{setting(args)}\n\n{report(source, work, args)}"
            print(body)
            if args.out != "-":
                path = Path(args.out) if args.out else measure.default_results(args.machine)
                measure.write_section(path, f"load: {source.parent.name}", body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
