"""The verbs ``tracekit train`` and ``tracekit demo``; every fault is one line on stderr."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable

from runtime.flags import say
from runtime.launch import Stopped
from runtime.settings import ConfigError

BAD_USE = 2
HOW_TO_INSTALL = "training needs torch; install it with: pip install 'tracekit-torch[runtime]'"


def train(argv: list[str]) -> int:
    """Train on a grid of processes here; leaves a run folder with a trace per rank."""
    from runtime.launch import train as run

    return _guarded(run, argv)


def demo(argv: list[str]) -> int:
    """Train on four CPU processes and show where the time went."""
    from runtime.demo import main as run

    return _guarded(run, argv)


def _guarded(run: Callable[[list[str]], int], argv: list[str]) -> int:
    asks = any(word in ("-h", "--help") for word in argv)
    if not asks and importlib.util.find_spec("torch") is None:
        say(HOW_TO_INSTALL)
        return BAD_USE
    try:
        return run(argv)
    except ConfigError as e:
        say(str(e))
        return BAD_USE
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        say(f"{where}{e.strerror or e}")
        return BAD_USE
    except (KeyboardInterrupt, Stopped) as e:
        return _ended(e)
    except SystemExit as e:  # after --help
        return int(e.code or 0)


def _ended(error: BaseException) -> int:
    """Say what ended this process, after it has ended the ranks."""
    number = error.number if isinstance(error, Stopped) else signal.SIGINT
    name = signal.Signals(number).name
    say("interrupted" if number == signal.SIGINT else f"ended by {name}")
    return 128 + number
