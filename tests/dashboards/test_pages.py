"""Every page shows the figures of the Python interface, and says what a trace lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tracekit
from dashboards.registry import pages
from tests.builder import ALL_REDUCE, Kineto
from tests.dashboards.helpers import context_of, drawn, figures, parts, texts
from tracekit.plot.drawing import unpacked
from tracekit.report import words


def identities(content: Any) -> list[Any]:
    """The ids of all components of a content."""
    if isinstance(content, list):
        return [found for part in content for found in identities(part)]
    if not isinstance(content, dict):
        return []
    mine = [content["props"]["id"]] if "id" in content.get("props", {}) else []
    return mine + [found for part in content.values() for found in identities(part)]


def near(told: Any, right: Any) -> bool:
    """Whether numbers on a page are those of the interface, to single precision."""
    return np.allclose(np.asarray(told, float), np.asarray(right, float), rtol=1e-6, equal_nan=True)


def test_every_file_is_a_page() -> None:
    """The registry holds the files of the folder, each under its own name, in order."""
    import dashboards.pages as package

    files = {f.stem for f in Path(package.__path__[0]).glob("*.py")} - {"__init__"}
    found = pages()
    assert set(found) == files
    orders = [page.order for page in found.values()]
    assert orders == sorted(orders)
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["overview", "timeline", "heatmap", "communication", "kernels"])
def test_every_page_can_be_drawn(samples: Path, name: str, theme: str) -> None:
    """No page fails on either sample, with every table open, and all of it is JSON."""
    for run in ("ddp_4", "tp_2x2"):
        for table in ["", *pages()[name].tables]:
            content = drawn(samples, f"/{name}?run={run}&table={table}", theme)
            assert json.dumps(content, allow_nan=False)
            ids = [json.dumps(i) for i in identities(content)]
            assert len(ids) == len(set(ids)), f"an id comes twice on {name}"


def test_overview_figures_are_the_interfaces(samples: Path) -> None:
    """Bars per rank, per step, per axis and per phase are the frames' own sums."""
    run = tracekit.open(samples / "tp_2x2")
    shown = figures(drawn(samples, "/overview?run=tp_2x2"))
    ranks = run.breakdown()
    bars = {bar["name"]: bar["x"] for bar in shown["division"]["data"]}
    assert near(bars["compute"], ranks["compute_us"] / 1000)
    assert near(bars["waiting for a late rank"], ranks["exposed_wait_us"] / 1000)
    assert near(bars["moving bytes"], ranks["exposed_transfer_us"] / 1000)
    assert near(bars["idle"], (ranks["idle_us"] - ranks["other_us"]) / 1000)
    steps = run.steps().dropna(subset=["step"])
    *parts_of_step, slowest = shown["trend"]["data"]
    assert near(slowest["y"], steps.groupby("step")["window_us"].max() / 1000)
    assert near(parts_of_step[0]["y"], steps.groupby("step")["compute_us"].mean() / 1000)
    axes = run.groups().groupby("axis")["exposed_share_us"].sum().sort_values(ascending=False)
    assert near(shown["axes"]["data"][0]["x"], axes / 1000)
    assert shown["axes"]["data"][0]["y"] == list(axes.index) == ["y", "x"]
    phases = run.phases().groupby("phase", sort=False)["compute_us"].sum()
    assert near(shown["phases"]["data"][0]["x"], phases / 1000)


def test_overview_answers_with_the_interfaces_figures(samples: Path) -> None:
    """The words of the overview hold the totals, the axis, the late rank and the findings."""
    run = tracekit.open(samples / "ddp_4")
    said = texts(drawn(samples, "/overview?run=ddp_4"))
    totals = run.document()["totals"]
    for name in ("compute_us", "exposed_wait_us", "exposed_transfer_us"):
        assert (
            f"{words.ms(totals[name])} ms {words.percent(totals[name] / totals['window_us'])}"
            in said
        )
    assert "rank 2 last in 6 of 6 collectives, 94.87 ms behind the others (100.0 % of all)" in said
    for text in run.findings()["text"]:
        assert words.safe(text) in said
    assert "4 ranks (0-3) · steps 4-6 · 6 collectives · host timeline · sample-host" in said


