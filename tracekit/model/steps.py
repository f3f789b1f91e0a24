"""Training steps: where their annotations lie, and which work belongs to which."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracekit.core.intervals import union
from tracekit.model.links import Ints, innermost
from tracekit.model.trace import ANNOTATION, OPERATOR, OTHER, Trace
from tracekit.model.work import Work


@dataclass(slots=True)
class Spans:
    """Host spans that work can belong to, in order of start.

    Attributes
    ----------
    label : list
        Step number or phase name of each span.
    start, end : ndarray of int64, shape (num_spans,), ns
    """

    label: list[Any]
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.label)


def steps_of(trace: Trace) -> Spans:
    """The ``ProfilerStep#N`` annotations of a rank.

    A step's border is its own start and duration; crossing children do not move it. Device-side
    copies of the annotation are not steps.
    """
    pattern = trace.names.host["step"]
    rows = _annotations(trace, pattern)
    numbers = [_number(pattern, trace.table.names[i]) for i in trace.table["name"][rows]]
    start = trace.table["start_ns"][rows]
    return Spans(numbers, start, start + trace.table["dur_ns"][rows])


def phases_of(trace: Trace) -> Spans:
    """Annotations that mark a phase (forward, backward, optimizer), inner ones after outer.

    Marks of one phase that overlap are one span: an optimizer's own mark lies inside the loop's.
    """
    found: list[tuple[int, int, str]] = []
    for phase, pattern in trace.names.phases.items():
        rows = _annotations(trace, pattern)
        begin = trace.table["start_ns"][rows]
        start, end = union(begin, begin + trace.table["dur_ns"][rows])
        found += zip(start.tolist(), end.tolist(), [phase] * len(start), strict=True)
    found.sort(key=lambda f: (f[0], -f[1]))
    return Spans(
        [f[2] for f in found],
        np.array([f[0] for f in found], dtype=np.int64),
        np.array([f[1] for f in found], dtype=np.int64),
    )


def _annotations(trace: Trace, pattern: re.Pattern[str]) -> Ints:
    hits = trace.name_matches(pattern) & trace.sound
    kinds = np.isin(trace.kind, (ANNOTATION, OPERATOR) if trace.has_cats else (OTHER,))
    rows = np.flatnonzero(hits & kinds)
    return rows[np.argsort(trace.table["start_ns"][rows], kind="stable")]


def _number(pattern: re.Pattern[str], name: str) -> int:
    found = pattern.search(name)
    number = found[1] if found and found.groups() and found[1] else ""
    return int(number) if number.isdecimal() and len(number) < 19 else -1


def membership(work: Work, spans: Spans) -> NDArray[np.int64]:
    """Index of the span each piece of work belongs to, -1 for none.

    A device event belongs to the span that holds the start of its launch; host work to the span
    that holds its own start.
    """
    return innermost(spans.start, spans.end, work.at)
