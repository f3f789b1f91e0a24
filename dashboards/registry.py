"""The pages: each file in `dashboards.pages` that has a ``PAGE`` is one; nothing lists them."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dashboards.catalog import Catalog, Entry
from dashboards.components.table import Table
from dashboards.digest import Digest
from dashboards.loading import Ask
from dashboards.state import View
from tracekit.plot.palette import Theme

if TYPE_CHECKING:
    from dash.development.base_component import Component

_NO_TABLES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Context:
    """What a page draws from.

    Attributes
    ----------
    view : View
    run : Entry
        The run of the view.
    catalog : Catalog
        All runs.
    base : str
        What every address begins with; ends with a slash.
    theme : {"light", "dark"}
    data : mapping
        The answers to what the page needs, by the names it gave them.
    """

    view: View
    run: Entry
    catalog: Catalog
    base: str = "/"
    theme: Theme = "light"
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> Digest:
        """The analysis of the run."""
        found: Digest = self.data["digest"]
        return found

    def href(self, view: View) -> str:
        """The address of another view."""
        return f"{self.base}{view.page}{view.search}"

    def link(self, **changes: str | None) -> str:
        """The address of this view with other page parameters."""
        return self.href(self.view.but(**changes))

    def param(self, name: str, allowed: Mapping[str, Any], default: str) -> str:
        """A page parameter; what is not allowed counts as not given."""
        value = self.view.params.get(name, default)
        return value if value in allowed else default

    def table_link(self, name: str) -> str:
        """The address that opens a table, or closes it again."""
        return self.href(replace(self.view, table="" if self.view.table == name else name))


def own_digest(context: Context) -> dict[str, Ask]:
    """What most pages need: the analysis of the run and steps in view."""
    view = context.view
    return {"digest": Ask("digest", context.run, view.steps, view.capture)}


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Attributes
    ----------
    path : str
        Its name in addresses.
    title : str
    order : int
        Its place in the list of pages.
    body : callable
        The content for a context whose data are there.
    needs : callable
        What it needs, by name, for a context without data.
    tables : mapping of str to callable
        Its tables, each made of a context.
    eager : bool
        Whether it can be drawn before what it needs is there.
    """

    path: str
    title: str
    order: int
    body: Callable[[Context], Component]
    needs: Callable[[Context], dict[str, Ask]] = own_digest
    tables: Mapping[str, Callable[[Context], Table]] = field(default_factory=lambda: _NO_TABLES)
    eager: bool = False


def pages() -> dict[str, Page]:
    """All pages by path, in their order."""
    import dashboards.pages as package

    found = []
    for module in pkgutil.iter_modules(package.__path__):
        page = getattr(import_module(f"{package.__name__}.{module.name}"), "PAGE", None)
        if isinstance(page, Page):
            found.append(page)
    return {page.path: page for page in sorted(found, key=lambda page: (page.order, page.path))}
