"""Near misses: which known word a mistyped one was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to ``word``, or None when nothing is near.

    Examples
    --------
    >>> nearest("exposd", ["exposed", "idle"])
    'exposed'
    """
    hits = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return hits[0] if hits else None
