"""Colours of things that lie side by side can be told apart, whatever eyes look at them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tracekit.plot import palette
from tracekit.plot.palette import AXES, GROUND, HOST_ROLES, ROLES, Theme

Floats = NDArray[np.float64]
#: Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB
SIGHT: dict[str, Any] = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
THEMES: tuple[Theme, ...] = ("light", "dark")
DIVISION = ("compute", "wait", "transfer", "unknown", "memory", "other", "idle")


def linear(colour: str) -> Floats:
    """Linear RGB of ``#rrggbb``."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.asarray(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4))


def lab(rgb: Floats) -> Floats:
    """CIE L*a*b* (D65) of linear RGB."""
    xyz = XYZ @ rgb / XYZ.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(a: str, b: str, sight: str) -> float:
    """Distance of two colours in L*a*b* as those eyes see them; 2.3 is just noticeable."""
    seen = [lab(np.clip(np.array(SIGHT[sight]) @ linear(c), 0, 1)) for c in (a, b)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG 2."""
    high, low = sorted((float(XYZ[1] @ linear(c)) for c in (a, b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def nearest(paints: dict[str, palette.Paint], theme: Theme, sight: str) -> tuple[float, str, str]:
    """The two colours that are hardest to tell apart, and how far apart they are."""
    pairs = itertools.combinations(paints, 2)
    return min((distance(paints[a].on(theme), paints[b].on(theme), sight), a, b) for a, b in pairs)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", THEMES)
def test_parts_of_a_window_can_be_told_apart(theme: Theme, sight: str) -> None:
    """Nine just-noticeable steps at least lie between any two parts of a rank's window."""
    assert nearest({k: ROLES[k] for k in DIVISION}, theme, sight)[0] > 9 * 2.3


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", THEMES)
def test_axes_can_be_told_apart(theme: Theme, sight: str) -> None:
    """Nine just-noticeable steps at least lie between the colours of any two axes."""
    assert nearest(dict(AXES), theme, sight)[0] > 9 * 2.3


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", THEMES)
def test_host_rows_can_be_told_apart(theme: Theme, sight: str) -> None:
    """Four steps at least lie between kinds of host rows, which carry their names as well."""
    assert nearest(dict(HOST_ROLES), theme, sight)[0] > 4 * 2.3


def test_a_bad_palette_would_be_found() -> None:
    """Red and green of the same lightness, which protanopes confuse, do not pass the measure."""
    red, green = "#b04a30", "#75682e"
    assert distance(red, green, "normal") > 9 * 2.3 > distance(red, green, "protanopia")


@pytest.mark.parametrize("theme", THEMES)
def test_hidden_and_exposed_communication_differ(theme: Theme) -> None:
    """Communication under compute stands out from the exposed kind and from idle time."""
    own = ROLES["hidden_comm"].on(theme)
    others = [ROLES[k].on(theme) for k in ("transfer", "wait", "idle", "compute")]
    assert min(distance(own, other, sight) for other in others for sight in SIGHT) > 6 * 2.3


@pytest.mark.parametrize("theme", THEMES)
def test_texts_can_be_read(theme: Theme) -> None:
    """Text reaches 4.5:1 on paper and panel, and what is busy 2:1 (colours have words beside)."""
    paper, panel = GROUND["paper"].on(theme), GROUND["panel"].on(theme)
    for ink in ("ink", "faint"):
        assert contrast(GROUND[ink].on(theme), paper) >= 4.5
        assert contrast(GROUND[ink].on(theme), panel) >= 4.5
    assert contrast(GROUND["focus"].on(theme), paper) >= 3
    assert min(contrast(ROLES[k].on(theme), paper) for k in DIVISION[:-1]) >= 2


def test_strange_axes_take_free_colours() -> None:
    """An axis no rule knows gets a colour that no other axis of the run has."""
    paints = palette.axis_paints(["x", "expert", "data", "vocab"])
    assert len({paint.light for paint in paints.values()}) == 4
    assert paints["x"] == AXES["x"]


def test_every_colour_is_a_variable_in_both_themes() -> None:
    """A page gets each role's colour for light, for dark by the system, and for dark by choice."""
    sheet = palette.css(".here")
    assert sheet.count("--tracekit-compute:#2b5da8") == 1
    assert sheet.count("--tracekit-compute:#4f83e6") == 2
    assert "@media (prefers-color-scheme:dark){.here:not([data-theme=" in sheet
    for name in (*ROLES, *HOST_ROLES, *GROUND):
        assert f"--tracekit-{name.replace('_', '-')}:" in sheet
