"""The verb ``tracekit dashboard``: serves pages over runs; what is wrong is one line on stderr."""

from __future__ import annotations

import importlib.util
import sys
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from tracekit.core.errors import TracekitError, UsageError, one_line

NEEDED = ("dash", "dash_ag_grid", "dash_mantine_components", "waitress")
FINE, BAD_USE = 0, 2
USAGE = "Usage: tracekit dashboard RUN... [OPTIONS]"


def dashboard(
    *runs: Annotated[
        str, Parameter(help="Run folder, trace file, or folder of runs; several at will.")
    ],
    host: Annotated[str, Parameter(help="Address to listen on; others than this machine's let "
                                        "everybody who reaches it read the traces.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes any free one.")] = 8050,
    base_path: Annotated[
        str, Parameter(help="What a proxy puts before every path, such as /proxy/8050/.")
    ] = "/",
    allow_host: Annotated[
        tuple[str, ...],
        Parameter(help="A name a proxy serves it under. May be repeated."),
    ] = (),
    watch: Annotated[bool, Parameter(help="Follow runs that are still being written.")] = False,
    no_browser: Annotated[bool, Parameter(help="Open no browser.")] = False,
) -> int:  # fmt: skip
    """Look at runs in a browser; prints the address, and serves until interrupted."""
    from dashboards.catalog import Catalog
    from dashboards.server import Server, Settings, open_browser, say
    from dashboards.server import base_path as prefix

    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port} is no port", hint="give one from 0 to 65535")
    settings = Settings(host, port, prefix(base_path), watch, not no_browser, allow_host)
    catalog = Catalog(runs, may_come=watch)
    server = Server(catalog, settings)
    server.begin(catalog)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    if not _is_loopback(host):
        say("everybody who can reach this address can read the traces")
    say("press Ctrl-C to stop")
    if settings.browser:
        open_browser(server.url)
    server.run()
    return FINE


def _is_loopback(host: str) -> bool:
    from dashboards.guard import is_loopback

    return is_loopback(host)


def main(argv: list[str]) -> int:
    """Run the verb with the arguments after its name; returns the exit status."""
    asks = any(word in ("-h", "--help") for word in argv)
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    try:
        if absent and not asks:
            hint = "install it with: pip install 'tracekit-torch[dashboard]'"
            raise UsageError(f"the dashboard needs {absent[0].replace('_', '-')}", hint=hint)
        return int(_app()(argv, exit_on_error=False, print_error=False) or FINE)
    except CycloptsError as e:
        text = str(e).strip().removesuffix(".")
        return _bad(
            f"{text[:1].lower()}{text[1:]}; 'tracekit dashboard --help' shows what there is"
        )
    except TracekitError as e:
        return _bad(e.line())


def _bad(text: str) -> int:
    sys.stderr.write(f"tracekit: {one_line(text)}\n")
    return BAD_USE


def _app() -> App:
    app = App(
        name="tracekit dashboard",
        usage=USAGE,
        help_format="plaintext",
        version_flags=[],
        result_action="return_value",
        default_parameter=Parameter(negative="", show_default=False),
        suppress_keyboard_interrupt=False,
    )
    app.default(dashboard)
    return app
