"""All settings of a run as one frozen tree, from a TOML file, a plan file and flags, in this order.

Reading them needs no torch, so that the launcher refuses a wrong setting before it starts a rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from runtime.faults import FaultSettings
from runtime.settings import ConfigError, fill, least, near, read_toml, shown

AXES = ("x", "y", "z", "data")
OVERLAPS = ("oar", "ors", "oag", "bucket")
#: of a job, on any number of machines; a week for a collective, which outlasts any good one
MOST_RANKS, MOST_TIMEOUT_S = 65536, 604800.0


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    """Degrees of the process grid, and its axes from innermost to outermost."""

    x: int = least(1, 1, most=MOST_RANKS)
    y: int = least(1, 1, most=MOST_RANKS)
    z: int = least(1, 1, most=MOST_RANKS)
    data: int = least(1, 1, most=MOST_RANKS)
    pipe: int = least(1, 1)
    order: tuple[str, ...] = AXES

    def __post_init__(self) -> None:
        if self.pipe != 1:
            raise ConfigError(f"grid.pipe = {self.pipe}: pipelines are not run; set pipe = 1")
        if sorted(self.order) != sorted(AXES):
            order = ",".join(self.order)
            raise ConfigError(f"grid.order = {order!r}: name each of {', '.join(AXES)} once")
        if self.ranks > MOST_RANKS:
            raise ConfigError(
                f"grid: x * y * z * data = {self.ranks}: a job has at most {MOST_RANKS} ranks"
            )

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return prod(getattr(self, axis) for axis in AXES)


@dataclass(frozen=True, kw_only=True)
class OverlapSettings:
    """Which communication runs under compute."""

    oar: bool = True
    ors: bool = True
    oag: bool = True
    bucket: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """A preset, and what differs from it; other keys of [model] are the model's dimensions."""

    preset: str = "gpt-tiny"
    dims: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """Samples of a step on the whole grid, micro-batches of a rank, what backward recomputes."""

    size: int = least(16, 1)
    micro_batches: int = least(1, 1)
    recompute: Literal["none", "selective", "full"] = "none"


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Length of the run and its folder; ``*_every`` are in steps, 0 is never.

    ``resume`` is ``latest`` for the newest checkpoint of ``out``, or a run or checkpoint folder.
    """

    steps: int = least(20, 0)
    seed: int = 0
    out: str = "RUN"
    resume: str = ""
    overwrite: bool = False
    save_every: int = least(0, 0)
    keep: int = least(2, 1)
    eval_every: int = least(0, 0)
    eval_batches: int = least(2, 1)
    timeout_s: float = least(300.0, 0.0, above=True, most=MOST_TIMEOUT_S)
    threads: int = least(1, 0, most=4096)

    def __post_init__(self) -> None:
        for name in ("out", "resume"):
            if "\0" in getattr(self, name):
                raise ConfigError(f"train.{name}: a folder's name holds no NUL; give another")
        if not self.out:
            raise ConfigError("train.out = '': must name the run folder, such as --out RUN")


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """AdamW. Matrices decay, vectors do not; ``clip`` is the largest gradient norm, 0 is none."""

    lr: float = least(1e-3, 0.0)
    beta1: float = least(0.9, 0.0, below=1.0)
    beta2: float = least(0.95, 0.0, below=1.0)
    eps: float = least(1e-8, 0.0, above=True)
    weight_decay: float = least(0.1, 0.0)
    clip: float = least(1.0, 0.0)
    clip_norm: Literal["2", "inf"] = "2"
    zero: bool = False


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Learning rate: linear warmup steps, then a cosine down to ``floor`` of it, or constant."""

    kind: Literal["cosine", "constant"] = "cosine"
    warmup: int = least(2, 0)
    floor: float = least(0.1, 0.0, most=1.0)


