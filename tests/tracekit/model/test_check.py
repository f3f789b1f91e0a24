"""Promises of the check: each limit of a set of traces is one note that says cost and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builder import ALL_REDUCE, SEND_RECV, Kineto, collective, run_of
from tracekit.core.errors import Note
from tracekit.model.check import check
from tracekit.model.check_matching import partners
from tracekit.model.limits import numbers_text, quoted, ranks_text, time_text
from tracekit.model.run import TraceSet, open_run

GEMM = "void at::native::gemm"
STEPS = range(3, 8)
Change = Callable[[int, int, dict[str, Any]], dict[str, Any]]


def same(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
    """No change."""
    return args


def one_file(rank: int, num_ranks: int = 2, change: Change = same, **header: Any) -> Kineto:
    """Five steps of 100 us: compute 10..40, an all-reduce of all ranks 50..90, all launched.

    ``change`` may alter the all-reduce of a step: its arguments, and its ``start`` and ``end``.
    """
    file = Kineto(rank, num_ranks, **header)
    for step in STEPS:
        at = 100 * step
        file.step(step, at, at + 99).kernel(at + 10, at + 40, GEMM, launched=at + 1)
        args = collective(elems=1000, ranks=range(num_ranks), comms_id=step, seq=step)
        args = change(rank, step, {"start": at + 50, "end": at + 90, **args})
        start, end = args.pop("start"), args.pop("end")
        file.comm(start, end, args.pop("name", ALL_REDUCE), launched=at + 2, **args)
    return file


def jitter(rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
    """All-reduces of 5 us; those of rank 1 end -18, -9, 0, 9 and 18 us later: median 0, MAD 9."""
    off = 9 * (step - 5) if rank == 1 else 0
    return args | {"start": args["end"] - 5 + off, "end": args["end"] + off}


def several(num_ranks: int = 2, change: Change = same, **header: Any) -> TraceSet:
    """A sound run, but for the change and the header."""
    return run_of(*(one_file(r, num_ranks, change, **header) for r in range(num_ranks)))


def texts(run: TraceSet) -> dict[str, str]:
    """Texts by code; no code comes twice."""
    notes = check(run)
    assert len({n.code for n in notes}) == len(notes)
    return {n.code: n.text for n in notes}


def beyond_sound(run: TraceSet) -> dict[str, Note]:
    """Notes that a sound run does not have."""
    return {n.code: n for n in check(run) if n.code not in ("clocks", "match-quality")}


def only(run: TraceSet, code: str) -> tuple[str, str]:
    """Severity and text of the one note beyond those of a sound run."""
    found = beyond_sound(run)
    assert list(found) == [code]
    return found[code].severity, found[code].text


def test_a_sound_run_has_nothing_to_mend() -> None:
    """All that is said of a sound run is how its clocks and collectives were put together."""
    assert texts(several()) == {
        "clocks": "clocks against rank 0, from the ends of shared collectives: rank 1 0 us "
        "(scatter 0 us); corrected",
        "match-quality": "5 of 5 collectives have members on several ranks: 5 by Comms Id",
    }


def test_many_ranks_make_no_more_notes_than_two() -> None:
    """Notes are on the run: what all ranks have in common is said once, with the ranks counted."""

    def bare(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in args.items() if k in ("start", "end")}

    few, many = (several(n, bare, with_stack=1) for n in (2, 40))
    assert [n.code for n in check(few)] == [n.code for n in check(many)]
    assert texts(many)["clocks"] == (
        "clocks against rank 0, from the ends of shared collectives: ranks 1-39 from 0 us to 0 us "
        "(scatter up to 0 us); corrected"
    )
    assert len(check(many)) == 4


def test_notes_of_the_reading_come_first_then_the_gravest() -> None:
    """What was odd in the files stands before what follows from it."""
    run = several(2, jitter, with_stack=1)
    run.notes.append(Note("rank-guessed", "rank taken from the file name", "info"))
    assert [n.code for n in check(run)] == [
        "rank-guessed",
        "clock-spread",
        "heavy-recording",
        "clocks",
        "match-quality",
    ]


# -- the job ----------------------------------------------------------------------------------


def test_missing_ranks() -> None:
    """Ranks of the job without a trace are named."""
    run = run_of(one_file(0, 6), one_file(2, 6))
    assert only(run, "missing-ranks") == (
        "warning",
        (
            "4 of 6 ranks are missing (1, 3-5): waiting for them is not known, nor is a straggler "
            "among them; give the traces of all ranks"
        ),
    )


def test_a_single_rank_of_a_job() -> None:
    """One trace of many is a choice, no fault."""
    assert only(run_of(one_file(0)), "missing-ranks") == (
        "info",
        (
            "one rank of 2: waiting and bandwidth across ranks cannot be told; give the traces of "
            "all ranks"
        ),
    )


def test_traces_of_several_jobs() -> None:
    """World sizes that differ mean that the files do not belong together."""
    files = [one_file(r, 3) for r in range(3)]
    files[2].header["distributedInfo"]["world_size"] = 2
    assert only(run_of(*files), "world-sizes") == (
        "warning",
        (
            "the files state different world sizes (3: ranks 0-1; 2: rank 2): they come from "
            "several jobs, and what is matched between those means nothing; give one job"
        ),
    )


def test_a_header_without_ranks() -> None:
    """A file that does not say whose it is."""
    files = [one_file(0), one_file(1)]
    del files[1].header["distributedInfo"]["world_size"]
    assert only(run_of(*files), "no-distributed-info") == (
        "info",
        (
            "rank 1: the header names no rank and no process groups (distributedInfo); start the "
            "profiler after torch.distributed.init_process_group"
        ),
    )


def test_unequal_versions_and_devices() -> None:
    """What makes ranks unequal by nature is named with the ranks that have it."""
    files = [one_file(r, 3, cuda_runtime_version=12040) for r in range(3)]
    files[2].header["cuda_runtime_version"] = 11080
    for rank, file in enumerate(files):
        name = "NVIDIA A100" if rank == 1 else "NVIDIA H100"
        file.header["deviceProperties"] = [{"id": 7, "name": "other"}, {"id": 0, "name": name}]
    found = beyond_sound(run_of(*files))
    assert {code: n.text for code, n in found.items()} == {
        "uneven-versions": "cuda_runtime_version differs between ranks (12040: ranks 0-1; 11080: "
        "rank 2): slower ranks may owe it to that; install the same everywhere",
        "uneven-devices": "ranks run on different devices (NVIDIA H100: ranks 0, 2; NVIDIA A100: "
        "rank 1): the slower ones make the others wait by their nature, not by a fault",
    }


# -- how it was recorded ----------------------------------------------------------------------


def test_unequal_profiler_options() -> None:
    """A rank that records more is slower for that reason alone."""
    run = run_of(one_file(0), one_file(1, with_stack=1))
    assert only(run, "uneven-options") == (
        "warning",
        (
            "with_stack=True on rank 1 only: recording it takes time, which makes these ranks look "
            "slow; profile all ranks with the same options"
        ),
    )


def test_heavy_recording() -> None:
    """Stacks and memory on all ranks lengthen what is measured."""
    run = several(with_stack=1, profile_memory=1, record_shapes=1)
    assert only(run, "heavy-recording") == (
        "info",
        (
            "recorded with with_stack=True and profile_memory=True: it slows the host down, so "
            "launches are later and idle time is longer than in training; record without"
        ),
    )


def test_errors_of_the_recorder() -> None:
    """What Kineto itself complained about is quoted, as text on one line."""
    run = run_of(one_file(0), one_file(1, ERROR=["CUPTI failed\n\x1b[31m", "again"]))
    found = beyond_sound(run)["recorder-errors"]
    assert (found.severity, found.file, found.text) == (
        "warning",
        "rank1.json",
        (
            "rank 1: Kineto reported errors while recording, such as 'CUPTI failed  [31m'; what it "
            "could not record is missing"
        ),
    )


def test_damaged_files() -> None:
    """Recovered, dropped and clipped events are counted over all ranks."""
    files = [one_file(0), one_file(1)]
    files[0].raw(f'{{"ph":"X","cat":"kernel","name":"{GEMM}","pid":0,"tid":7,"ts":5,"dur":-1}}')
    files[1].kernel(305, 460, GEMM)  # passes the starts at 310 and 410 of its stream
    run = run_of(*files)
    run.trace(1).table.counts["recovered"] = 1234
    found = {code: n.text for code, n in beyond_sound(run).items() if code != "unlinked"}
    assert found == {
        "recovered": "rank 1: files cut short; 1,234 events were recovered, the later steps are "
        "lost and the ranks' windows end apart; copy the files again, or let the profiler finish "
        "before the job ends",
        "dropped": "rank 0: 1 events with impossible times were left out, and their time with them",
        "clipped": "rank 1: 1 events with absurd ends were cut at the next start of their stream; "
        "their true length is not known",
    }


def test_device_rows_that_are_absent() -> None:
    """NCCL without kernels was recorded without the device; others that have theirs say so too."""
    found = beyond_sound(run_of(Kineto(0, 1).op(0, 10)))["no-device-rows"]
    assert (found.severity, found.text) == (
        "warning",
        (
            "rank 0: no device events although the backend is NCCL, so compute is host time only; "
            "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and no second "
            "profiler may hold the device"
        ),
    )
    mixed = run_of(one_file(0), Kineto(1, 2).op(0, 10))
    assert texts(mixed)["no-device-rows"].startswith(
        "rank 1: no device events while others recorded theirs"
    )


def test_a_run_on_the_host() -> None:
    """Without a device in the job the host timeline is as it should be."""
    file = Kineto(0, 1).op(0, 10)
    file.header["distributedInfo"]["backend"] = "gloo"
    found = beyond_sound(run_of(file))
    assert {code: n.severity for code, n in found.items()} == {
        "host-timeline": "info",
        "no-steps": "info",
    }
    assert found["no-steps"].text == (
        "rank 0: no ProfilerStep annotations, so the whole trace is one window; call prof.step() "
        "after each training step"
    )


def test_a_rank_without_work() -> None:
    """A rank that recorded nothing to account for is named."""
    file = Kineto(1, 2).mark(0, 10, "nothing")
    found = beyond_sound(run_of(one_file(0), file))["no-work"]
    assert (found.severity, found.file) == ("warning", "rank1.json")
    assert found.text.startswith("rank 1: no work in this window, so there are no figures; ")


def test_launches_that_are_absent() -> None:
    """Without the host's rows nothing can be said of steps and groups."""
    run = run_of(Kineto(0, 1).kernel(0, 10, GEMM))
    assert texts(run)["no-launches"] == (
        "rank 0: no launch records, so device events belong to no step or phase, and collectives "
        "whose own events do not name their group to none; record with ProfilerActivity.CPU as well"
    )


