"""Write a run in another format, whole or not at all, over nothing but exports of our own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from isal import igzip

from tracekit.core.errors import TracekitError, UsageError
from tracekit.io import flat, perfetto
from tracekit.model.run import TraceSet
from tracekit.report.perfetto_tracks import write_tracks
from tracekit.report.tables import TABLES, tables_of

_STAGING = (".tracekit-export-", ".part")


def export(run: TraceSet, to: Literal["csv", "parquet", "perfetto"], out: Path) -> list[Path]:
    """Write the figures of a run as tables, or its time lines as a Perfetto trace.

    Parameters
    ----------
    run : TraceSet
    to : {"csv", "parquet", "perfetto"}
        The first two make one file for each of `tracekit.report.tables.TABLES`; the third makes
        one file of all ranks for ui.perfetto.dev.
    out : Path
        A folder for tables, a file for Perfetto: plain JSON where its name ends in ``.json``, else
        gzip, with ``.json.gz`` added to a name without ``.gz``. What is missing above it is made.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    UsageError
        When there is something at ``out`` that no export wrote.
    TracekitError
        When it cannot be written; then nothing there has changed.
    """
    if to == "perfetto":
        return [_export_tracks(run, _track_file(out))]
    _refuse_other_content(out)
    tables = tables_of(run)
    with _staged(out, made=out) as staging:
        for name, columns in TABLES.items():
            with open(staging / f"{name}.{to}", "wb") as file:
                write = flat.write_csv if to == "csv" else flat.write_parquet
                write(file, columns, tables.rows(name))
        return [(staging / f"{name}.{to}").replace(out / f"{name}.{to}") for name in TABLES]


def _export_tracks(run: TraceSet, target: Path) -> Path:
    with _staged(target.parent, made=target) as staging:
        with open(staging / "tracks", "wb") as file:
            if target.suffix == ".gz":
                # level 2 of 3: half the size of level 0 at a tenth of the writing time; no time
                # stamp, so that the same run gives the same bytes
                packed = igzip.IGzipFile("", "wb", 2, file, mtime=0)  # type: ignore[no-untyped-call]
                with packed:
                    write_tracks(run, packed)
            else:
                write_tracks(run, file)
        return (staging / "tracks").replace(target)


def _track_file(out: Path) -> Path:
    plain = not out.name or out.suffix in (".json", ".gz")  # "." and "/" are folders
    target = out if plain else out.with_name(f"{out.name}.json.gz")
    for place in (out, target):
        if place.is_dir():
            example = place / "run.perfetto.json.gz"
            raise UsageError(
                "a folder, where --to perfetto writes one file",
                where=str(place),
                hint=f"give a file name such as {example}",
            )
    if target.exists() and target.stat().st_size and not perfetto.is_export(target):
        raise UsageError(
            "exists and is no Perfetto export of tracekit; it was left as it is",
            where=str(target),
            hint="give another name, or remove it first",
        )
    return target


def _refuse_other_content(out: Path) -> None:
    """Tables go into a new or empty folder, or over tables that an export wrote."""
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(
            "a file, where tables need a folder", where=str(out), hint="give the name of a new one"
        )
    for entry in sorted(out.iterdir()):
        if not _is_own_table(entry):
            raise UsageError(
                f"holds {entry.name}, which no export of tracekit wrote; nothing was changed",
                where=str(out),
                hint="give a new or an empty folder",
            )


def _is_own_table(entry: Path) -> bool:
    begin, end = _STAGING
    if entry.name.startswith(begin) and entry.name.endswith(end):
        return True  # of an export that was killed, or that still runs
    if entry.stem not in TABLES or not entry.is_file():
        return False
    if entry.suffix == ".csv":
        return flat.is_csv(entry, TABLES[entry.stem])
    return entry.suffix == ".parquet" and flat.is_parquet(entry)


@contextmanager
def _staged(folder: Path, made: Path) -> Iterator[Path]:
    """A folder inside ``folder`` to write into; it is gone afterwards, whatever happens."""
    begin, end = _STAGING
    staging: Path | None = None
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(end, begin, folder))
        yield staging
        new = []
    except OSError as e:
        raise TracekitError(
            f"cannot be written ({e.strerror or e})",
            where=str(made),
            hint="free some space or give another place",
        ) from e
    finally:
        if staging:
            shutil.rmtree(staging, ignore_errors=True)
        for place in new:
            with suppress(OSError):  # it was never made, or somebody else uses it meanwhile
                place.rmdir()
