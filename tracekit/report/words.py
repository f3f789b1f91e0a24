"""How figures and foreign texts are put into words: what is unknown is said, never shown as 0."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tracekit.core.errors import one_line

NOT_KNOWN = "not known"
NOT_RECORDED = "not recorded"
NOT_APPLICABLE = "does not apply"
UNKNOWN_OPERATION = "unknown operation"


def safe(text: object, limit: int = 600) -> str:
    """A text from a trace as one printable line: control characters and escapes are blanked."""
    return one_line(str(text), limit=limit).strip()


def clip(text: object, width: int) -> str:
    """`safe` text of at most ``width`` characters, cut in the middle, where names differ least."""
    flat = safe(text, limit=4000)
    if len(flat) <= width:
        return flat
    head = max(1, (width - 2) * 2 // 3)
    tail = max(0, width - 2 - head)
    return f"{flat[:head]}..{flat[len(flat) - tail :]}" if tail else f"{flat[:head]}.."[:width]


def known(value: object) -> bool:
    """Whether ``value`` is a figure: neither missing nor NaN nor infinite."""
    return isinstance(value, int | float) and math.isfinite(value)


def ms(value_us: float | None, digits: int = 3, unknown: str = NOT_KNOWN) -> str:
    """Microseconds as milliseconds with ``digits`` decimals, or the words for not having them."""
    if value_us is None or not known(value_us):
        return unknown
    text = f"{value_us / 1000:.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def percent(fraction: float | None, unknown: str = NOT_KNOWN) -> str:
    """A fraction of 1 as a percentage, or the words for not having it.

    Always with one decimal and never bent to make a column add up, so that the same fraction
    reads the same wherever it stands.
    """
    if fraction is None or not known(fraction):
        return unknown
    return f"{100 * fraction:.1f} %"


def fraction(part: float | None, whole: float | None) -> float | None:
    """``part / whole``; None where either is unknown or ``whole`` is not positive."""
    if part is None or whole is None or not known(part) or not known(whole) or whole <= 0:
        return None
    return part / whole


def size(num_bytes: float | None) -> str:
    """Bytes with a decimal unit (1 GB = 1e9 bytes)."""
    if num_bytes is None or not known(num_bytes):
        return NOT_KNOWN
    value, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"


def rate(value_GBps: float | None) -> str:
    """A bandwidth in GB/s, without its unit."""
    if value_GBps is None or not known(value_GBps):
        return NOT_KNOWN
    return f"{value_GBps:.0f}" if value_GBps >= 99.5 else f"{value_GBps:.3g}"


def decimals(window_us: float | None) -> int:
    """Decimals that show a window of this length in milliseconds to about five figures."""
    if window_us is None or not known(window_us) or window_us <= 0:
        return 3
    return min(3, max(1, 4 - math.floor(math.log10(window_us / 1000))))


def number_list(numbers: Iterable[int]) -> str:
    """Sorted numbers with runs joined: ``0-3,7``; of many runs the first ones and a count."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    texts = [f"{a}" if a == b else f"{a}-{b}" if b > a + 1 else f"{a},{b}" for a, b in runs]
    return (
        ",".join(texts) if len(texts) <= 12 else ",".join(texts[:12]) + f",.. ({len(texts)} runs)"
    )


def ranks(numbers: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-3,7``."""
    there = set(numbers)
    return f"{'rank' if len(there) == 1 else 'ranks'} {number_list(there)}"


def counted(num: int, noun: str, several: str = "") -> str:
    """``1 file``, ``2 files``; thousands are grouped, ``several`` is a plural of its own."""
    return f"{num:,} {noun}" if num == 1 else f"{num:,} {several or noun + 's'}"
