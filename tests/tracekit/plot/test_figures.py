"""Figures show the frames' own numbers, stay small, and take names for text."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import tracekit
from tracekit.plot import drawing, figures, specs
from tracekit.plot.drawing import unpacked
from tracekit.plot.palette import ROLES

HOSTILE = '<img src=x onerror=alert(1)> %{y} <a href="javascript:alert(3)">'


def ranks_frame(num_ranks: int) -> pd.DataFrame:
    """Ranks of a window of 10 ms each: 4 compute, 3 wait, 2 transfer, 1 idle."""
    return pd.DataFrame(
        {
            "rank": range(num_ranks),
            "window_us": 10_000.0,
            "compute_us": 4000.0,
            "exposed_wait_us": 3000.0,
            "exposed_transfer_us": 2000.0,
            "exposed_unknown_us": 0.0,
            "exposed_memory_us": 0.0,
            "other_us": 0.0,
            "idle_us": 1000.0,
        }
    )


def steps_frame(num_ranks: int, num_steps: int) -> pd.DataFrame:
    """Steps whose window is 1,000 µs × rank + step."""
    rows = [(r, s) for r in range(num_ranks) for s in range(num_steps)]
    frame = pd.DataFrame(rows, columns=["rank", "step"])
    frame["window_us"] = 1000.0 * frame["rank"] + frame["step"]
    frame["compute_us"] = frame["window_us"] / 2
    frame["overlap_frac"] = 0.25
    return frame


def test_the_parts_of_a_rank_add_up_to_its_window() -> None:
    """The bars of a rank are its parts in ms, and end where its window does."""
    spec = specs.division(ranks_frame(2))
    bars = {trace["name"]: trace["x"] for trace in spec["data"]}
    assert bars == {
        "compute": [4.0, 4.0],
        "waiting for a late rank": [3.0, 3.0],
        "moving bytes": [2.0, 2.0],
        "idle": [1.0, 1.0],
    }
    assert [trace["y"] for trace in spec["data"]] == [["rank 0", "rank 1"]] * 4
    shares = specs.division(ranks_frame(2), share=True)
    assert [trace["x"][0] for trace in shares["data"]] == [40.0, 30.0, 20.0, 10.0]


def test_idle_time_is_shown_without_other_work() -> None:
    """What other work keeps busy is a part of its own, and no longer idle."""
    frame = ranks_frame(1).assign(other_us=600.0)
    bars = {trace["name"]: trace["x"][0] for trace in specs.division(frame)["data"]}
    assert (bars["other work"], bars["idle"]) == pytest.approx((0.6, 0.4))


def test_very_many_ranks_become_a_heat_map() -> None:
    """No figure has more bars than it can redraw; the shares stay exact."""
    spec = specs.division(ranks_frame(500))
    (trace,) = spec["data"]
    assert trace["type"] == "heatmap"
    assert unpacked(trace["z"])[:, 7].tolist() == [40.0, 30.0, 20.0, 10.0]


def test_a_heat_map_holds_every_rank_and_step_in_its_place() -> None:
    """Rows are ranks, columns steps, and what is not there stays blank."""
    frame = steps_frame(3, 4).iloc[1:]
    trace = specs.heatmap(frame)["data"][0]
    z = unpacked(trace["z"])
    assert z.shape == (3, 4)
    assert np.isnan(z[0, 0])
    assert z[2, 3] == pytest.approx(2.003)
    fraction = specs.heatmap(frame, "overlap_frac")["data"][0]
    assert unpacked(fraction["z"])[1, 1] == 25.0


def test_a_thousand_steps_of_64_ranks_stay_light() -> None:
    """The figure of 64,000 cells is below 400 kB, and lines replace bars beyond 60 steps."""
    frame = steps_frame(64, 1000)
    assert len(json.dumps(specs.heatmap(frame))) < 400_000
    kinds = {trace["type"] for trace in specs.trend(frame)["data"]}
    assert kinds == {"scatter"}


def test_a_share_is_of_the_cells_own_window() -> None:
    """A heat-map of shares divides each cell by its own window."""
    trace = specs.heatmap(steps_frame(2, 3), "compute_us", share=True)["data"][0]
    assert unpacked(trace["z"])[1].tolist() == [50.0, 50.0, 50.0]


def test_the_trend_is_the_mean_over_ranks_and_the_slowest() -> None:
    """Bars are means over the ranks of a step; the line is the slowest rank's window."""
    spec = specs.trend(steps_frame(3, 2))
    compute, slowest = spec["data"]
    assert compute["y"] == pytest.approx([0.5, 0.5005])
    assert slowest["y"] == pytest.approx([2.0, 2.001])


