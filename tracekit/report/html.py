"""One HTML file of a run that needs nothing but itself: figures, heat-map and timeline.

The page asks no network: its policy forbids connections, and allows only the scripts and styles of
this file, named by their hashes. Texts from traces are escaped or travel as data.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tracekit.core.errors import TracekitError, UsageError
from tracekit.model.run import TraceSet
from tracekit.model.steps import steps_of
from tracekit.plot import palette
from tracekit.plot.assets import script
from tracekit.plot.timeline import Timeline
from tracekit.report import html_parts, summary, words
from tracekit.report.document import document
from tracekit.report.html_words import text

#: what the timeline's data may take in the file, as text
BUDGET_BYTES = 1_800_000
#: events tried first, all ranks together
MAX_EVENTS = 240_000
#: collectives whose members are told, the longest first
MAX_COLLECTIVES = 2000
BINS = 3000
_FIGURES = (
    "window_us", "period_us", "compute_us", "exposed_comm_us", "exposed_wait_us",
    "exposed_transfer_us", "idle_us", "lead_us", "overlap_frac",
)  # fmt: skip
_GENERATOR = '<meta name="generator" content="tracekit report">'


def write_report(run: TraceSet, out: Path) -> Path:
    """Write the report of a run; the file appears whole or not at all.

    Parameters
    ----------
    run : TraceSet
    out : Path
        The file. What is missing above it is made; a report that is there is replaced.

    Raises
    ------
    UsageError
        When there is something else at ``out``.
    TracekitError
        When it cannot be written.
    """
    _refuse_other_content(out)
    page = report_page(run).encode("utf-8", "replace")
    part: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # beside the file, so that the renaming is one step; opened by name, so that the rights
        # are those of any new file
        part = Path(tempfile.mktemp(".part", ".tracekit-report-", out.parent))  # noqa: S306
        with part.open("xb") as sink:
            sink.write(page)
        return part.replace(out)
    except OSError as e:
        what = f"cannot be written ({e.strerror or e})"
        hint = "free some space or give another place"
        raise TracekitError(what, where=str(out), hint=hint) from e
    finally:
        if part:
            part.unlink(missing_ok=True)


def _refuse_other_content(out: Path) -> None:
    """Only a report of our own, or an empty file, is written over."""
    if out.is_dir():
        hint = f"give a file name such as {out / 'report.html'}"
        raise UsageError("a folder, where a report is one file", where=str(out), hint=hint)
    if out.exists():
        with open(out, "rb") as file:
            head = file.read(2000)
        if head and _GENERATOR.encode() not in head:
            raise UsageError(
                "exists and is no report of tracekit; it was left as it is",
                where=str(out),
                hint="give another name, or remove it first",
            )


def report_page(run: TraceSet, made: Mapping[str, Any] | None = None) -> str:
    """The whole page.

    Parameters
    ----------
    run : TraceSet
    made : mapping, optional
        Its analysis, where it is there already.
    """
    made = document(run) if made is None else made
    timeline = Timeline(run)
    block, thinned = _timeline_block(timeline, len(run.ranks))
    flows, owners = _flows(run, timeline)
    heat = _heat(run, timeline, made)
    outline = {**timeline.outline(), "thinned": thinned}
    data = {"outline": outline, "collectives": flows, "owners": owners, "heat": heat}
    parts = _body(made, heat, thinned)
    packed = _packed(msgspec.json.encode({**data, "scale": palette.SCALE}))
    return _page(_title(made), parts, packed, _packed(block))


def _page(title: str, body: str, data: str, block: str) -> str:
    sheet = f"{palette.css()}\n{script('report.css')}"
    code = f"{script('lanes.js')}\n{script('report.js')}"
    assert "</script" not in code.lower()
    assert "</style" not in sheet.lower()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(code)}'; style-src "
        f"'sha256-{_digest(sheet)}'; worker-src blob:; connect-src 'none'; img-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{_GENERATOR}\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{sheet}</style>\n</head>\n<body>\n{body}\n"
        f'<script type="text/plain" id="data">{data}</script>\n'
        f'<script type="text/plain" id="block">{block}</script>\n'
        f'<script type="module">{code}</script>\n</body>\n</html>\n'
    )


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _packed(data: bytes) -> str:
    """Deflated, as text that holds no markup."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(squeezed.compress(data) + squeezed.flush()).decode()


# -- what the page says -----------------------------------------------------------------------


def _title(made: Mapping[str, Any]) -> str:
    files = sorted({str(row["file"]) for row in made["ranks"]})
    where = summary.where(files) or words.counted(len(files), "file")
    return f"tracekit report: {text(where, 160)}"


def _body(made: Mapping[str, Any], heat: Mapping[str, Any], thinned: str) -> str:
    parts = {
        "time": html_parts.overview(made),
        "findings": html_parts.findings(made),
        "ranks": html_parts.ranks(made),
        "steps": _heat_section() if heat["steps"] else "",
        "timeline": _timeline_section(thinned),
        "axes": html_parts.axes(made),
        "collectives": html_parts.collectives(made),
        "names": html_parts.names(made),
        "notes": html_parts.notes(made),
    }
    titles = {
        "time": "Time", "findings": "Findings", "ranks": "Ranks", "steps": "Ranks × steps",
        "timeline": "Timeline", "axes": "Axes", "collectives": "Collectives", "names": "Names",
        "notes": "Notes",
    }  # fmt: skip
    links = "".join(f'<a href="#{k}">{titles[k]}</a>' for k, part in parts.items() if part)
    hatch = (
        '<svg class="away" aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2.2" height="6" '
        'fill="#000" fill-opacity=".38"/></pattern></defs></svg>'
    )
    head = f'<header><h1>{_title(made)}</h1><span class="faint">{_facts(made)}</span></header>'
    theme = '<button type="button" id="theme">light / dark</button>'
    nav = f'<nav aria-label="parts of this page">{links}{theme}</nav>'
    foot = "<footer>Made by tracekit. This file needs no network and asks none.</footer>"
    return f"{hatch}<main>{head}{nav}{''.join(parts.values())}{foot}</main>"


