"""The parts of a report page that are plain HTML: where the time goes, ranks, axes, collectives."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from tracekit.report import summary, words
from tracekit.report.html_words import PARTS, bar, section, swatch, table, text

Document = Mapping[str, Any]
#: rows shown of each table; what is beyond is counted
MAX_RANKS, MAX_GROUPS, MAX_KINDS, MAX_NAMES = 256, 64, 200, 25


def overview(document: Document) -> str:
    """A bar, the sentences that answer first, and the table of the division."""
    totals = summary.divided(document["totals"])
    if not totals.get("window_us"):
        return section("time", "Where the time goes", "<p>There is no work in this window.</p>")
    digits = words.decimals(summary.longest_window_us(document["ranks"]))
    rows = []
    for label, key, role in PARTS:
        if totals.get(key) == 0:
            continue
        share = words.percent(words.fraction(totals.get(key), totals["window_us"]), unknown="")
        rows.append((f"{swatch(role)} {escape(label)}", _ms(totals.get(key), digits), share))
    rows.append(("window, all ranks", _ms(totals["window_us"], digits), ""))
    said = "".join(f"<p>{line}</p>" for line in sentences(document))
    return section(
        "time",
        "Where the time goes",
        bar(totals, "all ranks"),
        said,
        table(("", "time", "share"), rows),
    )


def _ms(value_us: float | None, digits: int) -> str:
    """A time with its unit, or the words for not having it."""
    return words.ms(value_us, digits) + (" ms" if words.known(value_us) else "")


def sentences(document: Document) -> list[str]:
    """What a reader asks first, answered: exposed communication, axis, rank, trend, limits."""
    found = (
        _exposed(document),
        _axis(document),
        _last(document),
        _trend(document),
        _limits(document),
    )
    return [line for line in found if line]


def _exposed(document: Document) -> str:
    totals = document["totals"]
    window = totals["window_us"]
    share = words.fraction(totals.get("exposed_comm_us"), window)
    if share is None:
        return "How much communication is exposed cannot be told from these traces."
    if not totals.get("comm_us"):
        return "There is no communication in these traces."
    wait = words.percent(words.fraction(totals.get("exposed_wait_us"), window))
    moves = words.percent(words.fraction(totals.get("exposed_transfer_us"), window))
    unknown = words.fraction(totals.get("exposed_unknown_us"), window) or 0.0
    rest = f", and {words.percent(unknown)} one or the other" if unknown >= 0.0005 else ""
    return (
        f"<b>{words.percent(share)}</b> of the time is exposed communication: <b>{wait}</b> "
        f"waiting for late ranks, <b>{moves}</b> moving bytes{rest}."
    )


def _axis(document: Document) -> str:
    found = summary.groups(document["groups"], ("exposed_share_us",))
    known = [g for g in found if g.label and g.sums["exposed_share_us"]]
    if not known:
        return ""
    first = known[0]
    window = document["totals"]["window_us"]
    share = words.percent(words.fraction(first.sums["exposed_share_us"], window))
    of = f" of {len(known)}" if len(known) > 1 else ""
    return f"Most exposed{of} axes or groups: <b>{text(first.label, 80)}</b>, {share} of the time."


def _last(document: Document) -> str:
    rows = [r for r in document.get("stragglers", ()) if r["num_last"]]
    if not rows:
        return ""
    worst = rows[0]
    digits = words.decimals(summary.longest_window_us(document["ranks"]))
    behind = _ms(worst["late_us"], digits)
    of = f"{worst['num_last']:,} of {worst['num_matched']:,} collectives"
    who = f"<b>Rank {worst['rank']}</b> costs the others most"
    return f"{who}: it arrives last at {of}, in sum {behind} after the second-last."


def _trend(document: Document) -> str:
    """How the slowest rank's step changed from the first third of the steps to the last."""
    longest: dict[int, float] = {}
    for row in document["steps"]:
        if words.known(row.get("period_us") or row.get("window_us")):
            length = row.get("period_us") or row["window_us"]
            longest[row["step"]] = max(longest.get(row["step"], 0.0), length)
    lengths = [longest[step] for step in sorted(longest)][1:]  # the first has no period
    if len(lengths) < 6:
        return ""
    third = len(lengths) // 3
    early, late = summary.middle(lengths[:third]), summary.middle(lengths[-third:])
    if not early or not late:
        return ""
    change = late / early - 1
    if abs(change) < 0.03:
        return f"Steps stay as long as they were: {_ms(late, words.decimals(late))} in the middle."
    way = "longer" if change > 0 else "shorter"
    return f"Steps get {way}: the last third by {words.percent(abs(change))} against the first."


def _limits(document: Document) -> str:
    kinds = [k for k in summary.notes(document["notes"]) if k.severity in ("error", "warning")]
    if not kinds:
        return ""
    return (
        f"What limits these answers: {words.counted(len(kinds), 'remark')} "
        '<a href="#notes">below</a>, the gravest: ' + text(kinds[0].text, 300)
    )


def findings(document: Document) -> str:
    """What stands out, the most costly first."""
    rows = document["findings"]
    if not rows:
        return section("findings", "What stands out", "<p>Nothing stands out.</p>")
    items = []
    for row in rows:
        worth = summary.worth(row)
        gain = f" <b>({escape(worth)})</b>" if worth else ""
        items.append(f"<li>{text(row['text'])}{gain}</li>")
    head = f'<p class="faint">{escape(summary.EACH_ALONE)}</p>' if len(rows) > 1 else ""
    return section("findings", "What stands out", head, f"<ol>{''.join(items)}</ol>")


