"""Promises of the table of stragglers: who came last, how often, and how late."""

from __future__ import annotations

from tests.builder import ALL_REDUCE, Kineto, collective, run_of
from tracekit.analysis.rows import Row
from tracekit.analysis.stragglers import lateness_ns, straggler_rows
from tracekit.model.run import TraceSet
from tracekit.report.document import document


def run(arrivals: list[list[int]], *, missing: int = 0, first: int = -5) -> TraceSet:
    """All-reduces 100 µs apart, each done at 90; row by row when each rank comes.

    Parameters
    ----------
    missing : int
        Members of the group whose traces are not here.
    first : int
        Start of a first kernel of each rank, so that no collective begins a recording.
    """
    num = len(arrivals[0])
    files = [Kineto(rank, num + missing).kernel(first, first + 1) for rank in range(num)]
    for seq, starts in enumerate(arrivals):
        about = collective(elems=16, ranks=range(num + missing), seq=seq)
        for file, start in zip(files, starts, strict=True):
            file.comm(100 * seq + start, 100 * seq + 90, ALL_REDUCE, **about)
    return run_of(*files)


def rows(found: TraceSet) -> list[list[float]]:
    """The table, without the names of its columns."""
    table = straggler_rows(found.matching.collectives, found.ranks)
    return [list(row.values()) for row in table]


def test_lateness_is_last_less_second_last() -> None:
    """What a collective would have begun earlier, had the last rank not been last.

    Arrivals 0, 30, 70: rank 2 is 40 late. 10, 60, 20: rank 1 is 40 late. 0, 5, 50: rank 2 45.
    """
    found = run([[0, 30, 70], [10, 60, 20], [0, 5, 50]])
    assert [lateness_ns(c) for c in found.matching.collectives] == [40_000, 40_000, 45_000]
    # rank, collectives, how often last, how late in sum, its own waiting; the latest first
    assert rows(found) == [
        [2, 3, 2, 85, 0 + 40 + 0],
        [1, 3, 1, 40, 40 + 0 + 45],
        [0, 3, 0, 0, 70 + 50 + 50],
    ]


def test_a_tie_is_nobodys_fault() -> None:
    """Ranks that come last together are late by nothing; the table is in order of rank then."""
    found = run([[0, 50, 50], [20, 20, 20]])
    assert [lateness_ns(c) for c in found.matching.collectives] == [0, 0]
    assert [row[0] for row in rows(found)] == [0, 1, 2]
    assert [row[3] for row in rows(found)] == [0, 0, 0]


def test_edges_are_left_out() -> None:
    """A collective that began a recording says when that began, not who is late."""
    found = run([[0, 30, 70], [10, 60, 20]], first=1000)  # nothing runs before the collectives
    assert [c.edge for c in found.matching.collectives] == [True, False]
    assert rows(found) == [[1, 1, 1, 40, 0], [0, 1, 0, 0, 50], [2, 1, 0, 0, 40]]


def test_incomplete_ones_are_left_out() -> None:
    """Where a member is missing it may have been the last: nobody is blamed."""
    assert rows(run([[0, 30], [10, 60]], missing=1)) == []


def test_a_rank_alone_is_no_straggler() -> None:
    """Without partners there is neither last nor late, nor an empty row."""
    assert rows(run([[0], [10]], missing=3)) == []


def test_waiting_is_at_most_the_own_length() -> None:
    """A rank whose event was over before the last one came waited no longer than it lasted."""
    files = [Kineto(rank, 2).kernel(-5, 0) for rank in (0, 1)]
    for seq in (0, 1, 2):
        about = collective("broadcast", elems=16, seq=seq)
        files[0].comm(100 * seq, 100 * seq + 10, **about)
        files[1].comm(100 * seq + 40, 100 * seq + 60, **about)
    assert rows(run_of(*files)) == [[1, 3, 3, 120, 0], [0, 3, 0, 0, 30]]


def test_the_table_is_of_the_selection() -> None:
    """In a range only the collectives whole inside it count."""
    found = run([[0, 30, 70], [10, 60, 20], [0, 5, 50]])
    # from the first kernel at -5: the second collective alone, the third is cut
    table: list[Row] = document(found, time_range_us=(100, 250))["stragglers"]
    assert [(r["rank"], r["num_matched"], r["late_us"]) for r in table] == [
        (1, 1, 40), (0, 1, 0), (2, 1, 0),
    ]  # fmt: skip
