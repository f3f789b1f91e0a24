"""Matching: which operations of several ranks are one collective, and how its time divides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import ALL_GATHER, ALL_REDUCE, SEND_RECV, Kineto, collective, run_of
from tracekit.model.collective import Collective
from tracekit.model.run import TraceSet

#: start and end (µs) of an operation, and its arguments
Op = tuple[int, int, dict[str, Any]]


def run(*ranks: list[Op], name: str = ALL_REDUCE, lead: bool = True) -> TraceSet:
    """A run of ranks that do these operations; each after a kernel, unless said."""
    files = []
    for rank, operations in enumerate(ranks):
        file = Kineto(rank, len(ranks))
        if lead:
            file.kernel(1, 2)
        for start, end, about in operations:
            file.comm(start, end, **{"name": name, **about})
        files.append(file)
    return run_of(*files)


def members(found: TraceSet) -> list[tuple[list[int], str]]:
    """The ranks of each collective and how they were found, by start."""
    return [(sorted(c.members), c.match) for c in found.matching.collectives]


def only(found: TraceSet) -> Collective:
    """The one collective of a run."""
    (c,) = found.matching.collectives
    return c


# -- by identity ------------------------------------------------------------------------------


def test_an_identity_matches_before_anything_else() -> None:
    """Operations of one ``Comms Id`` are one collective, whatever name, order and time say."""
    a = collective(comms_id=2**64 - 1, seq=1, group="a")
    b = collective(comms_id=2**64 - 2, seq=2, group="a")
    renamed = {**b, "Process Group Name": "z"}
    found = run([(10, 20, a), (30, 40, b)], [(10, 20, renamed), (30, 40, a)])
    assert members(found) == [([0, 1], "comms_id"), ([0, 1], "comms_id")]
    assert [c.any.seq for c in found.matching.collectives] == [1, 2]


def test_a_sequence_number_matches_within_its_group() -> None:
    """``Seq`` counts per group, and a group is its name and its members together."""
    found = run(
        [(10, 20, collective(seq=1, group="a")), (30, 40, collective(seq=1, group="b"))],
        [(10, 20, collective(seq=1, group="b")), (30, 40, collective(seq=1, group="a"))],
        [(10, 20, collective(seq=1, group="a", ranks=(2, 3)))],
    )
    pairs = [(sorted(c.members), c.group.name) for c in found.matching.collectives]
    assert sorted(pairs) == [([0, 1], "a"), ([0, 1], "b"), ([2], "a")]


def test_coalesced_operations_match_by_place() -> None:
    """Operations that share one sequence number are matched by their place in it."""
    one, two = collective(seq=4, elems=8), collective(seq=4, elems=99)
    found = run([(10, 20, one), (20, 30, two)], [(12, 20, one), (22, 30, two)])
    assert [(c.num_bytes, sorted(c.members)) for c in found.matching.collectives] == [
        (32, [0, 1]), (396, [0, 1]),
    ]  # fmt: skip


def test_coalesced_operations_match_by_what_they_send() -> None:
    """Within a sequence number kind and message come first, then the order of equal ones."""
    one, two = collective(seq=4, elems=8), collective(seq=4, elems=99)
    found = run([(10, 20, one), (20, 30, two)], [(12, 20, two), (22, 30, one)])
    assert [(c.num_bytes, c.wait) for c in found.matching.collectives] == [
        (32, {0: 10_000, 1: 0}),
        (396, {0: 0, 1: 8_000}),
    ]


def test_a_coalesced_operation_that_one_rank_lost_shifts_no_other() -> None:
    """A rank that lacks the first of a coalesced call is paired in those it has."""
    one, two = collective(seq=4, elems=8), collective(seq=4, elems=99)
    found = run([(10, 20, one), (20, 30, two)], [(22, 30, two)])
    assert members(found) == [([0], "single"), ([0, 1], "seq")]


def test_equal_coalesced_operations_that_one_rank_lost_go_by_time() -> None:
    """Where a place in the order tells nothing, time does."""
    about = collective(seq=4, elems=8)
    found = run(
        [(10, 20, about), (40, 50, about), (70, 80, about)], [(42, 50, about), (72, 80, about)]
    )
    assert members(found) == [([0], "single"), ([0, 1], "order"), ([0, 1], "order")]


def test_a_collective_has_no_more_members_than_its_group() -> None:
    """Groups that cannot be told apart, because their lists are cut alike, are not joined."""
    about = {"Process Group Ranks": "[0, ...]", "Group size": 2}
    found = run(*[[(10, 20, collective(seq=1, group="7", **about))]] * 3)
    assert members(found) == [([0], "single"), ([1], "single"), ([2], "single")]
    assert [found.matching.clocks[rank] for rank in (1, 2)] == [None, None]


def test_identity_outlives_a_late_window() -> None:
    """A rank that lacks the first operation shifts no pair, and the lonely one is listed single."""
    ops = [(10 * n, 10 * n + 5, collective(seq=n)) for n in (1, 2, 3)]
    found = run(ops, ops[1:])
    assert members(found) == [([0], "single"), ([0, 1], "seq"), ([0, 1], "seq")]
    assert found.matching.unmatched == {0: 1, 1: 0}


# -- by order ---------------------------------------------------------------------------------


def test_without_identity_order_and_time_match() -> None:
    """Operations of one group and kind are matched in order."""
    about = collective(elems=8)
    ops = [(at, at + 50, about) for at in (100, 300, 700)]
    found = run(ops, [(at + 20, at + 52, about) for at in (100, 300, 700)])
    assert members(found) == [([0, 1], "order")] * 3


def test_the_message_tells_operations_apart_where_all_send_the_same() -> None:
    """All-reduces of different sizes are never one; an all-to-all may differ from rank to rank."""
    one, two = collective(elems=8), collective(elems=16)
    found = run([(100, 150, one)], [(100, 150, two)])
    assert members(found) == [([0], "single"), ([1], "single")]
    a, b = collective("all_to_all", elems=8), collective("all_to_all", elems=16)
    assert members(run([(100, 150, a)], [(100, 150, b)], name=SEND_RECV)) == [([0, 1], "order")]


def test_kinds_are_not_mixed() -> None:
    """An all-gather never matches an all-reduce of the same group and time."""
    found = run([(100, 150, {})], [(100, 150, {"name": ALL_GATHER})])
    assert members(found) == [([0], "single"), ([1], "single")]


def test_a_match_apart_in_time_is_rejected() -> None:
    """Operations that synchronise but do not overlap in time were not one: both stay single."""
    about = collective(elems=8)
    found = run([(100, 150, about)], [(5_000, 5_050, about)])
    assert members(found) == [([0], "single"), ([1], "single")]
    assert found.matching.unmatched == {0: 1, 1: 1}


def test_a_late_window_without_identity_shifts_nothing() -> None:
    """Four operations against three: the one that has no counterpart in time is the lonely one."""
    about = collective(elems=8)
    starts = (100, 400, 900, 1_100)
    whole = [(at, at + 60, about) for at in starts]
    found = run(whole, [(at + 10, at + 61, about) for at in starts[1:]])
    assert members(found) == [([0], "single"), *[([0, 1], "order")] * 3]


def test_clocks_that_are_off_are_found_from_the_pattern() -> None:
    """Ranks whose clocks differ by seconds are matched by the distances of their operations."""
    about = collective(elems=8)
    starts = (1_000, 1_400, 2_900, 3_100, 5_000)
    found = run(
        [(at, at + 60, about) for at in starts],
        [(at + 9_000_010, at + 9_000_060, about) for at in starts],
    )
    assert members(found) == [([0, 1], "order")] * 5
    assert found.matching.offset_ns(1) == 9_000_000_000
    assert {w for c in found.matching.collectives for w in c.wait.values()} == {0, 10_000}


# -- send and receive -------------------------------------------------------------------------


def send(to: int, elems: int = 4, **more: Any) -> dict[str, Any]:
    """The arguments of a send."""
    return {"name": SEND_RECV, **collective("send", elems=elems, **{"Dst Rank": to}, **more)}


def recv(source: int, elems: int = 4, **more: Any) -> dict[str, Any]:
    """The arguments of a receive."""
    return {"name": SEND_RECV, **collective("recv", elems=elems, **{"Src Rank": source}, **more)}


def test_a_message_pairs_sender_and_receiver() -> None:
    """A send and the receive of the same ends are a collective of two."""
    c = only(run([(100, 160, send(1))], [(120, 160, recv(0))]))
    assert (c.op, sorted(c.members), c.complete) == ("send_recv", [0, 1], True)
    assert (c.wait, c.transfer, c.last_rank) == ({0: 20_000, 1: 0}, 40_000, 1)


def test_numbers_never_pair_messages() -> None:
    """Sequence numbers and identities of messages count per rank: ends and order pair them."""
    found = run(
        [(100, 160, send(1, seq=7, comms_id=70)), (300, 360, send(1, seq=8, comms_id=71))],
        [(120, 160, recv(0, seq=3, comms_id=71)), (320, 360, recv(0, seq=4, comms_id=70))],
    )
    assert members(found) == [([0, 1], "order"), ([0, 1], "order")]


def test_messages_of_other_ends_or_sizes_do_not_pair() -> None:
    """Direction, size and group keep messages apart."""
    found = run(
        [(100, 160, send(1)), (200, 260, recv(1, elems=8)), (300, 360, send(1, group="p"))],
        [(100, 160, recv(0, elems=8)), (200, 260, recv(0)), (300, 360, recv(0, group="q"))],
    )
    assert all(len(c.members) == 1 for c in found.matching.collectives)


def test_messages_compare_no_clocks() -> None:
    """However many messages two ranks share, their clocks stay unknown."""
    found = run(
        [(at, at + 60, send(1)) for at in (100, 300, 500)],
        [(at, at + 60, recv(0)) for at in (100, 300, 500)],
    )
    assert found.matching.clocks[1] is None


# -- how the time divides ---------------------------------------------------------------------


def test_wait_and_transfer() -> None:
    """Waiting ends when the last one comes; what the last one does is transfer."""
    about = collective(elems=30_000_000 // 4, ranks=(0, 1, 2), seq=1)
    c = only(run([(100, 500, about)], [(200, 500, about)], [(350, 501, about)]))
    assert c.before_last == {0: 250_000, 1: 150_000, 2: 0}
    assert c.wait == {0: 250_000, 1: 150_000, 2: 0}
    assert (c.transfer, c.last_rank, c.start_skew, c.end_spread) == (151_000, 2, 250_000, 1_000)
    assert (c.start, c.complete) == (100_000, True)


def test_waiting_is_no_longer_than_the_own_part() -> None:
    """A member that left before the last one came has waited for as long as it was there."""
    about = collective("broadcast", elems=8, seq=1)
    c = only(run([(100, 150, about)], [(200, 260, about)]))
    assert c.before_last == {0: 100_000, 1: 0}
    assert c.wait == {0: 50_000, 1: 0}


def test_a_single_member_neither_waits_nor_transfers() -> None:
    """Of a collective seen on one rank alone nothing is known but its length."""
    c = only(run([(100, 150, collective(elems=8, seq=1))]))
    assert (c.wait, c.transfer, c.last_rank, c.start_skew, c.end_spread) == (
        {},
        None,
        None,
        None,
        None,
    )
    assert c.moving_ns == 50_000


def test_a_group_with_absent_members_is_incomplete() -> None:
    """Without all members, waiting is only known up to the last one that is here."""
    about = collective(ranks=(0, 1, 7), seq=1)
    c = only(run([(100, 150, about)], [(120, 150, about)]))
    assert (c.complete, c.wait) == (False, {0: 20_000, 1: 0})


def test_without_metadata_the_job_s_size_decides() -> None:
    """A collective without group is complete when all ranks of the job take part."""
    assert only(run([(100, 150, {})], [(100, 150, {})])).complete
    two_of_four = [Kineto(r, 4).kernel(1, 2).comm(100, 150) for r in (0, 1)]
    assert not only(run_of(*two_of_four)).complete


def test_an_edge_is_where_a_window_begins() -> None:
    """A collective before which some member did nothing is an edge for all of its members."""
    about = [collective(seq=n) for n in (1, 2)]
    files = [
        Kineto(0, 2).comm(10, 50, **about[0]).comm(60, 70, **about[1]),
        Kineto(1, 2).kernel(1, 5).comm(40, 50, **about[0]).comm(60, 70, **about[1]),
    ]
    assert [c.edge for c in run_of(*files).matching.collectives] == [True, False]


def test_ties_of_arrival_go_to_the_lowest_rank() -> None:
    """When several came last at once, the lowest of them is named."""
    about = collective(ranks=(0, 1, 2), seq=1)
    c = only(run([(100, 150, about)], [(120, 150, about)], [(120, 150, about)]))
    assert c.last_rank == 1


# -- bandwidth --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "elems", "out", "size", "algbw", "busbw"),
    [
        ("allreduce", 16e6, 16e6, 64, 160, 315),
        ("_allgather_base", 2e6, 16e6, 8, 160, 140),
        ("_reduce_scatter_base", 16e6, 2e6, 8, 160, 140),
        ("all_to_all", 16e6, 16e6, 8, 160, 140),
        ("broadcast", 16e6, 16e6, 8, 160, 160),
        ("reduce", 16e6, 16e6, 8, 160, 160),
        ("gather", 2e6, 16e6, 8, 160, 160),
        ("send", 16e6, 16e6, 8, 160, 160),
        ("barrier", 1, 1, 8, None, None),
        ("allreduce", 16e6, 16e6, 1, 160, None),
    ],
)
def test_bandwidth_as_nccl_tests_defines_it(
    op: str, elems: float, out: float, size: int, algbw: float | None, busbw: float | None
) -> None:
    """Bus bandwidth is the message over the time, by the factor of operation and group size."""
    about = collective(op, elems=int(elems), out_elems=int(out), ranks=None, size=size, seq=1)
    c = only(run([(100, 500, about)], name=SEND_RECV))
    assert (c.algbw(), c.busbw()) == (algbw, busbw)


def test_bandwidth_is_over_the_transfer_where_all_are_known() -> None:
    """With all members here the time of waiting does not count."""
    about = collective(elems=2_500_000, seq=1)
    c = only(run([(100, 500, about)], [(400, 500, about)]))
    assert c.algbw() == 100.0


def test_bandwidth_that_cannot_be_told_is_none() -> None:
    """Without bytes, type, group size or time there is no bandwidth, never 0, NaN or infinity."""
    for about in (collective(), collective(elems=8, dtype="Wibble"), {}):
        c = only(run([(100, 500, about)]))
        assert (c.algbw(), c.busbw()) == (None, None)
    empty = only(run([(100, 100, collective(elems=8, seq=1))]))
    assert (empty.algbw(), empty.busbw()) == (None, None)
    nameless = only(
        run([(100, 500, collective(None, elems=8, seq=1))], name="ncclDevKernel_Generic")
    )
    assert nameless.busbw() is None


def test_an_uneven_all_to_all_counts_the_busiest_member() -> None:
    """With splits, what the busiest member exchanges with others over the time is the bandwidth."""

    def about(rank: int, split: str) -> dict[str, Any]:
        given = {"In split size": split, "Out split size": split}
        return collective("all_to_allv", elems=10_000_000, seq=1, **given) | {"x": rank}

    c = only(
        run([(100, 500, about(0, "[6, 4]"))], [(100, 500, about(1, "[2, 8]"))], name=SEND_RECV)
    )
    assert c.busbw() == 4 * 4_000_000 / 400_000
    cut = only(
        run([(100, 500, about(0, "[6, ...]"))], [(100, 500, about(1, "[2, 8]"))], name=SEND_RECV)
    )
    assert cut.busbw() is None
    assert cut.algbw() == 100.0


# -- who is missed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "num_ranks", "unmatched"),
    [
        (collective(ranks=(0, 1), seq=1), 2, 1),  # rank 1 is here and lacks it
        (collective(ranks=(0, 7), seq=1), 2, 0),  # the other member is not
        (collective(ranks=(0,), seq=1), 2, 0),  # there is no other member
        (collective(ranks=None, size=1, seq=1), 2, 0),
        (collective(ranks=None, size=2, seq=1), 2, 1),
        ({}, 2, 1),
        ({}, 1, 0),
        (send(1), 2, 1),
        (send(7), 2, 0),
    ],
)
def test_unmatched_counts_what_a_given_rank_should_have(
    about: dict[str, Any], num_ranks: int, unmatched: int
) -> None:
    """A lonely operation counts as unmatched only where another given rank is a member."""
    found = run([(100, 150, about)], *([[]] * (num_ranks - 1)))
    assert found.matching.unmatched[0] == unmatched


def test_nothing_is_lost_and_nothing_counted_twice() -> None:
    """Every operation of every rank is a member of exactly one collective."""
    found = run(
        [(10, 20, {}), (30, 40, collective(seq=1)), (50, 60, send(1)), (70, 80, collective())],
        [
            (10, 20, {}),
            (30, 40, collective(seq=2)),
            (50, 60, recv(0)),
            (75, 80, collective(elems=3)),
        ],
    )
    counted = [id(o) for c in found.matching.collectives for o in c.members.values()]
    assert sorted(counted) == sorted(id(o) for own in found.operations.values() for o in own)
    assert found.collectives_of(1) == [c for c in found.matching.collectives if 1 in c.members]
    assert found.collectives_of(9) == []


@pytest.mark.parametrize("numbers", [[0, 0, 0, 0], [0, 1, 0, 1]])
def test_numbers_that_come_again_are_no_identity(numbers: list[int]) -> None:
    """Where Seq repeats over a window, a late window must not shift the pairs."""
    first = [(10 + 100 * i, 60, {"seq": n}) for i, n in enumerate(numbers)]
    late = [(start + 20, end, more) for start, end, more in first[1:]]
    first = [(s, s + 50, m) for s, _, m in first]
    late = [(s, s + 30, m) for s, _, m in late]
    found = run(
        [(s, e, collective("allreduce", **m)) for s, e, m in first],
        [(s, e, collective("allreduce", **m)) for s, e, m in late],
    )
    assert members(found) == [([0], "single"), *[([0, 1], "order")] * 3]
