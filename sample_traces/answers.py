"""Work out the known answers of the sample traces the slow, obvious way, from the files alone.

Usage::

    python sample_traces/answers.py [DIR]

reads ``DIR/ddp_4`` and ``DIR/tp_2x2`` (DIR is the folder of this script unless given) and writes
``DIR/answers.json``. It uses the standard library only and nothing of tracekit, so that tracekit
can be checked against it.

The slow way: the time line of a rank is cut wherever any row starts or ends. Within one such
piece nothing changes, so each piece is looked at once, all rows are asked whether they cover it,
and its length is added to what it is. No interval is ever merged. All times are integer
nanoseconds (time stamps are read as decimals, never as floats) until they are written.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

#: group description of each operation, as make.py wrote the programs
DESCS = {
    "ddp_4": {"all_reduce": "default_pg"},
    "tp_2x2": {"all_reduce": "x", "all_gather": "y", "reduce_scatter": "y"},
}

#: issuing call -> (operation, name of its gloo span, argument with the message, asyncOp argument)
CALLS = {
    "c10d::allreduce_": ("all_reduce", "gloo:all_reduce", 0, 4),
    "c10d::_allgather_base_": ("all_gather", "gloo:all_gather", 1, 3),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", "gloo:all_reduce", 1, 4),
}

BYTES_OF = {"float": 4}
IDENTITY = ("compute_us", "exposed_comm_us", "exposed_memory_us", "idle_us")


@dataclass(frozen=True)
class Row:
    """One timed row of a file; times are in nanoseconds on the file's own scale."""

    name: str
    cat: str
    start: int
    end: int
    thread: str
    args: dict[str, Any]

    def covers(self, start: int, end: int) -> bool:
        """Tell whether the row spans the whole piece ``[start, end)``."""
        return self.start <= start and end <= self.end


@dataclass(frozen=True)
class File:
    """What the oracle keeps of one rank's file."""

    name: str
    header: dict[str, Any]
    num_events: int
    ops: list[Row]
    spans: list[Row]
    steps: list[Row]

    @property
    def rank(self) -> int:
        """The rank the header names."""
        return int(self.header["distributedInfo"]["rank"])


# -------------------------------------------------------------------------------- reading


def nanoseconds(microseconds: Decimal | int) -> int:
    """Return a time stamp in ns; three decimals of a µs are exact, more are refused."""
    scaled = Decimal(microseconds) * 1000
    if scaled != int(scaled):
        raise ValueError(f"{microseconds} us is not a whole number of nanoseconds")
    return int(scaled)


def read(path: Path) -> File:
    """Return the rows of one trace file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        header = json.load(stream, parse_float=Decimal)
    events = header.pop("traceEvents")
    rows = []
    for event in events:
        if event["ph"] == "X" and event["cat"] in ("cpu_op", "user_annotation"):
            start = nanoseconds(event["ts"])
            end = start + nanoseconds(event["dur"])
            name, cat, thread = event["name"], event["cat"], str(event["tid"])
            rows.append(Row(name, cat, start, end, thread, event.get("args", {})))
    rows.sort(key=lambda row: row.start)
    ops = [row for row in rows if row.cat == "cpu_op"]
    spans = [row for row in rows if row.cat != "cpu_op" and row.name.startswith("gloo:")]
    steps = [row for row in rows if row.name.startswith("ProfilerStep#")]
    return File(path.name, header, len(events), ops, spans, steps)


# ---------------------------------------------------------------------------- time figures


def innermost(ops: list[Row], thread: str, start: int, end: int) -> Row | None:
    """Return the operator row a thread is in during a piece: the one that started last."""
    found = [row for row in ops if row.thread == thread and row.covers(start, end)]
    return max(found, key=lambda row: (row.start, -row.end)) if found else None


def lengths(ops: list[Row], spans: list[Row]) -> dict[str, int]:
    """Return the lengths in ns of what a rank's pieces are."""
    borders = sorted({time for row in ops + spans for time in (row.start, row.end)})
    threads = sorted({row.thread for row in ops})
    gloo_threads = {row.thread for row in spans}
    total = dict.fromkeys(("window", "compute", "comm", "overlap", "idle"), 0)
    total.update(dict.fromkeys(("call_self", "gloo_thread_ops"), 0))
    for start, end in pairwise(borders):
        length = end - start
        inner = {thread: innermost(ops, thread, start, end) for thread in threads}
        busy = {thread for thread, row in inner.items() if row and row.name not in CALLS}
        comm = any(span.covers(start, end) for span in spans)
        total["window"] += length
        total["compute"] += length * bool(busy)
        total["comm"] += length * comm
        total["overlap"] += length * (bool(busy) and comm)
        total["idle"] += length * (not busy and not comm)
        total["call_self"] += length * any(row and row.name in CALLS for row in inner.values())
        total["gloo_thread_ops"] += length * bool(busy and busy <= gloo_threads)
    return total


