"""Split a trace's JSON text into header pairs and bounded pieces of its event array."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from tracekit.core.errors import Note, ReadError
from tracekit.io.boundaries import (
    MAX_DEPTH,
    NotAnObjectError,
    Pairs,
    TooDeepError,
    array_ends,
    likely_cuts,
    skip,
    sound_objects,
    sure_cut,
    walk_pairs,
)
from tracekit.io.repair import mend

T = TypeVar("T")
PIECE_BYTES = 6 << 20
#: a single event, or the header before the array, larger than this is refused
MAX_UNIT_BYTES = 64 << 20

_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_HEADERS = (b'"schemaVersion"', b'"traceEvents"')
#: what may follow a document: space, and the zero bytes of a file whose blocks were never written
_BLANK = b" \t\r\n\0"
#: what decoding a sound or damaged piece may raise; a ValidationError is a DecodeError
_FAULTS = (msgspec.DecodeError, RecursionError)


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
        Turns the text of one JSON value of any shape into an event, or None.

    Attributes
    ----------
    pairs : list of (str, object)
        Top-level keys but ``traceEvents``, in file order, repeated keys included. Complete once
        `events` is exhausted.
    counts : Counter
        Faults mended, by kind (`tracekit.io.repair.WORDS`).
    bare : bool
        Whether the text is the event array alone.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        label: str,
        decode: Callable[[bytes], list[T]],
        lenient: Callable[[bytes, Counter[str]], T | None],
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
        self.bare = False

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

    def _double(self) -> bool:
        """Read on to twice as much, so that looking at all of it again costs little in sum."""
        before = len(self._buffer)
        while len(self._buffer) <= 2 * before and self._more():
            pass
        return len(self._buffer) > before

    def _offset(self) -> int:
        """Byte of the file at which the buffer starts."""
        return self.read_bytes - len(self._buffer)

    @contextmanager
    def _not_too_deep(self) -> Iterator[None]:
        """Refuse what is nested without end."""
        try:
            yield
        except TooDeepError as e:
            raise ReadError(
                f"brackets are nested more than {MAX_DEPTH:,} deep near byte {self._offset():,}",
                where=self._label,
                hint="this is not a trace, or it is damaged",
            ) from e

    # -- the header ---------------------------------------------------------------------------

    def open(self) -> bool:
        """Read up to the event array; False when the text holds no ``traceEvents``.

        Raises
        ------
        ReadError
            When the text is not JSON.
        """
        with self._not_too_deep():
            return self._open()

    def _open(self) -> bool:
        while len(self._buffer) < 3 and self._more():
            pass
        if self._buffer[:3] == b"\xef\xbb\xbf":
            self._buffer = self._buffer[3:]
        self._buffer = self._buffer.lstrip()
        while not self._buffer and self._more():
            self._buffer = self._buffer.lstrip()
        if self._buffer[:1] == b"[":
            self._buffer = self._buffer[1:]
            self.bare = True
            return True
        if self._buffer[:1] != b"{":
            return False
        return self._open_object()

    def _open_object(self) -> bool:
        while True:
            pairs: Pairs = []
            try:
                at, found = walk_pairs(self._buffer, 1, pairs)
            except NotAnObjectError as e:
                if len(self._buffer) < MAX_UNIT_BYTES and self._double():
                    continue
                self._refuse_header(int(e.args[0]))
            self._keep(pairs)
            self._buffer = self._buffer[at:]
            return found

    def _refuse_header(self, at: int) -> None:
        two = any(self._buffer.count(key) > 1 for key in _HEADERS)
        why = "two headers found" if two else "the header breaks off or is damaged"
        raise ReadError(
            f"not valid JSON at byte {at:,}: {why}",
            where=self._label,
            hint="was one path used by several ranks?" if two else "copy or record it again",
        )

    def _keep(self, pairs: Pairs) -> None:
        """Decode top-level pairs."""
        self.pairs += [(str(self._value(key)), self._value(value)) for key, value in pairs]

    def _value(self, text: bytes) -> Any:
        try:
            return msgspec.json.decode(text)
        except _FAULTS:
            try:
                return msgspec.json.decode(mend(text, self.counts))
            except _FAULTS:
                self.counts["unreadable-header"] += 1
                return None

    # -- the events ---------------------------------------------------------------------------

    def events(self) -> Iterator[list[T]]:
        """Yield the events in lists of bounded size, then read the tail into `pairs`."""
        done = False
        while not done:
            while len(self._buffer) < PIECE_BYTES and self._more():
                pass
            self._buffer = self._buffer[skip(self._buffer, 0) :]
            with self._not_too_deep():
                piece, done = self._last_piece() if self._ended else self._next_piece()
            self._num_events += len(piece)
            yield piece

    def _next_piece(self) -> tuple[list[T], bool]:
        """Decode up to the last event boundary of the buffer; True when the array ended."""
        for cut in likely_cuts(self._buffer):
            taken = self._take(*cut, sure=False)
            if taken is not None:
                return taken
        sure = sure_cut(self._buffer)
        taken = self._take(*sure, sure=True) if sure else None
        if taken is not None:
            return taken
        self._grow()
        return [], False

    def _take(self, end: int, following: int, *, sure: bool) -> tuple[list[T], bool] | None:
        """Decode the buffer up to an event boundary; None when it proves to be none."""
        try:
            events = self._items(self._buffer[:end])
        except _FAULTS as e:
            if trailing := _TRAILING.search(str(e)):
                return self._close(int(trailing.group(1))), True
            if "truncated" in str(e) and not sure:  # a boundary in arguments
                return None
            events = self._salvage(self._buffer[:end], e)
        self._buffer = self._buffer[following:]
        return events, False

    def _grow(self) -> None:
        """Read on when the buffer holds no whole event."""
        if len(self._buffer) >= MAX_UNIT_BYTES:
            raise ReadError(
                f"one event is larger than {MAX_UNIT_BYTES >> 20} MiB",
                where=self._label,
                hint="this is not a trace, or it is damaged",
            )
        self._double()

    def _last_piece(self) -> tuple[list[T], bool]:
        """Decode what is left once the text has ended."""
        try:
            return self._to_the_end(), True
        except _FAULTS as e:
            return self._last_damaged(e), True

    def _to_the_end(self) -> list[T]:
        """Decode what is left when it is sound up to the end of the array."""
        try:
            events = self._items(self._buffer, closed=True)
        except _FAULTS as e:
            if trailing := _TRAILING.search(str(e)):
                return self._close(int(trailing.group(1)))
            raise
        if not self.bare:  # the array ended with the text, its object did not
            self._cut_short(len(events))
        return events

    def _last_damaged(self, fault: Exception) -> list[T]:
        """The text ends inside the array, or its last piece is damaged."""
        body, trial = self._buffer, Counter[str]()
        self._buffer = mend(body, trial)
        end: int | None = None
        try:
            events = self._to_the_end()
        except _FAULTS as e:
            self._buffer = body
            # a cut inside arguments can look like the end of a file: }]}
            end = None if "truncated" in str(e) else self._array_end(body)
        else:
            self._note_place(fault, self.read_bytes - len(body))
            self.counts.update(trial)
            return events
        events = self._salvage(body[:end], fault, cut=end is None)
        if end is None:
            self._cut_short(len(events))
        else:
            self._buffer = body[end:]
            self._tail(len(events))
        return events

    def _array_end(self, body: bytes) -> int | None:
        """Where the array ends: where only top-level keys follow; None where it does not."""
        budget = 8 * len(body)  # of bytes looked at: hostile text has many likely ends
        for at in array_ends(body):
            after = at + 1
            try:
                if not self.bare:
                    after, second = walk_pairs(body, after, [])
                    if second:
                        return None
                if not body[after : after + 64].strip(_BLANK) and not body[after:].strip(_BLANK):
                    return at
            except NotAnObjectError:
                after = len(body)
            budget -= after - at
            if budget < 0:
                return None
        return None

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
        events = self._items(body) if body.strip() else []
        self._buffer = self._buffer[end:]
        self._tail(len(events))
        return events

    def _tail(self, num_last: int) -> None:
        """Read the keys behind the array; the buffer starts at its closing bracket."""
        while not self._ended:
            if len(self._buffer) > MAX_UNIT_BYTES * 4:
                raise ReadError("more than 256 MiB follow the events", where=self._label)
            self._more()
        if self.bare:
            self._behind(self._buffer[1:])
            return
        pairs: Pairs = []
        try:
            at, second = walk_pairs(self._buffer, 1, pairs)
        except NotAnObjectError:
            if any(key in self._buffer for key in _HEADERS):
                self._second_document()
            self._cut_short(num_last)
        else:
            if second:
                self._second_document()
            self._behind(self._buffer[at:])
        self._keep(pairs)

    def _behind(self, rest: bytes) -> None:
        """What stands behind the document: nothing, another document, or rubbish."""
        rest = rest.strip(_BLANK)
        if rest[:1] in (b"{", b"[") or any(key in rest for key in _HEADERS):
            self._second_document()
        self.counts["unreadable-header"] += bool(rest)

    def _second_document(self) -> None:
        raise ReadError(
            f"a second document follows the events, near byte {self._offset():,}",
            where=self._label,
            hint="was one path used by several ranks?",
        )

    # -- odd and damaged pieces ---------------------------------------------------------------

    def _items(self, text: bytes, *, closed: bool = False) -> list[T]:
        """The events of a piece that is valid JSON, whatever the types of their fields.

        Raises
        ------
        msgspec.DecodeError, RecursionError
            When it is no valid JSON, or not up to its end.
        """
        whole = b"[" + text if closed else b"[" + text + b"]"
        try:
            return self._decode(whole)
        except msgspec.ValidationError:
            items = msgspec.json.decode(whole, type=list[msgspec.Raw])
        return self._one_by_one([bytes(item) for item in items])

    def _one_by_one(self, items: list[bytes]) -> list[T]:
        made = [self._one(item) for item in items]
        return [event for event in made if event is not None]

    def _one(self, item: bytes) -> T | None:
        for mended in (False, True):
            try:
                event = self._lenient(mend(item, self.counts) if mended else item, self.counts)
            except _FAULTS:
                continue
            if event is not None:
                return event
            break
        self.counts["unreadable-event"] += 1
        return None

    def _salvage(self, text: bytes, fault: Exception, *, cut: bool = False) -> list[T]:
        """Mend a damaged piece; what cannot be mended is dropped event by event."""
        if any(key in text for key in _HEADERS):
            self._two_headers(text)
        if not cut:
            self._note_place(fault, self._offset())
        trial: Counter[str] = Counter()
        try:
            events = self._items(mend(text, trial).rstrip().rstrip(b","))
        except _FAULTS:
            objects, num_bad, num_behind = sound_objects(text, self._sound)
        else:
            self.counts.update(trial)
            return events
        # what a cut file ends with is not damage
        self.counts["unreadable-event"] += num_bad + (0 if cut else num_behind)
        try:
            return self._items(b",".join(objects))
        except RecursionError:  # one is nested as deep as can be, and one level more in a list
            return self._one_by_one(objects)

    def _note_place(self, fault: Exception, start: int) -> None:
        """Remember where the first damage lies, in a piece that starts at byte ``start``."""
        if self._first_fault < 0:
            at = _AT_BYTE.search(str(fault))
            self._first_fault = start + (int(at.group(1)) - 2 if at else 0)

    def _sound(self, item: bytes) -> bytes | None:
        """An object as valid JSON, mended if need be; None where that does not help."""
        trial: Counter[str] = Counter()
        for mended in (False, True):
            text = mend(item, trial) if mended else item
            try:
                msgspec.json.decode(text)
            except _FAULTS:
                continue
            self.counts.update(trial)
            return text
        return None

    def _two_headers(self, text: bytes) -> None:
        at = self._offset() + max(text.find(key) for key in _HEADERS)
        raise ReadError(
            f"not valid JSON near byte {at:,}: two headers found",
            where=self._label,
            hint="was one path used by several ranks?",
        )

    @property
    def first_fault(self) -> int:
        """Byte of the first damage met, -1 for none."""
        return self._first_fault
