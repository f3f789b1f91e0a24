"""Stop when the ranks of a group are about to call different collectives, and say which."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from runtime.grid import Axis

#: what must be the same on all ranks of a group
_MUST_AGREE = ("op", "elems", "dtype", "seq")


class DivergedError(RuntimeError):
    """Ranks of one group called different collectives, or one of them called none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A collective about to be issued."""

    group: str
    op: str
    elems: int
    dtype: str
    seq: int
    step: int
    phase: str
    layer: str

    def __str__(self) -> str:
        where = ", ".join(w for w in (self.phase, self.layer) if w)
        return (
            f"{self.op} #{self.seq} of {self.elems} {self.dtype} on {self.group} "
            f"({where}, step {self.step})"
        )

    def agrees(self, other: Call) -> bool:
        """Whether the two are parts of one collective."""
        return all(getattr(self, name) == getattr(other, name) for name in _MUST_AGREE)


@dataclass
class Agreement:
    """Compares every collective across its group before it is issued; for debugging.

    The calls are exchanged through the job's store, not through collectives, so that a rank that
    calls another collective, or none, is found instead of hanging the job.

    Parameters
    ----------
    timeout_s : float
        How long to wait for the other ranks of a group to come to the same place.
    """

    timeout_s: float = 30.0
    _number: Counter[str] = field(default_factory=Counter)
    _store: Any = None

    def check(self, place: Axis, call: Call) -> None:
        """Return once all ranks of the group are about to make the same call.

        Raises
        ------
        DivergedError
            Names the rank, the step and both calls.
        """
        if self._store is None:
            self._store = dist.PrefixStore("agreement", dist.distributed_c10d._get_default_store())
        number = self._number[place.pg_name]
        self._number[place.pg_name] += 1
        me, text = place.ranks[place.index], json.dumps(asdict(call))
        self._store.set(f"last/{me}", text)
        self._store.set(f"{place.pg_name}/{number}/{me}", text)
        for rank in place.ranks:
            other = self._ask(place, number, rank, call)
            if not call.agrees(other):
                raise DivergedError(
                    f"collectives diverge: rank {me} calls {call}, rank {rank} calls {other}"
                )
        if number:  # all are past the one before
            self._store.delete_key(f"{place.pg_name}/{number - 1}/{me}")

    def _ask(self, place: Axis, number: int, rank: int, call: Call) -> Call:
        key = f"{place.pg_name}/{number}/{rank}"
        try:
            self._store.wait([key], timedelta(seconds=self.timeout_s))
        except RuntimeError as e:
            raise DivergedError(self._missing(place, rank, call)) from e
        return Call(**json.loads(self._store.get(key)))

    def _missing(self, place: Axis, rank: int, call: Call) -> str:
        me = place.ranks[place.index]
        words = f"rank {rank} did not come to {call} of rank {me} within {self.timeout_s:g} s"
        if not self._store.check([f"last/{rank}"]):
            return f"{words}; it has called no collective yet"
        return f"{words}; its last call is {Call(**json.loads(self._store.get(f'last/{rank}')))}"
