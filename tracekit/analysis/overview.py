"""The whole analysis of a run in one pass over its ranks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tracekit.analysis.communication import collective_row
from tracekit.analysis.findings import findings
from tracekit.analysis.profiles import kernel_rows
from tracekit.analysis.ranks import RankFigures, rank_figures
from tracekit.analysis.remarks import rank_remarks, run_remarks
from tracekit.analysis.rows import Row, total_row
from tracekit.analysis.selection import ALL, Part, Selection, part_of
from tracekit.analysis.stragglers import straggler_rows
from tracekit.core.errors import Note, UsageError
from tracekit.model.collective import Collective
from tracekit.model.run import TraceSet

#: names listed per rank
TOP_NAMES = 20
#: missing step numbers listed (a hostile file can skip 10**18)
MAX_MISSING = 10_000


@dataclass(slots=True)
class Overview:
    """Everything the report shows, as rows."""

    ranks: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    missing_steps: list[int] = field(default_factory=list)
    no_step: list[Row] = field(default_factory=list)
    phases: list[Row] = field(default_factory=list)
    groups: list[Row] = field(default_factory=list)
    operations: list[Row] = field(default_factory=list)
    collectives: list[Row] = field(default_factory=list)
    unmatched: dict[str, int] = field(default_factory=dict)
    stragglers: list[Row] = field(default_factory=list)
    kernels: list[Row] = field(default_factory=list)
    totals: Row = field(default_factory=dict)
    findings: list[Row] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def overview(run: TraceSet, chosen: Selection = ALL) -> Overview:
    """Analyze a run: figures of every rank, step, phase and group, and all collectives.

    Only one rank's events are held at a time.
    """
    origin_ns = run.origin_ns  # matches collectives first, which may add notes
    found = Overview(notes=list(run.notes))
    held: dict[Collective, bool] = {}
    labels: dict[int, list[int]] = {}
    for rank in run.ranks:
        part = part_of(run, rank, chosen)
        figures = rank_figures(run, part)
        _add(found, figures)
        found.kernels += kernel_rows(part.trace, part.work)[:TOP_NAMES]
        labels[rank] = [int(label) for label in part.steps.label]
        found.notes += rank_remarks(part, figures)
        _mark_held(run, rank, part, held)
    _refuse_nothing(run, chosen, labels, found.ranks)
    chosen_ones = [c for c in run.matching.collectives if c in held]
    found.collectives = [collective_row(c, origin_ns, held[c]) for c in chosen_ones]
    found.unmatched = {str(r): n for r, n in run.matching.unmatched.items()}
    found.stragglers = straggler_rows((c for c in chosen_ones if not held[c]), run.ranks)
    found.missing_steps = _missing(labels)
    found.totals = total_row(found.ranks)
    found.findings = findings(
        found.totals,
        found.steps,
        found.stragglers,
        found.operations,
        on_host=all(r["timeline"] == "host" for r in found.ranks),
    )
    found.notes += run_remarks(run, labels, found.ranks, found.collectives)
    return found


def _refuse_nothing(
    run: TraceSet, chosen: Selection, labels: dict[int, list[int]], ranks: list[Row]
) -> None:
    """A selection without any step or work is a mistake in the question."""
    if chosen.steps is not None:
        first, last = chosen.steps
        every = sorted({n for own in labels.values() for n in own})
        if not any(first <= n <= last for n in every):
            have = f"there are steps {every[0]} to {every[-1]}" if every else "no steps are marked"
            raise UsageError(f"no step in {first}:{last}", hint=have)
    if chosen.range_ns is not None and not any(sum(_role_counts(r)) for r in ranks):
        low, high = (ns / 1000 for ns in chosen.range_ns)
        raise UsageError(
            f"no work between {low:g} and {high:g} us",
            hint=f"the run lasts from 0 to {run.length_ns / 1000:.0f} us",
        )


def _role_counts(row: Row) -> list[int]:
    return [row["events"][role] for role in ("compute", "comm", "memory")]


def _add(found: Overview, figures: RankFigures) -> None:
    found.ranks.append(figures.rank)
    found.steps += figures.steps
    found.no_step += figures.no_step
    found.phases += figures.phases
    found.groups += figures.groups
    found.operations += figures.operations


def _mark_held(run: TraceSet, rank: int, part: Part, held: dict[Collective, bool]) -> None:
    """Note which collectives have a member in the selected part, and which the range cuts."""
    inside = set(part.entry.tolist())
    low, high = (int(b[0]) for b in part.borders) if part.borders else (0, 0)
    base = part.trace.table.base_ns
    for c in run.collectives_of(rank):
        member = c.members[rank]
        if inside.isdisjoint(member.entries):
            continue
        cut = bool(part.borders) and (member.start - base < low or member.end - base > high)
        held[c] = held.get(c, False) or cut


def _missing(labels: dict[int, list[int]]) -> list[int]:
    """Step numbers between the first and last of all ranks that no rank has; at most 10,000."""
    every = sorted({n for own in labels.values() for n in own if n >= 0})
    gaps = (range(a + 1, b) for a, b in itertools.pairwise(every))
    return list(itertools.islice(itertools.chain.from_iterable(gaps), MAX_MISSING))
