"""Runs are found below the given paths and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboards.catalog import FRESH_S, Catalog
from tracekit.core.errors import UsageError


def trace(path: Path) -> Path:
    """An empty trace file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"traceEvents": []}')
    return path


def names(catalog: Catalog) -> list[str]:
    """What the runs are called."""
    return [entry.name for entry in catalog.entries()]


def test_a_folder_of_runs_gives_each_a_name(tmp_path: Path) -> None:
    """Runs of our own layout, of torch's and deeper ones are told apart by their way from there."""
    trace(tmp_path / "a" / "traces" / "rank00000.pt.trace.json.gz")
    trace(tmp_path / "b" / "rank0.json")
    trace(tmp_path / "deep" / "c" / "iteration_10" / "rank0_trace.json.gz")
    (tmp_path / "answers.json").write_text("{}")
    assert names(Catalog([str(tmp_path)])) == ["a", "b", "deep/c/iteration_10"]


def test_a_run_is_itself(tmp_path: Path) -> None:
    """A folder with traces is one run, whatever other folders lie in it."""
    trace(tmp_path / "run" / "rank0.json.gz")
    trace(tmp_path / "run" / "dumps" / "rank0.json")
    catalog = Catalog([str(tmp_path / "run")])
    assert names(catalog) == ["run"]
    assert catalog.get("") == catalog.get("run")
    assert catalog.facts(catalog.entries()[0]).num_files == 2


def test_equal_names_get_numbers(tmp_path: Path) -> None:
    """Two runs of one name can both be asked for."""
    trace(tmp_path / "x" / "run" / "rank0.json")
    trace(tmp_path / "y" / "run" / "rank0.json")
    catalog = Catalog([str(tmp_path / "x" / "run"), str(tmp_path / "y" / "run")])
    assert names(catalog) == ["run", "run~2"]
    second = catalog.get("run~2")
    assert second is not None
    assert second.path == tmp_path / "y" / "run"
    assert catalog.get("") is None


def test_links_that_lead_out_are_not_listed(tmp_path: Path) -> None:
    """A link out of the given folder is no run and counts as no file of one."""
    outside = trace(tmp_path / "outside" / "rank0.json")
    given = tmp_path / "given"
    trace(given / "run" / "rank0.json")
    (given / "run" / "link_to_outside.json").symlink_to(outside)
    (given / "other").symlink_to(outside.parent)
    catalog = Catalog([str(given)])
    assert names(catalog) == ["run"]
    assert [Path(path).name for path, _, _ in catalog.signature(catalog.entries()[0])] == [
        "rank0.json"
    ]


@pytest.mark.parametrize(
    "asked", ["../outside", "/etc", "..", ".", "run/../../outside", "file:///etc", "run\x00", "RUN"]
)
def test_a_name_is_no_path(tmp_path: Path, asked: str) -> None:
    """Only names of the catalog are runs; a way through the file system never is."""
    trace(tmp_path / "given" / "run" / "rank0.json")
    trace(tmp_path / "given" / "run2" / "rank0.json")
    trace(tmp_path / "outside" / "rank0.json")
    assert Catalog([str(tmp_path / "given")]).get(asked) is None


def test_a_new_run_and_a_changed_file_are_seen(tmp_path: Path, sleep: object) -> None:
    """What appears while the server runs is there after a moment."""
    trace(tmp_path / "a" / "rank0.json")
    catalog = Catalog([str(tmp_path)])
    before = catalog.signature(catalog.entries()[0])
    trace(tmp_path / "a" / "rank1.json")
    trace(tmp_path / "b" / "rank0.json")
    sleep(FRESH_S + 0.05)  # type: ignore[operator]
    assert names(catalog) == ["a", "b"]
    assert len(catalog.signature(catalog.entries()[0])) == len(before) + 1


@pytest.fixture
def sleep() -> object:
    """Wait for real: how long a look stays fresh is what is tested."""
    import time

    return time.sleep


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """A path that does not exist is one line with a near one, unless it may come yet."""
    trace(tmp_path / "baseline" / "rank0.json")
    with pytest.raises(UsageError, match=r"no such file or folder; did you mean .*baseline"):
        Catalog([str(tmp_path / "baselin")])
    coming = Catalog([str(tmp_path / "later")], may_come=True)
    assert names(coming) == ["later"]
    with pytest.raises(UsageError, match="no run to show"):
        Catalog([])


def test_names_that_are_no_text_can_be_asked_for(tmp_path: Path) -> None:
    """A folder whose name is not UTF-8, or holds control characters, has a printable name."""
    folder = os.fsencode(tmp_path) + b"/run\xff\n1"
    Path(os.fsdecode(folder)).mkdir()
    trace(Path(os.fsdecode(folder)) / "rank0.json")
    trace(tmp_path / "b" / "rank0.json")
    catalog = Catalog([str(tmp_path)])
    (odd,) = [name for name in names(catalog) if name != "b"]
    assert odd.isprintable()
    assert odd.encode("utf-8")
    assert catalog.get(odd) is not None
