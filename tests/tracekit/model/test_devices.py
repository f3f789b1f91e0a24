"""Files of several devices, and of more lanes than any job has."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.builder import Kineto
from tracekit.core.errors import NoTraceError
from tracekit.model import devices
from tracekit.model.links import places_of
from tracekit.model.run import open_run
from tracekit.model.work import work_of


def test_every_device_of_a_file_is_a_rank(tmp_path: Path) -> None:
    """Each device with kernels is a rank; rows of others are counted as strays, not lost."""
    file = Kineto(None)
    for device in range(3):
        file.kernel(device, device + 1, device=device)
    file.copy(8, 9, device=1).copy(9, 10, device=5)
    run = open_run([str(file.write(tmp_path / "t.json"))])
    assert run.ranks == [0, 1, 2]
    assert [len(run.work(rank)[1]) for rank in run.ranks] == [1, 2, 1]
    (stray,) = (n for n in run.notes if n.code == "stray-device-events")
    assert stray.text.startswith("1 events of devices without kernels")


def test_a_file_of_too_many_devices_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose every event is of another device is one line, not as many ranks."""
    monkeypatch.setattr(devices, "MAX_DEVICES", 4)
    for num in (4, 5):
        file = Kineto(None)
        for device in range(num):
            file.kernel(device, device + 1, device=device)
        path = file.write(tmp_path / f"{num}.json")
        if num == 4:
            assert open_run([str(path)]).ranks == [0, 1, 2, 3]
            continue
        with pytest.raises(NoTraceError, match=r"kernels of 5 devices .* 4 at most"):
            open_run([str(path)])


def test_places_are_those_of_a_plain_search() -> None:
    """Where each value stands is what looking for it finds."""
    values = np.random.default_rng(3).integers(-4, 5, 200)
    found = places_of(values)
    assert list(found) == sorted(set(values.tolist()))
    for value, at in found.items():
        assert at.tolist() == np.flatnonzero(values == value).tolist()
    assert places_of(values[:0]) == {}


def test_many_streams_take_no_quadratic_time() -> None:
    """Work on many thousand streams takes about as long as on one."""

    def seconds(num_streams: int) -> float:
        file = Kineto(0)
        for at in range(20_000):
            file.kernel(at, at + 1, stream=at % num_streams)
        trace = file.trace()
        begun = time.process_time()
        assert len(work_of(trace)) == 20_000
        return time.process_time() - begun

    assert seconds(20_000) < 10 * seconds(1) + 1
