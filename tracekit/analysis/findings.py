"""What stands out in an analysis, with its evidence and the most that mending it can bring."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from tracekit.analysis.rows import Row

#: a part of the window below this fraction is not worth a remark
WORTH_FRAC = 0.05
#: the late rank came last in at least the first share of its collectives and made up at least the
#: second of all lateness, or the third whatever the first (the last of two makes up half by chance)
LAST_FRAC, LATE_FRAC, NEARLY_ALL_FRAC = 0.5, 0.5, 0.9
#: idle time is normal up to this fraction of a step
IDLE_FRAC = 0.15
#: an operation of which this much runs under compute is overlapped as intended
HIDDEN_FRAC = 0.5
#: a step that takes this many times as long as the median one stands out
SLOW_STEP = 1.5
_DEVICE_IDLE = (
    "the host does not launch fast enough or synchronises; try CUDA graphs, torch.compile, fewer "
    "syncs or larger batches, and look for allocations (cudaMalloc, cudaFree) in the gaps"
)
_HOST_IDLE = (
    "the process does what no operator shows, such as Python code, data loading or sleeping"
)
_UNNAMED = "collectives of unknown operation"
_AHEAD = frozenset(("all_gather", "broadcast"))
_BEHIND = frozenset(("reduce_scatter", "all_reduce"))


def findings(
    totals: Row,
    steps: list[Row],
    stragglers: list[Row],
    operations: list[Row],
    on_host: bool = False,
) -> list[Row]:
    """Findings of an analysis, the most costly first.

    Returns
    -------
    list of dict
        ``code``, ``severity``, ``text``, ``evidence`` (figures by name), ``gain_us`` (the most
        that mending it can bring, summed over ranks) and ``gain_frac`` (of the summed window).
    """
    window = totals.get("window_us")
    if not window:
        return []
    found = [
        *_late_rank(totals, stragglers),
        *_exposed_operations(totals, operations),
        *_idle(totals, on_host),
        *_between_steps(steps),
        *_slow_step(steps),
        *_exposed_memory(totals),
    ]
    for row in found:
        row["gain_frac"] = min(1.0, row["gain_us"] / window)
    worth = [row for row in found if row["gain_frac"] >= WORTH_FRAC]
    return sorted(worth, key=lambda row: -row["gain_us"])


def _finding(code: str, text: str, gain_us: float, **evidence: Any) -> Row:
    return {
        "code": code,
        "severity": "warning",
        "text": text,
        "evidence": evidence,
        "gain_us": gain_us,
        "gain_frac": None,
    }


def _late_rank(totals: Row, stragglers: list[Row]) -> Iterator[Row]:
    """Ranks wait, and one of them is the reason."""
    waiting = totals["exposed_wait_us"]
    late = sum(s["late_us"] for s in stragglers)
    if not waiting or not late:
        return
    first = stragglers[0]
    share = first["late_us"] / late
    often = first["num_last"] / first["num_matched"]
    percent = 100 * waiting / totals["window_us"]
    if share >= (LATE_FRAC if often >= LAST_FRAC else NEARLY_ALL_FRAC):
        text = (
            f"rank {first['rank']} arrives last in {first['num_last']} of "
            f"{first['num_matched']} collectives; the others wait for it. Look at what that rank "
            f"does before them: this is no network problem ({percent:.1f} % of the time is waiting)"
        )
        yield _finding(
            "late-rank",
            text,
            waiting,
            rank=first["rank"],
            num_last=first["num_last"],
            num_matched=first["num_matched"],
            late_us=first["late_us"],
        )
    else:
        text = (
            f"{percent:.1f} % of the time is waiting for a late rank, and no single rank is the "
            "late one: balance the work between ranks, or look for jitter"
        )
        yield _finding("waiting", text, waiting, exposed_wait_us=waiting)


def _exposed_operations(totals: Row, operations: list[Row]) -> Iterator[Row]:
    """Communication that moves bytes while nothing computes, by operation."""
    exposed, moving = totals["exposed_comm_us"], totals["exposed_comm_us"]
    if not exposed:
        return
    # waiting is a finding of its own: here counts what is left, in proportion
    if totals["exposed_wait_us"] is not None:
        moving = exposed - totals["exposed_wait_us"]
    by_op: dict[str, list[float]] = {}
    for row in operations:
        if row["exposed_share_us"] is not None:
            sums = by_op.setdefault(row["op"] or _UNNAMED, [0.0, 0.0, 0.0])
            sums[0] += row["exposed_share_us"]
            sums[1] += row["overlap_us"]
            sums[2] += row["comm_us"]
    for op, (share, overlap, comm) in by_op.items():
        if comm and overlap / comm >= HIDDEN_FRAC:
            continue
        yield _finding(
            f"exposed-{op.replace('_', '-').replace(' ', '-')}",
            _advice(op, share, overlap, comm),
            share * moving / exposed,
            op=op,
            exposed_share_us=share,
            overlap_us=overlap,
            comm_us=comm,
        )


def _advice(op: str, share: float, overlap: float, comm: float) -> str:
    hidden = 100 * overlap / comm if comm else 0.0
    text = f"{op}: {share / 1000:.4g} ms exposed, {hidden:.1f} % of it runs under compute"
    if op in _AHEAD:
        return f"{text}; prefetch the next layer's weights so that it runs ahead of need"
    if op in _BEHIND:
        return f"{text}; start it as soon as its input is ready (buckets) and wait for it later"
    return f"{text}; overlap it with independent compute, or send less"


def _idle(totals: Row, on_host: bool) -> Iterator[Row]:
    if totals["idle_us"] is None:
        return
    idle = totals["idle_us"] - (totals["other_us"] or 0.0)
    if idle >= IDLE_FRAC * totals["window_us"]:
        percent = 100 * idle / totals["window_us"]
        cause = _HOST_IDLE if on_host else _DEVICE_IDLE
        yield _finding(
            "idle", f"nothing runs {percent:.1f} % of the time: {cause}", idle, idle_us=idle
        )


def _between_steps(steps: list[Row]) -> Iterator[Row]:
    """Time lost between steps."""
    leads = [s["lead_us"] for s in steps if s["lead_us"] is not None and s["lead_us"] > 0]
    period = sum(s["period_us"] for s in steps if s["period_us"] is not None)
    lost = sum(leads)
    if leads and period > 0:
        text = (
            f"{100 * lost / period:.1f} % of the steps' period passes between their work: look at "
            "data loading, logging and checkpoints"
        )
        yield _finding("between-steps", text, lost, lead_us=lost, period_us=period)


def _slow_step(steps: list[Row]) -> Iterator[Row]:
    """One step that takes much longer than the others."""
    slowest: dict[int, float] = {}
    for row in steps:
        if row["window_us"]:
            slowest[row["step"]] = max(slowest.get(row["step"], 0.0), row["window_us"])
    if len(slowest) < 3:
        return
    typical = median(slowest.values())
    step = max(slowest, key=lambda s: slowest[s])
    if slowest[step] < SLOW_STEP * typical:
        return
    extra = sum(
        max(0.0, row["window_us"] - typical)
        for row in steps
        if row["step"] == step and row["window_us"]
    )
    text = (
        f"step {step} takes {slowest[step] / 1000:.4g} ms where the median step takes "
        f"{typical / 1000:.4g} ms: look at what is special in it, or leave it out with --steps"
    )
    yield _finding("slow-step", text, extra, step=step, window_us=slowest[step], median_us=typical)


def _exposed_memory(totals: Row) -> Iterator[Row]:
    exposed = totals["exposed_memory_us"]
    if exposed:
        text = (
            f"copies and fills take {100 * exposed / totals['window_us']:.1f} % of the time alone: "
            "pin host memory, copy asynchronously, avoid .item() and .cpu() in the step"
        )
        yield _finding("exposed-memory", text, exposed, exposed_memory_us=exposed)
