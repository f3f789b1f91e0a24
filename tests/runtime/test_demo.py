"""``tracekit demo`` trains, analyzes what came out, and says where to look next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

VERB = "import sys; from runtime.commands import demo; sys.exit(demo(sys.argv[1:]))"


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    """The verb, as a process of its own."""
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", VERB, *words],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demo_shows_where_the_time_went(tmp_path: Path) -> None:
    """Four traces, the report with the grid's axes, and what to do next."""
    out = tmp_path / "run"
    process = demo("--out", str(out))
    assert process.returncode == 0, process.stderr
    assert len(list((out / "traces").iterdir())) == 4
    assert "Where the time goes (sum over 4 ranks)" in process.stdout
    by_axis = process.stdout.partition("Communication by axis")[2].splitlines()
    assert [line.split()[0] for line in by_axis if line[:5].strip() in ("x", "data")]
    assert "Where to look next" in process.stdout
    assert "20 steps are done" in process.stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """The demo replaces an earlier run, never anything else."""
    (tmp_path / "letter").write_text("dear …")
    process = demo("--out", str(tmp_path))
    assert process.returncode == 2
    assert process.stderr == (f"tracekit: {tmp_path} holds something else; choose another --out\n")
    assert (tmp_path / "letter").exists()
