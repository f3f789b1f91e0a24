"""Print an analysis document in a terminal so that the first glance shows where the time goes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.report import summary, words
from tracekit.report.communication_text import communication
from tracekit.report.layout import Look, bar, heading, put, remark
from tracekit.report.rank_text import OTHER_WORK, phases, ranks, steps

Document = Mapping[str, Any]

PARTS = (
    ("compute", "compute_us", "cyan"),
    ("exposed communication", "exposed_comm_us", "yellow"),
    ("exposed memory copies", "exposed_memory_us", "magenta"),
    ("other work", "other_us", "blue"),
    ("idle", "idle_us", "bright_black"),
)
SPLIT = (
    ("waiting for a late rank", "exposed_wait_us"),
    ("moving bytes", "exposed_transfer_us"),
    ("waiting or moving: not known", "exposed_unknown_us"),
)
SEVERITY_STYLES = {"error": "bold red", "warning": "yellow"}
EVENT_FAULTS = ("dropped", "clipped", "recovered", "unlinked")
MAX_NAMES = 8
#: from this share of the communication on, collectives at the edge spoil the figures
EDGE_FRAC = 0.05


def render(document: Document, console: Console) -> None:
    """Print the tables of ``document`` (the JSON document of an analysis) on ``console``.

    Texts from the trace are shown as they are, without control characters; no markup in them
    is obeyed. Unknown figures are said in words.
    """
    look = Look.of(console, summary.longest_window_us(document["ranks"]))
    put(_sections(document, look), console)


def render_notes(rows: list[dict[str, Any]], console: Console) -> None:
    """Print notes alone, grouped by severity and code, on ``console``."""
    put(_notes(rows, ""), console)


def _sections(document: Document, look: Look) -> Iterator[RenderableType]:
    yield from _header(document)
    yield from _where(document, look)
    yield from _findings(document)
    yield from ranks(document, look)
    yield from steps(document, look)
    yield from phases(document, look)
    yield from communication(document, look)
    yield from _unknown_names(document, look)
    yield from _events(document)
    yield from _notes(document.get("notes") or [], _folder(_files(document)))


def _header(document: Document) -> Iterator[RenderableType]:
    rows = document["ranks"]
    files = _files(document)
    yield Text(
        f"{words.safe(summary.where(files)) or 'several folders'}  "
        f"({words.counted(len(files), 'file')})",
        style="bold",
    )
    there = words.number_list(row["rank"] for row in rows)
    worlds = {row.get("world_size") for row in rows} - {None}
    of = f" of {max(worlds)}" if worlds and max(worlds) > len(rows) else ""
    noun = "rank" if len(rows) == 1 and not of else "ranks"
    yield Text(f"{len(rows)}{of} {noun} ({there}), {_timeline(rows)}, {_steps(document)}")
    hosts = sorted({str(row["host"]) for row in rows if row.get("host")})
    if hosts:
        more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
        names = ", ".join(words.clip(host, 40) for host in hosts[:4])
        yield remark(f"{'host' if len(hosts) == 1 else 'hosts'} {names}{more}")


def _files(document: Document) -> list[str]:
    return sorted({str(row["file"]) for row in document["ranks"] if row.get("file")})


def _folder(files: list[str]) -> str:
    """What all files' names begin with: their folder and a separator, or their archive and a !."""
    archive = summary.archive_of(files)
    if archive:
        return f"{archive}!"
    folder = os.path.split(files[0])[0] if len(files) == 1 else summary.where(files)
    return folder + os.sep if folder else ""


def _timeline(rows: list[dict[str, Any]]) -> str:
    kinds = sorted({str(row["timeline"]) for row in rows})
    if kinds == ["host"]:
        return "host timeline (no device work recorded)"
    if len(kinds) == 1:
        return f"{kinds[0]} timeline"
    each = [
        f"{kind} ({words.ranks(r['rank'] for r in rows if r['timeline'] == kind)})"
        for kind in kinds
    ]
    return " and ".join(each) + " timelines"


def _steps(document: Document) -> str:
    numbers = {row["step"] for row in document.get("steps") or []}
    if not numbers:
        return "no steps marked"
    lost = document.get("missing_steps") or []
    missing = f", missing {words.number_list(lost)}" if lost else ""
    noun = "step" if len(numbers) == 1 else "steps"
    return f"{noun} {words.number_list(numbers)}{missing}"


def _where(document: Document, look: Look) -> Iterator[RenderableType]:
    totals, rows = summary.divided(document["totals"]), document["ranks"]
    yield from heading(
        "Where the time goes", f"sum over {len(rows)} ranks" if len(rows) > 1 else ""
    )
    window_us = totals.get("window_us")
    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "left"):
        grid.add_column(justify=justify, no_wrap=True)
    for name, key, style in PARTS:
        if key != "other_us" or totals[key]:
            _part_row(grid, look, (f"  {name}", "", style), totals.get(key), window_us)
        if key == "exposed_comm_us" and totals.get(key):
            _split_rows(grid, totals, look)
    whole = _with_unit(look.ms(window_us))
    end = words.percent(1.0) if window_us else ""
    grid.add_row(*(Text(cell, "bold") for cell in ("  window", whole, end)))
    yield grid
    yield from _overlap(totals, summary.total(row.get("host_comm_us") for row in rows), look)
    if totals["other_us"]:
        yield remark(f"  {OTHER_WORK}")


