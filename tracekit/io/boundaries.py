"""Find where values, events and the event array end in JSON text that may be damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import msgspec

#: how many likely boundaries are tried before the text is scanned token by token
MAX_CUTS = 16

_EVENT_KEY = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|bp|args|s|cname|sf|tts)"\s*:'
#: most telling first: profilers begin an event with its phase, which objects in arguments lack
_BOUNDARIES = (
    re.compile(rb'\}\s*,\s*(?=\{\s*"ph"\s*:)'),
    re.compile(rb"\}\s*,\s*(?=\{\s*" + _EVENT_KEY + rb")"),
    re.compile(rb"\}\s*,\s*(?=\{)"),
)
#: not behind a colon: the arguments of an event are no event
_EVENT_START = re.compile(rb"(?<!:)(?<!: )\{\s*" + _EVENT_KEY)
_ARRAY_END = re.compile(rb'\}\s*,?\s*(\])\s*(?=\}|,\s*"|\Z)')
_SPACE = re.compile(rb"[\s,]*")
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]|"', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\]\s]+")


class NotAnObjectError(Exception):
    """The text ended or broke before the wanted place; holds the byte reached."""


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
        literal = STRING.match(text, start)
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


def _depths(text: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Each bracket outside strings from ``start`` on: where it ends, how deep it leaves us."""
    depth = 0
    for token in _STRUCTURE.finditer(text, start):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        elif mark == b'"':  # a string that does not end here
            return
        else:
            continue
        yield token.end(), depth


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


def sound_objects(text: bytes) -> tuple[list[bytes], int]:
    """The objects of a damaged list of events that are valid JSON, and how many are not."""
    starts = [m.start() for m in _EVENT_START.finditer(text)]
    found: list[bytes] = []
    num_bad = after = 0
    for start, following in pairwise((*starts, len(text))):
        if start < after:  # inside an object that was taken whole
            continue
        part = _sound(text[start:following].rstrip().rstrip(b",]").rstrip())
        if part is None:
            try:
                following = value_end(text, start)  # noqa: PLW2901 - its arguments hold objects
                part = _sound(text[start:following])
            except NotAnObjectError:
                pass
        if part is None:
            num_bad += 1
        else:
            found.append(part)
            after = following
    return found, num_bad


def _sound(part: bytes) -> bytes | None:
    try:
        msgspec.json.decode(part)
    except (msgspec.DecodeError, RecursionError):
        return None
    return part
