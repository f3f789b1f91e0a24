"""Long work runs elsewhere: its progress is told, it can be stopped, and its answer serves all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tracekit
from dashboards.catalog import FRESH_S, Catalog
from dashboards.digest import Digest
from dashboards.loading import Ask, Loader
from tests.builder import Kineto

WAIT_S = 60.0


@pytest.fixture
def loader(samples: Path) -> Iterator[tuple[Catalog, Loader]]:
    """A loader over the sample runs."""
    catalog = Catalog([str(samples)])
    made = Loader(catalog, {"digest": Digest, "names": Digest, "timeline": bytes})
    yield catalog, made
    made.close()


def ask(catalog: Catalog, name: str, **more: object) -> Ask:
    """The analysis of a run."""
    entry = catalog.get(name)
    assert entry is not None
    return Ask("digest", entry, **more)  # type: ignore[arg-type]


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, or fail."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)


def test_an_answer_is_the_analysis(loader: tuple[Catalog, Loader], samples: Path) -> None:
    """What the pages get are the figures of the Python interface, and of the steps asked for."""
    catalog, made = loader
    run = tracekit.open(samples / "tp_2x2")
    whole = made.wait(ask(catalog, "tp_2x2"), WAIT_S).value
    assert whole.totals == run.document()["totals"]
    assert whole.frame("ranks").equals(run.breakdown())
    told = whole.frame("steps")
    mine = run.steps().dropna(subset=["step"])
    assert told["window_us"].tolist() == mine["window_us"].tolist()
    assert told["exposed_wait_us"].tolist() == mine["exposed_wait_us"].tolist()
    part = made.wait(ask(catalog, "tp_2x2", steps=(5, 6)), WAIT_S).value
    assert part.totals == run.document(steps=(5, 6))["totals"]


def test_waits_by_pair_are_those_of_the_members(
    loader: tuple[Catalog, Loader], samples: Path
) -> None:
    """Who waited for whom, summed over the collectives that are no edge."""
    catalog, made = loader
    run = tracekit.open(samples / "tp_2x2")
    members = run.collective_members().merge(
        run.collectives()[["collective", "last_rank", "edge"]], on="collective"
    )
    members = members[~members["edge"]].dropna(subset=["wait_us", "last_rank"])
    right = members.groupby(["rank", "last_rank"])["wait_us"].sum()
    pairs = made.wait(ask(catalog, "tp_2x2"), WAIT_S).value.frame("pairs")
    told = pairs.set_index(["rank", "last_rank"])["wait_us"]
    assert len(told) == len(right) > 4
    for pair, wait_us in right.items():
        assert told[pair] == pytest.approx(wait_us)


def test_everybody_gets_the_same_answer_once(loader: tuple[Catalog, Loader]) -> None:
    """A second viewer of a run gets what the first one's work made."""
    catalog, made = loader
    first = made.wait(ask(catalog, "ddp_4"), WAIT_S)
    assert made.ask(ask(catalog, "ddp_4"), "another").value is first.value


def test_what_goes_wrong_is_said(loader: tuple[Catalog, Loader]) -> None:
    """Steps that there are not are a line for the page, and the next question is answered."""
    catalog, made = loader
    reply = made.wait(ask(catalog, "ddp_4", steps=(44, 55)), WAIT_S)
    assert reply.status == "failed"
    assert reply.what == "no step in 44:55; there are steps 4 to 6"
    made.forget(ask(catalog, "ddp_4", steps=(44, 55)))
    assert made.ask(ask(catalog, "ddp_4", steps=(44, 55))).status == "pending"
    assert made.wait(ask(catalog, "ddp_4"), WAIT_S).status == "ready"


def test_work_stops_when_nobody_wants_it(tmp_path: Path) -> None:
    """The last viewer who leaves ends the work; the process that does it starts anew after."""
    heavy = Kineto(rank=0)
    for at in range(60_000):
        heavy.kernel(10 * at, 10 * at + 9)
    (tmp_path / "heavy").mkdir()
    heavy.write(tmp_path / "heavy" / "rank0.json")
    (tmp_path / "light").mkdir()
    Kineto(rank=0).kernel(0, 10).write(tmp_path / "light" / "rank0.json")
    catalog = Catalog([str(tmp_path)])
    made = Loader(catalog, {"digest": Digest}, num_workers=1)
    try:
        asked = ask(catalog, "heavy")
        made.ask(asked, "a")
        made.ask(asked, "b")
        until(lambda: made.ask(asked, "a").what.startswith("reading"))
        made.leave(asked, "a")
        assert made.ask(asked, "b").status == "pending"
        made.leave(asked, "b")
        reply = made.wait(ask(catalog, "light"), WAIT_S)
        assert reply.status == "ready"
        assert reply.value.totals["compute_us"] == 10.0
    finally:
        made.close()


def test_a_changed_run_is_asked_anew(tmp_path: Path) -> None:
    """While a new file is read the last answer is still there; then the new one takes its place."""
    folder = tmp_path / "run"
    folder.mkdir()
    Kineto(rank=0).kernel(0, 10).write(folder / "rank0.json")
    catalog = Catalog([str(tmp_path)])
    made = Loader(catalog, {"digest": Digest}, num_workers=1)
    try:
        asked = ask(catalog, "run")
        first = made.wait(asked, WAIT_S)
        Kineto(rank=1).kernel(0, 99).write(folder / "rank1.json")
        time.sleep(FRESH_S + 0.05)
        assert made.ask(asked).value is first.value
        until(lambda: made.ask(asked).mark != first.mark)
        assert [row["rank"] for row in made.ask(asked).value.rows("ranks")] == [0, 1]
    finally:
        made.close()


def test_of_several_recordings_the_last_is_shown(tmp_path: Path) -> None:
    """A schedule that repeats writes several files of a rank: the last, unless one is chosen."""
    for number, end in enumerate((10, 20, 30)):
        made = Kineto(rank=0, baseTimeNanoseconds=1_000_000_000 * (number + 1))
        made.kernel(0, end).write(tmp_path / f"rank0.{number + 1}.json")
    catalog = Catalog([str(tmp_path)])
    loader = Loader(catalog, {"digest": Digest}, num_workers=1)
    try:
        last = loader.wait(ask(catalog, ""), WAIT_S).value
        assert (last.facts["capture"], last.facts["captures"]) == (3, 3)
        assert last.totals["compute_us"] == 30.0
        first = loader.wait(ask(catalog, "", capture=1), WAIT_S).value
        assert first.totals["compute_us"] == 10.0
        gone = loader.wait(ask(catalog, "", capture=4), WAIT_S)
        assert gone.what == "no capture 4; there are 3, counted from 1"
    finally:
        loader.close()
