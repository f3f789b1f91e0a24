"""The look of the pages: Mantine's theme, the palette as CSS variables, the frame around them."""

from __future__ import annotations

from typing import Any

from tracekit.plot.palette import css

MANTINE: dict[str, Any] = {
    "fontFamily": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "fontFamilyMonospace": "ui-monospace, 'SF Mono', Menlo, Consolas, monospace",
    "primaryColor": "blue",
    "defaultRadius": "sm",
    "fontSizes": {"xs": "11px", "sm": "12px", "md": "13px", "lg": "15px", "xl": "18px"},
    "focusRing": "auto",
}
#: Dash fills in what is between braces and percent signs
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="color-scheme" content="light dark">
<title>{%title%}</title>
<link rel="icon" href="data:,">
{%css%}
<style>PALETTE</style>
</head>
<body>
<noscript>The dashboard needs JavaScript; tracekit analyze shows the same in a terminal.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>
"""


def index() -> str:
    """The frame of every page."""
    return INDEX.replace("PALETTE", css())
