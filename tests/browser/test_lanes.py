"""The timeline in a browser: what it draws, and what keys and pointer do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.lanes_host import Watched, chromium, served, watched
from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tracekit.model.run import TraceSet
from tracekit.plot.palette import ROLES
from tracekit.plot.timeline import Timeline

HOSTILE = '"><img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'


def two_ranks() -> TraceSet:
    """Two ranks of 1 ms; rank 1 comes 5 µs late to each of three all-reduces (times in µs)."""
    files = []
    for rank, late in ((0, 0), (1, 5)):
        made = Kineto(rank, 2, baseTimeNanoseconds=1_700_000_000_000_000_000)
        made.step(7, 0, 1000).op(5, 400, "aten::linear").op(10, 300, "aten::mm")
        made.kernel(0, 60, "gemm", launched=1).kernel(500, 960, "second_gemm", launched=20)
        made.kernel(970, 1000, HOSTILE).kernel(60, 90, "__proto__")
        for n in range(3):
            at = 100 * (n + 1)
            made.comm(at + late, at + 50, ALL_REDUCE, **collective(elems=256, seq=n))
        files.append(made)
    return run_of(*files)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of this file."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A page that shows the two ranks."""
    with served(Timeline(two_ranks())) as url:
        yield url


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Watched]:
    """The page, opened; at the end it must not have complained."""
    with watched(browser) as made:
        made.open(address)
        yield made
        assert made.complaints == []


def colour_at(page: Watched, x_ns: float, row: str) -> tuple[int, int, int]:
    """The colour drawn at a time, in the middle of the row that a label names."""
    return tuple(
        page.page.evaluate(
            """([t, label]) => {
              const root = document.getElementById("lanes").shadowRoot;
              const canvas = root.querySelector("canvas.plot");
              const labels = [...root.querySelectorAll(".labels > *")];
              const beside = labels.find((l) => l.textContent.includes(label));
              const found = beside.getBoundingClientRect();
              const box = canvas.getBoundingClientRect();
              const { t0, t1 } = timeline.state();
              const ratio = canvas.width / box.width;
              const x = ((t - t0) / (t1 - t0)) * box.width * ratio;
              const y = (found.top + found.height / 2 - box.top) * ratio;
              return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data.slice(0, 3)];
            }""",
            [x_ns, row],
        )
    )


def rgb(colour: str) -> tuple[int, int, int]:
    """The parts of ``#rrggbb``."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def test_kernels_have_the_colour_of_their_role(page: Watched) -> None:
    """Compute is drawn on its stream in the palette's colour, and nothing where nothing ran."""
    assert colour_at(page, 945_000, "stream 7") == rgb(ROLES["compute"].light)
    assert colour_at(page, 450_000, "stream 7") == (255, 255, 255)
    assert colour_at(page, 20_000, "stream 20") == (255, 255, 255)


def test_wheel_zooms_at_the_cursor(page: Watched) -> None:
    """The time under the cursor stays where it is while the wheel zooms."""
    box = page.page.locator("canvas.plot").bounding_box()
    x = box["x"] + 0.25 * box["width"]
    before = page.state()
    page.page.mouse.move(x, box["y"] + 20)
    page.page.mouse.wheel(0, -400)
    page.settle()
    after = page.state()
    span, narrower = before["t1"] - before["t0"], after["t1"] - after["t0"]
    assert narrower < 0.7 * span
    assert after["t0"] + 0.25 * narrower == pytest.approx(
        before["t0"] + 0.25 * span, abs=span / 500
    )


def test_keys_zoom_move_and_fit(page: Watched) -> None:
    """W narrows the view, D moves it later, 0 shows everything again."""
    first = page.state()
    page.keys("w", "w")
    near = page.state()
    assert near["t1"] - near["t0"] == pytest.approx((first["t1"] - first["t0"]) / 1.35**2)
    page.keys("d")
    assert page.state()["t0"] == pytest.approx(near["t0"] + 0.2 * (near["t1"] - near["t0"]))
    page.keys("0")
    assert page.state() == first


def test_drag_moves_and_shift_measures(page: Watched) -> None:
    """Dragging moves the view by as much; with shift it measures that stretch instead."""
    box = page.page.locator("canvas.plot").bounding_box()
    mouse = page.page.mouse
    before = page.state()
    per_px = (before["t1"] - before["t0"]) / box["width"]

    def dragged() -> None:
        mouse.move(box["x"] + 500, box["y"] + 300)
        mouse.down()
        mouse.move(box["x"] + 450, box["y"] + 300)
        mouse.move(box["x"] + 400, box["y"] + 300)
        mouse.up()
        page.settle()

    page.page.keyboard.down("Shift")
    dragged()
    page.page.keyboard.up("Shift")
    measured = page.state()
    assert measured["t0"] == before["t0"]
    length = measured["measure"]["t1"] - measured["measure"]["t0"]
    assert length == pytest.approx(100 * per_px, abs=2)
    assert page.text(".bar").count("measured") == 1
    page.keys("Escape")
    assert page.state()["measure"] is None
    dragged()
    assert page.state()["t0"] == pytest.approx(before["t0"] + 100 * per_px)


