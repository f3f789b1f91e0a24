"""Align the operations of several ranks by order and time, where no identity was recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tracekit.model.links import Ints
from tracekit.model.operations import SYNCHRONISING, Operation

#: operations of one kind on one group, by rank, each list in order of start
Bucket = dict[int, list[Operation]]
Members = dict[int, Operation]

#: two ends this close can be one collective's when clocks are guessed (ends lie 26–115 µs apart
#: on real sets; half a millisecond keeps the tail)
END_TOLERANCE_NS = 500_000
#: ends of one collective are not told apart below this (the lower end of what real sets show)
END_SCATTER_NS = 20_000
#: spreads of ends below this are alike
LEAST_SPREAD_NS = 5_000
#: what distance from equal clocks costs a difference, against the pairs that speak for it: with a
#: ms the loss of about one pair of a collective every 50 ms
DISTANCE_COST = 6.0
#: evidence by which a difference has to exceed the next one to be beyond doubt
CLEAR_MARGIN = 12.0
#: how far in order the partner of an operation is looked for
MAX_SHIFT = 64
#: differences that are weighed against each other: one for each place in the order
MAX_CLUSTERS = 2 * MAX_SHIFT + 1
#: differences of ends that are looked at per pair of ranks (0.4 s)
MAX_DIFFERENCES = 4_000_000


@dataclass(slots=True)
class Guess:
    """Rough clock differences of ranks.

    Attributes
    ----------
    offsets : dict of int to int, ns
    spread : int
        The largest spread of the guessed ones, at least the scatter of ends, ns; 0 without any.
    doubtful : dict of int to int, ns
        Ranks for which another difference explains the ends nearly as well, and that difference.
    """

    offsets: dict[int, int]
    spread: int = 0
    doubtful: dict[int, int] = field(default_factory=dict)


def guess_offsets(buckets: Iterable[Bucket], known: dict[int, int]) -> Guess:
    """Rough clock differences of ranks, found from the operations themselves.

    For each rank the difference to the ends of the lowest rank of the bucket that explains them
    best: many pairs share it, it spreads little among them, and it is small. Of operations in a
    regular beat a difference that is a beat off explains nearly as many pairs, but their distances
    in time vary, so that it spreads more.

    Parameters
    ----------
    buckets : iterable of Bucket
    known : dict of int to int
        Offsets in ns that are known already; these ranks are left as they are.
    """
    guess = Guess(dict(known))
    offsets = guess.offsets
    timed = [b for b in buckets if next(iter(b.values()))[0].op in SYNCHRONISING | {"send_recv"}]
    timed.sort(key=lambda b: -sum(map(len, b.values())))
    tried: set[tuple[int, int]] = set()  # a pair is looked at once, with all it shares
    for bucket in timed:
        hub = min(bucket, key=lambda r: (r not in offsets, r))
        for rank in bucket:
            if rank != hub and rank not in offsets and (hub, rank) not in tried:
                tried.add((hub, rank))
                shared = [(_ends(b[hub]), _ends(b[rank])) for b in timed if hub in b and rank in b]
                found = _coincidence(shared)
                if found:
                    middle, spread = found[0]
                    offsets[rank] = offsets.get(hub, 0) + middle
                    guess.spread = max(guess.spread, spread, END_SCATTER_NS)
                    if len(found) > 1:
                        guess.doubtful[rank] = offsets.get(hub, 0) + found[1][0]
        offsets.setdefault(hub, 0)
    return guess


def _ends(operations: list[Operation]) -> Ints:
    return np.array([o.end for o in operations], dtype=np.int64)


def _coincidence(shared: list[tuple[Ints, Ints]]) -> list[tuple[int, int]]:
    """Differences of two ranks' ends that explain them about equally well, the best first.

    Parameters
    ----------
    shared : list of (hub, other)
        Ends of each kind of operation that both ranks hold, the most frequent kind first.

    Returns
    -------
    list of (difference, spread), ns
        Empty where no difference is shared by most pairs.
    """
    every: list[Ints] = []
    gaps: list[Ints] = []
    num_asked = 0
    for hub, other in shared:
        if not len(hub) or not len(other) or sum(len(e) for e in every) > MAX_DIFFERENCES:
            continue
        differences, asked = _differences(hub, other)
        every.append(differences)
        gaps += [np.diff(hub), np.diff(other)]
        num_asked += asked
    if not every:
        return []
    between = np.concatenate(gaps)
    gap = int(np.median(between)) if len(between) else 4 * END_TOLERANCE_NS
    clusters = _clusters(np.sort(np.concatenate(every)), min(END_TOLERANCE_NS, gap // 4))
    # a real difference is shared by most pairs
    if not clusters or clusters[0][0] < max(2, num_asked / 2):
        return []
    chance = max(gap, 4 * END_SCATTER_NS)  # a spread that says nothing

    def evidence(cluster: tuple[int, int, int]) -> float:
        size, middle, spread = cluster
        closer = math.log(chance / max(spread, LEAST_SPREAD_NS))
        return min(size, num_asked) * closer - DISTANCE_COST * math.log1p(abs(middle) / 1e6)

    ranked = sorted(clusters, key=evidence, reverse=True)
    least = evidence(ranked[0]) - CLEAR_MARGIN
    return [(middle, spread) for _, middle, spread in (c for c in ranked if evidence(c) >= least)]


def _clusters(every: Ints, width: int) -> list[tuple[int, int, int]]:
    """Size, middle and spread of the separate clusters of sorted values, the largest first.

    Those with less than half as many members as the largest are left out.
    """
    count = np.searchsorted(every, every + width, side="right") - np.arange(len(every))
    found: list[tuple[int, int, int]] = []
    least, left = max(2, int(count.max()) / 2), count.copy()
    for _ in range(MAX_CLUSTERS):
        at = int(left.argmax())
        if left[at] < least:
            break
        low, high = np.searchsorted(every, (every[at] - width, every[at] + width + 1))
        left[low:high] = 0
        window = every[at : at + count[at]]
        middle = int(np.median(window))
        found.append((int(count[at]), middle, int(np.median(np.abs(window - middle)))))
    return found


def _differences(hub: Ints, other: Ints) -> tuple[Ints, int]:
    """Differences ``other - hub`` of ends that lie near each other in order.

    Where that were too many, only some of the shorter list are asked, evenly spread.

    Returns
    -------
    differences : ndarray of int64
    num_asked : int
        How many ends of the shorter list were laid beside the longer one.
    """
    few, many, sign = (other, hub, 1) if len(other) <= len(hub) else (hub, other, -1)
    reach = MAX_SHIFT + len(many) - len(few)
    num_asked = min(len(few), max(MAX_SHIFT, MAX_DIFFERENCES // (2 * reach + 1)))
    asked = np.linspace(0, len(few) - 1, num_asked).astype(np.int64)
    beside = asked[:, None] + np.arange(-reach, reach + 1)
    real = (beside >= 0) & (beside < len(many))
    found = few[asked][:, None] - many[np.clip(beside, 0, len(many) - 1)]
    return sign * found[real], num_asked


def align(bucket: Bucket, offsets: dict[int, int], slack_ns: int) -> list[Members]:
    """Group the operations of a bucket into collectives.

    Each rank in turn is laid beside the collectives found so far, once by order (with the shift
    that fits the ends best) and once by nearest ends; the way that pairs more is taken. Members
    of an operation that synchronises must overlap in time.

    Parameters
    ----------
    bucket : Bucket
    offsets : dict of int to int
        Clock of each rank in ns, subtracted from its times.
    slack_ns : int
        Tolerance of the overlap: the clocks' spread.
    """
    ranks = sorted(bucket, key=lambda r: (-len(bucket[r]), r))
    found: list[Members] = [{ranks[0]: o} for o in bucket[ranks[0]]]
    for rank in ranks[1:]:
        found = _join(found, rank, bucket[rank], offsets, slack_ns)
    return found


def _join(
    found: list[Members], rank: int, mine: list[Operation], offsets: dict[int, int], slack_ns: int
) -> list[Members]:
    spans = [_span(members, offsets) for members in found]
    ends = np.array([s[2] for s in spans], dtype=np.int64)
    shift = offsets.get(rank, 0)
    own = [(o.start - shift, o.end - shift) for o in mine]
    own_ends = np.array([e for _, e in own], dtype=np.int64)
    must_overlap = mine[0].op in SYNCHRONISING or mine[0].op == "send_recv"

    def fits(i: int, j: int) -> bool:
        low, high, _ = spans[i]
        return not must_overlap or max(low, own[j][0]) <= min(high, own[j][1]) + slack_ns

    ways = (_by_order(ends, own_ends), _by_nearest(ends, own_ends))
    valid = [[(i, j) for i, j in way if fits(i, j)] for way in ways]
    pairs = max(valid, key=len)
    taken = {j for _, j in pairs}
    for i, j in pairs:
        found[i][rank] = mine[j]
    found += [{rank: o} for j, o in enumerate(mine) if j not in taken]
    return sorted(found, key=lambda m: _span(m, offsets)[2])


def _span(members: Members, offsets: dict[int, int]) -> tuple[int, int, int]:
    """Last start, first end and middle end of the members so far, on corrected clocks."""
    starts = [o.start - offsets.get(r, 0) for r, o in members.items()]
    ends = sorted(o.end - offsets.get(r, 0) for r, o in members.items())
    return max(starts), ends[0], ends[len(ends) // 2]


def _by_order(ends: Ints, own: Ints) -> list[tuple[int, int]]:
    """Pairs by order under the shift whose ends lie closest; without ambiguity no shift."""
    best: tuple[float, int, int] | None = None
    for shift in _shifts(ends, own):
        low, high = max(0, -shift), min(len(ends), len(own) - shift)
        if high - low < max(1, min(len(ends), len(own)) // 2):
            continue
        apart = float(np.median(np.abs(own[low + shift : high + shift] - ends[low:high])))
        key = (apart, abs(shift), shift)
        if best is None or key < best:
            best = key
    if best is None:
        return []
    shift = best[2]
    low, high = max(0, -shift), min(len(ends), len(own) - shift)
    return [(i, i + shift) for i in range(low, high)]


def _shifts(ends: Ints, own: Ints) -> Iterable[int]:
    """Shifts worth trying: all within reach, or of very many those that the times suggest."""
    reach = MAX_SHIFT + abs(len(ends) - len(own))
    if reach <= 4 * MAX_SHIFT:
        return range(-reach, reach + 1)
    middle = int(np.median(np.arange(len(own)) - _nearest(ends, own)))
    near = {s + d for s in (0, middle) for d in range(-MAX_SHIFT, MAX_SHIFT + 1)}
    return sorted(s for s in near if -reach <= s <= reach)


def _by_nearest(ends: Ints, own: Ints) -> list[tuple[int, int]]:
    """Pairs whose ends are each other's nearest."""
    to_own, to_ends = _nearest(own, ends), _nearest(ends, own)
    return [(i, int(j)) for i, j in enumerate(to_own) if to_ends[j] == i]


def _nearest(values: Ints, wanted: Ints) -> Ints:
    """Index of the value nearest to each of ``wanted``; both sorted."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    right = np.clip(np.searchsorted(ranked, wanted), 0, len(ranked) - 1)
    left = np.maximum(right - 1, 0)
    nearer = np.where(np.abs(ranked[left] - wanted) <= np.abs(ranked[right] - wanted), left, right)
    found: Ints = order[nearer]
    return found
