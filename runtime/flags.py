"""The flags of ``tracekit train`` and ``python -m runtime.train``; each fault is one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from runtime.config import AXES, MOST_RANKS, OVERLAPS, Config, load
from runtime.faults import parse as parse_fault
from runtime.settings import ConfigError, near, shown

#: flag → (setting, placeholder, help); the value's type is the setting's
PLAIN: dict[str, tuple[str, str, str]] = {
    "--order": ("grid.order", "AXES", "axes from innermost to outermost (x,y,z,data)"),
    "--steps": ("train.steps", "N", "training steps (20)"),
    "--batch": ("batch.size", "N", "samples of a step, over all ranks (16)"),
    "--micro-batches": ("batch.micro_batches", "N", "parts in which a rank takes its batch (1)"),
    "--seed": ("train.seed", "N", "of weights, data and dropout (0)"),
    "--dtype": ("precision.dtype", "TYPE", "fp64, fp32, bf16 or fp16 (fp32)"),
    "--recompute": ("batch.recompute", "WHAT", "none, selective or full (none)"),
    "--lr": ("optimizer.lr", "RATE", "highest learning rate (0.001)"),
    "--warmup": ("schedule.warmup", "N", "steps until it is reached (2)"),
    "--weight-decay": ("optimizer.weight_decay", "W", "of matrices (0.1)"),
    "--clip": ("optimizer.clip", "NORM", "largest global gradient norm, 0 for none (1)"),
    "--clip-norm": ("optimizer.clip_norm", "P", "2 or inf (2)"),
    "--out": ("train.out", "FOLDER", "run folder (RUN)"),
    "--save-every": ("train.save_every", "N", "steps between checkpoints, 0 for none (0)"),
    "--eval-every": ("train.eval_every", "N", "steps between evaluations, 0 for none (0)"),
    "--timeout": ("train.timeout_s", "S", "how long a collective may take, in seconds (300)"),
    "--threads": ("train.threads", "N", "torch threads of a rank, 0 for torch's choice (1)"),
    "--record": ("record.mode", "MODE", "profile, light or off (profile)"),
}
#: ranks that one launcher starts
MOST_HERE = 1024


@dataclass(frozen=True)
class Options:
    """What the flags say.

    Attributes
    ----------
    config : Config
    ranks : int
        Size of the job.
    port : int
        Where the ranks meet, 0 for any free one.
    """

    config: Config
    ranks: int
    port: int


class _Parser(argparse.ArgumentParser):
    """Raises one line where argparse would print several and leave."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; '{self.prog} --help' shows what there is")


def read(argv: Sequence[str], prog: str, world_size: int = 0) -> Options:
    """The settings that flags and the files they name give.

    Parameters
    ----------
    argv : sequence of str
    prog : str
        How the command is called, for its help.
    world_size : int
        Ranks of the job this process is in; 0 where the flags are to say it.

    Raises
    ------
    ConfigError
        For an unknown flag or a wrong value.
    SystemExit
        After ``--help``.
    """
    parser = _parser(prog)
    words = list(argv)
    if "--" in words:
        raise ConfigError("'--' is one argument too many; settings are flags")
    given, unknown = parser.parse_known_args(words)
    if unknown:
        word = unknown[0].partition("=")[0]
        if not word.startswith("-"):
            raise ConfigError(f"{unknown[0]!r} is one argument too many; settings are flags")
        known = [o for a in parser._actions for o in a.option_strings]
        raise ConfigError(f"unknown flag {word}: {near(word, known)}")
    ranks, port = _ranks(given.ranks, world_size), _port(given.port)
    if given.resume == "":
        raise ConfigError("--resume '': name a run or checkpoint folder, or leave the name out")
    config = load(given.config, given.plan, _settings(given), ranks)
    if not world_size and config.grid.ranks > MOST_HERE:
        raise ConfigError(
            f"{config.grid.ranks} ranks on this machine: at most {MOST_HERE}; start more with "
            "torchrun on several"
        )
    return Options(config, config.grid.ranks, port)


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=prog,
        description="Train a model on a grid of processes and record where the time goes.",
        epilog="A setting with no flag: --set SECTION.KEY=VALUE. Flags win over --plan, it over "
        "--config. docs: runtime/README.md",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-n", "--ranks", metavar="N", help="processes; 1 is the serial model")
    add("--grid", metavar="DEGREES", help="such as x=2,data=2 (default: data = N)")
    add("--model", metavar="NAME", help="mlp-tiny, gpt-tiny, gpt-small or unet-tiny (gpt-tiny)")
    add("--dim", action="append", default=[], metavar="KEY=VALUE", help="a dimension of the model")
    add("--overlap", metavar="WHICH", help="oar,ors,oag,bucket, all or none (all)")
    for flag, (setting, metavar, text) in PLAIN.items():
        add(flag, dest=setting, metavar=metavar, help=text)
    add("--zero", action="store_true", help="shard the optimizer's state over the data axis")
    add("--data", metavar="SOURCE", help="synthetic, or text:FILE for the bytes of a text file")
    add("--profile", metavar="W,U,A[,R]", help="profiler: wait, warm up, active steps, repeats")
    add("--resume", nargs="?", const="latest", metavar="FOLDER", help="go on from a checkpoint")
    add("--overwrite", action="store_true", help="replace what the run folder holds")
    add("--fault", action="append", default=[], metavar="FAULT", help="slow_rank:rank=1,factor=2")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any setting")
    add("--config", type=Path, metavar="FILE", help="settings as TOML")
    add("--plan", type=Path, metavar="FILE", help="a plan file of tracekit tune")
    add("--port", default="0", metavar="N", help="where ranks meet (any free one)")
    return parser


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    """``section.key`` → value for every flag that was given; whole sections come first."""
    settings: dict[str, Any] = {}
    for name, read_one in _READ.items():
        if (text := getattr(given, name)) not in (None, False):
            settings.update(read_one(text))
    for text in given.dim:
        key, number = _pair("--dim", text)
        settings[f"model.{key}"] = number
    for setting, _, _ in PLAIN.values():
        if (text := getattr(given, setting)) is not None:
            settings[setting] = text
    for text in given.fault:
        name, table = parse_fault(text)
        if f"faults.{name}" in settings:
            raise ConfigError(f"--fault {text!r}: {name} is given twice; a run has one of a kind")
        settings[f"faults.{name}"] = table
    for text in given.set:
        key, number = _pair("--set", text)
        section, dot, rest = key.partition(".")
        if not (section and dot and rest):
            raise ConfigError(f"--set {text!r}: write SECTION.KEY=VALUE")
        settings[key] = number
    return settings


