"""Let a signal that asks the process to end be a Ctrl-C, so that everything is cleaned up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: sent by kill, batch systems and time limits, and when the terminal goes away
_NAMES = ("SIGTERM", "SIGHUP")


class Ended(KeyboardInterrupt):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `Ended` where such a signal would end the process at once; undone afterwards."""
    there = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        there = []  # only the main thread may ask
    ours = [number for number in there if signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, _end)
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # nothing may disturb the cleaning up
    raise Ended(number)
