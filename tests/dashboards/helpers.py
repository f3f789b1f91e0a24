"""Runs condensed in this process, pages drawn without a browser, and servers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dashboards.app import Dashboard
from dashboards.catalog import Catalog
from dashboards.digest import Digest
from dashboards.guard import LOOPBACK
from dashboards.loading import Ask, Loader, Reply
from dashboards.registry import Context, pages
from dashboards.state import read_view
from dashboards.worker import Answers, Question


def answered(ask: Ask) -> Digest:
    """What a page's question gives, found out in this process."""
    asked = Question(ask.kind, str(ask.run.path), "", ask.steps, ask.capture, ask.more)
    return Digest(Answers().answer(asked, lambda _what, _fraction: None))


def digest_of(path: Path) -> Digest:
    """The digest of the one run at a path."""
    catalog = Catalog([str(path)])
    return answered(Ask("digest", catalog.entries()[0]))


def context_of(path: Path, address: str, theme: str = "light") -> Context:
    """What a page draws an address from."""
    where, _, search = address.partition("?")
    catalog = Catalog([str(path)])
    view = read_view(where, f"?{search}")
    run = catalog.get(view.run)
    assert run is not None
    context = Context(view, run, catalog, theme=theme)  # type: ignore[arg-type]
    asked = pages()[view.page].needs(context)
    return replace(context, data={name: answered(ask) for name, ask in asked.items()})


def drawn(path: Path, address: str, theme: str = "light") -> Any:
    """A page's content as plain JSON."""
    context = context_of(path, address, theme)
    return plain(pages()[context.view.page].body(context))


def plain(component: Any) -> Any:
    """A component and all in it as plain JSON."""
    if hasattr(component, "to_plotly_json"):
        return plain(component.to_plotly_json())
    if isinstance(component, dict):
        return {key: plain(value) for key, value in component.items()}
    if isinstance(component, list | tuple):
        return [plain(value) for value in component]
    return component


def parts(content: Any, kind: str) -> list[dict[str, Any]]:
    """The properties of all components of a kind in a content, in order."""
    found: list[dict[str, Any]] = []
    if isinstance(content, dict):
        if content.get("type") == kind and "props" in content:
            found.append(content["props"])
        for value in content.values():
            found += parts(value, kind)
    elif isinstance(content, list):
        for value in content:
            found += parts(value, kind)
    return found


def texts(content: Any) -> str:
    """All that a content says, as one text."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return texts(content["props"].get("children")) if "props" in content else ""
    if isinstance(content, list):
        return " ".join(filter(None, map(texts, content)))
    return ""


def figures(content: Any) -> dict[str, dict[str, Any]]:
    """The figures of a content by name."""
    return {props["id"]["name"]: props["figure"] for props in parts(content, "Graph")}


class Here(Loader):
    """Answers in this process and at once."""

    def __init__(self) -> None:
        self.held: dict[Any, Reply] = {}

    def ask(self, ask: Ask, viewer: str = "") -> Reply:
        """The answer; ``viewer`` makes no difference here."""
        assert isinstance(viewer, str)
        if ask.key not in self.held:
            self.held[ask.key] = Reply("ready", answered(ask), mark="1r")
        return self.held[ask.key]

    def close(self) -> None:
        """Nothing runs."""


@contextmanager
def board(*paths: Path, base: str = "/", allowed: frozenset[str] = LOOPBACK) -> Iterator[Dashboard]:
    """The application over some paths, answering in this process."""
    loader = Here()
    yield Dashboard(Catalog([str(p) for p in paths]), loader, base=base, allowed=allowed)
    loader.close()
