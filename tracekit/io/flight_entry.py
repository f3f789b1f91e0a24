"""Turns one flight-recorder entry into the fields and Kineto keys the rest of tracekit knows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.core.errors import one_line

_INT64_MAX = 2**63 - 1
LIMIT_RANKS, LIMIT_DIMS, LIMIT_NAME = 1 << 20, 64, 1000

# "nccl:send 0->1", "nccl:recv 1<-0" (own rank first), "gloo:all_reduce"
_NAME = re.compile(r"(?:([^: ]*):)?(.*?)(?: ([0-9]{1,9})(->|<-)([0-9]{1,9}))?\Z", re.DOTALL)
_RANK_LIST = re.compile(r"\[\s*(?:[0-9]+\s*(?:,\s*[0-9]+\s*)*)?\]\s*\Z")

#: torch's Python names of types -> the ATen names that Kineto writes
_ATEN = {
    **dict.fromkeys(("float", "float32"), "Float"),
    **dict.fromkeys(("double", "float64"), "Double"),
    **dict.fromkeys(("half", "float16"), "Half"),
    **dict.fromkeys(("long", "int64"), "Long"),
    **dict.fromkeys(("int", "int32"), "Int"),
    **dict.fromkeys(("short", "int16"), "Short"),
    **dict.fromkeys(("char", "int8"), "Char"),
    **dict.fromkeys(("byte", "uint8"), "Byte"),
    "bfloat16": "BFloat16",
    "bool": "Bool",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
_POINT_TO_POINT = ("send", "recv", "recvAnySource")


@dataclass(slots=True)
class Entry:
    """One entry, its fields checked; None where the dump does not say.

    Attributes
    ----------
    name, library, op : str
        ``nccl:send 0->1`` and its parts ``nccl`` and ``send``.
    src, dst : int or None
        Ranks of a send or receive, counted within the group.
    group_name, group_desc, group_key
        The process group; ``group_key`` tells groups of one name apart.
    created_ns, started_ns, completed_ns : int or None
        Unix times of enqueueing and of the watchdog's discoveries.
    duration_ns : int or None
        Measured by device events.
    in_launch : bool
        State and times are those of the coalesced launch it is a member of.
    """

    name: str
    library: str
    op: str
    src: int | None
    dst: int | None
    group_name: str
    group_desc: str
    group_key: tuple[Any, ...]
    is_p2p: bool
    collective_seq: int | None
    p2p_seq: int | None
    record_id: int | None
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    duration_ns: int | None
    state: str
    retired: bool
    raw: dict[str, Any]
    in_launch: bool = False

    @property
    def start_ns(self) -> int | None:
        """The discovered start, else the time of enqueueing, else the discovered end."""
        for time_ns in (self.started_ns, self.created_ns, self.completed_ns):
            if time_ns is not None:
                return time_ns
        return None

    @property
    def finished(self) -> bool:
        """Completed; gloo records no completion, there a retired entry has finished."""
        completed = self.state == "completed" or self.completed_ns is not None
        return completed or (self.library == "gloo" and self.retired)

    @property
    def seq(self) -> int | None:
        """The number that counts launches of its kind within the group."""
        return self.p2p_seq if self.is_p2p else self.collective_seq

    @property
    def lane(self) -> tuple[str, str]:
        """The lane it is drawn in."""
        return self.group_name, "p2p" if self.is_p2p else "collectives"


class Groups:
    """The process groups a dump's ``pg_config`` describes.

    Ranks are parsed when asked for, once per written list: a pickle may name one list often.
    """

    def __init__(self, config: Any) -> None:
        self._written: dict[tuple[str, str], Any] = {}
        self._of_name: dict[str, list[Any]] = {}
        self._parsed: dict[int, tuple[list[int] | None, str]] = {}
        self.world_size: int | None = None
        for key, value in config.items() if isinstance(config, dict) else ():
            about = value if isinstance(value, dict) else {"ranks": value}
            name, desc = about.get("name", key), about.get("desc")
            name = name if isinstance(name, str) else str(key)
            desc = desc if isinstance(desc, str) else ""
            self._written[name, desc] = about.get("ranks")
            self._of_name.setdefault(name, []).append(about.get("ranks"))
            if desc == "default_pg":
                self.world_size = len(self.ranks(name, desc)[0] or ()) or None

    def ranks(self, name: str, desc: str) -> tuple[list[int] | None, str]:
        """Global ranks of a group, and the list as Kineto writes it ("[0, 1]", "" if unknown)."""
        for key in ((name, desc), (name, "")):
            if key in self._written:
                return self._parse(self._written[key])
        same_name = self._of_name.get(name, [])
        return self._parse(same_name[0]) if len(same_name) == 1 and not desc else (None, "")

    def _parse(self, written: Any) -> tuple[list[int] | None, str]:
        if id(written) not in self._parsed:
            self._parsed[id(written)] = _parse_ranks(written)
        return self._parsed[id(written)]


def _parse_ranks(written: Any) -> tuple[list[int] | None, str]:
    if isinstance(written, str):
        if not _RANK_LIST.match(written):
            return None, written  # shortened with "...": still tells groups apart
        written = re.findall(r"[0-9]+", written)
    if not isinstance(written, list | tuple) or not 0 < len(written) <= LIMIT_RANKS:
        return None, ""
    ranks = [rank for rank in map(integer, written) if rank is not None]
    return (ranks, str(ranks)) if len(ranks) == len(written) else (None, "")


def entry_of(raw: dict[str, Any]) -> Entry:
    """Check the fields of one entry of any version of the format."""
    name = raw.get("profiling_name")
    name = name[:LIMIT_NAME] if isinstance(name, str) and name else "unknown"
    library, op, src, dst = _parse_name(name)
    group_name, group_desc = _group_of(raw)
    state = raw.get("state")
    return Entry(
        name=name,
        library=library,
        op=op,
        src=src,
        dst=dst,
        group_name=group_name,
        group_desc=group_desc,
        group_key=(integer(raw.get("pg_id")), group_name, group_desc),
        is_p2p=raw.get("is_p2p") is True or op in _POINT_TO_POINT,
        collective_seq=integer(raw.get("collective_seq_id", raw.get("seq_id"))),
        p2p_seq=integer(raw.get("p2p_seq_id", raw.get("seq_id"))),
        record_id=integer(raw.get("record_id")),
        created_ns=_time(raw.get("time_created_ns")),
        started_ns=_time(raw.get("time_discovered_started_ns")),
        completed_ns=_time(raw.get("time_discovered_completed_ns")),
        duration_ns=_measured(raw.get("duration_ms")),
        state=state if isinstance(state, str) else "unknown",
        retired=raw.get("retired") is True,
        raw=raw,
    )


class Details:
    """Makes the ``details`` rows of one dump.

    What is read from a list is kept by the list's identity: a pickle can name one long list in
    every entry, which would cost its length each time.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._dtypes: dict[int, str | None] = {}
        self._elements: dict[int, int | None] = {}

    def of(self, entry: Entry) -> dict[str, Any]:
        """The entry's arguments under the keys Kineto uses, then its own under torch's names."""
        raw = entry.raw
        ranks, ranks_text = self._groups.ranks(entry.group_name, entry.group_desc)
        dtypes = [self._dtype(raw.get(key)) for key in ("input_dtypes", "output_dtypes")]
        fields = {
            "Collective name": entry.op,
            "Process Group Name": entry.group_name or None,
            "Process Group Description": entry.group_desc or None,
            "Process Group Ranks": ranks_text or None,
            "Group size": len(ranks) if ranks else None,
            "Seq": entry.seq,
            "dtype": dtypes[0] or dtypes[1],
            "In msg nelems": self._num_elements(raw.get("input_sizes")),
            "Out msg nelems": self._num_elements(raw.get("output_sizes")),
            "Src Rank": _global_rank(entry.src, ranks),
            "Dst Rank": _global_rank(entry.dst, ranks),
            "record_id": entry.record_id,
            "op_id": integer(raw.get("op_id")),
            "state": entry.state,
            "retired": entry.retired,
            "duration_ms": None if entry.duration_ns is None else entry.duration_ns / 1e6,
            "timeout_ms": integer(raw.get("timeout_ms")),
        }
        return {key: value for key, value in fields.items() if value is not None}

    def _dtype(self, written: Any) -> str | None:
        """The one type of all tensors under its ATen name; None where there is none or several."""
        if not isinstance(written, list | tuple) or not written:
            return None
        if id(written) not in self._dtypes:
            first = written[0] if isinstance(written[0], str) else ""
            same = all(item == first for item in written)
            self._dtypes[id(written)] = _aten_name(first) if same and first else None
        return self._dtypes[id(written)]

    def _num_elements(self, sizes: Any) -> int | None:
        """Elements of all tensors: 0 for no tensor, None where the sizes are no sizes."""
        if not isinstance(sizes, list | tuple):
            return None
        if id(sizes) not in self._elements:
            known = [self._product(dims) for dims in sizes]
            numbers = [number for number in known if number is not None]
            total = sum(numbers)
            whole = len(numbers) == len(known) and total <= _INT64_MAX
            self._elements[id(sizes)] = total if whole else None
        return self._elements[id(sizes)]

    def _product(self, dims: Any) -> int | None:
        """Elements of one tensor."""
        if not isinstance(dims, list | tuple) or len(dims) > LIMIT_DIMS:
            return None
        if id(dims) not in self._elements:
            known = [dim for dim in map(integer, dims) if dim is not None]
            self._elements[id(dims)] = math.prod(known) if len(known) == len(dims) else None
        return self._elements[id(dims)]


