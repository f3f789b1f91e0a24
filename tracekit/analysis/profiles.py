"""Which names take the time: device work by kernel name, host time by operator."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.rows import Row, us
from tracekit.model.names import ROLES
from tracekit.model.trace import OPERATOR, OTHER, Trace
from tracekit.model.work import Work


def kernel_rows(trace: Trace, work: Work) -> list[Row]:
    """Work of a rank by role and name: count, total, mean, shortest and longest, in µs.

    Sums count concurrent work several times; they rank names, they do not divide the window.
    ``known`` says whether a naming rule (or the row's category) gave the role.
    """
    if not len(work):
        return []
    names = trace.table["name"][work.row].astype(np.int64)
    key = names * len(ROLES) + work.role
    length = work.end - work.start
    order = np.argsort(key, kind="stable")
    found, at = np.unique(key[order], return_index=True)
    ordered = length[order]
    total, longest = np.add.reduceat(ordered, at), np.maximum.reduceat(ordered, at)
    shortest = np.minimum.reduceat(ordered, at)
    count = np.diff(np.append(at, len(ordered)))
    _, unknown = trace.name_codes
    on_host = work.timeline == "host"
    rows: list[Row] = []
    for i in np.argsort(-total, kind="stable").tolist():
        name, role = divmod(int(found[i]), len(ROLES))
        rows.append(
            {
                "rank": trace.rank,
                "role": ROLES[role],
                "name": trace.table.names[name],
                "count": int(count[i]),
                "total_us": us(int(total[i])),
                "mean_us": int(total[i]) / int(count[i]) / 1000,
                "min_us": us(int(shortest[i])),
                "max_us": us(int(longest[i])),
                "known": bool(on_host or role != 0 or not unknown[name]),
            }
        )
    return rows


def operator_rows(trace: Trace) -> list[Row]:
    """Host operators of a rank by name: calls and their summed length, in µs.

    Lengths are inclusive of the operators inside, so nested ones count several times.
    """
    kinds = (OPERATOR,) if trace.has_cats else (OTHER,)
    rows_at = np.flatnonzero(np.isin(trace.kind, kinds) & trace.sound)
    names = trace.table["name"][rows_at]
    if not len(names):
        return []
    count = np.bincount(names)
    total = np.zeros(len(count), dtype=np.int64)
    np.add.at(total, names, trace.table["dur_ns"][rows_at])
    order = np.argsort(-total, kind="stable")
    return [
        {
            "rank": trace.rank,
            "name": trace.table.names[n],
            "count": int(count[n]),
            "total_us": us(int(total[n])),
            "mean_us": int(total[n]) / int(count[n]) / 1000,
        }
        for n in order.tolist()
        if count[n]
    ]
