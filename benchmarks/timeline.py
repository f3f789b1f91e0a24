"""How long until a rank of a million events is on the screen, and what a step of zoom or pan costs.

A server process shows one rank, grown from a real trace, whose table is in the store; Chromium
without a screen (and without a graphics card) opens the page. Measured in the page:

- on screen: from the start of the navigation until all lanes are drawn, by a server that has
  imported tracekit but not opened the run (first visitor), and by one that has shown it before;
- a step: from the wheel or key event until the next frame is drawn, and the drawing alone.

    python benchmarks/timeline.py [--src TRACE.json.gz] [--mb 320] [--rounds 5]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grow
import measure

_SOURCE = "traces/tl_mi300_resnet_ddp_r0of8/rank0.json.gz"
CHROMIUM = "/usr/bin/chromium"
ON_SCREEN_S, STEP_MS = 2.0, 50.0

#: serves the run argv[1] as `Timeline.answer` answers; prints its port, ends with its stdin
_SERVER = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit
import numpy, pyarrow
from tracekit.model.run import open_run
from tracekit.plot.assets import script
from tracekit.plot.timeline import Timeline

PAGE = '''<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>html,body{height:100%;margin:0}</style><div id="lanes" style="height:100%"></div>
<script type="module">
import { mount, httpSource } from "/lanes.js";
window.timeline = mount(document.getElementById("lanes"), httpSource("/api"), {});
window.timeline.ready.then(() => {
  window.drawMs = timeline.draw();
  window.shownMs = performance.now();
});
</script>'''
held, lock = [], threading.Lock()

def timeline():
    with lock:
        if not held:
            held.append(Timeline(open_run([sys.argv[1]])))
        return held[0]

class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        asked = urlsplit(self.path)
        kind = "text/html"
        if asked.path == "/": body = PAGE.encode()
        elif asked.path == "/lanes.js": body, kind = script().encode(), "text/javascript"
        else:
            found = timeline().answer(asked.path[5:], dict(parse_qsl(asked.query)))
            body, kind = (found, "application/octet-stream") if isinstance(found, bytes) else (
                json.dumps(found).encode(), "application/json")
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try: self.wfile.write(body)
        except ConnectionError: pass  # the page was closed meanwhile

server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
"""

#: takes steps of one kind; gives (until the next frame, drawing alone) of each, in ms
_STEPS = """
async ([kind, count]) => {
  const plot = document.getElementById("lanes").shadowRoot.querySelector("canvas.plot");
  const box = plot.getBoundingClientRect();
  plot.focus();
  const at = { clientX: box.left + 0.4 * box.width, clientY: box.top + 40 };
  const act = {
    zoom: (n) => plot.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true,
      deltaY: n % 20 < 10 ? -120 : 120, ...at })),
    pan: (n) => plot.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true,
      key: n % 20 < 10 ? "d" : "a" })),
  }[kind];
  const found = [];
  for (let n = 0; n < count; n++) {
    const begun = performance.now();
    act(n);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    found.push([performance.now() - begun, timeline.draw()]);
  }
  return found;
}
"""


def shown(browser: Any, url: str) -> tuple[Any, dict[str, float]]:
    """A page with the timeline drawn, and how long that took."""
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.goto(url)
    page.wait_for_function("() => window.shownMs", timeout=120_000)
    return page, page.evaluate("({ on_screen_s: shownMs / 1000, draw_ms: drawMs })")


def steps(page: Any) -> dict[str, list[float]]:
    """The costs of zoom and pan steps, over the whole run and over a hundredth of it."""
    found: dict[str, list[float]] = {"step_ms": [], "draw_ms": []}
    for part in (1, 100):
        page.evaluate(
            "(part) => { timeline.fit(); const { t0, t1 } = timeline.state();"
            "const m = 0.4 * (t0 + t1); if (part > 1) timeline.view(m, m + (t1 - t0) / part); }",
            part,
        )
        page.evaluate("timeline.settled()")
        for kind in ("zoom", "pan"):
            for step_ms, draw_ms in page.evaluate(_STEPS, [kind, 40]):
                found["step_ms"].append(step_ms)
                found["draw_ms"].append(draw_ms)
    return found


