"""Names of entries: the same content has the same name, anything that matters gives another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.builder import Kineto
from tracekit.io import identity
from tracekit.io.identity import get_result, key_of, put_result, result_key
from tracekit.io.sources import Limits, Source

LIMITS = Limits()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace in a folder of its own."""
    return Kineto().kernel(0, 5).write(tmp_path / "run" / "rank0.json")


def test_a_moved_file_keeps_its_name(trace: Path) -> None:
    """The folder and the time stamps of a file do not matter: its content is found again."""
    key = key_of(Source(trace), LIMITS)
    elsewhere = trace.parents[1] / "elsewhere" / trace.name
    elsewhere.parent.mkdir()
    trace.rename(elsewhere)
    os.utime(elsewhere, (1, 1))
    assert key_of(Source(elsewhere), LIMITS) == key


def test_whatever_matters_changes_the_name(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of content, the last part of the name, a limit, the format: each makes it another."""
    keys = [key_of(Source(trace), LIMITS), key_of(Source(trace), Limits(unpacked_bytes=1 << 20))]
    keys.append(key_of(Source(trace, "member"), LIMITS))
    other = trace.with_name("rank1.json")
    other.write_bytes(trace.read_bytes())
    keys.append(key_of(Source(other), LIMITS))
    trace.write_bytes(trace.read_bytes().replace(b"gemm", b"gemv"))
    keys.append(key_of(Source(trace), LIMITS))
    monkeypatch.setattr(identity, "FORMAT", 99)
    keys.append(key_of(Source(trace), LIMITS))
    assert len(set(keys)) == len(keys)


def test_a_changed_reader_changes_the_name(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry made by other code is not found: every module that decodes counts."""
    before = key_of(Source(trace), LIMITS)
    monkeypatch.setattr(identity, "_readers", lambda: b"other code")
    assert key_of(Source(trace), LIMITS) != before
    folder = Path(identity.__file__).parent
    assert all((folder / name).is_file() for name in identity._READERS)
    assert {
        "boundaries.py",
        "columns.py",
        "jsontext.py",
        "kineto.py",
        "repair.py",
        "table.py",
    } <= set(identity._READERS)


def test_large_files_are_sampled(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size the name comes from samples and the time of the last change."""
    monkeypatch.setattr(identity, "HASH_ALL_BYTES", 100)
    monkeypatch.setattr(identity, "_SAMPLE_BYTES", 8)
    before = key_of(Source(trace), LIMITS)
    assert key_of(Source(trace), LIMITS) == before
    os.utime(trace, (1, 1))
    assert key_of(Source(trace), LIMITS) != before


def test_a_file_that_is_gone_has_no_name(trace: Path) -> None:
    """Without the file there is no name: an error of the system, or None for an answer."""
    trace.unlink()
    with pytest.raises(FileNotFoundError):
        key_of(Source(trace), LIMITS)
    assert result_key([Source(trace)], LIMITS) is None


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """A file whose name is no UTF-8 has names like others."""
    path = tmp_path / os.fsdecode(b"rank\xff.json")
    path.write_bytes(Kineto().kernel(0, 5).text())
    assert key_of(Source(path), LIMITS)
    assert result_key([Source(path)], LIMITS, "question")


def test_an_answer_is_kept_by_question(trace: Path) -> None:
    """An answer comes back for the same files and question, and for no other."""
    key = result_key([Source(trace)], LIMITS, "steps", "1:2")
    other = result_key([Source(trace)], LIMITS, "steps", "1:3")
    assert key
    assert other not in (None, key)
    assert get_result(key) is None
    put_result(key, b'{"a": 1}')
    assert get_result(key) == b'{"a": 1}'
    assert get_result(other or "") is None


def test_half_an_answer_is_none(store_folder: Path) -> None:
    """An answer that was cut on the disk is not given out."""
    put_result("k", b'{"a": 1}')
    (file,) = store_folder.iterdir()
    file.write_bytes(b'{"a": ')
    assert get_result("k") is None


@pytest.mark.parametrize("text", [b"{}", b"", b'{"a": 2}', b"\n{}", b"\xff\0"])
def test_something_else_in_its_place_is_none(store_folder: Path, text: bytes) -> None:
    """A file that no answer was written to, or that has changed, is removed and counts as none."""
    put_result("k", b'{"a": 1}')
    (file,) = store_folder.iterdir()
    file.write_bytes(text)
    assert get_result("k") is None
    assert list(store_folder.iterdir()) == []


def test_an_answer_is_tied_to_its_name(store_folder: Path) -> None:
    """An answer that was given another's name is none, and so is one with a changed byte."""
    put_result("k", b'{"a": 1}')
    (file,) = store_folder.iterdir()
    whole = file.read_bytes()
    (store_folder / ("other" + identity.RESULT_SUFFIX)).write_bytes(whole)
    assert get_result("other") is None
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert get_result("k") is None


def test_an_answer_in_a_closed_folder_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time of use cannot be written, the answer is good all the same."""
    put_result("k", b'{"a": 1}')

    def refuse(*_args: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.utime", refuse)
    assert get_result("k") == b'{"a": 1}'


def test_an_answer_that_cannot_be_kept_is_lost_quietly(store_folder: Path) -> None:
    """Where the store cannot be written, nothing is kept and nothing is raised."""
    store_folder.write_bytes(b"a file in the place of the folder")
    put_result("k", b"{}")
    assert get_result("k") is None
