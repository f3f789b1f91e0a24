"""A server of its own and a browser that drives it, writing down all that goes wrong there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
RUN = "import sys; from dashboards.command import main; sys.exit(main(sys.argv[1:]))"
CHROMIUM = os.environ.get("TRACEKIT_CHROMIUM") or shutil.which("chromium") or ""
#: machines that build are slow and busy
PATIENCE_MS = 90_000
SHOWN = ".tk-page, .tk-state:not(:has(.tk-progress))"


def absent() -> str:
    """What the tests in a browser lack, in words; empty when it is all there."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return "" if CHROMIUM else "chromium is not installed"


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """A server of its own on a free port; its address without the last slash."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *arguments, "--port", "0", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout
        try:
            yield process.stdout.readline().strip().rstrip("/")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            process.stdout.close()
            said.seek(0)
            told = said.read()
        assert "Traceback" not in told, told


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tab:
    """One page of a browser with a cookie jar of its own.

    Attributes
    ----------
    page : Page
    base : str
        The address of the server.
    wrong : list of str
        Errors and warnings of the console, exceptions, answers of 400 and more.
    """

    page: Page
    base: str
    wrong: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        """Go to an address and wait until there is something to see."""
        self.page.goto(f"{self.base}{address}", timeout=PATIENCE_MS)
        self.page.wait_for_selector(SHOWN, timeout=PATIENCE_MS)
        return self.page

    def figure(self, name: str) -> dict[str, Any]:
        """What plotly.js holds of a figure once it is drawn."""
        gd = f'[id*=\'"name":"{name}","type":"figure"\'] .js-plotly-plot'
        self.page.wait_for_selector(f"{gd} .main-svg", timeout=PATIENCE_MS)
        script = """(gd) => gd.data.map((t) => ({
            name: t.name, x: Array.from(t.x || []), y: Array.from(t.y || []),
            z: t.z ? Array.from(gd.calcdata[0][0].z, (row) => Array.from(row)) : null}))"""
        found = self.page.eval_on_selector(gd, script)
        return {"data": found}

    def cells(self, table: str, column: str) -> list[str]:
        """The texts of a column as a table shows them, from the top; ``column`` is its field."""
        grid = f'[id*=\'"name":"{table}","type":"table"\']'
        self.page.wait_for_selector(grid, timeout=PATIENCE_MS)
        if self.page.locator(f"table{grid}").count():
            script = """([table], field) => {
                const [head, ...rows] = table.rows;
                const at = [...head.cells].findIndex((cell) => cell.title === field);
                return rows.map((row) => row.cells[at].textContent);
            }"""
            plain: list[str] = self.page.eval_on_selector_all(f"table{grid}", script, column)
            return plain
        cell = f'{grid} .ag-row [col-id="{column}"]'
        self.page.wait_for_selector(cell, timeout=PATIENCE_MS)
        script = """(cells) => cells.map((cell) => [
            Number(cell.closest('.ag-row').getAttribute('row-index')), cell.textContent,
            ]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1])"""
        texts: list[str] = self.page.eval_on_selector_all(cell, script)
        return texts


@contextmanager
def tab(browser: Browser, base: str, scheme: str = "light", width: int = 1280) -> Iterator[Tab]:
    """A page of its own; what goes wrong in it is written down."""
    size = {"width": width, "height": 900}
    context = browser.new_context(color_scheme=scheme, viewport=size, accept_downloads=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    made = Tab(page, base)

    def heard(message: Any) -> None:
        if message.type in ("error", "warning"):
            made.wrong.append(f"console: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: made.wrong.append(f"exception: {error}"))
    page.on(
        "dialog", lambda dialog: (made.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss())
    )
    page.on(
        "response",
        lambda reply: (
            made.wrong.append(f"{reply.status}: {reply.url}") if reply.status >= 400 else None
        ),
    )
    yield made
    context.close()