def one_round(browser: Any, trace: Path, env: dict[str, str]) -> dict[str, list[float]]:
    """A fresh server, two visitors, and the steps of the second."""
    server = subprocess.Popen(  # noqa: S603  # our own code
        [sys.executable, "-c", _SERVER, str(trace)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/"
        page, first = shown(browser, url)
        page.close()
        page, again = shown(browser, url)
        found = steps(page)
        page.close()
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait()
    return {"first": [first["on_screen_s"]], "again": [again["on_screen_s"]], **found}


def measured(trace: Path, rounds: int, env: dict[str, str]) -> dict[str, list[float]]:
    """All rounds, without the first, which warms files."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for n in range(rounds + 1):
            for key, values in one_round(browser, trace, env).items():
                if n:
                    found.setdefault(key, []).extend(values)
        browser.close()
    return found


def rendered(found: dict[str, list[float]]) -> str:
    """The figures and the goals as tables."""

    def p95(values: Sequence[float]) -> float:
        return sorted(values)[int(0.95 * (len(values) - 1))]

    def met(is_met: bool) -> str:
        return "yes" if is_met else "no"

    middle = {key: statistics.median(values) for key, values in found.items()}
    rows = [
        ["first visitor, s", f"≤ {ON_SCREEN_S:g}", measure.spread(found["first"]),
         met(middle["first"] <= ON_SCREEN_S)],
        ["further visitors, s", f"≤ {ON_SCREEN_S:g}", measure.spread(found["again"]),
         met(middle["again"] <= ON_SCREEN_S)],
        ["zoom or pan step, ms", f"≤ {STEP_MS:g}", measure.spread(found["step_ms"], 1),
         met(middle["step_ms"] <= STEP_MS)],
    ]  # fmt: skip
    more = [
        ["a step, 95th percentile, ms", f"{p95(found['step_ms']):.1f}"],
        ["drawing alone, ms", measure.spread(found["draw_ms"], 1)],
        ["drawing alone, 95th percentile, ms", f"{p95(found['draw_ms']):.1f}"],
    ]
    goals = measure.table(["goal", "limit", "median (lowest–highest)", "met"], rows)
    return f"{goals}\n\n{measure.table(['besides', ''], more)}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--src", type=Path, help="trace to grow (default: one of the corpus)")
    parser.add_argument("--mb", type=float, default=320, help="uncompressed size, MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--machine", default=measure.machine_class(), help="machine class")
    parser.add_argument("--out", help="results file; - writes none")
    args = parser.parse_args(argv)
    corpus = os.environ.get("TRACEKIT_CORPUS")
    if args.src is None and corpus is None:
        parser.error("no trace to grow: give --src FILE, or set TRACEKIT_CORPUS to the corpus")
    args.src = args.src or Path(corpus or "") / _SOURCE
    if not args.src.is_file():
        parser.error(f"no such file: {args.src}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Command line: see README.md in this folder."""
    args = parse(argv)
    with tempfile.TemporaryDirectory(prefix="tracekit-timeline-") as temporary:
        work = Path(temporary)
        trace = work / "rank0.json.gz"
        grow.main([str(args.src), str(trace), "--mb", str(args.mb), "--gzip"])
        env = {**os.environ, "TRACEKIT_CACHE": str(work / "store")}
        env["PYTHONPATH"] = os.pathsep.join([str(measure.ROOT), env.get("PYTHONPATH", "")])
        told = measure.run([sys.executable, "-m", "tracekit", "analyze", str(trace), "--json"], env)
        num_events = json.loads(told.stdout)["ranks"][0]["events"]["read"]
        found = measured(trace, args.rounds, env)
    line = f"One rank of {num_events:,} events, grown from `{args.src.parent.name}`."
    versions = measure.versions(sys.executable, "tracekit-torch", "numpy", "playwright")
    head = f"Machine: {measure.machine_line()}.  \nVersions: {versions}."
    body = f"{head}\n\n{line}\n\n{rendered(found)}"
    print(body)
    if args.out != "-":
        path = Path(args.out) if args.out else measure.default_results(args.machine)
        measure.write_section(path, "timeline", body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
