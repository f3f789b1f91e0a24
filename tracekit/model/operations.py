"""A rank's collective operations: its communication events with what is known about each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracekit.model.links import Ints, enclosing, external_ids_usable, lookup
from tracekit.model.names import COMM, Names
from tracekit.model.trace import ANNOTATION, OPERATOR, Trace
from tracekit.model.work import Work

_ANNOTATED = re.compile(r"^(?:nccl|gloo|xccl|ucc|mpi|rccl):\s*(\w+)(?:\s+(\d+)\s*(->|<-)\s*(\d+))?")
_C10D = re.compile(r"^_?c10d(?:_functional)?::_?(\w+?)_*$")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as far as a trace tells.

    Attributes
    ----------
    name, desc : str
        As torch calls it; neither is unique in a job.
    ranks : tuple of int or None
        Members; None when unknown or cut short in the file.
    size : int or None
    cut : str
        The list of members as the file has it, where it is cut short: two groups of one name
        mostly differ in what is left of it.
    axis : str or None
        Axis of the grid.
    known : bool
        False when the file holds no group metadata for the operation; ``ranks`` and ``size`` are
        then those of the only group its header lists.
    ambiguous : bool
        True when there is no metadata and the header lists several groups it could be.
    """

    name: str = ""
    desc: str = ""
    ranks: tuple[int, ...] | None = None
    size: int | None = None
    axis: str | None = None
    known: bool = False
    ambiguous: bool = False
    cut: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells two groups of one job apart."""
        return (self.name, self.ranks, None if self.ranks else (self.size, self.desc, self.cut))


@dataclass(slots=True, eq=False)
class Operation:
    """One rank's part in one collective (or in one send or receive).

    Times are absolute ns (trace base plus event time), uncorrected.
    """

    rank: int
    op: str | None
    start: int
    end: int
    entries: list[int]  # of Work
    group: Group
    kernel: str = ""
    dtype: str | None = None
    in_elems: int | None = None
    out_elems: int | None = None
    num_bytes: int | None = None
    seq: int | None = None
    comms_id: str | None = None
    tid: str = ""  # of the first event
    src: int | None = None
    dst: int | None = None
    remote_bytes: int | None = None  # -1: uneven, not known how
    first_work: bool = False
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def duration(self) -> int:
        """Length in ns."""
        return self.end - self.start


#: elements beyond this are a fault of the writer (or of somebody who wants large numbers)
MOST = 2**56
#: operations at whose end every member is done at about the same time
SYNCHRONISING = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))


def operations_of(trace: Trace, work: Work) -> list[Operation]:
    """The communication of a rank as operations, in order of start.

    Rows linked to one ``record_param_comms`` are one operation. What is not in the row itself is
    taken from the host rows that issued it.
    """
    entries = np.flatnonzero(work.role == COMM)
    if not len(entries):
        return []
    issue = _issuing_rows(trace, work, entries)
    annotations = _enclosing_annotations(trace, work, entries)
    groups = _Groups(trace)
    first = int(work.start[0])
    made: dict[Any, Operation] = {}
    for entry, issued, annotated in zip(entries.tolist(), issue.tolist(), annotations, strict=True):
        row = int(work.row[entry])
        key = ("issued", issued) if issued >= 0 else ("row", entry)
        start = int(work.start[entry]) + trace.table.base_ns
        end = int(work.end[entry]) + trace.table.base_ns
        if key in made:
            _extend(made[key], entry, start, end)
            continue
        detail = _detail(trace, row, issued)
        name = trace.table.names[trace.table["name"][row]]
        operation = _describe(trace, detail, name, annotated, groups)
        operation.start, operation.end, operation.entries = start, end, [entry]
        operation.first_work = int(work.start[entry]) == first
        operation.tid = trace.table.lanes[trace.table["lane"][row]][1]
        made[key] = operation
    return sorted(made.values(), key=lambda o: (o.start, o.end))


def _extend(operation: Operation, entry: int, start: int, end: int) -> None:
    operation.entries.append(entry)
    operation.start, operation.end = min(operation.start, start), max(operation.end, end)


def _issuing_rows(trace: Trace, work: Work, entries: Ints) -> Ints:
    """Row of the ``record_param_comms`` behind each communication event, -1 for none."""
    table = trace.table
    issuing = [i for i, n in enumerate(table.names) if n == "record_param_comms"]
    calls = np.flatnonzero(np.isin(table["name"], issuing) & trace.sound)
    rows = work.row[entries]
    if not len(calls) or work.timeline == "host":
        return np.full(len(rows), -1, dtype=np.int64)
    found = np.full(len(rows), -1, dtype=np.int64)
    if external_ids_usable(trace, rows):
        found = lookup(table["external_id"][calls], calls, table["external_id"][rows])
    launch = work.launch[entries]
    ask = (found < 0) & (launch >= 0) & (table["detail"][rows] < 0)
    lanes = table["lane"][launch].astype(np.int64)
    found[ask] = enclosing(trace, calls, lanes[ask], table["start_ns"][launch[ask]])
    return found


def _enclosing_annotations(trace: Trace, work: Work, entries: Ints) -> list[str]:
    """Name of the ``nccl:…`` annotation around each launch; a host span names itself."""
    table = trace.table
    rows = work.row[entries]
    if work.timeline == "host":
        return [table.names[i] for i in table["name"][rows]]
    wanted = trace.name_matches(_ANNOTATED) & np.isin(trace.kind, (ANNOTATION, OPERATOR))
    spans = np.flatnonzero(wanted & trace.sound)
    launch = work.launch[entries]
    lanes = np.where(launch >= 0, table["lane"][launch], -1).astype(np.int64)
    found = enclosing(trace, spans, lanes, table["start_ns"][launch])
    return [table.names[table["name"][f]] if f >= 0 else "" for f in found.tolist()]


def _detail(trace: Trace, row: int, issued: int) -> dict[str, Any]:
    """Collective arguments of the event, completed by those of the host row that issued it."""
    table = trace.table
    found: dict[str, Any] = {}
    for source in (issued, row):
        if source >= 0 and (at := int(table["detail"][source])) >= 0:
            found.update(table.details[at])
    return found


def _describe(
    trace: Trace, detail: dict[str, Any], name: str, annotated: str, groups: _Groups
) -> Operation:
    names = trace.names
    mark = _ANNOTATED.match(annotated)
    word = _str(detail.get("Collective name")) or (mark[1] if mark else None)
    op = names.op(word, name) or names.op(None, name)
    dtype = _str(detail.get("dtype"))
    o = Operation(
        rank=trace.rank,
        op=op,
        start=0,
        end=0,
        entries=[],
        group=groups.of(detail),
        kernel=name,
        dtype=dtype,
        in_elems=_count(detail.get("In msg nelems")),
        out_elems=_count(detail.get("Out msg nelems")),
        seq=_count(detail.get("Seq")),
        comms_id=_identity(detail.get("Comms Id")),
        detail=detail,
    )
    if op == "send_recv":
        o.src, o.dst = _ends(trace.rank, word, detail, mark, o.group)
    if "Input Dims" in detail:
        _from_dims(o, detail, names)
    complete(o, o.group, names)
    return o


def complete(o: Operation, group: Group, names: Names) -> None:
    """Set an operation's group and what follows from it: the sizes of its message."""
    o.group = group
    if o.op == "all_gather" and o.out_elems is None and o.in_elems is not None and group.size:
        o.out_elems = o.in_elems * group.size
    o.num_bytes = message_bytes(o, names)
    o.remote_bytes = _remote_bytes(o)


