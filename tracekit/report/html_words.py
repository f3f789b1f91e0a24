"""The small pieces of a report page: escaped texts, tables, bars, all without inline styles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tracekit.report import words

Row = Mapping[str, Any]

#: what divides the window: words, figure, role whose colour it has
PARTS: tuple[tuple[str, str, str], ...] = (
    ("compute", "compute_us", "compute"),
    ("exposed communication: waiting", "exposed_wait_us", "wait"),
    ("exposed communication: moving bytes", "exposed_transfer_us", "transfer"),
    ("exposed communication: waiting or moving not known", "exposed_unknown_us", "unknown"),
    ("exposed memory copies", "exposed_memory_us", "memory"),
    ("other work", "other_us", "other"),
    ("idle", "idle_us", "idle"),
)
HATCHED = ("wait", "unknown")


def text(value: object, limit: int = 600) -> str:
    """A text from anywhere as harmless HTML."""
    return escape(words.safe(value, limit))


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page with a heading; empty where there is nothing in it."""
    inside = "".join(parts)
    if not inside:
        return ""
    head = f'<h2 id="h-{name}">{title}</h2>'
    return f'<section id="{name}" aria-labelledby="h-{name}">{head}{inside}</section>'


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, more: str = ""
) -> str:
    """A table of cells that are HTML already; the first ``left`` columns are texts."""

    def cells(tag: str, row: Sequence[str]) -> str:
        made = []
        for i, cell in enumerate(row):
            kind = "" if i < left else ' class="n"'
            scope = ' scope="col"' if tag == "th" else ""
            made.append(f"<{tag}{kind}{scope}>{cell}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    if not body:
        return ""
    head = cells("th", [escape(t) for t in titles])
    return (
        f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table>{more}</div>'
    )


def parts_of(row: Row) -> list[tuple[str, str, float]]:
    """Words, role and share (0 to 1) of each part of a window that is there."""
    found = [
        (label, role, words.fraction(row.get(key), row["window_us"])) for label, key, role in PARTS
    ]
    return [(label, role, share) for label, role, share in found if share]


def bar(row: Row, name: str, length: float = 1.0) -> str:
    """One stacked bar; a picture whose figures are told to those who do not see it.

    Parameters
    ----------
    row : mapping
        Figures, idle time without other work (`summary.divided`).
    name : str
        Whose bar it is.
    length : float
        Part of the full width, 0 to 1.
    """
    at, pieces = 0.0, []
    there = parts_of(row)
    for label, role, share in there:
        wide = 1000 * share * length
        place = f'x="{at:.2f}" width="{wide:.2f}" height="20"'
        tip = f"<title>{escape(label)} {words.percent(share)}</title>"
        pieces.append(f'<rect class="c-{role}" {place}>{tip}</rect>')
        if role in HATCHED:
            pieces.append(f'<rect class="lines" {place} fill="url(#hatch)"/>')
        at += wide
    told = ", ".join(f"{label} {words.percent(share)}" for label, _, share in there)
    spoken = f'role="img" aria-label="{text(name)}: {escape(told or words.NOT_KNOWN)}"'
    view = 'viewBox="0 0 1000 20" preserveAspectRatio="none"'
    return f'<svg class="bar" {spoken} {view}>{"".join(pieces)}</svg>'


def swatch(role: str) -> str:
    """A small square of a role's colour."""
    lines = '<rect width="12" height="12" fill="url(#hatch)"/>' if role in HATCHED else ""
    square = f'<rect class="c-{role}" width="12" height="12"/>'
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 12 12">{square}{lines}</svg>'
