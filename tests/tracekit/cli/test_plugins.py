"""Promises of verbs that other packages bring: loaded only when called, harmless when broken."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from tests.tracekit.cli.conftest import Outcome
from tracekit.cli import plugins

Tracekit = Callable[..., Outcome]
CALLS: list[list[str]] = []
NO_FUNCTION = 5


def fake_verb(argv: list[str]) -> int:
    """A verb of another package: keeps its arguments and ends with 7."""
    CALLS.append(argv)
    return 7


def quiet_verb(argv: list[str]) -> None:
    """A verb that returns nothing."""
    CALLS.append(argv)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that these verbs are installed."""
    CALLS.clear()

    def put(**verbs: str) -> None:
        points = [EntryPoint(name, value, plugins.GROUP) for name, value in verbs.items()]
        monkeypatch.setattr(
            importlib.metadata,
            "entry_points",
            lambda group: [p for p in points if p.group == group],
        )

    return put


def test_verb_gets_its_arguments_untouched(
    installed: Callable[..., None], tracekit: Tracekit
) -> None:
    """Everything after the verb is the verb's own, help and double dashes included."""
    installed(train=f"{__name__}:fake_verb")
    assert tracekit("train", "--help", "--", "-x=1", "a").status == 7
    assert CALLS == [["--help", "--", "-x=1", "a"]]


def test_help_tells_what_a_verb_does(installed: Callable[..., None], tracekit: Tracekit) -> None:
    """The first line of its docstring, or whose it is where that cannot be had."""
    installed(demo=f"{__name__}:quiet_verb", train="absent_package.module:verb")
    shown = tracekit("--help").out
    assert "A verb that returns nothing." in shown
    assert "Provided by absent_package.module." in shown


def test_verb_without_a_status_is_fine(installed: Callable[..., None], tracekit: Tracekit) -> None:
    """Returning nothing is success."""
    installed(demo=f"{__name__}:quiet_verb")
    assert tracekit("demo").status == 0
    assert CALLS == [[]]


def test_own_verbs_cannot_be_replaced(installed: Callable[..., None], tracekit: Tracekit) -> None:
    """A package that calls its verb `analyze` does not get in the way."""
    installed(analyze=f"{__name__}:fake_verb")
    assert "analyze needs a path" in tracekit("analyze").complaint()
    assert CALLS == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module_here:main", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        (f"{__name__}:gone", "AttributeError"),
        (f"{__name__}:NO_FUNCTION", "is no function"),
    ],
)
def test_broken_verb_is_one_line(
    installed: Callable[..., None], tracekit: Tracekit, value: str, words: str
) -> None:
    """A verb that cannot be loaded is named in one line, with where it comes from."""
    installed(train=value)
    done = tracekit("train", "x")
    assert done.status == 2
    assert "the command 'train' cannot be" in done.complaint()
    assert value in done.complaint()
    assert words in done.complaint()


def test_broken_verb_does_not_touch_the_others(
    installed: Callable[..., None], tracekit: Tracekit
) -> None:
    """Help lists installed verbs without loading them, and near misses know them."""
    installed(train="no_such_module_here:main")
    done = tracekit("--help")
    assert (done.status, done.err) == (0, "")
    assert "train" in done.out
    assert 'Did you mean "train"?' in tracekit("trian").complaint()
