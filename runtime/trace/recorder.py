"""Record a training loop into a run folder: ``with record("RUN") as rec: ... rec.step()``."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.profiler import record_function

from runtime.comm import Comm
from runtime.trace import about, document, profiler
from runtime.trace.probe import thread_groups
from runtime.trace.profiler import (
    LightWindows,
    ProfilerWindows,
    Schedule,
    Windows,
    every_step,
    once,
)
from runtime.trace.records import Log, Mark, Record
from runtime.trace.seen import Watch, groups_of_job
from runtime.trace.spans import Joined, join
from runtime.trace.writer import read_json, write_json_atomically, write_trace

Mode = Literal["profile", "light"]
#: how long the collectives under way may take to end when a window closes
DRAIN_S = 5.0
#: a light recording is on the disk after this long at the latest
WRITE_EVERY_S = 60.0


@dataclass(kw_only=True)
class Settings:
    """How a loop is recorded; see `record`."""

    mode: Mode = "profile"
    schedule: Schedule | None = None
    first_step: int = 0
    keep_steps: int = 100
    with_stack: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("profile", "light"):
            raise ValueError(f"mode {self.mode!r}: choose profile or light")
        if self.keep_steps < 1:
            raise ValueError(f"keep_steps {self.keep_steps}: at least 1")


@dataclass(kw_only=True)
class About:
    """What is recorded, for the files; see `record`."""

    mesh: DeviceMesh | None = None
    axes: Mapping[str, str] = field(default_factory=dict)
    model: Any = None
    flops_per_step: float | None = None
    tokens_per_step: int | None = None
    overlap: Sequence[str] = ()
    config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("model", "flops_per_step", "tokens_per_step", "config"):
            value = getattr(self, name)
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as e:
                raise ValueError(f"{name} {value!r} cannot be written as JSON: {e}") from e


class Recorder:
    """Records a loop between ``with`` and its end; made by `record`.

    A failure to write costs one line on stderr and the trace, never the training.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        comm: Comm | None,
        about: About,
    ) -> None:
        self._folder, self._mode, self._comm, self._about = folder, settings.mode, comm, about
        self._log = comm.log if comm else Log()
        self._step, self._keep_steps = settings.first_step, settings.keep_steps
        self._threads: dict[int, str] = {}
        self._watch = None if comm else Watch(self._log, about.axes)
        self._step_start = 0
        self._num_windows = self._num_kept = 0
        self._kept = document.Marks([], [], [], {})
        self._written_at = time.monotonic()
        self._quiet = self._used = False
        self._joined: Counter[str] = Counter()
        self._step_row: record_function | None = None
        self._on_device = profiler.on_device()
        self._windows = self._make_windows(settings)

    def _make_windows(self, settings: Settings) -> Windows:
        traces = self._folder / "traces"
        if self._mode == "light":
            return LightWindows(settings.schedule or every_step, self, traces, self._pending)
        schedule, first = settings.schedule or once(), settings.first_step
        return ProfilerWindows(schedule, first, self, traces, with_stack=settings.with_stack)

    def _pending(self) -> int:
        return len(self._log.records)

    # -- what the loop calls ------------------------------------------------------------------

    @property
    def step_number(self) -> int:
        """Number of the step under way."""
        return self._step

    def step(self) -> None:
        """End a training step."""
        if self._log.active:
            thread, now = threading.get_native_id(), time.time_ns()
            name = f"ProfilerStep#{self._step}"
            self._log.steps.append(Mark(name, self._step_start, now, thread))
        self._end_step()
        self._step += 1
        self._log.step = self._step
        self._windows.step()
        self._begin_step()

    def _begin_step(self) -> None:
        self._step_start = time.time_ns()
        if self._log.rows == "annotation" and self._step_row is None:
            self._step_row = record_function(f"ProfilerStep#{self._step}")
            self._step_row.__enter__()

    def _end_step(self) -> None:
        if self._step_row is not None:
            self._step_row.__exit__(None, None, None)
            self._step_row = None

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Name a phase of the step: forward, backward, optimizer, evaluation, checkpoint."""
        return self._log.during(name)

    def __enter__(self) -> Recorder:
        if self._log.watched:
            raise RuntimeError("this loop is being recorded already: end that first")
        if self._used:
            raise RuntimeError("this recorder was used before: make another with runtime.record")
        self._used = True
        # torch's profiler says start and stop on stderr unless told otherwise
        self._quiet = "KINETO_LOG_LEVEL" not in os.environ
        if self._quiet:
            os.environ["KINETO_LOG_LEVEL"] = "99"
        self._log.watched = True
        try:
            self._begin()
        except BaseException:
            self._restore()
            raise
        return self

    def _begin(self) -> None:
        if self._watch is not None:
            self._watch.start()
            self._threads.update(thread_groups(groups_of_job(self._about.axes), self._folder))
        hosts = about.meet()
        self._try(lambda: self._write_run(hosts))
        self._log.take()
        self._log.step = self._step
        self._step_start = time.time_ns()
        self._windows.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._windows.stop()
            self._write_light()
        except RuntimeError as e:
            self._say(f"not written: {e}")
        finally:
            self._restore()
        if not self._num_windows and kind is None:
            rule = "call rec.step() at the end of each step, and check the schedule"
            self._say(f"no window was recorded in {self._step} steps: {rule}")

    def _restore(self) -> None:
        log = self._log
        log.active, log.rows, log.tags, log.watched = False, "", False, False
        if self._watch is not None:
            self._watch.stop()
        if self._quiet:
            os.environ.pop("KINETO_LOG_LEVEL", None)

    # -- windows ------------------------------------------------------------------------------

    def opened(self) -> None:
        """A window has begun to record."""
        self._log.take()
        light = "annotation" if self._on_device else ""
        self._log.rows = "operator" if self._mode == "profile" else light
        self._log.tags = self._log.active = True
        self._begin_step()

    def closing(self) -> None:
        """A window is about to end: let its collectives end."""
        self._end_step()
        self._log.active, self._log.rows, self._log.tags = False, "", False
        if not self._log.drain(DRAIN_S):
            self._say(f"collectives were under way {DRAIN_S:g} s after the window's last step")

    def closed(self, text: str, *, ended: bool) -> None:
        """A window has ended: tie spans to collectives, and write."""
        records, phases, steps = self._log.take()
        if not steps:
            return  # not one whole step
        if not ended:
            text = document.renamed_step(text, self._step)
        joined = join(text, records, self._threads)
        self._joined.update(joined.counts())
        if self._mode == "light" and not self._on_device:
            self._keep(records, phases, steps, joined)
            return
        self._num_windows += 1
        pieces = document.annotated(text, joined.pairs, self._key(records))
        self._joined.clear()
        self._write(pieces)

    def _keep(
        self, records: list[Record], phases: list[Mark], steps: list[Mark], joined: Joined
    ) -> None:
        """Add a light window to what is kept: the newest steps."""
        kept = self._kept
        kept.records += records
        kept.phases += phases
        kept.steps += steps
        kept.threads.update({id(r): s.thread for s, r in joined.pairs})
        self._num_kept += 1
        del kept.steps[: -self._keep_steps]
        first = kept.steps[0].start_ns
        kept.records = [r for r in kept.records if r.issue_ns >= first]
        kept.phases = [p for p in kept.phases if p.start_ns >= first]
        alive = {id(r) for r in kept.records}
        kept.threads = {k: t for k, t in kept.threads.items() if k in alive}
        if time.monotonic() - self._written_at > WRITE_EVERY_S:
            self._write_light()

    def _write_light(self) -> None:
        if not self._kept.steps:
            return
        self._num_windows = 1
        self._written_at = time.monotonic()
        key = self._key(self._kept.records)
        self._write(document.light_document(self._kept, key))

    # -- files --------------------------------------------------------------------------------

    def _write(self, pieces: Iterable[str]) -> None:
        """Write a window; before the second, what an earlier recording left makes way."""

        def write() -> None:
            path = self._path()
            write_trace(path, pieces)
            if self._num_windows == 1:
                self._remove_earlier(path)

        self._try(write)

    def _key(self, records: list[Record]) -> dict[str, Any]:
        key = about.trace_key(self._mode, self._comm, self._about, records)
        return {**key, "joined": dict(self._joined)}

    def _path(self) -> Path:
        number = f".{self._num_windows}" if self._num_windows > 1 else ""
        return self._folder / "traces" / f"rank{_rank():05d}{number}.pt.trace.json.gz"

    def _write_run(self, hosts: list[str | None]) -> None:
        if _rank() == 0:
            path = self._folder / "run.json"
            new = about.run_facts(self._mode, self._comm, self._about, hosts)
            write_json_atomically(path, {**read_json(path), **new})

    def _remove_earlier(self, new: Path) -> None:
        """Of this rank's traces in the folder, the new one stays."""
        for file in (self._folder / "traces").glob(f"rank{_rank():05d}*.pt.trace.json.gz"):
            if file != new:
                file.unlink()

    def _try(self, write: Any) -> None:
        try:
            write()
        except OSError as e:
            self._say(f"not written: {e}; training goes on")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"tracekit: rank {_rank()}: {text}\n")


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def record(  # noqa: PLR0913 - independent settings, all with defaults
    folder: str | os.PathLike[str],
    *,
    schedule: Schedule | None = None,
    mode: Mode = "profile",
    comm: Comm | None = None,
    mesh: DeviceMesh | None = None,
    axes: Mapping[str, str] | None = None,
    model: Any = None,
    flops_per_step: float | None = None,
    tokens_per_step: int | None = None,
    overlap: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    first_step: int = 0,
    keep_steps: int = 100,
    with_stack: bool = False,
) -> Recorder:
    """Record a training loop, one's own or the runtime's, into a run folder.

    Parameters
    ----------
    folder : path
        Gets ``run.json`` and ``traces/rank00000.pt.trace.json.gz``, ...; an earlier recording of
        the same ranks in it is replaced.
    schedule : callable, optional
        As `torch.profiler.schedule` makes, counted from the loop's first step. By default the
        profiler leaves out one step, warms up in the next and records three; the light mode
        records all. Each further window is a file of its own (``rank00000.2...``).
    mode : {"profile", "light"}
        With torch's profiler, or the collectives, waits, phases and steps alone.
    comm : Comm, optional
        Of the runtime's own models. Without it the collectives are seen below Python.
    mesh : DeviceMesh, optional
        Gives this rank's coordinates.
    axes : mapping of str to str, optional
        Axis by description of a process group, or by a mesh's dimension:
        ``{"default_pg": "data"}``. A mesh's dimensions are axes of their own name otherwise.
    model : optional
        Name or dimensions, as JSON.
    flops_per_step, tokens_per_step : optional
        Of all ranks together.
    overlap : sequence of str
        Which overlaps are on.
    config : mapping, optional
        Whatever else belongs into ``run.json``.
    first_step : int
        Number of the loop's first step.
    keep_steps : int
        How many of the newest steps the light mode keeps.
    with_stack : bool
        Whether the profiler records Python stacks.

    Returns
    -------
    Recorder
        To be used in ``with``; its ``step()`` ends a step.

    Raises
    ------
    ValueError
        For an unknown mode or a count below 1.
    RuntimeError
        On entering, when this process is being recorded already.
    """
    settings = Settings(
        mode=mode,
        schedule=schedule,
        first_step=first_step,
        keep_steps=keep_steps,
        with_stack=with_stack,
    )
    what = About(
        mesh=mesh,
        axes=axes or {},
        model=model,
        flops_per_step=flops_per_step,
        tokens_per_step=tokens_per_step,
        overlap=overlap,
        config=config,
    )
    return Recorder(Path(folder), settings, comm, what)
