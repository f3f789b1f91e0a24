"""The offline report in a browser, from a file, with the network watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lanes_host import Watched, chromium, served, watched
from tests.tracekit.report.test_html import HOSTILE, two_ranks
from tracekit.model.run import open_run
from tracekit.plot.timeline import Timeline
from tracekit.report.document import document
from tracekit.report.html import write_report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of this file."""
    with chromium() as found:
        yield found


@pytest.fixture
def report(browser: Any, tmp_path: Path) -> Iterator[Watched]:
    """A report with hostile names, opened from its file; it must not complain or ask for more."""
    file = write_report(two_ranks(HOSTILE, steps=3), tmp_path / "report.html")
    with watched(browser) as made:
        made.open(file.as_uri())
        yield made
        assert made.complaints == []
        loaded = [url for url in made.requests if not url.startswith("blob:")]
        assert loaded == [file.as_uri()]
        assert made.page.evaluate("window.hacked") is None
        assert made.page.locator("img").count() == 0


def test_the_timeline_works_from_a_file(report: Watched) -> None:
    """Search, patterns in a worker, details and flows need no server."""
    report.page.evaluate("timeline.search('allreduce')")
    assert report.text(".told") == "6 hits"
    report.page.evaluate("timeline.search('^opt.m', true)")
    assert report.text(".told") == "6 hits"
    report.page.evaluate("timeline.search('allreduce')")
    report.keys(".")
    assert "the same collective on 2 ranks" in report.text(".below")
    assert "waited 100.000 µs" in report.text(".below")


def test_patterns_that_take_for_ever_are_ended(report: Watched) -> None:
    """A pattern that backtracks without end is given up, and the page goes on."""
    report.page.evaluate("timeline.search('(([^!]+)+)+!', true)")
    assert report.text(".told") == "this pattern takes too long"
    report.page.evaluate("timeline.search('optimizer')")
    assert report.text(".told") == "6 hits"


def test_the_heat_map_tells_the_figures_and_leads_to_the_step(report: Watched) -> None:
    """Arrow keys go from cell to cell, each with the API's figure; Enter looks at that step."""
    rows = {(r["rank"], r["step"]): r for r in document(two_ranks(HOSTILE, steps=3))["steps"]}
    report.page.locator("#map").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        report.page.keyboard.press(key)
    window = rows[1, 2]["window_us"] / 1000
    assert report.text("#cell") == f"rank 1, step 2: time of the step's work {window:.3f} ms"
    report.page.locator("#figure").select_option("exposed_wait_us")
    wait = rows[1, 2]["exposed_wait_us"] / 1000
    assert report.text("#cell").endswith(f" {wait:.3f} ms")
    report.page.keyboard.press("Tab")
    report.page.locator("#map").focus()
    report.page.keyboard.press("Enter")
    report.settle()
    state = report.state()
    assert (state["t0"], state["t1"]) == pytest.approx((1.96e6, 3.02e6), rel=0.01)


def test_the_heat_map_has_a_table(report: Watched) -> None:
    """The same figures stand in a table for those who do not see the map."""
    report.page.locator("#cells summary").click()
    report.page.locator("#cells tbody tr").first.wait_for()
    lines = report.page.locator("#cells tbody tr").all_inner_texts()
    rows = document(two_ranks(HOSTILE, steps=3))["steps"]
    for rank in (0, 1):
        own = [f"{r['window_us'] / 1000:.3f}" for r in rows if r["rank"] == rank]
        assert lines[rank].split("\t") == [f"rank {rank}", *own]


def test_the_theme_can_be_turned(report: Watched) -> None:
    """The button turns light into dark for page, heat-map and timeline."""
    ground = "getComputedStyle(document.body).backgroundColor"
    before = report.page.evaluate(ground)
    report.page.locator("#theme").click()
    report.settle()
    assert (before, report.page.evaluate(ground)) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    inside = report.page.evaluate(
        "getComputedStyle(document.querySelector('#lanes').shadowRoot.querySelector('.tk'))"
        ".backgroundColor"
    )
    assert inside == "rgb(20, 23, 28)"


@pytest.mark.parametrize("case", ["58-markup-in-kernel-names", "62-prototype-keys"])
def test_hostile_cases_do_nothing(browser: Any, corpus: Path, tmp_path: Path, case: str) -> None:
    """Markup and prototype keys of the corpus open no box, pollute nothing, and break nothing."""
    run = open_run([str(corpus / "cases" / case)])
    file = write_report(run, tmp_path / "report.html")
    rank, row = run.ranks[0], 0
    with watched(browser) as page, served(Timeline(run)) as live:
        page.page.on("dialog", lambda d: (page.complaints.append(d.message), d.dismiss()))
        for url in (file.as_uri(), live):
            page.open(url)
            page.page.evaluate("timeline.search('a')")
            page.keys("t", "ArrowRight", "ArrowRight")
            page.page.evaluate(f"timeline.select({rank}, {row})")
            page.settle()
            assert page.page.evaluate("({}).polluted === undefined")
        assert page.complaints == []
