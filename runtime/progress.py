"""How far a run is, on stderr: a bar on a terminal, a line for each tenth elsewhere.

Rank 0 hands its progress to the launcher as JSON lines through a pipe, so that nothing else a rank
or a library writes can break the bar; without a launcher it draws itself.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from runtime.flags import say

WIDTH = 24
BLOCKS = " ▏▎▍▌▋▊▉█"


class Progress(Protocol):
    """Where rank 0 says how far it is."""

    def at(self, done: int, total: int, text: str) -> None:
        """Say that ``done`` of ``total`` steps are done."""

    def say(self, text: str) -> None:
        """Say one line that stays."""


class Silent:
    """The progress of ranks other than 0."""

    def at(self, done: int, total: int, text: str) -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


@dataclass
class Bar:
    """Draws on a stream; threads may share it."""

    stream: TextIO
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _tenth: int = -1
    _drawn: bool = False

    def at(self, done: int, total: int, text: str) -> None:
        """Draw the bar, or write a line when another tenth is done."""
        with self._lock:
            self._at(done, total, f"step {done}/{total}  {text}")

    def _at(self, done: int, total: int, line: str) -> None:
        if self.stream.isatty():
            filled = round(8 * WIDTH * done / max(total, 1))
            blocks = "█" * (filled // 8) + (BLOCKS[filled % 8] if filled % 8 else "")
            room = max(1, shutil.get_terminal_size().columns - WIDTH - 3)
            self.stream.write(f"\r\x1b[K{blocks:{WIDTH}}▏ {line[:room]}")
            self._drawn = True
        elif self._tenth < (tenth := 10 * done // max(total, 1)):
            self._tenth = tenth
            self.stream.write(line + "\n")
        self.stream.flush()

    def say(self, text: str) -> None:
        """Write one line; a bar is wiped first."""
        with self._lock:
            self.close()
            say(text)

    def close(self) -> None:
        """Wipe the bar."""
        with self._lock:
            if self._drawn:
                self.stream.write("\r\x1b[K")
                self.stream.flush()
                self._drawn = False


@dataclass
class Piped:
    """Hands progress to the launcher."""

    stream: TextIO = field(repr=False)

    def at(self, done: int, total: int, text: str) -> None:
        """Hand on how far the run is."""
        self._send({"done": done, "total": total, "text": text})

    def say(self, text: str) -> None:
        """Hand on a line."""
        self._send({"say": text})

    def _send(self, message: dict[str, object]) -> None:
        try:
            self.stream.write(json.dumps(message) + "\n")
            self.stream.flush()
        except BrokenPipeError:  # the launcher is gone; its watcher ends this rank
            return


def of_rank(rank: int, pipe: int | None) -> Progress:
    """The progress of a rank; ``pipe`` is the launcher's file descriptor, if there is one."""
    if rank:
        return Silent()
    return Bar(sys.stderr) if pipe is None else Piped(os.fdopen(pipe, "w", encoding="utf-8"))


def show(lines: Iterable[str], bar: Bar) -> None:
    """Draw what rank 0 hands on until it ends."""
    for line in lines:
        message = json.loads(line)
        if "say" in message:
            bar.say(message["say"])
        else:
            bar.at(message["done"], message["total"], message["text"])
    bar.close()
