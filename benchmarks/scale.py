"""Measures how the cost of `tracekit analyze` grows with events and with ranks.

Events: one trace laid end to end 1, 2, 4, … times; the exponent is the slope of a straight line
through the logarithms of events and seconds (1 is linear). Ranks: copies of one small trace that
differ in rank and clock; memory is that of all processes together. See README.md in this folder.
"""

import argparse
import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grow
import measure
from measure import MB, Cost

_DEFAULT_SOURCE = "traces/tl_mi300_resnet_ddp_r0of8/rank0.json.gz"
_SAMPLE_EVERY_S = 0.02
_PER_RANK_MB = 5
# Every rank's clock is this much ahead of the one before: no two ranks are equal to the digit.
_CLOCK_STEP_US = 7

_OPEN = """
import json, sys, time
import pandas
from tracekit import open as open_run
open_run(sys.argv[2], store=False).breakdown()
t0 = time.perf_counter()
open_run(sys.argv[1], store=False).breakdown()
print(json.dumps({"total_s": time.perf_counter() - t0}))
"""


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Slope of the least-squares line through (log x, log y)."""
    u, v = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_u, mean_v = statistics.fmean(u), statistics.fmean(v)
    above = sum((a - mean_u) * (b - mean_v) for a, b in zip(u, v, strict=True))
    return above / sum((a - mean_u) ** 2 for a in u)


def analyze_argv(path: Path) -> list[str]:
    """The command measured."""
    return [sys.executable, "-m", "tracekit", "analyze", str(path), "--json", "--no-store"]


@dataclass(slots=True)
class Point:
    """One size: its trace and the runs on it."""

    num_events: int
    size_bytes: int
    trace: Path
    commands: list[Cost] = field(default_factory=list)
    inside_s: list[float] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        """Median seconds of the fresh command."""
        return statistics.median(cost.wall_s for cost in self.commands)

    @property
    def peak_mb(self) -> float:
        """Median peak memory of the fresh command, MB."""
        return statistics.median(cost.peak_mb for cost in self.commands)


def sizes(source: Path, doublings: int, work: Path) -> list[Point]:
    """Grows the traces of 1, 2, 4, … copies."""
    points = []
    for power in range(doublings + 1):
        out = work / f"events-{power}.json.gz"
        counts = measure.run(
            [
                sys.executable,
                grow.__file__,
                str(source),
                str(out),
                "--copies",
                str(2**power),
                "--gzip",
                "--json",
            ]
        ).report()
        points.append(Point(counts["events"], counts["bytes"], out))
    return points


def events_section(source: Path, doublings: int, rounds: int, work: Path) -> str:
    """Measures the sizes in interleaved rounds and renders them with the fit."""
    points = sizes(source, doublings, work)
    start = Point(1, 0, measure.tiny_trace(work / "tiny.json"))
    measure.run(analyze_argv(start.trace))
    for num in range(rounds):
        for point in [start, *points]:
            point.commands.append(measure.run(analyze_argv(point.trace)))
            if point is not start:
                inside = measure.python(_OPEN, str(point.trace), str(start.trace)).report()[
                    "total_s"
                ]
                point.inside_s.append(inside)
            print(
                f"round {num}: {point.num_events} events: {point.commands[-1].wall_s:.2f} s",
                file=sys.stderr,
            )
    return render_events(source, start, points)


def render_events(source: Path, start: Point, points: Sequence[Point]) -> str:
    """The table of sizes, the exponents and the memory per event."""
    counts = [point.num_events for point in points]
    inside = [statistics.median(point.inside_s) for point in points]
    net = [max(point.wall_s - start.wall_s, 1e-3) for point in points]
    rows = [
        [
            f"{p.num_events}",
            f"{p.size_bytes / MB:.0f}",
            f"{p.wall_s:.2f}",
            f"{seconds:.2f}",
            f"{seconds / p.num_events * 1e6:.2f}",
            f"{p.peak_mb:.0f}",
        ]
        for p, seconds in zip(points, inside, strict=True)
    ]
    head = ["events", "unpacked, MB", "command, s", "in process, s", "µs per event", "peak, MB"]
    per_event = (points[-1].peak_mb - points[0].peak_mb) * MB / (counts[-1] - counts[0])
    intro = (
        f"Source: `{source.parent.name}/{source.name}`, laid end to end. Medians of "
        f"{len(points[0].commands)} runs; start-up (a trace of one kernel): {start.wall_s:.2f} s, "
        f"{start.peak_mb:.0f} MB."
    )
    outcome = (
        f"Exponent of seconds over events: {exponent(counts, net):.3f} for the command less "
        f"start-up, {exponent(counts, inside):.3f} in process (1 is linear). Memory: "
        f"{per_event:.0f} bytes per further event."
    )
    return "\n\n".join([intro, measure.table(head, rows), outcome])


def relabel(text: str, world_size: int) -> str:
    """Makes the one process group of a trace the group of `world_size` ranks.

    Raises
    ------
    ValueError
        If the trace has no rank and world size to change.
    """
    ranks = "[" + ", ".join(map(str, range(world_size))) + "]"
    if not re.search(r'"distributedInfo"\s*:\s*\{[^}]*?"rank"\s*:\s*\d+', text):
        raise ValueError("no rank in distributedInfo: choose the trace of a distributed run")
    for pattern, new in (
        (r'("world_size"\s*:\s*)\d+', rf"\g<1>{world_size}"),
        (r'("pg_size"\s*:\s*)\d+', rf"\g<1>{world_size}"),
        (r'("Group size"\s*:\s*)\d+', rf"\g<1>{world_size}"),
        (r'("ranks"\s*:\s*)\[[^\]]*\]', rf"\g<1>{ranks}"),
        (r'("Process Group Ranks"\s*:\s*")\[[^\]]*\]', rf"\g<1>{ranks}"),
    ):
        text = re.sub(pattern, new, text)
    return text


def write_ranks(source: Path, num_ranks: int, folder: Path) -> int:
    """Writes `num_ranks` traces that differ in rank and clock; returns one's event count."""
    folder.mkdir()
    template = grow.make_template(relabel(grow.read_text(source), num_ranks))
    head = template.head
    for rank in range(num_ranks):
        template.head = re.sub(r'("rank"\s*:\s*)\d+', rf"\g<1>{rank}", head, count=1)
        body = template.render({"time": rank * _CLOCK_STEP_US})
        body = re.sub(r'("Rank"\s*:\s*)\d+', rf"\g<1>{rank}", body)
        once = "".join(",\n  " + text for _, text in template.once)
        document = template.head + body + once + template.tail
        pieces = [document.encode("utf-8", "surrogateescape")]
        grow.write(pieces, folder / f"rank{rank}.json.gz", compress=True)
    return template.num_events + len(template.once)