def test_waits_are_summed_by_who_waits_for_whom() -> None:
    """Rows wait, columns arrive last, several waits of a pair are one sum."""
    frame = pd.DataFrame(
        {"rank": [0, 0, 3, 1], "last_rank": [3, 3, 0, None], "wait_us": [2e3, 3e3, 1e3, 9e9]}
    )
    trace = specs.wait_matrix(frame)["data"][0]
    z = unpacked(trace["z"])
    assert trace["x"] == trace["y"] == [0, 3]
    assert (z[0, 1], z[1, 0]) == (5.0, 1.0)
    assert np.isnan(z[0, 0])


def test_bandwidth_shows_what_is_known_and_the_limit() -> None:
    """Unknown sizes and rates are left out; the limit is a line at its value."""
    kinds = pd.DataFrame(
        {
            "op": ["all_reduce"] * 3,
            "label": ["x", "x", "data"],
            "bytes": [1e6, None, 4e6],
            "busbw_GBps": [2.5, 3.0, 5.0],
            "count": [3, 1, 2],
        }
    )
    spec = specs.bandwidth(kinds, limit_GBps=12.5)
    assert [(t["name"], t["x"], t["y"]) for t in spec["data"]] == [
        ("all_reduce, x", [1e6], [2.5]),
        ("all_reduce, data", [4e6], [5.0]),
    ]
    assert spec["layout"]["shapes"][0]["y0"] == 12.5
    assert len({t["marker"]["color"] for t in spec["data"]}) == 2


def test_names_are_text_wherever_they_stand() -> None:
    """Markup of a name is escaped in ticks, legends and tips; templates in it stay text."""
    frame = pd.DataFrame({"name": [HOSTILE], "total_us": [5.0], "count": [1]})
    kinds = pd.DataFrame(
        {"op": [HOSTILE], "label": [HOSTILE], "bytes": [8.0], "busbw_GBps": [1.0], "count": [1]}
    )
    groups = pd.DataFrame({"axis": [HOSTILE], "exposed_share_us": [1.0], "overlap_us": [1.0]})
    parts = pd.DataFrame({"role": ["compute"], "a_us": [1.0], "b_us": [2.0]})
    made = [
        specs.names(frame),
        specs.bandwidth(kinds),
        specs.exposure(groups, by="axis"),
        specs.side_by_side(parts, (HOSTILE, HOSTILE)),
        specs.division(ranks_frame(1).assign(phase=HOSTILE), by="phase"),
    ]
    for spec in made:
        text = json.dumps(spec)
        assert "<img" not in text
        assert "<a " not in text
        templates = [trace.get("hovertemplate", "") for trace in spec["data"]]
        assert not any("onerror" in template for template in templates)


def test_every_mark_has_its_roles_colour_in_both_themes() -> None:
    """A role has the palette's colour, and waiting is hatched, on light and dark ground."""
    for theme in ("light", "dark"):
        spec = specs.waiting(ranks_frame(2), theme=theme)
        wait = spec["data"][0]
        assert wait["marker"]["color"] == ROLES["wait"].on(theme)
        assert wait["marker"]["pattern"]["shape"] == "/"


def test_figures_are_plotlys_own() -> None:
    """The public functions give plotly's class with the numbers of the frame."""
    run = tracekit.open("sample_traces/ddp_4")
    made = figures.division(run.breakdown())
    assert type(made).__name__ == "Figure"
    compute = run.breakdown()["compute_us"].to_numpy() / 1000
    assert np.asarray(made.data[0].x) == pytest.approx(compute)
    figures.heatmap(run.steps(), "overlap_frac")
    figures.trend(run.steps(), theme="dark")
    figures.exposure(run.operations(), by="op")


def test_an_unknown_column_is_said() -> None:
    """A heat-map of what there is not names it and the way out."""
    with pytest.raises(ValueError, match="column='nothing_us'"):
        specs.heatmap(steps_frame(1, 1), "nothing_us")


@pytest.mark.parametrize(
    ("values_us", "unit"), [([0.5], "µs"), ([999.0], "µs"), ([1000.0], "ms"), ([2e7], "s")]
)
def test_units_suit_the_largest(values_us: list[float], unit: str) -> None:
    """A time is shown in the unit that leaves it readable."""
    assert drawing.unit_of(values_us)[1] == unit
