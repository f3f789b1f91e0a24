"""The bytes a step sends are integers that follow from the shapes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from runtime.grid import GridShape
from runtime.models import GPTConfig, MLPConfig, UNetConfig
from runtime.volume import clipping_volume, step_volume, zero_volume

#: 24 features, 6 tokens, 91 words (and one of padding on 4 ranks of y), one layer
GPT = GPTConfig(layers=1, features=24, heads=4, kv_heads=4, vocabulary=91, length=6, tied=False)
#: what a block's four weights have: 3h * h + h * h + 8h * h
BLOCK = 12 * 24 * 24
VECTORS = 2 * 24 * 3 + 72 + 24 + 96 + 24 + 6 * 24  # norms, biases, positions


def test_tensor_parallel_on_y_sends_four_messages_per_block() -> None:
    """Two forward and two backward all-reduces of m * h, and the vocabulary's."""
    tokens = 5 * 6
    assert step_volume(GPT, GridShape(y=4), 5) == {
        ("y", "all_reduce", "forward"): 4 * 2 * tokens * 24,
        ("y", "all_reduce", "backward"): 4 * 3 * tokens * 24,  # QKV, up and the head
        ("y", "all_reduce", "embedding"): 4 * tokens * 24,
        ("y", "all_reduce", "loss"): 4 * 3 * tokens,
    }


def test_tensor_parallel_on_x_sends_three_times_as_much_and_the_norms() -> None:
    """12 m * h over a block (DESIGN: x is about three times as expensive as y), 19 recomputed."""
    tokens = 5 * 6
    plain = {
        ("x", "all_reduce", "forward"): 4 * tokens * (3 * 24 + 4 * 24 + 91),
        ("x", "all_reduce", "backward"): 4 * tokens * (24 + 4 * 24),
        ("x", "all_gather", "norm"): 4 * 3 * 2 * tokens * 4,
        ("x", "all_reduce", "norm"): 4 * 3 * 2 * tokens,
    }
    assert step_volume(GPT, GridShape(x=4), 5) == plain
    again = dict(plain)
    again["x", "all_reduce", "forward"] += 4 * tokens * 7 * 24
    again["x", "all_gather", "norm"] += 4 * 2 * 2 * tokens * 4
    assert step_volume(GPT, GridShape(x=4), 5, recompute="full") == again
    assert step_volume(GPT, GridShape(x=4), 5, recompute="selective") == plain


def test_z_gathers_and_scatters_by_micro_batch_and_data_sums_once() -> None:
    """Each weight twice (the head, last forward and first backward, once), padded to z."""
    word = 91 * 24 + 1  # 2184 elements over 5 ranks of z are 437 each, one of padding
    block = 1730 + 580 + 2305 + 2305  # 1728, 576, 2304 and 2304, padded
    got = step_volume(GPT, GridShape(z=5, data=2), 3, micro_batches=3, bytes_each=8)
    assert got == {
        ("z", "all_gather", "weight"): 8 * 3 * (word + 2 * block + word),
        ("z_rs", "reduce_scatter", "gradient"): 8 * 3 * (2 * word + block),
        ("z", "all_reduce", "gradient"): 8 * VECTORS,
        ("data", "all_reduce", "gradient"): 8 * ((2 * word + block) // 5 + VECTORS),
    }
    again = step_volume(GPT, GridShape(z=5), 3, recompute="full", bytes_each=8)
    # of a block's weights the last is wanted twice in a row when it is computed again
    assert again["z", "all_gather", "weight"] == 8 * (2 * word + 3 * block - 2305)


def test_tied_weights_are_scattered_twice_and_summed_once() -> None:
    """The embedding's gradient has two uses, but is one parameter."""
    tied = GPTConfig(**{**untied(), "tied": True})
    one, two = (step_volume(c, GridShape(z=2, data=2), 1) for c in (GPT, tied))
    key = ("z_rs", "reduce_scatter", "gradient")
    assert one[key] == two[key]
    apart = one["data", "all_reduce", "gradient"] - two["data", "all_reduce", "gradient"]
    assert apart == 4 * 91 * 24 // 2


def untied() -> dict[str, int | bool]:
    """The GPT's dimensions."""
    return {"layers": 1, "features": 24, "heads": 4, "kv_heads": 4, "vocabulary": 91, "length": 6}


def test_shared_key_value_groups_are_summed_over_their_copies() -> None:
    """2 groups on 4 ranks of y: keys and values of one group on each, summed over neighbours."""
    grouped = GPTConfig(**{**untied(), "heads": 8, "kv_heads": 2})
    got = step_volume(grouped, GridShape(y=4), 1)
    assert got["y_2", "all_reduce", "gradient"] == 4 * (2 * 3 * 24 + 2 * 3)


def test_a_perceptrons_first_layer_reduces_no_input_gradient() -> None:
    """Forward over x, y, x; backward over x (second layer) and y (third)."""
    config = MLPConfig(inputs=8, hidden=12, classes=4, layers=3)
    assert step_volume(config, GridShape(x=2, y=2), 5) == {
        ("x", "all_reduce", "forward"): 4 * 5 * (12 + 4) // 2,
        ("y", "all_reduce", "forward"): 4 * 5 * 12 // 2,
        ("x", "all_reduce", "backward"): 4 * 5 * 12 // 2,
        ("y", "all_reduce", "backward"): 4 * 5 * 12 // 2,
        ("y", "all_reduce", "loss"): 4 * 3 * 5,
    }


def test_a_unets_unpaired_convolutions_are_moved_back() -> None:
    """Shortcuts and resampling gather over y forward, and over x backward."""
    config = UNetConfig(image=4, channels=8, multipliers=(1, 2), groups=2)
    got = step_volume(config, GridShape(x=2, y=2), 3)
    # shortcuts: 8 to 16 down, then 32 to 16, 24 to 16 (2 x 2), 24 to 8, 16 to 8 (4 x 4)
    moved = 4 * (16 + 16 + 16) + 16 * (8 + 8)
    moved += 4 * 8 + 16 * 16  # half and twice the size
    assert got["y", "all_gather", "relayout"] == 4 * 3 * moved // 2
    assert got["x", "all_gather", "relayout"] == 4 * 3 * moved // 2


def test_clipping_sends_one_double_along_each_axis() -> None:
    """The norm's square is summed over x, y and z, never over replicas."""
    assert clipping_volume(GridShape(x=2, z=3, data=2)) == {
        ("x", "all_reduce", "clipping"): 8,
        ("z", "all_reduce", "clipping"): 8,
    }


def test_a_sharded_update_gathers_all_parameters_padded() -> None:
    """A rank's parts of all parameters, and what makes them divide over the replicas."""
    local = 2 * 91 * 24 // 2 + BLOCK // 2 + VECTORS
    got = zero_volume(GPT, GridShape(z=2, data=5), bytes_each=8)
    assert local % 5 == 4
    assert got == {("data", "all_gather", "parameters"): 8 * (local + 1)}
    assert zero_volume(GPT, GridShape(z=2)) == {}


@pytest.mark.parametrize("config", [GPT, MLPConfig(), UNetConfig()])
def test_one_rank_sends_nothing(config: GPTConfig | MLPConfig | UNetConfig) -> None:
    """There is nobody to send to."""
    assert step_volume(config, GridShape(), 8, micro_batches=2, recompute="full") == {}
