"""Give the analysis of a run, from the kept answers where the same question was asked before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tracekit.cli.options import Opening, limits_of, open_options
from tracekit.core.errors import UsageError
from tracekit.io.finding import find, is_pipe
from tracekit.io.identity import get_result, put_result, result_key
from tracekit.io.sources import small_text

Progress = Callable[[str, float], None]
Steps = tuple[int, int] | None
Range = tuple[float, float] | None


def analysis(
    paths: Sequence[str],
    opening: Opening,
    steps: Steps,
    time_range_us: Range,
    show: Progress | None,
) -> dict[str, Any]:
    """The JSON document of a run.

    An answer is kept under the content of all files, the question and the code of tracekit;
    asking again imports neither numpy nor pyarrow.

    Raises
    ------
    TracekitError
        As `open_run` and `document` do.
    """
    keepable = not opening.no_store and not any(map(is_pipe, paths))
    key = _key(paths, opening, steps, time_range_us) if keepable else None
    if key and (text := get_result(key)):
        try:
            kept: dict[str, Any] = msgspec.json.decode(text)
            return kept
        except msgspec.DecodeError:
            pass  # damaged: ask again
    made = _analyze(paths, opening, steps, time_range_us, show)
    if key and not any(note["code"] == "store-unavailable" for note in made["notes"]):
        # a file name that is not UTF-8: such answers are not kept
        with suppress(UnicodeEncodeError, OverflowError):
            put_result(key, msgspec.json.encode(made))
    return made


def _analyze(
    paths: Sequence[str],
    opening: Opening,
    steps: Steps,
    time_range_us: Range,
    show: Progress | None,
) -> dict[str, Any]:
    from tracekit.model.run import open_run
    from tracekit.report.document import document

    run = open_run(list(paths), options=open_options(opening, show))
    return document(run, steps=steps, time_range_us=time_range_us)


def _key(paths: Sequence[str], opening: Opening, steps: Steps, time_range_us: Range) -> str | None:
    sources, notes = find(list(paths))
    rules = ""
    if opening.names is not None:
        try:
            rules = small_text(opening.names)
        except (OSError, UnicodeDecodeError, UsageError):
            return None  # opening the run will say what is wrong
    question = (opening.ranks, opening.capture, steps, time_range_us, rules, list(paths))
    left_out = [note.text for note in notes]
    return result_key(sources, limits_of(opening), repr((question, left_out)))
