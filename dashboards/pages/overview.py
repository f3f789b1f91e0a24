"""Overview: where the time goes, and what to look at first, answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from dashboards import answers
from dashboards.components.cards import card, csv_button, figure_card
from dashboards.components.table import Column, Table, framed
from dashboards.registry import Context, Page
from tracekit.plot import specs
from tracekit.plot.palette import HATCHED
from tracekit.report import summary, words

if TYPE_CHECKING:
    from dash.development.base_component import Component

_SHOWN_FINDINGS, _SHOWN_AXES, _SHOWN_NOTES = 5, 5, 6
FIGURES = (
    Column("window_us", "window", "us"),
    Column("compute_us", "compute", "us"),
    Column("exposed_comm_us", "exposed comm", "us"),
    Column("exposed_wait_us", "waiting", "us"),
    Column("exposed_transfer_us", "moving", "us"),
    Column("exposed_unknown_us", "exposed, not known", "us"),
    Column("exposed_memory_us", "exposed memory", "us"),
    Column("idle_us", "idle", "us"),
    Column("overlap_frac", "overlap", "frac"),
)


def _ranks(context: Context) -> Table:
    rows = context.digest.rows("ranks")
    first = (Column("rank", "rank", "int"), *FIGURES)
    last = (Column("host", "host"), Column("file", "file", "mono", 200))
    return Table("ranks", "Each rank's time", (*first, *last), rows)


def _steps(context: Context) -> Table:
    columns = (
        Column("rank", "rank", "int"), Column("step", "step", "int"), *FIGURES,
        Column("period_us", "period", "us"), Column("lead_us", "gap before", "us"),
    )  # fmt: skip
    return Table(
        "steps", "Each step's time", columns, framed(lambda: context.digest.frame("steps"))
    )


def _phases(context: Context) -> Table:
    columns = (Column("rank", "rank", "int"), Column("phase", "phase"), *FIGURES)
    return Table("phases", "Each phase's time", columns, context.digest.rows("phases"))


def _groups(context: Context) -> Table:
    columns = (
        Column("rank", "rank", "int"), Column("axis", "axis"), Column("group", "group"),
        Column("desc", "description"), Column("size", "size", "int"),
        Column("comm_us", "communication", "us"), Column("overlap_us", "hidden", "us"),
        Column("exposed_comm_us", "exposed", "us"),
        Column("exposed_share_us", "share of the exposed", "us"),
    )  # fmt: skip
    return Table(
        "groups", "Communication by rank and group", columns, context.digest.rows("groups")
    )


def _findings(context: Context) -> Table:
    columns = (
        Column("text", "finding", "text", 420), Column("gain_us", "worth at most", "us"),
        Column("gain_frac", "of the time", "frac"), Column("code", "code", "mono"),
    )  # fmt: skip
    return Table("findings", "Findings", columns, context.digest.rows("findings"))


def _notes(context: Context) -> Table:
    columns = (
        Column("severity", "severity"), Column("text", "note", "text", 420),
        Column("file", "file", "mono"), Column("code", "code", "mono"),
    )  # fmt: skip
    return Table("notes", "What limits the answers", columns, context.digest.rows("notes"))


def facts(context: Context) -> str:
    """Ranks, steps, collectives and hosts in one line."""
    digest = context.digest
    rows = digest.rows("ranks")
    size = max((row["world_size"] for row in rows if row["world_size"]), default=None)
    there = words.number_list(row["rank"] for row in rows)
    ranks = f"{words.counted(len(rows), 'rank')} ({there})"
    told = [f"{ranks} of {size:,}" if size and size != len(rows) else ranks]
    steps = digest.step_numbers
    told.append(f"steps {words.number_list(steps)}" if steps else "no steps marked")
    told.append(words.counted(len(digest.frame("collectives")), "collective"))
    told.append(f"{' and '.join(sorted({row['timeline'] for row in rows}))} timeline")
    hosts = sorted({words.safe(row["host"], 60) for row in rows if row["host"]})
    if hosts:
        told.append(words.counted(len(hosts), "host") if len(hosts) > 2 else ", ".join(hosts))
    return " · ".join(told)


def _finding_list(context: Context) -> Component:
    rows = context.digest.rows("findings")
    if not rows:
        return html.P("Nothing stands out above 5 % of the time.", className="tk-note")
    items = [
        html.Li(
            [
                html.Span(f"{words.percent(row['gain_frac'])}", className="tk-gain"),
                html.Span(words.safe(row["text"]), className="tk-finding"),
            ]
        )
        for row in rows[:_SHOWN_FINDINGS]
    ]
    return html.Ol(items, className="tk-findings")


def _division(context: Context) -> Component:
    """The parts of all ranks' time as one bar with its words and figures."""
    told = answers.shares(context.digest.totals)
    pieces = [
        html.Span(
            className=_paint("tk-piece", role),
            style={"width": f"{100 * part:.3f}%"},
            title=f"{label}: {words.percent(part)}",
        )
        for role, label, _, part in told
        if part
    ]
    legend = [
        html.Li(
            [
                html.Span(className=_paint("tk-swatch", role)),
                html.Span(label, className="tk-label"),
                html.Span(f"{words.ms(value)} ms", className="tk-number"),
                html.Span(words.percent(part), className="tk-number"),
            ]
        )
        for role, label, value, part in told
        if part or role in ("compute", "idle")
    ]
    spoken = ", ".join(f"{label} {words.percent(part)}" for _, label, _, part in told if part)
    bar = html.Div(pieces, className="tk-bar", role="img", **{"aria-label": spoken})
    return html.Div([bar, html.Ul(legend, className="tk-legend")])


