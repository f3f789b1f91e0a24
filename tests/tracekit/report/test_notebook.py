"""Promises of the card that a notebook shows for a run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from tests.tracekit.report.documents import document_of, figures, rank, step
from tracekit.core.errors import Note
from tracekit.report.notebook import Notes, card, notes_of

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m"


class Outline(HTMLParser):
    """Which elements a page has, with their attributes, and its visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element."""
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]
        if tag != "hr":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Each end closes the last open element."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect what a reader sees."""
        self.text += data + " "


def note(code: str, severity: str, text: str = "something") -> dict[str, str]:
    """A note of the document."""
    return {"code": code, "severity": severity, "file": "a.json", "text": text}


def seen(document: dict[str, Any]) -> Outline:
    """The card, checked to be well formed."""
    page = Outline(card(document))
    assert not page.open
    return page


def test_card_tells_what_the_run_is() -> None:
    """Folder, ranks, world size, steps and collectives are told at the top."""
    steps = [step(n, r) for r in (0, 2) for n in (4, 5, 6, 9)]
    page = seen(document_of([rank(0), rank(2)], steps=steps, collectives=[{}, {}]))
    assert "tracekit run /runs/a 2 of 4 ranks (0,2)" in re.sub(r"\s+", " ", page.text)
    assert "4 steps (4-6,9) · 2 collectives · device timeline" in page.text


def test_card_divides_the_summed_time() -> None:
    """The parts of the window stand in a table with times and shares that add up to all."""
    page = seen(document_of([rank(0), rank(1)]))
    words = re.sub(r"\s+", " ", page.text)
    assert "compute 2.000 ms 33.3 % exposed communication: waiting 1.500 ms 25.0 %" in words
    assert "moving bytes 0.500 ms 8.3 % idle 2.000 ms 33.3 % window, all ranks 6.000 ms" in words
    assert "not known" not in words
    assert "other work" not in words
    assert "memory" not in words


def test_bars_are_as_wide_as_the_shares() -> None:
    """Pieces of a bar are as wide as their shares; a rank's bar is as long as its window."""
    page = seen(document_of([rank(0), rank(1, **figures(1500.0))]))
    widths = [
        float(w) for _, style in page.attributes for w in re.findall(r"width:(\d+\.\d+)%", style)
    ]
    assert widths[:4] == [33.33, 25.0, 8.33, 33.33]
    assert {100.0, 50.0} <= set(widths)
    told = [value for key, value in page.attributes if key == "aria-label"]
    assert told[0] == (
        "all ranks: compute 33.3 %, exposed communication: waiting 25.0 %, "
        "exposed communication: moving bytes 8.3 %, idle 33.3 %"
    )


def test_unknown_parts_are_said_in_words() -> None:
    """A part that is not known is not shown as nothing."""
    unknown = dict.fromkeys(("compute_us", "idle_us", "exposed_wait_us", "exposed_transfer_us"))
    page = seen(document_of([rank(0, **unknown)]))
    assert page.text.count("not known") == 4
    empty = seen(document_of([rank(0, **figures(0.0))]))
    assert "no work in this window" in empty.text


def test_other_work_is_told_from_idle_time() -> None:
    """Work of other steps in the window has a row and a piece of its own; the rest is idle."""
    page = seen(document_of([rank(0)], totals=figures(3000.0, other_us=250.0)))
    words = re.sub(r"\s+", " ", page.text)
    assert "other work 0.250 ms 8.3 % idle 0.750 ms 25.0 %" in words
    told = [value for key, value in page.attributes if key == "aria-label"]
    assert told[0].endswith("other work 8.3 %, idle 25.0 %")


def test_card_and_report_round_alike() -> None:
    """Times have the decimals of the longest window, in the card as in the terminal's report."""
    rows = [rank(n, **figures(50_000.0)) for n in range(8)]
    words = re.sub(r"\s+", " ", seen(document_of(rows)).text)
    assert "compute 133.333 ms 33.3 %" in words
    assert "window, all ranks 400.000 ms" in words


def test_only_the_first_ranks_have_bars() -> None:
    """A run of many ranks has a card of bounded length that says how many are left out."""
    page = seen(document_of([rank(n) for n in range(1000)]))
    assert "and 992 more ranks" in page.text
    assert len(card(document_of([rank(n) for n in range(1000)]))) < 20_000


def test_findings_and_notes_stand_below() -> None:
    """The most costly findings come with their worth, notes with how many are like them."""
    finding = {"text": "rank 2 is late", "gain_frac": 0.41}
    second = {"text": "something odd", "gain_frac": None}
    notes = [note("a", "info"), note("a", "info"), note("b", "error", "a file is cut")]
    notes += [note("c", "info"), note("d", "info"), note("e", "info"), note("e", "info")]
    page = seen(document_of([rank(0)], findings=[finding, second], notes=notes))
    words = re.sub(r"\s+", " ", page.text)
    assert (
        "each is the most that mending it alone can bring; they overlap rank 2 is late "
        "(worth at most 41.0 % of the time) something odd error" in words
    )
    alone = seen(document_of([rank(0)], findings=[finding]))
    assert "they overlap" not in alone.text
    assert words.index("error : a file is cut [b]") < words.index("info : something (and 1 more")
    assert "2 more notes in .notes" in words


def test_texts_from_traces_stay_text() -> None:
    """File names and notes of a hostile trace put no element into the page, and run nothing."""
    rows = [rank(0, file=f"/runs/{HOSTILE}.json")]
    finding = {"text": HOSTILE, "gain_frac": 0.5}
    document = document_of(rows, findings=[finding], notes=[note("x", "error", HOSTILE)])
    plain = seen(
        document_of([rank(0)], findings=[{**finding, "text": "x"}], notes=[note("x", "error")])
    )
    page = seen(document)
    assert page.tags == plain.tags
    assert "<script>alert(1)</script>" in page.text
    assert not {"\u202e", "\x1b"} & set(card(document))
    listed = Outline(notes_of(document)._repr_html_())
    assert set(listed.tags) == {"ul", "li", "b", "span"}


def test_card_loads_and_runs_nothing() -> None:
    """The card has no script, no style sheet, no handler and no address."""
    document = document_of([rank(0), rank(1)], notes=[note("a", "info")])
    page = seen(document)
    assert set(page.tags) <= {
        "div", "b", "table", "tr", "td", "span", "ul", "li", "hr", "code",
    }  # fmt: skip
    assert {key for key, _ in page.attributes} <= {"style", "role", "aria-label", "title"}
    assert "url(" not in card(document)
    assert "://" not in card(document)


def test_colours_follow_the_page() -> None:
    """Text and lines take the page's colour; fills are variables with a fallback."""
    page = card(document_of([rank(0)]))
    styles = " ".join(re.findall(r'style="([^"]*)"', page))
    fills = re.findall(r"background:[^;]*", styles)
    assert fills
    assert all(re.search(r"var\(--tracekit-\w+, #[0-9a-f]{6}\)", fill) for fill in fills)
    assert not re.findall(r"(?<![-\w])color:", styles)


def test_notes_show_themselves() -> None:
    """Notes are a list in a notebook and lines elsewhere, without control characters."""
    notes = Notes([Note("cut", "file \x1b[2J is cut", "error", "a")])
    assert repr(notes) == "error: file  [2J is cut [cut]"
    assert Outline(notes._repr_html_()).text.split() == [
        "error",
        ":",
        "file",
        "[2J",
        "is",
        "cut",
        "[cut]",
    ]
    assert "no notes" in Notes()._repr_html_()
