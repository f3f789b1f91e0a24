"""Match the operations of all ranks into collectives, and part waiting from transfer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from tracekit.model.align import Bucket, Guess, Members, align, guess_offsets
from tracekit.model.clock import Clock, clocks
from tracekit.model.names import Names
from tracekit.model.operations import Group, Operation

Match = Literal["comms_id", "seq", "order", "single"]
#: operations whose members all move the same message, so that bytes tell them apart
_SAME_BYTES = frozenset(("all_reduce", "all_gather", "reduce_scatter", "broadcast"))
#: how often (n-1)/n of the message crosses a member's link
_PER_MEMBER = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


@dataclass(eq=False)
class Collective:
    """One operation on one group: the members found among the given ranks.

    Times are ns on the corrected clock (that of the lowest rank).

    Attributes
    ----------
    members : dict of int to Operation
        By rank.
    match : {"comms_id", "seq", "order", "single"}
        How the members were found to belong together.
    complete : bool
        Whether every member of the group is here.
    before_last : dict of int to int
        ns each member arrived before the last one; empty for a single one.
    wait : dict of int to int
        ns each member spent before the last one arrived; empty for a single one.
    transfer : int or None
        ns from the last arrival to that member's end.
    """

    op: str | None
    group: Group
    members: Members
    match: Match
    complete: bool = False
    start: int = 0
    before_last: dict[int, int] = field(default_factory=dict)
    wait: dict[int, int] = field(default_factory=dict)
    transfer: int | None = None
    start_skew: int | None = None
    end_spread: int | None = None
    last_rank: int | None = None

    @property
    def any(self) -> Operation:
        """The member of the lowest rank."""
        return self.members[min(self.members)]

    @cached_property
    def edge(self) -> bool:
        """Whether the window of some member began with it."""
        return any(o.first_work for o in self.members.values())

    @cached_property
    def num_bytes(self) -> int | None:
        """Message size: the largest any member states; None when none does."""
        known = [o.num_bytes for o in self.members.values() if o.num_bytes is not None]
        return max(known, default=None)

    @property
    def moving_ns(self) -> int:
        """The time bandwidth refers to: transfer, or a single member's duration."""
        return self.any.duration if self.transfer is None else self.transfer

    def algbw(self) -> float | None:
        """Bytes per ns (= GB/s) of the message; None when not computable."""
        if self.num_bytes is None or self.moving_ns <= 0:
            return None
        return self.num_bytes / self.moving_ns

    def busbw(self) -> float | None:
        """Bus bandwidth in GB/s as nccl-tests defines it; None when not computable.

        all-reduce ``2(n-1)/n``, all-gather, reduce-scatter and even all-to-all ``(n-1)/n``, else
        1 (nccl-tests, doc/PERFORMANCE.md); all-to-all with splits: what the busiest member
        exchanges with others.
        """
        algbw, size = self.algbw(), self.group.size
        if algbw is None or self.op is None:
            return None
        remote = [o.remote_bytes for o in self.members.values() if o.remote_bytes is not None]
        if self.op == "all_to_all" and remote:
            return None if -1 in remote else max(remote) / self.moving_ns
        if self.op not in _PER_MEMBER:
            return algbw
        if size is None or size < 2:
            return None
        return algbw * _PER_MEMBER[self.op] * (size - 1) / size


@dataclass(slots=True)
class Matching:
    """All collectives of a run, with the clocks they gave.

    Attributes
    ----------
    collectives : list of Collective
        By start.
    clocks : dict of int to Clock or None
    unmatched : dict of int to int
        Per rank, operations whose group has another given rank but that found no partner.
    doubtful_ns : dict of int to int
        Ranks matched by order whose clock could as well be another, and by how much that differs.
    """

    collectives: list[Collective]
    clocks: dict[int, Clock | None]
    unmatched: dict[int, int]
    doubtful_ns: dict[int, int] = field(default_factory=dict)

    def offset_ns(self, rank: int) -> int:
        """What to subtract from a rank's times; 0 where its clock is unknown or in doubt."""
        clock = self.clocks.get(rank)
        return clock.offset_ns if clock and clock.is_certain else 0


