"""Promises of the options: each text is checked, and a wrong one is answered in one line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tracekit.cli import options
from tracekit.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {0}),
        ("0,2-5", {0, 2, 3, 4, 5}),
        (" 1 , 3 ", {1, 3}),
        ("7-7,7", {7}),
    ],
)
def test_rank_lists(text: str, expected: set[int]) -> None:
    """Ranks are numbers and rising ranges of numbers, both ends included."""
    assert options.parse_ranks(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "0,", "-1", "3-1", "1-", "1-2-3", "0-99999999999", "0-2000000", "²"]
)
def test_rank_lists_that_are_none(text: str) -> None:
    """A list that is none is refused before it can fill the memory."""
    with pytest.raises(UsageError, match="--ranks"):
        options.parse_ranks(text)


@pytest.mark.parametrize(("text", "expected"), [("5:8", (5, 8)), ("5", (5, 5)), ("0:0", (0, 0))])
def test_steps(text: str, expected: tuple[int, int]) -> None:
    """A range of steps includes both ends; one number is one step."""
    assert options.parse_steps(text) == expected


@pytest.mark.parametrize("text", ["", ":", "5:", ":8", "8:5", "a:b", "1.5:2", "1:2:3"])
def test_steps_that_are_none(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="--steps"):
        options.parse_steps(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("50:100", (50.0, 100.0)), ("0.5:1e6", (0.5, 1e6)), ("-5:3", (-5, 3))]
)
def test_time_ranges(text: str, expected: tuple[float, float]) -> None:
    """A time range is two numbers of microseconds."""
    assert options.parse_range(text) == expected


@pytest.mark.parametrize("text", ["", "5", "5:", "a:b", "nan:1", "0:inf", "3:3", "4:3", "1:2:3"])
def test_time_ranges_that_are_none(text: str) -> None:
    """Empty, endless and backward ranges are refused."""
    with pytest.raises(UsageError, match="--range"):
        options.parse_range(text)


@pytest.mark.parametrize(
    ("text", "name", "percent"),
    [("exposed=15%", "exposed", 15.0), ("idle=0.5", "idle", 0.5), ("comm=100%", "comm", 100.0)],
)
def test_thresholds(text: str, name: str, percent: float) -> None:
    """A threshold is a known name and a percentage, with or without its sign."""
    assert options.parse_threshold(text) == options.Threshold(name, percent)


@pytest.mark.parametrize(
    "text", ["exposed", "exposed=", "exposed=x", "idle=-1%", "idle=101%", "idle=nan", "=5%"]
)
def test_thresholds_that_are_none(text: str) -> None:
    """A percentage outside 0 to 100, or none, is refused."""
    with pytest.raises(UsageError, match="--fail-on"):
        options.parse_threshold(text)


def test_misspelt_threshold_is_guessed() -> None:
    """A near miss gets the name that was meant; anything else gets the list."""
    with pytest.raises(UsageError, match=r"'exposd'; did you mean exposed\?"):
        options.parse_threshold("exposd=15%")
    with pytest.raises(UsageError, match="use one of exposed, exposed_wait"):
        options.parse_threshold("bandwidth=15%")


def test_threshold_is_crossed_only_above_it() -> None:
    """A fraction equal to the threshold passes; the line says both figures."""
    totals = {"window_us": 300.0, "exposed_comm_us": 45.0, "idle_us": 100.0}
    limits = [options.Threshold("exposed", 15.0), options.Threshold("idle", 33.0)]
    assert options.crossed(totals, limits) == ["idle is 33.33 % of the window, above 33 %"]


def test_undecided_time_does_not_pass_unseen() -> None:
    """Exposed time that may be waiting or transfer counts as neither, and as possibly both."""
    totals = {
        "window_us": 100.0,
        "exposed_comm_us": 30.0,
        "exposed_wait_us": 10.0,
        "exposed_transfer_us": 0.0,
        "exposed_unknown_us": 20.0,
    }
    passing = [options.Threshold("exposed_wait", 30.0), options.Threshold("exposed", 30.0)]
    assert options.crossed(totals, passing) == []
    assert options.crossed(totals, [options.Threshold("exposed_wait", 9.0)]) != []
    with pytest.raises(UsageError, match=r"--fail-on exposed_wait: 10 % of the window is known"):
        options.crossed(totals, [options.Threshold("exposed_wait", 29.0)])


def test_a_vast_limit_is_as_good_as_none() -> None:
    """A limit beyond all machines is one that is never reached."""
    assert options.limits_of(options.Opening(limit_gib=1e300)).unpacked_bytes == 2**62
    assert options.limits_of(options.Opening(limit_gib=0.5)).unpacked_bytes == 2**29
    assert options.limits_of(options.Opening(limit_gib=1e-300)).unpacked_bytes == 1


@pytest.mark.parametrize("bad", [{"limit_gib": 0.0}, {"limit_gib": math.nan}, {"ranks": "x"}])
def test_bad_values_are_refused_before_a_file_is_touched(bad: dict[str, Any]) -> None:
    """The options check themselves."""
    with pytest.raises(UsageError):
        options.Opening(**bad)


@pytest.mark.parametrize("totals", [{}, {"window_us": 0.0, "idle_us": 0.0}, {"window_us": 5.0}])
def test_unknown_fraction_does_not_pass_unseen(totals: dict[str, float]) -> None:
    """A gate on what the traces do not tell is an error, not a pass."""
    with pytest.raises(UsageError, match=r"--fail-on idle: .* not known"):
        options.crossed(totals, [options.Threshold("idle", 50.0)])
