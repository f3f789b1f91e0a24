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
MEAN_KEYS = ("window_us", *PARTS, "exposed_wait_us", "exposed_unknown_us", "lead_us")


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
    digits, width = (1, 7) if look.is_roomy else (0, 5)
    shares = parts_percent(parts_us, window_us, 100.0, digits)
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
    parts_us = [row.get(key) for key in PARTS]
    exposed = parts_ms(look, parts_us, row.get("window_us"))[1]  # as the table above shows it
    split_us = [row.get(key) for key in SPLIT]
    exposed_us = None if row.get("exposed_comm_us") is None else 1000 * float(exposed)
    return [
        name,
        look.ms(row.get("comm_us"), words.NOT_RECORDED),
        overlap(row),
        exposed,
        *parts_ms(look, split_us, exposed_us),
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
    found = summary.means(document.get("steps") or [], "step", MEAN_KEYS)
    found.sort(key=lambda mean: mean.of)
    if len(found) > MAX_ROWS:
        what = f"{_over(found)}; gap: before the step; --json lists every step"
        yield from heading(f"{len(found)} steps", what)
        figures = (*FIGURES[:4], *FIGURES[6:], ("gap", "lead_us"))
        yield _spreads(look, [{"step": m.of, **m.mean_us} for m in found], "step", figures)
    elif found:
        yield from heading("Per step", f"{_over(found)}; gap: before the step")
        yield _mean_table("step", found, look)
    if found:
        yield from _outside(document, look)


def phases(document: Document, look: Look) -> Iterator[RenderableType]:
    """Per phase (forward, backward, optimizer, where marked): means over the ranks."""
    found = summary.means(document.get("phases") or [], "phase", MEAN_KEYS)
    if found:
        yield from heading("Per phase", f"{_over(found)}, all spans of the phase")
        yield _mean_table("phase", found, look)


def _over(found: Sequence[summary.Mean]) -> str:
    return "ms, mean over the ranks" if _is_mean(found) else "ms"


def _is_mean(found: Sequence[summary.Mean]) -> bool:
    return max(mean.num_ranks for mean in found) > 1


def _mean_table(what: str, found: Sequence[summary.Mean], look: Look) -> Table:
    heads = [what, "window", "compute", "exposed", "(waiting)", "memory", "idle"]
    cells = [_mean_row(mean, look) for mean in found]
    if any(mean.mean_us["lead_us"] is not None for mean in found):
        heads.append("gap")
        for mean, made in zip(found, cells, strict=True):
            made.append(look.ms(mean.mean_us["lead_us"], unknown=""))
    if _is_mean(found):
        heads.append("slowest")
        for mean, made in zip(found, cells, strict=True):
            made.append(_slowest(mean, look))
    return table(look, heads, cells)


def _mean_row(mean: summary.Mean, look: Look) -> list[str]:
    us = mean.mean_us
    if us["window_us"] is None:
        return [words.clip(mean.of, 16), "no work", "", "", "", "", ""]
    shown = parts_ms(look, [us[key] for key in PARTS], us["window_us"])
    waiting_us = (
        None if not us["exposed_wait_us"] and us["exposed_unknown_us"] else us["exposed_wait_us"]
    )
    cells = [*shown[:2], look.ms(waiting_us), *shown[2:]]
    return [words.clip(mean.of, 16), look.ms(us["window_us"]), *cells]


def _slowest(mean: summary.Mean, look: Look) -> str:
    return "" if mean.slowest_rank is None else f"{mean.slowest_rank}: {look.ms(mean.slowest_us)}"


def _outside(document: Document, look: Look) -> Iterator[RenderableType]:
    rows = document.get("no_step") or []
    busy = [
        sum(row.get(key) or 0.0 for key in ("compute_us", "exposed_comm_us", "exposed_memory_us"))
        for row in rows
    ]
    if sum(busy) > 0:
        there = words.ranks(r["rank"] for r, b in zip(rows, busy, strict=True) if b)
        yield remark(f"{look.ms(sum(busy))} ms of work belongs to no step ({there})")
