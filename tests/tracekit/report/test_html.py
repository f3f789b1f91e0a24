"""The offline report: one file, no network, the figures of the analysis, texts that stay texts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tests.tracekit.plot.blocks import read
from tests.tracekit.report.documents import document_of, rank, step
from tracekit.core.errors import TracekitError, UsageError
from tracekit.model.run import TraceSet, open_run
from tracekit.plot.lanes import DRAWN
from tracekit.report import html, html_parts, words
from tracekit.report.document import document
from tracekit.report.html import report_page, write_report

HOSTILE = "</script><img src=x onerror=alert(1)>"
ROOT = Path(__file__).parents[3]


class Elements(HTMLParser):
    """The elements of a page and its texts outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        del tag
        self._inside = ""

    def handle_data(self, data: str) -> None:
        """Keep a text that is shown."""
        if not self._inside:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All texts shown, in one line."""
        return " ".join(" ".join(self.texts).split())


def two_ranks(name: str = "gemm", steps: int = 2) -> TraceSet:
    """Two ranks with steps of 1 ms; rank 1 comes 100 µs late to each step's all-reduce."""
    files = []
    for number, late in ((0, 0), (1, 100)):
        made = Kineto(number, 2)
        for n in range(steps):
            at = 1000 * n
            made.step(n, at, at + 1000)
            made.kernel(at + 10, at + 500, name, launched=at + 5)
            given = collective(elems=256, seq=n, desc=f"axis {name}"[:60])
            made.comm(at + 500 + late, at + 800, ALL_REDUCE, **given)
            made.kernel(at + 800, at + 900, "optimizer", launched=at + 700)
        files.append(made)
    return run_of(*files)


def unpacked(page: str, name: str) -> bytes:
    """What the page carries for its scripts."""
    found = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', page)
    assert found
    return zlib.decompress(base64.b64decode(found[1]), -15)


def test_figures_are_those_of_the_analysis() -> None:
    """Every part of the window, every rank's figures and the exposed share stand in the page."""
    run = two_ranks()
    made = document(run)
    shown = Elements(report_page(run)).text
    totals = made["totals"]
    for key in ("compute_us", "exposed_wait_us", "exposed_transfer_us", "idle_us", "window_us"):
        assert f"{words.ms(totals[key])} ms" in shown
    for row in made["ranks"]:
        own = " ".join(
            f"{words.ms(row[k])} ms"
            for k in ("window_us", "compute_us", "exposed_wait_us", "exposed_transfer_us")
        )
        assert f"rank {row['rank']} compute" in shown
        assert own in shown
    share = words.percent(totals["exposed_comm_us"] / totals["window_us"])
    assert f"{share} of the time is exposed communication" in shown


def test_who_is_late_is_said_first() -> None:
    """The first part names the rank that arrives last, how often and how late (2 × 100 µs)."""
    shown = Elements(report_page(two_ranks())).text
    told = "Rank 1 costs the others most: it arrives last at 2 of 2 collectives, in sum 0.200 ms"
    assert told in shown


def test_heat_map_holds_the_figures_of_the_steps() -> None:
    """Each cell is the API's figure of that rank and step, and knows where the step lies."""
    run = two_ranks(steps=3)
    data = json.loads(unpacked(report_page(run), "data"))
    heat = data["heat"]
    assert (heat["ranks"], heat["steps"]) == ([0, 1], [0, 1, 2])
    for row in document(run)["steps"]:
        at = row["rank"] * 3 + row["step"]
        for key in ("window_us", "exposed_wait_us", "overlap_frac", "lead_us"):
            assert heat["values"][key][at] == row[key]
        begin = 1_000_000 * row["step"] - 10_000  # the first work is at 10 µs
        assert heat["spans"][at] == [begin, begin + 1_000_000]


def test_timeline_holds_all_events_and_their_collectives() -> None:
    """A small run is there whole, and each member of a collective leads to all others."""
    page = report_page(two_ranks())
    block = read(unpacked(page, "block"), DRAWN)
    data = json.loads(unpacked(page, "data"))
    assert data["outline"]["thinned"] == ""
    rows = {(e.rank, e.row): e for e in block.events() if e.name == ALL_REDUCE}
    assert {(r, row) for r, row, _ in data["owners"]} == set(rows)
    for number, row, which in data["owners"]:
        members = data["collectives"][which]["members"]
        assert [m["rank"] for m in members] == [0, 1]
        assert rows[number, row].start == members[number]["start"]


