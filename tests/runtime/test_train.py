"""The training loop gives the same losses on every grid."""

from __future__ import annotations

import json
import math
from itertools import chain, product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from runtime import train  # noqa: E402
from runtime.config import RecordSettings  # noqa: E402
from tests.runtime import training  # noqa: E402

GRIDS = ["x=4", "y=4", "z=4", "data=4", "x=2,data=2", "y=2,z=2", "z=2,data=2"]
#: of losses and norms in fp32, relative: its rounding (6e-8) grows through a few steps of sums
#: done in another order
FP32_TOLERANCE = 2e-5
LOW_TOLERANCE = {"bf16": 2e-2, "fp16": 5e-3}
WAYS = {
    "plain": [],
    "parts": ["--micro-batches", "2", "--recompute", "full"],
    "zero": ["--zero"],
    "inf": ["--clip", "0.02", "--clip-norm", "inf", "--overlap", "none"],
}


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[tuple[float, float]]]:
    """Losses and norms of every case, all from one job of four ranks."""
    folder = tmp_path_factory.mktemp("train")
    cases: dict[Any, tuple[str, list[str], bool]] = {}
    for dtype, way in product(("fp64", "fp32", "bf16", "fp16"), WAYS):
        if dtype != "fp64" and way != "plain":
            continue
        words = ["--clip", "0.1", *WAYS[way], "--dtype", dtype]
        cases[dtype, way, "serial"] = ("curve", [w for w in words if w != "--zero"], True)
        for grid in GRIDS if dtype == "fp64" else GRIDS[2:5]:
            cases[dtype, way, grid] = ("curve", [*words, "--grid", grid], False)
    slow = ["--fault", "slow_link:axis=z,delay_us=1"]
    cases["delayed"] = ("delayed", [*slow, "--grid", "x=2,z=2"], False)
    made = list(cases.values())
    torch.multiprocessing.spawn(training.main, (4, str(folder), made), nprocs=4)
    results = json.loads((folder / "results4").read_text())
    return dict(zip(cases, results, strict=True))


def _apart(got: list[tuple[float, float]], want: list[tuple[float, float]]) -> float:
    """Largest relative difference."""
    pairs = zip(chain.from_iterable(got), chain.from_iterable(want), strict=True)
    return max(abs(a - b) / max(abs(b), 1e-300) for a, b in pairs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("grid", GRIDS)
def test_fp64_curves_are_the_serial_ones(curves: Any, grid: str, way: str) -> None:
    """Losses, gradient norms and the held-out loss are the serial model's, to rounding."""
    assert _apart(curves["fp64", way, grid], curves["fp64", way, "serial"]) < 1e-11


def test_ways_that_change_nothing_change_nothing(curves: Any) -> None:
    """Micro-batches, recomputing and the sharded optimizer give the plain run's losses."""
    for way in ("parts", "zero"):
        assert _apart(curves["fp64", way, "serial"], curves["fp64", "plain", "serial"]) < 1e-11


def test_clipping_by_another_norm_is_another_run(curves: Any) -> None:
    """The cases can tell right from wrong: the inf-norm's losses differ from the 2-norm's."""
    assert _apart(curves["fp64", "inf", "serial"], curves["fp64", "plain", "serial"]) > 1e-4


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("grid", GRIDS[2:5])
def test_other_formats_stay_within_their_tolerance(curves: Any, grid: str, dtype: str) -> None:
    """fp32, bf16 and fp16 losses equal the serial ones within the stated tolerance."""
    losses = [[(loss, 0.0) for loss, _ in curves[dtype, "plain", g]] for g in (grid, "serial")]
    want = [(loss, 1.0) for loss, _ in losses[1]]
    got = [(loss, 1.0) for loss, _ in losses[0]]
    assert _apart(got, want) < LOW_TOLERANCE.get(dtype, FP32_TOLERANCE)


def test_training_learns(curves: Any) -> None:
    """The loss begins at that of a uniform guess and falls."""
    losses = [loss for loss, _ in curves["fp64", "plain", "serial"]]
    assert losses[0] == pytest.approx(math.log(61), rel=0.01)
    assert losses[3] < losses[0] - 0.05


def test_a_slow_link_is_asked_before_every_collective(curves: Any) -> None:
    """The fault hears of each collective's axis and bytes before it is issued."""
    is_set, asked, sent = curves["delayed"]
    assert is_set
    assert asked == sent
    assert asked["x"] > 0
    assert asked["z"] > 0
    assert asked["y"] == asked["data"] == 0


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (20, "nnwrrrs" + "n" * 13),  # as set: wait 2, warm up 1, record 4, once
        (6, "nwrrrs"),
        (5, "wrrrs"),
        (4, "wrrr"),
        (2, "wr"),
    ],
)
def test_a_short_run_is_recorded_too(steps: int, expected: str) -> None:
    """When there are fewer steps than the schedule needs, it waits less and records the rest."""
    schedule = train.windows(RecordSettings(wait=2, warmup=1, active=4, repeat=1), steps)
    letters = {"NONE": "n", "WARMUP": "w", "RECORD": "r", "RECORD_AND_SAVE": "s"}
    assert "".join(letters[schedule(step).name] for step in range(steps)) == expected
