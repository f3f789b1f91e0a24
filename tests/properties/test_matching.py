"""Laws of matching: what clocks, window borders and the order of files may not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builder import ALL_GATHER, ALL_REDUCE, Kineto, collective, run_of
from tracekit.model.collective import Collective
from tracekit.model.run import TraceSet
from tracekit.report.document import document

START = 10_000_000


@dataclass
class Member:
    """One rank's part in the collective of a number; ns on a perfect clock."""

    number: int
    start: int
    end: int


@dataclass
class Job:
    """What really happened: per rank its members, in order."""

    ranks: dict[int, list[Member]]
    kernels: list[str]  # of each collective
    described: str  # "seq", "group" or "nothing": what the trace says of a collective

    def files(self, clocks: dict[int, int] | None = None) -> list[Kineto]:
        """The traces, each rank's clock ahead by so many ns."""
        ahead = clocks or {}
        return [self._file(rank, ahead.get(rank, 0)) for rank in sorted(self.ranks)]

    def _file(self, rank: int, ahead: int) -> Kineto:
        file = Kineto(rank, len(self.ranks), unit_ns=1)
        file.kernel(START + ahead - 900, START + ahead - 800)  # so that no collective is the first
        for m in self.ranks[rank]:
            file.comm(
                m.start + ahead, m.end + ahead, self.kernels[m.number], **self._about(m.number)
            )
        return file

    def _about(self, number: int) -> dict[str, Any]:
        if self.described == "nothing":
            return {}
        word = "allreduce" if self.kernels[number] == ALL_REDUCE else "_allgather_base"
        seq = number if self.described == "seq" else None
        return collective(word, elems=64, ranks=sorted(self.ranks), seq=seq)

    def numbers(self) -> dict[tuple[int, int], int]:
        """Which collective the n-th member of a rank belongs to."""
        return {(r, n): m.number for r, own in self.ranks.items() for n, m in enumerate(own)}


@st.composite
def jobs(draw: st.DrawFn, described: str) -> Job:
    """Collectives at distances of their own; ranks come up to 80 µs late and leave within 3.

    No two distances are nearly the same: a clock that is off by a distance that many have could
    not be told from a lost event.
    """
    num = draw(st.integers(8, 14))
    distances = draw(st.lists(st.integers(1, 40), min_size=num, max_size=num, unique=True))
    num_ranks = draw(st.integers(2, 4))
    ranks: dict[int, list[Member]] = {rank: [] for rank in range(num_ranks)}
    at = START
    for number in range(num):
        at += distances[number] * 1_200_000
        lags = [draw(st.integers(0, 80_000)) for _ in ranks]
        end = at + max(lags) + draw(st.integers(5_000, 50_000))
        for rank, lag in zip(ranks, lags, strict=True):
            ranks[rank].append(Member(number, at + lag, end + draw(st.integers(0, 3_000))))
    kinds = st.sampled_from([ALL_REDUCE, ALL_REDUCE, ALL_GATHER])
    return Job(ranks, [draw(kinds) for _ in range(num)], described)


identified = jobs("seq")
described = st.sampled_from(["seq", "group", "nothing"]).flatmap(jobs)
ordered = st.sampled_from(["group", "nothing"]).flatmap(jobs)
#: clearly more than the ends of a collective scatter, so that it is not taken for chance
clock = st.integers(1_000_000, 400_000_000).flatmap(lambda ns: st.sampled_from([ns, -ns]))


def cut(job: Job, rank: int, num_first: int, num_last: int) -> Job:
    """The same job, with a recording of one rank that began later and ended earlier."""
    own = job.ranks[rank]
    kept = own[num_first : len(own) - num_last]
    return Job({**job.ranks, rank: kept}, job.kernels, job.described)


