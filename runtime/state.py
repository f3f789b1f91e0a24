"""A model in training, made from the settings: all that a checkpoint holds and a step changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from runtime import checkpoint, data, models, stored
from runtime.checkpoint import Part
from runtime.comm import Comm
from runtime.config import Config
from runtime.data import Loader
from runtime.dims import ModelConfig, model_dims
from runtime.faults import Faults
from runtime.grid import Grid, GridShape
from runtime.optim import Optimizer, Precision
from runtime.overlap import Engine, Overlap
from runtime.settings import ConfigError
from runtime.sharding import Registry


@dataclass
class State:
    """A model in training on one rank.

    Attributes
    ----------
    step : int
        Steps done.
    dims : ModelConfig
        Dimensions of the model.
    """

    config: Config
    dims: ModelConfig
    comm: Comm
    registry: Registry
    engine: Engine
    model: nn.Module
    loader: Loader
    optimizer: Optimizer
    precision: Precision
    faults: Faults
    step: int = 0

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.precision.device

    # -- checkpoints --------------------------------------------------------------------------

    def parts(self) -> dict[str, Part]:
        """Parameters and moments by name, as the serial model would store them."""
        placements = self.registry.placements
        parts = {f"model.{pl.name}": Part(pl, p.detach().view(-1)) for p, pl in placements.items()}
        for piece in self.optimizer.pieces:
            placement = placements[piece.parameter]
            for moment, value in self.optimizer.moments(piece).items():
                name = f"optimizer.{placement.name}.{moment}"
                parts[name] = Part(placement, value, piece.start)
        # with a sharded optimizer a rank may update nothing of a parameter
        for placement in placements.values():
            for moment in ("exp_avg", "exp_avg_sq"):
                nothing = torch.empty(0, dtype=self.precision.parameters)
                name = f"optimizer.{placement.name}.{moment}"
                parts.setdefault(name, Part(placement, nothing))
        return parts

    def save(self, run: Path) -> Path:
        """Write a checkpoint of the steps done so far."""
        state = {
            "position": self.loader.position,
            "seed": self.config.train.seed,
            "updates": self.optimizer.updates,
            "scale": self.optimizer.scale,
            "good_steps": self.optimizer.good_steps,
            "dtype": self.config.precision.dtype,
            "model": asdict(self.dims),
            "grid": asdict(self.config.grid),
        }
        keep = self.config.train.keep
        return checkpoint.save(run, self.step, self.parts(), state, self.comm, keep)

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint, of whatever grid.

        Raises
        ------
        ConfigError
            When it was made with another seed, with which data and dropout would not go on.
        """
        said = stored.read_state(folder)
        if said["seed"] != self.config.train.seed:
            raise ConfigError(
                f"{folder}: made with seed {said['seed']}, this run has {self.config.train.seed}; "
                f"give --seed {said['seed']}"
            )
        parts = self.parts()
        checkpoint.load(folder, parts, self.comm)
        self.step, self.loader.position = said["step"], said["position"]
        self.optimizer.updates = said["updates"]
        if self.config.precision.dtype == "fp16" == said["dtype"]:
            self.optimizer.scale, self.optimizer.good_steps = said["scale"], said["good_steps"]


def build(config: Config, device: torch.device, *, alone: bool = False) -> State:
    """A model in training as the settings say, on this rank's part of the grid.

    Parameters
    ----------
    config : Config
    device : torch.device
    alone : bool
        Whether to be the serial model, inside whatever job.

    Raises
    ------
    ConfigError
        For a model that there is none of, or dimensions that the grid does not divide.
    """
    dims = model_dims(config)
    grid = Grid(_shape(config), alone=alone)
    faults = Faults(config.faults, grid.rank, config.train.seed)
    comm = Comm(grid, delay=faults.before_collective if config.faults.slow_link else None)
    precision = Precision(config.precision, device)
    registry = Registry(grid, config.train.seed, precision.parameters, device)
    engine = Engine(comm, registry, Overlap(**asdict(config.overlap)), config.batch.recompute)
    try:
        model = models.build(engine, dims)
    except ConfigError:
        raise
    except ValueError as e:
        raise ConfigError(f"model {config.model.preset} on this grid: {e}") from e
    source = data.source(config.data, config.train.seed, dims)
    loader = Loader(source, grid, config.batch.size, config.batch.micro_batches, device)
    optimizer = Optimizer(registry, comm, config.optimizer, config.precision)
    return State(config, dims, comm, registry, engine, model, loader, optimizer, precision, faults)


def _shape(config: Config) -> GridShape:
    grid = config.grid
    return GridShape(x=grid.x, y=grid.y, z=grid.z, data=grid.data, order=grid.order)
