"""How the documentation is built: ``sphinx-build -W docs OUT``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from tracekit import __version__  # noqa: E402

project = "tracekit"
author = "the tracekit authors"
copyright = "the tracekit authors, Apache-2.0"  # noqa: A001 - Sphinx's name
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "examples/*.py", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = "tracekit"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Notebooks run on every build: what they show is what this version prints.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_type_aliases = {"Steps": "Steps", "RangeUs": "RangeUs"}
napoleon_google_docstring = False
napoleon_use_rtype = False

#: verbs whose help is shown in the reference, as the program prints it
VERBS = ("", "analyze", "check", "report", "export", "cache", "train", "cluster")


def _write_help() -> None:
    """Store the help of every verb where the reference includes it."""
    folder = HERE / "_build" / "help"
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb"}
    for verb in VERBS:
        command = [sys.executable, "-m", "tracekit", *filter(None, [verb]), "--help"]
        run = subprocess.run(  # noqa: S603 - the program's own help
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        (folder / f"{verb or 'tracekit'}.txt").write_text(run.stdout, "utf-8")


_write_help()
