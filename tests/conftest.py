"""What all tests share: a store of their own, and the corpus of real and hand-made traces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's cache out of reach: each test has a store of its own, empty at first."""
    folder = tmp_path / "store-of-this-test"
    monkeypatch.setenv("TRACEKIT_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder that holds ``traces/`` and ``cases/``."""
    given = os.environ.get("TRACEKIT_CORPUS")
    if not given:
        pytest.skip(
            "the corpus is absent: set TRACEKIT_CORPUS to the folder with traces/ and cases/"
        )
    folder = Path(given)
    assert (folder / "cases").is_dir(), f"TRACEKIT_CORPUS={given} has no cases/"
    assert (folder / "traces").is_dir(), f"TRACEKIT_CORPUS={given} has no traces/"
    return folder
