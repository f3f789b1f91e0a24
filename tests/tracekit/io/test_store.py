"""The store: entries come back as they went in, whole or not at all, and never fill the disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builder import Kineto, collective
from tracekit.core.errors import Note
from tracekit.io import store as stores
from tracekit.io.store import SUFFIX, Store
from tracekit.io.table import EventTable

KEY = "0123abcd"


def table(size: int = 3) -> EventTable:
    """A table in which every part of a table has something."""
    file = Kineto(
        3, 8, baseTimeNanoseconds=1_760_000_000_123_456_789, odd=[None, 1.5, "é\U0001f600"]
    )
    for at in range(size):
        file.comm(10 * at, 10 * at + 9, **collective(elems=4, comms_id=2**64 - 1, seq=at))
    file.raw(
        '{"ph": "M", "name": "thread_name", "pid": 0, "tid": "stream 20", "args": {"name": "s"}}'
    )
    made = file.table()
    made.notes = [Note("odd", "something odd", "error", "trace.json")]
    return made


def content(found: EventTable) -> dict[str, Any]:
    """All of a table in comparable form."""
    parts = (
        "names",
        "cats",
        "lanes",
        "details",
        "meta",
        "base_ns",
        "lane_names",
        "counts",
        "notes",
    )
    columns = {key: (str(c.dtype), c.tolist()) for key, c in found.columns.items()}
    return {"columns": columns, **{p: getattr(found, p) for p in parts}}


def entry(folder: Path) -> Path:
    """The only entry of a store."""
    (file,) = folder.glob("*" + SUFFIX)
    return file


# -- round trip -------------------------------------------------------------------------------


def test_an_entry_comes_back_as_it_went_in(store_folder: Path) -> None:
    """Every value, text, type, header key and note survives the store."""
    made = table()
    assert Store().get(KEY) is None
    assert Store().put(KEY, made, "trace.json") is None
    found = Store().get(KEY)
    assert found is not None
    assert content(found) == content(made)
    assert Store().has(KEY)
    assert [f.name for f in store_folder.iterdir()] == [KEY + SUFFIX]


def test_an_empty_table_comes_back(store_folder: Path) -> None:
    """A table without rows is an entry like others."""
    made = table()
    made.columns = {key: column[:0] for key, column in made.columns.items()}
    Store(store_folder).put(KEY, made, "trace.json")
    found = Store(store_folder).get(KEY)
    assert found is not None
    assert content(found) == content(made)


def test_an_entry_is_a_memory_map() -> None:
    """The columns of an entry lie in the file, not in memory of their own."""
    Store().put(KEY, table(1000), "trace.json")
    found = Store().get(KEY)
    assert found is not None
    for column in found.columns.values():
        assert not column.flags.owndata
        assert not column.flags.writeable


def test_the_folder_is_its_owner_s(store_folder: Path) -> None:
    """Nobody else can look into the store, since names in traces can be confidential."""
    Store().put(KEY, table(), "trace.json")
    assert store_folder.stat().st_mode & 0o077 == 0


def test_names_that_are_not_utf8(store_folder: Path) -> None:
    """A file name that is not UTF-8 does not keep its table out of the store."""
    made = table()
    made.notes = [replace(made.notes[0], file="rank\udcff.json")]
    assert Store().put(KEY, made, "rank\udcff.json") is None
    found = Store().get(KEY)
    assert found is not None
    assert found.notes[0].file == "rank?.json"
    assert stores.entries()[0][1] == "rank?.json"
    assert entry(store_folder).is_file()


# -- damage -----------------------------------------------------------------------------------


def test_a_cut_entry_is_dropped(store_folder: Path) -> None:
    """An entry that ends too early, at whatever byte, is as good as none and is removed."""
    Store().put(KEY, table(), "trace.json")
    whole = entry(store_folder).read_bytes()
    for cut in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 200, len(whole) - 1):
        (store_folder / (KEY + SUFFIX)).write_bytes(whole[:cut])
        assert Store().get(KEY) is None, cut
        assert not (store_folder / (KEY + SUFFIX)).exists(), cut


def test_a_flipped_byte_never_changes_an_answer(store_folder: Path) -> None:
    """A byte that changed on the disk costs the entry, or nothing; never a wrong value."""
    made = table()
    Store().put(KEY, made, "trace.json")
    file = entry(store_folder)
    whole = file.read_bytes()
    dropped = 0
    for at in range(0, len(whole), 23):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        found = Store().get(KEY)
        dropped += found is None
        assert found is None or content(found) == content(made), at
    assert dropped > 50


@pytest.mark.parametrize("text", [b"", b"ARROW1\0\0", b"not arrow at all", b"\0" * 4096])
def test_something_else_under_its_name_is_dropped(store_folder: Path, text: bytes) -> None:
    """A file that is no entry is removed and counts as none."""
    store_folder.mkdir()
    (store_folder / (KEY + SUFFIX)).write_bytes(text)
    assert Store().get(KEY) is None
    assert list(store_folder.iterdir()) == []


def test_an_entry_of_other_columns_is_dropped(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry whose columns have other types than now is not read."""
    other = {**stores.COLUMNS, "device": np.int64}
    with monkeypatch.context() as patch:
        patch.setattr(stores, "COLUMNS", other)
        made = table()
        made.columns["device"] = made.columns["device"].astype(np.int64)
        Store().put(KEY, made, "trace.json")
    assert Store().get(KEY) is None
    assert not (store_folder / (KEY + SUFFIX)).exists()


