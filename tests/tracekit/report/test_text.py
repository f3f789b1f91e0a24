"""Promises of the text report: it adds up, it says what is unknown, and no trace can fake it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.tracekit.report.documents import Document, document_of, figures, rank, step
from tracekit.report.cache_text import render_cache
from tracekit.report.layout import Look, bar
from tracekit.report.text import render, render_notes

Show = Callable[..., list[str]]


@pytest.fixture
def show() -> Callable[..., list[str]]:
    """Print a document on a console of the given width and encoding; gives the lines."""

    def shown(document: Document, width: int = 80, encoding: str = "utf-8") -> list[str]:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
        console = Console(file=stream, width=width, markup=True, force_terminal=False)
        render(document, console)
        stream.seek(0)
        return stream.read().splitlines()

    return shown


def line_with(lines: list[str], text: str) -> str:
    """The one line that holds ``text``."""
    (found,) = [line for line in lines if text in line]
    return found


def section(lines: list[str], title: str) -> list[str]:
    """The lines from the heading that starts with ``title`` to the next empty line."""
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    return lines[start:end]


def numbers(line: str) -> list[float]:
    """All figures of a line."""
    return [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", line)]


def test_header_says_what_was_read(show: Show) -> None:
    """Folder, number of files, ranks of the world, timeline and steps stand on top."""
    lines = show(document_of([rank(0), rank(1)], steps=[step(5, 0), step(6, 0)], missing_steps=[4]))
    assert lines[0] == "/runs/a  (2 files)"
    assert lines[1] == "2 of 4 ranks (0,1), device timeline, steps 5,6, missing 4"
    assert lines[2] == "host node1"


def test_mixed_timelines_are_told_apart(show: Show) -> None:
    """A run with device and host timelines names the ranks of each."""
    lines = show(document_of([rank(0), rank(1, timeline="host"), rank(2)]))
    assert "device (ranks 0,2) and host (rank 1) timelines" in lines[1]


def test_where_the_time_goes_adds_up(show: Show) -> None:
    """Each shown part is the nearest to its figure, and together they make up the window."""
    parts = {"compute_us": 405.1, "exposed_comm_us": 300.0, "idle_us": 294.9}
    rows = section(show(document_of([rank(0, **figures(1000.0, **parts))])), "Where the time goes")
    main = [numbers(line) for line in rows if re.match(r"  \w[a-z ]+ [\d.]+ ms ", line)]
    assert [values[:2] for values in main] == [
        [0.405, 40.5],
        [0.3, 30.0],
        [0.0, 0.0],
        [0.295, 29.5],
        [1.0, 100.0],
    ]


def test_exposed_communication_is_split_into_waiting_and_moving(show: Show) -> None:
    """The parts of exposed communication add up to it and leave out what is 0."""
    rows = section(show(document_of([rank(0)])), "Where the time goes")
    assert numbers(line_with(rows, "waiting for a late rank")) == [0.75, 25.0]
    assert numbers(line_with(rows, "moving bytes")) == [0.25, 8.3]
    assert not [line for line in rows if "waiting or moving" in line]


def test_each_rank_adds_up_to_its_window(show: Show) -> None:
    """Every row of the rank table, and the row for all, adds up to its window but for rounding."""
    rows = section(show(document_of([rank(0), rank(1, **figures(7001.0))])), "Per rank")
    for name, window in (("0", 3.0), ("1", 7.001), ("all", 10.001)):
        (line,) = [line for line in rows if line.startswith(f"{name} ")]
        values = numbers(line.removeprefix(name))
        assert values[0] == window
        assert sum(values[1::2]) == pytest.approx(window, abs=0.002)
        assert values[2::2] == [33.3, 33.3, 0.0, 33.3]


@pytest.mark.parametrize("width", [80, 120])
def test_one_figure_reads_the_same_everywhere(show: Show, width: int) -> None:
    """Summary, findings and rank tables give a fraction and a time the same digits."""
    row = rank(0, **figures(1000.0, compute_us=405.1, exposed_comm_us=300.4, idle_us=294.5))
    finding = {"text": "rank 0 computes", "gain_frac": 0.4051}
    lines = show(document_of([row, row | {"rank": 1}], findings=[finding]), width=width)
    assert "0.810 ms   40.5 %" in section(lines, "Where the time goes")[1]
    assert "at most 40.5 % of" in line_with(lines, "  * rank 0")
    (*_, last) = section(lines, "Per rank")
    assert "0.810  40.5%" in last
    assert "0.601  30.0%" in last
    assert "0.601" in section(lines, "Communication per rank")[-1]


def test_other_work_is_told_from_idle_time(show: Show) -> None:
    """Work of other steps in the window is neither the step's nor idle, in every table."""
    row = figures(1200.0, other_us=300.0)
    lines = show(
        document_of(
            [rank(0, **row), rank(1, **row)],
            steps=[step(5, 0, **row), step(5, 1, **row)],
            phases=[{"phase": "forward", "rank": 0, **row}],
            totals=figures(2400.0, other_us=600.0),
        )
    )
    summed = section(lines, "Where the time goes")
    assert numbers(line_with(summed, "  other work  ")) == [0.6, 25.0]
    assert numbers(line_with(summed, "  idle ")) == [0.2, 8.3]
    ranks = section(lines, "Per rank")
    assert numbers(ranks[3])[1:] == [1.2, 0.4, 0.4, 0.0, 0.3, 0.1]
    assert ranks[-1].split() == ["all", "2.400", "0.800", "0.800", "0.000", "0.600", "0.200"]
    assert numbers(section(lines, "Per step")[3])[:8] == [5, 1.2, 0.4, 0.4, 0.3, 0.0, 0.3, 0.1]
    assert numbers(section(lines, "Per phase")[3])[:7] == [1.2, 0.4, 0.4, 0.3, 0.0, 0.3, 0.1]
    assert len([line for line in lines if "other work: of other steps" in line]) == 1


