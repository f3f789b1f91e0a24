"""A file with work on several devices holds several ranks: which rows are whose."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tracekit.core.errors import ReadError
from tracekit.io.table import EventTable
from tracekit.model.operations import int_list
from tracekit.model.trace import COPY, KERNEL, Trace

#: in one file; every device is a rank, and every rank is looked at by itself
MAX_DEVICES = 1024


def devices_of(trace: Trace) -> list[tuple[str, int]]:
    """(pid, device) pairs that bear kernels, in order of device.

    Raises
    ------
    ReadError
        When there are more than a file of a job can hold: each would be a rank.
    """
    table = trace.table
    rows = trace.sound & (trace.kind == KERNEL)
    if not rows.any():
        rows = trace.sound & (trace.kind == COPY)
    pids = sorted({p for p, _ in table.lanes})
    device = table["device"][rows].astype(np.int64)
    low = int(device.min(initial=0))
    width = int(device.max(initial=0)) - low + 1
    codes = np.unique(_pid_codes(table)[rows] * width + device - low)
    if len(codes) > MAX_DEVICES:
        raise ReadError(
            f"kernels of {len(codes):,} devices (pairs of pid and device), of which one file holds "
            f"{MAX_DEVICES:,} at most",
            where=trace.file,
            hint="were pids given to single events?",
        )
    found = [(pids[c // width], c % width + low) for c in codes.tolist()]
    return sorted(found, key=lambda f: (f[1], len(f[0]), f[0]))


def _pid_codes(table: EventTable) -> NDArray[np.int64]:
    """Code of each row's pid, an index into the sorted distinct pids."""
    code = {pid: n for n, pid in enumerate(sorted({p for p, _ in table.lanes}))}
    of_lane = np.array([code[p] for p, _ in table.lanes] or [0], dtype=np.int64)
    codes: NDArray[np.int64] = of_lane[table["lane"]]
    return codes


def rows_of_device(table: EventTable, device: tuple[str, int]) -> NDArray[np.bool_]:
    """Rows of one (pid, device) pair."""
    lanes = np.array([pid == device[0] for pid, _ in table.lanes] or [False])
    rows: NDArray[np.bool_] = lanes[table["lane"]] & (table["device"] == device[1])
    return rows


def num_strays(trace: Trace, devices: list[tuple[str, int]]) -> int:
    """Device rows that belong to none of several devices: of one without kernels, or of no one."""
    table = trace.table
    known = set(devices)
    rows = np.flatnonzero(trace.is_device_row & trace.sound)
    lanes, numbers = table["lane"][rows].tolist(), table["device"][rows].tolist()
    places = Counter(zip(lanes, numbers, strict=True))
    return sum(n for (lane, d), n in places.items() if (table.lanes[lane][0], d) not in known)


def device_ranks_of(trace: Trace, num_devices: int) -> list[int]:
    """Ranks of a file's devices: the job's rank list when it fits, else by order."""
    for group in trace.pg_config:
        ranks = int_list(group.get("ranks"))
        if ranks and len(ranks) == len(set(ranks)) == num_devices:
            return ranks
    return list(range(num_devices))
