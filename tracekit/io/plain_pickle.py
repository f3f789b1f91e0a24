"""Reads the plain values of a pickle and nothing else: it holds no way to import or to call.

A ``pickle.Unpickler`` whose ``find_class`` always raises stops imports, but not more. Measured on
CPython 3.11: nine bytes (one large memo index) make it fill a gigabyte, and one megabyte (a
deeply nested tuple as a dict key) crashes the process. Here the memo is a dict, keys are
scalars, and steps and values are counted.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from tracekit.core.errors import LimitError, ReadError

#: refused before the first byte is interpreted; a dump of 20,000 entries with stacks is ~12 MB
LIMIT_BYTES = 128 * 1024 * 1024
#: instructions followed (~0.2 µs each); a dump of 20,000 entries with stacks has ~8 million
LIMIT_STEPS = 25_000_000
#: containers and texts made, and (counted apart) values remembered
LIMIT_VALUES = 4_000_000
LIMIT_INT_BYTES = 1024

_PLAIN_ONLY = "plain values only are read from a pickle"


class Loaded(NamedTuple):
    """What a pickle holds.

    Attributes
    ----------
    value : Any
        dict, list, tuple, str, bytes, int, float, bool or None, nested.
    complete : bool
        False when the data end early: the two outermost containers are then closed as they
        stand, and what was unfinished inside them is left out.
    """

    value: Any
    complete: bool


class _CutError(Exception):
    """The data end inside an instruction."""


def load(data: bytes, *, file: str = "", hint: str = "") -> Loaded:
    """Read one pickle of protocol 0 to 5 that holds plain values only.

    Parameters
    ----------
    data : bytes
        The pickle; bytes after its end are ignored.
    file : str
        Named in the errors.
    hint : str
        The way out, appended to the error of a refused pickle.

    Raises
    ------
    ReadError
        It asks for an import, a call, a persistent object or a type that is not plain, or it
        is malformed or cut before its first value.
    LimitError
        It is larger, or makes more values, than the limits above.
    """
    if len(data) > LIMIT_BYTES:
        what = f"a pickle of {len(data):,} bytes is over the limit of {LIMIT_BYTES:,}"
        raise LimitError(what, where=file, hint=hint)
    machine = _Machine(data, file, hint)
    try:
        return Loaded(machine.run(), complete=True)
    except _CutError:
        return Loaded(machine.closed(), complete=False)
    except (IndexError, KeyError, ValueError, TypeError, struct.error) as error:
        what = f"malformed pickle near byte {machine.pos:,} ({type(error).__name__})"
        raise ReadError(what, where=file, hint=hint) from None


class _Machine:
    """The stack machine of the pickle format, without its instructions that run code."""

    __slots__ = ("data", "file", "hint", "made", "marks", "memo", "pos", "stack")

    def __init__(self, data: bytes, file: str, hint: str) -> None:
        self.data, self.file, self.hint = data, file, hint
        self.pos = self.made = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Follow the instructions to the end and give the value they leave."""
        data, stack, memo, size = self.data, self.stack, self.memo, len(self.data)
        steps = 0
        while self.pos < size:
            steps += 1
            if steps > LIMIT_STEPS:
                self.over(f"holds more than {LIMIT_STEPS:,} instructions")
            op = data[self.pos]
            self.pos += 1
            if op == 0x68 and self.pos < size:  # BINGET: every second instruction of a dump
                stack.append(memo[data[self.pos]])
                self.pos += 1
            elif op == 0x2E:  # STOP
                return stack.pop()
            else:
                step = _STEPS[op]
                if step is None:
                    self.refuse_instruction(op)
                step(self)
        raise _CutError

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        end = self.pos + size
        if end > len(self.data):
            raise _CutError
        part = self.data[self.pos : end]
        self.pos = end
        return part

    def line(self) -> bytes:
        """The next line, as the text protocol writes arguments."""
        end = self.data.find(b"\n", self.pos)
        if end < 0:
            raise _CutError
        part = self.data[self.pos : end]
        self.pos = end + 1
        return part

    def push(self, value: Any) -> None:
        """Put a value that costs memory of its own on the stack."""
        self.made += 1
        if self.made > LIMIT_VALUES:
            self.over(f"makes more than {LIMIT_VALUES:,} values")
        self.stack.append(value)

    def remember(self, index: int) -> None:
        """Note the top of the stack under ``index``."""
        if len(self.memo) >= LIMIT_VALUES:
            self.over(f"holds more than {LIMIT_VALUES:,} remembered values")
        self.memo[index] = self.stack[-1]

    def since_mark(self) -> list[Any]:
        """Take what was put on the stack since the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def extend(self, items: list[Any]) -> None:
        """Append ``items`` to the list on top of the stack."""
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError("append to what is no list")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        """Set pairs of ``items`` in the dict on top of the stack."""
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("set an item of what is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # a tuple's hash recurses in C, and large integers can be made to collide
            plain = key is None or type(key) in (str, bytes, bool)
            if not plain and not (type(key) is int and abs(key) < 2**31):
                self.refuse(f"uses a {type(key).__name__} as a key")
            target[key] = value

    def closed(self) -> Any:
        """The value as far as cut data tell it: its two outer containers closed as they are."""
        if len(self.marks) > 2:
            del self.stack[max(self.marks[2] - 1, 0) :]
            del self.marks[2:]
        try:
            while self.marks:
                items = self.since_mark()
                if type(self.stack[-1]) is list:
                    self.extend(items)
                else:
                    self.update(items[: len(items) // 2 * 2])
            return self.stack[0]
        except (IndexError, TypeError):
            what = "the pickle is cut before anything whole"
            raise ReadError(what, where=self.file, hint=self.hint) from None

    def over(self, what: str) -> NoReturn:
        """Stop at a limit."""
        raise LimitError(f"the pickle {what}", where=self.file, hint=self.hint)

    def refuse(self, what: str) -> NoReturn:
        """Stop at something that is not a plain value."""
        hint = f"{_PLAIN_ONLY}; {self.hint}" if self.hint else _PLAIN_ONLY
        raise ReadError(f"the dump {what}", where=self.file, hint=hint)

    def refuse_import(self, module: Any, name: Any) -> NoReturn:
        """Stop at a request to import, naming what was asked for."""
        shown = [str(part)[:80] if isinstance(part, str) else "?" for part in (module, name)]
        self.refuse(f"asks to import {shown[0]}.{shown[1]}")

    def refuse_instruction(self, op: int) -> NoReturn:
        """Stop at an instruction that makes something other than a plain value."""
        if op in b"ci":  # GLOBAL, INST: two lines follow
            module, name = self.line(), self.line()
            self.refuse_import(module.decode("utf-8", "replace"), name.decode("utf-8", "replace"))
        if op == 0x93:  # STACK_GLOBAL
            self.refuse_import(self.stack[-2], self.stack[-1])
        if op in b"PQ":
            self.refuse("asks for a persistent object")
        names = [known.name for known in pickletools.opcodes if known.code == chr(op)]
        if not names:
            raise ValueError("no such instruction")
        self.refuse(f"holds the pickle instruction {names[0]}")


_Step = Callable[[_Machine], None]


def _constant(value: Any) -> _Step:
    return lambda m: m.stack.append(value)


def _number(layout: str) -> _Step:
    reader = struct.Struct(layout)
    return lambda m: m.stack.append(reader.unpack(m.take(reader.size))[0])


def _counted(layout: str, make: Callable[[bytes], Any]) -> _Step:
    reader = struct.Struct(layout)
    return lambda m: m.push(make(m.take(reader.unpack(m.take(reader.size))[0])))


def _skip(size: int) -> _Step:
    def step(m: _Machine) -> None:
        m.take(size)

    return step


def _tuple_of(size: int) -> _Step:
    def step(m: _Machine) -> None:
        items = tuple(m.stack[-size:])
        if len(items) != size:
            raise IndexError
        del m.stack[-size:]
        m.push(items)

    return step


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _escaped_text(raw: bytes) -> str:
    # lone surrogates would fail later, where the text is shown
    return raw.decode("raw-unicode-escape").encode("utf-8", "replace").decode()


def _integer(raw: bytes) -> int:
    if len(raw) > LIMIT_INT_BYTES:
        raise ValueError
    return int.from_bytes(raw, "little", signed=True)


def _int_line(m: _Machine) -> None:
    raw = m.line()
    m.stack.append({b"00": False, b"01": True}[raw] if raw in (b"00", b"01") else int(raw))


def _dict_since_mark(m: _Machine) -> None:
    items = m.since_mark()
    m.push({})
    m.update(items)


def _set_item(m: _Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    m.update([key, value])


def _table() -> list[_Step | None]:
    """The instructions followed, by their byte; the others are refused."""
    steps: dict[bytes, _Step] = {
        b"\x80": _skip(1),  # PROTO
        b"\x95": _skip(8),  # FRAME
        b"(": lambda m: m.marks.append(len(m.stack)),
        b"N": _constant(None),
        b"\x88": _constant(True),
        b"\x89": _constant(False),
        b")": _constant(()),
        b"J": _number("<i"),
        b"K": _number("<B"),
        b"M": _number("<H"),
        b"G": _number(">d"),
        b"I": _int_line,
        b"L": lambda m: m.stack.append(int(m.line().rstrip(b"L"))),
        b"F": lambda m: m.stack.append(float(m.line())),
        b"\x8a": _counted("<B", _integer),
        b"\x8b": _counted("<I", _integer),
        b"V": lambda m: m.push(_escaped_text(m.line())),
        b"X": _counted("<I", _text),
        b"\x8c": _counted("<B", _text),
        b"\x8d": _counted("<Q", _text),
        b"B": _counted("<I", bytes),
        b"C": _counted("<B", bytes),
        b"\x8e": _counted("<Q", bytes),
        b"]": lambda m: m.push([]),
        b"}": lambda m: m.push({}),
        b"l": lambda m: m.push(m.since_mark()),
        b"d": _dict_since_mark,
        b"t": lambda m: m.push(tuple(m.since_mark())),
        b"\x85": _tuple_of(1),
        b"\x86": _tuple_of(2),
        b"\x87": _tuple_of(3),
        b"a": lambda m: m.extend([m.stack.pop()]),
        b"e": lambda m: m.extend(m.since_mark()),
        b"s": _set_item,
        b"u": lambda m: m.update(m.since_mark()),
        b"p": lambda m: m.remember(int(m.line())),
        b"q": lambda m: m.remember(m.take(1)[0]),
        b"r": lambda m: m.remember(int.from_bytes(m.take(4), "little")),
        b"\x94": lambda m: m.remember(len(m.memo)),
        b"g": lambda m: m.stack.append(m.memo[int(m.line())]),
        b"h": lambda m: m.stack.append(m.memo[m.take(1)[0]]),
        b"j": lambda m: m.stack.append(m.memo[int.from_bytes(m.take(4), "little")]),
    }
    return [steps.get(bytes([op])) for op in range(256)]


_STEPS = _table()
