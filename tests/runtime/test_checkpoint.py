"""A run goes on from a checkpoint as if it had never stopped, also on another grid."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch.distributed.checkpoint.metadata import MetadataIndex  # noqa: E402

from runtime import checkpoint, stored  # noqa: E402
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
    reader = stored.Reader(checkpoint.newest(folder / "run"))
    entries = reader.read_metadata().state_dict_metadata
    state = training.state_of(FP64)
    shapes = {p.name: list(p.shape) for p in state.registry.placements.values()}
    assert shapes["embedding.weight"] == [61, 24]
    for name, shape in shapes.items():
        for kind in (f"model.{name}", f"optimizer.{name}.exp_avg", f"optimizer.{name}.exp_avg_sq"):
            assert list(entries[kind].size) == shape
    assert len(entries) == 3 * len(shapes)


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
    with pytest.raises(stored.CheckpointError, match="no part of an index"):
        checkpoint.load(made, state.parts(), state.comm)
    assert capsys.readouterr().out == ""


def test_only_the_listed_names_are_made(tmp_path: Path) -> None:
    """Other names of the modules an index names, even harmless ones, are refused."""
    made = _made(tmp_path, 1)
    for name in (b"torch.distributed.checkpoint.metadata\nos", b"torch\nload", b"builtins\nexec"):
        (made / checkpoint.METADATA).write_bytes(b"c" + name + b"\n.")
        with pytest.raises(stored.CheckpointError, match="no part of an index"):
            stored.Reader(made).read_metadata()


@pytest.mark.parametrize(
    ("key", "given", "reason"),
    [
        ("step", -5, "step = -5: must be a whole number, at least 0"),
        ("step", "x", "step = 'x': must be a whole number, at least 0"),
        ("position", None, "position = None: must be a whole number, at least 0"),
        ("updates", 1.5, "updates = 1.5: must be a whole number, at least 0"),
        ("seed", True, "seed = True: must be a whole number"),
        ("scale", 0.5, "scale = 0.5: must be a finite number, at least 1"),
        ("scale", float("inf"), "scale = inf: must be a finite number, at least 1"),
        ("updates", ..., "updates is missing"),
    ],
)
def test_a_damaged_state_is_one_line(tmp_path: Path, key: str, given: Any, reason: str) -> None:
    """A value that no run can go on from is named with its rule."""
    state: dict[str, Any] = {"format": 1, "step": 1, "position": 16, "updates": 1, "seed": 0}
    state |= {"scale": 1.0, "good_steps": 0, "dtype": "fp32", key: given}
    kept = {k: v for k, v in state.items() if v is not ...}
    (tmp_path / checkpoint.STATE).write_text(json.dumps(kept))
    with pytest.raises(stored.CheckpointError) as caught:
        stored.read_state(tmp_path)
    rest = "resume from another checkpoint"
    assert str(caught.value) == f"{tmp_path}: state.json is damaged ({reason}); {rest}"


@pytest.mark.parametrize("text", ["[]", "3", "null", "{", "", "[" * 100000])
def test_a_state_that_is_no_object_is_damaged(tmp_path: Path, text: str) -> None:
    """Anything but one JSON object is one line that names the file."""
    (tmp_path / checkpoint.STATE).write_text(text)
    with pytest.raises(stored.CheckpointError, match=r"state\.json is damaged \(.*another check"):
        stored.read_state(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "flip", "remove", "index"])
def test_damaged_files_are_named(tmp_path: Path, harm: str) -> None:
    """A data file cut, changed or gone, or half an index, is one line that names the file."""
    state = training.state_of([])
    made = state.save(tmp_path)
    (file,) = made.glob("*.distcp")
    if harm == "remove":
        file.unlink()
    elif harm == "cut":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif harm == "flip":
        file.write_bytes(bytes(b ^ 0xFF for b in file.read_bytes()))
    else:
        file = made / checkpoint.METADATA
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(stored.CheckpointError) as caught:
        state.resume(made)
    line = str(caught.value)
    assert line.startswith(f"{made}: {file.name} is damaged (")
    assert line.endswith("); resume from another checkpoint")
    assert "\n" not in line
    assert "weights" not in line


def test_an_index_names_no_file_elsewhere(tmp_path: Path) -> None:
    """Data is read from the checkpoint's own folder only."""
    made = training.state_of([]).save(tmp_path)
    index = stored.Reader(made).read_metadata()
    for piece in index.storage_data.values():
        piece.relative_path = "../elsewhere.distcp"
    (made / checkpoint.METADATA).write_bytes(pickle.dumps(index))
    with pytest.raises(stored.CheckpointError, match=r"names a file elsewhere: '\.\./else"):
        stored.Reader(made).read_metadata()


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
        with pytest.raises(stored.CheckpointError, match="which is no part of an index"):
            checkpoint.load(folder, {}, None)  # type: ignore[arg-type]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 50, b"\x80\x63.", b"\x80\x04R.", b"\x80\x04\x8c\x01\xff.", b"K\x03."]
)
def test_a_damaged_index_is_one_line(tmp_path: Path, text: bytes) -> None:
    """Whatever a pickle raises, the message names folder, file and the way out."""
    folder = _index(tmp_path / "step-1", text)
    with pytest.raises(stored.CheckpointError) as caught:
        checkpoint.load(folder, {}, None)  # type: ignore[arg-type]
    line = str(caught.value)
    assert line.startswith(f"{folder}: .metadata is damaged (")
    assert line.endswith("resume from another checkpoint")
    assert "\n" not in line
