"""A process of its own that opens runs and condenses them, so that the server never waits.

It reads questions from standard input, one JSON object a line, and writes to standard output lines
that begin with ``P`` (progress: what, fraction) and one that begins with ``A`` or ``E`` and a
length, after which the answer, or an error's line, follows.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from dashboards.digest import SMALL, Columns, columns, packed
from tracekit.core.errors import TracekitError, UsageError, one_line

#: open runs kept by one process
KEPT_RUNS = 3
#: names per rank and role that the pages can show
TOP_NAMES = 300
#: progress is told this often at most
TELL_EVERY_S = 0.1
#: imported before the first question comes
_SLOW = ("tracekit.report.document", "tracekit.analysis.profiles", "tracekit.plot.timeline")
_CAPTURES = re.compile(r"pick one of (\d+) captures")


@dataclass(slots=True)
class Question:
    """What to find out of which run."""

    kind: str
    path: str
    signature: str
    steps: tuple[int, int] | None = None
    capture: int | None = None
    more: str = ""

    def line(self) -> bytes:
        """The question as one line."""
        held = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(held).encode() + b"\n"


def question(line: bytes) -> Question:
    """The question that a line holds."""
    held = json.loads(line)
    held["steps"] = tuple(held["steps"]) if held["steps"] else None
    return Question(**held)


# -- answers --------------------------------------------------------------------------------------

Tell = Callable[[str, float], None]


@dataclass(slots=True)
class Opened:
    """A run that stays open."""

    run: Any
    capture: int
    captures: int
    timeline: Any = None


class Answers:
    """Answers questions, and keeps the runs it last opened."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, int | None], Opened] = {}

    def answer(self, asked: Question, tell: Tell) -> bytes:
        """The answer to a question.

        Raises
        ------
        TracekitError
            When the run cannot be opened, or has no such steps.
        """
        opened = self._opened(asked, tell)
        tell("analysing", 0.9)
        made: Callable[[Opened, Question], bytes] = _KINDS[asked.kind]
        return made(opened, asked)

    def _opened(self, asked: Question, tell: Tell) -> Opened:
        key = asked.path, asked.signature, asked.capture
        if key not in self._open:
            opened = open_capture(asked.path, asked.capture, tell)
            while len(self._open) >= KEPT_RUNS:
                del self._open[next(iter(self._open))]
            self._open[key] = opened
        else:
            self._open[key] = self._open.pop(key)
        return self._open[key]


def open_capture(path: str, capture: int | None, tell: Tell) -> Opened:
    """Open a run; of several recordings of the same ranks the last one, unless one is asked for."""
    from tracekit.model.files import OpenOptions
    from tracekit.model.run import open_run

    def opened(which: int | None) -> Any:
        reading = lambda what, fraction: tell(f"reading {what}", 0.85 * fraction)  # noqa: E731
        return open_run([path], options=OpenOptions(capture=which, progress=reading))

    try:
        return Opened(opened(None), 1, 1)
    except UsageError as e:
        several = _CAPTURES.search(e.hint)
        if several is None:
            raise
        most = int(several[1])
    if capture is not None and capture > most:
        raise UsageError(f"no capture {capture}", hint=f"there are {most}, counted from 1")
    which = capture or most
    return Opened(opened(which), which, most)


def _digest(opened: Opened, asked: Question) -> bytes:
    """Everything the pages show of the analysis."""
    from tracekit.analysis.rows import FIGURES
    from tracekit.report.document import document
    from tracekit.report.tables import Tables

    made = document(opened.run, steps=asked.steps)
    figures = (*(f"{name}_us" for name in FIGURES), "overlap_frac")
    numbers = ("rank", "step", *figures, "host_us", "lead_us", "period_us")
    facts = {
        "capture": opened.capture,
        "captures": opened.captures,
        "missing_steps": made["missing_steps"],
        "unmatched": sum(made["unmatched"].values()),
    }
    large = {"steps": columns(made["steps"], numbers), **_collectives(made["collectives"])}
    tables = Tables(opened.run, made)
    return packed({name: list(tables.rows(name)) for name in SMALL}, large, made["totals"], facts)


_NUMBERS = (
    "collective", "size", "bytes", "start_us", "transfer_us", "start_skew_us", "longest_wait_us",
    "longest_us", "last_rank", "algbw_GBps", "busbw_GBps", "complete", "edge",
)  # fmt: skip
_TEXTS = ("op", "label", "axis", "group", "desc", "ranks", "dtype", "match")


