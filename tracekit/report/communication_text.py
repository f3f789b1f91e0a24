"""The tables of the text report about communication: axes, collectives and late ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from tracekit.report import summary, words
from tracekit.report.layout import Look, heading, remark, table

Document = Mapping[str, Any]
Kind = summary.CollectiveKind
Cell = Callable[[Kind, Look], str]

MAX_ROWS = 12
AT_LEAST = "at least: a collective's last rank may be one that is not given here"
GROUP_KEYS = ("comm_us", "overlap_us", "exposed_comm_us", "exposed_share_us")


def communication(document: Document, look: Look) -> Iterator[RenderableType]:
    """Axes, then kinds of collectives, then who arrives last."""
    yield from _groups(document, look)
    yield from _collectives(document, look)
    yield from _stragglers(document, look)


def _groups(document: Document, look: Look) -> Iterator[RenderableType]:
    found = summary.groups(document.get("groups") or [], GROUP_KEYS)
    if not found:
        return
    window_us = document["totals"].get("window_us")
    yield from heading("Communication by axis or group", "ms, sum over the ranks")
    heads = ("axis or group", "size", "groups", "comm", "overlap", "exposed", "% of window")
    yield table(look, heads, [_group_row(group, window_us, look) for group in found[:MAX_ROWS]])
    yield from _more(len(found), "group")


def _group_row(group: summary.GroupTotal, window_us: float | None, look: Look) -> list[str]:
    sums = group.sums
    hidden = words.fraction(sums["overlap_us"], sums["comm_us"])
    nothing = words.NOT_APPLICABLE if sums["comm_us"] == 0 else words.NOT_RECORDED
    exposed_us = sums["exposed_share_us"]
    return [
        words.clip(group.label, 24) or words.NOT_KNOWN,
        ",".join(str(size) for size in group.sizes) or words.NOT_KNOWN,
        str(group.num_groups),
        look.ms(sums["comm_us"], words.NOT_RECORDED),
        words.percent(hidden, unknown=nothing),
        look.ms(exposed_us, words.NOT_RECORDED),
        words.percent(words.fraction(exposed_us, window_us), unknown=words.NOT_RECORDED),
    ]


def _more(num: int, noun: str) -> Iterator[RenderableType]:
    if num > MAX_ROWS:
        yield remark(f"and {words.counted(num - MAX_ROWS, noun)} more (--json lists all)")


def _collectives(document: Document, look: Look) -> Iterator[RenderableType]:
    found = summary.collectives(document.get("collectives") or [])
    if not found:
        return
    shown = found[:MAX_ROWS]
    columns: list[tuple[str, Cell]] = [("operation", _op), ("axis or group", _label)]
    columns += [("bytes", _bytes), ("count", _count)]
    matched = any(kind.transfer_us is not None or kind.wait_us is not None for kind in shown)
    if not matched or look.is_roomy:
        columns.append(("duration", _duration))
    if matched:
        columns += [("wait", _wait), ("transfer", _transfer)]
    columns.append(("busbw", _busbw))
    what = "wait: the first arriver's" if matched else "the duration includes waiting"
    yield from heading("Collectives", f"medians, ms and GB/s; {what}")
    cells = [[cell(kind, look) for _, cell in columns] for kind in shown]
    yield table(look, [head for head, _ in columns], cells, left=2)
    yield from _more(len(found), "kind")
    if any(cell.startswith(look.bound_mark) for row in cells for cell in row[2:]):
        yield remark(f"{look.bound_mark} {AT_LEAST}")
    yield from _left_out(document, found)


def _op(kind: Kind, _look: Look) -> str:
    return words.clip(kind.op, 16) or words.UNKNOWN_OPERATION


def _label(kind: Kind, _look: Look) -> str:
    return words.clip(kind.label, 16) or words.NOT_KNOWN


def _bytes(kind: Kind, _look: Look) -> str:
    return words.size(kind.num_bytes)


def _count(kind: Kind, _look: Look) -> str:
    return f"{kind.count:,}"


def _duration(kind: Kind, _look: Look) -> str:
    return words.ms(kind.duration_us)


def _wait(kind: Kind, look: Look) -> str:
    return _bounded(kind, look, words.ms(kind.wait_us), kind.wait_us)


def _transfer(kind: Kind, _look: Look) -> str:
    return words.ms(kind.transfer_us)


def _busbw(kind: Kind, look: Look) -> str:
    return _bounded(kind, look, words.rate(kind.busbw_GBps), kind.busbw_GBps)


def _bounded(kind: Kind, look: Look, text: str, value: float | None) -> str:
    """The text of a figure, marked where ranks that are not given may make it larger."""
    return look.at_least(text) if kind.is_bound and words.known(value) else text


def _left_out(
    document: Document, found: Sequence[summary.CollectiveKind]
) -> Iterator[RenderableType]:
    """What the medians do not hold, so that nobody takes them for all there is."""
    edge = sum(kind.num_edge for kind in found)
    if edge:
        count = words.counted(edge, "collective")
        yield remark(f"{count} cut by the window's edge: counted, but not in the medians")
    partial = sum(kind.num_partial for kind in found)
    if partial:
        count = words.counted(partial, "collective")
        yield remark(f"{count} without all ranks here: counted, but not in the medians")
    single = sum(kind.num_single for kind in found)
    if single:
        count = words.counted(single, "event")
        yield remark(f"{count} without a partner here: wait and transfer {words.NOT_KNOWN}")
    unmatched = {int(rank): num for rank, num in (document.get("unmatched") or {}).items() if num}
    if unmatched:
        count = words.counted(sum(unmatched.values()), "event")
        yield remark(f"{count} found no partner among the given ranks ({words.ranks(unmatched)})")


def _stragglers(document: Document, look: Look) -> Iterator[RenderableType]:
    rows = [row for row in document.get("stragglers") or [] if row.get("num_matched")]
    if not rows:
        return
    rows.sort(key=lambda row: (-(row.get("late_us") or 0.0), row["rank"]))
    yield from heading("Who arrives last", "late: ms after the last but one, summed")
    heads = ("rank", "last in", "of", "share", "late")
    yield table(look, heads, [_straggler_row(row) for row in rows[:MAX_ROWS]])
    yield from _more(len(rows), "rank")


def _straggler_row(row: Document) -> list[str]:
    last, of = row.get("num_last"), row["num_matched"]
    return [
        str(row["rank"]),
        words.NOT_KNOWN if last is None else f"{last:,}",
        f"{of:,}",
        words.percent(words.fraction(last, of)),
        words.ms(row.get("late_us")),
    ]