# -- folders that cannot be used --------------------------------------------------------------


def refuse(number: int) -> Any:
    """A stand-in that fails with an error of the operating system."""

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    "where", ["tempfile.mkstemp", "tracekit.io.store._save", "pathlib.Path.mkdir"]
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_full_or_closed_folder_is_a_reason(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    """When an entry cannot be written the reason is given in words, and no fragment is left."""
    with monkeypatch.context() as patch:
        patch.setattr(where, refuse(number))
        assert Store().put(KEY, table(), "trace.json") == os.strerror(number)
    assert not store_folder.exists() or list(store_folder.iterdir()) == []


def test_a_folder_of_another_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry in a folder that cannot be written is used as it is and stays where it is."""
    made = table()
    Store().put(KEY, made, "trace.json")
    monkeypatch.setattr("os.utime", refuse(errno.EROFS))
    monkeypatch.setattr("pathlib.Path.unlink", refuse(errno.EROFS))
    for _ in range(2):
        found = Store().get(KEY)
        assert found is not None
        assert content(found) == content(made)


def test_a_damaged_entry_that_cannot_be_removed(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage in a folder that cannot be written counts as no entry."""
    store_folder.mkdir()
    (store_folder / (KEY + SUFFIX)).write_bytes(b"damaged")
    monkeypatch.setattr("pathlib.Path.unlink", refuse(errno.EROFS))
    assert Store().get(KEY) is None


def test_a_file_where_the_folder_should_be(store_folder: Path) -> None:
    """A store that is no folder is a reason, not an exception."""
    store_folder.write_bytes(b"")
    assert Store().put(KEY, table(), "trace.json") is not None
    assert Store().get(KEY) is None
    assert stores.entries() == []
    assert stores.clear() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full(store_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space that runs out while an entry is written leaves no entry and a reason."""
    save = stores._save

    def onto_full(_file: Path, made: EventTable, source: str) -> None:
        save(Path("/dev/full"), made, source)

    monkeypatch.setattr(stores, "_save", onto_full)
    large = table()
    large.columns = {key: np.resize(column, 100_000) for key, column in large.columns.items()}
    reason = Store().put(KEY, large, "trace.json")
    assert reason is not None
    assert "space" in reason.lower()
    assert list(store_folder.iterdir()) == []


# -- size -------------------------------------------------------------------------------------


def test_the_least_recently_used_goes_first(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the size cap the entries used longest ago are removed; reading one is using it."""
    store = Store()
    for age, key in enumerate(["d", "c", "b", "a"]):
        store.put(key, table(), f"{key}.json")
        os.utime(store_folder / (key + SUFFIX), (time.time() - age * 100,) * 2)
    assert store.get("a") is not None
    size = (store_folder / ("a" + SUFFIX)).stat().st_size
    monkeypatch.setattr(stores, "MAX_BYTES", int(3.5 * size))
    store.put("e", table(), "e.json")
    left = sorted(f.name.removesuffix(SUFFIX) for f in store_folder.iterdir())
    assert left == ["a", "d", "e"]


def test_the_newest_entry_stays_however_large(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry just written is kept even when it alone is beyond the cap."""
    monkeypatch.setattr(stores, "MAX_BYTES", 1)
    Store().put("a", table(), "a.json")
    os.utime(store_folder / ("a" + SUFFIX), (1, 1))
    Store().put("b", table(), "b.json")
    assert [f.name for f in store_folder.iterdir()] == ["b" + SUFFIX]


def listings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Fills with the folders that are listed."""
    seen: list[Path] = []
    listed = stores._entries_in

    def counted(path: Path) -> list[Path]:
        seen.append(path)
        return listed(path)

    monkeypatch.setattr(stores, "_entries_in", counted)
    return seen


def test_the_folder_is_listed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing many small entries lists the folder once: the cost of one does not grow."""
    seen, store = listings(monkeypatch), Store()
    for at in range(50):
        store.put(f"key{at}", table(), "trace.json")
    assert len(seen) == 1


def test_several_writers_keep_the_cap(store_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that do not know of each other never fill the folder beyond the cap."""
    Store().put("size", table(), "trace.json")
    size = entry(store_folder).stat().st_size
    cap = 100 * size
    monkeypatch.setattr(stores, "MAX_BYTES", cap)
    writers, seen = [Store() for _ in range(8)], listings(monkeypatch)
    for at in range(400):
        writers[at % 8].put(f"key{at}", table(), "trace.json")
        used = sum(file.stat().st_size for file in store_folder.iterdir())
        assert used <= cap + size, at
    assert used > 0.8 * cap
    assert len(seen) < 400


def test_fragments_of_the_dead_are_removed(store_folder: Path) -> None:
    """What a killed writer left goes after an hour; a fragment in the making stays."""
    store_folder.mkdir()
    old, new = store_folder / "old.part", store_folder / "new.part"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 4000,) * 2)
    Store().put(KEY, table(), "trace.json")
    assert (old.exists(), new.exists()) == (False, True)


def test_entries_and_clear(store_folder: Path) -> None:
    """The entries are listed last used first, with source and size; clearing frees all of it."""
    for age, key in enumerate(["a", "b"]):
        Store().put(key, table(), f"{key}.json")
        os.utime(store_folder / (key + SUFFIX), (1000 - age, 1000 - age))
    (store_folder / "x.part").write_bytes(b"12345")
    (store_folder / "other.txt").write_bytes(b"not ours")
    listed = stores.entries()
    assert [(key, source, used) for key, source, _, used in listed] == [
        ("a", "a.json", 1000.0), ("b", "b.json", 999.0),
    ]  # fmt: skip
    assert stores.clear() == sum(size for _, _, size, _ in listed) + 5
    assert [f.name for f in store_folder.iterdir()] == ["other.txt"]
    assert stores.entries() == []


def test_a_temporary_store_leaves_nothing() -> None:
    """A store of one process is elsewhere, and is gone once discarded."""
    store = stores.temporary_store()
    store.put(KEY, table(), "trace.json")
    assert store.get(KEY) is not None
    assert Store().get(KEY) is None
    stores.discard(store)
    assert not store.path.exists()


# -- several processes ------------------------------------------------------------------------

WRITER = """
import sys
from tests.tracekit.io.test_store import KEY, content, table
from tracekit.io.store import Store
made = table(int(sys.argv[1]))
want = [content(table(n)) for n in (40, 41, 42)]
for _ in range(25):
    assert Store().put(KEY, made, "trace.json") is None
    found = Store().get(KEY)
    assert found is not None and content(found) in want
"""


def test_several_processes_write_one_entry(store_folder: Path) -> None:
    """Processes that write and read the same entry at once always see a whole one."""
    home = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(home)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(n)], env=env, cwd=home)
        for n in (40, 41, 42)
    ]
    assert [w.wait(timeout=60) for w in writers] == [0, 0, 0]
    assert [f.name for f in store_folder.iterdir()] == [KEY + SUFFIX]