def test_launches_before_the_window() -> None:
    """Unlinked events are counted over the ranks that have more than the usual fringe."""
    files = [one_file(r, 3) for r in range(3)]
    files[0].kernel(341, 342, GEMM, stream=9)
    files[2].kernel(341, 342, GEMM, stream=9).kernel(342, 343, GEMM, stream=9)
    assert only(run_of(*files), "unlinked") == (
        "info",
        (
            "ranks 0, 2: 3 of 23 device events have no launch record; they count in the window but "
            "belong to no step (launched before recording began, or a warmup step is missing in "
            "torch.profiler.schedule)"
        ),
    )


@pytest.mark.parametrize(
    ("unit_ns", "length", "base", "severity", "text"),
    [
        (1000, 4, 0, "info", "rank 0: times are written in whole us, so"),
        (1000, 3, 0, "warning", "rank 0: times are written in whole us, so"),
        (
            250,
            4,
            0,
            "info",
            (
                "rank 0: times are written in multiples of 250 ns, as absolute floats without "
                "baseTimeNanoseconds, so"
            ),
        ),
        (100, 40, 10**18, "info", "rank 0: times are written in multiples of 100 ns, so"),
    ],
)
def test_times_with_few_digits(
    unit_ns: int, length: int, base: int, severity: str, text: str
) -> None:
    """How coarsely times are written is seen from the times, and weighed against the kernels."""
    file = Kineto(0, 1, unit_ns, baseTimeNanoseconds=base)
    for i in range(64):
        file.kernel(50 * i + 7, 50 * i + 7 + length, GEMM, launched=50 * i)
    found = beyond_sound(run_of(file))["coarse-times"]
    assert found.severity == severity
    assert found.text == (
        f"{text} starts and ends are off by up to that much (half of the events last "
        f"{time_text(length * unit_ns)} or less); torch 2.4 and later write exact ns"
    )


