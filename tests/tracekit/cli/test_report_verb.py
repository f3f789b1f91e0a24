"""The verb report writes one file and prints its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.builder import Kineto
from tests.tracekit.cli.conftest import Outcome


def test_report_writes_the_file_it_prints(tracekit: Callable[..., Outcome], tmp_path: Path) -> None:
    """The path of the page is all there is on stdout, and the page is there."""
    trace = Kineto(0, 1).kernel(0, 10, "gemm").write(tmp_path / "trace.json")
    out = tmp_path / "report.html"
    ran = tracekit("report", str(trace), "-o", str(out))
    assert (ran.status, ran.out) == (0, f"{out}\n")
    assert out.read_text().startswith("<!doctype html>")


def test_report_needs_a_path_and_a_place(tracekit: Callable[..., Outcome], tmp_path: Path) -> None:
    """Without a run, or without a file to write, one line says what is missing."""
    assert tracekit("report", "-o", str(tmp_path / "r.html")).complaint().startswith("report needs")
    assert tracekit("report", str(tmp_path)).complaint().startswith("report needs --out")
    assert tracekit("report", str(tmp_path), "-o", "").complaint().startswith("--out is empty")
