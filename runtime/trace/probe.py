"""Find out which threads work for which of gloo's groups, by collectives that are marked."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from runtime.trace.profiler import AnnotationSession
from runtime.trace.records import Log, Record
from runtime.trace.seen import SeenGroup
from runtime.trace.spans import gloo_spans

#: at once, so that both threads of a group have something to do
_AT_ONCE = 8


def thread_groups(groups: list[SeenGroup], folder: Path) -> dict[int, str]:
    """Group of each run-loop thread, by native id; every rank must call this alike.

    Parameters
    ----------
    groups : list of SeenGroup
        Of this rank, in the order in which they were made.
    folder : Path
        Where the profiler's text lies for a moment.
    """
    ours = [g for g in groups if g.backend.endswith("gloo")]
    if not ours:
        return {}
    log, session, name_of = Log(), AnnotationSession(), {}
    session.start()
    for group in ours:
        works = []
        for _ in range(_AT_ONCE):
            record = Record("all_reduce", None, group.desc, 4, "float32", "", "", 0, 0)
            tensor = log.tag(record, torch.zeros(1))
            name_of[record.tag] = group.name
            works.append(dist.all_reduce(tensor, group=group.group, async_op=True))
        for work in works:
            work.wait()
    spans = gloo_spans(session.stop(folder))
    return {s.thread: name_of[s.tag] for s in spans if s.tag in name_of}
