"""Promises of a fast start: heavy packages are imported only by what needs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("numpy", "pandas", "pyarrow", "plotly", "torch", "dash", "msgspec")
SCRIPT = """
import sys
from tracekit.cli.app import main
status = main(sys.argv[1:])
sys.stderr.write(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("argv", "status"),
    [(["--help"], 0), (["--version"], 0), (["analyze", "--help"], 0), (["analyze"], 2)],
)
def test_help_imports_nothing_heavy(argv: list[str], status: int) -> None:
    """Help, version and bad use need no package that takes long to import."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "tracekit" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_module_is_the_command() -> None:
    """`python -m tracekit` is the same as `tracekit`."""
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "analyze", "--jsn"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tracekit: unknown option: --jsn. Did you mean --json?")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("columns", ["5", "20", "200"])
def test_help_ends_in_any_terminal(columns: str) -> None:
    """Help is printed whole however narrow the terminal is."""
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "analyze", "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "COLUMNS": columns},
    )
    assert done.returncode == 0
    assert "--fail-on" in done.stdout