def figures(ops: list[Row], spans: list[Row]) -> dict[str, Any]:
    """Return the time figures over the given rows, in µs, under their public names."""
    unknown = {row.name for row in ops if row.name.startswith("c10d::")} - set(CALLS)
    if unknown:
        raise ValueError(f"collective calls that the table CALLS does not know: {unknown}")
    ns = lengths(ops, spans)
    exposed = ns["comm"] - ns["overlap"]
    if ns["window"] != ns["compute"] + exposed + ns["idle"]:
        raise AssertionError(f"the identity does not hold: {ns}")
    return {
        "window_us": ns["window"] / 1000,
        "compute_us": ns["compute"] / 1000,
        "comm_us": ns["comm"] / 1000,
        "overlap_us": ns["overlap"] / 1000,
        "exposed_comm_us": exposed / 1000,
        "memory_us": 0.0,
        "exposed_memory_us": 0.0,
        "idle_us": ns["idle"] / 1000,
        "overlap_frac": ns["overlap"] / ns["comm"] if ns["comm"] else None,
        "call_self_us": ns["call_self"] / 1000,
        "gloo_thread_ops_us": ns["gloo_thread_ops"] / 1000,
    }


def count(rows: list[Row]) -> dict[str, int]:
    """Return how many rows there are of each name."""
    names = [row.name for row in rows]
    return {name: names.count(name) for name in sorted(set(names))}


def rank_answer(file: File) -> dict[str, Any]:
    """Return a rank's figures over the whole file."""
    calls = [row for row in file.ops if row.name in CALLS]
    answer: dict[str, Any] = {"rank": file.rank, "file": file.name, "timeline": "host"}
    answer["world_size"] = file.header["distributedInfo"]["world_size"]
    answer["host"] = file.header["host_name"]
    answer.update(figures(file.ops, file.spans))
    answer["num_events"] = file.num_events
    answer["num_cpu_ops"] = len(file.ops)
    answer["gloo_spans"] = count(file.spans)
    answer["collective_calls"] = count(calls)
    return answer


def step_number(row: Row, steps: list[Row]) -> int | None:
    """Return the number of the step whose span holds the row's start, None where none does."""
    for step in steps:
        if step.start <= row.start < step.end:
            return int(step.name.removeprefix("ProfilerStep#"))
    return None


def step_answers(file: File) -> list[dict[str, Any]]:
    """Return a rank's figures per step, and of the rows of no step where there are any."""
    answers = []
    previous: dict[int | None, int] = {}
    numbers = [step_number(step, file.steps) for step in file.steps]
    for number in [*numbers, None]:
        ops = [row for row in file.ops if step_number(row, file.steps) == number]
        spans = [row for row in file.spans if step_number(row, file.steps) == number]
        if not ops and not spans:
            continue
        answer = {"rank": file.rank, "step": number, **figures(ops, spans)}
        if number is not None:
            start, end = min(r.start for r in ops + spans), max(r.end for r in ops + spans)
            step = file.steps[numbers.index(number)]
            before = previous.get(number - 1)
            lead = None if before is None else start - before
            previous[number] = end
            answer["host_us"] = (step.end - step.start) / 1000
            answer["lead_us"] = None if lead is None else lead / 1000
            answer["period_us"] = None if lead is None else (end - start + lead) / 1000
        answers.append(answer)
    return answers


# ---------------------------------------------------------------------------- collectives


