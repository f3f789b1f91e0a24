"""Groups of gloo's spans: what is inferred from threads, and when nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import Kineto, run_of
from tracekit.model import gloo_groups
from tracekit.model.operations import Operation
from tracekit.model.run import TraceSet

ALL = [0, 1, 2, 3]


def several(num_threads: int, num_groups: int) -> TraceSet:
    """Four ranks, groups of all and of two in turn, one all-reduce on each of gloo's threads."""
    files = []
    for rank in range(4):
        file = Kineto(rank, 4)
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        members = {f"{n}.{rank // 2 * (n % 2)}": pair if n % 2 else ALL for n in range(num_groups)}
        config = [
            {"pg_name": name, "pg_desc": name, "pg_size": len(ranks), "ranks": ranks}
            for name, ranks in members.items()
        ]
        file.header["distributedInfo"]["pg_config"] = config
        file.op(0, 1)
        for n in range(num_threads):
            file.mark(10 * n + 5, 10 * n + 12, "gloo:all_reduce", tid=100 + n)
        files.append(file)
    return run_of(*files)


def test_the_search_for_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the ways to assign threads multiply over ranks, it is given up and said so."""
    looked = 0
    original = gloo_groups._run_on

    def counted(*args: Any) -> list[Operation]:
        nonlocal looked
        looked += 1
        return original(*args)

    monkeypatch.setattr(gloo_groups, "_run_on", counted)
    monkeypatch.setattr(gloo_groups, "MAX_LOOKED_AT", 10_000)
    run = several(8, 8)
    found = run.matching.collectives
    # four ranks of eight operations: 312 ways tried, each asks for the operations of eight groups
    assert looked <= 8 * 10_000 // 32
    assert {c.match for c in found} == {"single"}
