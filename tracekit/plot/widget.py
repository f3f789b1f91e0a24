"""The timeline as a notebook widget, answered by the kernel; needs the extra ``notebook``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.core.errors import TracekitError, UsageError
from tracekit.plot.assets import script
from tracekit.plot.timeline import Timeline

if TYPE_CHECKING:
    from anywidget import AnyWidget

#: height in CSS pixels
HEIGHT, LEAST_HEIGHT, MOST_HEIGHT = 620, 260, 4000


def timeline_widget(timeline: Timeline, height: int = HEIGHT) -> AnyWidget:
    """A widget that shows the timeline in JupyterLab, Jupyter Notebook, VS Code or Colab.

    Parameters
    ----------
    timeline : Timeline
    height : int
        In CSS pixels, 260 to 4000.

    Raises
    ------
    UsageError
        When anywidget is not installed, or the height is none.
    """
    if not LEAST_HEIGHT <= height <= MOST_HEIGHT:
        text = f"height={height!r} is not within {LEAST_HEIGHT} and {MOST_HEIGHT} pixels"
        raise UsageError(text)
    widget: AnyWidget = _widget_class()(height=int(height))
    widget.on_msg(lambda _widget, message, _buffers: _reply(widget, timeline, message))
    return widget


def _widget_class() -> type[AnyWidget]:
    """The widget's class, made where anywidget is: importing tracekit needs it not."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise UsageError(
            "the timeline widget needs anywidget, which is not installed",
            hint="pip install 'tracekit-torch[notebook]'",
        ) from None

    class TimelineWidget(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
        """The canvas, and the height it takes."""

        _esm = script()
        height = traitlets.Int(HEIGHT).tag(sync=True)

    return TimelineWidget


def _reply(widget: AnyWidget, timeline: Timeline, message: Any) -> None:
    """Answer one question of the canvas; a bad one is answered with what is wrong."""
    if not isinstance(message, dict) or not isinstance(message.get("id"), str):
        return
    head = {"id": message["id"]}
    asked = message.get("params")
    try:
        found = timeline.answer(
            str(message.get("method")), asked if isinstance(asked, dict) else {}
        )
    except TracekitError as e:
        widget.send({**head, "error": e.line()})
        return
    if isinstance(found, bytes):
        widget.send(head, buffers=[found])
    else:
        widget.send({**head, "result": found})