def test_large_timelines_are_thinned_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget the longest events stay, and a line says how many and how short."""
    made = Kineto(0, 1)
    for i in range(400):
        made.kernel(20 * i, 20 * i + 1 + i % 17, f"k{i}")
    monkeypatch.setattr(html, "MAX_EVENTS", 60)
    page = report_page(run_of(made))
    block = read(unpacked(page, "block"), DRAWN)
    assert len(block.columns["start"]) == 60
    told = f"This file holds the {len(block.events())} longest of 400 events; the others, of at "
    assert f"{told}most 17.0 µs, are drawn as shade." in Elements(page).text
    monkeypatch.setattr(html, "BUDGET_BYTES", 1200)
    smaller = report_page(run_of(made))
    held = re.search(r'id="block">([^<]*)<', smaller)
    assert held
    assert len(held[1]) <= 1200 or len(read(unpacked(smaller, "block"), DRAWN).events()) == 0


def test_the_page_asks_no_network() -> None:
    """No element loads anything, and the policy allows only this file's own scripts and styles."""
    page = report_page(two_ranks())
    elements = Elements(page)
    for tag, given in elements.tags:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form", "video")
        assert not {"src", "style", "action", "data"} & given.keys()
        assert not any(key.startswith("on") for key in given)
        assert (given.get("href") or "#").startswith("#")
    (policy,) = (g["content"] or "" for t, g in elements.tags if t == "meta" and "http-equiv" in g)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == rules["img-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (code,) = re.findall(rf'<{tag}(?: type="module")?>(.*?)</{tag}>', page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


@pytest.mark.parametrize("name", [HOSTILE, "__proto__", "constructor", '" onload="x', "{{7*7}}"])
def test_hostile_names_stay_texts(name: str) -> None:
    """A name of a kernel or group adds no element, and stands in the page as it is."""
    page = report_page(two_ranks(name))
    plain = report_page(two_ranks("gemm"))
    kinds = [tag for tag, _ in Elements(page).tags]
    assert kinds == [tag for tag, _ in Elements(plain).tags]
    assert name in unescape(Elements(page).text)
    block = read(unpacked(page, "block"), DRAWN)
    assert name in {e.name for e in block.events()}


def test_every_hostile_text_of_an_analysis_is_escaped() -> None:
    """Notes, findings, groups, operations and files of an analysis are texts too."""
    bad = {"severity": "warning", "code": HOSTILE, "file": HOSTILE, "text": HOSTILE}
    group = {"group": HOSTILE, "desc": HOSTILE, "axis": None, "size": 2, "ranks": [0, 1]}
    sums = {"comm_us": 9.0, "exposed_share_us": 5.0, "overlap_us": 4.0}
    coll = {"op": HOSTILE, **group, "bytes": 4, "match": "seq", "duration_us": {"0": 1.0}}
    made = document_of(
        [rank(0, file=HOSTILE), rank(1)],
        steps=[step(0, 0)],
        groups=[{**group, **sums, "rank": 0}],
        collectives=[{**coll, "wait_us": {"0": 0.0}, "transfer_us": 1.0, "edge": False}],
        findings=[{"code": HOSTILE, "severity": "warning", "text": HOSTILE, "gain_frac": 0.1}],
        notes=[bad],
        kernels=[{"role": HOSTILE, "name": HOSTILE, "count": 1, "total_us": 3.0}],
        stragglers=[{"rank": 1, "num_last": 1, "num_matched": 2, "late_us": 3.0}],
    )
    page = report_page(two_ranks(), made)
    assert "img" not in [tag for tag, _ in Elements(page).tags]
    assert page.count("x onerror") == page.count("&lt;/script&gt;&lt;img src=x onerror")
    assert page.count("x onerror") >= 8


def test_what_is_not_known_is_said() -> None:
    """Figures a trace cannot tell stand as words, never as 0 or None."""
    gone = dict.fromkeys(("exposed_comm_us", "exposed_wait_us", "exposed_transfer_us"), None)
    made = document_of([rank(0, **gone, overlap_frac=None)])
    shown = Elements(html_parts.overview(made) + html_parts.ranks(made)).text
    assert "cannot be told from these traces" in shown
    assert "not known" in shown
    assert "None" not in shown


def test_trend_over_steps_is_told() -> None:
    """Steps that get a fifth longer from the first third to the last are said to."""
    rows = [step(n, 0, period_us=1000.0 if n < 7 else 1200.0) for n in range(10)]
    made = document_of([rank(0)], steps=rows)
    assert "Steps get longer: the last third by 20.0 %" in html_parts.overview(made)
    made["steps"] = [step(n, 0, period_us=1000.0) for n in range(10)]
    assert "Steps stay as long as they were" in html_parts.overview(made)


def test_an_empty_window_is_a_page_too() -> None:
    """A trace without work gives a page that says so."""
    run = run_of(Kineto(0, 1).kernel(9, 3, "ends before it starts"))
    assert "There is no work in this window" in Elements(report_page(run)).text


def test_eight_real_ranks_stay_small(corpus: Path) -> None:
    """Eight ranks of a real job make a file under 3 MB that holds each of their events."""
    run = open_run([str(corpus / "traces" / "lightllm_logs")])
    page = report_page(run)
    assert len(page.encode()) < 3_000_000
    assert json.loads(unpacked(page, "data"))["outline"]["thinned"] == ""


def test_a_report_is_written_whole_and_only_over_its_like(tmp_path: Path) -> None:
    """Folders are made, a report is replaced, and any other file is left as it is."""
    run = two_ranks()
    out = tmp_path / "new" / "report.html"
    assert write_report(run, out) == out
    first = out.read_bytes()
    assert write_report(run, out).read_bytes() == first
    assert [f.name for f in out.parent.iterdir()] == ["report.html"]
    trace = tmp_path / "rank0.json"
    trace.write_text("{}")
    with pytest.raises(UsageError, match="exists and is no report of tracekit"):
        write_report(run, trace)
    assert trace.read_text() == "{}"
    with pytest.raises(UsageError, match="a folder, where a report is one file"):
        write_report(run, tmp_path)


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A place that is no folder ends in an error that names the file and the way out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TracekitError, match=r"report\.html: cannot be written .*give another"):
        write_report(two_ranks(), tmp_path / "file" / "report.html")


def page_of_sample(name: str) -> tuple[dict[str, Any], str]:
    """The analysis and the report of a sample in this repository."""
    run = open_run([str(ROOT / "sample_traces" / name)])
    return document(run), Elements(report_page(run)).text


def test_a_sample_names_its_axes() -> None:
    """The report of the tensor-parallel sample has a row for each axis, with the API's sums."""
    made, shown = page_of_sample("tp_2x2")
    for axis in ("x", "y"):
        comm_us = sum(row["comm_us"] for row in made["groups"] if row["axis"] == axis)
        assert re.search(rf" {axis} 2 2 {words.ms(comm_us)} ms ", shown)
