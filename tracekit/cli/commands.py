"""The verbs: each opens what it is given, prints one result and returns the exit status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tracekit.cli import output
from tracekit.cli.options import (
    Opening,
    crossed,
    open_options,
    parse_range,
    parse_steps,
    parse_threshold,
)
from tracekit.cli.progress import shown_progress
from tracekit.core.errors import UsageError

if TYPE_CHECKING:
    from tracekit.model.run import TraceSet

FINE, CROSSED, UNSOUND, INCOMPLETE = 0, 1, 1, 3

AS_EVER = Opening()
Progress = Callable[[str, float], None]

Paths = Annotated[str, Parameter(help="Run folder, trace file or quoted pattern; several at will.")]
Json = Annotated[bool, Parameter(help="Write one JSON document instead of tables.")]


def analyze(
    *paths: Paths,
    json: Json = False,
    steps: Annotated[
        str | None,
        Parameter(
            help="Only these steps, both included: 5:8. Counts of events that were read, dropped "
            "or repaired stay those of the whole file."
        ),
    ] = None,
    time_range: Annotated[
        str | None,
        Parameter(name="--range", help="Only this time, A:B in us from the earliest start."),
    ] = None,
    fail_on: Annotated[
        tuple[str, ...],
        Parameter(
            help="NAME=PERCENT: exit with 1 when this fraction of the summed window exceeds it. "
            "NAME is exposed, exposed_wait, exposed_transfer, exposed_memory, comm or idle. "
            "May be repeated."
        ),
    ] = (),
    opening: Opening = AS_EVER,
) -> int:
    """Show where the time of a run goes: compute, communication, memory, idle."""
    _need_paths("analyze", paths)
    thresholds = [parse_threshold(text) for text in fail_on]
    chosen_steps = None if steps is None else parse_steps(steps)
    chosen_time = None if time_range is None else parse_range(time_range)
    from tracekit.cli.kept import analysis

    with shown_progress() as progress:
        made = analysis(paths, opening, chosen_steps, chosen_time, progress)
    if json:
        output.write_json(made)
    else:
        from tracekit.report.text import render

        render(made, output.stdout_console())
    over = crossed(made["totals"], thresholds)
    for line in over:
        output.say(line)
    return CROSSED if over else _completeness(made["notes"])


def check(*paths: Paths, json: Json = False, opening: Opening = AS_EVER) -> int:
    """Tell whether traces are sound: clocks, lost steps, missing ranks, faulty events.

    Exits with 0 when they are sound, 1 when there is a warning, 3 when a file cannot be read.
    """
    _need_paths("check", paths)
    from tracekit.model.check import check as checked

    with shown_progress() as progress:
        run = _open(paths, opening, progress)
        notes = [note.as_dict() for note in dict.fromkeys([*run.notes, *checked(run)])]
    sound = not any(note["severity"] in ("warning", "error") for note in notes)
    if json:
        output.write_json({"schema": "tracekit.check/1", "sound": sound, "notes": notes})
    else:
        _print_notes(notes, sound)
    return _completeness(notes) or (FINE if sound else UNSOUND)


def export(
    *paths: Paths,
    to: Annotated[Literal["csv", "parquet", "perfetto"], Parameter(help="The format.")],
    out: Annotated[str, Parameter(name=("--out", "-o"), help="Folder or file to write.")],
    opening: Opening = AS_EVER,
) -> int:
    """Write the events or figures of a run in another format; prints the files it wrote."""
    _need_paths("export", paths)
    if not out:
        raise UsageError("--out is empty", hint="name the folder or file to write")
    from tracekit.report.export import export as exported

    with shown_progress() as progress:
        run = _open(paths, opening, progress)
        files = exported(run, to, Path(out))
    output.write_paths(files)
    return _completeness([note.as_dict() for note in run.notes])


def report(
    *paths: Paths,
    out: Annotated[str, Parameter(name=("--out", "-o"), help="The HTML file to write.")],
    opening: Opening = AS_EVER,
) -> int:
    """Write one HTML file that needs no network: figures, heat-map, timeline; prints its path."""
    _need_paths("report", paths)
    if not out:
        raise UsageError("--out is empty", hint="name the file to write")
    from tracekit.report.html import write_report

    with shown_progress() as progress:
        run = _open(paths, opening, progress)
        file = write_report(run, Path(out))
    output.write_paths([file])
    return _completeness([note.as_dict() for note in run.notes])


def cache(
    *,
    clear: Annotated[bool, Parameter(help="Remove everything kept.")] = False,
    json: Json = False,
) -> int:
    """Show or clear what is kept of traces read before, so that they open at once."""
    from tracekit.io import store
    from tracekit.io.identity import folder

    freed_bytes = store.clear() if clear else None
    entries = [
        {"key": key, "source": source, "bytes": size, "last_used_unix": last}
        for key, source, size, last in store.entries()
    ]
    if json:
        head = {"schema": "tracekit.cache/1", "folder": str(folder())}
        output.write_json({**head, "entries": entries, "freed_bytes": freed_bytes})
    else:
        from tracekit.report.cache_text import render_cache

        render_cache(str(folder()), entries, freed_bytes, output.stdout_console())
    return FINE


def _need_paths(verb: str, paths: Sequence[str]) -> None:
    if not paths:
        raise UsageError(
            f"{verb} needs a path", hint="name a run folder, a trace file or a quoted pattern"
        )


def _open(paths: Sequence[str], opening: Opening, progress: Progress | None) -> TraceSet:
    options = open_options(opening, progress)
    from tracekit.model.run import open_run

    return open_run(list(paths), options=options)


def _completeness(notes: Sequence[Mapping[str, Any]]) -> int:
    """0, or 3 when some file could not be read."""
    return INCOMPLETE if any(note["severity"] == "error" for note in notes) else FINE


def _print_notes(notes: list[dict[str, str]], sound: bool) -> None:
    from tracekit.report.text import render_notes

    console = output.stdout_console()
    console.print(f"{'sound' if sound else 'not sound'}: {_tally(notes) or 'nothing to remark'}")
    render_notes(notes, console)


def _tally(notes: Sequence[Mapping[str, Any]]) -> str:
    """How many notes of each severity there are, in words."""
    names = {"error": "error", "warning": "warning", "info": "remark"}
    counts = {name: sum(n["severity"] == key for n in notes) for key, name in names.items()}
    return ", ".join(f"{n} {name}{'s' * (n > 1)}" for name, n in counts.items() if n)
