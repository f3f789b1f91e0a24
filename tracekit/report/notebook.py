"""What a notebook shows for a run: a card of its facts, the division of its time, its notes.

Plain HTML with its styles inline: no script, no style sheet, nothing loaded. Colours are CSS
variables (``--tracekit-compute`` and so on) with fallbacks that can be told apart on light and dark
ground and by colour-blind eyes; every colour stands beside a word. Texts from traces are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tracekit.core.errors import Note
from tracekit.report import summary, words
from tracekit.report.frames import frame
from tracekit.report.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

Document = Mapping[str, Any]
Part = tuple[str, str, str, bool]

_COMM = "--tracekit-comm, #ddaa33"
#: what divides the window: words, figure, colour, whether it is hatched
PARTS: tuple[Part, ...] = (
    ("compute", "compute_us", "--tracekit-compute, #4477aa", False),
    ("exposed communication: waiting", "exposed_wait_us", "--tracekit-wait, #ee7733", True),
    ("exposed communication: moving bytes", "exposed_transfer_us", _COMM, False),
    ("exposed communication: waiting or moving not known", "exposed_unknown_us", _COMM, True),
    ("exposed memory copies", "exposed_memory_us", "--tracekit-memory, #aa3377", False),
    ("other work", "other_us", "--tracekit-other, #66ccee", False),
    ("idle", "idle_us", "--tracekit-idle, #999999", False),
)
MAX_BARS, MAX_FINDINGS, MAX_NOTES = 8, 3, 3
_FRAME = (
    "max-width:46em;padding:.6em .9em;border-radius:6px;font-size:13px;"
    "border:1px solid color-mix(in srgb, currentColor 25%, transparent)"
)
_LINE = "border:0;border-top:1px solid color-mix(in srgb, currentColor 20%, transparent)"
_TABLE = "table-layout:auto;margin:.3em 0"  # notebooks have rules of their own for tables
_HATCH = "repeating-linear-gradient(135deg, transparent 0 3px, rgb(0 0 0 / 45%) 3px 5px)"


class Notes(tuple[Note, ...]):
    """Notes of a run, the gravest first; a tuple that a notebook shows as a list."""

    __slots__ = ()

    def to_frame(self) -> pd.DataFrame:
        """The notes as a frame with ``code``, ``severity``, ``file`` and ``text``."""
        return frame((note.as_dict() for note in self), TABLES["notes"])

    def __repr__(self) -> str:
        lines = [f"{note.severity}: {words.safe(note.text)} [{note.code}]" for note in self]
        return "\n".join(lines) or "no notes"

    def _repr_html_(self) -> str:
        return _items([(n.severity, n.text, n.code) for n in self]) or "<div>no notes</div>"


def notes_of(document: Document) -> Notes:
    """The notes of an analysis, the gravest first."""
    made = [Note(n["code"], n["text"], n["severity"], n["file"]) for n in document["notes"]]
    return Notes(sorted(made, key=lambda note: summary.SEVERITIES.index(note.severity)))


def card(document: Document) -> str:
    """The HTML card of an analysis.

    Parameters
    ----------
    document : mapping
        As `tracekit.report.document.document` makes it.
    """
    return (
        f'<div style="{_FRAME}"><div><b>tracekit run</b> {_text(_title(document), 200)}</div>'
        f'<div style="opacity:.8">{_text(_facts(document), 400)}</div>'
        f"{_division(document)}{_rank_bars(document)}{_findings(document)}{_notes(document)}</div>"
    )


def _text(text: object, limit: int = 600) -> str:
    return escape(words.safe(text, limit))


def _title(document: Document) -> str:
    """The one file, or what holds all."""
    files = sorted({str(row["file"]) for row in document["ranks"]})
    return summary.where(files) or words.counted(len(files), "file")


def _facts(document: Document) -> str:
    rows = document["ranks"]
    size = max((r["world_size"] for r in rows if r["world_size"]), default=None)
    there = words.number_list(r["rank"] for r in rows)
    of = f" of {size:,}" if size else ""
    noun = "rank" if len(rows) == 1 and not of else "ranks"
    steps = sorted({r["step"] for r in document["steps"]})
    counted = f"{words.counted(len(steps), 'step')} ({words.number_list(steps)})"
    told = counted if steps else "no steps marked"
    kinds = " and ".join(sorted({r["timeline"] for r in rows}))
    collectives = words.counted(len(document["collectives"]), "collective")
    return f"{len(rows):,}{of} {noun} ({there}) · {told} · {collectives} · {kinds} timeline"


# -- the division of the time -----------------------------------------------------------------


def _division(document: Document) -> str:
    """A bar and a table of what the time of all ranks went to."""
    totals = summary.divided(document["totals"])
    window = totals.get("window_us")
    if not window:
        return "<div>no work in this window</div>"
    digits = words.decimals(summary.longest_window_us(document["ranks"]))
    lines = [_line(part, totals, digits) for part in PARTS if totals.get(part[1]) != 0]
    name = '<td style="text-align:left">window, all ranks</td>'
    lines.append(f"<tr>{name}{_cell(words.ms(window, digits) + ' ms')}<td></td></tr>")
    table = f'<table style="{_TABLE}">{"".join(lines)}</table>'
    return _bar(totals, "all ranks", "1.1em") + table


def _line(part: Part, totals: Document, digits: int) -> str:
    label, key, colour, hatched = part
    value = totals.get(key)
    share = words.percent(words.fraction(value, totals["window_us"]), unknown="")
    square = "display:inline-block;width:.8em;height:.8em"
    swatch = f'<span style="{square};{_fill(colour, hatched)}"></span>'
    amount = words.ms(value, digits)
    amount += " ms" if value is not None else ""
    first = f'<td style="text-align:left">{swatch} {label}</td>'
    return f"<tr>{first}{_cell(amount)}{_cell(share)}</tr>"


def _cell(text: str) -> str:
    style = "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
    return f'<td style="{style}">{escape(text)}</td>'


def _fill(colour: str, hatched: bool) -> str:
    hatch = f"{_HATCH}, " if hatched else ""
    return f"background:{hatch}var({colour})"


def _bar(figures: Document, label: str, height: str) -> str:
    """One stacked bar; a picture with its figures in words for those who cannot see it."""
    window = figures["window_us"]
    shares = [(p, words.fraction(figures.get(p[1]), window) or 0.0) for p in PARTS]
    there = [(p, share) for p, share in shares if share]
    pieces = "".join(
        f'<div style="width:{100 * share:.2f}%;{_fill(p[2], p[3])}"></div>' for p, share in there
    )
    told = ", ".join(f"{p[0]} {words.percent(share)}" for p, share in there) or words.NOT_KNOWN
    style = f"display:flex;height:{height};margin:.3em 0;border-radius:2px;overflow:hidden"
    spoken = f'role="img" aria-label="{label}: {told}" title="{told}"'
    return f'<div {spoken} style="{style}">{pieces}</div>'


def _rank_bars(document: Document) -> str:
    """A thin bar for each of the first ranks, as long as its window."""
    rows = [summary.divided(r) for r in document["ranks"] if r["window_us"]]
    if len(rows) < 2:
        return ""
    longest = summary.longest_window_us(rows) or 0.0
    digits = words.decimals(longest)
    lines = []
    for row in rows[:MAX_BARS]:
        bar = _bar(row, f"rank {row['rank']}", ".7em")
        share = 100 * row["window_us"] / longest
        lines.append(
            f'<tr><td style="white-space:nowrap">rank {row["rank"]}</td>'
            f'<td style="width:100%"><div style="width:{share:.2f}%">{bar}</div></td>'
            f"{_cell(words.ms(row['window_us'], digits) + ' ms')}</tr>"
        )
    more = len(rows) - MAX_BARS
    rest = f"<div>and {words.counted(more, 'more rank')}</div>" if more > 0 else ""
    return f'<table style="width:100%;{_TABLE}">{"".join(lines)}</table>{rest}'


# -- findings and notes -----------------------------------------------------------------------


def _findings(document: Document) -> str:
    """What stands out, the most costly first."""
    found = document["findings"][:MAX_FINDINGS]
    head = f'<div style="opacity:.8">{summary.EACH_ALONE}</div>' if len(found) > 1 else ""
    return head + _list("".join(f"<li>{_text(f['text'])}{_worth(f)}</li>" for f in found))


def _worth(finding: Document) -> str:
    worth = summary.worth(finding)
    return f" <b>({worth})</b>" if worth else ""


def _notes(document: Document) -> str:
    """The gravest notes, one of each kind."""
    kinds = summary.notes(document["notes"])
    if not kinds:
        return ""
    shown = kinds[:MAX_NOTES]
    rest = len(document["notes"]) - sum(kind.count for kind in shown)
    more = f"<div>{words.counted(rest, 'more note')} in <code>.notes</code></div>" if rest else ""
    return f'<hr style="{_LINE}">{_items([_counted(kind) for kind in shown])}{more}'


def _counted(kind: summary.NoteGroup) -> tuple[str, str, str]:
    """The first note of a kind, and how many more there are like it."""
    more = f" (and {kind.count - 1:,} more like it)" if kind.count > 1 else ""
    return kind.severity, kind.text + more, kind.code


def _items(notes: Sequence[tuple[str, str, str]]) -> str:
    """A list of notes, each (severity, text, code)."""
    return _list(
        "".join(
            f"<li><b>{escape(severity)}</b>: {_text(text)} "
            f'<span style="opacity:.7">[{_text(code, 60)}]</span></li>'
            for severity, text, code in notes
        )
    )


def _list(items: str) -> str:
    return f'<ul style="margin:.3em 0;padding-left:1.4em">{items}</ul>' if items else ""
