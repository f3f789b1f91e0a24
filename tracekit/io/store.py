"""Keep tables that were read once as memory-mapped Arrow files in the user's cache folder."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from tracekit.core.errors import Note
from tracekit.io import temporary
from tracekit.io.identity import RESULT_SUFFIX, folder, private_folder
from tracekit.io.table import COLUMNS, EventTable

SUFFIX = ".tracekit.arrow"
MAX_BYTES = 20 << 30
#: what trimming leaves of it
TRIMMED_FRAC = 0.9
#: so many processes may write at once without passing the cap
MAX_WRITERS = 16
_SIDE, _SUM = b"tracekit", b"crc32"
_DAMAGE = (OSError, ValueError, LookupError, TypeError)
#: a fragment this old was left by a process that died
_FRAGMENT_S = 3600


class Store:
    """A folder of entries.

    Safe against concurrent writers (entries appear whole, by rename), against entries that are
    half written or damaged (they are dropped and read again) and against a full disk.

    Parameters
    ----------
    path : Path, optional
        The folder; by default `folder`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or folder()
        self._seen_bytes: int | None = None  # in the folder, when it was last listed
        self._written = 0  # bytes, since then

    def has(self, key: str) -> bool:
        """Whether there is an entry of that key (sound or not)."""
        return (self.path / (key + SUFFIX)).is_file()

    def get(self, key: str, *, check: bool = True) -> EventTable | None:
        """The entry of that key, memory-mapped; None when there is none or it is damaged.

        Parameters
        ----------
        check : bool
            Whether to compare checksums (5 GB/s); needless for an entry that was checked before.
        """
        import pyarrow as pa

        file = self.path / (key + SUFFIX)
        if not file.is_file():
            return None
        try:
            table = _load(file, check)
        except (pa.ArrowException, msgspec.MsgspecError, *_DAMAGE):
            _remove(file)
            return None
        with suppress(OSError):  # the folder may be another's, or mounted read-only
            os.utime(file)
        return table

    def put(self, key: str, table: EventTable, source: str) -> str | None:
        """Write an entry; the reason in words when that is not possible, else None."""
        part: str | None = None
        try:
            private_folder(self.path)
            handle, part = tempfile.mkstemp(suffix=".part", dir=self.path)
            os.close(handle)
            _save(Path(part), table, source)
            self._written += Path(part).stat().st_size
            Path(part).replace(self.path / (key + SUFFIX))
        except (OSError, UnicodeEncodeError) as e:  # a text that is no UTF-8 came from a pickle
            if part:
                _remove(Path(part))
            return getattr(e, "strerror", None) or str(e)
        if self._is_trimming_due():
            self._trim()
        return None

    def _is_trimming_due(self) -> bool:
        """Whether so much was written since the folder was listed that it may be too large.

        Listing takes long in a folder of many entries; as other processes write too, it is done
        anew when our part of the room that was left is used up.
        """
        if self._seen_bytes is None:
            return True
        return self._written * MAX_WRITERS >= MAX_BYTES - self._seen_bytes

    def _trim(self) -> None:
        """Drop the least recently used entries beyond the size cap, and old fragments."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        # some room is made, so that the next listing is not due at once
        wanted = int(MAX_BYTES * TRIMMED_FRAC) if total > MAX_BYTES else MAX_BYTES
        for _, size, file in sorted(files)[:-1]:
            if total <= wanted:
                break
            _remove(file)
            total -= size
        self._seen_bytes, self._written = total, 0
        for fragment in self.path.glob("*.part"):
            with suppress(OSError):
                if time.time() - fragment.stat().st_mtime > _FRAGMENT_S:
                    fragment.unlink()

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        for file in _entries_in(self.path):
            try:
                status = file.stat()
            except OSError:  # removed by somebody else meanwhile
                continue
            found.append((status.st_mtime, status.st_size, file))
        return found


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def _entries_in(path: Path) -> list[Path]:
    """Files of tables and of answers; empty where there is no such folder."""
    return [*path.glob("*" + SUFFIX), *path.glob("*" + RESULT_SUFFIX)]


def entries() -> list[tuple[str, str, int, float]]:
    """All entries: key, source, bytes, time of last use (unix seconds); last used first."""
    found = []
    for used, size, file in sorted(Store()._files(), reverse=True):
        key = file.name.removesuffix(SUFFIX).removesuffix(RESULT_SUFFIX)
        source = _source(file) if file.name.endswith(SUFFIX) else "(an analysis)"
        found.append((key, source, size, used))
    return found


def clear() -> int:
    """Remove all entries and fragments; the number of bytes freed."""
    freed = 0
    path = folder()
    for file in (*_entries_in(path), *path.glob("*.part")):
        try:
            size = file.stat().st_size
            file.unlink()
        except OSError:
            continue
        freed += size
    return freed


def temporary_store() -> Store:
    """A store of this process alone; the caller removes it with `discard`."""
    return Store(temporary.make_folder())


def discard(store: Store) -> None:
    """Remove a store's folder and all in it."""
    temporary.discard(store.path)


