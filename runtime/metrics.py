"""What a run tells of itself beside its traces: run.json once, a line of metrics.jsonl a step."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from runtime.config import Config
from runtime.state import State
from runtime.trace import about
from runtime.trace.recorder import About
from runtime.trace.writer import append_line, write_json_atomically


def write_run(state: State) -> None:
    """Write run.json: all that has to be known to read the traces or to run it again.

    All ranks call this; rank 0 writes.
    """
    config = state.config
    what = About(
        model=model_facts(state),
        flops_per_step=state.dims.flops(config.batch.size, config.batch.recompute),
        tokens_per_step=state.dims.tokens(config.batch.size),
        overlap=overlaps(config),
        config=config.table(),
    )
    hosts = about.meet() if config.record.mode == "off" else []  # else the recorder says them
    if state.comm.grid.rank:
        return
    facts = about.run_facts(config.record.mode, state.comm, what, hosts)
    own = {
        "device": state.device.type,
        "faults": {k: v for k, v in asdict(config.faults).items() if v is not None},
        "resumed_from_step": state.step or None,
    }
    write_json_atomically(Path(config.train.out) / "run.json", {**facts, **own})


def model_facts(state: State) -> dict[str, Any]:
    """Name and dimensions of the model."""
    return {"preset": state.config.model.preset, **asdict(state.dims)}


def overlaps(config: Config) -> list[str]:
    """The overlaps that are on."""
    return [name for name, on in asdict(config.overlap).items() if on]


class Metrics:
    """metrics.jsonl of rank 0; a resumed run goes on after the step of its checkpoint.

    Parameters
    ----------
    folder : Path or None
        None for the other ranks, which write nothing.
    step : int
        Steps done; lines of later ones are of a run that is not gone on with.
    """

    def __init__(self, folder: Path | None, step: int) -> None:
        self._path = folder / "metrics.jsonl" if folder else None
        if self._path is None or not self._path.exists():
            return
        lines = self._path.read_text().splitlines()
        kept = [line for line in lines if _step_of(line) < step]
        self._path.write_text("".join(line + "\n" for line in kept))

    def add(self, **values: Any) -> None:
        """Write a line, all of it or, on a full disk, nothing."""
        if self._path is None:
            return
        before = self._path.stat().st_size if self._path.exists() else 0
        try:
            append_line(self._path, values)
        except OSError:
            os.truncate(self._path, before)
            raise


def _step_of(line: str) -> int:
    """Step of a line; a line that a killed run cut short belongs to no step that counts."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return sys.maxsize


def memory_bytes(device: torch.device) -> int:
    """Most memory this rank has held so far: the allocator's on a GPU, else the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