@pytest.mark.parametrize(("num", "unit_ns"), [(63, 1000), (64, 99)])
def test_times_that_are_fine(num: int, unit_ns: int) -> None:
    """Few events prove nothing, and below 100 ns the digits are no matter."""
    file = Kineto(0, 1, unit_ns)
    for i in range(num):
        file.kernel(50 * i + 7, 50 * i + 20, GEMM, launched=50 * i)
    assert "coarse-times" not in texts(run_of(file))


# -- steps ------------------------------------------------------------------------------------


def test_uneven_steps() -> None:
    """Steps that one rank lacks are named, with the first rank that lacks some."""
    file = one_file(1).step(8, 800, 899).kernel(810, 820, GEMM, launched=801)
    assert only(run_of(one_file(0), file), "uneven-steps") == (
        "warning",
        (
            "rank 0 lacks steps 8 that others have: these steps cannot be compared across ranks; "
            "start and stop all profilers at the same step"
        ),
    )


def test_missing_and_empty_steps() -> None:
    """Numbers that no rank has, and annotations whose work was cut off."""
    files = [one_file(r).step(10, 1000, 1001) for r in range(2)]
    found = beyond_sound(run_of(*files))
    assert {code: n.text for code, n in found.items()} == {
        "empty-steps": "ranks 0-1: steps without any work (their launches were cut off): 10",
        "missing-steps": "steps 8-9 are missing between those recorded; their time shows as a gap "
        "between steps",
    }