def test_other_work_is_explained_below_the_first_table_that_has_it(show: Show) -> None:
    """Without a choice of steps only steps and phases have other work; it is explained once."""
    row = figures(1200.0, other_us=300.0)
    phases = [{"phase": "forward", "rank": 0, **row}]
    plain = show(document_of([rank(0)], steps=[step(5, 0)], phases=phases))
    assert "other work: of other steps" in section(plain, "Per phase")[-1]
    assert "other" not in "".join(section(plain, "Per step"))
    lines = show(document_of([rank(0)], steps=[step(5, 0, **row)], phases=phases))
    assert "other work: of other steps" in section(lines, "Per step")[-1]
    assert len([line for line in lines if "other work: of other steps" in line]) == 1
    many = [step(n, 0, **row) for n in range(20)]
    spread = section(show(document_of([rank(0)], steps=many)), "20 steps")
    assert numbers(line_with(spread, "other work  ")) == [0.3, 0, 0.3, 0.3, 0]
    assert numbers(line_with(spread, "idle ")) == [0.1, 0, 0.1, 0.1, 0]


def test_percentages_give_way_where_they_do_not_fit(show: Show) -> None:
    """Long windows with other work show times alone at 80 columns; no figure is cut."""
    row = figures(123_456.0, other_us=1000.0)
    document = document_of([rank(n, **row) for n in range(8)])
    narrow, wide = show(document), show(document, width=120)
    assert section(narrow, "Per rank")[0].startswith("Per rank (ms; rows add up to the window")
    assert "%" not in "".join(section(narrow, "Per rank"))
    assert "40.15  32.5%" in section(wide, "Per rank")[3]


def test_clocks_are_shown_with_their_scatter(show: Show) -> None:
    """An offset is shown with its scatter, and marked where it is too small to be applied."""
    offsets = ((0.0, 0.0), (270.0, 890.0), (-2903.0, 671.0), (890.0, 890.0), (0.0, 3.0))
    rows = [
        rank(n, clock_offset_us=offset, clock_spread_us=spread)
        for n, (offset, spread) in enumerate(offsets)
    ]
    rows.append(rank(5, clock_offset_us=None, clock_spread_us=None))
    document = document_of(rows)
    table = section(show(document), "Communication per rank")
    told = [line.partition("  0.000  ")[2].strip() for line in table[3:9]]
    assert told == [
        "0.000",
        "+0.270 \N{PLUS-MINUS SIGN} 0.890  *",
        "-2.903 \N{PLUS-MINUS SIGN} 0.671",
        "+0.890 \N{PLUS-MINUS SIGN} 0.890  *",
        "0.000 \N{PLUS-MINUS SIGN} 0.003",
        "not known",
    ]
    assert table[-1] == "*: no larger than its scatter, so not applied"
    assert "+0.270 +- 0.890  *" in "\n".join(show(document, encoding="ascii"))


