"""The training loop, from top to bottom; run by each rank.

``torchrun --nproc-per-node 4 -m runtime.train --grid x=2,data=2``, or ``tracekit train -n 4 …``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction

from runtime import checkpoint, flags, folder, job, metrics, optim, progress, record
from runtime.config import Config, RecordSettings
from runtime.data import Batch
from runtime.job import Place
from runtime.metrics import Metrics
from runtime.progress import Progress
from runtime.state import State, build


def train(config: Config, place: Place, shown: Progress) -> None:
    """Train as the settings say, and leave a run folder."""
    state = build(config, place.device)
    comm, steps = state.comm, config.train.steps
    out = Path(config.train.out)
    with comm.during("checkpoint"):
        if config.train.resume:
            latest = config.train.resume == "latest"
            state.resume(checkpoint.newest(out if latest else Path(config.train.resume)))
        if place.rank == 0:
            folder.check(config.train)
            folder.clear(config.train)
        comm.barrier()
        metrics.write_run(state)
    lines = Metrics(out if place.rank == 0 else None, state.step)

    with recorder(config, state) as recorded:
        while state.step < steps:
            began = time.perf_counter()
            done = step(state)
            took = time.perf_counter() - began
            held_out = evaluate(state) if due(state.step, config.train.eval_every) else None
            if due(state.step, config.train.save_every):
                with comm.during("checkpoint"):
                    state.save(out)
            tokens_per_s = state.dims.tokens(config.batch.size) / took
            lines.add(
                step=state.step - 1,
                loss=done.loss,
                grad_norm=done.grad_norm,
                lr=done.lr,
                tokens_per_s=tokens_per_s,
                step_time_ms=1e3 * took,
                memory_bytes=metrics.memory_bytes(place.device),
                **({} if held_out is None else {"eval_loss": held_out}),
            )
            shown.at(state.step, steps, f"loss {done.loss:.4f}  {tokens_per_s:,.0f} tokens/s")
            recorded.step()
    shown.say(f"{state.step} steps are done; run folder {out}")


@dataclass(frozen=True, slots=True)
class Step:
    """What a training step gave: mean loss, gradient norm before clipping, learning rate."""

    loss: float
    grad_norm: float
    lr: float


def step(state: State) -> Step:
    """One training step."""
    comm, config = state.comm, state.config
    comm.step = state.step
    state.faults.begin_step(state.step)
    part = forward_and_backward(state, state.loader.batch())
    with comm.during("optimizer"):
        lr = optim.learning_rate(
            state.step, config.train.steps, config.optimizer.lr, config.schedule
        )
        norm = state.optimizer.step(lr)
        loss = float(comm.sum_over(part, ("z", "data"), "loss", "loss"))
    state.step += 1
    return Step(loss, norm, lr)


def recorder(config: Config, state: State) -> AbstractContextManager[Any]:
    """What records the run's traces; ``step()`` on it marks the end of a step."""
    if config.record.mode == "off":
        return nullcontext(Unrecorded())
    return record(
        Path(config.train.out),
        mode=config.record.mode,
        schedule=windows(config.record, config.train.steps - state.step),
        comm=state.comm,
        model=metrics.model_facts(state),
        flops_per_step=state.dims.flops(config.batch.size, config.batch.recompute),
        tokens_per_step=state.dims.tokens(config.batch.size),
        overlap=metrics.overlaps(config),
        first_step=state.step,
    )


def windows(settings: RecordSettings, steps: int) -> Callable[[int], ProfilerAction] | None:
    """The profiler's schedule; a short run waits less and records what is left.

    None stands for all steps, which is what the light mode records.
    """
    if settings.mode == "light":
        return None
    warmup = min(settings.warmup, max(0, steps - 1))
    wait = min(settings.wait, max(0, steps - warmup - settings.active))
    return torch.profiler.schedule(
        wait=wait, warmup=warmup, active=settings.active, repeat=settings.repeat
    )


class Unrecorded:
    """In the place of a recorder where nothing is recorded."""

    def step(self) -> None:
        """Mark nothing."""


def forward_and_backward(state: State, batches: Iterable[Batch]) -> torch.Tensor:
    """Sum the gradients of a batch; gives this rank's part of its mean loss."""
    comm, engine, scale = state.comm, state.engine, state.optimizer.scale
    total = torch.zeros(1, dtype=state.precision.parameters, device=state.device)
    engine.start()
    for batch in batches:
        with comm.during("forward"), state.faults.computing(), state.precision.computing():
            loss = state.model(batch.inputs, batch.num_valid)
        with comm.during("backward"), state.faults.computing():
            (loss * scale).backward()
        total += loss.detach()
    with comm.during("backward"):
        engine.finish()
    return total


@torch.no_grad()
def evaluate(state: State) -> float:
    """Mean loss over the batches held out."""
    total = torch.zeros(1, dtype=state.precision.parameters, device=state.device)
    count = state.config.train.eval_batches
    state.model.eval()
    with state.comm.during("evaluation"), state.precision.computing():
        for number in range(count):
            for batch in state.loader.held_out(number):
                total += state.model(batch.inputs, batch.num_valid)
        value = float(state.comm.sum_over(total, ("z", "data"), "loss", "loss")) / count
    state.model.train()
    return value


def due(step: int, every: int) -> bool:
    """Whether something that happens every so many steps happens after this one."""
    return bool(every) and step % every == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Be one rank of a job."""
    argv = sys.argv[1:] if argv is None else argv
    place, out = None, "RUN"
    try:
        job.watch_launcher(os.environ)
        options = flags.read(argv, "python -m runtime.train", job.world_size(os.environ))
        config, out = options.config, options.config.train.out
        place = job.find_place(os.environ, options.ranks)
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        shown = progress.of_rank(place.rank, job.progress_pipe(os.environ))
        with job.joined(place, os.environ, config.train.timeout_s):
            train(config, place, shown)
    except (Exception, KeyboardInterrupt) as e:  # noqa: BLE001 - each becomes one line
        return job.end(e, place, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