def elements(shape: list[Any]) -> int:
    """Return the number of elements of a shape."""
    product = 1
    for extent in shape:
        product *= extent
    return product


def call_shape(call: Row) -> list[int]:
    """Return the shape that a call hands to gloo, which its span repeats."""
    shape: list[Any] = call.args["Input Dims"][CALLS[call.name][2]]
    return shape[0] if shape and isinstance(shape[0], list) else shape  # a list of tensors


def pairs(file: File) -> list[tuple[Row, Row]]:
    """Return the (call, span) pairs of one rank, in the order of the calls.

    Of one kind and shape the k-th call is the k-th span: in these programs, no two calls of one
    kind and shape are ever in flight together. What must hold then is checked.
    """
    waiting = list(file.spans)
    found = []
    for call in (row for row in file.ops if row.name in CALLS):
        kind = (CALLS[call.name][1], [call_shape(call)])
        span = next(s for s in waiting if (s.name, s.args["Input Dims"]) == kind)
        if span.start < call.start:
            raise AssertionError(f"{file.name}: a span starts before its call at {call.start}")
        waiting.remove(span)
        found.append((call, span))
    if waiting:
        raise AssertionError(f"{file.name}: {len(waiting)} spans have no call")
    return found


def collective(name: str, members: dict[int, tuple[Row, Row]], zero: int) -> dict[str, Any]:
    """Return one collective: `members` holds each rank's (call, span), `zero` the time 0."""
    call = next(iter(members.values()))[0]
    op = CALLS[call.name][0]
    num, size = elements(call_shape(call)), len(members)
    dtype = next(iter(members.values()))[1].args["Input type"][0]
    whole = num * size if op == "all_gather" else num
    starts = {rank: span.start for rank, (_, span) in members.items()}
    ends = {rank: span.end for rank, (_, span) in members.items()}
    last = max(starts, key=lambda rank: starts[rank])
    wait = {r: min(ends[r] - starts[r], starts[last] - starts[r]) for r in members}
    transfer = ends[last] - starts[last]
    factor = 2 * (size - 1) / size if op == "all_reduce" else (size - 1) / size
    algbw = whole * BYTES_OF[dtype] / transfer  # bytes per ns is GB/s
    return {
        "op": op,
        "desc": DESCS[name][op],
        "size": size,
        "ranks": sorted(members),
        "dtype": dtype,
        "bytes": whole * BYTES_OF[dtype],
        "in_elems": num,
        "out_elems": num // size if op == "reduce_scatter" else whole,
        "async": call.args["Concrete Inputs"][CALLS[call.name][3]] == "True",
        "start_us": (min(starts.values()) - zero) / 1000,
        "starts_us": {str(r): (starts[r] - zero) / 1000 for r in sorted(members)},
        "ends_us": {str(r): (ends[r] - zero) / 1000 for r in sorted(members)},
        "wait_us": {str(r): wait[r] / 1000 for r in sorted(members)},
        "transfer_us": transfer / 1000,
        "start_skew_us": (max(starts.values()) - min(starts.values())) / 1000,
        "end_spread_us": (max(ends.values()) - min(ends.values())) / 1000,
        "last_rank": last,
        "last_end_rank": max(ends, key=lambda rank: ends[rank]),
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * factor,
    }


def group_of(file: File, desc: str) -> tuple[str, list[int]]:
    """Return the name and the ranks of a rank's group with the given description."""
    (entry,) = (g for g in file.header["distributedInfo"]["pg_config"] if g["pg_desc"] == desc)
    return str(entry["pg_name"]), list(entry["ranks"])


