"""What the caller of the Python interface asked for, checked and brought into one form."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from tracekit.core.errors import UsageError

Steps = int | tuple[int, int] | None
RangeUs = tuple[float, float] | None
#: a selection in its one form: steps and time range
Key = tuple[tuple[int, int] | None, tuple[float, float] | None]


def selection_key(steps: Steps, range_us: RangeUs) -> Key:
    """A selection in its one form.

    Raises
    ------
    UsageError
        When either is no number, pair or range.
    """
    return _step_pair(steps), _time_pair(range_us)


def _step_pair(steps: Any) -> tuple[int, int] | None:
    if steps is None:
        return None
    try:
        given = steps if isinstance(steps, tuple | list) else (steps, steps)
        first, last = (operator.index(step) for step in given)
    except (TypeError, ValueError):
        hint = "give one number, or (first, last), both included"
        raise UsageError(f"steps={steps!r} are no steps", hint=hint) from None
    return first, last


def _time_pair(range_us: Any) -> tuple[float, float] | None:
    if range_us is None:
        return None
    try:
        low, high = (float(t) for t in range_us)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        hint = "give (start, end) in µs from the earliest start"
        raise UsageError(f"range_us={range_us!r} is no time range", hint=hint)
    return low, high


def rank_set(ranks: int | Iterable[int]) -> frozenset[int]:
    """One rank or several as a set.

    Raises
    ------
    UsageError
        When they are no whole numbers.
    """
    given: Any = ranks if isinstance(ranks, Iterable) and not isinstance(ranks, str) else (ranks,)
    try:
        return frozenset(operator.index(rank) for rank in given)
    except TypeError:
        raise UsageError(
            f"ranks={ranks!r} are no ranks", hint="give numbers, such as [0, 2]"
        ) from None


def check_top(top: int | None) -> None:
    """Refuse what is no number of names.

    Raises
    ------
    UsageError
        When it is neither None nor a whole number above 0.
    """
    if top is not None and (not isinstance(top, int) or top < 1):
        raise UsageError(f"top={top!r} is no count", hint="give a number above 0, or None for all")