def numbered(job: Job, run: TraceSet) -> list[list[tuple[int, int]]]:
    """The collectives found, each as (rank, its true number) of its members, in order."""
    place = {
        id(o): (rank, job.ranks[rank][n].number)
        for rank in run.ranks
        for n, o in enumerate(run.operations[rank])
    }
    found = [sorted(place[id(o)] for o in c.members.values()) for c in run.matching.collectives]
    return sorted(found)


def truth(job: Job) -> list[list[tuple[int, int]]]:
    """What `numbered` gives when every pairing is right."""
    found: dict[int, list[tuple[int, int]]] = {}
    for rank, own in job.ranks.items():
        for m in own:
            found.setdefault(m.number, []).append((rank, m.number))
    return sorted(found.values())


def waits(run: TraceSet) -> list[tuple[list[int], dict[int, int], int | None]]:
    """Of each collective its ranks, waits and transfer, in order of time."""
    return [(sorted(c.members), c.wait, c.transfer) for c in run.matching.collectives]


@given(described, st.data())
@settings(max_examples=60)
def test_a_clock_that_is_off_changes_nothing(job: Job, data: st.DataObject) -> None:
    """However far one rank's clock is off, no pair, no wait and no transfer changes by 1 ns."""
    rank = data.draw(st.sampled_from(sorted(job.ranks)))
    one, other = data.draw(clock), data.draw(clock)
    a, b = run_of(*job.files({rank: one})), run_of(*job.files({rank: other}))
    assert waits(a) == waits(b)
    for r in a.ranks:
        moved = (other - one if r == rank else 0) - (other - one if rank == 0 else 0)
        assert b.matching.offset_ns(r) == a.matching.offset_ns(r) + moved


@given(ordered, st.dictionaries(st.integers(0, 3), clock))
@settings(max_examples=60)
def test_order_and_time_find_the_true_pairs(job: Job, clocks: dict[int, int]) -> None:
    """Without any identity, and with clocks that are off, members are paired as they were."""
    run = run_of(*job.files(clocks))
    assert numbered(job, run) == truth(job)
    assert {c.match for c in run.matching.collectives} == {"order"}
    assert set(run.matching.unmatched.values()) == {0}


@given(ordered, clock, st.integers(0, 3), st.integers(0, 2), st.integers(0, 1))
@settings(max_examples=60)
def test_a_later_window_shifts_no_pair(
    job: Job, ahead: int, rank: int, num_first: int, num_last: int
) -> None:
    """A rank whose recording lacks its first or last collectives is paired right all the same."""
    rank %= len(job.ranks)
    part = cut(job, rank, num_first, num_last)
    assert numbered(part, run_of(*part.files({rank: ahead}))) == truth(part)


