"""The command serves what it is given, and says in one line what is wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboards import command, server

ROOT = Path(__file__).resolve().parents[2]
RUN = "import sys; from dashboards.command import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server of its own on a free port, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    assert process.stderr
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()
        process.stderr.close()


def test_it_prints_its_address_and_serves_there(samples: Path) -> None:
    """The address on standard output answers; an interrupt ends it without a word."""
    with serving(str(samples), "--base-path", "proxy/1") as (url, process):
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/proxy/1/")
        with urllib.request.urlopen(url) as reply:  # noqa: S310 - it is our own
            assert reply.status == 200
    assert process.returncode == 0


def test_a_port_in_use_is_one_line(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another server on the port: status 2, which port, and the way out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status = command.main([str(samples), "--port", str(port), "--no-browser"])
    said = capsys.readouterr()
    assert status == 2
    assert said.out == ""
    assert said.err == (
        f"tracekit: port {port} is in use; stop what uses it, or give another with --port "
        "(0 takes any free one)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        ([], "no run to show"),
        (["sample_traces", "--port", "70000"], "--port 70000 is no port"),
        (["sample_traces", "--port", "x"], "'tracekit dashboard --help' shows what there is"),
        (["sample_traces", "--nope"], "--nope"),
        (["sample_traces", "--base-path", "a/../b"], "--base-path 'a/../b' is no path"),
        (["sample_traces", "--host", "no.such.host.invalid"], "is no address here"),
    ],
)
def test_bad_use_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong with the call is one line on standard error and status 2."""
    assert command.main(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_help_says_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The help lists the options, needs no run, and ends with 0."""
    assert command.main(["--help"]) == 0
    told = capsys.readouterr().out
    for option in ("--host", "--port", "--base-path", "--watch", "--no-browser", "--allow-host"):
        assert option in told


def test_what_is_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without dash the command names it and how to install it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert command.main(["sample_traces"]) == 2
    assert capsys.readouterr().err == (
        "tracekit: the dashboard needs dash; install it with: "
        "pip install 'tracekit-torch[dashboard]'\n"
    )


@pytest.mark.parametrize(
    ("values", "platform", "is_there"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "w"}, "linux", True),
        ({}, "linux", False),
        ({}, "darwin", True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, "linux", False),
        ({"SSH_TTY": "x"}, "darwin", False),
    ],
)
def test_a_browser_opens_on_a_desktop_only(
    values: dict[str, str], platform: str, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither over SSH nor without a display is a browser looked for."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert server.has_desktop() is is_there