def test_clocks_alike_need_no_column(show: Show) -> None:
    """Where all clocks agree to the nanosecond there is nothing to show."""
    assert "clock" not in "".join(show(document_of([rank(0), rank(1)])))


def test_clocks_that_do_not_fit_stand_below(show: Show) -> None:
    """A table that clocks would make too wide leaves them to one of their own."""
    rows = [
        rank(n, clock_offset_us=-9e13 * n, clock_spread_us=7.0, **figures(9e8)) for n in range(3)
    ]
    lines = show(document_of(rows))
    assert "clock" not in "".join(section(lines, "Communication per rank"))
    table = section(lines, "Clock per rank (ms ahead of rank 0")
    assert table[4].split() == ["1", "-90000000000.0", "\N{PLUS-MINUS SIGN}", "0.007"]


def test_unrecorded_device_communication_is_said_in_words(show: Show) -> None:
    """Where only the host rows of collectives exist, nothing derived from them looks like 0."""
    unknown = ("comm_us", "overlap_us", "exposed_comm_us", "idle_us", "overlap_frac")
    split = ("exposed_wait_us", "exposed_transfer_us", "exposed_unknown_us")
    row = rank(0, **dict.fromkeys(unknown + split), host_comm_us=60.0, exposed_memory_us=None)
    lines = show(document_of([row, row | {"rank": 1}]))
    assert "not recorded" in line_with(lines, "exposed communication")
    assert "not recorded" in line_with(lines, "  idle ")
    assert "0.120 ms of its calls on the host" in line_with(lines, "communication on the device")
    assert section(lines, "Per rank")[3].count("not recorded") == 3
    assert numbers(section(lines, "Per rank")[3]) == [0, 3.0, 1.0, 33.3]


def test_no_communication_makes_overlap_inapplicable(show: Show) -> None:
    """Without communication the overlap does not apply: it is neither 0 nor 100 %."""
    none = dict.fromkeys(("comm_us", "overlap_us", "exposed_comm_us", "exposed_wait_us"), 0.0)
    quiet = none | {"overlap_frac": None, "exposed_transfer_us": 0.0, "idle_us": 2000.0}
    lines = show(document_of([rank(0, **quiet), rank(1, **quiet)]))
    assert line_with(lines, "overlap") == "  no communication: overlap does not apply"
    mixed = show(document_of([rank(0, **quiet), rank(1)]))
    assert "does not apply" in section(mixed, "Communication per rank")[3]


FIGURE = st.sampled_from([None, 0.0, 1e-6, 123.456, 9e9])
KEYS = sorted(
    {
        *figures(),
        "other_us",
        "clock_spread_us",
        "lead_us",
        "late_us",
        "num_last",
        "transfer_us",
        "busbw_GBps",
        "bytes",
    }
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), FIGURE), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mix_of_unknown_figures_can_be_shown(
    show: Show, changes: list[dict[str, float | None]]
) -> None:
    """Whatever is unknown, the report is drawn, and what is no figure is not shown as one."""
    rows = [rank(n) | change for n, change in enumerate(changes)]
    document = document_of(
        rows,
        steps=[step(n, 0) | change for n, change in enumerate(changes)],
        phases=[{"phase": "forward", **rows[0]}],
        no_step=rows,
        groups=[{"group": "1", "size": None, "exposed_share_us": None, **row} for row in rows],
        collectives=[{"op": None, "match": "seq", **change} for change in changes],
        stragglers=[{"rank": 0, "num_matched": 3, **change} for change in changes],
        totals=figures() | changes[0],
    )
    text = "\n".join(show(document))
    assert not re.search(r"\b(nan|inf|None|null)\b", text)


