"""The tables of the text report that go rank by rank and step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from tracekit.report import summary, words
from tracekit.report.layout import Look, fits, heading, remark, table

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
    ("other work", "other_us"),
    ("idle", "idle_us"),
)
MEAN_KEYS = ("window_us", *PARTS, "other_us", "exposed_wait_us", "exposed_unknown_us", "lead_us")
OTHER_WORK = "other work: of other steps or of none, where the device would else be idle"
OVERLAPPING = "a negative gap: it overlaps the step before"
NOT_APPLIED = "*: no larger than its scatter, so not applied"


def ranks(document: Document, look: Look) -> Iterator[RenderableType]:
    """Per rank: the parts that add up to the window, then what exposed communication is."""
    rows = [summary.divided(row) for row in document["ranks"]]
    if len(rows) < 2:
        return
    if len(rows) > MAX_ROWS:
        yield from heading(f"{len(rows)} ranks", "ms; --json lists every rank, --ranks picks some")
        yield _spreads(look, rows, "rank", FIGURES, with_overlap=True)
        return
    totals = summary.divided(document["totals"])
    yield from _parts(rows, totals, look)
    if any(row.get("comm_us") for row in rows):
        yield from _split(rows, totals, look)


def _parts(rows: Sequence[Document], totals: Document, look: Look) -> Iterator[RenderableType]:
    """What the windows divide into; percentages where all of them fit the line."""
    heads, keys = ["rank", "window", "compute", "exposed comm", "exposed mem"], list(PARTS)
    if summary.has_other(rows):
        heads.append("other work")
        keys.insert(-1, "other_us")
    heads.append("idle")
    named = [*((str(row["rank"]), row) for row in rows), ("all", totals)]
    cells = [_parts_row(name, row, keys, look, with_shares=True) for name, row in named]
    unit = "ms and % of its window; rows add up to it"
    if not fits(look, heads, cells):
        unit = "ms; rows add up to the window"
        cells = [_parts_row(name, row, keys, look, with_shares=False) for name, row in named]
    yield from heading("Per rank", f"{unit} but for rounding")
    yield table(look, heads, cells[:-1], foot=cells[-1])


def _parts_row(
    name: str, row: Document, keys: Sequence[str], look: Look, *, with_shares: bool
) -> list[str]:
    window_us = row.get("window_us")
    cells = [name, look.ms(window_us)]
    for key in keys:
        time = look.ms(row.get(key), words.NOT_RECORDED)
        share = words.percent(words.fraction(row.get(key), window_us), unknown="")
        has_share = with_shares and share
        cells.append(f"{time} {share.replace(' ', ''):>6}" if has_share else time)
    return cells


def _split(rows: Sequence[Document], totals: Document, look: Look) -> Iterator[RenderableType]:
    """All communication, how much of it is hidden, what the exposed rest is; then the clocks."""
    heads = ["rank", "comm", "overlap", "exposed", "waiting", "transfer", "not known"]
    cells = [_split_row(str(row["rank"]), row, look) for row in rows]
    foot = _split_row("all", totals, look)
    clocks = _clocks(rows, look)
    joined = [[*row, *clock] for row, clock in zip(cells, clocks, strict=True)]
    clock_heads = ["clock", ""][: len(clocks[0])]
    joined_foot = [*foot, *([""] * len(clock_heads))]
    against = f"ahead of rank {rows[0]['rank']}, with its scatter"
    if clock_heads and fits(look, [*heads, *clock_heads], [*joined, joined_foot]):
        yield from heading("Communication per rank", f"ms; clock: {against}")
        yield table(look, [*heads, *clock_heads], joined, foot=joined_foot)
    else:
        yield from heading("Communication per rank", "ms")
        yield table(look, heads, cells, foot=foot)
        if clock_heads:
            yield from heading("Clock per rank", f"ms {against}")
            named = [[row[0], *clock] for row, clock in zip(cells, clocks, strict=True)]
            yield table(look, ["rank", *clock_heads], named)
    if any("*" in clock for clock in clocks):
        yield remark(NOT_APPLIED)


def _clocks(rows: Sequence[Document], look: Look) -> list[list[str]]:
    """Cells for each rank's clock and, where any needs one, its mark; none where all agree."""
    if not any(row.get("clock_offset_us") or row.get("clock_spread_us") for row in rows):
        return [[] for _ in rows]
    cells = [[_clock(row, look, is_reference=row is rows[0])] for row in rows]
    marks = ["*" if _is_unapplied(row) else "" for row in rows]
    if not any(marks):
        return cells
    return [[*cell, mark] for cell, mark in zip(cells, marks, strict=True)]


