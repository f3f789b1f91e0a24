"""The command line is a contract: a verb or an option is added or removed only on purpose, here."""

from __future__ import annotations

from tracekit.cli.app import build_app

OPENING = {"--ranks", "--names", "--capture", "--no-store", "--limit-gib"}
OPTIONS = {
    "analyze": OPENING | {"PATHS", "--json", "--steps", "--range", "--fail-on"},
    "check": OPENING | {"PATHS", "--json"},
    "export": OPENING | {"PATHS", "--to", "--out", "-o"},
    "cache": {"--json", "--clear"},
}


def test_verbs_and_options_are_the_agreed_ones() -> None:
    """Scripts rely on these names; a new one is a promise to keep it."""
    app = build_app(with_plugins=False)
    flags = {"--help", "-h", "--version"}
    found = {
        verb: {
            name for argument in app[verb].assemble_argument_collection() for name in argument.names
        }
        for verb in app
        if verb not in flags
    }
    assert found == OPTIONS
