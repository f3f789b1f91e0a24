"""Split a trace's JSON text into header pairs and bounded pieces of its event array."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from tracekit.core.errors import Note, ReadError
from tracekit.io.repair import mend

T = TypeVar("T")
#: small enough that the structs of one piece stay in the cache while columns are made of them
PIECE_BYTES = 2 << 20
#: a single event, or the header before the array, larger than this is refused
MAX_UNIT_BYTES = 64 << 20
#: how many false boundaries (objects inside arguments) are tried before a piece counts as damaged
MAX_CUTS = 16

_EVENT_KEY = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|bp|args|s|cname|sf|tts)"\s*:'
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{\s*" + _EVENT_KEY + rb")")
_ANY_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_EVENT_START = re.compile(rb"\{\s*" + _EVENT_KEY)
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_SPACE = re.compile(rb"[\s,]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]|"', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\]\s]+")


class NotAnObjectError(Exception):
    """The text ended or broke before the wanted place; holds the byte reached."""


class TraceText(Generic[T]):
    """One pass over the JSON text of a trace.

    Parameters
    ----------
    blocks : iterator of bytes
        The unpacked text.
    label : str
        File name for messages.
    decode : callable
        Decodes ``[event, …]`` to a list, raising ``msgspec.DecodeError`` or ``ValidationError``.
    lenient : callable
        Turns one decoded JSON object of any shape into an event, or None.

    Attributes
    ----------
    pairs : list of (str, object)
        Top-level keys but ``traceEvents``, in file order, repeated keys included. Complete once
        `events` is exhausted.
    counts : Counter
        Faults mended, by kind (`tracekit.io.repair.WORDS`).
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        label: str,
        decode: Callable[[bytes], list[T]],
        lenient: Callable[[Any, Counter[str]], T | None],
    ) -> None:
        self.pairs: list[tuple[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.notes: list[Note] = []
        self.recovered: int | None = None  # events read from a file that was cut short
        self.read_bytes = 0
        self._blocks, self._label = blocks, label
        self._decode, self._lenient = decode, lenient
        self._buffer = b""
        self._ended = False
        self._num_events = 0
        self._first_fault = -1
        self._bare = False

    # -- reading on ---------------------------------------------------------------------------

    def _more(self) -> bool:
        """Append one block to the buffer; False at the end of the text."""
        block = next(self._blocks, None)
        if block is None:
            self._ended = True
            return False
        self.read_bytes += len(block)
        self._buffer += block
        return True

    def _offset(self) -> int:
        """Byte of the file at which the buffer starts."""
        return self.read_bytes - len(self._buffer)

    # -- the header ---------------------------------------------------------------------------

    def open(self) -> bool:
        """Read up to the event array; False when the text holds no ``traceEvents``.

        Raises
        ------
        ReadError
            When the text is not JSON.
        """
        self._more()
        if self._buffer[:3] == b"\xef\xbb\xbf":
            self._buffer = self._buffer[3:]
        self._buffer = self._buffer.lstrip()
        while not self._buffer and self._more():
            self._buffer = self._buffer.lstrip()
        if self._buffer[:1] == b"[":
            self._buffer = self._buffer[1:]
            self._bare = True
            return True
        if self._buffer[:1] != b"{":
            return False
        return self._open_object()

    def _open_object(self) -> bool:
        while True:
            try:
                at, found = self._walk_pairs(1)
            except NotAnObjectError as e:
                if len(self._buffer) < MAX_UNIT_BYTES and self._more():
                    continue
                self._refuse_header(int(e.args[0]))
            self._buffer = self._buffer[at:]
            return found

    def _refuse_header(self, at: int) -> None:
        two = self._buffer.count(b'"schemaVersion"') > 1 or self._buffer.count(b'"traceEvents"') > 1
        why = "two headers found" if two else "the header breaks off or is damaged"
        raise ReadError(
            f"not valid JSON at byte {at:,}: {why}",
            where=self._label,
            hint="was one path used by several ranks?" if two else "copy or record it again",
        )

    def _walk_pairs(self, at: int) -> tuple[int, bool]:
        """Collect top-level pairs from byte ``at``; stop after ``"traceEvents": [`` or ``}``."""
        pairs: list[tuple[str, Any]] = []
        buffer = self._buffer
        while True:
            at = _skip(buffer, at)
            if buffer[at : at + 1] == b"}":
                self.pairs += pairs
                return at + 1, False
            key = _STRING.match(buffer, at)
            if not key:
                raise NotAnObjectError(at)
            colon = _skip(buffer, key.end())
            if buffer[colon : colon + 1] != b":":
                raise NotAnObjectError(colon)
            start = _skip(buffer, colon + 1)
            if key.group() == b'"traceEvents"' and buffer[start : start + 1] == b"[":
                self.pairs += pairs
                return start + 1, True
            end = _value_end(buffer, start)
            pairs.append((self._text(key.group()), self._value(buffer[start:end])))
            at = end

    def _text(self, literal: bytes) -> str:
        return str(self._value(literal))

    def _value(self, text: bytes) -> Any:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            try:
                return msgspec.json.decode(mend(text, self.counts))
            except (msgspec.DecodeError, RecursionError):
                self.counts["unreadable-header"] += 1
                return None

    # -- the events ---------------------------------------------------------------------------

    def events(self) -> Iterator[list[T]]:
        """Yield the events in lists of bounded size, then read the tail into `pairs`."""
        while True:
            while len(self._buffer) < PIECE_BYTES and self._more():
                pass
            self._buffer = self._buffer[_skip(self._buffer, 0) :]
            if self._ended:
                last = self._last_piece()
                self._num_events += len(last)
                yield last
                return
            piece, done = self._next_piece()
            self._num_events += len(piece)
            yield piece
            if done:
                return

    def _next_piece(self) -> tuple[list[T], bool]:
        """Decode up to the last event boundary of the buffer; True when the array ended."""
        fault: msgspec.DecodeError | None = None
        cuts = _cuts(self._buffer)
        for end, following in cuts:
            try:
                events = self._decode(b"".join((b"[", memoryview(self._buffer)[:end], b"]")))
            except msgspec.ValidationError:
                events = self._decode_loosely(self._buffer[:end])
            except msgspec.DecodeError as e:
                if trailing := _TRAILING.search(str(e)):
                    return self._close(int(trailing.group(1))), True
                fault = fault or e
                if "truncated" in str(e):
                    continue
                break
            self._buffer = self._buffer[following:]
            return events, False
        if not cuts and len(self._buffer) < MAX_UNIT_BYTES:
            self._more()
            return [], False
        if not cuts:
            raise ReadError(
                f"one event is larger than {MAX_UNIT_BYTES >> 20} MiB",
                where=self._label,
                hint="this is not a trace, or it is damaged",
            )
        end, following = cuts[0]
        events = self._salvage(self._buffer[:end], fault)
        self._buffer = self._buffer[following:]
        return events, False

    def _last_piece(self) -> list[T]:
        """Decode what is left once the text has ended."""
        text = b"[" + self._buffer
        try:
            events = self._decode(text)
            self._buffer = b""
            return self._ended_bare(events)
        except msgspec.ValidationError:
            return self._last_loosely()
        except msgspec.DecodeError as e:
            if trailing := _TRAILING.search(str(e)):
                return self._close(int(trailing.group(1)))
            return self._last_damaged(e)

    def _last_loosely(self) -> list[T]:
        """The last piece when its events have odd types: find the array's end without types."""
        text = b"[" + self._buffer
        try:
            msgspec.json.decode(text, type=list[msgspec.Raw])
            end = len(self._buffer)
        except msgspec.DecodeError as e:
            trailing = _TRAILING.search(str(e))
            if not trailing:
                return self._last_damaged(e)
            return self._close(int(trailing.group(1)))
        events = self._decode_loosely(self._buffer[:end].rstrip().removesuffix(b"]"))
        return self._ended_bare(events)

    def _ended_bare(self, events: list[T]) -> list[T]:
        """The array ended with the text: right for a bare array, a cut file otherwise."""
        if not self._bare:
            self._cut_short(len(events))
        return events

    def _last_damaged(self, fault: msgspec.DecodeError) -> list[T]:
        """The text ends inside the array, or its last piece is damaged."""
        body, end = self._buffer, len(self._buffer)
        closing = re.search(rb"\}\s*\]\s*(?:\}\s*$|,\s*\"[^\"]+\"\s*:|$)", body)
        if closing:
            end = closing.start() + 1
        events = self._salvage(body[:end], fault, cut=closing is None)
        if closing:
            self._buffer = body[body.index(b"]", end) :]
            self._tail()
        else:
            self._cut_short(len(events))
        return events

    def _cut_short(self, num_last: int) -> None:
        self.recovered = self._num_events + num_last
        text = (
            f"the file is cut short after {self.recovered:,} whole events "
            f"(it ends at byte {self.read_bytes:,}); what was read is shown"
        )
        self.notes.append(Note("truncated", text, "warning", self._label))

    def _close(self, byte: int) -> list[T]:
        """The array ends within the buffer, before ``byte`` of ``[`` + buffer."""
        end = self._buffer.rfind(b"]", 0, byte - 2)
        body = self._buffer[:end]
        try:
            events = self._decode(b"[" + body + b"]") if body.strip() else []
        except msgspec.ValidationError:
            events = self._decode_loosely(body)
        self._buffer = self._buffer[end:]
        self._tail()
        return events

    def _tail(self) -> None:
        """Read the keys behind the array; the buffer starts at its closing bracket."""
        while not self._ended:
            if len(self._buffer) > MAX_UNIT_BYTES * 4:
                raise ReadError("more than 256 MiB follow the events", where=self._label)
            self._more()
        if self._bare:
            rest = self._buffer[1:].strip()
            if rest:
                self._second_document()
            return
        try:
            at, second = self._walk_pairs(1)
        except NotAnObjectError as e:
            if self._buffer[int(e.args[0]) :].strip():
                self._second_document()
            else:
                self.counts["unclosed-object"] += 1
            return
        if second or self._buffer[at:].strip():
            self._second_document()

    def _second_document(self) -> None:
        raise ReadError(
            f"a second document follows the events, near byte {self._offset():,}",
            where=self._label,
            hint="was one path used by several ranks?",
        )

    # -- damaged pieces -----------------------------------------------------------------------

    def _decode_loosely(self, text: bytes) -> list[T]:
        """Decode a sound piece whose events have fields of unexpected types."""
        made = (self._one(item) for item in msgspec.json.decode(b"[" + text + b"]"))
        return [event for event in made if event is not None]

    def _one(self, item: Any) -> T | None:
        event = self._lenient(item, self.counts)
        if event is None:
            self.counts["unreadable-event"] += 1
        return event

    def _salvage(
        self, text: bytes, fault: msgspec.DecodeError | None, *, cut: bool = False
    ) -> list[T]:
        """Mend a damaged piece; what cannot be mended is dropped event by event."""
        if b'"traceEvents"' in text or b'"schemaVersion"' in text:
            self._two_headers(text)
        if fault is not None and self._first_fault < 0 and not cut:
            at = _AT_BYTE.search(str(fault))
            self._first_fault = self._offset() + (int(at.group(1)) - 2 if at else 0)
        mended = mend(text, self.counts)
        try:
            return self._decode_loosely(mended.rstrip().rstrip(b","))
        except (msgspec.DecodeError, RecursionError):
            return self._piecewise(mended, cut)

    def _two_headers(self, text: bytes) -> None:
        at = self._offset() + max(text.find(b'"traceEvents"'), text.find(b'"schemaVersion"'))
        raise ReadError(
            f"not valid JSON near byte {at:,}: two headers found",
            where=self._label,
            hint="was one path used by several ranks?",
        )

    def _piecewise(self, text: bytes, cut: bool) -> list[T]:
        """Decode event by event, joining parts that were cut inside arguments."""
        starts = [m.start() for m in _EVENT_START.finditer(text)] + [len(text)]
        out: list[T] = []
        i = 0
        while i < len(starts) - 1:
            for j in range(i + 1, min(i + 6, len(starts))):
                part = text[starts[i] : starts[j]].rstrip().rstrip(b",]").rstrip()
                try:
                    item = msgspec.json.decode(part)
                except (msgspec.DecodeError, RecursionError):
                    continue
                event = self._one(item)
                if event is not None:
                    out.append(event)
                i = j
                break
            else:
                i += 1
                # the part that a cut file ends with is not damage
                if not (cut and i == len(starts) - 1):
                    self.counts["unreadable-event"] += 1
        return out

    @property
    def first_fault(self) -> int:
        """Byte of the first damage met, -1 for none."""
        return self._first_fault


def _skip(buffer: bytes, at: int) -> int:
    """The first byte at or after ``at`` that is neither space nor comma."""
    match = _SPACE.match(buffer, at)
    return match.end() if match else at


def _value_end(buffer: bytes, start: int) -> int:
    """End of the JSON value at ``start``, however damaged its inside."""
    first = buffer[start : start + 1]
    if first == b'"':
        text = _STRING.match(buffer, start)
        if not text:
            raise NotAnObjectError(start)
        return text.end()
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(buffer, start)
        if not scalar or scalar.end() == len(buffer):
            raise NotAnObjectError(start)
        return scalar.end()
    depth = 0
    for token in _STRUCTURE.finditer(buffer, start):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return token.end()
        elif mark == b'"':
            break
    raise NotAnObjectError(start)


def _cuts(buffer: bytes) -> list[tuple[int, int]]:
    """Likely event boundaries, last first: (end of an event, start of the next)."""
    for pattern in (_BOUNDARY, _ANY_BOUNDARY):
        for window in (1 << 16, 1 << 20, len(buffer)):
            low = max(0, len(buffer) - window)
            found = [(m.start() + 1, m.end()) for m in pattern.finditer(buffer, low)]
            if found:
                return found[: -MAX_CUTS - 1 : -1]
    return []
