"""In a real browser: every page without an error, its figures those of the Python interface."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import tracekit
from dashboards.registry import pages
from tests.builder import Kineto
from tests.dashboards.browser import PATIENCE_MS, SHOWN, Tab, absent, chromium, served, tab

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "there")
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
REAL = ("megatron_tp2", "torchrec_sst_long_a2a_optimizer_3", "lightllm_logs", "hta_nccl_data")


@pytest.fixture(scope="module", autouse=True)
def _store(session_store: Path) -> Iterator[None]:
    """A store for the servers of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEKIT_CACHE", str(session_store))
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all."""
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def base(_store: None) -> Iterator[str]:
    """A server over the samples."""
    with served(str(SAMPLES)) as url:
        yield url


def near(told: Any, right: Any) -> bool:
    """Whether numbers on screen are those of the interface, to single precision."""
    return np.allclose(np.asarray(told, float), np.asarray(right, float), rtol=1e-6)


def drawn(made: Tab) -> None:
    """Wait until figures and tables of a page are drawn."""
    for holder, content in ((".js-plotly-plot", ".main-svg"), (".tk-grid", ".ag-row, .ag-overlay")):
        made.page.wait_for_function(
            """([holder, content]) => [...document.querySelectorAll(holder)]
            .every((found) => found.querySelector(content))""",
            arg=[holder, content],
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 2560])
def test_no_page_has_an_error(browser: Any, base: str, scheme: str, width: int) -> None:
    """All pages of both samples: nothing in the console, no failed request, no wide overflow."""
    with tab(browser, base, scheme, width) as made:
        for run in ("ddp_4", "tp_2x2"):
            for name in pages():
                page = made.open(f"/{name}?run={run}&with=ddp_4")
                drawn(made)
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{name} is {wide} px too wide"
                assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert made.wrong == []


def test_figures_on_screen_are_the_interfaces(browser: Any, base: str) -> None:
    """What plotly.js and AG Grid show are the numbers of the frames."""
    run = tracekit.open(SAMPLES / "tp_2x2")
    with tab(browser, base) as made:
        page = made.open("/overview?run=tp_2x2&table=ranks")
        ranks = run.breakdown()
        bars = {bar["name"]: bar["x"] for bar in made.figure("division")["data"]}
        assert near(bars["compute"], ranks["compute_us"] / 1000)
        assert near(bars["waiting for a late rank"], ranks["exposed_wait_us"] / 1000)
        told = made.cells("ranks", "exposed_comm_us")
        assert told == [f"{value / 1000:.3f}" for value in ranks["exposed_comm_us"]]
        said = page.inner_text("#content")
        totals = run.document()["totals"]
        assert f"{totals['compute_us'] / 1000:.3f} ms" in said
        made.open("/heatmap?run=tp_2x2&figure=exposed_wait_us&table=cells")
        steps = run.steps().dropna(subset=["step"])
        grid = steps.pivot_table(index="rank", columns="step", values="exposed_wait_us")
        assert near(made.figure("heatmap")["data"][0]["z"], grid / 1000)
        largest = steps.sort_values("exposed_wait_us", ascending=False)["exposed_wait_us"].iloc[0]
        assert made.cells("cells", "exposed_wait_us")[0] == f"{largest / 1000:.3f}"
        made.open("/communication?run=tp_2x2")
        late = run.stragglers()["late_us"]
        assert made.cells("stragglers", "late_us") == [f"{value / 1000:.3f}" for value in late]
        made.open("/kernels?run=tp_2x2&table=kernels")
        first = run.kernels(top=None).groupby("name")["total_us"].sum().sort_values().index[-1]
        assert made.cells("kernels", "name")[0] == first
        assert made.wrong == []


def test_a_click_on_the_heat_map_opens_the_step(browser: Any, base: str) -> None:
    """The timeline shows that step, its address says so, and another browser sees the same."""
    run = tracekit.open(SAMPLES / "ddp_4")
    with tab(browser, base) as made:
        page = made.open("/heatmap?run=ddp_4")
        made.figure("heatmap")
        box = page.locator(".js-plotly-plot .heatmaplayer").first.bounding_box()
        assert box
        page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.9)
        page.wait_for_url(re.compile(r"/timeline\?"))
        page.wait_for_url(re.compile(r"t0="), timeout=PATIENCE_MS)
        address = page.url
        asked = {
            key: float(v[0])
            for key, v in parse_qs(urlsplit(address).query).items()
            if key[0] == "t"
        }
        step = run.steps(steps=5).query("rank == 3").iloc[0]
        assert asked["t1"] - asked["t0"] == pytest.approx(1.04 * step["host_us"], rel=0.02)
    with tab(browser, base) as other:
        other.open(address.removeprefix(base))
        other.page.wait_for_function(
            "() => document.querySelector('#timeline').shadowRoot?.querySelector('canvas')"
        )
        other.page.wait_for_timeout(600)
        again = parse_qs(urlsplit(other.page.url).query)
        assert float(again["t0"][0]) == pytest.approx(asked["t0"], abs=0.01)
        assert other.wrong == []


def test_the_address_is_the_state(browser: Any, base: str) -> None:
    """A choice changes the address, going back undoes it, and what is as ever is not in it."""
    with tab(browser, base) as made:
        page = made.open("/heatmap?run=ddp_4")
        made.figure("heatmap")
        assert urlsplit(page.url).query == "run=ddp_4"
        page.get_by_text("% of the step's window").click()
        page.wait_for_url(re.compile("scale=share"))
        page.wait_for_function(
            "() => document.querySelector('.js-plotly-plot').data[0].hovertemplate.includes('%<')"
        )
        page.go_back()
        page.wait_for_function("() => !location.search.includes('scale')")
        page.wait_for_function(
            "() => document.querySelector('.js-plotly-plot').data[0].hovertemplate.includes('ms<')"
        )
        assert made.wrong == []


def test_it_can_be_used_by_keys_alone(browser: Any, base: str) -> None:
    """Digits go to pages, s to the steps, ? to the keys; every control is reached by Tab."""
    with tab(browser, base) as made:
        page = made.open("/overview?run=tp_2x2")
        page.keyboard.press("3")
        page.wait_for_url(re.compile("/heatmap"))
        page.wait_for_selector(SHOWN)
        page.keyboard.press("1")
        page.wait_for_url(re.compile("/overview"))
        page.wait_for_selector(".tk-answers")
        page.keyboard.press("s")
        page.keyboard.type("5:6")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("steps=5"))
        page.wait_for_selector("text=steps 5,6")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert page.locator("dialog#keys").evaluate("(d) => d.open")
        page.keyboard.press("Escape")
        assert not page.locator("dialog#keys").evaluate("(d) => d.open")
        page.evaluate("document.activeElement.blur()")
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.slice(0, 12)"))
        assert {"Skip to the ", "1Overview", "Table", "CSV"} <= reached
        assert made.wrong == []


def test_wrong_steps_are_said_at_the_field(browser: Any, base: str) -> None:
    """Steps that are none leave the page as it is and say why; unknown ones are an error state."""
    with tab(browser, base) as made:
        page = made.open("/overview?run=tp_2x2&steps=9:2")
        assert "9:2 is no range of steps; write 5:8 or 5" in page.inner_text("header")
        page = made.open("/overview?run=tp_2x2&steps=44")
        assert "no step in 44" in page.inner_text("#content")
        assert page.locator("[role=alert]").count() >= 1


def test_tables_and_figures_can_be_taken_along(browser: Any, base: str) -> None:
    """CSV, PNG and SVG are saved as files with content."""
    with tab(browser, base) as made:
        page = made.open("/overview?run=tp_2x2")
        made.figure("division")
        with page.expect_download() as csv:
            page.locator("section", has_text="Each rank's time").get_by_text("CSV").first.click()
        text = Path(csv.value.path()).read_text()
        assert text.splitlines()[0].startswith("rank,window_us,compute_us")
        assert len(text.splitlines()) == 5
        for kind, magic in (("png", b"\x89PNG"), ("svg", b"<svg")):
            with page.expect_download() as saved:
                page.locator(f'.tk-image[data-figure="division"][data-format="{kind}"]').click()
            assert Path(saved.value.path()).read_bytes().startswith(magic)
        assert made.wrong == []


def test_two_people_see_each_their_own(browser: Any, base: str) -> None:
    """What one does changes nothing for the other."""
    with tab(browser, base) as a, tab(browser, base, "dark") as b:
        a.open("/overview?run=ddp_4")
        b.open("/overview?run=tp_2x2&steps=5")
        a.page.keyboard.press("4")
        a.page.wait_for_selector("text=Who arrives last")
        assert "steps 5 ·" in b.page.inner_text("#content")
        assert "ddp_4" in a.page.url
        assert "tp_2x2" in b.page.url
        assert a.wrong == b.wrong == []


def test_nothing_jumps_while_a_page_comes(browser: Any, base: str) -> None:
    """The layout shifts by less than a tenth while a page and its figures are drawn."""
    script = """new PerformanceObserver((list) => list.getEntries().forEach((e) => {
        if (!e.hadRecentInput) window.shifted = (window.shifted || 0) + e.value; }))
        .observe({ type: 'layout-shift', buffered: true });"""
    with tab(browser, base) as made:
        made.page.add_init_script(script)
        made.open("/overview?run=tp_2x2")
        drawn(made)
        made.page.wait_for_timeout(500)
        assert made.page.evaluate("window.shifted || 0") < 0.1


def test_hostile_names_do_nothing_in_a_browser(browser: Any, corpus: Path) -> None:
    """Markup in names shows as text and runs nowhere; keys of prototypes pollute nothing."""
    for case in ("58-markup-in-kernel-names", "62-prototype-keys"):
        with served(str(corpus / "cases" / case)) as url, tab(browser, url) as made:
            for name in pages():
                page = made.open(f"/{name}?__proto__[polluted]=1&constructor=x")
                drawn(made)
                page.wait_for_timeout(200)
                assert page.evaluate("({}).polluted") is None
                assert page.locator("img[src=x]").count() == 0
                assert page.locator('a[href^="javascript"]').count() == 0
            if case.startswith("58"):
                made.open("/kernels")
                assert "<img src=x onerror=alert(1)>" in made.cells("kernels", "name")
                names = made.page.locator(".js-plotly-plot .ytick").all_text_contents()
                assert any("<img src=x" in name for name in names)
            assert made.wrong == []


def test_hostile_names_do_nothing_in_a_grid(browser: Any, tmp_path: Path) -> None:
    """A table long enough for a grid shows markup, templates and formulas as they are."""
    hostile = (
        "<img src=x onerror=alert(1)>",
        "{{7*7}} ${alert(2)}",
        "=1+1",
        "params.value",
        "x => 1",
    )
    trace = Kineto(rank=0)
    for at in range(20):
        trace.kernel(100 * at, 100 * at + 90 - at, f"{hostile[at % 5]} {at}")
    trace.write(tmp_path / "rank0.json")
    with served(str(tmp_path)) as url, tab(browser, url) as made:
        made.open("/kernels?table=kernels")
        shown = made.cells("kernels", "name")
        assert shown[:5] == [f"{hostile[at]} {at}" for at in range(5)]
        assert made.page.locator("img[src=x]").count() == 0
        assert made.wrong == []


def test_a_new_step_is_seen_without_asking(browser: Any, tmp_path: Path) -> None:
    """With --watch a page follows a run whose traces appear while it is open."""
    folder = tmp_path / "run" / "traces"
    folder.mkdir(parents=True)

    def write(steps: int) -> None:
        trace = Kineto(rank=0)
        for step in range(steps):
            trace.event(100 * step, 100 * step + 90, f"ProfilerStep#{step}", "user_annotation")
            trace.kernel(100 * step + 2, 100 * step + 80, launched=100 * step + 1)
        trace.write(tmp_path / "part").replace(folder / "rank00000.pt.trace.json")

    write(2)
    with served(str(tmp_path / "run"), "--watch") as url, tab(browser, url) as made:
        page = made.open("/overview")
        page.wait_for_selector("text=steps 0,1 ·")
        for steps in (3, 4):
            write(steps)
            page.wait_for_selector(f"text=steps 0-{steps - 1} ·")
        assert made.wrong == []


def test_a_run_that_is_not_there_yet_comes(browser: Any, tmp_path: Path) -> None:
    """With --watch a folder without traces says so, and shows the run once it comes."""
    folder = tmp_path / "run"
    folder.mkdir()
    with served(str(folder), "--watch") as url, tab(browser, url) as made:
        page = made.open("/overview")
        assert "no file found" in page.inner_text("#content")
        shutil.copy(SAMPLES / "ddp_4" / "rank0.pt.trace.json.gz", folder)
        page.wait_for_selector(".tk-answers")


def test_long_work_shows_its_progress_and_stops(browser: Any, tmp_path: Path) -> None:
    """While a run is read the page says how far it is; Stop ends that; it can be begun again."""
    heavy = Kineto(rank=0)
    for at in range(1_200_000):  # seconds of reading, so that there is time to stop it
        heavy.kernel(10 * at, 10 * at + 9)
    heavy.write(tmp_path / "rank0.json")
    with served(str(tmp_path)) as url, tab(browser, url) as made:
        page = made.page
        page.goto(f"{url}/overview")
        page.wait_for_selector(".tk-progress")
        page.get_by_text("Stop", exact=True).click()
        page.wait_for_selector("text=Stopped")
        page.get_by_text("Load again").click()
        page.wait_for_selector(".tk-answers")
        assert made.wrong == []


@pytest.mark.parametrize("run", REAL)
def test_no_page_of_a_real_run_has_an_error(browser: Any, corpus: Path, run: str) -> None:
    """Real traces: all pages, nothing in the console, and the totals are the interface's."""
    with served(str(corpus / "traces")) as url, tab(browser, url) as made:
        for name in pages():
            page = made.open(f"/{name}?run={run}&with=megatron_tp2")
            drawn(made)
            if name == "overview":
                totals = tracekit.open(corpus / "traces" / run).document()["totals"]
                assert f"{totals['compute_us'] / 1000:.3f} ms" in page.inner_text("#content")
        assert made.wrong == []