def test_search_counts_and_visits_hits(page: Watched) -> None:
    """``/`` searches, the count is the API's, ``.`` and ``,`` go from hit to hit."""
    page.keys("/")
    page.page.keyboard.type("allreduce")
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.text(".told") == f"1 of {Timeline(two_ranks()).search('allreduce')['total']} hits"
    first = page.state()["selected"]
    assert ALL_REDUCE in page.text(".below")
    page.keys(".")
    assert page.text(".told") == "2 of 6 hits"
    assert page.state()["selected"] != first
    page.keys(",")
    assert page.state()["selected"] == first


def test_bad_patterns_are_told_beside_the_search(page: Watched) -> None:
    """A pattern that is none is said to be none, in a line, and nothing breaks."""
    page.page.evaluate("timeline.search('(', true)")
    assert "is no pattern" in page.text(".told")
    page.complaints.clear()  # the browser itself notes the status 400


def test_details_are_those_of_the_api(page: Watched) -> None:
    """Every fact and argument that the API tells of an event stands on the screen."""
    timeline = Timeline(two_ranks())
    rank, row, *_ = timeline.search("second_gemm")["hits"][0]
    page.page.evaluate(f"timeline.select({rank}, {row})")
    page.settle()
    told = timeline.event(rank, row)
    shown = page.text(".below")
    assert told["launch"]["name"] in shown
    for label, value in told["facts"]:
        assert f"{label}\t{value}" in shown


def test_a_flow_shows_who_waited(page: Watched) -> None:
    """The collective of a selected event lists its members, and leads to each of them."""
    timeline = Timeline(two_ranks())
    rank, row, *_ = timeline.search("allreduce")["hits"][0]
    page.page.evaluate(f"timeline.select({rank}, {row})")
    page.settle()
    shown = page.text(".below")
    assert "the same collective on 2 ranks" in shown
    assert "waited 5.000 µs" in shown
    page.page.get_by_role("button", name="rank 1", exact=True).last.click()
    page.settle()
    assert page.state()["selected"]["rank"] == 1


def test_ranks_close_and_open_by_keyboard(page: Watched) -> None:
    """A rank's button hides its lanes and shows them again, by Enter as by a click."""
    label = page.page.locator("button.rank").first
    assert label.get_attribute("aria-expanded") == "true"
    lanes = page.page.locator(".labels > *").count()
    label.focus()
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.page.locator("button.rank").first.get_attribute("aria-expanded") == "false"
    assert page.page.locator(".labels > *").count() < lanes
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.page.locator(".labels > *").count() == lanes


def test_arrow_keys_walk_through_events(page: Watched) -> None:
    """Left and right go along a row, up and down to other rows; each is told to screen readers."""
    timeline = Timeline(two_ranks())
    rank, row, *_ = next(h for h in timeline.search("gemm")["hits"] if h[0] == 0)
    page.page.evaluate(f"timeline.select({rank}, {row})")
    page.settle()
    page.keys("ArrowRight")
    assert page.text(".sr").startswith("__proto__, compute, 30.000 µs")
    page.keys("ArrowRight")
    assert page.text(".sr").startswith("second_gemm")
    page.keys("ArrowDown")
    assert "stream 20" in page.text(".sr")


def test_the_table_lists_what_is_in_view(page: Watched) -> None:
    """The table twin holds every event in view with the figures of the API, and selects them."""
    page.keys("t")
    assert "in view, by start" in page.text(".twin caption")
    cells = page.page.locator(".twin tbody tr").all_inner_texts()
    wanted = [f"0\tstream 7\tsecond_gemm\t{500 - 0:.3f}\t460.000\tcompute"]
    assert set(wanted) <= set(cells)
    page.page.locator(".twin button", has_text="second_gemm").first.click()
    page.settle()
    assert "second_gemm" in page.text(".below")


def test_hostile_names_do_nothing(page: Watched) -> None:
    """Markup in a name is text in details, table and tip, and no script of it runs."""
    rank, row, *_ = Timeline(two_ranks()).search("onerror")["hits"][0]
    page.keys("t")
    page.page.evaluate(f"timeline.select({rank}, {row})")
    page.settle()
    assert HOSTILE in page.text(".below")
    assert HOSTILE in page.text(".twin")
    assert page.page.evaluate("window.hacked") is None
    assert page.page.locator("img").count() == 0


def test_help_lists_the_keys(page: Watched) -> None:
    """``?`` opens the help, Escape closes it."""
    page.keys("?")
    assert page.page.locator("dialog").is_visible()
    assert "Shift+drag" in page.text("dialog")
    page.page.keyboard.press("Escape")
    assert not page.page.locator("dialog").is_visible()