def match(
    operations: dict[int, list[Operation]], names: Names, world_size: int | None = None
) -> Matching:
    """Match the operations of several ranks.

    Parameters
    ----------
    operations : dict of int to list of Operation
        Per rank, in order of start.
    names : Names
    world_size : int, optional
        For groups without metadata.

    Returns
    -------
    Matching
    """
    every = [o for rank in sorted(operations) for o in operations[rank]]
    identified, rest = _by_identity(every)
    found = [part for one in identified for part in _no_larger(*one)]
    known = clocks(operations, (m for _, m in found))
    compared = any(c and c.num_shared for c in known.values())
    offsets = {r: c.offset_ns for r, c in known.items() if c} if compared else {}
    by_order, guess = _by_order(rest, names, offsets, _spread(known))
    found += by_order
    settled = clocks(operations, (m for _, m in found))
    world_size = world_size or max(operations, default=0) + 1
    collectives = [_collective(kind, m, world_size) for kind, m in found]
    matching = Matching(collectives, settled, dict.fromkeys(sorted(operations), 0))
    matching.doubtful_ns = {r: ns - guess.offsets[r] for r, ns in guess.doubtful.items()}
    for c in collectives:
        _time(c, matching)
        if len(c.members) == 1 and _has_partner(c, operations):
            matching.unmatched[c.any.rank] += 1
    collectives.sort(key=lambda c: (c.start, c.any.rank))
    return matching


def _spread(known: dict[int, Clock | None]) -> int:
    return max((c.spread_ns for c in known.values() if c), default=0)


def _by_identity(
    every: list[Operation],
) -> tuple[list[tuple[Match, Members]], list[Operation]]:
    """Group by ``Comms Id``, else by group and ``Seq``; the rest has neither (or is a send)."""
    shared: dict[tuple[Match, Any], Bucket] = {}
    rest: list[Operation] = []
    doubtful = _doubtful_sequences(every)
    for o in every:
        known = o.comms_id is not None or o.seq is not None
        if o.op == "send_recv" or not known or o.group.key in doubtful:
            rest.append(o)
            continue
        kind: Match = "comms_id" if o.comms_id is not None else "seq"
        identity = (o.comms_id, o.seq) if kind == "comms_id" else (o.group.key, o.seq)
        shared.setdefault((kind, identity), {}).setdefault(o.rank, []).append(o)
    found: list[tuple[Match, Members]] = []
    for (kind, _), bucket in shared.items():
        members, left = _within(bucket)
        found += [(kind, m) for m in members]
        rest += left
    return found, rest


def _within(bucket: Bucket) -> tuple[list[Members], list[Operation]]:
    """Collectives of one identity: one, or the several of a coalesced call, and what is open.

    Coalesced operations are told apart by kind and message, and those that agree in both by
    order, where all ranks hold equally many.
    """
    if all(len(own) == 1 for own in bucket.values()):
        return [{rank: own[0] for rank, own in bucket.items()}], []
    alike: dict[Any, Bucket] = {}
    for rank, own in bucket.items():
        for o in own:
            key = (o.op, o.num_bytes if o.op in _SAME_BYTES else None)
            alike.setdefault(key, {}).setdefault(rank, []).append(o)
    found: list[Members] = []
    left: list[Operation] = []
    for part in alike.values():
        if len({len(own) for own in part.values()}) == 1:
            rows = zip(*part.values(), strict=True)
            found += [dict(zip(part, members, strict=True)) for members in rows]
        else:
            left += [o for own in part.values() for o in own]
    return found, left


def _no_larger(kind: Match, members: Members) -> list[tuple[Match, Members]]:
    """The members, or each alone where they are more than their group has: they are of several."""
    size = min((o.group.size for o in members.values() if o.group.size), default=len(members))
    if len(members) <= size:
        return [(kind, members)]
    return [(kind, {rank: o}) for rank, o in members.items()]


