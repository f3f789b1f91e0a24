"""The command line is a contract: verbs, options and exit statuses change only on purpose, here."""

from __future__ import annotations

from cyclopts import App

from tracekit.cli.app import build_app
from tracekit.cli.commands import FINE, INCOMPLETE, UNSOUND

OPENING = {"--ranks", "--names", "--capture", "--no-store", "--limit-gib"}
OPTIONS = {
    "analyze": OPENING | {"PATHS", "--json", "--steps", "--range", "--fail-on"},
    "check": OPENING | {"PATHS", "--json"},
    "report": OPENING | {"PATHS", "--out", "-o"},
    "export": OPENING | {"PATHS", "--to", "--out", "-o"},
    "cache": {"--json", "--clear"},
}


def names(app: App) -> set[str]:
    """All names an app's arguments go by; ``*`` stands for options that several verbs share."""
    arguments = app.assemble_argument_collection()
    return {name for argument in arguments for name in argument.names} - {"*"}


def test_verbs_and_options_are_the_agreed_ones() -> None:
    """Scripts rely on these names; a new one is a promise to keep it."""
    app = build_app(with_plugins=False)
    flags = {"--help", "-h", "--version"}
    assert {verb: names(app[verb]) for verb in app if verb not in flags} == OPTIONS


def test_check_says_how_it_ends() -> None:
    """Scripts rely on the exit statuses of check, so its help names them."""
    told = " ".join(build_app(with_plugins=False)["check"].help.split())
    assert "0 when they are sound, 1 when there is a warning, 3 when a file cannot be read" in told
    assert (FINE, UNSOUND, INCOMPLETE) == (0, 1, 3)
