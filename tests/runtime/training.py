"""One process of a job that trains small models on many grids; rank 0 writes what came out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

import torch.distributed as dist  # noqa: E402

from runtime import checkpoint, flags, train  # noqa: E402
from runtime.config import Config  # noqa: E402
from runtime.state import State, build  # noqa: E402

CPU = torch.device("cpu")
#: a GPT of a few thousand parameters, whose vocabulary has to be padded over two ranks
SMALL = [
    *("--model", "gpt-tiny", "--dim", "layers=1", "--dim", "features=24", "--dim", "heads=4"),
    *("--dim", "kv_heads=4", "--dim", "vocabulary=61", "--dim", "length=8"),
    *("--batch", "8", "--lr", "0.01", "--steps", "6"),
]


def config_of(words: Sequence[str], ranks: int) -> Config:
    """The settings that flags give for a job of so many ranks."""
    return flags.read([*SMALL, *words], "test", ranks).config


def state_of(words: Sequence[str], *, alone: bool = False) -> State:
    """A model in training; ``alone`` is the serial model in the same job."""
    ranks = 1 if alone or not dist.is_initialized() else dist.get_world_size()
    return build(config_of(words, ranks), CPU, alone=alone)


def curve(state: State, steps: int) -> list[tuple[float, float]]:
    """Loss and gradient norm of some steps."""
    done = [train.step(state) for _ in range(steps)]
    return [(d.loss, d.grad_norm) for d in done]


def case(name: str, words: Sequence[str], alone: bool, run: Path) -> Any:
    """What one case of a test computes, on every rank."""
    state = state_of(words, alone=alone)
    if name == "curve":
        return [*curve(state, 4), (train.evaluate(state), 0.0)]
    if name == "save":
        before = curve(state, 3)
        state.save(run)
        return before + curve(state, 3)
    if name == "resume":
        state.resume(checkpoint.newest(run))
        return [(float(state.step), 0.0), *curve(state, 3)]
    assert name == "delayed"
    asked = dict.fromkeys(("x", "y", "z", "data"), 0)

    def delay(axis: str, size_bytes: int) -> None:
        asked[axis] += size_bytes

    is_set = state.comm.delay is not None
    state.comm.delay = delay
    train.step(state)
    sent = {a: sum(n for (g, *_), n in state.comm.volume.items() if g[0] == a[0]) for a in asked}
    return [is_set, asked, sent]


def main(rank: int, world: int, folder: str, cases: list[tuple[str, list[str], bool]]) -> None:
    """Run every case on this rank; rank 0 writes the results, one line a case."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if world > 1:
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    run = Path(folder, "run")
    results = [case(name, words, alone, run) for name, words, alone in cases]
    if rank == 0:
        Path(folder, f"results{world}").write_text(json.dumps(results))
    if world > 1:
        dist.destroy_process_group()
