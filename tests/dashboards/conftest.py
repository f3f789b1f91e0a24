"""What the dashboard's tests share: they skip, saying so, where dash is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

NEEDED = ("dash", "dash_ag_grid", "dash_mantine_components", "waitress")
ABSENT = [name for name in NEEDED if importlib.util.find_spec(name) is None]
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"

collect_ignore_glob = ["test_*.py"] if ABSENT else []


def pytest_report_header() -> str:
    """Say why nothing of the dashboard is tested."""
    return f"dashboard tests left out: {', '.join(ABSENT)} not installed" if ABSENT else ""


@pytest.fixture
def samples() -> Path:
    """The folder of runs that the repository holds."""
    return SAMPLES


@pytest.fixture(scope="session")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the servers of a session share."""
    return tmp_path_factory.mktemp("store-of-dashboards")