def _from_dims(o: Operation, detail: dict[str, Any], names: Names) -> None:
    """Message size of a gloo span: that of its tensors (recorded with shapes)."""
    dims, types = detail.get("Input Dims"), detail.get("Input type")
    tensors = _tensors(dims)
    if not tensors:
        return
    o.in_elems = sum(tensors)
    first = types[0] if isinstance(types, list) and types else types
    o.dtype = o.dtype or (first if isinstance(first, str) and first in names.dtype_bytes else None)


def _tensors(dims: Any, depth: int = 4) -> list[int]:
    """Element counts of the tensors in a list of dimensions, or of lists of them."""
    if not isinstance(dims, list) or not dims or not depth:
        return []
    if all(isinstance(d, int) and not isinstance(d, bool) for d in dims):
        count = 1
        for d in dims:
            count *= max(d, 0)
            if count > MOST:
                return []
        return [count]
    return [n for d in dims[:4096] for n in _tensors(d, depth - 1)]


def message_bytes(o: Operation, names: Names) -> int | None:
    """Message size S: what nccl-tests calls the size of an operation.

    All-reduce, reduce, broadcast, send: the message; all-gather: the whole output;
    reduce-scatter: the whole input; all-to-all: the larger of whole input and output.
    None when the elements or the size of their type are not known.
    """
    width = names.dtype_bytes.get(o.dtype or "")
    if width is None or o.op is None or o.op == "barrier":
        return None
    if o.op in ("all_gather", "gather"):
        elems = o.out_elems
    elif o.op == "all_to_all":
        elems = max((e for e in (o.in_elems, o.out_elems) if e is not None), default=None)
    elif o.op == "scatter":
        elems = o.in_elems or o.out_elems
    else:
        elems = o.in_elems if o.in_elems is not None else o.out_elems
    return None if elems is None or elems > MOST else elems * width