def _wait_bar(context: Context) -> Component:
    """What the exposed communication is made of, as one bar."""
    totals = context.digest.totals
    roles = ("wait", "transfer", "unknown")
    parts = [
        (role, words.fraction(totals.get(f"exposed_{role}_us"), totals.get("exposed_comm_us")))
        for role in roles
    ]
    pieces = [
        html.Span(className=_paint("tk-piece", role), style={"width": f"{100 * part:.3f}%"})
        for role, part in parts
        if part
    ]
    return html.Div(pieces, className="tk-bar", **{"aria-hidden": "true"}) if pieces else html.Div()


def _axis_list(context: Context) -> Component:
    """The exposed time of the first axes, as bars of their share of all time."""
    told = answers.axes(context.digest)[:_SHOWN_AXES]
    most = max((part for _, _, part in told), default=0.0) or 1.0
    items = [
        html.Li(
            [
                html.Span(label),
                html.Span(
                    className=_paint("tk-meter", "comm"),
                    style={"width": f"{100 * part / most:.2f}%"},
                ),
                html.Span(f"{words.ms(value)} ms", className="tk-number"),
                html.Span(words.percent(part), className="tk-number"),
            ]
        )
        for label, value, part in told
    ]
    return html.Ul(items, className="tk-list")


def _paint(kind: str, role: str) -> str:
    """The classes of a coloured mark."""
    return f"{kind} tk-{role} tk-hatched" if role in HATCHED else f"{kind} tk-{role}"


def _tile(answer: answers.Answer, more: Any = ()) -> Component:
    kind = "tk-answer" if answer.is_known else "tk-answer tk-unknown"
    parts = [
        html.H3(answer.question),
        html.P(answer.answer, className="tk-said"),
        html.P(answer.detail, className="tk-note"),
        *more,
    ]
    return html.Div(parts, className=kind)


def body(context: Context) -> Component:
    """The page."""
    digest = context.digest
    asked = answers.all_answers(digest)
    more = {
        0: [_division(context)],
        1: [_wait_bar(context)],
        2: [_axis_list(context)],
        5: [_note_list(context)],
    }
    tiles = [_tile(answer, more.get(at, ())) for at, answer in enumerate(asked)]
    found = card(
        "What to look at first",
        _finding_list(context),
        note=summary.EACH_ALONE if len(digest.rows("findings")) > 1 else "",
        tools=[csv_button(context, _findings(context))],
        wide=True,
    )
    parts = [
        html.P(facts(context), className="tk-facts"),
        found,
        html.Div(tiles, className="tk-answers tk-wide"),
        *_pictures(context),
    ]
    return html.Div(parts, className="tk-page")


def _pictures(context: Context) -> list[Component]:
    digest, theme = context.digest, context.theme
    picture = specs.division(digest.frame("ranks"), theme=theme)
    made = [
        figure_card(
            context, "Each rank's time", picture, name="division", table=_ranks(context),
            note="The parts add up to the rank's window.",
        )
    ]  # fmt: skip
    if digest.step_numbers:
        made.append(
            figure_card(
                context, "Each step's time", specs.trend(digest.frame("steps"), theme=theme),
                name="trend", table=_steps(context),
                click=context.href(context.view.elsewhere("timeline", step="{x}")),
                note="Mean over the ranks. A click opens the step in the timeline.",
            )
        )  # fmt: skip
    if digest.rows("groups"):
        frame = digest.frame("groups").assign(
            label=[summary.label(row) or words.NOT_KNOWN for row in digest.rows("groups")]
        )
        picture = specs.exposure(frame, by="label", theme=theme)
        made.append(
            figure_card(
                context, "Communication by axis or group", picture, name="axes",
                table=_groups(context),
                note="Exposed shares add up to all exposed communication.",
            )
        )  # fmt: skip
    if digest.rows("phases"):
        picture = specs.division(_phase_sums(context), by="phase", theme=theme)
        made.append(
            figure_card(
                context, "Each phase's time", picture, name="phases", table=_phases(context),
                note="Sum over the ranks.",
            )
        )  # fmt: skip
    return made


def _phase_sums(context: Context) -> Any:
    frame = context.digest.frame("phases")
    return frame.groupby("phase", sort=False).sum(numeric_only=True).reset_index()


def _note_list(context: Context) -> Component:
    """What limits the answers: one note of each kind, the gravest first."""
    kinds = summary.notes(context.digest.rows("notes"))
    if not kinds:
        return html.Div()
    items = [
        html.Li(
            [
                html.B(f"{kind.severity}: "),
                words.safe(kind.text),
                f" (and {kind.count - 1:,} more like it)" if kind.count > 1 else "",
            ]
        )
        for kind in kinds[:_SHOWN_NOTES]
    ]
    rest = len(kinds) - _SHOWN_NOTES
    more = [html.Li(f"and {words.counted(rest, 'more kind')}, in the CSV")] if rest > 0 else []
    tools = html.Div(csv_button(context, _notes(context)), className="tk-tools")
    return html.Div([tools, html.Ul([*items, *more], className="tk-notes")])


PAGE = Page(
    "overview",
    "Overview",
    10,
    body,
    tables={
        "ranks": _ranks,
        "steps": _steps,
        "phases": _phases,
        "groups": _groups,
        "findings": _findings,
        "notes": _notes,
    },
)
