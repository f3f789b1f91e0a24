"""What somebody looks at, read from and written to the address of the page: a link shows the same.

Whatever an address holds, reading it gives a view: what makes no sense is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import parse_qsl, urlencode

#: longer addresses are none of ours
MAX_SEARCH, MAX_VALUE = 8192, 1024
HOME = "overview"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class View:
    """One view of a run.

    Attributes
    ----------
    page : str
        Which page, by its name in the address.
    run : str
        Which run, by its name in the catalog; empty for the only one.
    steps : (int, int) or None
        First and last step, both included.
    capture : int or None
        Which recording, counted from 1, where a folder holds several.
    table : str
        The table that is open below its figure.
    params : mapping of str to str
        What the page itself keeps in the address.
    bad : str
        What in the address was no value, in words.
    bad_steps : str
        The text that stood there instead.
    """

    page: str = HOME
    run: str = ""
    steps: tuple[int, int] | None = None
    capture: int | None = None
    table: str = ""
    params: Mapping[str, str] = field(default_factory=lambda: _NONE)
    bad: str = ""
    bad_steps: str = ""

    def but(self, **changes: str | None) -> View:
        """The same view with other page parameters; None removes one."""
        params = {k: v for k, v in {**self.params, **changes}.items() if v}
        return replace(self, params=MappingProxyType(params))

    def elsewhere(self, page: str, **params: str) -> View:
        """The same run and steps on another page."""
        return replace(self, page=page, table="", params=MappingProxyType(params))

    @property
    def search(self) -> str:
        """The address after the page, from its question mark."""
        held: dict[str, str] = {"run": self.run} if self.run else {}
        if self.steps:
            first, last = self.steps
            held["steps"] = str(first) if first == last else f"{first}:{last}"
        if self.capture:
            held["capture"] = str(self.capture)
        if self.table:
            held["table"] = self.table
        held |= {k: v for k, v in sorted(self.params.items()) if k not in held}
        return f"?{urlencode(held)}" if held else ""


def read_view(path: str, search: str, base: str = "/") -> View:
    """The view at an address.

    Parameters
    ----------
    path, search : str
        As the browser names them; ``search`` begins with a question mark or is empty.
    base : str
        What the path of every page begins with.

    Examples
    --------
    >>> view = read_view("/heatmap", "?run=a&steps=4:6&figure=idle_us")
    >>> view.page, view.run, view.steps, dict(view.params)
    ('heatmap', 'a', (4, 6), {'figure': 'idle_us'})
    >>> view.search
    '?run=a&steps=4%3A6&figure=idle_us'
    """
    page = path.removeprefix(base.rstrip("/")).strip("/") or HOME
    held: dict[str, str] = {}
    for key, value in parse_qsl(search.removeprefix("?")[:MAX_SEARCH], max_num_fields=None):
        if key.isidentifier() and len(key) <= 40 and len(value) <= MAX_VALUE:
            held.setdefault(key, value)
    steps_text, capture_text = held.pop("steps", ""), held.pop("capture", "")
    steps, bad = read_steps(steps_text)
    return View(
        page=page[:MAX_VALUE],
        run=held.pop("run", ""),
        steps=steps,
        capture=int(capture_text) if _is_number(capture_text) and int(capture_text) else None,
        table=held.pop("table", ""),
        params=MappingProxyType(held),
        bad=bad,
        bad_steps=steps_text if bad else "",
    )


def read_steps(text: str) -> tuple[tuple[int, int] | None, str]:
    """First and last step of ``5:8`` or ``5``, and what is wrong with the text, if anything.

    Examples
    --------
    >>> read_steps("5:8"), read_steps("5"), read_steps("")
    (((5, 8), ''), ((5, 5), ''), (None, ''))
    >>> read_steps("8:5")[1]
    '8:5 is no range of steps; write 5:8 or 5'
    """
    if not text.strip():
        return None, ""
    first, _, last = text.replace("-", ":").partition(":")
    low, high = first.strip(), last.strip() or first.strip()
    if _is_number(low) and _is_number(high) and int(low) <= int(high):
        return (int(low), int(high)), ""
    return None, f"{text[:40]} is no range of steps; write 5:8 or 5"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
