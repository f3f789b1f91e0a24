"""Each overlap issues early and waits late; what it hides under comes in between."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from runtime.models import GPTConfig
from runtime.overlap import Overlap
from tests.runtime.exactness import Case
from tests.runtime.overlapping import run, shape_of

CONFIG = GPTConfig(layers=2, features=24, heads=4, kv_heads=4, vocabulary=48, length=8, tied=False)
CASES = {
    f"{axis} {overlap} {recompute}": Case(
        shape_of(axis), CONFIG, overlap, recompute, batch=4, micro_batches=1
    )
    for axis, overlap, recompute in (
        ("z", "oag,ors", "full"),
        ("z", "none", "full"),
        ("y", "oar", "none"),
        ("y", "none", "none"),
        ("data", "bucket", "none"),
        ("data", "none", "none"),
    )
}
Events = list[list[str]]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Events]:
    """What one step of each case did on rank 0."""
    return run(2, tmp_path_factory.mktemp("overlap"), CASES)


def named(events: Events, *what: str) -> list[str]:
    """Layers of some kinds of events, in order."""
    return [layer for kind, layer, _ in events if kind in what]


def weights(order: str) -> list[str]:
    """Full names of ``0 qkv``-like words."""
    parts = {"qkv": "attention.qkv", "proj": "attention.proj", "up": "up", "down": "down"}
    names = []
    for word in order.split():
        if word[0].isdigit():
            names.append(f"blocks.{word[0]}.{parts[word[1:]]}.weight")
        else:
            names.append(f"{word}.weight")
    return names


#: what is gathered, in the order of use; a weight wanted twice in a row once
ORDER = weights(
    "embedding 0qkv 0proj 0up 0down 1qkv 1proj 1up 1down head "
    "1qkv 1proj 1up 1down 1up 1proj 1qkv 0qkv 0proj 0up 0down 0up 0proj 0qkv"
)


@pytest.mark.parametrize("case", ["z oag,ors full", "z none full"])
def test_recomputed_gathers_come_in_the_order_of_use(events: dict[str, Events], case: str) -> None:
    """Each weight is gathered when it is needed, none in vain, those of recomputation too."""
    gathers = [e for e in events[case] if e[0] == "issue all_gather"]
    assert [layer for _, layer, _ in gathers] == ORDER
    assert [phase for _, _, phase in gathers[:9]] == ["forward"] * 9
    assert {phase for _, _, phase in gathers[11:]} == {"backward"}


def test_weights_are_gathered_one_ahead_of_use(events: dict[str, Events]) -> None:
    """With the overlap, a gather's successor is under way before its product is computed."""
    for case, ahead in (("z oag,ors full", 1), ("z none full", 0)):
        issued, used, last = 0, 0, ""
        for kind, layer, _ in events[case]:
            issued += kind == "issue all_gather"
            if kind == "use" and layer != last:
                assert issued == min(used + ahead, len(ORDER)) or used == 0, (case, used)
                used, last = used + 1, layer
        assert used == len(ORDER)


def test_weight_gradients_are_scattered_under_the_rest_of_backward(
    events: dict[str, Events],
) -> None:
    """With the overlap, two more products run before a scatter is waited for; else none."""
    for case, between in (("z oag,ors full", 2), ("z none full", 0)):
        order = [
            e[:2] for e in events[case] if e[0] in {"issue reduce_scatter", "wait reduce_scatter"}
        ]
        issued = [layer for kind, layer in order if kind == "issue reduce_scatter"]
        assert len(issued) == 10
        for at, layer in enumerate(issued[:-2]):
            start = order.index(["issue reduce_scatter", layer])
            end = order.index(["wait reduce_scatter", layer])
            later = [e for e in order[start:end] if e[0] == "issue reduce_scatter"]
            assert len(later) == 1 + between, (case, at)


def test_input_gradients_are_reduced_under_the_weights_product(
    events: dict[str, Events],
) -> None:
    """With the overlap, the weight's product lies between issue and wait; else after both."""
    for case, hidden in (("y oar none", True), ("y none none", False)):
        seen = [(kind, layer) for kind, layer, phase in events[case] if phase == "backward"]
        for layer in ("blocks.0.up", "blocks.1.attention.qkv", "head"):
            issue = seen.index(("issue all_reduce", layer))
            wait = seen.index(("wait all_reduce", layer))
            product = seen.index(("weight product", layer))
            assert issue < wait
            assert (issue < product < wait) is hidden, (case, layer)
            assert product > issue


def test_replicas_gradients_are_summed_under_backward(events: dict[str, Events]) -> None:
    """With buckets most messages are under way when the first is waited for; else none is."""
    for case, early in (("data bucket none", True), ("data none none", False)):
        order = [
            e[0]
            for e in events[case]
            if e[1] != "" and e[0].endswith("all_reduce") and e[1] != "report"
        ]
        first = order.index("wait all_reduce")
        assert (first > 20) is early, order
        assert early or first == 1


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("all", Overlap()),
        ("none", Overlap(oar=False, ors=False, oag=False, bucket=False)),
        ("oag,oar", Overlap(ors=False, bucket=False)),
    ],
)
def test_overlaps_are_named(text: str, flags: Overlap) -> None:
    """By a list, ``all`` or ``none``."""
    assert Overlap.parse(text) == flags


def test_an_unknown_overlap_is_refused() -> None:
    """The message names the ones there are."""
    with pytest.raises(ValueError, match="overlap 'orr': choose from oar, ors, oag, bucket, all"):
        Overlap.parse("oar,orr")