def _part_row(
    grid: Table,
    look: Look,
    part: tuple[str, str, str],
    part_us: float | None,
    window_us: float | None,
) -> None:
    """A part of the window: its name, time, share and bar; ``part`` is name and both styles."""
    name, style, bar_style = part
    share = words.fraction(part_us, window_us)
    time = _with_unit(look.ms(part_us, words.NOT_RECORDED))
    cells = (Text(cell, style) for cell in (name, time, words.percent(share, unknown="")))
    grid.add_row(*cells, bar(look, share, bar_style, _bar_width(look)))


def _split_rows(grid: Table, totals: Document, look: Look) -> None:
    """The rows that say how much of the exposed communication is waiting for a late rank."""
    for name, key in SPLIT:
        if totals.get(key) != 0:
            part = (f"    {name}", "dim", "dim yellow")
            _part_row(grid, look, part, totals.get(key), totals.get("window_us"))


def _bar_width(look: Look) -> int:
    """What is left of a line beside the name, the time and the percentage."""
    return max(8, min(40, look.width - 58))


def _with_unit(time: str) -> str:
    return f"{time} ms" if time[-1:].isdigit() else time


def _overlap(totals: Document, host_us: float | None, look: Look) -> Iterator[RenderableType]:
    comm_us = totals.get("comm_us")
    if comm_us is None:
        there = f"; {look.ms(host_us)} ms of its calls on the host" if host_us else ""
        yield Text(f"  communication on the device: {words.NOT_RECORDED}{there}")
    elif comm_us == 0:
        yield Text(f"  no communication: overlap {words.NOT_APPLICABLE}")
    elif totals.get("overlap_frac") is None:
        yield Text(f"  overlap with compute: {words.NOT_RECORDED}")
    else:
        share = words.percent(totals["overlap_frac"])
        yield Text(f"  overlap: {share} of {look.ms(comm_us)} ms communication runs under compute")
    yield from _edge(totals, look)


def _edge(totals: Document, look: Look) -> Iterator[RenderableType]:
    """How much of the communication lies where recordings began apart; loud where it is much."""
    share = words.fraction(totals.get("edge_comm_us"), totals.get("comm_us"))
    if share:
        much = f"{look.ms(totals['edge_comm_us'])} ms of it ({words.percent(share)})"
        text = Text(f"  {much} lies in collectives cut by the window's edge")
        text.stylize("yellow" if share > EDGE_FRAC else "dim")
        yield text


def _findings(document: Document) -> Iterator[RenderableType]:
    rows = document.get("findings") or []
    if not rows:
        return
    yield from heading("Findings", "what to change first")
    if len(rows) > 1:
        yield remark(f"  {summary.EACH_ALONE}")
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        told = [words.safe(row.get("text")), summary.worth(row)]
        grid.add_row(Text("  *"), Text("; ".join(filter(None, told))))
    yield grid


def _unknown_names(document: Document, look: Look) -> Iterator[RenderableType]:
    found: dict[str, list[float]] = {}
    for row in document.get("kernels") or []:
        if row.get("known") is False:
            sums = found.setdefault(str(row["name"]), [0.0, 0.0])
            sums[0] += row.get("count") or 0
            sums[1] += row.get("total_us") or 0.0
    if not found:
        return
    yield from heading("Names no rule knows", "counted as compute; --names FILE adds rules")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for name in sorted(found, key=lambda n: (-found[n][1], n))[:MAX_NAMES]:
        count, time_us = found[name]
        cells = (f"  {look.ms(time_us)} ms", f"{count:,.0f} x", words.clip(name, look.width - 28))
        grid.add_row(*(Text(cell) for cell in cells))
    yield grid
    if len(found) > MAX_NAMES:
        yield remark(f"  and {words.counted(len(found) - MAX_NAMES, 'name')} more (--json)")


def _events(document: Document) -> Iterator[RenderableType]:
    sums = {
        key: summary.total(row["events"].get(key) for row in document["ranks"])
        for key in ("read", "timed", *EVENT_FAULTS)
    }
    if sums["read"] is None:
        return
    yield Text()
    faults = "".join(f", {sums[key]:,.0f} {key}" for key in EVENT_FAULTS if sums[key])
    timed = f", {sums['timed']:,.0f} of them on the timeline" if sums["timed"] is not None else ""
    yield remark(f"{sums['read']:,.0f} events read{timed}{faults}")


def _notes(rows: list[dict[str, Any]], folder: str) -> Iterator[RenderableType]:
    if not rows:
        return
    yield from heading("Notes", "grouped; --json lists each" if len(rows) > 1 else "")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for group in summary.notes(rows):
        style = SEVERITY_STYLES.get(group.severity, "")
        told = group.text.replace(folder, "") if folder else group.text
        file = group.file.removeprefix(folder)
        where = f"{words.safe(file)}: " if file and file not in told else ""
        body = Text(f"{words.safe(group.code)}: ", style="bold")
        body.append(where + words.safe(told), style="not bold")
        if group.count > 1:
            body.append(f" (and {group.count - 1:,} more of this kind)", style="not bold dim")
        grid.add_row(Text(f"  {words.safe(group.severity)}", style=style), body)
    yield grid
