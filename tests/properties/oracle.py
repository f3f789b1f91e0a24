"""A slow second opinion: small runs, and their figures found by asking every nanosecond in turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.builder import ALL_REDUCE, COPY, Kineto, collective

#: the groups collectives run on: the second has a member that is in no run
GROUPS: dict[str, tuple[int, ...]] = {"all": (0, 1, 2), "part": (0, 1, 7)}
#: times begin here, since a row with both times 0 is a fault
BEGIN = 1_000


@dataclass
class Event:
    """One piece of device work; all times are whole units on the rank's own clock."""

    start: int
    end: int
    role: str  # compute, comm or memory
    stream: int
    launch: int | None
    group: str = ""
    seq: int = 0
    wait_end: int = 0
    moves: bool = False
    edge: bool = False


@dataclass
class RankPlan:
    """What one rank does."""

    rank: int
    events: list[Event]
    steps: list[tuple[int, int, int]] = field(default_factory=list)  # number, start, end


@dataclass
class Plan:
    """A run of up to three ranks."""

    ranks: list[RankPlan]
    unit_ns: int

    def files(self, only: set[int] | None = None) -> list[Kineto]:
        """The run as trace files."""
        return [_file(r, self.unit_ns) for r in self.ranks if only is None or r.rank in only]


def _file(plan: RankPlan, unit_ns: int) -> Kineto:
    file = Kineto(plan.rank, 3, unit_ns=unit_ns)
    for number, start, end in plan.steps:
        file.step(number, start, end)
    for e in plan.events:
        more: dict[str, Any] = {"stream": e.stream, "launched": e.launch}
        if e.role == "compute":
            file.kernel(e.start, e.end, **more)
        elif e.role == "memory":
            file.copy(e.start, e.end, COPY, **more)
        else:
            members = GROUPS.get(e.group, (plan.rank, 9))
            file.comm(
                e.start,
                e.end,
                ALL_REDUCE,
                **more,
                **collective(elems=8, group=e.group, ranks=members, seq=e.seq),
            )
    return file


# -- made-up runs -----------------------------------------------------------------------------

times = st.integers(BEGIN, BEGIN + 40)
lengths = st.integers(0, 12)
launches = st.one_of(st.none(), st.integers(BEGIN - 20, BEGIN + 60))


@st.composite
def work(draw: st.DrawFn) -> Event:
    """A kernel, a copy, or communication nobody else of the run takes part in."""
    role = draw(st.sampled_from(["compute", "compute", "memory", "comm"]))
    start = draw(times)
    stream = {"compute": draw(st.sampled_from([7, 8])), "memory": 30, "comm": 40}[role]
    group = "alone" if role == "comm" else ""
    return Event(start, start + draw(lengths), role, stream, draw(launches), group)