def test_no_figure_is_ever_nan_or_none(show: Show) -> None:
    """NaN, infinity and None from a document are shown as words."""
    odd = rank(0, overlap_frac=float("nan"), clock_offset_us=None, exposed_wait_us=None)
    bad = {"op": None, "busbw_GBps": float("inf"), "transfer_us": None, "wait_us": None}
    text = "\n".join(show(document_of([odd, rank(1, clock_offset_us=2.0)], collectives=[bad])))
    assert not re.search(r"\b(nan|inf|None|null)\b", text)
    assert "not known" in text


def test_tables_agree_on_exposed_communication(show: Show) -> None:
    """Both rank tables show the same rounding of the same figure, and of its parts."""
    split = {"exposed_wait_us": 60.0, "exposed_transfer_us": 6.6}
    row = rank(0, **figures(200.0, compute_us=66.6, exposed_comm_us=66.6, idle_us=66.8, **split))
    lines = show(document_of([row, row | {"rank": 1}]))
    assert numbers(section(lines, "Per rank")[3])[:5] == [0, 0.2, 0.067, 33.3, 0.067]
    assert numbers(section(lines, "Communication per rank")[3])[3:6] == [0.067, 0.06, 0.007]


def test_many_ranks_are_summed_up(show: Show) -> None:
    """Above 16 ranks the table names the extreme ranks and says how to see all."""
    rows = [rank(n, **figures(3000.0 + 10 * n)) for n in range(17)]
    rows[4] = rank(4, **figures(9000.0))
    lines = show(document_of(rows))
    table = section(lines, "17 ranks (ms")
    assert "--json" in table[0]
    assert numbers(line_with(table, "window")) == [3.0, 0, 3.09, 9.0, 4]
    assert not [line for line in lines if line.startswith("Per rank")]


def test_steps_show_the_mean_and_the_slowest_rank(show: Show) -> None:
    """A step's row is the mean over the ranks; the gap before it and the slowest rank follow."""
    rows = [
        step(5, 0, **figures(1000.0)),
        step(5, 1, **figures(2000.0)),
        step(6, 0, **figures(1200.0), lead_us=300.0),
    ]
    outside = [{"rank": 1, **figures(300.0)}]
    lines = show(document_of([rank(0), rank(1)], steps=rows, no_step=outside))
    table = section(lines, "Per step")
    assert numbers(table[3]) == [5, 1.5, 0.5, 0.5, 0.375, 0.0, 0.5, 1, 2.0]
    assert numbers(table[4]) == [6, 1.2, 0.4, 0.4, 0.3, 0.0, 0.4, 0.3, 0, 1.2]
    assert "0.200 ms of work belongs to no step (rank 1)" in lines
    assert not [line for line in lines if "negative" in line]


@pytest.mark.parametrize("num_steps", [2, 20])
def test_negative_gaps_are_explained(show: Show, num_steps: int) -> None:
    """Where a step begins before the one before it has ended, a line says what that means."""
    rows = [step(n, 0, lead_us=-40.0 if n else None) for n in range(num_steps)]
    lines = show(document_of([rank(0)], steps=rows))
    assert "-0.040" in "".join(lines)
    assert lines.count("a negative gap: it overlaps the step before") == 1


def test_slowest_rank_gives_way_where_it_does_not_fit(show: Show) -> None:
    """Long steps with other work and gaps leave out the slowest rank; no figure is cut."""
    row = figures(123_456_000.0, other_us=9_000_000.0)
    rows = [step(5, n, lead_us=-99_000_000.0, **row) for n in range(2)]
    document = document_of([rank(0, **row), rank(1, **row)], steps=rows)
    assert "slowest" not in section(show(document), "Per step")[1]
    assert "0: 123456.0" in section(show(document, width=120), "Per step")[3]