def test_few_steps() -> None:
    """From two steps no spread can be told."""
    file = Kineto(0, 1)
    for step in (0, 1):
        file.step(step, 100 * step, 100 * step + 99)
        file.kernel(100 * step + 10, 100 * step + 20, GEMM, launched=100 * step + 1)
    assert only(run_of(file), "few-steps") == (
        "info",
        (
            "only 2 steps were recorded: how much steps differ cannot be told; use "
            "torch.profiler.schedule with active=5 or more"
        ),
    )


# -- clocks and windows -----------------------------------------------------------------------


def test_clock_offsets_are_given_per_rank() -> None:
    """Offset and scatter of each rank, from differences of 7, 7, 7, 8 and 9 us: median and MAD."""

    def late(rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
        off = {3: 7, 4: 7, 5: 7, 6: 8, 7: 9}[step] if rank == 1 else 0
        return args | {"start": args["start"] + off, "end": args["end"] + off}

    assert texts(several(3, late))["clocks"] == (
        "clocks against rank 0, from the ends of shared collectives: rank 1 +7 us (scatter 0 us), "
        "rank 2 0 us (scatter 0 us); corrected"
    )


def test_a_clock_looser_than_the_collectives() -> None:
    """Where ends scatter by more than a collective takes, lateness is a guess."""
    assert only(several(2, jitter), "clock-spread") == (
        "warning",
        (
            "clocks of rank 1 scatter by up to 9 us (rank 1), the typical collective takes 5 us: "
            "who arrives last, and waiting shorter than that, are a guess; record more steps, and "
            "keep the hosts' clocks in step (PTP or chrony)"
        ),
    )


def test_a_clock_that_cannot_be_compared() -> None:
    """A rank in no shared collective stays on its own clock."""
    lone = Kineto(2, 3)
    for step in STEPS:
        lone.step(step, 100 * step, 100 * step + 99)
        lone.kernel(100 * step + 10, 100 * step + 95, GEMM, launched=100 * step + 1)

    def without(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return args | collective(elems=1000, ranks=(0, 1), comms_id=args["Comms Id"])

    run = run_of(one_file(0, 3, without), one_file(1, 3, without), lone)
    severity, text = only(run, "clock-unknown")
    assert severity == "warning"
    assert text.startswith(
        "rank 2 cannot be put on one clock with rank 0: fewer than two shared collectives end on "
        "all members at once, so waiting between them rests on the clocks as recorded; "
    )


def shifted(by: int) -> TraceSet:
    """Two ranks without collectives, the second recorded ``by`` us later."""
    files = []
    for rank, off in ((0, 0), (1, by)):
        file = Kineto(rank, 2)
        for step in range(5):
            at = 100 * step + off
            file.step(step, at, at + 100).kernel(at + 10, at + 20, GEMM, launched=at + 1)
        files.append(file)
    return run_of(*files)


def test_windows_without_common_time() -> None:
    """Profilers that ran one after the other recorded nothing together."""
    found = beyond_sound(shifted(800))["windows-apart"]
    assert (found.severity, found.text) == (
        "warning",
        (
            "the windows have no time in common: rank 0's ends 300 us before rank 1's begins, so "
            "collectives of one have no partner in the other; start and stop all profilers at the "
            "same step (torch.profiler.schedule)"
        ),
    )


def test_windows_with_little_common_time() -> None:
    """Less than nine tenths in common is worth a note, more is not."""
    assert beyond_sound(shifted(100))["windows-apart"].text == (
        "only 400 us of 500 us were recorded by all ranks (rank 1's window begins 100 us after "
        "rank 0's, rank 0's ends first): what lies outside has no partner, and waiting there is "
        "partly the profiler's; start and stop all profilers at the same step "
        "(torch.profiler.schedule)"
    )
    assert "windows-apart" not in beyond_sound(shifted(50))


def test_edge_collectives() -> None:
    """Time in collectives with which a window begins is weighed against all communication."""
    files = []
    for rank in range(2):
        file = Kineto(rank, 2)
        for number, (start, end) in enumerate(((0, 60), (100, 140))):
            args = collective(elems=8, comms_id=number + 1)
            file.comm(start, end, launched=start, **args)
        files.append(file)
    assert beyond_sound(run_of(*files))["edge-collectives"].text == (
        "120 us of 200 us communication lie in collectives with which some rank's window begins: "
        "part of their waiting is the profiler's late start, so they are left out of medians and "
        "rankings; call torch.distributed.barrier() before the first recorded step"
    )


# -- what is known of collectives -------------------------------------------------------------


def test_no_group_metadata() -> None:
    """Kernels that say nothing of themselves cost group, bytes and bandwidth."""

    def bare(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in args.items() if k in ("start", "end")}

    run = several(2, bare)
    assert only(run, "unknown-groups") == (
        "info",
        (
            "5 of 5 collectives carry no group metadata: their group, bytes and bandwidth are not "
            "known; torch 2.5 and later write it for NCCL where ProfilerActivity.CPU is on, but "
            "not for libraries that bypass torch.distributed"
        ),
    )
    assert texts(run)["match-quality"] == (
        "5 of 5 collectives have members on several ranks: 5 by order and time; order is a guess, "
        "needless from torch 2.13 on (it writes Seq and Comms Id)"
    )


def test_group_metadata_of_some() -> None:
    """Where others have it, the launch was outside the window or outside torch.distributed."""

    def first_bare(_rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in args.items() if step > 3 or k in ("start", "end")}

    files = [one_file(r, 2, first_bare) for r in range(2)]
    for file in files:
        file.issue(700, 701, 1, **collective(elems=8))
    severity, text = only(run_of(*files), "unknown-groups")
    assert (severity, text) == (
        "info",
        (
            "1 of 5 collectives carry no group metadata: their group, bytes and bandwidth are not "
            "known; they were launched before recording began, or outside torch.distributed"
        ),
    )
    assert texts(run_of(*files))["match-quality"].startswith(
        "5 of 5 collectives have members on several ranks: 4 by Comms Id, 1 by order and time; "
    )


def test_match_by_sequence_number() -> None:
    """Each way of matching is counted."""

    def seq_only(_rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in args.items() if step < 5 or k != "Comms Id"}

    assert texts(several(2, seq_only))["match-quality"] == (
        "5 of 5 collectives have members on several ranks: 2 by Comms Id, 3 by Seq"
    )


def test_loose_matches() -> None:
    """Matches by order whose ends lie further apart than they take are doubtful."""

    def leaves_at(end: int) -> Change:
        """In two steps rank 1 arrives at 60 and leaves at ``end``, while rank 0 runs 50..90."""

        def change(rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
            args = {k: v for k, v in args.items() if k not in ("Comms Id", "Seq")}
            if rank == 1 and step in (4, 6):
                return args | {"start": 100 * step + 60, "end": 100 * step + end}
            return args

        return change

    # until 75 it takes 15 and ends 15 before the other; until 74 it takes 14 and ends 16 before
    assert beyond_sound(several(2, leaves_at(75))) == {}
    assert only(several(2, leaves_at(74)), "loose-matches") == (
        "warning",
        (
            "2 of 5 collectives matched by order end further apart than they take and than the "
            "clocks scatter: their members may not belong together, so their waiting is doubtful"
        ),
    )


def test_unmatched_operations_and_why() -> None:
    """Each operation without a partner has a reason, and their time is given."""
    files = [one_file(0), one_file(1)]
    files[0].comm(910, 920, launched=901, **collective(elems=1, comms_id=99))
    files[1].comm(
        545, 549, "ncclDevKernel_Broadcast_RING_LL", launched=501, **collective("broadcast")
    )
    files[1].comm(645, 648, SEND_RECV, launched=601, **collective("send", elems=4))
    run = run_of(*files)
    found = beyond_sound(run)
    assert found["unmatched"].severity == "warning"
    assert found["unmatched"].text == (
        "3 operations of ranks 0-1 (17 us) found no partner among the given ranks: 1 outside the "
        "partners' windows, 1 sends or receives without a peer, 1 without a like operation there "
        "at that time; how much of their time is waiting is not known"
    )
    counted = sum(bool(partners(run, c)) for c in run.matching.collectives if len(c.members) == 1)
    assert counted == sum(run.matching.unmatched.values()) == 3


def test_uneven_numbers_of_collectives() -> None:
    """Surplus operations are named by kind and group; one or two may be the window's edge."""
    files = [one_file(0), one_file(1)]
    for i in range(3):
        at = 605 + i
        files[0].comm(at, at + 1, launched=601, **collective(elems=1, comms_id=90 + i))
    found = beyond_sound(run_of(*files))["uneven-collectives"]
    assert (found.severity, found.text) == (
        "warning",
        (
            "ranks ran unequal numbers of collectives in 1 of 1 kinds, such as all_reduce on group "
            "'0': 8 on rank 0, 5 on rank 1; the surplus has no partner (windows cut differently, "
            "or ranks that run different code)"
        ),
    )
    files = [one_file(0), one_file(1).comm(605, 606, launched=601, **collective(comms_id=9))]
    assert beyond_sound(run_of(*files))["uneven-collectives"].severity == "info"


def test_unknown_types() -> None:
    """A type whose size is not known costs bytes and bandwidth, not blamed on the recording."""

    def odd(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return args | {"dtype": "Float4_e2m1fn_x2"}

    assert only(several(2, odd), "unknown-dtype") == (
        "warning",
        (
            "the size of dtype 'Float4_e2m1fn_x2' is not known, so neither are the bytes of its "
            "collectives; add it under [dtype_bytes] in a --names file"
        ),
    )


def test_unknown_sizes() -> None:
    """Collectives of a known group that state no elements."""

    def sizeless(_rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in args.items() if step > 4 or "nelems" not in k}

    assert only(several(2, sizeless), "unknown-bytes") == (
        "info",
        (
            "2 of 5 collectives state no message size (all_reduce), so their bandwidth is not "
            "known; torch 2.3 and later write it for NCCL where ProfilerActivity.CPU is on, but "
            "not for libraries that bypass torch.distributed"
        ),
    )


def test_ranks_outside_the_world() -> None:
    """Ranks beyond the stated size of the job are told, of files and of groups' lists apart."""
    found = texts(run_of(one_file(0, 2), one_file(5, 2)))
    assert found["rank-outside-world"].startswith("rank 5 is outside of a job of 2 ranks")

    def far(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return args | {"Process Group Ranks": "[0, 1, 7]", "Group size": 3}

    found = texts(several(change=far))
    assert "rank-outside-world" not in found
    assert found["group-outside-world"].startswith(
        "collectives list rank 7 among the members of their groups, outside of a job of 2 ranks"
    )
    assert not {"rank-outside-world", "group-outside-world"} & texts(several()).keys()


def test_a_group_size_that_is_not_that_of_its_list() -> None:
    """A size that contradicts the list of ranks is told with both; a list cut short is not."""

    def odd(rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
        return args | {"Group size": 3} if (rank, step) in ((0, 3), (0, 4)) else args

    text = texts(several(change=odd))["group-size"]
    assert text.startswith(
        "2 operations state a group size that is not the number of ranks they list, such as '3' "
        "with '[0, 1]' in group '0'"
    )

    def cut(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return args | {"Process Group Ranks": "[0, 1, ...]", "Group size": 3}

    assert "group-size" not in texts(several(change=cut))


def test_sizes_that_differ_between_members() -> None:
    """Members that state different message sizes are told, with the sizes and ranks of one."""

    def uneven(rank: int, step: int, args: dict[str, Any]) -> dict[str, Any]:
        if (rank, step) == (1, 4):
            return args | {"In msg nelems": 2000, "Out msg nelems": 2000}
        return args

    text = texts(several(change=uneven))["uneven-sizes"]
    assert text.startswith(
        "the members of 1 of 5 collectives state different message sizes, such as all_reduce with "
        "4,000 bytes on rank 0; 8,000 bytes on rank 1"
    )
    assert "uneven-sizes" not in texts(several())


def test_a_step_that_is_annotated_twice() -> None:
    """Two annotations of one step are told, since each counts by itself."""
    first, second = one_file(0), one_file(1)
    second.step(5, 550, 590)
    text = texts(run_of(first, second))["repeated-steps"]
    assert text.startswith("rank 1: steps annotated more than once: 5; each annotation counts")
    assert "repeated-steps" not in texts(several())


def test_lists_cut_short() -> None:
    """Rank lists that end in dots, and splits that do, cost members and bus bandwidth."""

    def cut(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        return args | {"Process Group Ranks": "[0, 1, ...]", "Group size": 64}

    found = beyond_sound(several(2, cut))
    assert found["short-rank-lists"].text.startswith(
        "the rank lists of 1 groups are cut short in the files: their members are not known"
    )

    def split(_rank: int, _step: int, args: dict[str, Any]) -> dict[str, Any]:
        more = {"Collective name": "all_to_allv", "In split size": "[5, ...]"}
        return args | more | {"name": SEND_RECV}

    assert only(several(2, split), "unknown-splits") == (
        "info",
        (
            "5 all_to_all have uneven splits that are cut short in the files: their bus bandwidth "
            "is not known"
        ),
    )


def test_no_communication_in_a_job_of_several() -> None:
    """Kernels that communicate under names of their own would count as compute."""
    files = [
        Kineto(r, 2).kernel(0, 10, "my_exchange", launched=0).kernel(10, 40, "mine", launched=9)
        for r in range(2)
    ]
    found = beyond_sound(run_of(*files))
    assert found["no-communication"].severity == "warning"
    assert found["unknown-names"].text == (
        "no rule knows 2 names with 100 % of the work's time, counted as compute: 'mine' (60 us, "
        "2 x), 'my_exchange' (20 us, 2 x); where one communicates, say so in a --names file"
    )
    assert "clock-unknown" not in found


def test_names_without_a_rule_are_summed_over_ranks() -> None:
    """The share is that of all work of all ranks, and the longest names are listed."""
    files = []
    for rank in range(2):
        file = one_file(rank)  # 5 x (30 + 40) us known work
        for i, name in enumerate(("b", "a\n", "c", "d")):
            file.kernel(600 + 9 * i, 600 + 11 * i + 1, name, stream=9, launched=601)
        files.append(file)
    severity, text = only(run_of(*files), "unknown-names")
    # 1 + 3 + 5 + 7 = 16 of 366 us
    assert (severity, text) == (
        "info",
        (
            "no rule knows 4 names with 4.37 % of the work's time, counted as compute: 'd' (14 us, "
            "2 x), 'c' (10 us, 2 x), 'a' (6 us, 2 x), …; where one communicates, say so in a "
            "--names file"
        ),
    )


# -- words ------------------------------------------------------------------------------------


def test_words_for_ranks_times_and_foreign_text() -> None:
    """Runs are joined, long lists end in a count, units fit, foreign text is one short line."""
    assert ranks_text(range(5)) == "ranks 0-4"
    assert ranks_text([9, 3, 3, 8]) == "ranks 3, 8-9"
    assert numbers_text(range(0, 20, 2)) == "0, 2, 4, 6, 8, 10, … (10 in all)"
    assert [time_text(ns) for ns in (1, 999_999, 10**6, 1_234_567_890)] == [
        "0.001 us",
        "1000 us",
        "1 ms",
        "1.235 s",
    ]
    assert time_text(-1500, signed=True) == "-1.5 us"
    assert quoted(" a\nb\x1b " + "x" * 99, 10) == "'a b  xxxx…'"


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        (
            "torchrec_sst_long_a2a_optimizer_3",
            {"unlinked", "coarse-times", "clocks", "unknown-groups"}
            | {"match-quality", "uneven-collectives"},
        ),
        (
            "megatron_tp2",
            {"windows-apart", "few-steps", "clocks", "match-quality"},
        ),
    ],
)
def test_real_sets(name: str, codes: set[str], corpus: Path) -> None:
    """On real jobs just the limits that an engineer confirmed by eye are named."""
    found = set(texts(open_run([str(corpus / "traces" / name)])))
    assert found - {"unknown-names"} == codes  # rules are added as names turn up


def test_a_header_of_odd_types_is_checked_all_the_same() -> None:
    """Lists for device ids and a truth value for the world size are no facts, and no failure."""
    file = Kineto(0).kernel(0, 5).comm(5, 9)
    file.header["deviceProperties"] = [{"id": [0], "name": "odd"}, {"id": 0, "name": ["x"]}]
    file.header["distributedInfo"]["world_size"] = True
    run = run_of(file)
    assert run.world_size is None
    assert "missing-ranks" not in {note.code for note in check(run)}