def shown(entry: Entry) -> str:
    """The entry in words, for a note: operation, sequence number, group."""
    group = f"group {one_line(entry.group_name, 60)}" if entry.group_name else "an unnamed group"
    desc = f" ({one_line(entry.group_desc, 60)})" if entry.group_desc else ""
    peers = "" if entry.src is None else f" {entry.src}->{entry.dst}"
    return (
        f"{one_line(entry.op, 60)}{peers} seq {'?' if entry.seq is None else entry.seq} "
        f"of {group}{desc}"
    )


def integer(value: Any) -> int | None:
    """A count or id: a whole number from 0 to 2^63 - 1, also written as text; else None."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _INT64_MAX else None


def _time(value: Any) -> int | None:
    """A unix time in ns; JSON dumps write 0 for a time that is not known."""
    return integer(value) or None


def _measured(duration_ms: Any) -> int | None:
    """A measured duration in ns."""
    if not isinstance(duration_ms, int | float) or not 0 <= duration_ms < 1e12:
        return None
    return round(duration_ms * 1e6)


def _parse_name(name: str) -> tuple[str, str, int | None, int | None]:
    """Library, operation, source and destination in the group."""
    match = _NAME.match(name)
    if match is None:
        return "", name, None, None
    library, op, own, arrow, peer = match.groups()
    if arrow is None:
        return library or "", op, None, None
    src, dst = (own, peer) if arrow == "->" else (peer, own)
    return library or "", op, int(src), int(dst)


def _group_of(raw: dict[str, Any]) -> tuple[str, str]:
    """Name and description; before version 2 only a name or a number."""
    group = raw.get("process_group")
    if isinstance(group, str):
        return group, ""
    if isinstance(group, list | tuple) and group:
        texts = [part if isinstance(part, str) else "" for part in group[:2]]
        return texts[0], texts[1] if len(texts) > 1 else ""
    number = integer(raw.get("pg_id"))
    return "" if number is None else str(number), ""


def _aten_name(name: str) -> str:
    """Torch's or ATen's name of a type -> ATen's, which Kineto writes."""
    name = name.removeprefix("torch.")
    if name.lower() in _ATEN:
        return _ATEN[name.lower()]
    return name[:1].upper() + name[1:] if name.startswith(("float", "int")) else name


def _global_rank(rank: int | None, ranks: Sequence[int] | None) -> int | None:
    """The global rank where the group is known; in an unknown group the rank as written."""
    if rank is None or ranks is None:
        return rank
    return ranks[rank] if rank < len(ranks) else None