@pytest.mark.parametrize("column", ["window_us", "exposed_wait_us", "period_us", "overlap_frac"])
def test_the_heat_map_is_every_rank_and_step(samples: Path, column: str) -> None:
    """Each cell is the figure of its rank and step, in ms or %."""
    run = tracekit.open(samples / "ddp_4")
    (shown,) = figures(drawn(samples, f"/heatmap?run=ddp_4&figure={column}")).values()
    steps = run.steps().dropna(subset=["step"])
    right = steps.pivot_table(index="rank", columns="step", values=column, dropna=False)
    factor = 100 if column.endswith("_frac") else 0.001
    assert near(
        unpacked(shown["data"][0]["z"])[:, -2:], right.to_numpy(dtype=float)[:, -2:] * factor
    )
    assert shown["data"][0]["x"] == [4, 5, 6]
    assert shown["data"][0]["y"] == [0, 1, 2, 3]


def test_a_click_on_the_heat_map_leads_to_the_step(samples: Path) -> None:
    """The figure says where a click goes, with places for step and rank; its table has links."""
    content = drawn(samples, "/heatmap?run=ddp_4&table=cells")
    (shown,) = figures(content).values()
    assert shown["layout"]["meta"]["click"] == "/timeline?run=ddp_4&rank=%7By%7D&step=%7Bx%7D"
    links = [link["href"] for link in parts(content, "Link") if link["children"] == "show"]
    first = pages()["heatmap"].tables["cells"](context_of(samples, "/heatmap?run=ddp_4")).rows[0]
    assert links[0] == f"/timeline?run=ddp_4&rank={first['rank']:.0f}&step={first['step']:.0f}"


def test_communication_figures_are_the_interfaces(samples: Path) -> None:
    """Operations, waits, the matrix, sizes and bandwidths are those of the frames."""
    run = tracekit.open(samples / "tp_2x2")
    content = drawn(samples, "/communication?run=tp_2x2&link=1.25")
    shown = figures(content)
    operations = run.operations().groupby("op")[["exposed_share_us", "overlap_us"]].sum()
    exposed, hidden = shown["operations"]["data"]
    assert near(exposed["x"], operations["exposed_share_us"].loc[exposed["y"]] / 1000)
    assert near(hidden["x"], operations["overlap_us"].loc[hidden["y"]] / 1000)
    assert near(shown["waiting"]["data"][0]["y"], run.breakdown()["exposed_wait_us"] / 1000)
    collectives = run.collectives()
    members = run.collective_members().merge(
        collectives[["collective", "last_rank", "edge"]], on="collective"
    )
    members = members[~members["edge"]]
    matrix = unpacked(shown["matrix"]["data"][0]["z"])
    waited = members[(members["rank"] == 1) & (members["last_rank"] == 3)]["wait_us"].sum()
    assert matrix[1, 3] == pytest.approx(waited / 1000, rel=1e-6)
    assert np.isnan(np.diag(matrix)).all()
    told = collectives[~collectives["edge"]]
    right = told[(told["op"] == "all_reduce") & (told["axis"] == "x")]["busbw_GBps"].median()
    marks = {points["name"]: points for points in shown["bandwidth"]["data"]}
    assert near(marks["all_reduce, x"]["y"], [right])
    assert marks["all_reduce, x"]["x"] == [262144.0]
    assert shown["bandwidth"]["layout"]["shapes"][0]["y0"] == 1.25


def test_tables_hold_the_frames_rows(samples: Path) -> None:
    """Tables on pages are the frames of the interface, row by row."""
    run = tracekit.open(samples / "ddp_4")
    page = pages()["communication"]
    context = context_of(samples, "/communication?run=ddp_4")
    stragglers = pd.DataFrame(page.tables["stragglers"](context).rows)
    right = run.stragglers()
    for name in ("rank", "num_last", "late_us", "wait_us"):
        assert stragglers[name].tolist() == right[name].tolist()
    collectives = page.tables["collectives"](context).rows
    assert len(collectives) == len(run.collectives())
    by_number = run.collectives().set_index("collective")
    for row in collectives:
        mine = by_number.loc[row["collective"]]
        assert (row["op"], row["bytes"], row["last_rank"]) == (
            mine["op"],
            mine["bytes"],
            mine["last_rank"],
        )
        assert near(row["transfer_us"], mine["transfer_us"])