def test_dark_follows_the_system(browser: Any, address: str) -> None:
    """Where the system is dark the same kernel has the dark colour, on dark ground."""
    with watched(browser, color_scheme="dark", device_scale_factor=2) as page:
        page.open(address)
        assert colour_at(page, 945_000, "stream 7") == rgb(ROLES["compute"].dark)
        page.page.evaluate("timeline.setTheme('light')")
        page.settle()
        assert colour_at(page, 945_000, "stream 7") == rgb(ROLES["compute"].light)
        assert page.complaints == []


def test_a_dense_lane_is_shaded_by_how_busy_it_is(browser: Any) -> None:
    """Where thousands of kernels share a pixel, a lane half busy is paler than one always busy."""
    made = Kineto(0, 1, unit_ns=1)
    for i in range(20_000):
        made.kernel(100 * i, 100 * i + 50, "half", stream=1)
        made.kernel(100 * i, 100 * i + 100, "full", stream=2)
    with served(Timeline(run_of(made))) as url, watched(browser) as page:
        page.open(url)
        half = colour_at(page, 1_000_000, "stream 1")
        full = colour_at(page, 1_000_000, "stream 2")
        assert page.complaints == []
    paint = rgb(ROLES["compute"].light)
    assert full == paint
    shade = 0.14 + 0.86 * 0.5
    assert half == pytest.approx([255 + (c - 255) * shade for c in paint], abs=8)


def test_far_away_detail_is_fetched_when_it_is_looked_at(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a lane too long to be listed, what is zoomed into is fetched and drawn event by event."""
    made = Kineto(0, 1, unit_ns=1)
    for i in range(3000):
        made.kernel(1000 * i, 1000 * i + 400 + i % 7, f"k{i}", stream=1)
    timeline = Timeline(run_of(made))
    monkeypatch.setattr("tracekit.plot.timeline.MAX_LISTED", 100)
    with served(timeline) as url, watched(browser) as page:
        page.open(url)
        page.keys("t")
        assert page.text(".twin caption").endswith("zoom in to list them.")
        page.page.evaluate("timeline.view(1_500_000, 1_505_000)")
        page.settle()
        names = page.page.locator(".twin tbody tr").all_inner_texts()
        assert page.complaints == []
    assert [line.split("\t")[2] for line in names] == [f"k{i}" for i in range(1500, 1506)]


def test_a_notebook_asks_by_messages(browser: Any, address: str) -> None:
    """The widget shows the same over messages of a model, bytes beside JSON, errors in words."""
    with watched(browser) as page:
        page.page.goto(address)
        page.page.evaluate(
            """async () => {
              const { default: widget } = await import("/lanes.js");
              const listeners = [];
              const model = {
                get: (name) => ({ height: 500 })[name],
                on: (_, act) => listeners.push(act),
                off: (_, act) => listeners.splice(listeners.indexOf(act), 1),
                async send({ id, method, params }) {
                  const reply = await fetch(`/api/${method}?${new URLSearchParams(params)}`);
                  const buffer = reply.ok && method === "block" ? await reply.arrayBuffer() : null;
                  // a view that starts off the grain, as messages of a kernel do
                  const moved = new Uint8Array((buffer?.byteLength ?? 0) + 3);
                  if (buffer) moved.set(new Uint8Array(buffer), 3);
                  const told = !reply.ok ? { error: await reply.text() }
                    : buffer ? {} : { result: await reply.json() };
                  for (const act of listeners) {
                    act({ id, ...told }, buffer ? [new DataView(moved.buffer, 3)] : []);
                  }
                },
              };
              const el = document.body.appendChild(document.createElement("div"));
              el.id = "cell";
              window.close_ = widget.render({ model, el });
              window.listeners = listeners;
            }"""
        )
        inside = page.page.locator("#cell")
        inside.locator("button.rank").first.wait_for()
        assert inside.locator("button.rank").all_inner_texts() == ["▾rank 0", "▾rank 1"]
        inside.locator("input[type=search]").fill("allreduce")
        inside.locator(".told", has_text="6 hits").wait_for()
        page.page.evaluate("close_()")
        assert page.page.evaluate("listeners.length") == 0
        assert page.complaints == []


def test_an_event_that_is_only_shade_can_be_gone_to(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to an event that is not listed at first leads there, and it is drawn and told."""
    made = Kineto(0, 1, unit_ns=1)
    for i in range(3000):
        made.kernel(1000 * i, 1000 * i + 400 + i % 7, f"k{i}", stream=1)
    timeline = Timeline(run_of(made))
    row = timeline.search("k2222")["hits"][0][1]
    monkeypatch.setattr("tracekit.plot.timeline.MAX_LISTED", 100)
    with served(timeline) as url, watched(browser) as page:
        page.open(url)
        page.page.evaluate(f"timeline.select(0, {row})")
        page.settle()
        assert page.state()["selected"] == {"rank": 0, "row": row}
        assert "k2222" in page.text(".below")
        page.page.evaluate("timeline.select(0, 999999)")
        page.page.evaluate("timeline.select(77, 0)")
        assert page.state()["selected"] == {"rank": 0, "row": row}
        assert [c for c in page.complaints if "400" not in c] == []
