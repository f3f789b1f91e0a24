"""An instrumented 4D-parallel torch training runtime: 3D tensor parallelism x data parallelism.

The grid (x, y, z, data) and the algorithm follow AxoNN (Singh et al., "A 4D Hybrid Algorithm to
Scale Parallel Training to Thousands of GPUs"); what differs is said where it differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.trace.recorder import Recorder, record

__all__ = ["Recorder", "record"]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name in __all__:
        from runtime.trace import recorder

        return getattr(recorder, name)
    raise AttributeError(f"module 'runtime' has no attribute {name!r}")
