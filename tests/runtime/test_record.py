"""A recorder writes whole files or says one line, and leaves nothing behind in torch."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")

from torch.profiler import schedule  # noqa: E402

import runtime  # noqa: E402
from runtime.comm import Comm  # noqa: E402
from runtime.grid import Grid, GridShape  # noqa: E402
from runtime.trace import recorder, writer  # noqa: E402
from tests.runtime import recording  # noqa: E402


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep torch's profiler from talking."""
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")


def loop(rec: runtime.Recorder, steps: int) -> None:
    """Some steps of some compute."""
    one = torch.ones(64, 64)
    for _ in range(steps):
        with rec.phase("forward"):
            one = (one @ one).tanh()
        rec.step()


def steps_in(folder: Path, name: str = "rank00000") -> list[str]:
    """The steps of a trace."""
    packed = (folder / "traces" / f"{name}.pt.trace.json.gz").read_bytes()
    events = json.loads(gzip.decompress(packed))["traceEvents"]
    return sorted(e["name"] for e in events if str(e["name"]).startswith("ProfilerStep#"))


@pytest.mark.parametrize("mode", ["profile", "light"])
def test_one_process_without_a_job(tmp_path: Path, mode: Any) -> None:
    """A loop of one process is recorded too; the default schedule takes steps 2 to 4."""
    with runtime.record(tmp_path, mode=mode, first_step=10) as rec:
        loop(rec, 6)
    want = range(12, 15) if mode == "profile" else range(10, 16)
    assert steps_in(tmp_path) == [f"ProfilerStep#{n}" for n in want]
    assert [p.name for p in (tmp_path / "traces").iterdir()] == ["rank00000.pt.trace.json.gz"]
    facts = json.loads((tmp_path / "run.json").read_text())
    assert (facts["mode"], facts["world_size"]) == (mode, 1)


def test_windows_are_numbered_and_replace_earlier_ones(tmp_path: Path) -> None:
    """Each window is a file; a second recording into the folder leaves none of the first."""
    three = schedule(wait=0, warmup=1, active=1, repeat=3)
    with runtime.record(tmp_path, schedule=three) as rec:
        loop(rec, 7)
    names = sorted(p.name for p in (tmp_path / "traces").iterdir())
    assert names == [f"rank00000{n}.pt.trace.json.gz" for n in (".2", ".3", "")]
    assert [steps_in(tmp_path, f"rank00000{n}") for n in ("", ".2", ".3")] == [
        ["ProfilerStep#1"],
        ["ProfilerStep#3"],
        ["ProfilerStep#5"],
    ]
    with runtime.record(tmp_path) as rec:
        loop(rec, 6)
    assert [p.name for p in (tmp_path / "traces").iterdir()] == ["rank00000.pt.trace.json.gz"]


@pytest.mark.parametrize("mode", ["profile", "light"])
def test_a_step_that_never_ends_is_none(tmp_path: Path, mode: Any) -> None:
    """An error in the third step leaves the two before it, and goes on up."""
    window = schedule(wait=0, warmup=1, active=8, repeat=1)
    rec = runtime.record(tmp_path, mode=mode, schedule=window)

    def fail() -> None:
        with rec:
            loop(rec, 3)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert steps_in(tmp_path) == ["ProfilerStep#1", "ProfilerStep#2"]


def test_the_light_mode_keeps_the_newest_steps(tmp_path: Path) -> None:
    """Of ten steps the last three are kept, with their phases."""
    with runtime.record(tmp_path, mode="light", keep_steps=3) as rec:
        loop(rec, 10)
    assert steps_in(tmp_path) == [f"ProfilerStep#{n}" for n in (7, 8, 9)]
    events = recording.rows(recording.trace(tmp_path, 0), "tracekit:phase:forward")
    assert len(events) == 3


def test_a_light_step_without_phases_is_the_hosts_work(tmp_path: Path) -> None:
    """A loop that names no phases still has compute: its steps, each as one row."""
    with runtime.record(tmp_path, mode="light") as rec:
        rec.step()
        loop(rec, 1)
    found = recording.trace(tmp_path, 0)
    [whole] = recording.rows(found, "tracekit:host")
    [step] = recording.rows(found, "ProfilerStep#0")
    assert (whole["cat"], whole["start_ns"]) == ("cpu_op", step["start_ns"])
    assert whole["end_ns"] == step["end_ns"]


def test_a_light_recording_on_a_device_has_marks_among_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a device records kernels, steps and phases are annotations beside them."""
    monkeypatch.setattr("runtime.trace.profiler.on_device", lambda: True)
    monkeypatch.setattr("runtime.trace.profiler._activities", lambda: {CPU})
    with runtime.record(tmp_path, mode="light") as rec:
        loop(rec, 3)
    assert steps_in(tmp_path) == [f"ProfilerStep#{n}" for n in (0, 1, 2)]
    phases = recording.rows(recording.trace(tmp_path, 0), "tracekit:phase:forward")
    assert [p["cat"] for p in phases] == ["user_annotation"] * 3


CPU = torch.profiler.ProfilerActivity.CPU


# -- what goes wrong --------------------------------------------------------------------------


@contextmanager
def _full(_: Path) -> Iterator[IO[bytes]]:
    """A file on a full disk."""
    yield Full()


class Full(io.BytesIO):
    """Refuses what is written."""

    def write(self, _: Any) -> int:
        """As the system does on a full disk."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("mode", ["profile", "light"])
