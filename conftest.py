"""For the examples in docstrings: a store of their own, so that the user's cache is not touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _store_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what examples read out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEKIT_CACHE", str(tmp_path_factory.mktemp("store-of-examples")))
        yield
