"""``python -m tracekit`` is the ``tracekit`` command."""

from __future__ import annotations

from tracekit.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
