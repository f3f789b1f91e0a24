"""Mending of known writer faults: what changes, what is counted, and that nothing else changes."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.io.repair import WORDS, mend


def mended(text: bytes) -> tuple[bytes, dict[str, int]]:
    """A text mended, and what was counted."""
    counts: Counter[str] = Counter()
    return mend(text, counts), dict(counts)


@pytest.mark.parametrize(
    ("text", "right", "counts"),
    [
        (b"[inf, -inf, +Infinity]", b"[null, null, null]", {"bare-word": 3}),
        (b"[nan, NaN, -NaN, NAN, INF]", b"[null, null, null, null, null]", {"bare-word": 5}),
        (b"[-nan(ind), nan(0x7)]", b"[null, null]", {"bare-word": 2}),
        (b"[None,undefined]", b"[null,null]", {"bare-word": 2}),
        (b"[1e400, -2.5E+999 ]", b"[null, null ]", {"number-out-of-range": 2}),
        (b'["C:\\dir\\x"]', b'["C:\\\\dir\\\\x"]', {"lone-backslash": 2}),
        (b'["\\u12"]', b'["\\\\u12"]', {"lone-backslash": 1}),
        (b'["a\x00b\nc"]', b'["a\\u0000b\\u000ac"]', {"control-byte": 2}),
        (b'["\xff\xfe"]', '["\ufffd\ufffd"]'.encode(), {"not-utf8": 2}),
        (b'["\\ud800"]', b'["\\ufffd"]', {"lone-surrogate": 1}),
        (b'["\\uDC00\\uD83D"]', b'["\\ufffd\\ufffd"]', {"lone-surrogate": 2}),
        (b'[1, 2, ]{"a": 1 ,}', b'[1, 2 ]{"a": 1 }', {"trailing-comma": 2}),
    ],
)
def test_a_fault_is_mended_and_counted(text: bytes, right: bytes, counts: dict[str, int]) -> None:
    """Each known fault becomes valid JSON, and each occurrence is counted under its kind."""
    assert mended(text) == (right, counts)


@pytest.mark.parametrize(
    "text",
    [
        b'["inf", "nan", "a, inf, b", ": NaN,"]',
        b'["x 1e400, y"]',
        b'["list ,] or ,} end"]',
        b'["\\\\", "\\"", "\\/\\b\\f\\n\\r\\t", "\\u00e9"]',
        b'["\\ud83d\\ude00", "\\\\ud800"]',
        b"[1e99, 0.5, -7, 12345678901234567890]",
        '["\ufffd é \U0001f600"]'.encode(),
        b'[{"information": true, "nano": 1}]',
    ],
)
def test_what_is_sound_stays_as_it_is(text: bytes) -> None:
    """Sound text is not touched, above all not inside of strings."""
    assert mended(text) == (text, {})


values = st.recursive(
    st.one_of(
        st.text(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values, st.booleans())
def test_valid_json_keeps_its_value(value: object, ascii_only: bool) -> None:
    """Whatever valid JSON is mended, it decodes to the same value."""
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found, counts = mended(text)
    if not counts:
        assert json.loads(found) == value
    else:  # numbers of three-digit exponents read as absent, lone surrogates replaced
        assert set(counts) <= {"number-out-of-range", "lone-surrogate", "not-utf8"}


@given(
    st.lists(
        st.sampled_from([b'{"a": 1}', b"inf", b'"\x01"', b'"\\x"', b"-nan", b'"\xff"']), min_size=1
    )
)
def test_mending_ends_in_valid_json(parts: list[bytes]) -> None:
    """A list of faulty values is valid JSON once mended, and mending it again changes nothing."""
    once, counts = mended(b"[" + b",".join(parts) + b"]")
    assert len(json.loads(once)) == len(parts)
    assert mended(once) == (once, {})
    assert counts.keys() <= WORDS.keys()


def test_a_cut_string_of_many_quotes_takes_no_quadratic_time() -> None:
    """A text cut inside a string full of escaped quotes is left as it is, at once."""
    text = b'{"name": "' + b'\\"' * 200_000
    assert mended(text) == (text, {})
