"""Whether a set of traces is sound: what in it limits the answers, what that costs, what to do.

Every note speaks of the whole run: thousands of ranks give as many notes as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from tracekit.core.errors import Note
from tracekit.model import limits
from tracekit.model.check_matching import matching_notes
from tracekit.model.facts import RankFacts, facts_of, unknown_names
from tracekit.model.limits import gaps_text, quoted, ranks_text, time_text
from tracekit.model.run import TraceSet

#: from fewer steps no spread between steps can be told
FEW_STEPS = 3
#: work whose median length is less than so many times the resolution is timed too coarsely
COARSE = 4

Facts = list[RankFacts]


def check(run: TraceSet) -> list[Note]:
    """Notes on all that limits the answers: those of the reading first, then the gravest.

    Parameters
    ----------
    run : TraceSet

    Returns
    -------
    list of Note
        Each says in one sentence what it costs and how to record better.
    """
    facts, names = [], _Names()
    for rank in run.ranks:
        facts.append(facts_of(run, rank))
        names.add(unknown_names(run, rank))
    # matched before the reading's notes are taken: it may add to them
    matched = list(matching_notes(run, facts))
    found = [
        *_job(run, facts),
        *chain.from_iterable(check(facts) for check in _OF_RANKS),
        *_communication(run, facts),
        *names.notes(sum(f.work_ns for f in facts)),
        *matched,
    ]
    found.sort(key=lambda note: ("error", "warning", "info").index(note.severity))
    return [*run.notes, *found]


def _who(facts: Iterable[RankFacts]) -> str:
    return ranks_text(f.rank for f in facts)


def _file(some: Facts, facts: Facts) -> str:
    """The file, when the note is on one of several ranks."""
    return some[0].file if len(some) == 1 < len(facts) else ""


def _sum(facts: Facts, count: str) -> int:
    return sum(f.counts.get(count, 0) for f in facts)


# -- the job ----------------------------------------------------------------------------------


def _job(run: TraceSet, facts: Facts) -> Iterator[Note]:
    yield from limits.missing_ranks(run.ranks, run.world_size)
    sizes = {f.world_size for f in facts} - {None}
    if len(sizes) > 1:
        text = (
            f"the files state different world sizes ({_by_value(facts, _world_size)}): they come "
            "from several jobs, and what is matched between those means nothing; give one job"
        )
        yield Note("world-sizes", text)
    nameless = [f for f in facts if f.world_size is None]
    if nameless and len(run.ranks) > 1:
        text = (
            f"{_who(nameless)}: the header names no rank and no process groups (distributedInfo); "
            "start the profiler after torch.distributed.init_process_group"
        )
        yield Note("no-distributed-info", text, "info", _file(nameless, facts))
    for key in sorted({key for f in facts for key in f.versions}):
        values = {f.versions[key] for f in facts if key in f.versions}
        if len(values) > 1:
            by_value = _by_value(facts, lambda f: f.versions.get(key, ""))  # noqa: B023
            text = (
                f"{key} differs between ranks ({by_value}): slower ranks may owe it to that; "
                "install the same everywhere"
            )
            yield Note("uneven-versions", text)
    if len({f.device_name for f in facts if f.device_name}) > 1:
        text = (
            f"ranks run on different devices ({_by_value(facts, lambda f: f.device_name)}): the "
            "slower ones make the others wait by their nature, not by a fault"
        )
        yield Note("uneven-devices", text)


def _world_size(f: RankFacts) -> str:
    return str(f.world_size or "")


def _by_value(facts: Facts, value: Callable[[RankFacts], str]) -> str:
    """``8: ranks 0-3; 16: rank 4``: at most four values, the commonest first."""
    found: dict[str, list[RankFacts]] = {}
    for f in facts:
        if value(f):
            found.setdefault(value(f), []).append(f)
    common = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = [f"{quoted(v, 40)[1:-1]}: {_who(held)}" for v, held in common[:4]]
    return "; ".join(shown) + ("; …" if len(common) > 4 else "")


# -- what was recorded ------------------------------------------------------------------------


def _settings(facts: Facts) -> Iterator[Note]:
    """Profiler options that differ, or that slow down what they record."""
    for option in sorted({o for f in facts for o in f.options}):
        on = [f for f in facts if option in f.options]
        if len(on) < len(facts):
            text = (
                f"{option}=True on {_who(on)} only: recording it takes time, which makes these "
                "ranks look slow; profile all ranks with the same options"
            )
            yield Note("uneven-options", text)
    heavy = [o for o in ("with_stack", "profile_memory") if all(o in f.options for f in facts)]
    if heavy:
        text = (
            f"recorded with {' and '.join(f'{o}=True' for o in heavy)}: it slows the host down, "
            "so launches are later and idle time is longer than in training; record without"
        )
        yield Note("heavy-recording", text, "info")
    told = [f for f in facts if f.messages]
    if told:
        text = (
            f"{_who(told)}: Kineto reported errors while recording, such as "
            f"{quoted(told[0].messages[0], 160)}; what it could not record is missing"
        )
        yield Note("recorder-errors", text, "warning", _file(told, facts))


def _damage(facts: Facts) -> Iterator[Note]:
    """Files cut short and events that cannot be as written."""
    short = [f for f in facts if f.counts.get("recovered")]
    if short:
        text = (
            f"{_who(short)}: files cut short; {_sum(short, 'recovered'):,} events were recovered, "
            "the later steps are lost and the ranks' windows end apart; copy the files again, or "
            "let the profiler finish before the job ends"
        )
        yield Note("recovered", text, "warning", _file(short, facts))
    if some := [f for f in facts if f.counts.get("dropped")]:
        yield limits.dropped(_who(some), _sum(some, "dropped"), _file(some, facts))
    if some := [f for f in facts if f.counts.get("clipped")]:
        yield limits.clipped(_who(some), _sum(some, "clipped"), _file(some, facts))


def _timelines(facts: Facts) -> Iterator[Note]:
    """Whether the device recorded its work."""
    if some := [f for f in facts if not f.num_work]:
        yield limits.no_work(_who(some), _file(some, facts))
    if some := [f for f in facts if not f.compute_known]:
        yield limits.collectives_only(_who(some), _file(some, facts))
    host = [f for f in facts if f.timeline == "host" and f.compute_known]
    device = [f for f in facts if f.timeline == "device"]
    blind = [f for f in host if device or "nccl" in f.backend.lower()]
    if blind:
        why = "while others recorded theirs" if device else "although the backend is NCCL"
        text = (
            f"{_who(blind)}: no device events {why}, so compute is host time only; record with "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and no second profiler "
            "may hold the device"
        )
        yield Note("no-device-rows", text, "warning", _file(blind, facts))
    elif host:
        yield limits.host_timeline(_who(host), _file(host, facts))
    if some := [f for f in facts if not f.comm_known]:
        yield limits.host_comm_only(_who(some), _file(some, facts))


def _launches(facts: Facts) -> Iterator[Note]:
    """Whether device events can be linked to the host."""
    device = [f for f in facts if f.timeline == "device" and f.num_work]
    blind = [f for f in device if not f.has_launches]
    if blind:
        text = (
            f"{_who(blind)}: no launch records, so device events belong to no step or phase, and "
            "collectives whose own events do not name their group to none; record with "
            "ProfilerActivity.CPU as well"
        )
        yield Note("no-launches", text, "warning", _file(blind, facts))
    linked = [f for f in device if f.has_launches]
    most = limits.UNLINKED_FRAC
    fringe = [f for f in linked if f.counts["unlinked"] > most * f.counts["timed"]]
    if fringe:
        count, timed = _sum(fringe, "unlinked"), _sum(fringe, "timed")
        yield limits.unlinked(_who(fringe), count, timed, _file(fringe, facts))


def _times(facts: Facts) -> Iterator[Note]:
    """How finely the times are written."""
    coarse = [f for f in facts if f.resolution_ns >= 100]
    if not coarse:
        return
    worst = max(coarse, key=lambda f: f.resolution_ns)
    step, half = worst.resolution_ns, sorted(f.median_ns for f in coarse)[len(coarse) // 2]
    unit, why = "whole us", ""
    if step < 1000:
        unit = f"multiples of {step:,} ns"
        why = "" if worst.has_base else ", as absolute floats without baseTimeNanoseconds"
    severe = half < COARSE * step
    text = (
        f"{_who(coarse)}: times are written in {unit}{why}, so starts and ends are off by up to "
        f"that much (half of the events last {time_text(half)} or less); torch 2.4 and later "
        "write exact ns"
    )
    yield Note("coarse-times", text, "warning" if severe else "info", _file(coarse, facts))


def _steps(facts: Facts) -> Iterator[Note]:
    """Which steps are there, and on which ranks."""
    timed = [f for f in facts if f.compute_known and f.num_work]
    if without := [f for f in timed if not f.steps]:
        yield limits.no_steps(_who(without), _file(without, facts))
    labels = {f.rank: f.steps for f in timed if f.steps or len(without) < len(timed)}
    yield from limits.uneven_steps(labels)
    twice = {f.rank: [n for n, k in Counter(f.steps).items() if k > 1 and n >= 0] for f in timed}
    yield from limits.repeated_steps(twice)
    empty = [f for f in timed if f.empty_steps]
    if empty:
        numbers = {n for f in empty for n in f.empty_steps}
        yield limits.empty_steps(_who(empty), numbers, _file(empty, facts))
    every = sorted({n for own in labels.values() for n in own if n >= 0})
    if not every:
        return
    if lost := gaps_text(every, every[0], every[-1]):
        text = (
            f"steps {lost} are missing between those recorded; their time shows as "
            "a gap between steps"
        )
        yield Note("missing-steps", text)
    if len(every) < FEW_STEPS:
        text = (
            f"only {len(every)} {'step was' if len(every) == 1 else 'steps were'} recorded: how "
            "much steps differ cannot be told; use torch.profiler.schedule with active=5 or more"
        )
        yield Note("few-steps", text, "info")


_OF_RANKS: tuple[Callable[[Facts], Iterator[Note]], ...] = (
    _damage, _timelines, _launches, _times, _steps, _settings,
)  # fmt: skip


def _communication(run: TraceSet, facts: Facts) -> Iterator[Note]:
    """Whether any communication was recognised in a job that must have some."""
    device = [f for f in facts if f.timeline == "device" and f.comm_known]
    several = (run.world_size or len(run.ranks)) > 1
    if several and device and not any(f.num_comm for f in device):
        yield limits.no_communication()


class _Names:
    """Names that no rule knows, over all ranks."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, int]] = {}

    def add(self, names: Mapping[str, tuple[int, int]]) -> None:
        """Take those of one more rank: how often, and ns in all."""
        for name, (count, length) in names.items():
            before = self._held.get(name, (0, 0))
            self._held[name] = before[0] + count, before[1] + length

    def notes(self, work_ns: int) -> Iterator[Note]:
        """One note, with the names that take most of ``work_ns``."""
        if not self._held:
            return
        longest = sorted(self._held.items(), key=lambda item: (-item[1][1], item[0]))
        listed = [
            f"{quoted(name)} ({time_text(length)}, {count:,} x)"
            for name, (count, length) in longest[:3]
        ]
        share = 100 * sum(length for _, length in self._held.values()) / max(1, work_ns)
        num = len(longest)
        text = (
            f"no rule knows {num:,} {'name' if num == 1 else 'names'} with {share:.3g} % of the "
            f"work's time, counted as compute: {', '.join(listed)}{', …' if num > 3 else ''}; "
            "where one communicates, say so in a --names file"
        )
        yield Note("unknown-names", text, "info")
