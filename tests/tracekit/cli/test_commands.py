"""Promises of the verbs: what they pass on, what they print where, and how they end."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tracekit.cli.conftest import Analysis, Outcome
from tests.tracekit.report.documents import document_of, rank
from tracekit.cli.app import main
from tracekit.core.errors import Note, NoTraceError, ReadError

Tracekit = Callable[..., Outcome]
ERROR = {"code": "truncated", "severity": "error", "file": "b", "text": "cut"}


def strict(text: str) -> Any:
    """The one JSON document in ``text``; NaN and infinity are no JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_analyze_prints_tables_on_stdout(analysis: Analysis, tracekit: Tracekit) -> None:
    """Without --json the tables go to stdout and stderr stays empty."""
    done = tracekit("analyze", "a", "b")
    assert (done.status, done.err) == (0, "")
    assert "Where the time goes" in done.out
    assert analysis.paths == ["a", "b"]


def test_options_reach_the_reader(analysis: Analysis, tracekit: Tracekit) -> None:
    """Options may stand before, between and after the paths."""
    argv = "analyze --ranks 0,2-3 a --names n.toml --capture 1 b --no-store --limit-gib 0.5 --json"
    done = tracekit(*argv.split(), "--steps", "5:8", "--range=-1:4", "c")
    assert done.status == 0
    assert analysis.paths == ["a", "b", "c"]
    assert analysis.window == ((5, 8), (-1.0, 4.0))
    options = analysis.options
    assert options is not None
    assert (options.names, options.ranks, options.capture) == ("n.toml", {0, 2, 3}, 1)
    assert (options.store, options.progress) == (False, None)
    assert options.limits.unpacked_bytes == 1 << 29


def test_defaults(analysis: Analysis, tracekit: Tracekit) -> None:
    """Without options everything is read, and kept in the cache folder."""
    tracekit("analyze", "a")
    options = analysis.options
    assert options is not None
    assert (options.names, options.ranks, options.capture, options.store) == (
        None,
        None,
        None,
        True,
    )
    assert options.limits.unpacked_bytes >= 1 << 30
    assert analysis.window == (None, None)


def test_json_is_one_document_and_nothing_else(analysis: Analysis, tracekit: Tracekit) -> None:
    """Stdout holds exactly the document; what is no number is null."""
    analysis.document = document_of(
        [rank(0, overlap_frac=float("nan"), host="caf\u00e9", pid=2**64 - 1)]
    )
    done = tracekit("analyze", "a", "--json")
    assert (done.status, done.err) == (0, "")
    read = strict(done.out)
    assert read["ranks"][0]["overlap_frac"] is None
    assert (read["ranks"][0]["host"], read["ranks"][0]["pid"]) == ("caf\u00e9", 2**64 - 1)
    assert read["ranks"][0]["window_us"] == 3000.0


@pytest.mark.parametrize(
    ("value", "read"), [("rank\udcff.json", "rank?.json"), (2**80, 2**80)], ids=["name", "id"]
)
def test_json_survives_odd_values(
    analysis: Analysis, tracekit: Tracekit, value: object, read: object
) -> None:
    """A file name that is not UTF-8 and an id beyond 64 bits still give JSON."""
    analysis.document = document_of([rank(0, file=value)])
    assert strict(tracekit("analyze", "a", "--json").out)["ranks"][0]["file"] == read


def test_crossed_threshold_ends_with_1(analysis: Analysis, tracekit: Tracekit) -> None:
    """The result is printed all the same; each crossed threshold is one line on stderr."""
    argv = ("--fail-on", "exposed=33.4%", "--fail-on", "idle=30%", "--fail-on", "exposed_wait=20")
    done = tracekit("analyze", "a", "--json", *argv)
    assert done.status == 1
    assert strict(done.out) == analysis.document
    assert done.err.splitlines() == [
        "tracekit: idle is 33.33 % of the window, above 30 %",
        "tracekit: exposed_wait is 25 % of the window, above 20 %",
    ]


