"""The few shapes the text report is drawn with: headings, tables and bars that fit any terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE, Box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.report import words

#: the rule under the heads, in characters every encoding has
ASCII_RULE = Box("    \n    \n -- \n    \n    \n -- \n    \n    \n", ascii=True)
#: from this width on tables show more columns and decimals
ROOMY_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Look:
    """What the drawing needs to know of the terminal and of the figures' size.

    Attributes
    ----------
    width : int
        Characters per line.
    is_utf : bool
        Whether the output can hold more than ASCII.
    digits : int
        Decimals of a figure in milliseconds.
    """

    width: int
    is_utf: bool
    digits: int

    @classmethod
    def of(cls, console: Console, window_us: float | None) -> Look:
        """The look for ``console`` when the longest window lasts ``window_us``."""
        return cls(
            width=console.width,
            is_utf=console.encoding.lower().startswith("utf"),
            digits=words.decimals(window_us),
        )

    def ms(self, value_us: float | None, unknown: str = words.NOT_KNOWN) -> str:
        """Microseconds as milliseconds with this report's decimals."""
        return words.ms(value_us, self.digits, unknown)

    def at_least(self, text: str) -> str:
        """A figure's text, marked as a lower bound."""
        return f"{self.bound_mark} {text}"

    @property
    def bound_mark(self) -> str:
        """The sign for a lower bound."""
        return "\N{GREATER-THAN OR EQUAL TO}" if self.is_utf else ">="

    @property
    def plus_minus(self) -> str:
        """The sign before a scatter."""
        return "\N{PLUS-MINUS SIGN}" if self.is_utf else "+-"

    @property
    def is_roomy(self) -> bool:
        """Whether there is room for more columns and decimals than a table needs."""
        return self.width >= ROOMY_WIDTH


def put(parts: Iterable[RenderableType], console: Console) -> None:
    """Print ``parts`` on ``console`` as they are; a pipe or a file gets no trailing blanks."""
    if console.is_terminal:
        for part in parts:
            console.print(part, markup=False, highlight=False, emoji=False)
        return
    with console.capture() as caught:
        for part in parts:
            console.print(part, markup=False, highlight=False, emoji=False)
    console.file.writelines(f"{line.rstrip()}\n" for line in caught.get().split("\n")[:-1])


def heading(text: str, remark: str = "") -> Iterable[RenderableType]:
    """An empty line, then the section's title with a fainter remark in brackets."""
    yield Text()
    title = Text(text, style="bold")
    if remark:
        title.append(f" ({remark})", style="not bold dim")
    yield title


def remark(text: str) -> Text:
    """A faint line under a table."""
    return Text(text, style="dim")


def fits(look: Look, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
    """Whether a table of these cells fits the line without cutting any."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1) <= look.width


def table(
    look: Look,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    foot: Sequence[str] = (),
) -> Table:
    """A borderless table: the first ``left`` columns are texts, the others figures.

    Parameters
    ----------
    heads, foot : sequence of str
        One text per column; an empty ``foot`` draws none.
    rows : iterable of sequence of str
        Cells, taken as plain text whatever they hold.
    """
    made = Table(
        box=SIMPLE if look.is_utf else ASCII_RULE,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_footer=bool(foot),
        header_style="",
    )
    for i, head in enumerate(heads):
        name = Text(head, style="bold")
        end: Any = Text(foot[i], style="bold") if foot else ""
        made.add_column(
            name,
            end,
            justify="left" if i < left else "right",
            overflow="fold" if i < left else "ellipsis",
        )
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def bar(look: Look, fraction: float | None, style: str, width: int) -> Text:
    """A bar of ``fraction`` of ``width`` characters, to an eighth where it can be drawn."""
    if fraction is None or fraction <= 0:
        return Text()
    full, eighths = divmod(round(8 * width * min(fraction, 1.0)), 8)
    if not look.is_utf:
        return Text("#" * (full + (eighths >= 4)), style=style)
    end = chr(ord("\N{FULL BLOCK}") + 8 - eighths) if eighths else ""
    return Text("\N{FULL BLOCK}" * full + end, style=style)
