"""The notebook's widget answers the canvas as the kernel, and says what it needs."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from tests.builder import Kineto, run_of
from tracekit.core.errors import UsageError
from tracekit.plot import widget as widget_module
from tracekit.plot.timeline import Timeline
from tracekit.plot.widget import timeline_widget


class Sent:
    """Stands in for a widget: keeps what is sent to the page."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []

    def send(self, message: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Keep a message."""
        self.sent.append((message, buffers or []))


def replies(message: Any) -> list[tuple[dict[str, Any], list[bytes]]]:
    """What is sent back for a message of the canvas."""
    page = Sent()
    timeline = Timeline(run_of(Kineto(0, 1).kernel(0, 10, "gemm")))
    widget_module._reply(page, timeline, message)  # type: ignore[arg-type]
    return page.sent


def test_blocks_travel_as_bytes() -> None:
    """A block is a buffer beside the message that names the question."""
    ((head, buffers),) = replies({"id": "7", "method": "block", "params": {"ranks": "0"}})
    assert head == {"id": "7"}
    assert [b[:4] for b in buffers] == [b"TKL1"]


def test_other_answers_travel_as_json() -> None:
    """What is no block is the message's result."""
    ((told, buffers),) = replies({"id": "8", "method": "search", "params": {"text": "GEMM"}})
    assert (told["result"]["total"], buffers) == (1, [])


def test_bad_questions_are_answered_with_what_is_wrong() -> None:
    """A question that is none gets its error, in a line, under its number."""
    ((told, _),) = replies({"id": "9", "method": "event", "params": {"rank": 5, "row": 0}})
    assert told == {"id": "9", "error": "no rank 5 in this run"}


@pytest.mark.parametrize("message", [None, 5, "text", [], {}, {"id": 3}, {"id": ["__proto__"]}])
def test_what_is_no_question_is_ignored(message: Any) -> None:
    """Messages without a number to answer to get no answer."""
    assert replies(message) == []


def test_a_question_without_its_parts_is_refused() -> None:
    """Parameters that are no mapping count as none given."""
    ((told, _),) = replies({"id": "1", "method": "event", "params": ["rank"]})
    assert told["error"] == "event needs a rank and a row"


def test_missing_anywidget_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anywidget the call names the extra to install, and tracekit itself works on."""
    real = builtins.__import__

    def absent(name: str, *args: Any, **more: Any) -> Any:
        if name == "anywidget":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.delitem(sys.modules, "anywidget", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UsageError) as caught:
        timeline_widget(Timeline(run_of(Kineto(0, 1).kernel(0, 10))))
    assert caught.value.line() == (
        "the timeline widget needs anywidget, which is not installed; "
        "pip install 'tracekit-torch[notebook]'"
    )


def test_the_widget_carries_the_module_of_the_canvas() -> None:
    """In a notebook the same module runs, from the widget itself, and its height is as asked."""
    pytest.importorskip("anywidget", reason="the extra notebook is not installed")
    made = timeline_widget(Timeline(run_of(Kineto(0, 1).kernel(0, 10))), height=400)
    assert made.height == 400
    assert "export default { render };" in str(made._esm)


@pytest.mark.parametrize("height", [0, 100, 5000])
def test_heights_that_are_none_are_refused(height: int) -> None:
    """A picture too low to be seen, or higher than any page, is refused."""
    with pytest.raises(UsageError, match=f"height={height} is not within"):
        timeline_widget(Timeline(run_of(Kineto(0, 1).kernel(0, 10))), height=height)
