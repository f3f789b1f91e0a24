"""The tables of the text report that go rank by rank and step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from tracekit.report import summary, words
from tracekit.report.layout import Look, heading, parts_ms, parts_percent, remark, table

Document = Mapping[str, Any]

MAX_ROWS = 16
PARTS = ("compute_us", "exposed_comm_us", "exposed_memory_us", "idle_us")
SPLIT = ("exposed_wait_us", "exposed_transfer_us", "exposed_unknown_us")
FIGURES = (
    ("window", "window_us"),
    ("compute", "compute_us"),
    ("exposed comm", "exposed_comm_us"),
    ("  waiting", "exposed_wait_us"),
    ("  transfer", "exposed_transfer_us"),
    ("  not known", "exposed_unknown_us"),
    ("exposed memory", "exposed_memory_us"),
    ("idle", "idle_us"),
)
STEP_KEYS = ("window_us", *PARTS, "exposed_wait_us", "lead_us", "period_us")


def ranks(document: Document, look: Look) -> Iterator[RenderableType]:
    """Per rank: the parts that add up to the window, then what exposed communication is."""
    rows = document["ranks"]
    if len(rows) < 2:
        return
    if len(rows) > MAX_ROWS:
        yield from heading(f"{len(rows)} ranks", "ms; --json lists every rank, --ranks picks some")
        yield _spreads(look, rows, "rank", FIGURES, with_overlap=True)
        return
    yield from heading("Per rank", "ms and % of its window; each row adds up to it")
    yield _parts_table(rows, document["totals"], look)
    if any(row.get("comm_us") for row in rows):
        yield from heading("Communication per rank", f"ms; clock: ahead of rank {rows[0]['rank']}")
        yield _split_table(rows, document["totals"], look)


def _parts_table(rows: Sequence[Document], totals: Document, look: Look) -> Table:
    heads = ("rank", "window", "compute", "exposed comm", "exposed mem", "idle")
    cells = [_parts_row(str(row["rank"]), row, look) for row in rows]
    return table(look, heads, cells, foot=_parts_row("all", totals, look))


def _parts_row(name: str, row: Document, look: Look) -> list[str]:
    window_us = row.get("window_us")
    parts_us = [row.get(key) for key in PARTS]
    shown = parts_ms(look, parts_us, window_us)
    shares = parts_percent(parts_us, window_us, 100.0, look.percent_digits)
    width = 7 if look.percent_digits else 5
    pairs = zip(shown, shares, strict=True)
    return [name, look.ms(window_us), *(f"{a}{b:>{width}}" if b else a for a, b in pairs)]


def _split_table(rows: Sequence[Document], totals: Document, look: Look) -> Table:
    """Columns: all communication, how much of it is hidden, and what the exposed rest is."""
    clocks = any(row.get("clock_offset_us") for row in rows)
    heads = ["rank", "comm", "overlap", "exposed", "waiting", "transfer", "not known"]
    cells = [_split_row(str(row["rank"]), row, look) for row in rows]
    foot = _split_row("all", totals, look)
    if clocks:
        heads.append("clock")
        foot.append("")
        for row, made in zip(rows, cells, strict=True):
            made.append(words.ms(row.get("clock_offset_us"), 3))
    return table(look, heads, cells, foot=foot)


def _split_row(name: str, row: Document, look: Look) -> list[str]:
    exposed_us = row.get("exposed_comm_us")
    return [
        name,
        look.ms(row.get("comm_us"), words.NOT_RECORDED),
        overlap(row),
        look.ms(exposed_us, words.NOT_RECORDED),
        *parts_ms(look, [row.get(key) for key in SPLIT], exposed_us),
    ]


def overlap(row: Document) -> str:
    """The overlapped share of communication, or why there is none to tell."""
    if row.get("comm_us") == 0:
        return words.NOT_APPLICABLE
    return words.percent(row.get("overlap_frac"), unknown=words.NOT_RECORDED)


def _spreads(
    look: Look,
    rows: Sequence[Document],
    at: str,
    figures: Sequence[tuple[str, str]],
    *,
    with_overlap: bool = False,
) -> Table:
    cells = [
        _spread_row(look, name, summary.spread(rows, key, at))
        for name, key in figures
        if any(row.get(key) for row in rows)
    ]
    if with_overlap:
        found = summary.spread(rows, "overlap_frac", at)
        values = (found.low, found.middle, found.high)
        low, mid, high = (words.percent(v, unknown=words.NOT_APPLICABLE) for v in values)
        cells.append(["overlap", low, _at(found.low_at), mid, high, _at(found.high_at)])
    heads = ("", "least", at, "median", "most", at)
    return table(look, heads, cells)


def _spread_row(look: Look, name: str, found: summary.Spread) -> list[str]:
    low, mid, high = (look.ms(v) for v in (found.low, found.middle, found.high))
    return [name, low, _at(found.low_at), mid, high, _at(found.high_at)]


def _at(number: int | None) -> str:
    return "" if number is None else str(number)


def steps(document: Document, look: Look) -> Iterator[RenderableType]:
    """Per step: means over the ranks, the time lost before it, and the slowest rank."""
    found = summary.steps(document.get("steps") or [], STEP_KEYS)
    if not found:
        return
    many = max(step.num_ranks for step in found) > 1
    what = "ms, mean over the ranks; gap: before the step" if many else "ms; gap: before the step"
    if len(found) > MAX_ROWS:
        yield from heading(f"{len(found)} steps", f"{what}; --json lists every step")
        figures = (*FIGURES[:4], *FIGURES[6:], ("gap", "lead_us"))
        yield _spreads(look, [{"step": s.step, **s.mean_us} for s in found], "step", figures)
    else:
        yield from heading("Per step", what)
        yield _step_table(found, look, many)
    yield from _outside(document, look)


def _step_table(found: Sequence[summary.StepMean], look: Look, many: bool) -> Table:
    heads = ["step", "window", "compute", "exposed", "(waiting)", "memory", "idle", "gap"]
    cells = [_step_row(step, look) for step in found]
    if many:
        heads.append("slowest")
        for step, made in zip(found, cells, strict=True):
            made.append(_slowest(step, look))
    return table(look, heads, cells)


def _step_row(step: summary.StepMean, look: Look) -> list[str]:
    us = step.mean_us
    shown = parts_ms(look, [us[key] for key in PARTS], us["window_us"])
    wait = look.ms(us["exposed_wait_us"], words.NOT_RECORDED)
    lead = "" if us["lead_us"] is None else look.ms(us["lead_us"])
    return [str(step.step), look.ms(us["window_us"]), *shown[:2], wait, *shown[2:], lead]


def _slowest(step: summary.StepMean, look: Look) -> str:
    if step.slowest_rank is None:
        return words.NOT_KNOWN
    return f"{step.slowest_rank}: {look.ms(step.slowest_us)}"


def _outside(document: Document, look: Look) -> Iterator[RenderableType]:
    rows = document.get("no_step") or []
    busy = [
        sum(row.get(key) or 0.0 for key in ("compute_us", "exposed_comm_us", "exposed_memory_us"))
        for row in rows
    ]
    if sum(busy) > 0:
        there = words.ranks(r["rank"] for r, b in zip(rows, busy, strict=True) if b)
        yield remark(f"{look.ms(sum(busy))} ms of work belongs to no step ({there})")