def test_steps_are_in_order_and_their_waiting_may_be_unknown(show: Show) -> None:
    """A rank that lacks the first steps does not disorder them; unmatched time is no waiting."""
    unknown = figures(1000.0, exposed_wait_us=0.0, exposed_unknown_us=300.0)
    rows = [step(6, 0, **unknown), step(5, 1), step(6, 1, **unknown)]
    table = section(show(document_of([rank(0), rank(1)], steps=rows)), "Per step")
    assert [line.split()[0] for line in table[3:]] == ["5", "6"]
    assert "not known" in table[4]
    assert "not known" not in table[3]


def test_step_without_work_says_so(show: Show) -> None:
    """A step whose work was cut off has no figures."""
    rows = [step(5, 0, **dict.fromkeys(figures())), step(6, 0)]
    table = section(show(document_of([rank(0)], steps=rows)), "Per step")
    assert table[3].split() == ["5", "no", "work"]


def test_phases_are_shown_where_they_are_marked(show: Show) -> None:
    """Each phase has a row of means over the ranks."""
    rows = [{"phase": p, "rank": r, **figures(1200.0)} for r in (0, 1) for p in ("forward", "b")]
    table = section(show(document_of([rank(0), rank(1)], phases=rows)), "Per phase")
    assert " ".join(table[3].split()) == "forward 1.200 0.400 0.400 0.300 0.000 0.400 0: 1.200"
    assert table[4].startswith("b ")


def test_many_steps_are_summed_up(show: Show) -> None:
    """Above 16 steps the table gives least, median and most, with the steps' numbers."""
    rows = [step(n, 0, **figures(1000.0 + n)) for n in range(100, 120)]
    table = section(show(document_of([rank(0)], steps=rows)), "20 steps")
    assert numbers(line_with(table, "window")) == [1.1, 100, 1.109, 1.119, 119]


def test_groups_are_shown_as_a_share_of_the_window(show: Show) -> None:
    """Exposed time per axis is given in ms and as a share of the summed window."""
    row = {
        "axis": "data",
        "desc": None,
        "group": "3",
        "size": 2,
        "ranks": [0, 1],
        "comm_us": 1000.0,
        "overlap_us": 250.0,
        "exposed_comm_us": 750.0,
        "exposed_share_us": 600.0,
    }
    lines = show(document_of([rank(0), rank(1)], groups=[row, row]))
    table = section(lines, "Communication by axis")
    assert " ".join(table[3].split()) == "data 2 1 2.000 25.0 % 1.200 20.0 %"


def test_collectives_say_what_is_not_known(show: Show) -> None:
    """Sizes, times and bandwidths without a value are words; edge and single ones are counted."""
    whole = {
        "op": "all_reduce",
        "axis": "x",
        "group": "1",
        "bytes": 1_000_000,
        "wait_us": {"0": 40.0, "1": 0.0},
        "duration_us": {"0": 140.0, "1": 100.0},
        "transfer_us": 100.0,
        "busbw_GBps": 12.5,
        "match": "seq",
        "edge": False,
    }
    alone = {"bytes": None, "wait_us": None, "transfer_us": None, "busbw_GBps": None}
    single = whole | alone | {"duration_us": {"0": 20.0}}
    rows = [whole, whole | {"edge": True, "transfer_us": 5e6}, single | {"match": "single"}]
    lines = show(document_of([rank(0), rank(1)], collectives=rows, unmatched={"0": 1, "1": 0}))
    table = section(lines, "Collectives")
    assert table[3].split() == ["all_reduce", "x", "1", "MB", "2", "0.040", "0.100", "12.5"]
    assert table[4].count("not known") == 4
    wide = section(
        show(document_of([rank(0), rank(1)], collectives=rows), width=120), "Collectives"
    )
    assert (
        " ".join(wide[4].split()) == "all_reduce x not known 1 0.020 not known not known not known"
    )
    assert "1 collective cut by the window's edge: counted, but not in the medians" in table
    assert "1 event without a partner here: wait and transfer not known" in table
    assert not [line for line in table if "at least" in line]
    assert "1 event found no partner among the given ranks (rank 0)" in table


