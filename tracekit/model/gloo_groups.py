"""Find the groups of gloo's spans, which carry none, from the threads they ran on.

Every gloo group has two threads of its own, made when the group is made. So the threads of a rank
in order of their ids are those of its groups in order of creation; which groups have threads in
the trace is found by what must hold: all members of a group ran the same operations on it, and
none was done before all had begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracekit.model.clock import clocks
from tracekit.model.names import Names
from tracekit.model.operations import SYNCHRONISING, Group, Operation, complete

THREADS_PER_GROUP = 2
#: beyond this many ways per rank nothing is inferred
MAX_WAYS = 2000
#: operations looked at in all, over the ways tried; some seconds
MAX_LOOKED_AT = 1_000_000

Signature = tuple[tuple[str | None, int | None], ...]
Key = tuple[Any, ...]
#: thread id to group
Way = dict[str, Group]


def infer_groups(
    operations: dict[int, list[Operation]], listed: dict[int, list[Group]], names: Names
) -> bool:
    """Set the groups of gloo operations whose group is ambiguous, where one way explains the trace.

    Parameters
    ----------
    operations : dict of int to list of Operation
        Per rank; those that are resolved get their group.
    listed : dict of int to list of Group
        Groups of each rank in order of creation.
    names : Names

    Returns
    -------
    bool
        Whether they were resolved.
    """
    open_ones = {r: [o for o in own if _is_open(o)] for r, own in operations.items()}
    open_ones = {r: own for r, own in open_ones.items() if own}
    if not open_ones or open_ones.keys() - listed.keys():
        return False
    ways = {r: list(_ways(own, listed[r])) for r, own in open_ones.items()}
    if any(not w or len(w) > MAX_WAYS for w in ways.values()):
        return False
    tries = iter(range(MAX_LOOKED_AT // sum(map(len, open_ones.values()))))
    found = list(_consistent(sorted(ways), ways, open_ones, listed, {}, tries))
    # with ways left that were not looked at, the best of the others may be wrong
    best = _best(found, open_ones) if next(tries, None) is not None else None
    if best is None:
        return False
    for rank, way in best.items():
        for o in open_ones[rank]:
            complete(o, way[o.tid], names)
    return True


def _is_open(o: Operation) -> bool:
    """Sends and receives run on the calling thread, which tells no group."""
    return o.group.ambiguous and o.kernel.startswith("gloo:") and o.op != "send_recv"


def _ways(operations: list[Operation], groups: list[Group]) -> Iterator[Way]:
    """Assignments of threads to groups that keep both orders."""
    tids = sorted({o.tid for o in operations}, key=lambda t: (len(t), t))

    def spread(threads: list[str], left: list[Group]) -> Iterator[list[tuple[str, Group]]]:
        if not threads:
            yield []
        elif left:
            for take in range(min(THREADS_PER_GROUP, len(threads)) + 1):
                head = [(t, left[0]) for t in threads[:take]]
                for rest in spread(threads[take:], left[1:]):
                    yield head + rest

    if len(tids) <= THREADS_PER_GROUP * len(groups) <= 64:
        for count, way in enumerate(spread(tids, groups)):
            if count > MAX_WAYS:
                return
            yield dict(way)


def _consistent(
    ranks: list[int],
    ways: dict[int, list[Way]],
    operations: dict[int, list[Operation]],
    listed: dict[int, list[Group]],
    agreed: dict[Key, Signature],
    tries: Iterator[int],
) -> Iterator[dict[int, Way]]:
    """Choices of one way per rank under which all members of each group ran the same on it.

    Ends early when ``tries``, one for each way looked at, are used up.
    """
    if not ranks:
        yield {}
        return
    rank = ranks[0]
    for way in ways[rank]:
        if next(tries, None) is None:
            return
        mine = {g.key: _run_on(g, operations[rank], way) for g in listed[rank]}
        shared = {key: tuple((o.op, o.in_elems) for o in own) for key, own in mine.items()}
        if any(agreed.get(key, value) != value for key, value in shared.items()):
            continue
        joint = {**agreed, **shared}
        for rest in _consistent(ranks[1:], ways, operations, listed, joint, tries):
            yield {rank: way, **rest}


def _run_on(group: Group, operations: list[Operation], way: Way) -> list[Operation]:
    return [o for o in operations if way[o.tid].key == group.key]


def _best(
    found: list[dict[int, Way]], operations: dict[int, list[Operation]]
) -> dict[int, Way] | None:
    """The possible choice with the largest groups; None when none is, or when several differ.

    A group's subsets are possible wherever the group is, so the largest explains the most.
    """
    possible = [f for f in found if _is_possible(f, operations)]
    if not possible:
        return None
    sizes = [_total_size(f, operations) for f in possible]
    best = [f for f, size in zip(possible, sizes, strict=True) if size == max(sizes)]
    if len(best) == 1:
        return best[0]
    return _nameless(best[0]) if len({_members(f) for f in best}) == 1 else None


def _total_size(choice: dict[int, Way], operations: dict[int, list[Operation]]) -> int:
    return sum(way[o.tid].size or 0 for r, way in choice.items() for o in operations[r])


def _is_possible(choice: dict[int, Way], operations: dict[int, list[Operation]]) -> bool:
    """Whether no operation ended on one member before another had begun it.

    Every gloo operation but the rooted ones waits for all members. The ranks of a gloo run mostly
    share a host, so the times as recorded are tried first; then those on the clocks that the
    choice itself gives. A wrong choice fails on these as well: what is no collective does not end
    together, so that no clock brings all of its parts to overlap.
    """
    parts: dict[Key, dict[int, list[Operation]]] = {}
    for rank, way in choice.items():
        for o in operations[rank]:
            parts.setdefault(way[o.tid].key, {}).setdefault(rank, []).append(o)
    matched = [
        dict(zip(by_rank, members, strict=True))
        for by_rank in parts.values()
        for members in zip(*by_rank.values(), strict=True)
        if members[0].op in SYNCHRONISING
    ]
    found = {r: c.offset_ns for r, c in clocks(choice, matched).items() if c}
    return _overlap(matched, {}) or _overlap(matched, found)


def _overlap(matched: list[dict[int, Operation]], offsets: dict[int, int]) -> bool:
    """Whether the members of each collective overlap in time on these clocks."""
    return all(
        max(o.start - offsets.get(r, 0) for r, o in members.items())
        <= min(o.end - offsets.get(r, 0) for r, o in members.items())
        for members in matched
    )


def _members(choice: dict[int, Way]) -> frozenset[tuple[int, str, tuple[int, ...] | None]]:
    """Which ranks each thread talks to."""
    return frozenset((rank, tid, g.ranks) for rank, way in choice.items() for tid, g in way.items())


def _nameless(choice: dict[int, Way]) -> dict[int, Way]:
    """The same members without names: several groups have them, and which it is stays open."""
    return {
        rank: {tid: Group(ranks=g.ranks, size=g.size) for tid, g in way.items()}
        for rank, way in choice.items()
    }
