"""A run goes on from a checkpoint as if it had never stopped, also on another grid."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch.distributed.checkpoint.metadata import MetadataIndex  # noqa: E402

from runtime import checkpoint  # noqa: E402
from runtime.checkpoint import Part  # noqa: E402
from runtime.settings import ConfigError  # noqa: E402
from runtime.sharding import Placement  # noqa: E402
from tests.runtime import training  # noqa: E402

FP64 = ["--dtype", "fp64"]
GRIDS = ["x=2,data=2", "z=4", "y=4", "x=2,y=2", "data=4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a job of four ranks saved on x=2,data=2 after three of six steps, and resumed."""
    folder = tmp_path_factory.mktemp("checkpoint")
    cases = [("save", [*FP64, "--grid", "x=2,data=2"], False)]
    cases += [("resume", [*FP64, "--grid", grid], False) for grid in GRIDS]
    cases += [("resume", [*FP64, "--grid", "z=2,data=2", "--zero"], False)]
    cases += [("resume", FP64, True)]
    torch.multiprocessing.spawn(training.main, (4, str(folder), cases), nprocs=4)
    return folder


def test_another_grid_goes_on_with_the_same_losses(folder: Path) -> None:
    """Each grid, and the serial model, has the losses and norms of the run that went on."""
    whole, *resumed = json.loads((folder / "results4").read_text())
    assert len(resumed) == len(GRIDS) + 2
    for (done, _), *curve in resumed:
        assert done == 3
        for got, want in zip(curve, whole[3:], strict=True):
            assert got == pytest.approx(want, rel=1e-11)


def test_it_holds_the_serial_tensors(folder: Path) -> None:
    """The file's tensors have the serial model's shapes, unpadded, each with its moments."""
    reader = checkpoint._Reader(checkpoint.newest(folder / "run"))
    stored = reader.read_metadata().state_dict_metadata
    state = training.state_of(FP64)
    shapes = {p.name: list(p.shape) for p in state.registry.placements.values()}
    assert shapes["embedding.weight"] == [61, 24]
    for name, shape in shapes.items():
        for kind in (f"model.{name}", f"optimizer.{name}.exp_avg", f"optimizer.{name}.exp_avg_sq"):
            assert list(stored[kind].size) == shape
    assert len(stored) == 3 * len(shapes)


def test_another_model_is_refused(folder: Path) -> None:
    """A checkpoint of other dimensions is refused with both shapes."""
    state = training.state_of([*FP64, "--dim", "features=48"])
    with pytest.raises(ConfigError, match=r"has shape \[61, 24\] there and \[61, 48\] here"):
        state.resume(checkpoint.newest(folder / "run"))


def test_another_seed_is_refused(folder: Path) -> None:
    """Data and dropout come from the seed, so another one is refused."""
    state = training.state_of([*FP64, "--seed", "7"])
    with pytest.raises(ConfigError, match="made with seed 0, this run has 7; give --seed 0"):
        state.resume(checkpoint.newest(folder / "run"))


def _made(run: Path, step: int, *names: str) -> Path:
    made = checkpoint.folder_of(run, step)
    made.mkdir(parents=True)
    for name in names:
        (made / name).touch()
    return made


def test_the_newest_whole_one_is_taken(tmp_path: Path) -> None:
    """Half-written checkpoints, hidden or without their last file, are passed over."""
    whole = _made(tmp_path, 9, checkpoint.STATE, checkpoint.METADATA)
    _made(tmp_path, 8, checkpoint.STATE, checkpoint.METADATA)
    _made(tmp_path, 10, checkpoint.STATE)
    partial = _made(tmp_path, 11, checkpoint.STATE, checkpoint.METADATA)
    partial.rename(partial.with_name(f".{partial.name}.partial"))
    assert checkpoint.newest(tmp_path) == whole


def test_nothing_to_go_on_from_is_said(tmp_path: Path) -> None:
    """A folder without a finished checkpoint is refused in one line."""
    with pytest.raises(ConfigError, match="no finished checkpoint there"):
        checkpoint.newest(tmp_path)


def test_old_ones_are_removed(tmp_path: Path) -> None:
    """Only as many as asked for stay, the newest."""
    state = training.state_of(["--set", "train.keep=2"])
    for step in (1, 2, 3):
        state.step = step
        state.save(tmp_path)
    names = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000002", "step-00000003"]


