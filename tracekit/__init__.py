"""Finds out where the time of a distributed PyTorch training step goes.

>>> import tracekit
>>> run = tracekit.open("sample_traces/ddp_4")
>>> run
<tracekit.Run: ranks 0-3>
>>> run.stragglers()[["rank", "num_last", "late_us"]]
   rank  num_last    late_us
0     2         6  94867.323
1     0         0      0.000
2     1         0      0.000
3     3         0      0.000

Nothing heavy is imported before it is used: ``import tracekit`` alone loads neither numpy nor
pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.api.opening import from_pipit, open  # noqa: A004
    from tracekit.api.run import Run
    from tracekit.core.errors import (
        Note,
        NoTraceError,
        ReadError,
        TracekitError,
        UsageError,
    )
    from tracekit.model.trace import Trace

    __version__: str

__all__ = [
    "NoTraceError",
    "Note",
    "ReadError",
    "Run",
    "Trace",
    "TracekitError",
    "UsageError",
    "__version__",
    "from_pipit",
    "open",
]

_HOMES = {
    "NoTraceError": "tracekit.core.errors",
    "Note": "tracekit.core.errors",
    "ReadError": "tracekit.core.errors",
    "Run": "tracekit.api.run",
    "Trace": "tracekit.model.trace",
    "TracekitError": "tracekit.core.errors",
    "UsageError": "tracekit.core.errors",
    "from_pipit": "tracekit.api.opening",
    "open": "tracekit.api.opening",
}


def __getattr__(name: str) -> object:
    """Import what is asked for, once."""
    from importlib import import_module

    if name == "__version__":
        found: object = _version()
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tracekit-torch")
    except PackageNotFoundError:
        return "0+not.installed"  # run from its source folder