def _is_unapplied(row: Document) -> bool:
    """Whether a clock's offset may be chance: the analysis then takes the clocks as equal."""
    offset_us, spread_us = row.get("clock_offset_us"), row.get("clock_spread_us")
    if not offset_us or not spread_us:
        return False
    return bool(abs(offset_us) <= spread_us)


def _clock(row: Document, look: Look, *, is_reference: bool) -> str:
    """How far a rank's clock is ahead, and how far the differences scatter around that."""
    offset_us, spread_us = row.get("clock_offset_us"), row.get("clock_spread_us")
    text = words.ms(offset_us, words.decimals(abs(offset_us or 0.0)))
    if offset_us is None or not words.known(offset_us) or spread_us is None or is_reference:
        return text
    sign = "+" if offset_us > 0 else ""
    return f"{sign}{text} {look.plus_minus} {words.ms(spread_us)}"


def _split_row(name: str, row: Document, look: Look) -> list[str]:
    split_us = [row.get(key) for key in ("exposed_comm_us", *SPLIT)]
    return [
        name,
        look.ms(row.get("comm_us"), words.NOT_RECORDED),
        overlap(row),
        *(look.ms(part_us, words.NOT_RECORDED) for part_us in split_us),
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
    rows = [summary.divided(row) for row in document.get("steps") or []]
    found = summary.means(rows, "step", MEAN_KEYS)
    found.sort(key=lambda mean: mean.of)
    if len(found) > MAX_ROWS:
        what = f"{_over(found)}; gap: before the step; --json lists every step"
        yield from heading(f"{len(found)} steps", what)
        figures = (*FIGURES[:4], *FIGURES[6:], ("gap", "lead_us"))
        yield _spreads(look, [{"step": m.of, **m.mean_us} for m in found], "step", figures)
    elif found:
        yield from heading("Per step", f"{_over(found)}; gap: before the step")
        yield _mean_table("step", found, look)
    if any((mean.mean_us["lead_us"] or 0.0) < 0 for mean in found):
        yield remark(OVERLAPPING)
    if summary.has_other(rows) and not summary.has_other([document["totals"]]):
        yield remark(OTHER_WORK)
    if found:
        yield from _outside(document, look)


def phases(document: Document, look: Look) -> Iterator[RenderableType]:
    """Per phase (forward, backward, optimizer, where marked): means over the ranks."""
    rows = [summary.divided(row) for row in document.get("phases") or []]
    found = summary.means(rows, "phase", MEAN_KEYS)
    if found:
        yield from heading("Per phase", f"{_over(found)}, all spans of the phase")
        yield _mean_table("phase", found, look)
    before = [document["totals"], *(document.get("steps") or [])]
    if summary.has_other(rows) and not summary.has_other(before):
        yield remark(OTHER_WORK)


def _over(found: Sequence[summary.Mean]) -> str:
    return "ms, mean over the ranks" if _is_mean(found) else "ms"


def _is_mean(found: Sequence[summary.Mean]) -> bool:
    return max(mean.num_ranks for mean in found) > 1


def _mean_table(what: str, found: Sequence[summary.Mean], look: Look) -> Table:
    heads = [what, "window", "compute", "exposed", "(wait)", "memory"]
    has_other = any(mean.mean_us["other_us"] for mean in found)
    heads += ["other work" if look.is_roomy else "other", "idle"] if has_other else ["idle"]
    cells = [_mean_row(mean, has_other, look) for mean in found]
    if any(mean.mean_us["lead_us"] is not None for mean in found):
        heads.append("gap")
        for mean, made in zip(found, cells, strict=True):
            made.append(look.ms(mean.mean_us["lead_us"], unknown=""))
    if _is_mean(found):
        longer = [[*made, _slowest(mean, look)] for mean, made in zip(found, cells, strict=True)]
        if fits(look, [*heads, "slowest"], longer):
            heads, cells = [*heads, "slowest"], longer
    return table(look, heads, cells)


def _mean_row(mean: summary.Mean, has_other: bool, look: Look) -> list[str]:
    us = mean.mean_us
    if us["window_us"] is None:
        return [words.clip(mean.of, 16), "no work", *[""] * (6 if has_other else 5)]
    is_unmatched = not us["exposed_wait_us"] and us["exposed_unknown_us"]
    waiting = words.NOT_KNOWN if is_unmatched else look.ms(us["exposed_wait_us"])
    keys = (*PARTS[:3], "other_us", "idle_us") if has_other else PARTS
    parts = [look.ms(us[key], words.NOT_RECORDED) for key in keys]
    window = look.ms(us["window_us"])
    return [words.clip(mean.of, 16), window, *parts[:2], waiting, *parts[2:]]


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
