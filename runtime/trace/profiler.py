"""Windows of recording: torch's profiler by schedule, or the spans of collectives alone."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerAction, ProfilerActivity, profile

#: step -> what the profiler does in it, as `torch.profiler.schedule` makes
Schedule = Callable[[int], ProfilerAction]

_OPEN = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
#: collectives after which a light window hands over what it has
FLUSH_RECORDS = 20_000


class Listener(Protocol):
    """Who is told of windows."""

    def opened(self) -> None:
        """A window has begun to record."""

    def closing(self) -> None:
        """A window is about to end: its collectives should be done."""

    def closed(self, text: str, *, ended: bool) -> None:
        """A window has ended: the profiler's text, and whether at the end of a step."""


class Windows(Protocol):
    """What both kinds of windows offer."""

    def start(self) -> None:
        """Begin with the first step."""

    def step(self) -> None:
        """End a step and begin the next."""

    def stop(self) -> None:
        """End, in the middle of a step as may be."""


def every_step(_: int) -> ProfilerAction:
    """The schedule that records all steps in one window."""
    return ProfilerAction.RECORD


def once(*, skip: int = 1, steps: int = 3) -> Schedule:
    """The usual schedule: leave out the first steps, warm up in one, record some, once."""
    return torch.profiler.schedule(wait=skip, warmup=1, active=steps, repeat=1)


class ProfilerWindows:
    """Torch's profiler, operator rows included.

    Parameters
    ----------
    schedule : Schedule
        Counted from the loop's first step.
    first_step : int
        Its number.
    listener : Listener
    folder : Path
        Where the profiler's text lies for a moment.
    with_stack : bool
    """

    def __init__(
        self,
        schedule: Schedule,
        first_step: int,
        listener: Listener,
        folder: Path,
        *,
        with_stack: bool = False,
    ) -> None:
        self._listener, self._folder = listener, folder
        self._ended = False
        self._profile = profile(
            activities=_activities(),
            schedule=lambda n: schedule(max(n - first_step, 0)),  # it asks for step 0 before
            on_trace_ready=self._ready,
            record_shapes=True,
            with_stack=with_stack,
        )
        self._profile.step_num = first_step

    def start(self) -> None:
        """Begin with the first step."""
        self._profile.start()
        self._tell()

    def step(self) -> None:
        """End a step and begin the next."""
        now, then = self._profile.current_action, self._next()
        if now in _OPEN and (now == ProfilerAction.RECORD_AND_SAVE or then not in _OPEN):
            self._listener.closing()
        self._ended = True
        with warnings.catch_warnings():  # that a window's events are gone with it: they are written
            warnings.filterwarnings("ignore", "Warning: Profiler clears events")
            self._profile.step()
        self._ended = False
        self._tell(was=now)

    def stop(self) -> None:
        """End, in the middle of a step as may be."""
        if self._profile.current_action in _OPEN:
            self._listener.closing()
        self._profile.stop()

    def _next(self) -> ProfilerAction:
        return self._profile.schedule(self._profile.step_num + 1)

    def _tell(self, was: ProfilerAction | None = None) -> None:
        fresh = was not in _OPEN or was == ProfilerAction.RECORD_AND_SAVE
        if self._profile.current_action in _OPEN and fresh:
            self._listener.opened()

    def _ready(self, done: Any) -> None:
        text = _text_of(done.export_chrome_trace, self._folder)
        self._listener.closed(text, ended=self._ended)


class LightWindows:
    """The spans of collectives without any operator row: the profiler sees annotations only.

    Parameters
    ----------
    schedule : Schedule
        Counted from the loop's first step.
    listener : Listener
    folder : Path
    pending : callable
        How many collectives the window holds so far; when they are many it hands them over.
    """

    def __init__(
        self, schedule: Schedule, listener: Listener, folder: Path, pending: Callable[[], int]
    ) -> None:
        self._schedule, self._listener, self._folder = schedule, listener, folder
        self._pending = pending
        self._at = 0
        self._session: AnnotationSession | None = None

    def start(self) -> None:
        """Begin with the first step."""
        if self._schedule(0) in _OPEN:
            self._open()

    def step(self) -> None:
        """End a step and begin the next."""
        now, self._at = self._schedule(self._at), self._at + 1
        then = self._schedule(self._at)
        full = self._pending() >= FLUSH_RECORDS
        if self._session and (now == ProfilerAction.RECORD_AND_SAVE or then not in _OPEN or full):
            self._close(ended=True)
        if then in _OPEN and self._session is None:
            self._open()

    def stop(self) -> None:
        """End, in the middle of a step as may be."""
        if self._session:
            self._close(ended=False)

    def _open(self) -> None:
        self._session = AnnotationSession()
        self._session.start()
        self._listener.opened()

    def _close(self, *, ended: bool) -> None:
        self._listener.closing()
        session, self._session = self._session, None
        if session is not None:
            self._listener.closed(session.stop(self._folder), ended=ended)


class AnnotationSession:
    """Kineto with annotations (and kernels, on a GPU) alone."""

    def start(self) -> None:
        """Begin.

        Raises
        ------
        RuntimeError
            When another profiler is running.
        """
        scopes = {torch._C._profiler.RecordScope.USER_SCOPE}
        settings = autograd_profiler.profile(record_shapes=True).config()
        autograd_profiler._prepare_profiler(settings, _activities())
        autograd_profiler._enable_profiler(settings, _activities(), scopes)

    def stop(self, folder: Path) -> str:
        """End; the text of what was recorded."""
        return _text_of(autograd_profiler._disable_profiler().save, folder)


def on_device() -> bool:
    """Whether a device records its own rows."""
    return torch.cuda.is_available()


def _activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if on_device() else set())


def _text_of(save: Callable[[str], Any], folder: Path) -> str:
    """What a profiler saves, by way of a file; empty where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".json", prefix=".profile-", dir=folder)
    except OSError:
        return ""
    os.close(handle)
    path = Path(name)
    try:
        save(name)
        return path.read_text("utf-8", "surrogateescape")
    except (OSError, RuntimeError):
        return ""
    finally:
        path.unlink(missing_ok=True)
