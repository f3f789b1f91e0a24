"""``tracekit demo``: train a small model on four processes here, and show where the time went."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from runtime import launch
from runtime.flags import say
from runtime.settings import ConfigError

#: what `tracekit train` is told; the reader may change it and run it again
TRAINING = ("-n", "4", "--grid", "x=2,data=2", "--model", "gpt-tiny", "--lr", "0.005")


def main(argv: list[str]) -> int:
    """Train, analyze, and say where to look next; gives the exit status."""
    out = _parse(argv)
    words = [*TRAINING, "--overwrite", "--out", str(out)]
    say(f"tracekit train {' '.join(TRAINING)} --out {out}")
    status = launch.train(words)
    if status:
        return status
    say(f"tracekit analyze {out}")
    analyzed = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-P", "-m", "tracekit", "analyze", str(out)], check=False
    ).returncode
    if analyzed == 0:
        sys.stdout.write(_next(out))
    return analyzed


def _parse(argv: list[str]) -> Path:
    parser = _Parser(prog="tracekit demo", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--out", type=Path, default=Path("tracekit-demo"), help="run folder (tracekit-demo)"
    )
    out: Path = parser.parse_args(argv).out
    if out.exists() and not (out / "run.json").exists() and any(out.iterdir()):
        raise ConfigError(f"{out} holds something else; choose another --out")
    return out


class _Parser(argparse.ArgumentParser):
    """Raises one line where argparse would print several and leave."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; 'tracekit demo --help' shows what there is")


def _next(out: Path) -> str:
    """Where to look next."""
    same = "tracekit train -n 4 --grid x=2,data=2 --lr 0.005"
    return f"""
Where to look next
  {out}/traces     one trace per rank; each opens in https://ui.perfetto.dev
  tracekit export {out} --to perfetto -o all.json
                            all ranks in one timeline, with matched collectives joined
  {same} --overlap none --out none
                            the same without overlap; compare the tables
  {same} --fault slow_rank:rank=3,factor=2 --out slow
                            rank 3 computes half as fast; see it named
"""