def test_a_failed_write_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If writing stops halfway, nothing stands under a final name."""
    state = training.state_of([])
    monkeypatch.setattr(checkpoint.dcp, "save", _full_disk)
    with pytest.raises(OSError, match="No space"):
        state.save(tmp_path)
    with pytest.raises(ConfigError):
        checkpoint.newest(tmp_path)


def _full_disk(*_: Any, checkpoint_id: Path, **__: Any) -> None:
    (checkpoint_id / "__0_0.distcp").write_bytes(b"half")
    raise OSError(28, "No space left on device")


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


def test_reading_runs_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An index that names anything but parts of an index is refused, and not run."""
    made = _made(tmp_path, 1, checkpoint.STATE)
    (made / checkpoint.METADATA).write_bytes(pickle.dumps(_Evil()))
    state = training.state_of([])
    with pytest.raises(checkpoint.CheckpointError, match="no part of an index"):
        checkpoint.load(made, state.parts(), state.comm)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("z", [1, 2, 3])
@pytest.mark.parametrize("cut", [(0, 99), (0, 4), (3, 7), (5, 6)])
def test_rectangles_hold_each_element_once(z: int, cut: tuple[int, int]) -> None:
    """Rectangles of any stretch of a scattered block say where in the serial tensor it lies."""
    rows, cols = torch.tensor([0, 1, 5, 6, 9]), torch.tensor([2, 3, 7])
    for index in range(z):
        placement = Placement("w", (7, 8), rows, cols, z_index=index, z_size=z)
        local = placement.index()
        start, stop = cut[0], min(cut[1], placement.part)
        flat = torch.arange(placement.part)[start:stop]
        part = Part(placement, flat, start)
        seen = {}
        for chunk in part.chunks():
            assert len(chunk.sizes) == 2
            view = part.at(MetadataIndex("w", chunk.offsets))
            for i in range(chunk.sizes[0]):
                for j in range(chunk.sizes[1]):
                    where = (chunk.offsets[0] + i) * 8 + chunk.offsets[1] + j
                    assert where not in seen
                    seen[where] = int(view[i, j])
        expected = {int(local[k]): k for k in range(start, stop) if local[k] >= 0}
        assert seen == expected


def _index(folder: Path, text: bytes) -> Path:
    """A checkpoint with this index."""
    folder.mkdir()
    (folder / ".metadata").write_bytes(text)
    return folder


def test_an_index_runs_no_code(tmp_path: Path) -> None:
    """A name with dots, which reaches whatever torch has imported, is refused unread."""
    mark = str(tmp_path / "ran").encode()
    module = b"torch.distributed.checkpoint.metadata"

    def text(value: bytes) -> bytes:
        return b"\x8c" + bytes([len(value)]) + value

    for name in (b"os.system", b"torch._strobelight.cli_function_profiler.subprocess.Popen"):
        call = text(module) + text(name) + b"\x93" + text(b"touch " + mark) + b"\x85R."
        folder = _index(tmp_path / name.decode(), b"\x80\x04" + call)
        with pytest.raises(checkpoint.CheckpointError, match="which is no part of an index"):
            checkpoint.load(folder, {}, None)  # type: ignore[arg-type]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 50, b"\x80\x63.", b"\x80\x04R.", b"\x80\x04\x8c\x01\xff.", b"K\x03."]
)
def test_a_damaged_index_is_one_line(tmp_path: Path, text: bytes) -> None:
    """Whatever a pickle raises, the message names folder, file and the way out."""
    folder = _index(tmp_path / "step-1", text)
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.load(folder, {}, None)  # type: ignore[arg-type]
    line = str(caught.value)
    assert line.startswith(f"{folder}: .metadata is damaged (")
    assert line.endswith("resume from another one")
    assert "\n" not in line


GOOD = {
    "format": 1,
    "seed": 0,
    "step": 1,
    "position": 8,
    "updates": 1,
    "scale": 1.0,
    "good_steps": 0,
}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"step": -5}, "step is -5"),
        ({"position": None}, "position is None"),
        ({"updates": "3"}, "updates is '3'"),
        ({"scale": float("inf")}, "scale is inf"),
        ({"seed": 1.5}, "seed is 1.5"),
    ],
)
def test_an_impossible_state_is_refused(
    tmp_path: Path, change: dict[str, object], word: str
) -> None:
    """A step below 0 would train at a negative rate; every value is looked at first."""
    (tmp_path / "state.json").write_text(json.dumps(GOOD))
    assert checkpoint.read_state(tmp_path) == GOOD
    (tmp_path / "state.json").write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(checkpoint.CheckpointError, match=f"state.json is damaged .{word}"):
        checkpoint.read_state(tmp_path)