def _collectives(rows: list[dict[str, Any]]) -> dict[str, Columns]:
    """Collectives without their members; who waited for whom, summed; kinds with medians."""
    from tracekit.report import summary, words

    waits: dict[tuple[int, int], list[float]] = {}
    for number, row in enumerate(rows):
        row["collective"] = number
        row["label"] = summary.label(row) or "not known"
        row["longest_wait_us"] = summary.longest_wait_us(row)
        row["longest_us"] = summary.longest_us(row)
        row["ranks"] = words.number_list(row["ranks"])
        if row["last_rank"] is None or row["edge"]:
            continue
        for rank, wait_us in (row["wait_us"] or {}).items():
            if wait_us is not None:
                held = waits.setdefault((int(rank), row["last_rank"]), [0.0, 0])
                held[0] += wait_us
                held[1] += 1
    pairs = [
        {"rank": rank, "last_rank": last, "wait_us": wait, "count": count}
        for (rank, last), (wait, count) in sorted(waits.items())
    ]
    kinds = [
        {
            "op": kind.op or words.UNKNOWN_OPERATION,
            "label": kind.label or "not known",
            "bytes": kind.num_bytes,
            "count": kind.count,
            "wait_us": kind.wait_us,
            "transfer_us": kind.transfer_us,
            "busbw_GBps": kind.busbw_GBps,
            "total_us": kind.total_us,
            "is_bound": kind.is_bound,
        }
        for kind in summary.collectives(rows)
    ]
    told = ("bytes", "count", "wait_us", "transfer_us", "busbw_GBps", "total_us", "is_bound")
    return {
        "collectives": columns(rows, _NUMBERS, _TEXTS),
        "pairs": columns(pairs, ("rank", "last_rank", "wait_us", "count")),
        "kinds": columns(kinds, told, ("op", "label")),
    }


def _names(opened: Opened, asked: Question) -> bytes:
    """The names that take the time, of work and of host operators."""
    from tracekit.analysis.profiles import kernel_rows, operator_rows
    from tracekit.analysis.selection import part_of, selection

    chosen = selection(asked.steps, None)
    kernels: list[dict[str, Any]] = []
    operators: list[dict[str, Any]] = []
    for rank in opened.run.ranks:
        part = part_of(opened.run, rank, chosen)
        kernels += kernel_rows(part.trace, part.work)[: 3 * TOP_NAMES]
        operators += operator_rows(part.trace)[:TOP_NAMES]
    numbers = ("rank", "count", "total_us", "mean_us")
    large = {
        "kernels": columns(kernels, (*numbers, "min_us", "max_us", "known"), ("role", "name")),
        "operators": columns(operators, numbers, ("name",)),
    }
    return packed({}, large, {}, {})


def _timeline(opened: Opened, asked: Question) -> bytes:
    """What the timeline asked: bytes as they are behind a ``B``, anything else as JSON."""
    from tracekit.plot.timeline import Timeline

    if opened.timeline is None:
        opened.timeline = Timeline(opened.run)
    method, given = json.loads(asked.more)
    made = opened.timeline.answer(method, given)
    return b"B" + made if isinstance(made, bytes) else json.dumps(made, allow_nan=False).encode()


_KINDS: dict[str, Callable[[Opened, Question], bytes]] = {
    "digest": _digest,
    "names": _names,
    "timeline": _timeline,
}


# -- the process ----------------------------------------------------------------------------------


def serve() -> None:
    """Answer what arrives on standard input until it closes, even amid a question."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints does not disturb answers
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    for module in _SLOW:
        import_module(module)

    answers = Answers()
    while line := asked.get():
        _one(answers, question(line), sink)


def _listen(asked: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        asked.put(line)
    os._exit(0)  # whoever asked is gone; there is nothing half written anywhere


def _one(answers: Answers, asked: Question, sink: IO[bytes]) -> None:
    last = 0.0

    def tell(what: str, fraction: float) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY_S:
            last = time.monotonic()
            sink.write(b"P" + json.dumps([one_line(what, 80), fraction]).encode() + b"\n")
            sink.flush()

    try:
        mark, text = b"A", answers.answer(asked, tell)
    except TracekitError as e:
        mark, text = b"E", e.line().encode("utf-8", "replace")
    except OSError as e:
        mark, text = b"E", f"cannot be read ({e.strerror or e})".encode("utf-8", "replace")
    except MemoryError:
        mark, text = b"E", b"out of memory; give fewer ranks, or a machine with more"
    except Exception as e:  # noqa: BLE001  (the page says so, and the next question is answered)
        words = f"a defect of tracekit ({type(e).__name__}: {e}), please report it"
        mark, text = b"E", one_line(words).encode("utf-8", "replace")
    sink.write(mark + str(len(text)).encode() + b"\n" + text)
    sink.flush()