@given(described, st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=60)
def test_losing_events_of_one_rank_leaves_the_others_alone(
    job: Job, rank: int, num_first: int
) -> None:
    """Events that one rank lost change no pairing among the other ranks."""
    rank %= len(job.ranks)
    part = cut(job, rank, num_first, 0)
    whole, less = numbered(job, run_of(*job.files())), numbered(part, run_of(*part.files()))

    def others(found: list[list[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
        return sorted(left for c in found if (left := [m for m in c if m[0] != rank]))

    assert others(less) == others(whole)


@given(described, st.dictionaries(st.integers(0, 3), clock), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_files_is_irrelevant(job: Job, clocks: dict[int, int], random: Any) -> None:
    """Files given in any order, with their events in any order, give the same document."""
    files, shuffled = job.files(clocks), job.files(clocks)
    random.shuffle(shuffled)
    for file in shuffled:
        random.shuffle(file.rows)
    assert document(run_of(*shuffled)) == document(run_of(*files))


@given(identified, st.data())
@settings(max_examples=60)
def test_waiting_is_counted_from_the_last_arrival(job: Job, data: st.DataObject) -> None:
    """Every wait is the last arrival less the own start, at most the own duration."""
    clocks = {r: data.draw(clock) for r in job.ranks}
    run = run_of(*job.files(clocks))
    base = run.matching.offset_ns(0)
    assert base == 0
    for c in run.matching.collectives:
        start = {r: o.start - run.matching.offset_ns(r) for r, o in c.members.items()}
        last = max(start.values())
        assert c.wait == {r: min(c.members[r].duration, last - s) for r, s in start.items()}
        assert _latest(c) == last
        assert c.transfer == c.members[c.last_rank or 0].duration


def _latest(c: Collective) -> int:
    assert c.start_skew is not None
    return c.start + c.start_skew


# -- whatever the ranks recorded ---------------------------------------------------------------

WORDS = ("allreduce", "_allgather_base", "broadcast", "barrier", "reduce", "send", "recv", None)
KERNELS = (ALL_REDUCE, ALL_GATHER, "ncclDevKernel_SendRecv", "custom_all_reduce", "nccl_unheard_of")


@st.composite
def anything(draw: st.DrawFn) -> list[Kineto]:
    """Ranks with operations of all sorts, described well, badly or not at all."""
    files = []
    for rank in range(draw(st.integers(1, 4))):
        file = Kineto(rank, draw(st.sampled_from([None, 2, 4]))).kernel(START - 100, START)
        for _ in range(draw(st.integers(0, 8))):
            start = START + 50 * draw(st.integers(0, 12))
            end = start + 50 * draw(st.integers(0, 4))
            file.comm(start, end, draw(st.sampled_from(KERNELS)), **draw(descriptions()))
        files.append(file)
    return files


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a collective; none for every fourth."""
    if not draw(st.integers(0, 3)):
        return {}
    found = collective(
        draw(st.sampled_from(WORDS)),
        elems=draw(st.sampled_from([None, 4, 8])),
        group=draw(st.sampled_from(["0", "1"])),
        ranks=draw(st.sampled_from([None, (0, 1), (0, 1, 2, 3), (2, 3), ()])),
        size=draw(st.sampled_from([None, None, 1, 2, 4])),
        seq=draw(st.sampled_from([None, 0, 1, 2])),
        comms_id=draw(st.sampled_from([None, None, None, 0, 77, 2**64])),
    )
    peers = {"Src Rank": draw(st.integers(0, 4)), "Dst Rank": draw(st.integers(0, 4))}
    return {**found, **{key: peers[key] for key in peers if draw(st.booleans())}}


@given(anything())
@settings(max_examples=150)
def test_every_operation_is_in_exactly_one_collective(files: list[Kineto]) -> None:
    """No operation is lost or used twice, and no collective holds a rank twice."""
    run = run_of(*files)
    found = [o for c in run.matching.collectives for o in c.members.values()]
    every = [o for own in run.operations.values() for o in own]
    assert sorted(map(id, found)) == sorted(map(id, every))
    assert len(every) == sum(len(file.rows) - 1 for file in files)  # less the one kernel of each
    for c in run.matching.collectives:
        assert all(o.rank == rank for rank, o in c.members.items())
        assert (c.match == "single") == (len(c.members) == 1)
        assert (c.transfer is None) == (len(c.members) == 1)


@given(anything())
@settings(max_examples=100)
def test_waits_of_anything_are_possible(files: list[Kineto]) -> None:
    """A wait is within its own event, and the rank that came last waited for nobody."""
    for c in run_of(*files).matching.collectives:
        assert all(0 <= wait <= c.members[rank].duration for rank, wait in c.wait.items())
        assert c.last_rank is None or c.wait[c.last_rank] == 0


@given(anything())
@settings(max_examples=100)
def test_unmatched_are_singles_with_a_partner(files: list[Kineto]) -> None:
    """Of each rank at most its single operations are unmatched; alone none can be."""
    run = run_of(*files)
    assert sorted(run.matching.unmatched) == run.ranks
    for rank, count in run.matching.unmatched.items():
        singles = sum(c.match == "single" for c in run.collectives_of(rank))
        assert 0 <= count <= (singles if len(files) > 1 else 0)
