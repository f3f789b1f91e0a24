"""Promises of the progress bar: for people only, and only when there is something to wait for."""

from __future__ import annotations

import io
import sys

import pytest

from tracekit.cli.progress import PATIENCE_S, Bar, shown_progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_nothing_is_drawn_before_patience_ends() -> None:
    """A quick load leaves stderr untouched."""
    stream, now = Terminal(), [0.0]
    with Bar(stream, clock=lambda: now[0]) as bar:
        bar("rank 0", 0.1)
        now[0] = PATIENCE_S - 0.01
        bar("rank 1", 0.9)
    assert stream.getvalue() == ""


def test_a_long_load_shows_what_is_read() -> None:
    """After the patience has ended the bar names the file at hand, as plain text."""
    stream, now = Terminal(), [0.0]
    with Bar(stream, clock=lambda: now[0]) as bar:
        now[0] = PATIENCE_S
        bar("reading [red]rank\x07 7", 0.25)
        bar("reading [red]rank\x07 7", 2.0)
    assert "reading [red]rank  7" in stream.getvalue()
    assert "100%" in stream.getvalue()


def test_a_pipe_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """When stderr is no terminal there is nothing to call."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown_progress() as progress:
        assert progress is None


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """When stderr is a terminal the reader is given something to call."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    with shown_progress() as progress:
        assert isinstance(progress, Bar)
