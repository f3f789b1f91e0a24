"""Settings from files and flags are merged in order, and each wrong one gets one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime import flags
from runtime.config import Config
from runtime.settings import ConfigError


def config(*words: str, world_size: int = 0) -> Config:
    """The settings of some flags."""
    return flags.read(words, "test", world_size).config


def test_a_flag_wins_over_the_plan_and_the_plan_over_the_config(tmp_path: Path) -> None:
    """Each source changes what it names and leaves the rest."""
    (tmp_path / "run.toml").write_text(
        "[optimizer]\nlr = 0.5\nbeta1 = 0.8\n[batch]\nsize = 24\n[grid]\nx = 4\n"
    )
    (tmp_path / "plan.toml").write_text(
        "[grid]\nx = 2\nz = 2\npipe = 1\n[optimizer]\nlr = 0.25\n[model]\nlayers = 3\n"
        "[machine]\nname = 'here'\n[predicted]\nstep_ms = 12.5\n"
    )
    files = ("--config", str(tmp_path / "run.toml"), "--plan", str(tmp_path / "plan.toml"))
    merged = config(*files, "--lr", "0.125")
    assert merged.optimizer.lr == 0.125
    assert merged.optimizer.beta1 == 0.8
    assert merged.batch.size == 24
    assert (merged.grid.x, merged.grid.z, merged.grid.ranks) == (2, 2, 4)
    assert merged.model.dims == {"layers": 3}
    assert merged.machine == {"name": "here"}
    assert merged.predicted == {"step_ms": 12.5}
    assert config(*files).optimizer.lr == 0.25


def test_grid_overlap_and_model_flags_replace_the_whole_section(tmp_path: Path) -> None:
    """--grid x=2 on a plan with z=2 means x=2 alone; the plan's order stays."""
    (tmp_path / "plan.toml").write_text(
        "[grid]\nz = 2\norder = ['data', 'z', 'y', 'x']\n[model]\npreset = 'a'\nlayers = 3\n"
    )
    merged = config("--plan", str(tmp_path / "plan.toml"), "--grid", "x=2", "--model", "b")
    assert (merged.grid.x, merged.grid.z) == (2, 1)
    assert merged.grid.order == ("data", "z", "y", "x")
    assert (merged.model.preset, merged.model.dims) == ("b", {})
    assert config("--overlap", "oar,bucket").overlap.ors is False


def test_a_job_without_a_grid_is_data_parallel() -> None:
    """-n 4 alone is data=4, one rank is the serial model, torchrun's size counts as -n."""
    assert config("-n", "4").grid.data == 4
    assert config().grid.ranks == 1
    assert config(world_size=2).grid.data == 2
    assert flags.read(["--grid", "x=2,z=2"], "test").ranks == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--stesp 3", "unknown flag --stesp: did you mean '--steps'?"),
        ("--steps 0.5", "train.steps = '0.5': must be a whole number"),
        ("--steps -1", "train.steps = -1: must be at least 0"),
        ("--timeout 0", "train.timeout_s = 0.0: must be above 0.0"),
        ("--lr nan", "optimizer.lr = nan: must be finite"),
        ("--dtype fp8", "precision.dtype = 'fp8': choose from fp64, fp32, bf16, fp16"),
        ("--set optimizer.lrr=3", "unknown setting 'lrr' in [optimizer]: did you mean 'lr'?"),
        ("--set optimiser.lr=3", "unknown setting 'optimiser' at the top: did you mean 'optim"),
        ("--grid x=2,q=2", "--grid part 'q=2': write AXIS=DEGREE, AXIS one of x, y, z, data, once"),
        ("--grid x=2 --order x,y,z", "grid.order = 'x,y,z': name each of x, y, z, data once"),
        (
            "-n 4 --grid x=3",
            "grid x=3, y=1, z=1, data=1: x * y * z * data = 3 must equal the 4 ranks of the job",
        ),
        ("--set grid.pipe=2", "grid.pipe = 2: pipelines are not run; set pipe = 1"),
        (
            "-n 2 --batch 6 --micro-batches 2",
            "batch.size = 6: must divide by z * data * micro_batches = 1 * 2 * 2",
        ),
        ("--overlap oar,foo", "--overlap 'foo': choose from oar, ors, oag, bucket, all, none"),
        ("--data text", "data.kind = 'text': needs data.path, or give --data text:FILE"),
        ("--data pictures", "data.kind = 'pictures': choose from synthetic, text"),
        ("-n 0", "-n 0: a job has at least 1 rank"),
        ("here", "'here' is one argument too many; settings are flags"),
        ("--config nowhere.toml", "nowhere.toml: No such file or directory"),
        ("--profile 1", "--profile '1': write WAIT,WARMUP,ACTIVE, as 2,1,5"),
    ],
)
def test_a_wrong_setting_is_one_line(words: str, message: str) -> None:
    """The line names the value, the rule and the way out."""
    with pytest.raises(ConfigError) as caught:
        config(*words.split())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 3\n", "steps = 3: settings stand in tables"),
        ("[train\n", "no TOML"),
        ("[train]\nsteps = true\n", "train.steps = True: must be a whole number"),
        ("[optimizer]\nzero = 1\n", "optimizer.zero = 1: must be true or false"),
        ("[machine]\na = 1\n[grid]\norder = 3\n", "grid.order = 3: must be a list"),
        ("faults = {slow_rank = 3}\n", "faults.slow_rank = 3: must be a table"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    """So is what a file says wrongly."""
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config("--config", str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_flag_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows each flag and ends well."""
    with pytest.raises(SystemExit) as caught:
        flags.read(["--help"], "tracekit train")
    assert caught.value.code == 0
    shown: Any = capsys.readouterr().out
    assert shown.startswith("usage: tracekit train")
    for flag in (*flags.PLAIN, "--grid", "--overlap", "--resume", "--plan", "--fault", "--zero"):
        assert flag in shown