def _remote_bytes(o: Operation) -> int | None:
    """All-to-all with splits: the larger of what goes to and comes from others.

    None where the splits are even (not written); -1 where they are written but cannot be used.
    """
    if o.op != "all_to_all" or o.num_bytes is None:
        return None
    sides = []
    for elems, key in ((o.in_elems, "In split size"), (o.out_elems, "Out split size")):
        written = o.detail.get(key)
        split = int_list(written)
        if split is None and written not in (None, ""):
            return -1
        if not split or elems is None:
            continue
        ranks = o.group.ranks or ()
        if len(split) != len(ranks) or o.rank not in ranks or not sum(split):
            return -1
        away = sum(split) - split[ranks.index(o.rank)]
        sides.append(elems * away / sum(split))
    if not sides:
        return None
    width = o.num_bytes / max(e for e in (o.in_elems, o.out_elems, 1) if e is not None)
    return round(max(sides) * width)


def _ends(
    rank: int,
    word: str | None,
    detail: dict[str, Any],
    mark: re.Match[str] | None,
    group: Group,
) -> tuple[int | None, int | None]:
    """Global ranks of sender and receiver; one's own rank stands in for the end not written."""
    src, dst = _count(detail.get("Src Rank")), _count(detail.get("Dst Rank"))
    if src is None and dst is None and mark and mark[2]:
        left, right = int(mark[2]), int(mark[4])
        if group.ranks and max(left, right) < len(group.ranks):
            left, right = group.ranks[left], group.ranks[right]
        return (left, right) if mark[3] == "->" else (right, left)
    kind = (word or "").lower()
    if kind in ("send", "isend") and dst is not None:
        src = rank if src is None else src
    elif kind in ("recv", "irecv") and src is not None:
        dst = rank if dst is None else dst
    return src, dst


