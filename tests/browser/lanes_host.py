"""A page with the timeline for browser tests: a small server, and one browser for a module."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from tracekit.core.errors import TracekitError
from tracekit.plot.assets import script
from tracekit.plot.timeline import Timeline

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 60_000
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>html,body{height:100%;margin:0}</style><div id="lanes" style="height:100%"></div>
<script type="module">
import { mount, httpSource } from "/lanes.js";
window.opened = performance.now();
window.timeline = mount(document.getElementById("lanes"), httpSource("/api"), {});
</script>"""


@contextmanager
def served(timeline: Timeline) -> Iterator[str]:
    """The address of a page that shows this timeline."""

    class Answers(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:  # the base class calls it so
            status, kind, body = _answer(timeline, self.path)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(timeline: Timeline, path: str) -> tuple[int, str, bytes]:
    asked = urlsplit(path)
    if asked.path == "/":
        return 200, "text/html", PAGE.encode()
    if asked.path == "/lanes.js":
        return 200, "text/javascript", script().encode()
    try:
        found = timeline.answer(asked.path.removeprefix("/api/"), dict(parse_qsl(asked.query)))
    except TracekitError as e:
        return 400, "text/plain", e.line().encode()
    if isinstance(found, bytes):
        return 200, "application/octet-stream", found
    return 200, "application/json", msgspec.json.encode(found)


@dataclass
class Watched:
    """A page, and whatever it complained of."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def heard(self, message: str) -> None:
        """Keep a message of the console, but for what the tests' own looking causes."""
        if "willReadFrequently" not in message:
            self.complaints.append(message)

    def open(self, url: str) -> None:
        """Go there, and wait until the timeline is drawn."""
        self.page.goto(url)
        self.page.wait_for_function("() => window.timeline", timeout=PATIENCE_MS)
        self.page.evaluate("timeline.ready")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is fetched or drawn any more."""
        self.page.evaluate("timeline.settled()")

    def keys(self, *keys: str) -> None:
        """Press keys on the canvas, each when the one before has had its effect."""
        self.page.locator("canvas.plot").focus()
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    def state(self) -> dict[str, Any]:
        """What is looked at."""
        found: dict[str, Any] = self.page.evaluate("timeline.state()")
        return found

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.page.locator(selector).first.inner_text())


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium without a screen; skips, saying so, where something is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched(browser: Any, **how: Any) -> Iterator[Watched]:
    """A new page whose errors, warnings and requests are kept."""
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **how})
    page.set_default_timeout(PATIENCE_MS)
    made = Watched(page)
    page.on("console", lambda m: made.heard(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: made.complaints.append(f"error: {e}"))
    page.on("request", lambda r: made.requests.append(r.url))
    try:
        yield made
    finally:
        page.close()
