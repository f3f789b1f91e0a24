"""The trace of one step proves each overlap: what is issued, computed, and only then waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from tests.runtime import recording  # noqa: E402

#: overlap, grid it shows on, and the operation and group that it hides
CASES = {
    "oar": ("x=2,y=2", "all_reduce", ("x", "y")),
    "ors": ("z=4", "reduce_scatter", ("z_rs",)),
    "oag": ("z=4", "all_gather", ("z",)),
    "bucket": ("data=4", "all_reduce", ("data",)),
}
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every overlap alone, and none, on its grid."""
    folder = tmp_path_factory.mktemp("overlaps")
    cases = []
    for name, (grid, _, _) in CASES.items():
        cases += [(name, grid, name, "profile"), (f"no-{name}", grid, "none", "profile")]
    recording.run(folder, 4, recording.train, cases, 1)
    return folder


def hidden(folder: Path, name: str, rank: int) -> tuple[int, int]:
    """How many of an overlap's collectives have products between issue and wait, of how many."""
    _, op, groups = CASES[name.removeprefix("no-")]
    found = recording.trace(folder / name, rank)
    products = recording.rows(found, *PRODUCTS)
    mine: list[dict[str, Any]] = [
        c
        for c in found["tracekit"]["collectives"]
        if c["op"] == op and c["group"] in groups and c["layer"] not in ("vectors", "loss")
    ]
    if name.removeprefix("no-") in ("oar", "bucket"):
        mine = [c for c in mine if c["phase"] == "backward" and "norm" not in c["layer"]]
    under = 0
    for c in mine:
        assert c["issue_ns"] <= c["wait_start_ns"]
        # products that begin after the call and end before the wait
        between = [
            p
            for p in products
            if c["issue_ns"] < p["start_ns"] and p["end_ns"] < c["wait_start_ns"]
        ]
        under += bool(between)
    return under, len(mine)


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_overlap_that_is_on_shows(runs: Path, name: str) -> None:
    """Products run after the collective is issued and before anybody waits for it."""
    for rank in range(4):
        under, every = hidden(runs, name, rank)
        assert every
        assert under >= every // 2, (rank, under, every)


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_overlap_that_is_off_does_not_show(runs: Path, name: str) -> None:
    """With the overlap off every such collective is waited for where it is issued."""
    for rank in range(4):
        under, every = hidden(runs, f"no-{name}", rank)
        assert every
        assert under == 0
