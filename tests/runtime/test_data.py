"""Samples depend on seed and index alone, and each rank makes its own part of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from runtime import data, models  # noqa: E402
from runtime.config import DataSettings  # noqa: E402
from runtime.data import Loader, TextTokens  # noqa: E402
from runtime.grid import Axis  # noqa: E402
from runtime.settings import ConfigError  # noqa: E402

CPU = torch.device("cpu")
TEXT = bytes(range(256)) * 4


class Place(dict[str, Axis]):
    """The z and data axes as a rank sees them."""

    def __init__(self, z: tuple[int, int], data: tuple[int, int]) -> None:
        named = {"z": z, "data": data}
        super().__init__({n: Axis(n, size, at, (), None) for n, (size, at) in named.items()})


def loader(source: data.Source, place: Place, micro_batches: int = 1) -> Loader:
    """Batches of eight."""
    return Loader(source, place, 8, micro_batches, CPU)  # type: ignore[arg-type]  # only axes


@pytest.mark.parametrize("name", ["gpt-tiny", "mlp-tiny", "unet-tiny"])
def test_parts_of_ranks_make_the_same_batch(name: str) -> None:
    """The parts of 2 x 2 ranks in two micro-batches are the serial batch, at every step."""
    source = data.source(DataSettings(), 3, models.PRESETS[name])
    serial = loader(source, Place((1, 0), (1, 0)))
    ranks = [loader(source, Place((2, z), (2, d)), 2) for d in range(2) for z in range(2)]
    for step in range(2):
        (whole,) = serial.batch()
        parts = [batch for rank in ranks for batch in rank.batch()]
        assert len(parts) == 8
        assert whole.inputs["samples"].tolist() == list(range(8 * step, 8 * step + 8))
        for key, value in whole.inputs.items():
            assert torch.equal(torch.cat([p.inputs[key] for p in parts]), value), key
        assert {int(p.num_valid) for p in parts} == {int(whole.num_valid)}


def test_the_position_is_all_there_is_to_keep() -> None:
    """A new loader at the position of another goes on with the same samples."""
    source = data.source(DataSettings(), 0, models.PRESETS["gpt-tiny"])
    one, other = (loader(source, Place((1, 0), (1, 0))) for _ in range(2))
    list(one.batch())
    other.position = one.position
    assert torch.equal(next(one.batch()).inputs["tokens"], next(other.batch()).inputs["tokens"])


def test_held_out_samples_are_others_and_stay() -> None:
    """Evaluation sees the same samples each time, and none of training."""
    source = data.source(DataSettings(), 0, models.PRESETS["gpt-tiny"])
    one = loader(source, Place((1, 0), (1, 0)))
    first = next(one.held_out(0)).inputs["tokens"]
    trained = next(one.batch()).inputs["tokens"]
    assert torch.equal(next(one.held_out(0)).inputs["tokens"], first)
    assert not torch.equal(trained, first)


def _text(tmp_path: Path, length: int = 7) -> TextTokens:
    file = tmp_path / "text"
    file.write_bytes(TEXT)
    return TextTokens(file, 0, 256, length)


def test_text_is_read_once_an_epoch(tmp_path: Path) -> None:
    """1,024 bytes in windows of 7: 146, of which 7 are held out; an epoch has each other once."""
    source = _text(tmp_path)
    for epoch in range(2):
        index = torch.arange(139) + 139 * epoch
        starts = source.samples(index, held_out=False)["tokens"]
        seen = sorted(tuple(row) for row in starts.tolist())
        windows = [tuple(TEXT[7 * w : 7 * w + 7]) for w in range(139)]
        assert seen == sorted(windows)
    held = source.samples(torch.arange(7), held_out=True)["tokens"]
    assert [tuple(r) for r in held.tolist()] == [
        tuple(TEXT[7 * w : 7 * w + 7]) for w in range(139, 146)
    ]


def test_targets_are_the_next_bytes(tmp_path: Path) -> None:
    """A target is the byte after its token, across the end of the window."""
    made = _text(tmp_path).samples(torch.arange(5), held_out=False)
    assert torch.equal((made["tokens"] + 1) % 256, made["targets"])


def test_text_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A short file, a missing one, a small vocabulary and a model without text are one line."""
    file = tmp_path / "text"
    file.write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"5 bytes; needs 15 \(two sequences\)"):
        TextTokens(file, 0, 256, 7)
    with pytest.raises(ConfigError, match="No such file"):
        TextTokens(tmp_path / "none", 0, 256, 7)
    with pytest.raises(ConfigError, match="give --dim vocabulary=256"):
        TextTokens(file, 0, 96, 7)
    text = DataSettings(kind="text", path=str(file))
    with pytest.raises(ConfigError, match="takes no text"):
        data.source(text, 0, models.PRESETS["mlp-tiny"])
