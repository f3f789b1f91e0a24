"""Find names by a text or by a pattern, in time that is linear in the names."""

from __future__ import annotations

import numpy as np

from tracekit.core.errors import UsageError, one_line
from tracekit.model.links import Ints
from tracekit.plot.block import NAME_LIMIT

TEXT_LIMIT = 300
#: how much of a name is looked at
LOOKED_AT = 4096


def found_names(names: list[str], text: str, *, regexp: bool) -> tuple[Ints, list[str]]:
    """Numbers of the names that match, and those names as blocks show them.

    Parameters
    ----------
    names : list of str
    text : str
        Found anywhere in a name, upper and lower case alike; an empty one matches nothing.
    regexp : bool
        Whether the text is a pattern, for RE2: without look-around and back-references, and
        without patterns that take for ever.

    Raises
    ------
    UsageError
        When the pattern is none, or too long.

    Examples
    --------
    >>> found_names(["gemm", "ncclDevKernel_AllReduce"], "allr", regexp=False)
    (array([1]), ['ncclDevKernel_AllReduce'])
    """
    if not text:
        return np.empty(0, dtype=np.int64), []
    if len(text) > TEXT_LIMIT:
        raise UsageError(f"a search text of {len(text)} characters; {TEXT_LIMIT} are allowed")
    shortened = [name[:LOOKED_AT] for name in names]
    hits = _by_pattern(shortened, text) if regexp else _by_text(shortened, text)
    return hits, [one_line(names[i], NAME_LIMIT) for i in hits.tolist()]


def _by_text(names: list[str], text: str) -> Ints:
    wanted = text.casefold()
    return np.array([i for i, n in enumerate(names) if wanted in n.casefold()], dtype=np.int64)


def _by_pattern(names: list[str], pattern: str) -> Ints:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.array([n.encode("utf-8", "replace").decode() for n in names], pa.string())
    try:
        hits = pc.match_substring_regex(column, pattern, ignore_case=True)
    except (pa.ArrowInvalid, UnicodeEncodeError) as e:
        why = one_line(str(e).partition(": ")[2] or str(e), 120)
        text = f"{one_line(pattern, 60)!r} is no pattern: {why}"
        raise UsageError(text, hint="search for plain text, or mend it") from None
    return np.flatnonzero(np.array(hits.to_pylist() or [False]))
