"""Find where values, events and the event array end in JSON text that may be damaged."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise

#: keys and values of an object, as text
Pairs = list[tuple[bytes, bytes]]
#: how many likely boundaries are tried before the text is scanned token by token
MAX_CUTS = 16
#: how many objects that look like events may lie inside one event of a damaged piece
MAX_INSIDE = 1000
#: brackets inside brackets; decoding takes no more than a thousand, so these are no events
MAX_DEPTH = 50_000

_EVENT_KEY = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|bp|args|s|cname|sf|tts)"\s*:'
#: most telling first: profilers begin an event with its phase, which objects in arguments lack
_BOUNDARIES = (
    re.compile(rb'\}\s*,\s*(?=\{\s*"ph"\s*:)'),
    re.compile(rb"\}\s*,\s*(?=\{\s*" + _EVENT_KEY + rb")"),
    re.compile(rb"\}\s*,\s*(?=\{)"),
)
#: not behind a colon or bracket: the arguments of an event, and objects in them, are no event
_EVENT_START = re.compile(rb"(?<![:\[])(?<![:\[] )\{\s*" + _EVENT_KEY)
_ARRAY_END = re.compile(rb'\}\s*,?\s*(\])\s*(?=\}|,\s*"|\Z)')
_SPACE = re.compile(rb"[\s,]*")
#: possessive, so that a string of megabytes needs no memory to track back
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\]\s]+")


class NotAnObjectError(Exception):
    """The text ended or broke before the wanted place; holds the byte reached."""


class TooDeepError(Exception):
    """Brackets are nested deeper than `MAX_DEPTH`."""


def skip(text: bytes, at: int) -> int:
    """The first byte at or after ``at`` that is neither space nor comma."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def value_end(text: bytes, start: int) -> int:
    """End of the JSON value at ``start``, however damaged its inside.

    Raises
    ------
    NotAnObjectError
        When the text ends before the value does.
    """
    first = text[start : start + 1]
    if first == b'"':
        literal = _STRING.match(text, start)
        if not literal:
            raise NotAnObjectError(start)
        return literal.end()
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(text, start)
        if not scalar or scalar.end() == len(text):
            raise NotAnObjectError(start)
        return scalar.end()
    for end, depth in _depths(text, start):
        if depth == 0:
            return end
    raise NotAnObjectError(start)


def _depths(text: bytes, start: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Each bracket outside strings from ``start`` on: where it ends, how deep it leaves us.

    Raises
    ------
    TooDeepError
    """
    depth = 0
    for token in _STRUCTURE.finditer(text, start, len(text) if stop is None else stop):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
            if depth > MAX_DEPTH:  # at once: looking for the end takes minutes in a large file
                raise TooDeepError
        elif mark in (b"}", b"]"):
            depth -= 1
        elif mark == b'"':  # a string that does not end here
            return
        else:
            continue
        yield token.end(), depth


def walk_pairs(text: bytes, at: int, pairs: Pairs) -> tuple[int, bool]:
    """Collect an object's pairs from byte ``at``, up to ``"traceEvents": [`` or its end.

    Returns
    -------
    at : int
        Behind the bracket.
    found : bool
        Whether it is that of ``traceEvents``.

    Raises
    ------
    NotAnObjectError
        When the text ends before; ``pairs`` then has those that are whole.
    """
    while True:
        at = skip(text, at)
        if text[at : at + 1] == b"}":
            return at + 1, False
        key = _STRING.match(text, at)
        if not key:
            raise NotAnObjectError(at)
        colon = skip(text, key.end())
        if text[colon : colon + 1] != b":":
            raise NotAnObjectError(colon)
        start = skip(text, colon + 1)
        if key.group() == b'"traceEvents"' and text[start : start + 1] == b"[":
            return start + 1, True
        at = value_end(text, start)
        pairs.append((key.group(), text[start:at]))


def likely_cuts(text: bytes) -> list[tuple[int, int]]:
    """Likely event boundaries, last first: (end of an event, start of the next).

    Found by what events look like, so that objects inside arguments may be among them.
    """
    for pattern in _BOUNDARIES:
        for window in (1 << 16, 1 << 20, len(text)):
            low = max(0, len(text) - window)
            found = [(m.start() + 1, m.end()) for m in pattern.finditer(text, low)]
            if found:
                return found[: -MAX_CUTS - 1 : -1]
    return []


def sure_cut(text: bytes) -> tuple[int, int] | None:
    """The last event boundary, found token by token; None when the text holds no whole event."""
    ends = [end for end, depth in _depths(text, 0) if depth == 0]
    return (ends[-1], skip(text, ends[-1])) if ends else None


def array_ends(text: bytes) -> Iterator[int]:
    """Where the event array may end, first one first: places of ``]``."""
    for found in _ARRAY_END.finditer(text):
        yield found.start(1)


def sound_objects(
    text: bytes, sound: Callable[[bytes], bytes | None]
) -> tuple[list[bytes], int, int]:
    """The objects of a damaged list of events that are, or can be made, valid JSON.

    Parameters
    ----------
    text : bytes
    sound : callable
        Gives back the text of an object when it is valid JSON, mended if need be, else None.

    Returns
    -------
    objects : list of bytes
    num_bad, num_behind : int
        How many are not: among them, and behind the last of them.
    """
    starts = [m.start() for m in _EVENT_START.finditer(text)]
    found: list[bytes] = []
    bad: list[int] = []
    after = 0
    budget = 16 * len(text)  # of bytes looked at: each bad event may be scanned far beyond its end
    for start, following in pairwise((*starts, len(text))):
        if start < after:  # inside an object that was taken whole
            continue
        after = following
        part = sound(text[start:following].rstrip().rstrip(b",]").rstrip())
        if part is None and budget > 0:  # its arguments may hold objects
            after, looked = _object_end(text, start, starts)
            budget -= looked
            part = sound(text[start:after]) if after > 0 else None
        if part is None:
            bad.append(start)
            after = following
        else:
            found.append(part)
            last = start
    num_bad = sum(start < last for start in bad) if found else 0
    return found, num_bad, len(bad) - num_bad


def _object_end(text: bytes, start: int, starts: list[int]) -> tuple[int, int]:
    """Where the object at ``start`` ends (-1: nowhere near), and how many bytes were looked at."""
    far = starts[min(bisect_right(starts, start) + MAX_INSIDE, len(starts)) - 1]
    stop = len(text) if far == starts[-1] else far
    try:
        end = next((end for end, depth in _depths(text, start, stop) if depth == 0), -1)
    except TooDeepError:  # brackets in a broken text; the budget pays for having looked
        end = -1
    return end, (stop if end < 0 else end) - start
