"""What a checkpoint's files say, read without running code from them; damage is one line."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import CheckpointException, FileSystemReader
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.futures import Future

FORMAT = 1
STATE, METADATA = "state.json", ".metadata"
_INDEX = "torch.distributed.checkpoint.metadata"
_FILES = "torch.distributed.checkpoint.filesystem"
#: all that the pickled index of a checkpoint may consist of
HARMLESS = frozenset(
    {
        ("torch", "Size"),
        *(("torch", name) for name in ("float64", "float32", "bfloat16", "float16")),
        ("torch.serialization", "_get_layout"),
        (_INDEX, "ChunkStorageMetadata"),
        (_INDEX, "Metadata"),
        (_INDEX, "MetadataIndex"),
        (_INDEX, "StorageMeta"),
        (_INDEX, "TensorProperties"),
        (_INDEX, "TensorStorageMetadata"),
        (_INDEX, "_MEM_FORMAT_ENCODING"),
        (_FILES, "_StorageInfo"),
        (_FILES, "_StoragePrefix"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),
    }
)


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; one line."""


def damaged(folder: Path, file: str, reason: str) -> CheckpointError:
    """The one line that says which file of a checkpoint cannot be used, and why."""
    return CheckpointError(
        f"{folder}: {file} is damaged ({reason}); resume from another checkpoint"
    )


def first_line(error: BaseException) -> str:
    """The first line of what went wrong; never torch's advice on how to run code from a file."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = text.strip().splitlines()
    if not lines or "weights only" in text.lower() or "weights_only" in text:
        return f"it cannot be decoded: {type(error).__name__}"
    return lines[0][:300]


# -- state -------------------------------------------------------------------------------------


def read_state(folder: Path) -> dict[str, Any]:
    """What a checkpoint says besides tensors: step, data position, seed and so on.

    Raises
    ------
    CheckpointError
        When it cannot be read, or a value is none that a run can go on from.
    """
    try:
        state: Any = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise damaged(folder, STATE, first_line(e)) from e
    if not isinstance(state, dict):
        raise damaged(folder, STATE, "it holds no object")
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder}: format {_shown(state.get('format'))}; this version reads {FORMAT}; "
            "resume with the version that wrote it, or from another checkpoint"
        )
    for key, (fits, rule) in _RULES.items():
        if key not in state:
            raise damaged(folder, STATE, f"{key} is missing")
        if not fits(state[key]):
            raise damaged(folder, STATE, f"{key} = {_shown(state[key])}: must be {rule}")
    return state


def _is_int(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_count(given: Any) -> bool:
    return _is_int(given) and 0 <= given < 1 << 53


def _is_scale(given: Any) -> bool:
    return isinstance(given, float | int) and _is_finite(given) and given >= 1


def _is_finite(given: float) -> bool:
    return not isinstance(given, bool) and abs(given) < math.inf


_COUNT = (_is_count, "a whole number, at least 0")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": _COUNT,
    "position": _COUNT,
    "updates": _COUNT,
    "good_steps": _COUNT,
    "seed": (_is_int, "a whole number"),
    "scale": (_is_scale, "a finite number, at least 1"),
    "dtype": (lambda given: isinstance(given, str), "a text"),
}


def _shown(given: object) -> str:
    return repr(given)[:80]


# -- index and tensors -------------------------------------------------------------------------


class Reader(FileSystemReader):
    """Reads the index with an unpickler that makes nothing but an index.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index, whose data files lie in the folder in their full lengths.

        Raises
        ------
        CheckpointError
            Names the file that is not as it should be.
        """
        try:
            with (self._folder / METADATA).open("rb") as file:
                metadata = _Unpickler(file).load()
        except Exception as e:
            raise damaged(self._folder, METADATA, first_line(e)) from e
        if not isinstance(metadata, Metadata) or not _is_index(metadata):
            raise damaged(self._folder, METADATA, "it is no index")
        self._see_files(metadata.storage_data.values())
        meta = getattr(metadata, "storage_meta", None)
        metadata.storage_meta = meta if isinstance(meta, StorageMeta) else StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def _see_files(self, pieces: Any) -> None:
        """That each data file is there and as long as the index says; none lies elsewhere."""
        ends: dict[str, int] = {}
        for piece in pieces:
            name, end = piece.relative_path, piece.offset + piece.length
            if name != Path(name).name or "\0" in name:
                raise damaged(self._folder, METADATA, f"it names a file elsewhere: {name[:80]!r}")
            ends[name] = max(end, ends.get(name, 0))
        for name, end in ends.items():
            try:
                size = (self._folder / name).stat().st_size
            except OSError as e:
                raise damaged(self._folder, name, first_line(e)) from e
            if size < end:
                raise damaged(self._folder, name, f"{size} bytes; the index needs {end}")

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill what is planned, file by file, so that a damaged one can be named."""
        per_file: dict[str, list[Any]] = {}
        for item in plan.items:
            name = self.storage_data[item.storage_index].relative_path
            per_file.setdefault(name, []).append(item)
        for name, items in per_file.items():
            try:
                super().read_data(LoadPlan(items), planner).wait()
            except Exception as e:
                raise damaged(self._folder, name, first_line(e)) from e
        done: Future[None] = Future()
        done.set_result(None)
        return done


def _is_index(metadata: Metadata) -> bool:
    """Whether its tables are of the types that reading relies on."""
    said = vars(metadata)
    tables = (said.get("state_dict_metadata"), said.get("storage_data"))
    return all(isinstance(t, dict) for t in tables) and all(
        isinstance(piece, _StorageInfo)
        and isinstance(vars(piece).get("relative_path"), str)
        and _is_count(vars(piece).get("offset"))
        and _is_count(vars(piece).get("length"))
        for piece in said["storage_data"].values()
    )


class _Unpickler(pickle.Unpickler):
    """Makes the values of an index, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        # a dotted name would be followed through modules to anything that torch has imported
        if "." in name or (module, name) not in HARMLESS:
            said = f"{module}.{name}"[:120]
            raise pickle.UnpicklingError(f"it holds {said!r}, which is no part of an index")
        if module == "torch":
            return getattr(torch, name)
        return super().find_class(module, name)


def failed(folder: Path, error: CheckpointException, *, reading: bool) -> CheckpointError:
    """The first rank's trouble in one line."""
    rank, (cause, _) = min(error.failures.items())
    if isinstance(cause, CheckpointError):
        return cause
    if reading and not isinstance(cause, OSError):
        return damaged(folder, METADATA, first_line(cause))
    return CheckpointError(f"{folder}: rank {rank}: {first_line(cause)}")
