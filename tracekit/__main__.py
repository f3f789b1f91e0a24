"""``python -m tracekit`` is the ``tracekit`` command."""

from __future__ import annotations

if __name__ == "__main__":
    try:
        from tracekit.cli.app import main

        status = main()
    except KeyboardInterrupt:  # before or after the command itself, which says so
        status = 130
    raise SystemExit(status)
