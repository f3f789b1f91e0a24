"""One colour for each role and axis, the same in every picture, light and dark.

Colours of things that lie side by side can be told apart with normal sight, protanopia,
deuteranopia and tritanopia; and no colour stands alone: what is `HATCHED` is drawn with lines over
it, and every colour has a word beside it. Pictures name colours by role; pages get them as CSS
variables (``--tracekit-compute`` and so on), which a style sheet may set otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Theme = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Paint:
    """How one thing is painted.

    Attributes
    ----------
    light, dark : str
        ``#rrggbb`` on light and on dark ground.
    label : str
        What it is called in a legend.
    """

    light: str
    dark: str
    label: str

    def on(self, theme: Theme) -> str:
        """The colour on that ground."""
        return self.light if theme == "light" else self.dark


#: what divides a rank's window, and what runs on a device
ROLES: Mapping[str, Paint] = MappingProxyType(
    {
        "compute": Paint("#2b5da8", "#4f83e6", "compute"),
        "comm": Paint("#e3a20a", "#f7d040", "communication"),
        "memory": Paint("#6b2a5e", "#b455a0", "memory copies"),
        "idle": Paint("#d7dadd", "#34373c", "idle"),
        "wait": Paint("#b8430e", "#dd5a1e", "waiting for a late rank"),
        "transfer": Paint("#e3a20a", "#f7d040", "moving bytes"),
        "unknown": Paint("#958769", "#8d8264", "waiting or moving: not known"),
        "hidden_comm": Paint("#f0d9a0", "#675a2c", "communication under compute"),
        "other": Paint("#1597ab", "#8ee6d2", "other work"),
    }
)
#: what host threads do where a device does the work
HOST_ROLES: Mapping[str, Paint] = MappingProxyType(
    {
        "operator": Paint("#6f95c4", "#5f86b8", "host operator"),
        "launch": Paint("#8c8a3c", "#a5a24a", "launch or driver call"),
        "annotation": Paint("#cdb9ea", "#5a4480", "annotation"),
        "python": Paint("#d9d3b4", "#55523c", "Python function"),
        "host": Paint("#6f7882", "#8f969f", "other host row"),
    }
)
#: axes of the process grid
AXES: Mapping[str, Paint] = MappingProxyType(
    {
        "x": Paint("#2b5da8", "#4f83e6", "x"),
        "y": Paint("#e3a20a", "#f7d040", "y"),
        "z": Paint("#1a9e77", "#2fc097", "z"),
        "data": Paint("#b8430e", "#dd5a1e", "data"),
        "pipe": Paint("#6b2a5e", "#b455a0", "pipe"),
        "context": Paint("#b9c0c7", "#4b5058", "context"),
    }
)
#: any other group, in order of appearance; they repeat, and their names tell them apart
GROUPS: tuple[Paint, ...] = tuple(AXES[axis] for axis in ("x", "y", "z", "data", "pipe", "context"))
#: drawn with lines over the colour
HATCHED = frozenset(("comm", "wait", "unknown", "hidden_comm"))
#: a scale from little to much on light ground; on dark ground it is turned around
SCALE = ("#fff6d6", "#f6dc93", "#dcb768", "#ab946c", "#76787e", "#465c85", "#17346b")
#: page, text, faint text, lines, selection
GROUND: Mapping[str, Paint] = MappingProxyType(
    {
        "paper": Paint("#ffffff", "#14171c", "paper"),
        "panel": Paint("#f5f6f8", "#1c2027", "panel"),
        "ink": Paint("#1b1f24", "#e6e9ed", "text"),
        "faint": Paint("#5b636d", "#9aa3ae", "faint text"),
        "line": Paint("#d5d9de", "#343a43", "lines"),
        "focus": Paint("#0b62d6", "#7ab2ff", "focus and selection"),
        "hit": Paint("#c2185b", "#ff7aa8", "search hit"),
    }
)


def axis_paints(axes: list[str]) -> dict[str, Paint]:
    """The paint of each axis; those without a fixed one get the others in order.

    Examples
    --------
    >>> [paint.light for paint in axis_paints(["data", "expert"]).values()]
    ['#b8430e', '#2b5da8']
    """
    free = [paint for paint in GROUPS if paint not in {AXES[a] for a in axes if a in AXES}]
    free = free or list(GROUPS)
    strange = [axis for axis in axes if axis not in AXES]
    given = {axis: free[i % len(free)] for i, axis in enumerate(strange)}
    return {axis: AXES.get(axis) or given[axis] for axis in axes}


def css(selector: str = ":root") -> str:
    """A style sheet that sets every colour as a variable, dark where the reader's system is.

    A ``data-theme`` of ``light`` or ``dark`` on the selected element overrules the system.

    Examples
    --------
    >>> css().splitlines()[0][:48]
    ':root{color-scheme:light;--tracekit-compute:#2b5'
    """
    every = {**ROLES, **HOST_ROLES, **{f"axis-{k}": p for k, p in AXES.items()}, **GROUND}

    def rule(which: str, theme: Theme) -> str:
        names = (f"--tracekit-{k.replace('_', '-')}:{p.on(theme)}" for k, p in every.items())
        return f"{which}{{color-scheme:{theme};{';'.join(names)}}}"

    dark = rule(f'{selector}:not([data-theme="light"])', "dark")
    return "\n".join(
        (
            rule(selector, "light"),
            f"@media (prefers-color-scheme:dark){{{dark}}}",
            rule(f'{selector}[data-theme="dark"]', "dark"),
        )
    )
