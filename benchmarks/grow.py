"""Grows a real Kineto trace to a given size without changing what any of its events says.

Copies of the recorded window are laid end to end in time. Every copy gets its own ids (launch
correlation, External id, flow, sequence and collective numbers) and goes on counting the
ProfilerSteps, so that the result reads like one long capture. The text of an event is kept as the
profiler wrote it, white space and fractions included: only whole numbers are exchanged, and the
shift in time is a whole number of milliseconds, so no digit of a time stamp is ever rounded.
Memory is bounded by the source, not by what is written.

    python benchmarks/grow.py SRC OUT --mb 260 [--gzip]
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

# Ids that refer to each other must move by one and the same stride: a flow arrow carries the
# correlation of its launch, and a Python frame names its parent.
_FAMILIES = {
    "correlation": "link",
    "External id": "link",
    "id": "link",
    "Python id": "python",
    "Python parent id": "python",
    "Ev Idx": "index",
    "Record function id": "function",
    "Sequence number": "autograd",
    "Seq": "collective",
    "Comms Id": "comms",
}
# In these families 0 means "none" and has to stay.
_ZERO_IS_NONE = {"link", "function"}
_NUMBER = re.compile(
    r'(?<!\\)"(?P<key>ts|'
    + "|".join(map(re.escape, _FAMILIES))
    + r')"\s*:\s*(?P<whole>\d+)(?P<rest>(?:\.\d+)?)(?=\s*[,}\]])'
)
_STEP = re.compile(r'(?<!\\)"name"\s*:\s*"ProfilerStep#(?P<whole>\d+)')
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_FLOW_PHASES = {"s", "t", "f"}
_WORD_BITS = 64
_INT64_MAX = (1 << 63) - 1
_SEPARATOR = ",\n  "


@dataclass(slots=True)
class Template:
    """A trace cut into fixed text and the whole numbers that differ from copy to copy.

    Attributes
    ----------
    head, tail
        The document before the first and after the last event, verbatim.
    texts
        Fixed text between the numbers; one longer than `values`.
    kinds, values
        For each number its family (``"time"`` in µs, ``"step"``, or an id's) and source value.
    once
        Events written a single time: metadata, the profiler's own span and its markers.
    num_events
        Events in one copy, without `once`.
    start_us, end_us
        First start and last end of the copied events, whole µs, rounded outwards.
    """

    head: str
    tail: str
    texts: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    once: list[tuple[str, str]] = field(default_factory=list)
    num_events: int = 0
    start_us: int = 1 << 62
    end_us: int = 0

    @property
    def period_us(self) -> int:
        """Time from one copy's start to the next: the span, up to the next whole ms."""
        return ((self.end_us - self.start_us) // 1000 + 1) * 1000

    @property
    def copy_bytes(self) -> int:
        """Size of one copy in UTF-8 bytes."""
        return len(_encode(self.render({}))) + len(_SEPARATOR)

    @property
    def frame_bytes(self) -> int:
        """Size in bytes of all that is written once."""
        return len(_encode(self.head + self.tail)) + sum(len(_encode(t)) for _, t in self.once)

    def render(self, offsets: dict[str, int]) -> str:
        """One copy's events as text, each number raised by its family's offset."""
        mask = (1 << _WORD_BITS) - 1
        parts = [""] * (2 * len(self.values) + 1)
        parts[::2] = self.texts
        parts[1::2] = [
            str((value + offsets.get(kind, 0)) & mask)
            for kind, value in zip(self.kinds, self.values, strict=True)
        ]
        return "".join(parts)

    def strides(self, copies: int) -> dict[str, int]:
        """How far each family moves per copy, so that no two copies share an id."""
        strides = {"time": self.period_us}
        for kind in set(self.kinds) - {"time"}:
            own = [v for k, v in zip(self.kinds, self.values, strict=True) if k == kind]
            stride = max(own) - min(own) + 1
            # Hashed ids fill the whole word: next to each of them there is room for the copies.
            strides[kind] = stride if max(own) + copies * stride <= _INT64_MAX else 1
        return strides


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def read_text(path: Path) -> str:
    """Reads a plain or gzipped trace; bytes that are not UTF-8 survive a later write."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return raw.decode("utf-8", "surrogateescape")


def _events(text: str, begin: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yields (start, end, parsed event) of each event of the array that opens before `begin`."""
    decode = json.JSONDecoder(strict=False).raw_decode
    space = re.compile(r"[\s,]*")
    at = begin
    while True:
        at = space.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text
        if text.startswith("]", at):
            return
        event, end = decode(text, at)
        yield at, end, event
        at = end


def _is_once(event: dict[str, Any]) -> bool:
    marker = event.get("ph") == "i" and "cat" not in event
    return event.get("ph") == "M" or "ts" not in event or event.get("cat") == "Trace" or marker


def _numbers(text: str, event: dict[str, Any]) -> Iterator[tuple[int, int, str, int]]:
    """Yields (start, end, family, value) of the numbers to exchange in one event's text."""
    found_time = False
    for match in _NUMBER.finditer(text):
        key, value = match["key"], int(match["whole"])
        if key == "ts":
            if found_time or float(match["whole"] + match["rest"]) != float(event["ts"]):
                continue
            found_time = True
        if key == "id" and (event.get("ph") not in _FLOW_PHASES or event.get("id") != value):
            continue
        kind = _FAMILIES.get(key, "time")
        if value == 0 and kind in _ZERO_IS_NONE:
            continue
        yield match.start("whole"), match.end("whole"), kind, value
    if not found_time:
        raise ValueError(
            f"the time stamp {event['ts']!r} of event {event.get('name')!r} is not a plain number "
            "of microseconds, 0 or more: choose a source trace that the profiler wrote itself"
        )
    step = _STEP.search(text)
    if step:
        yield step.start("whole"), step.end("whole"), "step", int(step["whole"])


def make_template(text: str) -> Template:
    """Cuts a trace's text into a `Template`.

    Raises
    ------
    ValueError
        If there is no ``traceEvents`` array, or it holds nothing that lasts.
    """
    opening = _EVENTS.search(text)
    if opening is None:
        raise ValueError('no "traceEvents" array: the source must be a Kineto (Chrome) trace')
    template = Template(text[: opening.end()] + "\n  ", "")
    literal, end = "", opening.end()
    for start, end, event in _events(text, opening.end()):
        own = text[start:end]
        if _is_once(event):
            template.once.append((_once_kind(event), own))
            continue
        literal = _add_event(
            template, literal + (_SEPARATOR if template.num_events else ""), own, event
        )
    template.texts.append(literal)
    template.tail = text[end:]
    if template.end_us <= template.start_us:
        raise ValueError("no event of the source has a duration: nothing to lay end to end")
    return template


def _add_event(template: Template, literal: str, own: str, event: dict[str, Any]) -> str:
    """Appends one event; returns the fixed text that follows its last number."""
    at = 0
    for start, end, kind, value in sorted(_numbers(own, event)):
        template.texts.append(literal + own[at:start])
        template.kinds.append(kind)
        template.values.append(value)
        literal, at = "", end
    template.num_events += 1
    template.start_us = min(template.start_us, int(event["ts"]))
    # Two more: one for each fraction cut off here.
    template.end_us = max(template.end_us, int(event["ts"]) + int(event.get("dur", 0)) + 2)
    return literal + own[at:]


def _once_kind(event: dict[str, Any]) -> str:
    """Which number of an event that is written once follows the window's end, if any."""
    if event.get("cat") == "Trace":
        return "dur"
    return "ts" if event.get("name") == "Record Window End" else ""


def _stretch(kind: str, text: str, by_us: int) -> str:
    """Moves the profiler's span or its end marker along with the window's end."""
    if not kind:
        return text
    pattern = rf'("{kind}"\s*:\s*)(\d+)'
    return re.sub(pattern, lambda m: m[1] + str(int(m[2]) + by_us), text, count=1)


def copies_for(template: Template, target_bytes: int) -> int:
    """Number of whole copies whose size comes nearest to `target_bytes`; at least 1."""
    return max(1, round((target_bytes - template.frame_bytes) / template.copy_bytes))


def chunks(template: Template, copies: int) -> Iterator[bytes]:
    """Yields the grown document piece by piece, one copy at a time."""
    strides = template.strides(copies)
    yield _encode(template.head)
    for num in range(copies):
        offsets = {kind: num * stride for kind, stride in strides.items()}
        yield _encode((_SEPARATOR if num else "") + template.render(offsets))
    by_us = (copies - 1) * template.period_us
    for kind, text in template.once:
        yield _encode(_SEPARATOR + _stretch(kind, text, by_us))
    yield _encode(template.tail)


def write(pieces: Iterable[bytes], out: Path, compress: bool) -> int:
    """Writes the pieces, gzipped at level 6 when asked; returns the uncompressed size in bytes."""
    size = 0
    with out.open("wb") as raw:
        sink: BinaryIO = raw
        if compress:
            # No file name and no time in the header: equal input gives equal bytes.
            sink = cast(BinaryIO, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
        for piece in pieces:
            sink.write(piece)
            size += len(piece)
        if compress:
            sink.close()
    return size


def main(argv: list[str] | None = None) -> int:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("src", type=Path, help="a Kineto trace, plain or gzipped")
    parser.add_argument("out", type=Path, help="the file to write")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--mb", type=float, help="uncompressed size wanted, in MB (1e6 bytes)")
    size.add_argument("--copies", type=int, help="number of copies instead of a size")
    parser.add_argument("--gzip", action="store_true", help="write gzip")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON on stdout")
    args = parser.parse_args(argv)
    try:
        template = make_template(read_text(args.src))
        copies = args.copies or copies_for(template, round(args.mb * 1e6))
        size_bytes = write(chunks(template, copies), args.out, args.gzip)
    except (OSError, ValueError) as error:
        print(f"grow: {args.src}: {error}", file=sys.stderr)
        return 2
    num_events = copies * template.num_events + len(template.once)
    print(
        f"{args.out}: {copies} copies, {num_events} events, {size_bytes / 1e6:.1f} MB unpacked",
        file=sys.stderr,
    )
    if args.json:
        print(json.dumps({"copies": copies, "events": num_events, "bytes": size_bytes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
