"""The ``tracekit`` command: picks the verb and turns every failure into one line and a status.

Exit status: 0 fine; 1 a ``--fail-on`` threshold was crossed, or ``check`` found a warning; 2 bad
use or no readable trace; 3 analysed or checked, but some file could not be read; 70 a defect of
tracekit; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli.signals import Ended, ended_by_signals
from tracekit.core.errors import TracekitError, UsageError

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError
    from rich.console import Console

BAD_USE, DEFECT, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141
LEAST_HELP_WIDTH = 60
VERBS = ("analyze", "check", "report", "export", "cache")
PROMISE = "Find out where the time of a distributed PyTorch training step goes."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return the exit status."""
    try:
        with ended_by_signals():
            return _run(argv)
    except Ended as e:  # whoever sent the signal knows
        return 128 + e.signal
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    if sys.stdout is None:
        _say("standard output is closed, so there is nowhere to write the result")
        return BAD_USE
    try:
        status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except SystemExit as e:
        if isinstance(e.__context__, BrokenPipeError):  # how rich ends when its reader goes away
            return BROKEN_PIPE
        raise
    except Exception as e:  # noqa: BLE001  (one line for the user, whatever went wrong)
        if _debugging():
            import traceback

            traceback.print_exc()
        line, status = _explained(e)
        _say(line)
        return status


def _say(text: str) -> None:
    from tracekit.cli.output import say

    say(text)


def _debugging() -> bool:
    return bool(os.environ.get("TRACEKIT_DEBUG"))


def _explained(error: Exception) -> tuple[str, int]:
    """The one line for ``error`` and the exit status it ends with."""
    if isinstance(error, TracekitError):
        return error.line(), BAD_USE
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}", BAD_USE
    if isinstance(error, MemoryError):
        return "out of memory; open fewer ranks at once with --ranks", BAD_USE
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "please report it" if _debugging() else "please report it with TRACEKIT_DEBUG=1"
    return f"a defect of tracekit ({kind}), {hint}", DEFECT


def _dispatch(argv: list[str]) -> int:
    first = argv[0] if argv else ""
    if first and not first.startswith("-") and first not in VERBS:
        from tracekit.cli import plugins

        point = plugins.found().get(first)
        if point is not None:
            return plugins.load(point)(argv[1:]) or 0
    return _builtin(argv)


def _builtin(argv: list[str]) -> int:
    from cyclopts import CycloptsError

    knows_verb = bool(argv) and argv[0] in VERBS
    app = build_app(with_plugins=not knows_verb)
    if any(word in ("--help", "-h") for word in argv) or not argv:
        app.console = _help_console()
    try:
        status = app(argv, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as e:
        raise _usage_error(e, argv) from e
    return int(status or 0)


def _help_console() -> Console:
    """A console wide enough for help: in very narrow ones cyclopts wraps without end."""
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    console.width = max(console.width, LEAST_HELP_WIDTH)
    return console


def build_app(*, with_plugins: bool) -> App:
    """The command tree; ``with_plugins`` lists the verbs of other packages without loading them."""
    from cyclopts import App, Parameter

    from tracekit.cli import commands

    app = App(
        name="tracekit",
        help=PROMISE,
        version=_version,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
    )
    for place, verb in enumerate(VERBS):
        rest = "[OPTIONS]" if verb == "cache" else "PATH... [OPTIONS]"
        usage = f"Usage: tracekit {verb} {rest}"
        plain = Parameter(negative="", show_default=False)
        app.command(
            getattr(commands, verb), name=verb, usage=usage, sort_key=place, default_parameter=plain
        )
    if with_plugins:
        from tracekit.cli import plugins

        for name, point in plugins.found().items():
            if name not in VERBS:
                app.command(App(name=name, help=plugins.summary(point)))
    return app


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"tracekit {version('tracekit-torch')}"
    except PackageNotFoundError:
        return "tracekit (not installed: run from its source folder)"


def _usage_error(error: CycloptsError, argv: list[str]) -> UsageError:
    """What cyclopts found wrong with ``argv``, as one of our own errors."""
    from cyclopts.exceptions import MissingArgumentError, UnknownCommandError, UnusedCliTokensError

    verb = argv[0] if argv and argv[0] in VERBS else ""
    hint = f"'tracekit {verb} --help' shows what there is".replace("  ", " ")
    token = error.unused_tokens[0] if error.unused_tokens else ""
    if isinstance(error, UnusedCliTokensError):
        return UsageError(f"{token!r} is one argument too many", hint=hint)
    if isinstance(error, UnknownCommandError) and token.startswith("-"):
        return UsageError(f"unknown option {token}", hint=hint)
    if isinstance(error, UnknownCommandError) and Path(token).exists():
        return UsageError(f"{token!r} is no command", hint=f"try 'tracekit analyze {token}'")
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        option = error.keyword or error.argument.name
        what = f"{option} needs a value" if option in argv else f"{verb} needs {option}"
        return UsageError(what, hint=hint)
    text = str(error).strip()
    what = text[:1].lower() + text[1:].removesuffix(".")
    return UsageError(what, hint="" if "?" in text else hint)


def _silence_stdout() -> None:
    """Keep the interpreter's last flush from complaining about the reader that went away."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