def processes(root: int) -> Iterator[int]:
    """Process ids of `root` and all that descend from it."""
    yield root
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{root}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from processes(int(child))


def _field_kib(path: str, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


@dataclass(slots=True)
class Watch:
    """Peak memory of a process tree while it runs, sampled.

    Attributes
    ----------
    together_mb
        Highest sum of proportional set sizes (a shared page counts once) over the tree.
    parent_mb
        The first process's own high-water mark.
    most_processes
        The most processes alive at once.
    """

    together_mb: float = 0.0
    parent_mb: float = 0.0
    most_processes: int = 0

    def follow(self, child: subprocess.Popen[bytes]) -> None:
        """Samples until the process has ended."""
        while child.poll() is None:
            tree = list(processes(child.pid))
            pss = sum(_field_kib(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in tree)
            self.together_mb = max(self.together_mb, pss * 1024 / MB)
            own = _field_kib(f"/proc/{child.pid}/status", "VmHWM:")
            self.parent_mb = max(self.parent_mb, own * 1024 / MB)
            self.most_processes = max(self.most_processes, len(tree))
            time.sleep(_SAMPLE_EVERY_S)


def watched(argv: Sequence[str]) -> tuple[float, Watch]:
    """Runs a command under a `Watch`; returns its wall seconds and what was seen."""
    watch = Watch()
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        child = measure.start(argv, {}, out, subprocess.DEVNULL)
        thread = threading.Thread(target=watch.follow, args=(child,))
        thread.start()
        code = child.wait()
        wall_s = time.perf_counter() - begin
        thread.join()
    if code != 0:
        raise RuntimeError(f"exit {code} of {' '.join(argv)}")
    return wall_s, watch


def rank_counts(most: int) -> list[int]:
    """1, 2, 4, … up to `most`."""
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def ranks_section(source: Path, most: int, rounds: int, work: Path) -> str:
    """Measures 1, 2, 4, … ranks in interleaved rounds and renders them against the goal."""
    everything = work / "ranks"
    num_events = write_ranks(source, most, everything)
    seen: dict[int, list[tuple[float, Watch]]] = {count: [] for count in rank_counts(most)}
    for count in seen:
        folder = work / f"ranks-{count}"
        folder.mkdir()
        for rank in range(count):
            os.link(everything / f"rank{rank}.json.gz", folder / f"rank{rank}.json.gz")
    for num in range(rounds):
        for count, runs in seen.items():
            runs.append(watched(analyze_argv(work / f"ranks-{count}")))
            print(
                f"round {num}: {count} ranks: {runs[-1][0]:.2f} s, "
                f"{runs[-1][1].together_mb:.0f} MB",
                file=sys.stderr,
            )
    return render_ranks(source, num_events, seen)


def render_ranks(source: Path, num_events: int, seen: dict[int, list[tuple[float, Watch]]]) -> str:
    """The table of rank counts and whether the goal for memory is met."""
    together = {n: statistics.median(w.together_mb for _, w in runs) for n, runs in seen.items()}
    walls = {n: statistics.median(wall for wall, _ in runs) for n, runs in seen.items()}
    rows = [
        [
            str(n),
            f"{walls[n]:.2f}",
            f"{walls[n] / n:.3f}",
            f"{statistics.median(w.parent_mb for _, w in runs):.0f}",
            f"{together[n]:.0f}",
            str(max(w.most_processes for _, w in runs)),
        ]
        for n, runs in seen.items()
    ]
    head = [
        "ranks",
        "command, s",
        "s per rank",
        "parent's peak, MB",
        "all processes, MB",
        "processes",
    ]
    intro = (
        f"Source: `{source.parent.name}/{source.name}`, {num_events} events per rank. Medians of "
        f"{len(next(iter(seen.values())))} runs, memory sampled every "
        f"{_SAMPLE_EVERY_S * 1000:.0f} ms."
    )
    parts = [intro, measure.table(head, rows)]
    most = max(seen)
    if most > 2:
        limit = together[2] + _PER_RANK_MB * (most - 2)
        met = "met" if together[most] <= limit else "**not met**"
        parts.append(
            f"Goal, {most} ranks in the peak of two + {_PER_RANK_MB} MB for each further: "
            f"{together[most]:.0f} MB against {limit:.0f} MB, {met}."
        )
    return "\n\n".join(parts)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--src", type=Path, help=f"trace to copy (default: $TRACEKIT_CORPUS/{_DEFAULT_SOURCE})"
    )
    parser.add_argument("--doublings", type=int, default=5, help="sizes: 1, 2, … 2^N copies")
    parser.add_argument("--ranks", type=int, default=64, help="most ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["events", "ranks"], help="one of the two parts")
    parser.add_argument("--machine", default=measure.machine_class(), help="machine class")
    parser.add_argument(
        "--out", help="results file; - writes none (default: results/<month>-<machine class>.md)"
    )
    args = parser.parse_args(argv)
    corpus = os.environ.get("TRACEKIT_CORPUS")
    if args.src is None and corpus is None:
        parser.error("no trace to copy: give --src FILE, or set TRACEKIT_CORPUS to the corpus")
    args.src = args.src or Path(corpus or "") / _DEFAULT_SOURCE
    if not args.src.is_file():
        parser.error(f"no such file: {args.src}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Command line: see README.md in this folder."""
    args = parse(argv)
    with tempfile.TemporaryDirectory(prefix="tracekit-scale-") as temporary:
        work = Path(temporary)
        sections = {}
        if args.only != "ranks":
            sections["scale: events"] = events_section(args.src, args.doublings, args.rounds, work)
        if args.only != "events":
            sections["scale: ranks"] = ranks_section(args.src, args.ranks, args.rounds, work)
    path = Path(args.out) if args.out else measure.default_results(args.machine)
    for heading, section in sections.items():
        body = f"Machine: {measure.machine_line()}.\n\n{section}"
        print(f"## {heading}\n\n{body}\n")
        if args.out != "-":
            measure.write_section(path, heading, body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
