"""Turn the texts of command-line options into checked values, or say in one line what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tracekit.core.errors import UsageError
from tracekit.core.suggest import nearest

if TYPE_CHECKING:
    from cyclopts import Token

    from tracekit.io.sources import Limits
    from tracekit.model.files import OpenOptions

#: fractions of the window that ``--fail-on`` can judge, and the figure each is made of
FRACTIONS = {
    "exposed": "exposed_comm_us",
    "exposed_wait": "exposed_wait_us",
    "exposed_transfer": "exposed_transfer_us",
    "exposed_memory": "exposed_memory_us",
    "comm": "comm_us",
    "idle": "idle_us",
}
MAX_RANK = 1 << 20


def _whole_number(_kind: Any, tokens: Sequence[Token]) -> int:
    """A number as it is written; 1.5 is not taken for 2."""
    text = tokens[0].value
    if not _is_number(text.removeprefix("-")):
        raise UsageError(f"{tokens[0].keyword} {text} is no whole number")
    return int(text)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Opening:
    """What the verbs that open traces have in common."""

    ranks: Annotated[str | None, Parameter(help="Only these ranks, such as 0,2-5.")] = None
    names: Annotated[
        str | None, Parameter(help="TOML file with your own rules for event names.")
    ] = None
    capture: Annotated[
        int | None,
        Parameter(
            help="Which capture, where a folder holds several of each rank.",
            converter=_whole_number,
        ),
    ] = None
    no_store: Annotated[
        bool, Parameter(help="Read the files again and keep nothing in the cache folder.")
    ] = False
    limit_gib: Annotated[float | None, Parameter(help="Most GiB that one file may unpack to.")] = (
        None
    )

    def __post_init__(self) -> None:
        """Refuse bad values before any file is touched."""
        if self.ranks is not None:
            parse_ranks(self.ranks)
        if self.limit_gib is not None:
            _limit_bytes(self.limit_gib)
        if self.capture is not None and self.capture < 1:
            raise UsageError(f"--capture {self.capture}: captures are numbered from 1")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A fraction of the summed window that must not be exceeded."""

    name: str
    percent: float


def open_options(opening: Opening, progress: Callable[[str, float], None] | None) -> OpenOptions:
    """The options `open_run` takes, from those of the command line."""
    from tracekit.model.files import OpenOptions

    return OpenOptions(
        names=opening.names,
        ranks=None if opening.ranks is None else parse_ranks(opening.ranks),
        capture=opening.capture,
        store=not opening.no_store,
        limits=limits_of(opening),
        progress=progress,
    )


def limits_of(opening: Opening) -> Limits:
    """What a file may unpack to."""
    from tracekit.io.sources import Limits

    if opening.limit_gib is None:
        return Limits()
    return Limits(unpacked_bytes=_limit_bytes(opening.limit_gib))


def _limit_bytes(gib: float) -> int:
    from tracekit.io.sources import Limits

    if not math.isfinite(gib) or gib <= 0:
        raise UsageError(f"--limit-gib {gib:g} is no size", hint="give a number above 0")
    return Limits.of_gib(gib).unpacked_bytes


def parse_ranks(text: str) -> frozenset[int]:
    """The ranks in a list such as ``0,2-5``.

    Raises
    ------
    UsageError
        When a part is neither a number nor a rising range of numbers.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise UsageError(
                f"--ranks {text}: {part.strip()!r} is no rank", hint="write numbers such as 0,2-5"
            )
        low, high = int(first), int(last or first)
        if high < low or high > MAX_RANK:
            raise UsageError(
                f"--ranks {text}: the range {part.strip()} does not rise or ends above {MAX_RANK:,}"
            )
        found.update(range(low, high + 1))
    return frozenset(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def parse_steps(text: str) -> tuple[int, int]:
    """First and last step (both included) of ``5:8``, or of ``5`` for one step.

    Raises
    ------
    UsageError
        When the text is neither.
    """
    first, colon, last = text.partition(":")
    if not _is_number(first) or (colon and not _is_number(last)):
        raise UsageError(f"--steps {text} is no range of steps", hint="write 5:8 or 5")
    low, high = int(first), int(last or first)
    if high < low:
        raise UsageError(f"--steps {text}: the last step lies before the first")
    return low, high


def parse_range(text: str) -> tuple[float, float]:
    """Start and end, in microseconds from the earliest start, of ``A:B``.

    Raises
    ------
    UsageError
        When the text is no range, or an empty one.
    """
    first, _, last = text.partition(":")
    try:
        low, high = float(first), float(last)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(
            f"--range {text} is no time range",
            hint="write A:B in microseconds from the earliest start, such as 1500:2500",
        )
    if high <= low:
        raise UsageError(f"--range {text}: the end must lie after the start")
    return low, high


def parse_threshold(text: str) -> Threshold:
    """The threshold in ``NAME=PERCENT``, such as ``exposed=15%``.

    Raises
    ------
    UsageError
        For an unknown name or something that is no percentage from 0 to 100.
    """
    name, _, value = text.partition("=")
    if name not in FRACTIONS:
        near = nearest(name, FRACTIONS)
        hint = f"did you mean {near}?" if near else f"use one of {', '.join(FRACTIONS)}"
        raise UsageError(f"--fail-on {text}: no fraction is called {name!r}", hint=hint)
    try:
        percent = float(value.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise UsageError(f"--fail-on {text}: {value!r} is no percentage", hint=f"write {name}=15%")
    return Threshold(name, percent)


def crossed(totals: Mapping[str, Any], thresholds: Sequence[Threshold]) -> list[str]:
    """One line for each threshold that the summed figures exceed.

    Parameters
    ----------
    totals : mapping
        The document's ``totals``, in microseconds.
    thresholds : sequence of Threshold
        What was asked for.

    Raises
    ------
    UsageError
        When a fraction cannot be told from these traces: a gate must not pass unseen.
    """
    lines = []
    for limit in thresholds:
        part_us, window_us = totals.get(FRACTIONS[limit.name]), totals.get("window_us")
        if part_us is None or not window_us:
            raise UsageError(
                f"--fail-on {limit.name}: this fraction is not known from these traces"
            )
        if limit.name == "idle":  # as the tables show it
            part_us -= totals.get("other_us") or 0.0
        share = 100 * part_us / window_us
        if 100 * part_us > limit.percent * window_us:
            lines.append(f"{limit.name} is {share:.4g} % of the window, above {limit.percent:g} %")
        elif 100 * (part_us + _undecided_us(totals, limit)) > limit.percent * window_us:
            raise UsageError(
                f"--fail-on {limit.name}: {share:.4g} % of the window is known, but how much "
                "of the exposed communication is waiting is not known well enough to pass"
            )
    return lines


def _undecided_us(totals: Mapping[str, Any], limit: Threshold) -> float:
    """What may belong to the fraction besides what is known to."""
    if limit.name not in ("exposed_wait", "exposed_transfer"):
        return 0.0
    return float(totals.get("exposed_unknown_us") or 0.0)