def test_a_full_disk_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: Any
) -> None:
    """The loop goes on, one line a file says why it is missing, and no file is broken."""
    monkeypatch.setattr(writer, "atomic", _full)
    with runtime.record(tmp_path, mode=mode) as rec:
        loop(rec, 6)
        assert rec.step_number == 6
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # run.json and the trace
    assert all("No space left on device; training goes on" in line for line in lines)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_a_profiler_cut_short_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the disk is full when the profiler writes its own file, no trace appears."""
    monkeypatch.setattr("runtime.trace.profiler._text_of", lambda *_: '{"traceEvents": [{"ph')
    with runtime.record(tmp_path) as rec:
        loop(rec, 6)
    assert "only part of the trace; training goes on" in capsys.readouterr().err
    assert not list((tmp_path / "traces").glob("*.gz"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """An error half-way leaves what was there, and no part of the new."""
    path = tmp_path / "run.json"
    writer.write_json_atomically(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        writer.write_json_atomically(path, {"a": float("nan")})
    file = writer.atomic(path)
    file.__enter__().write(b"half")
    assert not file.__exit__(KeyError, KeyError(), None)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_lines_hold_no_nan(tmp_path: Path) -> None:
    """What is no number becomes null in metrics, so that every line is JSON."""
    path = tmp_path / "metrics.jsonl"
    writer.append_line(path, {"loss": float("nan"), "step": 1})
    writer.append_line(path, {"loss": [float("inf"), 2.5], "step": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"loss": None, "step": 1}, {"loss": [None, 2.5], "step": 2}]


def test_a_schedule_that_never_opens_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop shorter than its schedule ends with one line that says so."""
    with runtime.record(tmp_path) as rec:
        loop(rec, 2)
    err = capsys.readouterr().err
    assert "no window was recorded in 2 steps: call rec.step()" in err
    assert err.count("\n") == 1


def test_a_second_recorder_is_refused(tmp_path: Path) -> None:
    """Of one loop or one process there is one recorder at a time; then the next may come."""
    comm = Comm(Grid(GridShape(), alone=True))
    for given in (comm, None):
        with runtime.record(tmp_path / "a", mode="light", comm=given) as rec:
            other = runtime.record(tmp_path / "b", mode="light", comm=given)
            with pytest.raises(RuntimeError, match="recorded already: end that first"):
                other.__enter__()
            loop(rec, 1)
    with runtime.record(tmp_path / "b", mode="light") as rec:
        loop(rec, 1)
    assert steps_in(tmp_path / "b") == ["ProfilerStep#0"]


def test_a_used_recorder_is_refused_and_its_recording_stays(tmp_path: Path) -> None:
    """Recorders serve once; nothing recorded is removed before there is something in its place."""
    rec = runtime.record(tmp_path)
    with rec:
        loop(rec, 6)
    with pytest.raises(RuntimeError, match="used before: make another with"):
        rec.__enter__()
    with runtime.record(tmp_path) as short:
        loop(short, 1)
    assert steps_in(tmp_path) == [f"ProfilerStep#{n}" for n in (2, 3, 4)]


def test_settings_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    """The message names the value and the way out."""
    with pytest.raises(ValueError, match="mode 'fast': choose profile or light"):
        runtime.record(tmp_path, mode="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep_steps 0: at least 1"):
        runtime.record(tmp_path, keep_steps=0)
    with pytest.raises(ValueError, match="flops_per_step nan cannot be written as JSON"):
        runtime.record(tmp_path, flops_per_step=float("nan"))


def test_nothing_is_left_in_torch(tmp_path: Path) -> None:
    """After the end the dispatcher calls c10d's operations as before, and the environment is."""
    before = torch._C._dispatch_dump("c10d::allreduce_")
    os.environ.pop("KINETO_LOG_LEVEL")
    with runtime.record(tmp_path, mode="light") as rec:
        assert torch._C._dispatch_dump("c10d::allreduce_") != before
        loop(rec, 1)
    assert torch._C._dispatch_dump("c10d::allreduce_") == before
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_without_a_window_nothing_is_noted() -> None:
    """Outside of a window a collective leaves no record and a phase no mark."""
    comm = Comm(Grid(GridShape(), alone=True))
    with comm.during("forward"):
        comm.barrier()
    assert (comm.log.records, comm.log.phases, comm.log.steps) == ([], [], [])


def test_runtime_imports_without_torch() -> None:
    """Naming the package costs nothing; torch is imported when the recorder is asked for."""
    code = "import runtime, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_killed_process_leaves_no_trace_half_there(tmp_path: Path) -> None:
    """Killed in the middle of a write, the final name is not there."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from runtime.trace.writer import atomic\n"
        "with atomic(Path(sys.argv[1])) as f:\n"
        "    f.write(b'half')\n"
        "    print('now', flush=True)\n"
        "    time.sleep(60)\n"
    )
    target = tmp_path / "traces" / "rank00000.pt.trace.json.gz"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, cwd=Path.cwd()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.kill()
    assert not target.exists()


def test_a_long_light_recording_reaches_the_disk_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After enough collectives and time the file is there before the loop ends."""
    monkeypatch.setattr("runtime.trace.profiler.FLUSH_RECORDS", 0)
    monkeypatch.setattr(recorder, "WRITE_EVERY_S", 0.0)
    with runtime.record(tmp_path, mode="light") as rec:
        loop(rec, 2)
        time.sleep(0.01)
        loop(rec, 1)
        assert steps_in(tmp_path) == [f"ProfilerStep#{n}" for n in (0, 1, 2)]