def _facts(made: Mapping[str, Any]) -> str:
    rows = made["ranks"]
    size = max((r["world_size"] for r in rows if r["world_size"]), default=None)
    of = f" of {size:,}" if size else ""
    steps = sorted({r["step"] for r in made["steps"]})
    told = words.counted(len(steps), "step") if steps else "no steps marked"
    kinds = " and ".join(sorted({str(r["timeline"]) for r in rows}))
    collectives = words.counted(len(made["collectives"]), "collective")
    return text(f"{len(rows):,}{of} ranks · {told} · {collectives} · {kinds} timeline")


def _heat_section() -> str:
    return (
        '<section id="steps" aria-labelledby="h-steps"><h2 id="h-steps">Ranks × steps</h2>'
        '<div class="heat"><label>shows <select id="figure"></select></label>'
        '<span id="low"></span><canvas id="scale"></canvas><span id="high"></span>'
        '<output id="cell" class="faint"></output></div>'
        '<div><canvas id="map" tabindex="0" role="application" aria-label="heat-map of ranks and '
        'steps; arrow keys move, Enter shows the step in the timeline"></canvas></div>'
        '<details id="cells"><summary>the same as a table</summary><div class="wide"></div>'
        "</details></section>"
    )


def _timeline_section(thinned: str) -> str:
    note = f'<p class="faint">{text(thinned)}</p>' if thinned else ""
    return (
        '<section id="timeline" aria-labelledby="h-timeline"><h2 id="h-timeline">Timeline</h2>'
        f'{note}<div id="lanes"></div></section>'
    )


# -- what the page draws ----------------------------------------------------------------------


def _timeline_block(timeline: Timeline, num_ranks: int) -> tuple[bytes, str]:
    """One block of all ranks within the budget, and the words for what was left out."""
    limit = MAX_EVENTS // num_ranks
    while True:
        block = timeline.block(pixels=max(200, BINS // num_ranks), limit=limit)
        size = len(_packed(block))
        if size <= BUDGET_BYTES or limit == 0:
            break
        limit = min(int(0.9 * limit * BUDGET_BYTES / size), limit - 1)
    header = msgspec.json.decode(block[8 : 8 + int.from_bytes(block[4:8], "little")])
    lanes = [lane for rank in header["ranks"] for lane in rank["lanes"]]
    recorded = [lane for lane in lanes if lane["kind"] in ("stream", "thread")]
    every = sum(lane["numEvents"] for lane in recorded)
    listed = sum(count for lane in recorded for _, count, _ in lane["rows"])
    if listed == every:
        return block, ""
    below = max(rank["shadedBelowNs"] for rank in header["ranks"]) / 1000
    return block, (
        f"This file holds the {listed:,} longest of {every:,} events; the others, of at "
        f"most {below:,.1f} µs, are drawn as shade. tracekit dashboard shows all."
    )


def _flows(run: TraceSet, timeline: Timeline) -> tuple[list[Any], list[list[int]]]:
    """Members of the longest collectives, and which rows of which rank belong to which."""
    several = [c for c in run.matching.collectives if len(c.members) > 1]
    several.sort(key=lambda c: max(o.duration for o in c.members.values()), reverse=True)
    chosen = {c: number for number, c in enumerate(several[:MAX_COLLECTIVES])}
    owners = []
    for rank in run.ranks:
        _, work = run.work(rank)
        for c in run.collectives_of(rank):
            if c in chosen:
                rows = work.row[c.members[rank].entries].tolist()
                owners += [[rank, row, chosen[c]] for row in rows]
    return [timeline.flow_of(c) for c in chosen], owners


def _heat(run: TraceSet, timeline: Timeline, made: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of each rank and step, rank after rank, and where each step lies."""
    steps = sorted({row["step"] for row in made["steps"]})
    place = {(rank, step): i for i, (rank, step) in enumerate(_cells(run.ranks, steps))}
    values: dict[str, list[float | None]] = {key: [None] * len(place) for key in _FIGURES}
    spans: list[list[int] | None] = [None] * len(place)
    for row in made["steps"]:
        for key in _FIGURES:
            values[key][place[row["rank"], row["step"]]] = row.get(key)
    for rank in run.ranks if steps else []:
        trace = run.trace(rank)
        marks = steps_of(trace)
        shift = timeline.shift_ns(rank) + trace.table.base_ns
        ends = zip(marks.label, marks.start.tolist(), marks.end.tolist(), strict=True)
        for label, start, end in ends:
            if (rank, label) in place:
                spans[place[rank, label]] = [start + shift, end + shift]
    return {"ranks": run.ranks, "steps": steps, "values": values, "spans": spans}


def _cells(ranks: list[int], steps: list[int]) -> list[tuple[int, int]]:
    return [(rank, step) for rank in ranks for step in steps]
