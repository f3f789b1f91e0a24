"""The address holds the view, and no address breaks it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboards.state import View, read_steps, read_view


def test_a_link_reproduces_what_its_sender_saw() -> None:
    """Writing a view into an address and reading it gives the same view."""
    view = View("heatmap", "a/b c&d", (4, 6), 2, "cells", {"figure": "idle_us", "scale": "share"})
    again = read_view("/proxy/8050/heatmap", view.search, "/proxy/8050/")
    assert again == view


def test_the_root_is_the_overview() -> None:
    """The bare address shows the first page, with a prefix and without."""
    assert read_view("/", "").page == "overview"
    assert read_view("/user/alice/", "", "/user/alice/").page == "overview"
    assert read_view("/user/alice", "", "/user/alice/").page == "overview"


def test_wrong_steps_are_said_and_left_out() -> None:
    """Steps that are none leave all steps in view, and the field says why."""
    view = read_view("/overview", "?steps=9:2")
    assert view.steps is None
    assert view.bad == "9:2 is no range of steps; write 5:8 or 5"
    assert read_steps("3-5") == ((3, 5), "")


def test_another_page_keeps_run_and_steps_only() -> None:
    """Going to another page drops what belonged to this one."""
    view = read_view("/heatmap", "?run=a&steps=5&figure=idle_us&table=cells")
    assert view.elsewhere("timeline", step="5").search == "?run=a&steps=5&step=5"


@given(path=st.text(max_size=200), search=st.text(max_size=400))
def test_no_address_breaks_it(path: str, search: str) -> None:
    """Whatever the browser asks for, there is a view, and its address reads as the same view."""
    view = read_view(path, "?" + search)
    again = read_view(f"/{view.page}", view.search)
    assert (again.run, again.steps, again.capture, again.table) == (
        view.run, view.steps, view.capture, view.table,
    )  # fmt: skip
    assert again.params == view.params


def test_keys_of_prototypes_are_plain_keys() -> None:
    """A key such as __proto__ is one more text, and lies in no object that others see."""
    view = read_view("/overview", "?__proto__=1&constructor=2&__proto__.polluted=3")
    assert dict(view.params) == {"__proto__": "1", "constructor": "2"}
    assert not hasattr(View, "polluted")