def ranks(document: Document) -> str:
    """A bar and the figures of each rank, bars as long as windows."""
    rows = [summary.divided(r) for r in document["ranks"]]
    longest = summary.longest_window_us(rows) or 1.0
    digits = words.decimals(longest)
    late = {r["rank"]: r for r in document.get("stragglers", ())}
    keys = ("window_us", "compute_us", "exposed_wait_us", "exposed_transfer_us", "idle_us")
    made = []
    for row in rows[:MAX_RANKS]:
        own = [_ms(row.get(key), digits) for key in keys]
        last = late.get(row["rank"])
        lasts = f"{last['num_last']:,} of {last['num_matched']:,}" if last else ""
        length = (row["window_us"] or 0.0) / longest
        picture = bar(row, f"rank {row['rank']}", length) if row["window_us"] else ""
        made.append(
            (f"rank {row['rank']}", picture, *own, words.percent(row["overlap_frac"], "—"), lasts)
        )
    titles = (
        "", "", "window", "compute", "exposed: waiting", "exposed: moving", "idle",
        "comm under compute", "came last",
    )  # fmt: skip
    return section(
        "ranks", "Ranks", table(titles, made, left=2, more=_rest(rows, MAX_RANKS, "rank"))
    )


def _rest(rows: list[Any], shown: int, noun: str) -> str:
    more = len(rows) - shown
    return f'<p class="faint">and {words.counted(more, "more " + noun)}</p>' if more > 0 else ""


def axes(document: Document) -> str:
    """Communication by axis or group, the most exposed first."""
    keys = ("comm_us", "exposed_share_us", "overlap_us")
    found = summary.groups(document["groups"], keys)
    digits = words.decimals(summary.longest_window_us(document["ranks"]))
    window = document["totals"].get("window_us")
    made = []
    for group in found[:MAX_GROUPS]:
        exposed = group.sums["exposed_share_us"]
        sizes = ", ".join(str(n) for n in group.sizes[:6]) or words.NOT_KNOWN
        made.append(
            (
                text(group.label or "group not known", 80),
                sizes,
                str(group.num_groups),
                _ms(group.sums["comm_us"], digits),
                _ms(exposed, digits),
                words.percent(words.fraction(exposed, window), ""),
            )
        )
    titles = ("axis or group", "ranks in it", "groups", "communication", "exposed", "of the time")
    more = _rest(found, MAX_GROUPS, "group")
    return section("axes", "Axes and groups", table(titles, made, more=more))


def collectives(document: Document) -> str:
    """Kinds of collectives, those with the most time first."""
    found = summary.collectives(document["collectives"])
    digits = words.decimals(summary.longest_window_us(document["ranks"]))
    made = []
    for kind in found[:MAX_KINDS]:
        bound = "≥ " if kind.is_bound else ""
        made.append(
            (
                text(kind.op or words.UNKNOWN_OPERATION, 60),
                text(kind.label or "group not known", 60),
                words.size(kind.num_bytes),
                f"{kind.count:,}",
                _ms(kind.duration_us, digits),
                bound + _ms(kind.wait_us, digits),
                _ms(kind.transfer_us, digits),
                bound + words.rate(kind.busbw_GBps) + (" GB/s" if kind.busbw_GBps else ""),
                f"{kind.num_single:,}" if kind.num_single else "",
            )
        )
    titles = (
        "operation", "axis or group", "message", "count", "longest member", "first waits",
        "transfer", "bus bandwidth", "unmatched",
    )  # fmt: skip
    more = _rest(found, MAX_KINDS, "kind")
    head = (
        '<p class="faint">Medians over those that are whole in the recording.</p>' if made else ""
    )
    return section("collectives", "Collectives", head, table(titles, made, left=2, more=more))


def names(document: Document) -> str:
    """The names that take most time on all ranks together."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in document.get("kernels", ()):
        held = sums.setdefault((row["role"], row["name"]), [0, 0.0])
        held[0] += row["count"]
        held[1] += row["total_us"]
    digits = words.decimals(summary.longest_window_us(document["ranks"]))
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    made = [
        (text(name, 160), text(role), f"{int(count):,}", _ms(total, digits))
        for (role, name), (count, total) in ordered[:MAX_NAMES]
    ]
    more = _rest(ordered, MAX_NAMES, "name")
    listing = table(("name", "counts as", "count", "total"), made, left=2, more=more)
    return section("names", "What takes the time, by name", listing)


def notes(document: Document) -> str:
    """What was odd in the traces, and what it costs; one of each kind, with how many like it."""
    kinds = summary.notes(document["notes"])
    items = []
    for kind in kinds:
        more = f" (and {kind.count - 1:,} more like it)" if kind.count > 1 else ""
        head = f"<b>{text(kind.severity, 20)}</b>: {text(kind.text)}{more}"
        items.append(f'<li>{head} <span class="faint">[{text(kind.code, 60)}]</span></li>')
    listing = f"<ul>{''.join(items)}</ul>" if items else ""
    return section("notes", "What was odd, and what limits the answers", listing)