def test_unreadable_file_ends_with_3(analysis: Analysis, tracekit: Tracekit) -> None:
    """An error among the notes means that some file is missing from the result."""
    analysis.document = document_of([rank(0)], notes=[ERROR])
    assert tracekit("analyze", "a").status == 3
    assert tracekit("analyze", "a", "--fail-on", "idle=90%").status == 3
    assert tracekit("analyze", "a", "--fail-on", "idle=10%").status == 1
    analysis.document = document_of([rank(0)], notes=[ERROR | {"severity": "warning"}])
    assert tracekit("analyze", "a").status == 0


def test_threshold_without_its_figure_ends_with_2(analysis: Analysis, tracekit: Tracekit) -> None:
    """A gate on a figure that was not recorded fails, after the result was printed."""
    analysis.document = document_of([rank(0, idle_us=None)])
    done = tracekit("analyze", "a", "--json", "--fail-on", "idle=10%")
    assert done.status == 2
    assert strict(done.out)["totals"]["idle_us"] is None
    assert done.err == "tracekit: --fail-on idle: this fraction is not known from these traces\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("analyze", "analyze needs a path"),
        ("check --json", "check needs a path"),
        ("export --to csv -o x", "export needs a path"),
        ("analyze a --ranks x", "--ranks x: 'x' is no rank"),
        ("analyze a --steps 8:5", "--steps 8:5: the last step lies before the first"),
        ("analyze a --range 1", "--range 1 is no time range"),
        ("analyze a --fail-on idl=3%", "did you mean idle?"),
        ("analyze a --limit-gib 0", "--limit-gib 0 is no size"),
        ("analyze a --limit-gib x", "invalid value for --limit-gib"),
        ("analyze a --capture x", "--capture x is no whole number"),
        ("analyze a --capture 1.5", "--capture 1.5 is no whole number"),
        ("export a --to csv -o=", "--out is empty; name the folder or file to write"),
        ("analyze a --capture 0", "--capture 0: captures are numbered from 1"),
        ("analyze a --jsn", "unknown option: --jsn. Did you mean --json?"),
        ("analyze a --json --json", "--json specified multiple times"),
        ("analyze a --steps", "--steps needs a value; 'tracekit analyze --help'"),
        ("export a --to cvs -o x", 'Did you mean "csv"?'),
        ("export a -o x", "export needs --to; 'tracekit export --help'"),
        ("export a --to csv", "export needs --out"),
        ("cache a", "'a' is one argument too many"),
        ("analyse a", 'unknown command "analyse". Did you mean "analyze"?'),
        ("--jsn", "unknown option --jsn"),
        ("/", "'/' is no command; try 'tracekit analyze /'"),
    ],
)
@pytest.mark.usefixtures("analysis")
def test_bad_use_is_one_line(tracekit: Tracekit, argv: str, words: str) -> None:
    """Bad use ends with 2 and one line that says what to do; nothing on stdout."""
    done = tracekit(*argv.split())
    assert done.status == 2
    assert words in done.complaint()


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (
            NoTraceError("no trace found", where="/runs/x", hint="name a folder"),
            2,
            "/runs/x: no trace found; name a folder",
        ),
        (ReadError("ends\n\x1b[31mearly", where="r0"), 2, "r0: ends  [31mearly"),
        (PermissionError(13, "Permission denied", "/x"), 2, "/x: Permission denied"),
        (MemoryError(), 2, "out of memory; open fewer ranks at once with --ranks"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ZeroDivisionError("x"),
            70,
            "a defect of tracekit (ZeroDivisionError: x), please report it with TRACEKIT_DEBUG=1",
        ),
    ],
)
def test_failures_are_one_line(
    analysis: Analysis, tracekit: Tracekit, error: BaseException, status: int, line: str
) -> None:
    """Whatever goes wrong, the user gets one line and a status that tells the kinds apart."""
    analysis.error = error
    done = tracekit("analyze", "a", "--json")
    assert (done.status, done.complaint()) == (status, line)


