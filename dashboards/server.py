"""Serves the pages with waitress, several people at once, until it is stopped."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import webbrowser
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dashboards import guard
from dashboards.app import Dashboard
from dashboards.catalog import Catalog
from dashboards.digest import Digest
from dashboards.loading import Ask, Loader
from tracekit.core.errors import UsageError, one_line

NUM_THREADS = 16
#: as many connections as 100 people's browsers hold open
NUM_CONNECTIONS = 600


@dataclass(frozen=True, slots=True)
class Settings:
    """How to serve.

    Attributes
    ----------
    host : str
    port : int
        0 takes any free one.
    base : str
        Begins and ends with a slash.
    watch, browser : bool
    allow_hosts : tuple of str
        Further names that requests may address.
    """

    host: str = "127.0.0.1"
    port: int = 8050
    base: str = "/"
    watch: bool = False
    browser: bool = True
    allow_hosts: tuple[str, ...] = ()


def base_path(text: str) -> str:
    """A prefix with a slash at both ends.

    Raises
    ------
    UsageError
        When it holds what no path of an address does.

    Examples
    --------
    >>> base_path("user/alice"), base_path("/")
    ('/user/alice/', '/')
    """
    parts = [part for part in text.split("/") if part]
    if any(not all(c.isalnum() or c in "-_.~@:%+" for c in part) or part == ".." for part in parts):
        raise UsageError(f"--base-path {text!r} is no path", hint="write one such as /proxy/8050/")
    return f"/{'/'.join(parts)}/" if parts else "/"


class Server:
    """The dashboard on a socket.

    Parameters
    ----------
    catalog : Catalog
    settings : Settings

    Raises
    ------
    UsageError
        When the address cannot be bound.
    """

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        from waitress.server import create_server

        self._settings = settings
        # before there are threads: in several at once, one finds it half imported
        import_module("pandas")
        self._socket = _bound(settings.host, settings.port)
        self.loader = Loader(catalog, {"digest": Digest, "names": Digest, "timeline": bytes})
        loopback = guard.is_loopback(settings.host)
        names = {name.lower() for name in (*settings.allow_hosts, settings.host)}
        allowed = frozenset(names | guard.LOOPBACK) if loopback else frozenset()
        self.board = Dashboard(
            catalog, self.loader, base=settings.base, watch=settings.watch, allowed=allowed
        )
        wsgi = guard.under_prefix(self.board.dash.server.wsgi_app, settings.base)
        self._server: Any = create_server(
            wsgi,
            sockets=[self._socket],
            threads=NUM_THREADS,
            connection_limit=NUM_CONNECTIONS,
            channel_timeout=60,
            ident="tracekit",
            max_request_body_size=guard.MAX_BODY_BYTES,
            clear_untrusted_proxy_headers=True,
        )

    @property
    def url(self) -> str:
        """Where to look at it."""
        host, port = self._socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):  # noqa: S104 - bound there because the user said so
            host = socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}{self._settings.base}"

    def run(self) -> None:
        """Serve until interrupted."""
        try:
            self._server.run()
        finally:
            self.close()

    def begin(self, catalog: Catalog) -> None:
        """Analyze the only run there is before anybody asks."""
        self.loader.warm()
        only = catalog.get("")
        if only is not None:
            self.loader.ask(Ask("digest", only), "start")

    def close(self) -> None:
        """Stop serving, and all work."""
        self.loader.close()
        self._server.close()


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as e:
        raise UsageError(f"--host {host!r} is no address here", hint="try 127.0.0.1") from e
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
        made.listen(256)
    except OSError as e:
        made.close()
        raise _not_bound(host, port, e) from e
    return made


def _not_bound(host: str, port: int, error: OSError) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        hint = "stop what uses it, or give another with --port (0 takes any free one)"
        return UsageError(f"port {port} is in use", hint=hint)
    if error.errno == errno.EACCES:
        return UsageError(f"port {port} may not be used", hint="give one above 1023 with --port")
    return UsageError(
        f"cannot listen on {host}:{port} ({error.strerror})", hint="try --host 127.0.0.1"
    )


def open_browser(url: str) -> None:
    """Show a page in the user's browser, where there is a desktop to show it on."""
    if has_desktop():
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def has_desktop() -> bool:
    """Whether a browser can appear before the user: not over SSH, nor without a display."""
    if any(os.environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def say(text: str) -> None:
    """One line on stderr, named after the program."""
    sys.stderr.write(f"tracekit: {one_line(text)}\n")
    sys.stderr.flush()
