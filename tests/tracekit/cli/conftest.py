"""Stand-ins for the analysis, so that the command line is tested alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tracekit.report.documents import document_of, rank
from tracekit.cli import kept
from tracekit.cli.app import main
from tracekit.core.errors import Note
from tracekit.io import identity


@dataclass
class FakeRun:
    """An opened run: only its notes are looked at."""

    notes: list[Note] = field(default_factory=list)


@dataclass
class FakeOptions:
    """Takes what the command line passes to the opening of a run."""

    names: str | None
    ranks: frozenset[int] | None
    capture: int | None
    store: bool
    limits: Any
    progress: Callable[[str, float], None] | None


@dataclass
class Analysis:
    """What the stand-ins give back, and what they were called with."""

    document: dict[str, Any] = field(default_factory=lambda: document_of([rank(0), rank(1)]))
    run: FakeRun = field(default_factory=FakeRun)
    checked: list[Note] = field(default_factory=list)
    exported: list[Path] = field(default_factory=list)
    entries: list[tuple[str, str, int, float]] = field(default_factory=list)
    error: BaseException | None = None
    paths: list[str] | None = None
    options: FakeOptions | None = None
    window: tuple[Any, Any] | None = None
    export_call: tuple[str, Path] | None = None
    cleared: int = 0

    def open_run(self, paths: list[str], *, options: FakeOptions) -> FakeRun:
        """Record the call; raise the error the test asked for."""
        self.paths, self.options = paths, options
        if self.error is not None:
            raise self.error
        return self.run

    def make_document(
        self,
        run: FakeRun,
        *,
        steps: tuple[int, int] | None = None,
        time_range_us: tuple[float, float] | None = None,
    ) -> dict[str, Any]:
        """Give the document the test asked for."""
        assert run is self.run
        self.window = (steps, time_range_us)
        return self.document

    def export(self, run: FakeRun, to: str, out: Path) -> list[Path]:
        """Record the call."""
        assert run is self.run
        self.export_call = (to, out)
        return self.exported

    def clear(self) -> int:
        """Count the call; 4096 bytes were freed."""
        self.cleared += 1
        self.entries = []
        return 4096


def put(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """Let ``import name`` give a module of these contents."""
    module = ModuleType(name)
    vars(module).update(contents)
    parent, _, leaf = name.rpartition(".")
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(import_module(parent), leaf, module, raising=False)


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> Analysis:
    """Put stand-ins in the place of the analysis."""
    made = Analysis()
    monkeypatch.setattr(kept, "find", lambda _paths: ([], []))  # the paths need not exist,
    monkeypatch.setattr(kept, "result_key", lambda *_question: None)  # and nothing is kept
    put(monkeypatch, "tracekit.model.run", open_run=made.open_run, OpenOptions=FakeOptions)
    put(monkeypatch, "tracekit.model.check", check=lambda _run: made.checked)
    put(monkeypatch, "tracekit.report.document", document=made.make_document)
    put(monkeypatch, "tracekit.report.export", export=made.export)
    put(monkeypatch, "tracekit.io.store", entries=lambda: made.entries, clear=made.clear)
    monkeypatch.setattr(identity, "folder", lambda: Path("/cache"))
    return made


@dataclass(frozen=True)
class Outcome:
    """What a command line did."""

    status: int
    out: str
    err: str

    def complaint(self) -> str:
        """The one line on stderr of a command that printed nothing else."""
        assert self.out == ""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("tracekit: ").rstrip("\n")


@pytest.fixture
def tracekit(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process."""

    def ran(*argv: str) -> Outcome:
        capfd.readouterr()
        status = main(argv)
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return ran