def test_incomplete_collectives_show_bounds(show: Show) -> None:
    """Without all ranks wait and bandwidth are at least what is seen, and the transfer unknown."""
    seen = {
        "op": "all_reduce",
        "axis": "x",
        "bytes": 1000,
        "wait_us": {"0": 40.0},
        "duration_us": {"0": 140.0},
        "transfer_us": 100.0,
        "busbw_GBps": 0.04,
        "match": "order",
        "complete": False,
    }
    whole = seen | {"axis": "y", "complete": True}
    rows = [seen, whole, whole | {"complete": False, "transfer_us": 7.0, "wait_us": {"0": 3.0}}]
    document = document_of([rank(0), rank(1)], collectives=rows)
    table = section(show(document), "Collectives")
    found = {line.split()[1]: " ".join(line.split()[2:]) for line in table[3:5]}
    assert found == {
        "x": "1 kB 1 \u2265 0.040 not known \u2265 0.04",
        "y": "1 kB 2 0.040 0.100 0.04",
    }
    assert table[5:] == [
        "\u2265 at least: a collective's last rank may be one that is not given here",
        "1 collective without all ranks here: counted, but not in the medians",
    ]
    plain = section(show(document, encoding="ascii"), "Collectives")
    assert ">= 0.040  not known  >= 0.04" in "\n".join(plain)
    assert ">= at least: " in plain[5]


def test_unknown_operations_are_called_so(show: Show) -> None:
    """A collective whose operation is not recorded is no empty cell."""
    table = section(show(document_of([rank(0)], collectives=[{"op": None}])), "Collectives")
    assert table[3].startswith("unknown operation  not known  ")


def test_events_without_partners_show_their_duration(show: Show) -> None:
    """Where nothing was matched there is no column for waiting, but one for the duration."""
    single = {"op": "all_gather", "duration_us": {"0": 20.0}, "match": "single", "bytes": 8}
    table = section(show(document_of([rank(0)], collectives=[single])), "Collectives")
    assert table[1].split() == [
        "operation",
        "axis",
        "or",
        "group",
        "bytes",
        "count",
        "duration",
        "busbw",
    ]
    assert " ".join(table[3].split()) == "all_gather not known 8 B 1 0.020 not known"


@pytest.mark.parametrize(("edge_us", "colour"), [(1400.0, "33"), (15.0, "2")])
def test_much_edge_communication_stands_out(edge_us: float, colour: str) -> None:
    """Communication cut by the window's edge is loud where it spoils the figures."""
    stream = io.StringIO()
    document = document_of([rank(0, edge_comm_us=edge_us)])
    render(document, Console(file=stream, width=80, force_terminal=True, color_system="standard"))
    line = line_with(stream.getvalue().splitlines(), "lies in collectives")
    assert line.startswith(f"\x1b[{colour}m")


def test_bars_are_drawn_to_an_eighth() -> None:
    """A bar shows small parts where the output can hold them, and rounds where it cannot."""
    assert bar(Look(80, True, 3), 0.5, "", 5).plain == "\N{FULL BLOCK}" * 2 + "\N{LEFT HALF BLOCK}"
    assert bar(Look(80, True, 3), 0.01, "", 13).plain == "\N{LEFT ONE EIGHTH BLOCK}"
    assert bar(Look(80, False, 3), 0.5, "", 5).plain == "###"
    assert bar(Look(80, True, 3), None, "", 5).plain == ""


def test_latest_rank_leads_the_stragglers(show: Show) -> None:
    """Who is late the most comes first, with how often; ranks without matches are left out."""
    rows = [
        {"rank": 0, "num_last": 1, "late_us": 10.0, "num_matched": 4},
        {"rank": 2, "num_last": 3, "late_us": 2500.0, "num_matched": 4},
        {"rank": 3, "num_last": 0, "late_us": None, "num_matched": 0},
    ]
    table = section(show(document_of([rank(0), rank(1)], stragglers=rows)), "Who arrives last")
    assert table[3].split() == ["2", "3", "4", "75.0", "%", "2.500"]
    assert table[4].split() == ["0", "1", "4", "25.0", "%", "0.010"]
    assert len(table) == 5


HOSTILE = "\x1b[31mgemm[/red][link=http://x]<script>\x07\u202e\n[bold]k[/bold]"


