"""What a path stands for, in which order, and what is told of all that is passed over."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from pathlib import Path

import pytest

from tests.builder import Kineto
from tracekit.core.errors import LimitError, NoTraceError, ReadError, TracekitError, UsageError
from tracekit.io.finding import discard_spooled, find, is_pipe, natural_key
from tracekit.io.sources import Limits, Source

TEXT = Kineto().kernel(0, 5).text()
MANY = Limits()


def names(found: list[Source]) -> list[str]:
    """Last parts of the sources' names."""
    return [s.name for s in found]


# -- which files ------------------------------------------------------------------------------


def test_numbers_sort_as_numbers() -> None:
    """Rank 2 comes before rank 10, however the numbers are written."""
    ranks = ["rank10", "rank2", "rank1", "rank02b", "a", "rank"]
    assert sorted(ranks, key=natural_key) == ["a", "rank", "rank1", "rank02b", "rank2", "rank10"]


def test_a_folder_is_searched_in_natural_order(tmp_path: Path) -> None:
    """A folder gives the files of all its folders; hidden ones are left.

    So is what lies too deep, which is told.
    """
    for name in ("r10/t.json", "r2/t.json", "r2/a.json", ".hidden/t.json", "r2/.t.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "t.json").write_bytes(TEXT)
    (deep.parents[1] / "t.json").write_bytes(TEXT)
    found, notes = find([str(tmp_path)])
    shown = [str(s.path.relative_to(tmp_path)) for s in found]
    assert shown == ["a/b/c/d/e/f/t.json", "r2/a.json", "r2/t.json", "r10/t.json"]
    assert [(n.code, n.severity) for n in notes] == [("deep-folders", "warning")]
    assert "1 folder (a/b/c/d/e/f/g) deeper than 6 levels not searched" in notes[0].text


def test_a_given_file_is_the_only_one(tmp_path: Path) -> None:
    """Asked for one file of a folder, no other is looked at."""
    for name in ("kineto.0.json", "kineto.1.json", "et.0.json"):
        (tmp_path / name).write_bytes(TEXT)
    assert names(find([str(tmp_path / "kineto.0.json")])[0]) == ["kineto.0.json"]


def test_patterns_and_repeated_paths(tmp_path: Path) -> None:
    """A pattern gives its hits in natural order; a file named twice is one source."""
    for name in ("a10.json", "a9.json", "b.json"):
        (tmp_path / name).write_bytes(TEXT)
    paths = [str(tmp_path / "a*.json"), str(tmp_path / "a9.json"), str(tmp_path / "**" / "b.json")]
    assert names(find(paths)[0]) == ["a9.json", "a10.json", "b.json"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("traec.json", r"no such file or folder; did you mean .*trace\.json"),
        ("zzzzz", "no such file or folder; check the path"),
        ("x*.json", "pattern matches nothing"),
        ("empty", "no file found; give a trace or a folder"),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, path: str, words: str) -> None:
    """A path that leads nowhere is one line that names it, with the nearest name there is."""
    (tmp_path / "trace.json").write_bytes(TEXT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoTraceError, match=words) as caught:
        find([str(tmp_path / path)])
    assert str(tmp_path / path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    """A link out of the folder is left out and told; one that stays inside is read."""
    (tmp_path / "secret.json").write_bytes(TEXT)
    run = tmp_path / "run"
    run.mkdir()
    (run / "trace.json").write_bytes(TEXT)
    (run / "out.json").symlink_to(tmp_path / "secret.json")
    (run / "in.json").symlink_to("trace.json")
    (run / "dangling.json").symlink_to("nowhere")
    (run / "folder").symlink_to(tmp_path, target_is_directory=True)
    found, notes = find([str(run)])
    assert names(found) == ["in.json", "trace.json"]
    told = [(n.code, n.file) for n in notes]
    assert told == [
        ("outside-folder", str(run / "folder")),
        ("outside-folder", str(run / "out.json")),
        ("no-file", str(run)),
    ]
    assert "out.json" in notes[1].text
    assert "1 entry (dangling.json) not read" in notes[2].text


def test_links_to_folders_inside_are_told(tmp_path: Path) -> None:
    """A folder that is linked to from beside it is read once, under its own name."""
    (tmp_path / "run1").mkdir()
    (tmp_path / "run1" / "trace.json").write_bytes(TEXT)
    (tmp_path / "latest").symlink_to("run1", target_is_directory=True)
    (tmp_path / "run1" / "loop").symlink_to("..", target_is_directory=True)
    found, notes = find([str(tmp_path)])
    assert [s.label for s in found] == [str(tmp_path / "run1" / "trace.json")]
    assert [(n.code, n.severity) for n in notes] == [("folder-link", "info")]
    assert notes[0].text == "2 links (latest and others) to folders inside not followed"


def test_pipes_and_sockets_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would block when opened is not taken for a file of a folder or pattern, and is told."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "trace.json").write_bytes(TEXT)
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s.json")
        for given in (str(tmp_path), "*.json"):
            found, notes = find([given])
            assert names(found) == ["trace.json"]
            assert [(n.code, n.severity) for n in notes] == [("no-file", "info")]
            assert "2 entries (pipe.json and others) not read" in notes[0].text


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs another user to be")
@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_a_closed_folder_is_told(mode: int) -> None:
    """A folder that cannot be searched, or whose files cannot be opened, costs only itself."""
    home = Path(tempfile.mkdtemp())  # the test's own lies below one that others cannot enter
    try:
        for name in ("a", "closed", "z"):
            Kineto().kernel(0, 5).write(home / name / "t.json")
        (home / "closed" / "in").mkdir()
        home.chmod(0o755)
        (home / "closed").chmod(mode)
        script = (
            "import os, sys\n"
            "from tracekit.io.finding import find\n"
            "from tracekit.io.sources import Limits\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "found, notes = find([sys.argv[1]])\n"
            "print([(n.code, n.severity, os.path.relpath(n.file, sys.argv[1])) for n in notes])\n"
            "for s in found:\n"
            "    try: print(s.name, len(s.head(Limits())) > 0)\n"
            "    except Exception as e: print(e.what)\n"
        )
        command = [sys.executable, "-c", script, str(home)]
        sources = Path(__file__).parents[3]
        done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=True)
    finally:
        subprocess.run(["/bin/rm", "-rf", str(home)], check=True)
    inside = "closed/in" if mode == 0o444 else "closed"
    expected = [f"[('unreadable-folder', 'error', '{inside}')]", "t.json True", "t.json True"]
    if mode == 0o444:  # its files are listed, and reading one says what is wrong
        expected.insert(2, "cannot be opened (Permission denied)")
    assert done.stdout.splitlines() == expected


def test_a_folder_that_cannot_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be listed is a note where there is something else, else an error."""
    for name in ("a", "closed"):
        Kineto().kernel(0, 5).write(tmp_path / name / "t.json")
    listed = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found, notes = find([str(tmp_path)])
    assert [s.label for s in found] == [str(tmp_path / "a" / "t.json")]
    text = "this folder cannot be searched (Permission denied); what it holds is missing"
    assert [(n.severity, n.file, n.text) for n in notes] == [
        ("error", str(tmp_path / "closed"), text)
    ]
    with pytest.raises(NoTraceError, match=r"cannot be searched .*check that you may list it"):
        find([str(tmp_path / "closed")])


# -- what is no file --------------------------------------------------------------------------


def test_an_empty_path_is_refused() -> None:
    """An empty path is not taken for the current folder."""
    with pytest.raises(UsageError, match="one of the paths is empty; give a trace, or a folder"):
        find([""])


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs devices")
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_devices_are_refused(path: str) -> None:
    """A device, which may never end, is refused in a line that says what can be given."""
    with pytest.raises(TracekitError, match=r"a device, where a file is needed; .*<\(command\)"):
        find([path])


def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    """A named pipe, to which nobody may ever write, is refused at once."""
    os.mkfifo(tmp_path / "pipe")
    assert is_pipe(str(tmp_path / "pipe"))
    with pytest.raises(TracekitError, match="a named pipe, where a file is needed"):
        find([str(tmp_path / "pipe")])


def piped(text: bytes) -> str:
    """A path like that of ``<(command)``, whose command writes the text."""
    read, write = os.pipe()

    def fill() -> None:
        with open(write, "wb") as pipe:
            pipe.write(text)

    threading.Thread(target=fill, daemon=True).start()
    return f"/dev/fd/{read}"


fd = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")


@fd
def test_a_pipe_of_the_shell_is_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pipe brings can be read as often as needed, and is gone once discarded."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    large = TEXT + b" " * 300_000  # more than a pipe holds
    given = [piped(large), piped(TEXT)]
    found, notes = find(given)
    assert notes == []
    assert [s.label for s in found] == given
    assert [b"".join(s.blocks(MANY)) for s in (*found, *found)] == [large, TEXT] * 2
    discard_spooled(found)
    assert list(tmp_path.iterdir()) == []


@fd
def test_a_pipe_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that brings more than the limit is refused, and nothing is left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(find([piped(bytes(5000))], Limits(5000))[0]) == 1
    with pytest.raises(LimitError, match=r"brings more than the limit of 4\.65661e-06 GiB"):
        find([piped(TEXT), piped(bytes(5001))], Limits(5000))
    assert len(list(tmp_path.iterdir())) == 1  # that of the first call


@fd
def test_a_pipe_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place for a temporary file the error says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ReadError, match=r"temporary file .*; free some space, or let TMPDIR"):
        find([piped(TEXT)])


# -- archives ---------------------------------------------------------------------------------


def test_a_zip_holds_several_traces(tmp_path: Path) -> None:
    """Each file of an archive is a source of its own, named after archive and member."""
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (
            "run/rank10.json",
            "run/rank2.json",
            "__MACOSX/._x",
            "run/.DS_Store",
            "run/d/",
        ):
            archive.writestr(name, b"" if name.endswith("/") else TEXT)
    found, _ = find([str(path)])
    assert names(found) == ["rank2.json", "rank10.json"]
    assert found[0].label == f"{path}!run/rank2.json"
    assert [b"".join(s.blocks(MANY)) for s in found] == [TEXT, TEXT]


def test_members_of_one_name_are_told(tmp_path: Path) -> None:
    """Of several members of one name the last is read, which is told."""
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in (b"first", TEXT):
            archive.writestr("rank0.json", text)
    found, notes = find([str(path)])
    assert [b"".join(s.blocks(MANY)) for s in found] == [TEXT]
    assert [(n.code, n.severity) for n in notes] == [("same-member-twice", "warning")]
    assert "holds rank0.json 2 times; only the last of them was read" in notes[0].text


def test_of_a_run_folder_the_traces_are_taken(tmp_path: Path) -> None:
    """A run folder's settings, metrics and checkpoints are no traces; nothing is said of them."""
    (tmp_path / "traces").mkdir()
    for name in ("run.json", "metrics.jsonl", "traces/rank00000.pt.trace.json.gz"):
        (tmp_path / name).write_text("{}")
    sources, notes = find([str(tmp_path)])
    assert [s.path.name for s in sources] == ["rank00000.pt.trace.json.gz"]
    assert notes == []
