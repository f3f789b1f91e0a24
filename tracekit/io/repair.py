"""Mend the damage that trace writers are known to do, one piece of JSON text at a time."""

from __future__ import annotations

import re
from collections import Counter

#: a string literal, or a bare word where JSON wants a value
_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*"|(?<![\w"])[-+]?(?:[iI]nf(?:inity)?|[nN]a[nN]|None|undefined)\b', re.DOTALL
)
_BAD_IN_STRING = re.compile(rb'[\x00-\x1f]|\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})', re.DOTALL)
_ESCAPE = re.compile(rb'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])', re.DOTALL)
_TRAILING_COMMA = re.compile(rb",(\s*[\]}])")
_HUGE = re.compile(rb"(?<=[\s:,\[])-?\d+(?:\.\d*)?[eE]\+?\d{3,}(?=[\s,}\]])")


def mend(text: bytes, counts: Counter[str]) -> bytes:
    """Return ``text`` with known writer faults mended.

    Mended are bytes that are not UTF-8, raw control bytes and lone backslashes in strings, bare
    ``inf`` and ``nan`` (they become ``null``), numbers beyond a double, and trailing commas.

    Parameters
    ----------
    text : bytes
        A piece of JSON text.
    counts : Counter
        Receives how many faults of each kind were mended.
    """
    text = _mend_utf8(text, counts)

    def token(match: re.Match[bytes]) -> bytes:
        found = match.group()
        if found[:1] != b'"':
            counts["bare-word"] += 1
            return b"null"
        return _mend_string(found, counts) if _needs_mending(found) else found

    text = _TOKEN.sub(token, text)
    text, huge = _HUGE.subn(b"null", text)
    text, commas = _TRAILING_COMMA.subn(rb"\1", text)
    counts["number-out-of-range"] += huge
    counts["trailing-comma"] += commas
    return text


def _mend_utf8(text: bytes, counts: Counter[str]) -> bytes:
    try:
        text.decode("utf-8")
        return text
    except UnicodeDecodeError:
        shown = text.decode("utf-8", "replace")
        counts["not-utf8"] += shown.count("\ufffd")
        return shown.encode("utf-8")


def _needs_mending(literal: bytes) -> bool:
    return _BAD_IN_STRING.search(_ESCAPE.sub(b"", literal)) is not None


def _mend_string(literal: bytes, counts: Counter[str]) -> bytes:
    """Escape control bytes and double the backslashes that escape nothing."""
    out = bytearray()
    body = literal[1:-1]
    at = 0
    while at < len(body):
        escape = _ESCAPE.match(body, at)
        if escape:
            out += escape.group()
            at = escape.end()
            continue
        byte = body[at]
        if byte == 0x5C:
            counts["lone-backslash"] += 1
            out += b"\\\\"
        elif byte < 0x20:
            counts["control-byte"] += 1
            out += b"\\u%04x" % byte
        else:
            out.append(byte)
        at += 1
    return b'"' + bytes(out) + b'"'


#: how each kind of mending is told to the user
WORDS = {
    "bare-word": "bare inf or nan read as absent",
    "not-utf8": "bytes that are not UTF-8 replaced",
    "lone-backslash": "lone backslashes doubled",
    "control-byte": "raw control bytes in names escaped",
    "number-out-of-range": "numbers beyond a double read as absent",
    "trailing-comma": "trailing commas removed",
    "text-for-number": "numbers written as text converted",
    "unreadable-event": "events that are not valid JSON dropped",
    "wrong-type": "fields of the wrong type read as absent",
}
