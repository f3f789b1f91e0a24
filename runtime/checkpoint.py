"""Save a run and go on from it on any grid: every element lies where the serial model has it.

A checkpoint is written under a hidden name and renamed when all of it is on the disk, so one under
its final name is whole. Written by torch.distributed.checkpoint; reading runs no code from it.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import (
    CheckpointException,
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from runtime.comm import Comm
from runtime.settings import ConfigError
from runtime.sharding import Placement
from runtime.stored import FORMAT, METADATA, STATE, Reader, failed


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Elements of a serial tensor that lie side by side, and where this rank keeps them."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    view: Tensor


class Part:
    """A tensor of the serial model of which this rank holds some rectangles.

    Matrices are stored as (rows, all the rest).

    Parameters
    ----------
    placement : Placement
    flat : Tensor
        This rank's elements ``start`` and following of the placement's local part.
    start : int
    """

    def __init__(self, placement: Placement, flat: Tensor, start: int = 0) -> None:
        shape = placement.shape
        self.shape = torch.Size(shape if len(shape) == 1 else (shape[0], prod(shape[1:])))
        self._properties = TensorProperties(dtype=flat.dtype)
        self._found = {r.offsets: r for r in _rectangles(placement, flat, start, len(self.shape))}

    def write_items(self, name: str) -> list[WriteItem]:
        """What this rank has to write."""
        return [
            WriteItem(
                index=MetadataIndex(name, torch.Size(r.offsets)),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(_chunk(r), self._properties, self.shape),
            )
            for r in self._found.values()
        ]

    def chunks(self) -> list[ChunkStorageMetadata]:
        """Where its rectangles lie."""
        return [_chunk(r) for r in self._found.values()]

    def at(self, index: MetadataIndex) -> Tensor:
        """The rectangle that begins at an index."""
        assert index.offset is not None
        return self._found[tuple(index.offset)].view


def _chunk(rectangle: Rectangle) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(rectangle.offsets), torch.Size(rectangle.sizes))


def _rectangles(placement: Placement, flat: Tensor, start: int, dims: int) -> Iterator[Rectangle]:
    """Cut a stretch of a flattened block into rectangles of the serial tensor.

    A stretch is the end of one row of the block, some whole rows and the beginning of another; the
    block's rows and columns are runs of the serial tensor's.
    """
    width = len(placement.cols)
    first = placement.z_index * placement.part + start
    last = min(first + flat.numel(), len(placement.rows) * width)
    for (top, bottom), (left, right) in _bands(first, last, width):
        for i, rows in _runs(placement.rows[top:bottom], placement.shape[0]):
            for j, cols in _runs(placement.cols[left:right], None):
                at = (top + i) * width + left + j - first + flat.storage_offset()
                sizes, strides = (rows[1], cols[1]), (width, 1)
                offsets = (rows[0], cols[0])
                view = flat.as_strided(sizes[:dims], strides[:dims], at)
                yield Rectangle(offsets[:dims], sizes[:dims], view)


def _bands(first: int, last: int, width: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Rows and columns of the up to three bands of a stretch of a flattened block."""
    while first < last:
        row, column = divmod(first, width)
        if column or last - first < width:
            stop = min(width, column + last - first)
            yield (row, row + 1), (column, stop)
            first += stop - column
        else:
            rows = (last - first) // width
            yield (row, row + rows), (0, width)
            first += rows * width


def _runs(index: Tensor, limit: int | None) -> Iterator[tuple[int, tuple[int, int]]]:
    """Runs of consecutive numbers below a limit: place in ``index``, (first number, length)."""
    numbers = index.tolist()
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            length = at - start
            if limit is not None:
                length = min(length, limit - numbers[start])
            if length > 0:
                yield start, (numbers[start], length)
            start = at


# -- folders -----------------------------------------------------------------------------------