class _Side(msgspec.Struct):
    """What an entry holds beside its columns."""

    names: list[str]
    cats: list[str]
    lanes: list[tuple[str, str]]
    details: list[dict[str, Any]]
    meta: dict[str, Any]
    base_ns: int
    lane_names: dict[int, str]
    counts: dict[str, int]
    notes: list[dict[str, str]]


def _save(file: Path, table: EventTable, source: str) -> None:
    import pyarrow as pa

    side = _Side(
        table.names,
        table.cats,
        table.lanes,
        table.details,
        table.meta,
        table.base_ns,
        table.lane_names,
        table.counts,
        [{**asdict(n), "file": _utf8(n.file)} for n in table.notes],
    )
    text = msgspec.json.encode(side)
    metadata = {
        _SIDE: text,
        _SUM: str(_checksum(table.columns, text)).encode(),
        b"source": _utf8(source).encode(),
    }
    schema = pa.schema([(k, pa.from_numpy_dtype(t)) for k, t in COLUMNS.items()], metadata)
    batch = pa.record_batch([_array(table.columns[k]) for k in COLUMNS], schema=schema)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)


def _array(column: NDArray[Any]) -> Any:
    """A column as Arrow over the same bytes (``pa.array`` would import pandas)."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(column.dtype)
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _utf8(text: str) -> str:
    """A file name without what is no UTF-8 in it."""
    return text.encode("utf-8", "replace").decode()


def _checksum(columns: dict[str, NDArray[Any]], side: bytes) -> int:
    found = isal_zlib.crc32(side)
    for key in COLUMNS:
        found = isal_zlib.crc32(np.ascontiguousarray(columns[key]), found)
    return found


def _load(file: Path, check: bool) -> EventTable:
    import pyarrow as pa

    with pa.memory_map(str(file)) as mapped:
        reader = pa.ipc.open_file(mapped)
        batch = reader.get_batch(0)
    text = reader.schema.metadata[_SIDE]
    columns = {k: _column(batch.column(k), t) for k, t in COLUMNS.items()}
    if check and int(reader.schema.metadata[_SUM]) != _checksum(columns, text):
        raise ValueError("damaged since it was written")
    side = msgspec.json.decode(text, type=_Side)
    return EventTable(
        columns,
        side.names,
        side.cats,
        side.lanes,
        side.details,
        side.meta,
        side.base_ns,
        side.lane_names,
        side.counts,
        [_note(n) for n in side.notes],
    )


def _column(array: Any, kind: Any) -> NDArray[Any]:
    """A column as numpy over the mapped bytes (``to_numpy`` would import pandas)."""
    if array.type != _arrow_type(kind) or array.null_count:
        raise ValueError("a column of another type")
    data = array.buffers()[1]
    whole = np.frombuffer(data, dtype=kind) if data else np.empty(0, dtype=kind)
    return whole[array.offset : array.offset + len(array)]


def _arrow_type(kind: Any) -> Any:
    import pyarrow as pa

    return pa.from_numpy_dtype(kind)


def _note(n: dict[str, str]) -> Note:
    severity = n["severity"]
    known = severity if severity in ("info", "warning", "error") else "warning"
    return Note(n["code"], n["text"], known, n["file"])  # type: ignore[arg-type]


def _source(file: Path) -> str:
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as mapped:
            metadata = pa.ipc.open_file(mapped).schema.metadata or {}
        return bytes(metadata.get(b"source", b"")).decode("utf-8", "replace")
    except (OSError, ValueError):
        return "(damaged)"