def test_texts_from_the_trace_stay_texts(show: Show) -> None:
    """Escapes are blanked and markup is shown as written, wherever a text of the trace goes."""
    kernels = [{"rank": 0, "known": False, "name": HOSTILE, "count": 2, "total_us": 900.0}]
    notes = [{"code": HOSTILE, "severity": HOSTILE, "file": HOSTILE, "text": HOSTILE}]
    groups = [{"desc": HOSTILE, "group": HOSTILE, "size": 2, "comm_us": 1.0, "overlap_us": 0.0}]
    calls = [{"op": HOSTILE, "group": HOSTILE, "bytes": 1, "wait_us": {}, "match": "single"}]
    finding = [{"code": "x", "text": HOSTILE, "gain_frac": None}]
    document = document_of(
        [rank(0, host=HOSTILE, file=HOSTILE), rank(1)],
        kernels=kernels,
        notes=notes,
        groups=groups,
        collectives=calls,
        findings=finding,
    )
    lines = show(document, width=200)
    text = "\n".join(lines)
    assert all(line.isprintable() for line in lines)
    assert "[31mgemm[/red][link=http://x]<script>   [bold]k[/bold]" in text
    assert text.count("<script>") >= 5


def test_findings_say_what_they_are_worth(show: Show) -> None:
    """A finding whose gain is not known claims none."""
    rows = [{"text": "rank 2 is late", "gain_frac": 0.683}, {"text": "idle", "gain_frac": None}]
    lines = section(show(document_of([rank(0)], findings=rows)), "Findings")
    assert lines[1:] == [
        "  each is the most that mending it alone can bring; they overlap",
        "  * rank 2 is late; worth at most 68.3 % of the time",
        "  * idle",
    ]
    alone = section(show(document_of([rank(0)], findings=rows[:1])), "Findings")
    assert alone[1:] == ["  * rank 2 is late; worth at most 68.3 % of the time"]


def test_unknown_names_are_listed_by_time(show: Show) -> None:
    """Names no rule knows are summed over ranks, the longest first, and cut in the middle."""
    name = "void " + "deep::" * 40 + "kernel_a"
    rows = [
        {"rank": 0, "known": False, "name": "short", "count": 5, "total_us": 100.0},
        {"rank": 0, "known": False, "name": name, "count": 1, "total_us": 70.0},
        {"rank": 1, "known": False, "name": name, "count": 2, "total_us": 60.0},
        {"rank": 1, "known": True, "name": "gemm", "count": 2, "total_us": 9000.0},
    ]
    lines = section(show(document_of([rank(0), rank(1)], kernels=rows)), "Names no rule knows")
    assert lines[1].split()[:4] == ["0.130", "ms", "3", "x"]
    assert lines[1].rstrip().endswith("kernel_a")
    assert lines[2].split() == ["0.100", "ms", "5", "x", "short"]
    assert len(lines) == 3


def test_notes_come_last_errors_first(show: Show) -> None:
    """Notes are grouped by code with a count, errors first, files named below the run folder."""
    notes = [
        {"code": "dropped", "severity": "warning", "file": "/runs/a/rank0.json.gz", "text": "two"},
        {"code": "dropped", "severity": "warning", "file": "/runs/a/rank1.json.gz", "text": "one"},
        {"code": "truncated", "severity": "error", "file": "/runs/a/rank2.json.gz", "text": "cut"},
    ]
    lines = show(document_of([rank(0), rank(1)], notes=notes))
    (head, first, second) = (line.rstrip() for line in section(lines, "Notes"))
    assert first == "  error    truncated: rank2.json.gz: cut"
    assert second == "  warning  dropped: rank0.json.gz: two (and 1 more of this kind)"
    assert lines[-1].rstrip() == second
    assert "--json" in head


def test_faulty_events_are_counted(show: Show) -> None:
    """What was dropped or unlinked is said; what did not happen is not."""
    line = line_with(show(document_of([rank(0), rank(1)])), "events read")
    assert line == "2,400 events read, 2,000 of them on the timeline, 4 dropped, 14 unlinked"