def test_debug_shows_the_traceback(
    analysis: Analysis, tracekit: Tracekit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRACEKIT_DEBUG=1 adds the traceback before the line."""
    monkeypatch.setenv("TRACEKIT_DEBUG", "1")
    analysis.error = ZeroDivisionError("x")
    done = tracekit("analyze", "a")
    assert done.err.startswith("Traceback")
    assert done.err.splitlines()[-1].startswith("tracekit: a defect")


def test_check_joins_reading_and_checking(analysis: Analysis, tracekit: Tracekit) -> None:
    """Notes of the reading and of the check are shown once each; an error ends with 3."""
    clock = Note("clock", "clocks disagree")
    analysis.run.notes = [Note("truncated", "cut", "error", "b"), clock]
    analysis.checked = [clock]
    done = tracekit("check", "a", "--json")
    assert done.status == 3
    assert strict(done.out) == {
        "schema": "tracekit.check/1",
        "sound": False,
        "notes": [ERROR, {"code": "clock", "severity": "warning", "file": "", "text": clock.text}],
    }
    assert tracekit("check", "a").out.startswith("not sound: 1 error, 1 warning\n")


def test_check_of_a_sound_trace(analysis: Analysis, tracekit: Tracekit) -> None:
    """Remarks for information leave a trace sound."""
    analysis.checked = [Note("rank-from-name", "rank 3 from the file name", "info")]
    done = tracekit("check", "a")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("sound: 1 remark\n")
    assert "rank-from-name" in done.out
    analysis.checked = []
    assert tracekit("check", "a").out == "sound: nothing to remark\n"


def test_check_of_an_unsound_trace_ends_with_1(analysis: Analysis, tracekit: Tracekit) -> None:
    """A warning makes a script stop, in words and as JSON; an unreadable file outweighs it."""
    analysis.checked = [Note("clock", "clocks disagree", "warning")]
    assert tracekit("check", "a").status == 1
    done = tracekit("check", "a", "--json")
    assert (done.status, done.err, strict(done.out)["sound"]) == (1, "", False)
    analysis.checked.append(Note("truncated", "cut", "error", "b"))
    assert tracekit("check", "a").status == 3


def test_export_prints_what_it_wrote(analysis: Analysis, tracekit: Tracekit) -> None:
    """The files written are listed on stdout, one a line."""
    analysis.exported = [Path("x/ranks.csv"), Path("x/steps.csv")]
    done = tracekit("export", "a", "--to", "csv", "-o", "x")
    assert (done.status, done.out) == (0, "x/ranks.csv\nx/steps.csv\n")
    assert analysis.export_call == ("csv", Path("x"))


def test_cache_lists_and_clears(analysis: Analysis, tracekit: Tracekit) -> None:
    """`cache` shows what is kept; --clear removes it and says how much was freed."""
    analysis.entries = [("k", "/runs/a", 4096, 1e9)]
    shown = strict(tracekit("cache", "--json").out)
    entry = {"key": "k", "source": "/runs/a", "bytes": 4096, "last_used_unix": 1e9}
    assert shown == {
        "schema": "tracekit.cache/1",
        "folder": "/cache",
        "entries": [entry],
        "freed_bytes": None,
    }
    assert analysis.cleared == 0
    done = tracekit("cache", "--clear")
    assert (done.status, done.out) == (0, "freed 4.1 kB\nnothing kept in /cache\n")
    assert analysis.cleared == 1


@pytest.mark.parametrize("argv", [["--help"], [], ["analyze", "--help"], ["--version"]])
def test_help_and_version_are_data(tracekit: Tracekit, argv: list[str]) -> None:
    """Asking for help or the version succeeds and answers on stdout."""
    done = tracekit(*argv)
    assert (done.status, done.err) == (0, "")
    assert "tracekit" in done.out


@pytest.mark.parametrize(
    "argv", [["analyze", "a"], ["analyze", "a", "--json"], ["--help"], ["--version"]]
)
def test_closed_pipe_is_quiet(
    analysis: Analysis,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
) -> None:
    """A reader that went away ends the command without a word."""
    analysis.document = document_of([rank(0), rank(1)])
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        status = main(argv)
    assert status == 141
    assert capfd.readouterr().err == ""


def test_closed_stdout_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process started without a standard output is told so."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["--help"]) == 2
    assert capfd.readouterr().err.startswith("tracekit: standard output is closed")


def test_output_without_a_terminal_has_no_colour(analysis: Analysis, tracekit: Tracekit) -> None:
    """Nothing the command writes into a pipe is an escape sequence."""
    analysis.document = document_of([rank(0)], notes=[ERROR])
    assert not re.search("\x1b", tracekit("analyze", "a").out)
    assert not re.search("\x1b", tracekit("--help").out)
