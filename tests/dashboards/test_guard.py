"""Only this machine's own pages may ask a server that is bound to it."""

from __future__ import annotations

import pytest

from dashboards import guard
from dashboards.server import base_path
from tracekit.core.errors import UsageError

OWN = guard.LOOPBACK | {"hub.example"}


@pytest.mark.parametrize(
    ("host", "is_fine"),
    [
        ("127.0.0.1:8050", True),
        ("localhost:9000", True),
        ("[::1]:8050", True),
        ("LOCALHOST", True),
        ("hub.example", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8050", False),
        ("evil.example#localhost", False),
        ("localhost@evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_the_host_must_be_this_machine(host: str, is_fine: bool) -> None:
    """A name that was made to lead here (DNS rebinding) is refused, and the way out is said."""
    words = guard.refusal(host, None, None, OWN, "GET")
    assert (not words) is is_fine
    assert is_fine or "--allow-host" in words


@pytest.mark.parametrize(
    ("host", "origin", "site", "is_fine"),
    [
        ("localhost:8050", "http://localhost:8050", "same-origin", True),
        ("localhost:8050", None, None, True),
        ("localhost:8050", "http://localhost:9999", None, False),
        ("localhost:8050", "https://evil.example", "cross-site", False),
        ("localhost:8050", None, "cross-site", False),
        ("localhost:8050", "null", None, False),
        ("localhost:8050", "http://[", None, False),
        ("127.0.0.1:8050", "https://hub.example", "same-origin", True),
        ("hub.example", "https://hub.example", None, True),
    ],
)
def test_another_sites_page_may_not_post(
    host: str, origin: str | None, site: str | None, is_fine: bool
) -> None:
    """A request that a page of another origin makes is refused, behind an allowed proxy as well."""
    assert (not guard.refusal(host, origin, site, OWN, "POST")) is is_fine


def test_a_server_for_others_takes_any_name_but_no_other_sites_page() -> None:
    """Bound to another address any Host is right, and a foreign origin still is not."""
    nobody: frozenset[str] = frozenset()
    assert not guard.refusal("node7:8050", "http://node7:8050", None, nobody, "POST")
    assert guard.refusal("node7:8050", "http://evil.example", None, nobody, "POST")


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("::1", True), ("127.1.2.3", True), ("10.0.0.1", False), ("node", False)],
)
def test_what_is_loopback(host: str, is_it: bool) -> None:
    """Addresses that only this machine reaches are known."""
    assert guard.is_loopback(host) is is_it


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    """No script from elsewhere, none inline but those named, and no evaluation of texts."""
    policy = guard.content_policy(["'sha256-abc='"])
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["script-src"] == "'self' 'sha256-abc='"
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert "unsafe-eval" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/user/alice/proxy/8050/overview", "/overview"),
        ("/user/alice/proxy/8050/", "/"),
        ("/user/alice/proxy/8050", "/"),
        ("/overview", "/overview"),
        ("/user/alice/proxy/80501", "/user/alice/proxy/80501"),
    ],
)
def test_a_prefix_may_be_kept_or_stripped(path: str, inside: str) -> None:
    """Behind the prefix the same is served with it and without, and nothing like it."""
    seen: list[str] = []

    def app(environ: dict[str, object], _start: object) -> list[bytes]:
        seen.append(str(environ["PATH_INFO"]))
        return []

    guard.under_prefix(app, "/user/alice/proxy/8050/")({"PATH_INFO": path}, lambda *_: None)
    assert seen == [inside]


@pytest.mark.parametrize("text", ["a/../b", "a b", "<x>", 'a"b', "a\nb", "?q"])
def test_a_prefix_is_a_path(text: str) -> None:
    """What cannot stand in an address is no prefix."""
    with pytest.raises(UsageError, match="--base-path"):
        base_path(text)
