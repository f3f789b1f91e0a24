"""Settings from files and flags are merged in order, and each wrong one gets one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime import dims, flags
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
        ("--set train.=1", "--set 'train.=1': write SECTION.KEY=VALUE"),
        ("--set .=1", "--set '.=1': write SECTION.KEY=VALUE"),
        ("--set model.dims=3", "model.dims = '3': must be a table, such as [model.dims]"),
        ("--grid x=" + "9" * 5000, "--grid 'x=9999"),
        ("--grid x=\u0661", "--grid part 'x=\u0661': write AXIS=DEGREE"),
        ("--steps \u0663", "train.steps = '\u0663': must be a whole number"),
        ("--grid x=65537", "grid.x = 65537: must be at most 65536"),
        ("--grid x=65536,y=2", "grid: x * y * z * data = 131072: a job has at most 65536 ranks"),
        ("-n 1025 --batch 1025", "1025 ranks on this machine: at most 1024; start more with"),
        ("-n \u0662", "-n '\u0662': must be a whole number"),
        ("--out=", "train.out = '': must name the run folder, such as --out RUN"),
        ("--out a\0b", "train.out: a folder's name holds no NUL"),
        ("--resume=", "--resume '': name a run or checkpoint folder"),
        ("--timeout 604801", "train.timeout_s = 604801.0: must be at most 604800.0"),
        ("--data synthetic:foo", "--data 'synthetic:foo': synthetic takes no name"),
        (
            "--fault jitter:ms=1 --fault jitter:ms=2",
            "--fault 'jitter:ms=2': jitter is given twice; a run has one of a kind",
        ),
        ("--port x", "--port 'x': must be a whole number"),
        ("--port 70000", "--port 70000: no port (0 to 65535)"),
        ("--", "'--' is one argument too many"),
        ("--set optimizer.beta1=1", "optimizer.beta1 = 1.0: must be below 1.0"),
        ("--set optimizer.beta2=2", "optimizer.beta2 = 2.0: must be below 1.0"),
        ("--set optimizer.eps=0", "optimizer.eps = 0.0: must be above 0.0"),
        ("--set schedule.floor=9", "schedule.floor = 9.0: must be at most 1.0"),
        ("--set precision.scale=1e308", "precision.scale = 1e+308: must be at most 16777216.0"),
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
        ("[model]\ndims = 3\n", "model.dims = 3: must be a table"),
        ("[model]\ndims = 'ab'\n", "model.dims = 'ab': must be a table"),
        ("[model]\ndims = [1]\n", "model.dims = [1]: must be a table"),
        ("[train]\nsteps = inf\n", "train.steps = inf: must be a whole number"),
        ("[grid]\nx = inf\n", "grid.x = inf: must be a whole number"),
        ("[train]\nsteps = " + "9" * 5000, "no TOML ("),
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deep"),
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


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Some editors write one; the settings behind it are read."""
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbf[train]\nsteps = 3\n")
    assert config("--config", str(file)).train.steps == 3


def test_the_bounds_themselves_are_allowed() -> None:
    """The largest job, the longest timeout, floor 1 and the largest scale are no faults."""
    large = config("--set", "precision.scale=16777216", "--set", "schedule.floor=1")
    assert (large.precision.scale, large.schedule.floor) == (2.0**24, 1.0)
    assert config("--timeout", "604800").train.timeout_s == 604800.0
    assert config("-n", "1024", "--batch", "1024").grid.data == 1024
    assert config("--batch", "65536", world_size=65536).grid.data == 65536


@pytest.mark.parametrize(
    ("model", "dim", "message"),
    [
        ("mlp-tiny", "layers=1", "layers = 1: a perceptron has at least 2"),
        ("mlp-tiny", "hidden=0", "hidden = 0: must be at least 1"),
        ("mlp-tiny", "classes=49", "classes = 49: must be at most inputs = 48"),
        ("mlp-tiny", "dropout=1", "dropout = 1.0: must be at least 0 and below 1"),
        ("gpt-tiny", "layers=0", "layers = 0: must be at least 1"),
        ("gpt-tiny", "heads=0", "heads = 0: must be at least 1"),
        ("gpt-tiny", "heads=5", "features = 96: must divide by heads = 5"),
        ("gpt-tiny", "kv_heads=-24", "kv_heads = -24: must be at least 1"),
        ("gpt-tiny", "kv_heads=5", "heads = 24: must divide by kv_heads = 5"),
        ("gpt-tiny", "length=0", "length = 0: must be at least 1"),
        ("gpt-tiny", "vocabulary=1", "vocabulary = 1: must be at least 2"),
        ("unet-tiny", "blocks=0", "blocks = 0: must be at least 1"),
        ("unet-tiny", "groups=0", "groups = 0: must be at least 1"),
        ("unet-tiny", "groups=7", "channels = 24: must divide by groups = 7"),
        ("unet-tiny", "heads=-1", "heads = -1: must be at least 1, or 0 for no attention"),
        ("unet-tiny", "levels=0", "levels = 0: must be at least 1"),
        ("unet-tiny", "multipliers=0,1", "multipliers = (0, 1): must be one for each level"),
        ("unet-tiny", "image=15", "image = 15: must be halved 1 times"),
    ],
)
def test_a_wrong_dimension_is_one_line(model: str, dim: str, message: str) -> None:
    """The line names dimension, value and rule."""
    with pytest.raises(ConfigError) as caught:
        dims.model_dims(config("--model", model, "--dim", dim))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_no_torch_is_needed_to_refuse_a_dimension() -> None:
    """The launcher checks dimensions before any rank starts, and does not load torch for it."""
    code = "import sys, runtime.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_flag_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows each flag and ends well."""
    with pytest.raises(SystemExit) as caught:
        flags.read(["--help"], "tracekit train")
    assert caught.value.code == 0
    shown: Any = capsys.readouterr().out
    assert shown.startswith("usage: tracekit train")
    for flag in (*flags.PLAIN, "--grid", "--overlap", "--resume", "--plan", "--fault", "--zero"):
        assert flag in shown
