"""Who may ask: only this machine's own pages when bound to it, whatever prefix a proxy puts before.

A page of another site can make a browser ask a server on the same machine, under the site's own
name once that name leads here (DNS rebinding). So the Host header must name this machine or what
``--allow-host`` names, and a request that another site's page makes is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from flask import Flask, Response

#: names of this machine that no resolver can be made to lie about
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
MAX_BODY_BYTES = 1 << 20

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header or an origin, without its port.

    Examples
    --------
    >>> host_name("localhost:8050"), host_name("[::1]:8050"), host_name("evil.example")
    ('localhost', '::1', 'evil.example')
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def refusal(
    host: str, origin: str | None, site: str | None, allowed: frozenset[str], method: str
) -> str:
    """Why a request is refused, in words; empty when it is not.

    Parameters
    ----------
    host : str
        The Host header.
    origin, site : str or None
        The headers Origin and Sec-Fetch-Site.
    allowed : frozenset of str
        Names the server goes by; empty when any is right.
    method : str
    """
    name = host_name(host)
    if allowed and name not in allowed:
        return (
            f"the Host {name[:100]!r} is not this machine; behind a proxy, start with "
            "--allow-host and the name it has there"
        )
    if method in ("GET", "HEAD"):
        return ""
    if site == "cross-site" or (origin is not None and not _is_ours(origin, host, allowed)):
        return "the request comes from a page of another site"
    return ""


def _is_ours(origin: str, host: str, allowed: frozenset[str]) -> bool:
    """Whether a page was served under the name and port asked, or under a proxy's allowed name."""
    try:
        where = urlsplit(origin).netloc
    except ValueError:
        return False
    return where == host or host_name(where) in allowed - LOOPBACK


def protect(server: Flask, allowed: frozenset[str], policy: Callable[[], str]) -> None:
    """Check every request of a Flask server, and send what keeps browsers strict."""
    from flask import request

    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES

    @server.before_request
    def check() -> tuple[str, int, dict[str, str]] | None:
        heads = request.headers
        words = refusal(
            heads.get("Host", ""), heads.get("Origin"), heads.get("Sec-Fetch-Site"), allowed,
            request.method,
        )  # fmt: skip
        return (words + "\n", 403, {"Content-Type": "text/plain; charset=utf-8"}) if words else None

    @server.after_request
    def harden(response: Response) -> Response:
        heads = response.headers
        heads["Content-Security-Policy"] = policy()
        heads["X-Content-Type-Options"] = "nosniff"
        heads["Referrer-Policy"] = "no-referrer"
        heads["Cross-Origin-Resource-Policy"] = "same-origin"
        heads["Cross-Origin-Opener-Policy"] = "same-origin"
        heads["Permissions-Policy"] = "camera=(), microphone=(), geolocation=()"
        return response


def content_policy(script_hashes: Iterable[str]) -> str:
    """What a page may load: nothing from elsewhere, and of inline scripts only Dash's own.

    Styles have to be allowed inline, because Mantine, AG Grid and Plotly write theirs at run time.
    """
    scripts = " ".join(script_hashes)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {scripts}".strip(),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    )


def under_prefix(app: Wsgi, base: str) -> Wsgi:
    """Serve the same with the prefix before the path and without, as proxies keep or strip it."""
    prefix = base.rstrip("/")
    if not prefix:
        return app

    def stripped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == prefix or path.startswith(f"{prefix}/"):
            environ["PATH_INFO"] = path[len(prefix) :] or "/"
        return app(environ, start_response)

    return stripped
