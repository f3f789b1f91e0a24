"""Runs one command as its own process and says what it cost; renders results as markdown.

Wall seconds are taken around the child, peak memory from `os.wait4` (`ru_maxrss`: the largest
single process of the child's tree). Linux hands the parent's resident size down to a fresh child,
so a benchmark script must stay small itself: it imports nothing but the standard library.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
MB = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """What one child process cost, and what it printed.

    Attributes
    ----------
    wall_s
        Seconds from the start of the process to its end, interpreter and imports included.
    peak_mb
        Peak resident memory of the largest process, in MB (1e6 bytes).
    stdout
        Everything it printed.
    """

    wall_s: float
    peak_mb: float
    stdout: str

    def report(self) -> dict[str, Any]:
        """The JSON object on the last line printed."""
        found: dict[str, Any] = json.loads(self.stdout.strip().rsplit("\n", 1)[-1])
        return found


def start(
    argv: Sequence[str], env: Mapping[str, str], out: Any, err: Any
) -> subprocess.Popen[bytes]:
    """Starts `argv` with this repository importable and `env` on top of the environment."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    full = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **env}
    # The commands are this folder's own, with paths given by whoever runs the benchmark.
    return subprocess.Popen(  # noqa: S603
        list(argv), stdout=out, stderr=err, env=full, stdin=subprocess.DEVNULL
    )


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Runs one command to its end and returns its cost.

    Raises
    ------
    RuntimeError
        If it fails: the message holds the command and the last lines it wrote.
    """
    # Files, not pipes: a document of megabytes must not stop the child when a pipe is full.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        child = start(argv, env or {}, out, err)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            last = err.read().decode(errors="replace").strip().splitlines()[-3:]
            raise RuntimeError(f"exit {child.returncode} of {argv[:4]}: " + " | ".join(last))
        return Cost(wall_s, usage.ru_maxrss * 1024 / MB, out.read().decode())


def python(
    code: str, *args: str, interpreter: str = sys.executable, env: Mapping[str, str] | None = None
) -> Cost:
    """Runs `code` with `args` in a fresh interpreter."""
    return run([interpreter, "-c", code, *args], env)


def tiny_trace(path: Path) -> Path:
    """Writes a trace of one kernel: what reading it costs is start-up."""
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 1,
        "dur": 2,
        "args": {"device": 0, "stream": 7},
    }
    path.write_text(
        json.dumps({"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [kernel]})
    )
    return path


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median with the lowest and highest value, as text."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def machine_class() -> str:
    """Short name of this kind of machine, fit for a file name."""
    return f"{platform.machine()}-{os.cpu_count()}-cpus"


def machine_line() -> str:
    """Processor, memory, system and interpreter in one line."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text() if cpuinfo.exists() else "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{found[1] if found else platform.processor()}, {os.cpu_count()} CPUs, "
        f"{memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    )


def versions(interpreter: str, *names: str) -> str:
    """Versions of installed distributions as seen by `interpreter`; absent ones are left out."""
    code = (
        "import importlib.metadata as m, sys, json\n"
        "have = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "print(json.dumps([f'{n} {have[n.lower()]}' for n in sys.argv[1:] if n.lower() in have]))"
    )
    return ", ".join(json.loads(python(code, *names, interpreter=interpreter).stdout))


def default_results(machine: str) -> Path:
    """`benchmarks/results/YYYY-MM-<machine class>.md`."""
    return RESULTS / f"{time.strftime('%Y-%m')}-{machine}.md"


def write_section(path: Path, heading: str, body: str) -> None:
    """Puts a section into a results file, in place of an earlier one with the same heading."""
    text = path.read_text() if path.exists() else f"# Results: {path.stem}\n"
    section = re.compile(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    text = section.sub("", text).rstrip() + f"\n\n## {heading}\n\n{body.strip()}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"written to {path}", file=sys.stderr)
