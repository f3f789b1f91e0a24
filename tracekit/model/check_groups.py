"""Whether what collectives say of their groups, ranks and sizes can be true."""

from __future__ import annotations

from collections.abc import Iterator

from tracekit.core.errors import Note
from tracekit.model.collective import Collective
from tracekit.model.limits import numbers_text, quoted, ranks_text
from tracekit.model.operations import int_list
from tracekit.model.run import TraceSet

#: operations of which every member states the same number of bytes
SAME_BYTES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")


def group_notes(run: TraceSet, collectives: list[Collective]) -> Iterator[Note]:
    """Notes on statements of collectives that contradict each other.

    Parameters
    ----------
    run : TraceSet
    collectives : list of Collective
    """
    yield from _outside_world(run, collectives)
    yield from _sizes_of_groups(collectives)
    yield from _sizes_of_messages(collectives)


def _outside_world(run: TraceSet, collectives: list[Collective]) -> Iterator[Note]:
    """Ranks that a job of this size does not have."""
    size = run.world_size
    if size is None:
        return
    given = [r for r in run.ranks if r >= size]
    if given:
        text = (
            f"{ranks_text(given)} {'is' if len(given) == 1 else 'are'} outside of a job of {size} "
            "ranks, as the files state its size: they come from several jobs, or their numbers "
            "are wrong; give one job"
        )
        yield Note("rank-outside-world", text)
    groups = {c.group.ranks for c in collectives if c.group.ranks}
    beyond = {r for ranks in groups for r in ranks if r >= size}
    if beyond:
        text = (
            f"collectives list {ranks_text(beyond)} among the members of their groups, outside of "
            f"a job of {size} ranks: waiting for them is not known; the world size or the lists "
            "are wrong"
        )
        yield Note("group-outside-world", text)


def _sizes_of_groups(collectives: list[Collective]) -> Iterator[Note]:
    """Groups whose stated size is not the number of their members."""
    stated: dict[tuple[str, str, str], int] = {}
    for c in collectives:
        for o in c.members.values():
            ranks, size = o.detail.get("Process Group Ranks"), o.detail.get("Group size")
            if ranks is not None and size is not None:
                name = str(o.detail.get("Process Group Name", ""))
                key = (name, str(ranks), str(size))
                stated[key] = stated.get(key, 0) + 1
    odd = {key: n for key, n in stated.items() if _contradicts(key[1], key[2])}
    if odd:
        name, ranks, size = max(odd, key=lambda key: (odd[key], key))
        text = (
            f"{sum(odd.values()):,} operations state a group size that is not the number of ranks "
            f"they list, such as {quoted(size, 20)} with {quoted(ranks, 40)} in group "
            f"{quoted(name, 40)}: the list is not used where the header has none that fits, and "
            "their bus bandwidth may be wrong"
        )
        yield Note("group-size", text)


def _contradicts(ranks_text: str, size: str) -> bool:
    ranks = int_list(ranks_text)  # None where it is cut short
    return bool(ranks) and size.isdecimal() and len(ranks or ()) != int(size[:19])


def _sizes_of_messages(collectives: list[Collective]) -> Iterator[Note]:
    """Collectives whose members do not move the same number of bytes."""
    odd = []
    for c in collectives:
        if c.op in SAME_BYTES and len(c.members) > 1:
            sizes = {o.num_bytes for o in c.members.values()} - {None}
            if len(sizes) > 1:
                odd.append(c)
    if not odd:
        return
    by_size: dict[int, list[int]] = {}
    for rank, o in odd[0].members.items():
        if o.num_bytes is not None:
            by_size.setdefault(o.num_bytes, []).append(rank)
    shown = "; ".join(
        f"{size:,} bytes on rank{'s' * (len(ranks) > 1)} {numbers_text(ranks)}"
        for size, ranks in sorted(by_size.items())[:3]
    )
    text = (
        f"the members of {len(odd):,} of {len(collectives):,} collectives state different message "
        f"sizes, such as {odd[0].op} with {shown}: the ranks passed different shapes, or these "
        "operations do not belong together; their bandwidth is doubtful"
    )
    yield Note("uneven-sizes", text)
