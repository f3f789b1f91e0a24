"""The Dash application: one callback draws what the address says, others pass on what changed.

Nothing of a viewer is kept here: the address says what is shown, and the answers belong to runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, no_update

from dashboards import guard, routes, theme
from dashboards.catalog import Catalog, Entry
from dashboards.components import shell, states
from dashboards.loading import Ask, Loader, Reply
from dashboards.registry import Context, Page, pages
from dashboards.state import View, read_view
from tracekit.report import words

if TYPE_CHECKING:
    from dash.development.base_component import Component

#: how often a page asks whether there is something new, in ms: while it waits, while it watches
WAITING_MS, WATCHING_MS = 250, 1000


class Dashboard:
    """The pages over a catalog of runs.

    Parameters
    ----------
    catalog : Catalog
    loader : Loader
    base : str
        What every address begins with; begins and ends with a slash.
    watch : bool
        Whether pages follow runs that change.
    allowed : frozenset of str
        The names that requests may address; empty for any.
    """

    def __init__(
        self,
        catalog: Catalog,
        loader: Loader,
        *,
        base: str = "/",
        watch: bool = False,
        allowed: frozenset[str] = frozenset(),
    ) -> None:
        self.catalog, self.loader, self.base, self.watch = catalog, loader, base, watch
        self.pages = pages()
        self.dash = Dash(
            __name__,
            title="tracekit",
            update_title=None,
            requests_pathname_prefix=base,
            routes_pathname_prefix="/",
            assets_folder="assets",
            serve_locally=True,
            suppress_callback_exceptions=True,
            include_pages_meta=False,
        )
        self.dash.index_string = theme.index()
        self.dash.layout = shell.frame()
        self._register()
        hashes = lru_cache(maxsize=1)(lambda: guard.content_policy(self.dash.csp_hashes()))
        guard.protect(self.dash.server, allowed, hashes)
        routes.add(self.dash.server, self)

    def context(self, view: View, run: Entry, theme_name: str, **data: Any) -> Context:
        """What a page draws from."""
        shade = "dark" if theme_name == "dark" else "light"
        return Context(view, run, self.catalog, self.base, shade, data)  # type: ignore[arg-type]

    # -- what a request shows -----------------------------------------------------------------

    def show(self, request: Mapping[str, Any]) -> tuple[Any, Any, Any, int | None]:
        """Controls, links and content for a request, and when to ask again, in ms or never."""
        view = read_view(str(request.get("path")), str(request.get("search")), self.base)
        shade, viewer = str(request.get("scheme")), str(request.get("viewer"))
        run = self.catalog.get(view.run)
        nobody = Entry(view.run, self.catalog.entries()[0].path if run is None else run.path)
        context = self.context(view, run or nobody, shade)
        links = shell.page_links(context, self.pages.values())
        page = self.pages.get(view.page)
        if run is None:
            return [], links, self._choice(view, context), None
        if page is None:
            return [], links, self._no_page(view), None
        replies = {name: self.loader.ask(ask, viewer) for name, ask in page.needs(context).items()}
        halted = request.get("halted") == _place(request)
        content, again = self._content(page, context, replies, halted=halted)
        return self._controls(context, replies), links, content, again

    def mark(self, request: Mapping[str, Any]) -> str:
        """A text that changes when there is something new for a request."""
        view = read_view(str(request.get("path")), str(request.get("search")), self.base)
        return " ".join(
            self.loader.ask(ask, str(request.get("viewer"))).mark for ask in self._asks(view)
        )

    def _asks(self, view: View) -> list[Ask]:
        run, page = self.catalog.get(view.run), self.pages.get(view.page)
        if run is None or page is None:
            return []
        return list(page.needs(self.context(view, run, "light")).values())

    def _content(
        self, page: Page, context: Context, replies: Mapping[str, Reply], *, halted: bool
    ) -> tuple[Any, int | None]:
        watching = WATCHING_MS if self.watch else None
        bad = next((reply for reply in replies.values() if reply.status == "failed"), None)
        if bad is not None:
            return states.failed(f"{context.run.name} cannot be shown", bad.what), watching
        slow = [reply for reply in replies.values() if reply.status == "pending"]
        if slow and halted and not page.eager:
            return states.stopped(), None
        if slow and not page.eager:
            done = sum(reply.fraction for reply in replies.values()) + len(replies) - len(slow)
            what = states.loading(context.run.name, slow[0].what, done / len(replies))
            return what, WAITING_MS
        data = {name: reply.value for name, reply in replies.items() if reply.status == "ready"}
        return page.body(replace(context, data=data)), WAITING_MS if slow else watching

    def _controls(self, context: Context, replies: Mapping[str, Reply]) -> list[Component]:
        digest = next((r.value for n, r in replies.items() if n == "digest" and r.value), None)
        if digest is None:
            return shell.controls(context, 1, 1, "")
        steps = digest.step_numbers
        told = f" ({words.number_list(steps)})" if steps and not context.view.steps else ""
        facts = digest.facts
        return shell.controls(context, facts["captures"], facts["capture"], told)

    def _choice(self, view: View, context: Context) -> Component:
        """The runs there are, when none was chosen or there is none of that name."""
        rows = []
        for entry in self.catalog.entries()[: shell.MOST_RUNS]:
            facts = self.catalog.facts(entry)
            told = f"{words.counted(facts.num_files, 'file')}, {words.size(facts.num_bytes)}"
            rows.append((context.href(replace(view, run=entry.name)), entry.name, told))
        if not view.run:
            return states.choice(rows, "Choose a run")
        near = self.catalog.near(view.run)
        text = f"Did you mean {words.safe(near, 120)}?" if near else ""
        return states.choice(rows, f"There is no run {words.safe(view.run, 120)!r}", text)

    def _no_page(self, view: View) -> Component:
        text = f"There is no page {words.safe(view.page, 60)!r}; the list at the left has them all."
        return states.missing("No such page", text)

    # -- callbacks ----------------------------------------------------------------------------

    def _register(self) -> None:
        app = self.dash
        for name, *arguments in (
            (
                "request", Output("request", "data"), Input("url", "pathname"),
                Input("url", "search"), Input("scheme", "data"), Input("mark", "data"),
                Input("halted", "data"), State("request", "data"),
            ),
            (
                "halt", Output("halted", "data"),
                Input({"type": "stop", "name": ALL}, "n_clicks"),
                Input({"type": "again", "name": ALL}, "n_clicks"), State("request", "data"),
            ),
            (
                "params", Output("tick", "data"),
                Input({"type": "param", "name": ALL, "as_ever": ALL}, "value"),
                State({"type": "param", "name": ALL, "as_ever": ALL}, "id"),
                State("request", "data"), State("drawn", "data"),
            ),
            (
                "click", Output("tick", "data", allow_duplicate=True),
                Input({"type": "figure", "name": ALL}, "clickData"),
                State({"type": "figure", "name": ALL}, "figure"),
            ),
        ):  # fmt: skip
            function = ClientsideFunction("tracekit", str(name))
            app.clientside_callback(function, *arguments, prevent_initial_call=name != "request")
        self._register_drawing(app)

    def _register_drawing(self, app: Dash) -> None:
        @app.callback(
            Output("controls", "children"),
            Output("pages", "children"),
            Output("content", "children"),
            Output("poll", "interval"),
            Output("poll", "disabled"),
            Output("drawn", "data"),
            Input("request", "data"),
            prevent_initial_call=True,
        )
        def draw(request: dict[str, Any] | None) -> tuple[Any, ...]:
            if not isinstance(request, dict):
                return (no_update,) * 6
            controls, links, content, again = self.show(request)
            pause = again or WAITING_MS
            return controls, links, content, pause, again is None, _place(request)

        @app.callback(
            Output("mark", "data"),
            Input("poll", "n_intervals"),
            State("request", "data"),
            State("mark", "data"),
            prevent_initial_call=True,
        )
        def look(_: int, request: dict[str, Any] | None, last: str | None) -> Any:
            now = self.mark(request) if isinstance(request, dict) else last
            return no_update if now == last else now

        @app.callback(
            Output("live", "children"),
            Input({"type": "stop", "name": ALL}, "n_clicks"),
            Input({"type": "again", "name": ALL}, "n_clicks"),
            State("request", "data"),
            prevent_initial_call=True,
        )
        def stop(stops: list[int | None], agains: list[int | None], request: Any) -> Any:
            if not isinstance(request, dict) or not (any(stops) or any(agains)):
                return no_update
            view = read_view(str(request.get("path")), str(request.get("search")), self.base)
            for ask in self._asks(view):
                if any(stops):
                    self.loader.leave(ask, str(request.get("viewer")))
                else:
                    self.loader.forget(ask)
            return ""


def _place(request: Mapping[str, Any]) -> str:
    """What the page's script calls the place that was stopped."""
    return f"{request.get('path')}{request.get('search')}"