class _Groups:
    """The groups of one rank, from operation arguments, ``pg_config`` and our own metadata."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        # torch 2.5 to 2.9 can give several groups one name: then this rank's own is meant
        listed = sorted(
            trace.pg_config, key=lambda g: trace.rank in (int_list(g.get("ranks")) or ())
        )
        self._config = {str(g.get("pg_name")): g for g in listed}
        own = trace.own.get("groups")
        self._own = {
            str(g.get("name")): g
            for g in (own if isinstance(own, list) else [])
            if isinstance(g, dict)
        }
        self._made: dict[tuple[str, ...], Group] = {}

    def of(self, detail: dict[str, Any]) -> Group:
        fields = ("Process Group Name", "Process Group Description", "Process Group Ranks")
        name, desc, ranks = ("" if detail.get(f) is None else str(detail[f]) for f in fields)
        size = _count(detail.get("Group size")) or None
        key = (name, desc, ranks, str(size))
        if key not in self._made:
            self._made[key] = self._make(name, desc, ranks, size)
        return self._made[key]

    def _make(self, name: str, desc: str, ranks_text: str, size: int | None) -> Group:
        config = self._config.get(name, {}) if name else {}
        own = self._own.get(desc) or self._own.get(name) or {}
        desc = desc or str(config.get("pg_desc", "") or "")
        ranks = int_list(ranks_text)
        if not ranks or (size is not None and len(ranks) != size):
            ranks = self._listed(config, ranks_text, size)
        if size is None:
            size = len(ranks) if ranks else _count(config.get("pg_size"))
        axis = own.get("axis") if isinstance(own.get("axis"), str) else None
        axis = axis or self._trace.names.axis(desc)
        if not (name or ranks_text or size is not None):
            return self._only()
        if ranks:
            return Group(name, desc, tuple(ranks), size, axis, known=True)
        return Group(name, desc, None, size, axis, known=True, cut=ranks_text)

    def _listed(
        self, config: dict[str, Any], ranks_text: str, size: int | None
    ) -> list[int] | None:
        """Members as the header lists them, unless they contradict what the operation says."""
        listed = int_list(config.get("ranks"))
        if not listed or self._trace.rank not in listed or size not in (None, len(listed)):
            return None
        begun = [int(n) for n in re.findall(r"\d{1,9}(?=\s*,)", ranks_text.partition("...")[0])]
        return listed if listed[: len(begun)] == begun else None

    def _only(self) -> Group:
        """What is known of the group of an operation without metadata."""
        listed = listed_groups(self._trace)
        members = {g.ranks for g in listed}
        if len(members) == 1 and listed[0].ranks:
            return Group(ranks=listed[0].ranks, size=len(listed[0].ranks))
        return Group(ambiguous=len(members) > 1)


def listed_groups(trace: Trace) -> list[Group]:
    """Groups of more than one rank that a trace's header lists for its rank, in its order."""
    found = []
    for config in trace.pg_config:
        ranks = int_list(config.get("ranks"))
        if ranks and len(ranks) > 1 and trace.rank in ranks:
            name, desc = str(config.get("pg_name", "")), str(config.get("pg_desc", ""))
            axis = trace.names.axis(desc)
            found.append(Group(name, desc, tuple(ranks), len(ranks), axis, known=True))
    return found


def int_list(value: Any) -> list[int] | None:
    """A list of non-negative integers from a list or its text; None when it is none or cut short.

    Examples
    --------
    >>> int_list("[0, 1, 5]"), int_list("[0, 1, ...]"), int_list([2, 3])
    ([0, 1, 5], None, [2, 3])
    """
    if isinstance(value, str):
        body = value.strip()
        if not re.fullmatch(r"\[\s*(\d{1,9}\s*(,\s*\d{1,9}\s*)*)?\]", body):
            return None
        return [int(n) for n in re.findall(r"\d+", body)]
    if isinstance(value, list) and all(type(v) is int and v >= 0 for v in value):
        return value
    return None


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else None


def _identity(value: Any) -> str | None:
    """``Comms Id`` as text: it may exceed 64 bits, and 0 or empty means none."""
    return str(value) if value not in (None, 0, "", "0") and type(value) in (int, str) else None
