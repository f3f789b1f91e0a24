"""A progress bar on stderr, for people at a terminal who would otherwise wait without a sign."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from tracekit.core.errors import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 0.5
NAME_WIDTH = 40


class Bar:
    """A callable ``(what, fraction)`` that starts to draw once `PATIENCE_S` have passed."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._begin = clock()
        self._drawn: Progress | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def __call__(self, what: str, fraction: float) -> None:
        """Show that ``fraction`` (0 to 1) of the work is done and ``what`` is at hand."""
        text, done = one_line(what, limit=NAME_WIDTH), round(100 * min(1.0, max(0.0, fraction)))
        if self._drawn is not None:
            self._drawn.update(self._drawn.task_ids[0], completed=done, description=text)
        elif self._clock() - self._begin >= PATIENCE_S:
            self._drawn = _drawing(self._stream)
            self._drawn.add_task(text, total=100, completed=done)
            self._drawn.start()


def _drawing(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        console=Console(file=stream, markup=False, highlight=False, emoji=False),
        transient=True,
    )


@contextmanager
def shown_progress() -> Iterator[Callable[[str, float], None] | None]:
    """Give a progress callable while stderr is a terminal, else None."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with Bar(sys.stderr) as bar:
        yield bar