def folder_of(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint after a number of steps."""
    return run / "checkpoints" / f"step-{step:08d}"


def is_whole(folder: Path) -> bool:
    """Whether a folder is a finished checkpoint."""
    return (
        not folder.name.startswith(".")
        and (folder / STATE).is_file()
        and (folder / METADATA).is_file()
    )


def newest(where: Path) -> Path:
    """The newest whole checkpoint of a run folder; a checkpoint's own folder is itself.

    Raises
    ------
    ConfigError
        When there is none.
    """
    if is_whole(where):
        return where
    whole = [f for f in sorted(where.glob("checkpoints/step-*")) if is_whole(f)]
    if not whole:
        raise ConfigError(
            f"--resume {where}: no finished checkpoint there; a run writes them with --save-every"
        )
    return whole[-1]


def _forget_old(run: Path, keep: int) -> None:
    whole = [f for f in sorted(run.glob("checkpoints/step-*")) if is_whole(f)]
    for folder in whole[:-keep]:
        gone = folder.with_name(f".{folder.name}.gone")
        folder.rename(gone)  # at once, so that a half-deleted one is never taken for whole
        shutil.rmtree(gone, ignore_errors=True)


# -- save and load -----------------------------------------------------------------------------


def save(
    run: Path, step: int, tensors: dict[str, Part], state: dict[str, Any], comm: Comm, keep: int
) -> Path:
    """Write a checkpoint, all ranks together; older ones but ``keep`` are removed.

    Raises
    ------
    CheckpointError
        When a rank cannot write; names the rank.
    """
    final = folder_of(run, step)
    partial = final.with_name(f".{final.name}.partial")
    if comm.grid.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    comm.barrier()
    with _quiet():
        try:
            dcp.save(
                tensors,
                checkpoint_id=partial,
                planner=_SavePlanner(),
                no_dist=comm.grid.world_size == 1,
            )
        except CheckpointException as e:
            raise failed(final, e, reading=False) from e
    if comm.grid.rank == 0:
        state = {"format": FORMAT, "step": step, **state}
        with (partial / STATE).open("w") as out:
            json.dump(state, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        if final.exists():  # of a run that was resumed before this step
            shutil.rmtree(final)
        partial.replace(final)
        _sync(final.parent)
        _forget_old(run, keep)
    comm.barrier()
    return final


def load(folder: Path, tensors: dict[str, Part], comm: Comm) -> None:
    """Fill this rank's rectangles from a checkpoint, whatever grid wrote it.

    Raises
    ------
    ConfigError
        When it is of another model.
    CheckpointError
        When it cannot be read.
    """
    reader = Reader(folder)
    stored = reader.read_metadata().state_dict_metadata
    for name, part in tensors.items():
        entry = stored.get(name)
        shape = _shape(entry)
        if shape != list(part.shape):
            raise ConfigError(
                f"{folder}: {name} has shape {shape} there and {list(part.shape)} here; "
                "give the model and dimensions it was made with"
            )
    with _quiet(), torch.no_grad():
        try:
            dcp.load(
                tensors,
                storage_reader=reader,
                planner=_LoadPlanner(),
                no_dist=comm.grid.world_size == 1,
            )
        except CheckpointException as e:
            raise failed(folder, e, reading=True) from e


def _shape(entry: object) -> list[int] | str:
    """What an index says of a tensor's shape."""
    size = vars(entry).get("size") if isinstance(entry, TensorStorageMetadata) else None
    return list(size) if isinstance(size, torch.Size) else "none"


class _SavePlanner(DefaultSavePlanner):
    """Plans to write the rectangles of parts; torch leaves out what another rank writes too."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        parts: dict[str, Part] = self.state_dict
        self.plan = SavePlan([i for name, part in parts.items() for i in part.write_items(name)])
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        part: Part = self.state_dict[index.fqn]
        return part.at(index)


class _LoadPlanner(DefaultLoadPlanner):
    """Plans to fill the rectangles of parts from whatever rectangles were written."""

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        # torch's own would copy every part
        self.state_dict, self.metadata = state_dict, metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        stored = self.metadata.state_dict_metadata
        items = [
            create_read_items_for_chunk_list(name, stored[name], part.chunks())
            for name, part in self.state_dict.items()
        ]
        return LoadPlan(list(chain.from_iterable(items)))

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        part: Part = self.state_dict[index.fqn]
        return part.at(index)


class _quiet(warnings.catch_warnings):  # noqa: N801 - reads as a statement
    """Without what torch warns of when there is only one process, or of its own old calls."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.filterwarnings("ignore", module="torch")
        warnings.filterwarnings("ignore", message="torch.distributed is")


def _sync(folder: Path) -> None:
    """Make the rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
