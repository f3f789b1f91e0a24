"""What limits the answers across ranks: clocks, windows, and how collectives were matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from tracekit.core.errors import Note
from tracekit.model import limits
from tracekit.model.check_groups import group_notes
from tracekit.model.clock import Clock
from tracekit.model.collective import Collective
from tracekit.model.facts import RankFacts
from tracekit.model.limits import quoted, ranks_text, time_text
from tracekit.model.operations import SYNCHRONISING, Group
from tracekit.model.run import TraceSet

#: ranks whose clocks are listed one by one
FEW_RANKS = 8
#: of a window, below which the part that all ranks recorded is worth a note
COMMON_FRAC = 0.9
#: of the communication, above which edge collectives are worth a note
EDGE_FRAC = 0.1
#: ends of one collective this many median deviations apart are no scatter (about 3.4 sigma)
FAR_APART = 5
#: of the matches by order, below which loose ones are the tail that any distribution has
LOOSE_FRAC = 0.25

Spans = dict[int, tuple[int, int]]


def matching_notes(run: TraceSet, facts: list[RankFacts]) -> Iterator[Note]:
    """Notes on what the ranks' recordings say of each other.

    Parameters
    ----------
    run : TraceSet
    facts : list of RankFacts
        Of all ranks.
    """
    collectives = run.matching.collectives
    spans = {f.rank: _corrected(run, f.rank, f.span) for f in facts if f.span}
    if len(spans) > 1:
        yield from _clocks(run, collectives)
        yield from _windows(spans)
    if not collectives:
        return
    yield from _edges(collectives)
    yield from _metadata(run, collectives, facts)
    yield from group_notes(run, collectives)
    if len(run.ranks) > 1:
        yield from _quality(run, collectives)
        yield from _unmatched(run, collectives, spans)
        yield from _uneven(run)


def doubts(run: TraceSet) -> Iterator[Note]:
    """The notes that put the division into waiting and transfer itself in doubt."""
    if len(run.ranks) < 2:
        return
    spans = {r: _corrected(run, r, span) for r, span in run.spans.items() if span}
    if len(spans) > 1:
        yield from _windows(spans)
    yield from _doubtful_clocks(run)
    for note in _quality(run, run.matching.collectives):
        if note.code == "loose-matches":
            yield note


def _doubtful_clocks(run: TraceSet) -> Iterator[Note]:
    """Clocks that the order and the ends of operations do not settle."""
    doubtful = run.matching.doubtful_ns
    if doubtful:
        rank, other = min(doubtful.items(), key=lambda d: abs(d[1]))
        text = (
            f"the clock of {ranks_text(doubtful)} is in doubt: operations carry no sequence number "
            f"and repeat so regularly that another difference (rank {rank}: by "
            f"{time_text(other, signed=True)}) explains them about as well; if it is the true one, "
            "each operation was paired with a neighbour and waiting is wrong; record with a torch "
            "that writes Seq (2.4 or later)"
        )
        yield Note("doubtful-clock", text)


def _corrected(run: TraceSet, rank: int, span: tuple[int, int]) -> tuple[int, int]:
    offset = run.matching.offset_ns(rank)
    return span[0] - offset, span[1] - offset


# -- clocks -----------------------------------------------------------------------------------


def _clocks(run: TraceSet, collectives: list[Collective]) -> Iterator[Note]:
    clocks, lowest = run.matching.clocks, run.ranks[0]
    known = {r: c for r, c in clocks.items() if c is not None and r != lowest}
    lost = [r for r, c in clocks.items() if c is None]
    if lost and collectives:
        text = (
            f"{ranks_text(lost)} cannot be put on one clock with {ranks_text([lowest])}: fewer "
            "than two shared collectives end on all members at once, so waiting between them rests "
            "on the clocks as recorded; record more steps, or call torch.distributed.barrier() in "
            "the first and the last of them"
        )
        yield Note("clock-unknown", text)
    if known:
        yield Note("clocks", _clock_text(known, lowest), "info")
        yield from _scatter(known, collectives)


def _clock_text(known: dict[int, Clock], lowest: int) -> str:
    if len(known) < FEW_RANKS:
        each = [
            f"rank {r} {time_text(c.offset_ns, signed=True)} (scatter {time_text(c.spread_ns)})"
            for r, c in sorted(known.items())
        ]
        body = ", ".join(each)
    else:
        low, high = (pick(c.offset_ns for c in known.values()) for pick in (min, max))
        spread = max(c.spread_ns for c in known.values())
        body = (
            f"{ranks_text(known)} from {time_text(low, signed=True)} to "
            f"{time_text(high, signed=True)} (scatter up to {time_text(spread)})"
        )
    return f"clocks against rank {lowest}, from the ends of shared collectives: {body}; corrected"


def _scatter(known: dict[int, Clock], collectives: list[Collective]) -> Iterator[Note]:
    """Clocks known less well than a collective is long."""
    lengths = [c.transfer for c in collectives if c.transfer is not None and not c.edge]
    if not lengths:
        return
    typical = int(median(lengths))
    loose = {r: c.spread_ns for r, c in known.items() if c.spread_ns > typical}
    if loose:
        worst = max(loose, key=lambda r: (loose[r], -r))
        text = (
            f"clocks of {ranks_text(loose)} scatter by up to {time_text(loose[worst])} (rank "
            f"{worst}), the typical collective takes {time_text(typical)}: who arrives last, and "
            "waiting shorter than that, are a guess; record more steps, and keep the hosts' clocks "
            "in step (PTP or chrony)"
        )
        yield Note("clock-spread", text)


# -- windows ----------------------------------------------------------------------------------


def _windows(spans: Spans) -> Iterator[Note]:
    """Whether all ranks recorded the same time."""
    first, last = min(spans, key=lambda r: spans[r]), max(spans, key=lambda r: spans[r])
    early = min(spans, key=lambda r: (spans[r][1], r))
    typical = median(end - start for start, end in spans.values())
    common = spans[early][1] - spans[last][0]
    later = spans[last][0] - spans[first][0]
    remedy = "start and stop all profilers at the same step (torch.profiler.schedule)"
    if common <= 0:
        text = (
            f"the windows have no time in common: rank {early}'s ends {time_text(-common)} before "
            f"rank {last}'s begins, so collectives of one have no partner in the other; {remedy}"
        )
        yield Note("windows-apart", text)
    elif common < COMMON_FRAC * typical:
        text = (
            f"only {time_text(common)} of {time_text(int(typical))} were recorded by all ranks "
            f"(rank {last}'s window begins {time_text(later)} after rank {first}'s, rank {early}'s "
            f"ends first): what lies outside has no partner, and waiting there is partly the "
            f"profiler's; {remedy}"
        )
        yield Note("windows-apart", text)


def _edges(collectives: list[Collective]) -> Iterator[Note]:
    """How much time the collectives take with which a window begins."""
    every = sum(o.duration for c in collectives for o in c.members.values())
    edge = sum(o.duration for c in collectives if c.edge for o in c.members.values())
    if edge > EDGE_FRAC * every and len(collectives) > 1:
        text = (
            f"{time_text(edge)} of {time_text(every)} communication lie in collectives with which "
            "some rank's window begins: part of their waiting is the profiler's late start, so "
            "they are left out of medians and rankings; call torch.distributed.barrier() before "
            "the first recorded step"
        )
        yield Note("edge-collectives", text)


# -- metadata ---------------------------------------------------------------------------------


def _metadata(
    run: TraceSet, collectives: list[Collective], facts: list[RankFacts]
) -> Iterator[Note]:
    nameless = [c for c in collectives if not c.group.known and c.group.size is None]
    if nameless:
        sized = any(c.num_bytes is not None for c in nameless)
        remedy = _group_remedy(facts)
        yield limits.unknown_groups(len(nameless), len(collectives), sized, remedy)
    odd = unknown_dtypes(run, collectives)
    if odd:
        yield limits.unknown_dtypes(odd)
    sizeless = [
        c
        for c in collectives
        if c.num_bytes is None and c.group.size is not None and c.op != "barrier"
    ]
    sizeless = [c for c in sizeless if not _dtypes(c) & odd]
    if sizeless:
        ops = ", ".join(sorted({c.op or "operation not known" for c in sizeless}))
        text = (
            f"{len(sizeless):,} of {len(collectives):,} collectives state no message size ({ops}), "
            f"so their bandwidth is not known; {_size_remedy(facts)}"
        )
        yield Note("unknown-bytes", text, "info")
    yield from _shortened(collectives)


def unknown_dtypes(run: TraceSet, collectives: Iterable[Collective]) -> set[str]:
    """Types of sized collectives whose bytes per element no rule knows."""
    known = run.names.dtype_bytes
    return {
        o.dtype
        for c in collectives
        for o in c.members.values()
        if o.dtype and o.dtype not in known and (o.in_elems or o.out_elems)
    }


def _dtypes(c: Collective) -> set[str]:
    return {o.dtype for o in c.members.values() if o.dtype}


_WRITTEN = (
    "write it for NCCL where ProfilerActivity.CPU is on, but not for libraries that bypass "
    "torch.distributed"
)


def _group_remedy(facts: list[RankFacts]) -> str:
    if all(f.timeline == "host" for f in facts):
        return "gloo writes none"
    if any(f.has_issues for f in facts):
        return "they were launched before recording began, or outside torch.distributed"
    return f"torch 2.5 and later {_WRITTEN}"


def _size_remedy(facts: list[RankFacts]) -> str:
    if all(f.timeline == "host" for f in facts):
        if all("record_shapes" in f.options for f in facts):
            return "gloo records the input's shape only"
        return "record with record_shapes=True"
    return f"torch 2.3 and later {_WRITTEN}"


def _shortened(collectives: list[Collective]) -> Iterator[Note]:
    """Lists that the file holds cut short."""
    listless = {
        c.group.key
        for c in collectives
        if c.group.ranks is None and "..." in str(c.any.detail.get("Process Group Ranks", ""))
    }
    if listless:
        text = (
            f"the rank lists of {len(listless):,} groups are cut short in the files: their members "
            "are not known, and collectives are matched by the group's name and size; torch 2.4 "
            "and later list them whole in distributedInfo"
        )
        yield Note("short-rank-lists", text, "info")
    uneven = sum(any(o.remote_bytes == -1 for o in c.members.values()) for c in collectives)
    if uneven:
        text = (
            f"{uneven:,} all_to_all have uneven splits that are cut short in the files: their bus "
            "bandwidth is not known"
        )
        yield Note("unknown-splits", text, "info")


# -- matching ---------------------------------------------------------------------------------


def _quality(run: TraceSet, collectives: list[Collective]) -> Iterator[Note]:
    """How the members of collectives were found to belong together."""
    count: Counter[str] = Counter(c.match for c in collectives)
    matched = len(collectives) - count["single"]
    words = {"comms_id": "by Comms Id", "seq": "by Seq", "order": "by order and time"}
    parts = [f"{count[how]:,} {word}" for how, word in words.items() if count[how]]
    if matched:
        text = f"{matched:,} of {len(collectives):,} collectives have members on several ranks"
        text += f": {', '.join(parts)}"
        if count["order"]:
            text += "; order is a guess, needless from torch 2.13 on (it writes Seq and Comms Id)"
        yield Note("match-quality", text, "info")
    loose = [c for c in collectives if c.match == "order" and _is_loose(run, c)]
    if loose:
        text = (
            f"{len(loose):,} of {count['order']:,} collectives matched by order end further apart "
            "than they take and than the clocks scatter: their members may not belong together, "
            "so their waiting is doubtful"
        )
        few = len(loose) < LOOSE_FRAC * count["order"]
        yield Note("loose-matches", text, "info" if few else "warning")


def _is_loose(run: TraceSet, c: Collective) -> bool:
    if c.op not in SYNCHRONISING or c.end_spread is None or c.transfer is None:
        return False
    clocks = [clock for r in c.members if (clock := run.matching.clocks.get(r))]
    spread = max((clock.spread_ns for clock in clocks), default=0)
    return c.end_spread > max(c.transfer, FAR_APART * spread)


def _unmatched(run: TraceSet, collectives: list[Collective], spans: Spans) -> Iterator[Note]:
    """Operations without a partner, and why."""
    why: Counter[str] = Counter()
    ranks, lost_ns = set(), 0
    for c in collectives:
        others = partners(run, c) if len(c.members) == 1 else []
        if others:
            why[_reason(c, others, spans)] += 1
            ranks.add(c.any.rank)
            lost_ns += c.any.duration
    if why:
        common = sorted(why.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in common)
        text = (
            f"{why.total():,} operations of {ranks_text(ranks)} ({time_text(lost_ns)}) found no "
            f"partner among the given ranks: {reasons}; how much of their time is waiting is not "
            "known"
        )
        yield Note("unmatched", text)


def partners(run: TraceSet, c: Collective) -> list[int]:
    """The given ranks that should have taken part in a collective with a single member."""
    o = c.any
    if o.op == "send_recv" and o.src is not None and o.dst is not None:
        others: Iterable[int] = (o.dst if o.rank == o.src else o.src,)
    elif o.group.size == 1:
        others = ()
    else:
        others = run.ranks if o.group.ranks is None else o.group.ranks
    there = set(run.ranks)
    return [r for r in others if r != o.rank and r in there]


def _reason(c: Collective, others: list[int], spans: Spans) -> str:
    o, start = c.any, c.start
    end = start + o.duration
    if not any(r in spans and spans[r][0] < end and start < spans[r][1] for r in others):
        return "outside the partners' windows"
    if o.op == "send_recv" and (o.src is None or o.dst is None):
        return "sends or receives without a peer"
    if o.group.ambiguous:
        return "in a group that is not known"
    return "without a like operation there at that time"


def _uneven(run: TraceSet) -> Iterator[Note]:
    """Groups whose members did not run the same number of operations of a kind."""
    count: dict[tuple[object, ...], Counter[int]] = {}
    title: dict[tuple[object, ...], str] = {}
    for rank, operations in run.operations.items():
        for o in operations:
            if o.op == "send_recv" or o.group.ambiguous:
                continue
            key = (o.group.key, o.op or o.kernel)
            title.setdefault(key, f"{o.op or quoted(o.kernel, 40)} on {group_text(o.group.name)}")
            held = count.setdefault(key, Counter(dict.fromkeys(_members(run, o.group), 0)))
            held[rank] += 1
    odd = {k: c for k, c in count.items() if len(set(c.values())) > 1}
    if not odd:
        return
    worst = max(odd, key=lambda k: max(odd[k].values()) - min(odd[k].values()))
    numbers = odd[worst]
    most, least = (pick(numbers, key=lambda r: (numbers[r], -r)) for pick in (max, min))
    text = (
        f"ranks ran unequal numbers of collectives in {len(odd):,} of {len(count):,} kinds, such "
        f"as {title[worst]}: {numbers[most]:,} on rank {most}, {numbers[least]:,} on rank {least}; "
        "the surplus has no partner (windows cut differently, or ranks that run different code)"
    )
    small = numbers[most] - numbers[least] <= max(2, numbers[most] // 50)
    yield Note("uneven-collectives", text, "info" if small else "warning")


def _members(run: TraceSet, group: Group) -> list[int]:
    """The given ranks of a group, as far as is known."""
    if group.ranks is None:
        return [] if group.known else run.ranks
    return sorted(set(group.ranks) & set(run.ranks))


def group_text(name: str) -> str:
    """A group in words."""
    return f"group {quoted(name, 40)}" if name else "a group without a name"