def collectives(name: str, files: list[File]) -> list[dict[str, Any]]:
    """Return the collectives of a set: the k-th of a group is the k-th on each of its ranks."""
    zero = min(row.start for file in files for row in file.ops + file.spans)
    of_group: dict[tuple[str, tuple[int, ...]], dict[int, list[tuple[Row, Row]]]] = {}
    for file in files:
        for call, span in pairs(file):
            group, ranks = group_of(file, DESCS[name][CALLS[call.name][0]])
            of_rank = of_group.setdefault((group, tuple(ranks)), {})
            of_rank.setdefault(file.rank, []).append((call, span))
    steps = {file.rank: file.steps for file in files}
    found = []
    for (group, peers), of_rank in of_group.items():
        for members in zip(*(of_rank[rank] for rank in peers), strict=True):
            by_rank = dict(zip(peers, members, strict=True))
            kinds = {(call.name, str(call_shape(call))) for call, _ in members}
            numbers = {step_number(span, steps[rank]) for rank, (_, span) in by_rank.items()}
            if len(kinds) != 1 or len(numbers) != 1:
                raise AssertionError(f"group {group}: members disagree: {kinds}, {numbers}")
            answer = collective(name, by_rank, zero)
            found.append({"step": numbers.pop(), "group": group, **answer})
    return sorted(found, key=lambda one: one["start_us"])


def stragglers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, per step, group and operation, which rank came and ended last, and what it cost."""
    keys = sorted({(one["step"], one["group"], one["op"]) for one in found})
    answers = []
    for step, group, op in keys:
        mine = [c for c in found if (c["step"], c["group"], c["op"]) == (step, group, op)]
        answer: dict[str, Any] = {"step": step, "group": group, "desc": mine[0]["desc"], "op": op}
        answer["last_ranks"] = [one["last_rank"] for one in mine]
        answer["last_end_ranks"] = [one["last_end_rank"] for one in mine]
        answer["bytes"] = [one["bytes"] for one in mine]
        answer["wait_us"] = {
            rank: float(sum(Decimal(str(one["wait_us"][rank])) for one in mine))
            for rank in mine[0]["wait_us"]
        }
        answers.append(answer)
    return answers


def end_differences(found: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """Return how much later than the lowest rank a rank ends collectives of both, as median."""
    both = [one["ends_us"] for one in found if 0 in one["ranks"] and rank in one["ranks"]]
    exact = [Decimal(str(ends[str(rank)])) - Decimal(str(ends["0"])) for ends in both]
    return {
        "rank": rank,
        "true_offset_us": 0.0,
        "num_collectives": len(exact),
        "median_end_difference_us": float(median(exact)) if exact else None,
        "min_us": float(min(exact)) if exact else None,
        "max_us": float(max(exact)) if exact else None,
    }


# -------------------------------------------------------------------------------- writing


def set_answer(name: str, folder: Path) -> dict[str, Any]:
    """Return all answers of one set."""
    files = [read(path) for path in sorted(folder.glob("rank*.pt.trace.json.gz"))]
    if not files:
        raise FileNotFoundError(f"{folder} holds no rank*.pt.trace.json.gz; run make.py first")
    found = collectives(name, files)
    ranks = [rank_answer(file) for file in files]
    names = [key for key in ranks[0] if key.endswith("_us")]
    totals = {key: float(sum(Decimal(str(rank[key])) for rank in ranks)) for key in names}
    steps = [answer for file in files for answer in step_answers(file)]
    return {
        "ranks": ranks,
        "steps": [answer for answer in steps if answer["step"] is not None],
        "no_step": [answer for answer in steps if answer["step"] is None],
        "missing_steps": [],
        "stragglers": stragglers(found),
        "clock": [end_differences(found, file.rank) for file in files],
        "collectives": found,
        "totals": totals,
    }


def as_text(sets: dict[str, Any]) -> str:
    """Return the answers as JSON with one line an item, so that a change reads well in a diff."""
    blocks = []
    for name, answer in sets.items():
        parts = []
        for key, value in answer.items():
            lines = ",\n".join(f"   {json.dumps(item)}" for item in value)
            whole = f"[\n{lines}\n  ]" if isinstance(value, list) and value else json.dumps(value)
            parts.append(f"  {json.dumps(key)}: {whole}")
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n }")
    body = ",\n".join(blocks)
    return f'{{\n"schema": "tracekit.sample-answers/1",\n"sets": {{\n{body}\n}}\n}}\n'


def main() -> int:
    """Write ``answers.json``; return the exit status."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    try:
        sets = {name: set_answer(name, folder / name) for name in DESCS}
        (folder / "answers.json").write_text(as_text(sets), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"answers.py: {error}", file=sys.stderr)
        return 2
    print(f"{folder / 'answers.json'} written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