def test_kernels_are_the_interfaces_sums(samples: Path) -> None:
    """Names are summed over the ranks, or of the one chosen, and by role."""
    run = tracekit.open(samples / "tp_2x2")
    frame = run.kernels(top=None)
    every = frame.groupby("name")["total_us"].sum().sort_values(ascending=False)
    (shown,) = figures(drawn(samples, "/kernels?run=tp_2x2")).values()
    longest = max(value for bar in shown["data"] for value in bar["x"])
    assert near(longest, every.iloc[0] / 1000)
    page = pages()["kernels"]
    rows = page.tables["kernels"](
        context_of(samples, "/kernels?run=tp_2x2&rank=2&role=compute")
    ).rows
    mine = frame[(frame["rank"] == 2) & (frame["role"] == "compute")]
    assert [row["name"] for row in rows][:5] == mine["name"].head(5).tolist()
    assert near([row["total_us"] for row in rows][:5], mine["total_us"].head(5))
    operators = page.tables["operators"](context_of(samples, "/kernels?run=tp_2x2&rank=1")).rows
    ops = tracekit.open(samples / "tp_2x2", ranks=1).ops(top=5)
    assert [row["name"] for row in operators][:5] == ops["name"].tolist()


def test_two_runs_are_compared_by_their_means(samples: Path) -> None:
    """Figures of both runs are means over ranks and steps, beside their difference."""
    a, b = (tracekit.open(samples / name) for name in ("ddp_4", "tp_2x2"))
    context = context_of(samples, "/compare?run=ddp_4&with=tp_2x2")
    rows = {row["what"]: row for row in pages()["compare"].tables["parts"](context).rows}
    means = [run.steps().dropna(subset=["step"])["window_us"].mean() for run in (a, b)]
    assert near([rows["window"]["a_us"], rows["window"]["b_us"]], means)
    assert near(rows["window"]["delta_us"], means[1] - means[0])
    assert near(rows["window"]["delta_frac"], means[1] / means[0] - 1)
    names = pages()["compare"].tables["names"](context).rows
    reduce = next(row for row in names if row["name"] == "gloo:all_reduce")
    right = a.kernels(top=None)
    right = right[right["name"] == "gloo:all_reduce"]["total_us"].sum() / 4
    assert near(reduce["a_us"], right)
    assert "B is 23.6 % shorter than A" in texts(drawn(samples, "/compare?run=ddp_4&with=tp_2x2"))


def test_steps_in_the_address_narrow_every_figure(samples: Path) -> None:
    """A view of chosen steps shows what the interface gives for them."""
    run = tracekit.open(samples / "ddp_4")
    shown = figures(drawn(samples, "/overview?run=ddp_4&steps=5:6"))
    right = run.breakdown(steps=(5, 6))["compute_us"] / 1000
    assert near(shown["division"]["data"][0]["x"], right)


def test_what_a_trace_lacks_is_said_with_how_to_record_it(tmp_path: Path) -> None:
    """One rank without steps, sizes or partners: each page names what is missing."""
    Kineto(rank=0).kernel(0, 100).comm(100, 150, ALL_REDUCE).write(tmp_path / "rank0.json")
    run = tmp_path.name
    assert "prof.step()" in texts(drawn(tmp_path, f"/heatmap?run={run}"))
    said = texts(drawn(tmp_path, f"/communication?run={run}"))
    assert "Give the traces of all ranks of one job" in said
    assert "record_shapes=True" in said
    assert "tracekit dashboard BEFORE AFTER" in texts(drawn(tmp_path, f"/compare?run={run}"))
    overview = texts(drawn(tmp_path, f"/overview?run={run}"))
    assert "give the traces of all ranks of one job" in overview
    assert "no steps are marked" in overview


def test_a_run_without_communication_or_work_is_drawn(tmp_path: Path) -> None:
    """Nothing to show is said on every page, and no page fails on it."""
    (tmp_path / "a").mkdir()
    Kineto(rank=0).kernel(0, 100).write(tmp_path / "a" / "rank0.json")
    (tmp_path / "b").mkdir()
    idle = Kineto(rank=0).event(0, 10, "ProfilerStep#1", "user_annotation")
    idle.write(tmp_path / "b" / "rank0.json")
    for run in ("a", "b"):
        for name in pages():
            assert texts(drawn(tmp_path, f"/{name}?run={run}&with=a"))
    assert "No communication" in texts(drawn(tmp_path, "/communication?run=a"))


def test_real_runs_are_drawn(corpus: Path) -> None:
    """Every page of a few real sets can be drawn and is JSON."""
    for run in ("megatron_tp2", "hta_nccl_data", "tl_sglang_decode_graph", "hta_cpu_only_r34of300"):
        for name in pages():
            content = drawn(corpus / "traces", f"/{name}?run={run}&with=megatron_tp2")
            assert json.dumps(content, allow_nan=False)
