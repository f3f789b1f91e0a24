"""Mend the damage that trace writers are known to do, one piece of JSON text at a time."""

from __future__ import annotations

import re
from collections import Counter

#: a string literal, or outside of one: a bare word where JSON wants a value, a number with a
#: three-digit exponent, a comma before a closing bracket
_TOKEN = re.compile(
    # an unterminated string reaches to the end: tried anew from each of its quotes, it would take
    # quadratic time
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
    rb'|(?<![\w"])[-+]?(?:[iI]nf(?:inity)?|INF(?:INITY)?|[nN]a[nN]|NAN|None|undefined)\b(?:\(\w*\))?'
    rb"|(?<=[\s:,\[])-?\d+(?:\.\d*)?[eE]\+?\d{3,}(?=[\s,}\]])"
    rb"|,(?=\s*[\]}])",
    re.DOTALL,
)
_STRING_END = re.compile(rb'^"[^"\\]*+(?:\\.[^"\\]*+)*+"\Z', re.DOTALL)
_BAD_IN_STRING = re.compile(rb'[\x00-\x1f]|\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})', re.DOTALL)
_ESCAPE = re.compile(rb'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def mend(text: bytes, counts: Counter[str]) -> bytes:
    """Return ``text`` with known writer faults mended.

    Mended are bytes that are not UTF-8, raw control bytes, lone backslashes and halves of surrogate
    pairs in strings, bare ``inf`` and ``nan`` (they become ``null``), numbers beyond a double, and
    trailing commas.

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
        if found[:1] == b'"':
            if not _STRING_END.search(found):
                return found  # the text is cut inside it
            return _mend_string(found, counts) if _needs_mending(found) else found
        if found == b",":
            counts["trailing-comma"] += 1
            return b""
        counts["number-out-of-range" if found[-1:].isdigit() else "bare-word"] += 1
        return b"null"

    return _TOKEN.sub(token, text)


def _mend_utf8(text: bytes, counts: Counter[str]) -> bytes:
    try:
        text.decode("utf-8")
        return text
    except UnicodeDecodeError:
        shown = text.decode("utf-8", "replace")
        counts["not-utf8"] += shown.count("\ufffd") - text.count(b"\xef\xbf\xbd")
        return shown.encode("utf-8")


def _needs_mending(literal: bytes) -> bool:
    bad = _BAD_IN_STRING.search(_ESCAPE.sub(b"", literal)) or _SURROGATE.search(literal)
    return bad is not None


def _mend_string(literal: bytes, counts: Counter[str]) -> bytes:
    """Escape control bytes, double backslashes that escape nothing, replace half characters."""
    out = bytearray()
    body = literal[1:-1]
    at = 0
    while at < len(body):
        escape = _PAIR.match(body, at) or _ESCAPE.match(body, at)
        if escape:
            if len(escape.group()) == 6 and _SURROGATE.match(body, at):
                counts["lone-surrogate"] += 1
                out += rb"\ufffd"
            else:
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
    "lone-surrogate": "halves of surrogate pairs replaced",
    "control-byte": "raw control bytes in names escaped",
    "number-out-of-range": "numbers beyond a double read as absent",
    "trailing-comma": "trailing commas removed",
    "text-for-number": "numbers written as text converted",
    "unreadable-event": "events that are not valid JSON dropped",
    "unreadable-header": "parts of the header that are not valid JSON left out",
    "wrong-type": "fields of the wrong type read as absent",
}
