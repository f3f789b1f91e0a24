"""Clock differences between ranks, from the ends of collectives they shared."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracekit.model.operations import SYNCHRONISING, Operation

Pairs = dict[tuple[int, int], list[int]]


@dataclass(frozen=True, slots=True)
class Clock:
    """A rank's clock against the lowest rank's; positive means ahead.

    Attributes
    ----------
    offset_ns : int
    spread_ns : int
        Median absolute deviation of the differences the offset is the median of.
    num_shared : int
        How many shared collectives it rests on; 0 for the lowest rank itself.
    """

    offset_ns: int = 0
    spread_ns: int = 0
    num_shared: int = 0

    @property
    def is_certain(self) -> bool:
        """Whether the offset stands out from the scatter of the differences it rests on.

        Where it does not, times are better left as they are: ranks of one host share a clock.
        """
        return abs(self.offset_ns) > self.spread_ns


def clocks(
    ranks: Iterable[int], matched: Iterable[Mapping[int, Operation]]
) -> dict[int, Clock | None]:
    """Offset of each rank from the lowest rank; None where they cannot be compared.

    At the end of an operation that synchronises all members are done at about the same time, so
    the median difference of ends over at least two such operations is the clocks' difference.
    Ranks that share none with the lowest rank are reached over ranks that do.

    Parameters
    ----------
    ranks : iterable of int
    matched : iterable of mapping
        Members by rank of each matched collective; operations that do not synchronise are
        ignored.
    """
    shared: Pairs = {}
    for members in matched:
        if len(members) < 2 or not any(o.op in SYNCHRONISING for o in members.values()):
            continue
        hub = min(members)
        for rank, member in members.items():
            if rank != hub:
                shared.setdefault((hub, rank), []).append(member.end - members[hub].end)
    edges: dict[int, list[tuple[int, Clock]]] = {}
    for (a, b), differences in shared.items():
        if len(differences) < 2:
            continue
        clock = _middle(differences)
        edges.setdefault(a, []).append((b, clock))
        back = Clock(-clock.offset_ns, clock.spread_ns, clock.num_shared)
        edges.setdefault(b, []).append((a, back))
    return _reach(sorted(set(ranks)), edges)


def _middle(differences: list[int]) -> Clock:
    middle = median(differences)
    return Clock(middle, median([abs(d - middle) for d in differences]), len(differences))


def median(values: list[int]) -> int:
    """The median in whole numbers, the lower one of two middles that are 1 apart.

    Exact where a double is not (clocks without a common base differ by 10**18 ns), and it moves
    with the values: adding a constant to all adds it to the median.

    Examples
    --------
    >>> median([4, 1, 2]), median([-3, -2])
    (2, -3)
    """
    ranked = sorted(values)
    return (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) // 2


def _reach(ranks: list[int], edges: dict[int, list[tuple[int, Clock]]]) -> dict[int, Clock | None]:
    """Add up offsets along the paths of least spread, then fewest steps, from the lowest rank."""
    found: dict[int, Clock | None] = dict.fromkeys(ranks)
    # spread, steps, rank, offset, num_shared
    queue = [(0, 0, rank, 0, 0) for rank in ranks[:1]]
    while queue:
        spread, steps, rank, offset, num_shared = heapq.heappop(queue)
        if found.get(rank) is not None:
            continue
        found[rank] = Clock(offset, spread, num_shared)
        for other, step in edges.get(rank, []):
            if found.get(other) is None:
                least = min(num_shared or step.num_shared, step.num_shared)
                way = (spread + step.spread_ns, steps + 1, other, offset + step.offset_ns, least)
                heapq.heappush(queue, way)
    return found
