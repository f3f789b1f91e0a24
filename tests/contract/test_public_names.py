"""The Python interface is a contract: a name is added or removed only on purpose, here."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import tracekit

PUBLIC = {
    "NoTraceError",
    "Note",
    "ReadError",
    "Run",
    "Trace",
    "TracekitError",
    "UsageError",
    "__version__",
    "from_pipit",
    "open",
}
RUN = {
    "breakdown",
    "clocks",
    "collective_members",
    "collectives",
    "document",
    "export",
    "findings",
    "groups",
    "kernels",
    "lanes",
    "notes",
    "operations",
    "ops",
    "phases",
    "ranks",
    "steps",
    "stragglers",
    "timeline",
    "to_pipit",
    "trace",
    "world_size",
}
OPEN = ["paths", "names", "ranks", "capture", "store", "limit_gib", "progress"]


def test_all_is_the_agreed_set() -> None:
    """Scripts rely on these names; a new one is a promise to keep it."""
    assert set(tracekit.__all__) == PUBLIC
    assert len(tracekit.__all__) == len(PUBLIC)
    assert dir(tracekit) == sorted(PUBLIC)


def test_module_holds_what_all_names_and_nothing_else() -> None:
    """Every name of `__all__` is there, and no public name besides (sub-packages apart)."""
    for name in tracekit.__all__:
        assert getattr(tracekit, name) is not None
    held = {
        name
        for name, value in vars(tracekit).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert held - {"annotations", "TYPE_CHECKING"} == PUBLIC - {"__version__"}


def test_star_import_gives_the_same_names() -> None:
    """``from tracekit import *`` works although the names are imported late."""
    given: dict[str, object] = {}
    exec("from tracekit import *", given)  # noqa: S102  # the statement itself is tested
    assert given.keys() >= PUBLIC
    assert given["open"] is tracekit.open


def test_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as it does in any module."""
    with pytest.raises(AttributeError, match="module 'tracekit' has no attribute 'opn'"):
        tracekit.opn  # noqa: B018  # the access itself is tested


def test_run_has_the_agreed_methods() -> None:
    """What a `Run` can be asked is agreed, and each answer is explained."""
    public = {name for name in dir(tracekit.Run) if not name.startswith("_")}
    assert public == RUN
    for name in public:
        assert inspect.getdoc(getattr(tracekit.Run, name))


def test_open_has_the_agreed_arguments() -> None:
    """Arguments of `open` are agreed; all but the paths are given by name."""
    parameters = inspect.signature(tracekit.open).parameters
    assert list(parameters) == OPEN
    kinds = {p.kind for name, p in parameters.items() if name != "paths"}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


HEAVY = {"numpy", "pandas", "pyarrow", "plotly", "msgspec", "torch", "dash"}
SCRIPT = "import sys; {}; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a statement loads in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(statement)], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import tracekit", "from tracekit import TracekitError"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    """Importing tracekit, or an error of it, loads no package that takes long."""
    loaded = loaded_by(statement)
    assert "tracekit" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_analysis_without_a_frame_loads_no_pandas() -> None:
    """The document of a run needs neither pandas nor plotly."""
    statement = "import tracekit; tracekit.open('sample_traces/ddp_4', store=False).document()"
    assert loaded_by(statement).isdisjoint({"pandas", "plotly"})