def _doubtful_sequences(every: list[Operation]) -> set[Any]:
    """Groups on which numbers do not tell operations apart, on some rank.

    Coalesced operations share a number, but one number for most of a window, or one that comes
    again after others, is none.
    """
    numbers: dict[tuple[int, Any], list[Any]] = {}
    for o in every:
        if o.op != "send_recv" and (o.seq is not None or o.comms_id is not None):
            numbers.setdefault((o.rank, o.group.key), []).append((o.comms_id, o.seq))
    found = set()
    for (_, group), own in numbers.items():
        runs = 1 + sum(a != b for a, b in pairwise(own))
        distinct = len(set(own))
        if runs > distinct or (len(own) > 2 and distinct == 1):
            found.add(group)
    return found


def _by_order(
    rest: list[Operation], names: Names, offsets: dict[int, int], slack_ns: int
) -> tuple[list[tuple[Match, Members]], Guess]:
    buckets, lonely = _buckets(rest, names)
    guess = guess_offsets(buckets, offsets)
    slack_ns = max(slack_ns, guess.spread)
    found: list[tuple[Match, Members]] = [("order", {o.rank: o}) for o in lonely]
    for bucket in buckets:
        for members in align(bucket, guess.offsets, slack_ns):
            found += _no_larger("order", members)
    return found, guess


def _buckets(rest: list[Operation], names: Names) -> tuple[list[Bucket], list[Operation]]:
    """Operations that can only be told apart by order, and those that cannot be paired at all."""
    has_ends = any(o.src is not None and o.dst is not None for o in rest)
    buckets: dict[Any, Bucket] = {}
    lonely: list[Operation] = []
    for o in rest:
        key = _order_key(o, names, has_ends)
        if key is None:
            lonely.append(o)
        else:
            buckets.setdefault(key, {}).setdefault(o.rank, []).append(o)
    for bucket in buckets.values():
        for operations in bucket.values():
            operations.sort(key=lambda o: (o.start, o.end))
    return list(buckets.values()), lonely


def _order_key(o: Operation, names: Names, has_ends: bool) -> tuple[Any, ...] | None:
    if o.op == "send_recv" and o.src is not None and o.dst is not None:
        return ("pair", o.src, o.dst, o.group.key, o.num_bytes)
    if o.group.ambiguous or (o.op == "send_recv" and (has_ends or o.group.known)):
        return None
    if not o.group.known:
        # unlinked kernels lack the annotation their partners have: go by the kernel's own word
        word = names.op(None, o.kernel) or o.op or o.kernel
        num_bytes = o.num_bytes if word in _SAME_BYTES else None
        return ("unknown", o.group.ranks, word, num_bytes)
    return ("group", o.group.key, o.op, o.num_bytes if o.op in _SAME_BYTES else None)


def _collective(kind: Match, members: Members, world_size: int) -> Collective:
    words = Counter(o.op for o in members.values() if o.op not in (None, "send_recv"))
    first = members[min(members)]
    op = words.most_common(1)[0][0] if words else first.op
    group = next((o.group for o in members.values() if o.group.known), first.group)
    if op == "send_recv" and first.src is not None:
        size: int | None = 2
    else:
        size = group.size if group.size is not None else world_size
    complete = size is not None and len(members) >= size
    how: Match = kind if len(members) > 1 else "single"
    return Collective(op, group, members, how, complete)


def _time(c: Collective, matching: Matching) -> None:
    """Fill in when the members came and went, on the corrected clock."""
    start = {r: o.start - matching.offset_ns(r) for r, o in c.members.items()}
    c.start = min(start.values())
    if len(start) < 2:
        return
    end = {r: o.end - matching.offset_ns(r) for r, o in c.members.items()}
    last = max(sorted(start), key=lambda r: start[r])
    c.last_rank = last
    c.before_last = {r: start[last] - start[r] for r in sorted(start)}
    c.wait = {r: min(c.members[r].duration, ns) for r, ns in c.before_last.items()}
    c.transfer = c.members[last].duration
    c.start_skew = start[last] - c.start
    c.end_spread = max(end.values()) - min(end.values())


def _has_partner(c: Collective, operations: dict[int, list[Operation]]) -> bool:
    o = c.any
    if o.op == "send_recv" and o.src is not None and o.dst is not None:
        other = o.dst if o.rank == o.src else o.src
        return other != o.rank and other in operations
    if o.group.size == 1:
        return False
    if o.group.ranks is not None:
        return any(r in operations for r in o.group.ranks if r != o.rank)
    return len(operations) > 1