@st.composite
def rank_steps(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Host spans of steps: apart, touching, crossing or missing a number."""
    found, at, number = [], BEGIN - 10, draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 3))):
        length = draw(st.integers(1, 30))
        found.append((number, at, at + length))
        at += max(1, length + draw(st.integers(-8, 5)))
        number += draw(st.sampled_from([1, 1, 1, 2]))
    return found


@st.composite
def plans(draw: st.DrawFn, unit_ns: int = 1) -> Plan:
    """A run: work of each rank on its own, and collectives of those that are members."""
    ranks = []
    for rank in range(draw(st.integers(1, 3))):
        events = draw(st.lists(work(), min_size=1, max_size=7))
        for at, event in enumerate(events):
            event.seq = 100 + at
        ranks.append(RankPlan(rank, events, draw(rank_steps())))
    for seq in range(draw(st.integers(0, 5))):
        group = draw(st.sampled_from(sorted(GROUPS)))
        for plan in ranks:
            if plan.rank in GROUPS[group] and draw(st.integers(0, 5)):
                start = draw(times)
                event = Event(start, start + draw(lengths), "comm", 20, draw(launches))
                event.stream += sorted(GROUPS).index(group)
                event.group, event.seq = group, seq
                plan.events.append(event)
    for plan in ranks:
        plan.events = draw(st.permutations(plan.events))
        _give_each_stream_one_sequence(plan)
    return Plan(ranks, unit_ns)


def _give_each_stream_one_sequence(plan: RankPlan) -> None:
    """Cut ends as the accounting cuts absurd ones: those past the starts of two later events."""
    for stream in {e.stream for e in plan.events}:
        own = [e for e in plan.events if e.stream == stream]
        for event in own:
            later = sorted(e.start for e in own if e.start > event.start)
            if len(later) > 1 and event.end > later[1]:
                event.end = later[0]


# -- what is known of collectives -------------------------------------------------------------


def judge(plan: Plan, offsets: dict[int, int]) -> None:
    """Fill in how each communication divides, given how far each rank's clock is ahead (units)."""
    members: dict[Any, list[tuple[int, Event]]] = {}
    for own in plan.ranks:
        first = min(e.start for e in own.events)
        for e in own.events:
            e.wait_end, e.moves, e.edge = e.start, False, False
            if e.role == "comm":
                key = (e.group, e.seq, own.rank if e.group == "alone" else None)
                members.setdefault(key, []).append((own.rank, e))
                e.edge = e.start == first
    for (group, _, _), found in members.items():
        for _, e in found:
            e.edge = any(other.edge for _, other in found)
        if len(found) < 2:
            continue
        last = max(e.start - offsets.get(rank, 0) for rank, e in found)
        for rank, e in found:
            e.wait_end = e.start + min(e.end - e.start, last - (e.start - offsets.get(rank, 0)))
            e.moves = len(found) == len(GROUPS[group])


# -- counting cells ---------------------------------------------------------------------------


def count(
    events: list[Event],
    low: int | None = None,
    high: int | None = None,
    whole: list[Event] | None = None,
) -> dict[str, int]:
    """The figures of some events, in units, by looking at every unit of their window.

    Parameters
    ----------
    events : list of Event
    low, high : int, optional
        The window, where it is not that of the events.
    whole : list of Event, optional
        All work of the rank, where the events are part of it.
    """
    names = ("compute", "comm", "overlap", "exposed_comm", "memory", "exposed_memory", "idle")
    split = ("exposed_wait", "exposed_transfer", "exposed_unknown", "edge_comm", "other")
    found = dict.fromkeys((*names, *split), 0)
    low = min((e.start for e in events), default=0) if low is None else low
    high = max((e.end for e in events), default=0) if high is None else high
    for t in range(low, high):
        now = [e for e in events if e.start <= t < e.end]
        compute = any(e.role == "compute" for e in now)
        comm = [e for e in now if e.role == "comm"]
        memory = any(e.role == "memory" for e in now)
        found["compute"] += compute
        found["comm"] += bool(comm)
        found["overlap"] += compute and bool(comm)
        found["memory"] += memory
        found["exposed_memory"] += memory and not compute and not comm
        found["idle"] += not now
        found["other"] += not now and any(e.start <= t < e.end for e in whole or [])
        found["edge_comm"] += any(e.edge for e in comm)
        if comm and not compute:
            found["exposed_comm"] += 1
            found[_why(comm, t)] += 1
    return {"window": high - low, **found}


def _why(comm: list[Event], t: int) -> str:
    """What an exposed instant is: bytes that move win over waiting, waiting over not knowing."""
    if any(e.moves and t >= e.wait_end for e in comm):
        return "exposed_transfer"
    return "exposed_wait" if any(t < e.wait_end for e in comm) else "exposed_unknown"


def share(events: list[Event], order: list[str], unit_ns: int) -> dict[str, tuple[int, int, int]]:
    """Per group communication, exposed communication and its share of the exposed time, in ns.

    Each stretch in which the same groups communicate exposed is divided among them in whole ns;
    what is left over goes to the first ones in ``order``, 1 ns to each.
    """
    comm = [e for e in events if e.role == "comm"]
    found = {e.group: [0, 0, 0] for e in comm}
    stretches: list[tuple[list[str], int]] = []
    for t in range(min(e.start for e in events), max(e.end for e in events)):
        now = {e.group for e in comm if e.start <= t < e.end}
        computes = any(e.role == "compute" and e.start <= t < e.end for e in events)
        for group in now:
            found[group][0] += unit_ns
            found[group][1] += 0 if computes else unit_ns
        alone = [] if computes else sorted(now, key=order.index)
        same = bool(stretches) and stretches[-1][0] == alone
        before = stretches.pop()[1] if same else 0
        stretches.append((alone, before + unit_ns))
    for alone, length in stretches:
        for at, group in enumerate(alone):
            found[group][2] += length // len(alone) + (at < length % len(alone))
    return {group: (a, b, c) for group, (a, b, c) in found.items()}


def step_of(plan: RankPlan, event: Event) -> int | None:
    """Place of the step whose span holds the launch of an event, the latest begun of several."""
    if event.launch is None:
        return None
    holds = [
        (start, at) for at, (_, start, end) in enumerate(plan.steps) if start <= event.launch < end
    ]
    return max(holds)[1] if holds else None