def _grid(text: str) -> dict[str, int]:
    degrees: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        axis, _, size = part.partition("=")
        if axis not in AXES or not (size.isascii() and size.isdecimal()) or axis in degrees:
            known = ", ".join(AXES)
            said = f"--grid part {shown(part)}"
            raise ConfigError(f"{said}: write AXIS=DEGREE, AXIS one of {known}, once")
        if len(size) > 9:
            raise ConfigError(f"--grid {shown(part)}: a degree is at most {MOST_RANKS}")
        degrees[axis] = int(size)
    return {axis: degrees.get(axis, 1) for axis in AXES}


def _overlap(text: str) -> dict[str, bool]:
    names = {"none": [], "all": list(OVERLAPS)}.get(text, text.split(","))
    for name in names:
        if name not in OVERLAPS:
            known = f"choose from {', '.join(OVERLAPS)}, all, none"
            raise ConfigError(f"--overlap {name!r}: {known}")
    return {name: name in names for name in OVERLAPS}


def _profile(text: str) -> dict[str, Any]:
    keys = ("record.wait", "record.warmup", "record.active", "record.repeat")
    parts = text.split(",")
    if len(parts) not in (3, 4):
        raise ConfigError(f"--profile {text!r}: write WAIT,WARMUP,ACTIVE, as 2,1,5")
    return {"record.mode": "profile", **dict(zip(keys, parts, strict=False))}


def _data(text: str) -> dict[str, str]:
    kind, _, path = text.partition(":")
    if kind == "synthetic" and text != kind:
        raise ConfigError(f"--data {shown(text)}: synthetic takes no name; write text:FILE")
    return {"data.kind": kind, "data.path": path}


#: flags with a notation of their own, and what they set
_READ: dict[str, Callable[[Any], dict[str, Any]]] = {
    "grid": lambda text: {"grid": _grid(text)},
    "overlap": lambda text: {"overlap": _overlap(text)},
    "model": lambda text: {"model": {"preset": text}},
    "data": _data,
    "profile": _profile,
    "resume": lambda text: {"train.resume": text},
    "zero": lambda _: {"optimizer.zero": True},
    "overwrite": lambda _: {"train.overwrite": True},
}


def _pair(flag: str, text: str) -> tuple[str, str]:
    key, sign, right = text.partition("=")
    if not sign or not key:
        raise ConfigError(f"{flag} {text!r}: write KEY=VALUE")
    return key, right


def _ranks(text: str | None, world_size: int) -> int:
    """Size of the job; 0 where the grid is to say it."""
    if text is None:
        return world_size
    ranks = _whole("-n", text)
    if ranks < 1:
        raise ConfigError(f"-n {ranks}: a job has at least 1 rank")
    if world_size and ranks != world_size:
        raise ConfigError(f"-n {ranks}: this job was started with {world_size} ranks")
    return ranks


def _port(text: str) -> int:
    port = _whole("--port", text)
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: no port (0 to 65535)")
    return port


def _whole(flag: str, text: str) -> int:
    if not (text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 18):
        raise ConfigError(f"{flag} {shown(text)}: must be a whole number")
    return int(text)


def say(text: str) -> None:
    """One line on stderr, named after the program."""
    if sys.stderr is not None:
        sys.stderr.write("tracekit: " + " ".join(text.split())[:2000] + "\n")
