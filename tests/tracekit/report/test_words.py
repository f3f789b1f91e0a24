"""Promises of how figures and foreign texts are put into words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.report import words


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (None, "not known"),
        (float("nan"), "not known"),
        (0.0, "0.0 %"),
        (0.4051, "40.5 %"),
        (1 / 3, "33.3 %"),
        (0.99996, "100.0 %"),
        (1.0, "100.0 %"),
    ],
)
def test_percentages_have_one_decimal(fraction: float | None, expected: str) -> None:
    """A fraction has one decimal wherever it stands, so that it reads the same in all places."""
    assert words.percent(fraction) == expected


@pytest.mark.parametrize(
    ("num", "expected"), [(0, "0 analyses"), (1, "1 analysis"), (1234, "1,234 analyses")]
)
def test_counts_take_the_plural_they_need(num: int, expected: str) -> None:
    """One is one, and a plural that is no mere s can be given."""
    assert words.counted(num, "analysis", "analyses") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not known"),
        (float("nan"), "not known"),
        (float("inf"), "not known"),
        (0.0, "0.000"),
        (-0.0001, "0.000"),
        (-2.5, "-0.003"),
        (1234.5, "1.234"),
    ],
)
def test_milliseconds(value: float | None, expected: str) -> None:
    """Milliseconds are a figure, or words where there is none; zero has no sign."""
    assert words.ms(value) == expected


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (None, "not known"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (16_777_216, "16.8 MB"),
        (999_600, "1 MB"),
        (3_000_000_000, "3 GB"),
    ],
)
def test_sizes_are_decimal(num_bytes: int | None, expected: str) -> None:
    """Sizes use decimal units, as bandwidths do."""
    assert words.size(num_bytes) == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0,1"),
        ([2, 0, 1, 7], "0-2,7"),
        (range(0, 60, 2), "0,2,4,6,8,10,12,14,16,18,20,22,.. (30 runs)"),
    ],
)
def test_number_lists_join_runs(numbers: list[int], expected: str) -> None:
    """Runs of numbers are joined, and a list without end is cut with its length said."""
    assert words.number_list(numbers) == expected


@pytest.mark.parametrize(
    ("window_us", "expected"),
    [(None, 3), (0, 3), (100.0, 3), (99_000.0, 3), (123_456.0, 2), (1.2e6, 1), (9e9, 1)],
)
def test_decimals_follow_the_window(window_us: float | None, expected: int) -> None:
    """Long windows get fewer decimals, so that figures keep about five digits."""
    assert words.decimals(window_us) == expected


def test_fraction_of_an_unknown_or_empty_whole_is_unknown() -> None:
    """No fraction is made from a missing part, a missing whole or a whole of 0."""
    assert words.fraction(None, 10.0) is None
    assert words.fraction(1.0, None) is None
    assert words.fraction(1.0, 0.0) is None
    assert words.fraction(1.0, 4.0) == 0.25


@given(st.text(max_size=200), st.integers(6, 60))
def test_clipped_text_is_printable_and_short(text: str, width: int) -> None:
    """A clipped text never exceeds its width and holds no control character."""
    shown = words.clip(text, width)
    assert len(shown) <= width
    assert shown.isprintable()


def test_clipping_keeps_both_ends() -> None:
    """What differs between kernel names, the end, survives the cut."""
    assert words.clip("void gemm_kernel<float, 128, 64>(args)", 20) == "void gemm_ke..(args)"