def full_document() -> dict[str, Any]:
    """Every section at once, with long texts and words in place of figures."""
    clock = {"clock_offset_us": -1234.5, "clock_spread_us": 4321.5}
    rows = [rank(n, **clock, **figures(123456.0, other_us=9999.0)) for n in range(4)]
    rows[2] = rows[2] | {"comm_us": 0.0, "overlap_frac": None}
    name = "an::extremely::long::name" * 9
    call = {"op": "reduce_scatter", "group": name, "bytes": None, "match": "single"}
    group = {"desc": name, "group": "9", "size": None, "comm_us": None, "overlap_us": None}
    return document_of(
        rows,
        steps=[
            step(10, n, lead_us=-99999.0, **figures(123456.0, other_us=9999.0)) for n in range(4)
        ],
        collectives=[call],
        groups=[group],
        stragglers=[{"rank": 3, "num_last": 100, "late_us": 1e6, "num_matched": 1000}],
        kernels=[{"rank": 0, "known": False, "name": name, "count": 10**6, "total_us": 1e6}],
        notes=[{"code": "odd", "severity": "warning", "file": name, "text": name}],
    )


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(show: Show, width: int) -> None:
    """Every section fits the terminal, and at 80 columns no figure is cut."""
    lines = show(full_document(), width=width)
    assert max(map(len, lines)) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in "\n".join(lines)


def test_ascii_output_holds_only_ascii(show: Show) -> None:
    """A stream that cannot hold box characters gets none."""
    text = "\n".join(show(full_document(), encoding="ascii"))
    assert text.isascii()
    assert "----" in text
    assert "####" in text
    assert "|" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_ends_in_blanks(show: Show, width: int) -> None:
    """What goes into a file or a pipe has no trailing blanks."""
    lines = show(full_document(), width=width)
    assert lines == [line.rstrip() for line in lines]


def test_no_colour_without_a_terminal(show: Show) -> None:
    """Piped output holds no escape sequence."""
    assert "\x1b" not in "\n".join(show(full_document()))


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR takes the colours away even on a terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    render(full_document(), Console(file=stream, width=80, force_terminal=True))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", stream.getvalue())


def test_notes_alone_can_be_printed() -> None:
    """`tracekit check` prints notes without an analysis."""
    stream = io.StringIO()
    notes = [{"code": "clock", "severity": "warning", "file": "/a/b", "text": "[b]odd[/b]"}]
    render_notes(notes, Console(file=stream, width=80))
    assert "warning  clock: /a/b: [b]odd[/b]" in stream.getvalue()


def test_cache_lists_the_newest_first() -> None:
    """The cache table names source and size, the last used first, and the sum."""
    stream = io.StringIO()
    entries = [
        {"key": "k1", "source": "/runs/old.json", "bytes": 1_000_000, "last_used_unix": 1e9},
        {"key": "k2", "source": "/runs/[red]new", "bytes": 500_000, "last_used_unix": 2e9},
    ]
    render_cache("/cache", entries, 5, Console(file=stream, width=80))
    lines = [line for line in stream.getvalue().splitlines() if line.strip()]
    assert lines[:2] == ["freed 5 B", "2 traces (1.5 MB) kept in /cache"]
    assert lines[4].startswith("/runs/[red]new  500 kB  2033-05-1")
    assert lines[5].startswith("/runs/old.json")


def test_cache_lists_the_last_used_only() -> None:
    """At most 20 traces are listed and the others counted; analyses are counted alone."""
    stream = io.StringIO()
    traces = [
        {"key": str(n), "source": f"/runs/{n}.json", "bytes": 1000, "last_used_unix": 1e9 + n}
        for n in range(25)
    ]
    answers = [
        {"key": f"a{n}", "source": "(an analysis)", "bytes": 10, "last_used_unix": 2e9}
        for n in range(3)
    ]
    render_cache("/cache", [*answers, *traces], None, Console(file=stream, width=80))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "25 traces (25 kB), 3 analyses (30 B) kept in /cache"
    assert [line.split()[0] for line in lines[3:-1]] == [
        f"/runs/{n}.json" for n in range(24, 4, -1)
    ]
    assert lines[-1] == "and 5 traces used before (--json lists all)"