@dataclass(frozen=True, kw_only=True)
class PrecisionSettings:
    """Number format; bf16 and fp16 compute in it and keep fp32 parameters. Scale is for fp16."""

    dtype: Literal["fp64", "fp32", "bf16", "fp16"] = "fp32"
    scale: float = least(65536.0, 1.0, most=2.0**24)
    scale_window: int = least(200, 1)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where samples come from; ``path`` is a text file, whose bytes are the tokens."""

    kind: Literal["synthetic", "text"] = "synthetic"
    path: str = ""

    def __post_init__(self) -> None:
        if self.kind == "text" and not self.path:
            raise ConfigError("data.kind = 'text': needs data.path, or give --data text:FILE")
        if self.kind == "synthetic" and self.path:
            path = shown(self.path)
            raise ConfigError(f"data.path = {path}: synthetic data has none; write text:FILE")
        if "\0" in self.path:
            raise ConfigError("data.path: a file's name holds no NUL; give another")


@dataclass(frozen=True, kw_only=True)
class RecordSettings:
    """What is traced; the profiler's windows count in steps, as torch.profiler.schedule does."""

    mode: Literal["profile", "light", "off"] = "profile"
    wait: int = least(2, 0)
    warmup: int = least(1, 0)
    active: int = least(5, 1)
    repeat: int = least(1, 0)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run.

    Attributes
    ----------
    machine, predicted : dict
        What a plan says of the machine and expects; kept in run.json, never acted upon.
    """

    grid: GridSettings = field(default_factory=GridSettings)
    overlap: OverlapSettings = field(default_factory=OverlapSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    precision: PrecisionSettings = field(default_factory=PrecisionSettings)
    data: DataSettings = field(default_factory=DataSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    machine: dict[str, Any] = field(default_factory=dict)
    predicted: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shares = self.grid.z * self.grid.data
        if self.batch.size % (shares * self.batch.micro_batches):
            raise ConfigError(
                f"batch.size = {self.batch.size}: must divide by z * data * micro_batches = "
                f"{self.grid.z} * {self.grid.data} * {self.batch.micro_batches}"
            )
        for name, rank in self.faults.ranks():
            if not 0 <= rank < self.grid.ranks:
                raise ConfigError(
                    f"faults.{name}.rank = {rank}: the job has ranks 0 to {self.grid.ranks - 1}"
                )

    def table(self) -> dict[str, Any]:
        """The tree as plain tables."""
        return asdict(self)


Tables = dict[str, dict[str, Any]]


def load(config: Path | None, plan: Path | None, flags: Mapping[str, Any], ranks: int) -> Config:
    """Merge the files and the flags; a flag wins over the plan, the plan over the config file.

    Parameters
    ----------
    config, plan : Path or None
    flags : mapping
        ``section.key`` → value; a whole section replaces what the files say of it.
    ranks : int
        Size of the job; 0 where the grid alone says it. A job without a grid is data-parallel.

    Raises
    ------
    ConfigError
        For anything wrong in them; one line.
    """
    tables: Tables = {}
    for path in (config, plan):
        if path is not None:
            _merge(tables, read_toml(path))
    for name, given in flags.items():
        section, _, key = name.partition(".")
        if key:
            _merge(tables, {section: {key: given}})
        else:
            order = (
                {"order": tables.get("grid", {}).get("order", AXES)} if section == "grid" else {}
            )
            tables[section] = {**order, **given}
    degrees = set(tables.get("grid", {})) - {"order"}
    if ranks and not degrees:
        _merge(tables, {"grid": {"data": ranks}})
    tables["model"] = _model(tables.get("model", {}))
    made = fill(Config, tables, "")
    if ranks and made.grid.ranks != ranks:
        said = ", ".join(f"{a}={getattr(made.grid, a)}" for a in AXES)
        raise ConfigError(
            f"grid {said}: x * y * z * data = {made.grid.ranks} must equal the {ranks} ranks of "
            "the job; change -n or --grid"
        )
    return made


def _merge(into: Tables, new: Mapping[str, Any]) -> None:
    for section, table in new.items():
        if not isinstance(table, Mapping):
            known = [*Config.__dataclass_fields__]
            hint = near(section, known) if section not in known else f"write [{section}]"
            raise ConfigError(f"{section} = {shown(table)}: settings stand in tables; {hint}")
        into[section] = {**into.get(section, {}), **table}


def _model(table: Mapping[str, Any]) -> dict[str, Any]:
    """[model] with its dimensions in a table of their own; models check their names."""
    given = table.get("dims", {})
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"model.dims = {shown(given)}: must be a table, such as [model.dims]; "
            "write --dim KEY=VALUE for one"
        )
    dims = {**given, **{k: v for k, v in table.items() if k not in _MODEL}}
    return {"dims": dims, **({"preset": table["preset"]} if "preset" in table else {})}


_MODEL = ("preset", "dims")
