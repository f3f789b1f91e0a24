"""A rank's collectives one by one: operation, group, size, ends, and which rows belong together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import ALL_GATHER, ALL_REDUCE, SEND_RECV, Kineto, collective
from tracekit.model.names import load
from tracekit.model.operations import Group, Operation, int_list, operations_of
from tracekit.model.work import work_of


def of(file: Kineto) -> list[Operation]:
    """The operations of a file."""
    trace = file.trace()
    return operations_of(trace, work_of(trace))


def one(name: str = ALL_REDUCE, **about: Any) -> Operation:
    """The operation of one kernel with these arguments."""
    (found,) = of(Kineto().kernel(0, 5).comm(10, 20, name, **about))
    return found


# -- what it is -------------------------------------------------------------------------------


def test_times_are_absolute_and_in_order() -> None:
    """Operations are in order of start, in ns from the unix epoch where the file says its base."""
    file = Kineto(baseTimeNanoseconds=1_760_000_000_000_000_123).comm(30, 40).comm(10, 20)
    base = 1_760_000_000_000_000_123
    assert [(o.start - base, o.end - base) for o in of(file)] == [
        (10_000, 20_000),
        (30_000, 40_000),
    ]
    assert of(file)[0].duration == 10_000


def test_the_recorded_name_wins_over_the_kernel_s() -> None:
    """What torch called the operation counts; a kernel's name only where nothing was recorded."""
    assert one("ncclDevKernel_Generic_1", **collective("_allgather_base")).op == "all_gather"
    assert one(ALL_GATHER).op == "all_gather"
    assert one("ncclDevKernel_Generic_1").op is None
    assert one(ALL_GATHER, **collective("coalesced")).op == "all_gather"


@pytest.mark.parametrize(
    ("op", "elems", "out", "num_bytes"),
    [
        ("allreduce", 10, 10, 40), ("broadcast", 10, 10, 40), ("reduce", 10, 10, 40),
        ("_allgather_base", 10, 80, 320), ("gather", 10, 80, 320),
        ("_reduce_scatter_base", 80, 10, 320), ("all_to_all", 10, 14, 56),
        ("all_to_all", 14, 10, 56), ("scatter", 80, 10, 320), ("scatter", 0, 10, 40),
        ("send", 10, 10, 40), ("barrier", 1, 1, None),
    ],
)  # fmt: skip
def test_the_message_is_what_nccl_tests_calls_its_size(
    op: str, elems: int, out: int, num_bytes: int | None
) -> None:
    """All-gather counts its whole output, reduce-scatter its whole input, all-to-all the larger."""
    assert one(SEND_RECV, **collective(op, elems=elems, out_elems=out)).num_bytes == num_bytes


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [("Float", 40), ("BFloat16", 20), ("Float8_e4m3fn", 10), ("Wibble", None), ("", None)],
)
def test_bytes_need_a_known_type(dtype: str, num_bytes: int | None) -> None:
    """An element of an unknown type has no size, so the message has none."""
    assert one(**collective(elems=10, dtype=dtype)).num_bytes == num_bytes


def test_bytes_need_elements() -> None:
    """Without element counts the size of a message is unknown, not 0."""
    assert one(**collective()).num_bytes is None
    assert one(**collective(elems=0)).num_bytes == 0


@pytest.mark.parametrize("odd", [-1, "many", 1.5, [3], True, None, "１２", 2**70])
def test_odd_element_counts_are_unknown(odd: Any) -> None:
    """A count that is no whole number of elements counts as not recorded."""
    about = {**collective(), "In msg nelems": odd, "Out msg nelems": odd}
    assert one(**about).num_bytes is None or odd == "１２"


@pytest.mark.parametrize(
    ("split_in", "split_out", "remote"),
    [
        ("[]", "[]", None),  # even
        ("[4, 6]", "[4, 6]", 24),  # of 10 elements sent, 6 leave
        ("[4, 6]", "[10, 0]", 24),
        ("[10, 0]", "[2, 8]", 32),  # 8 of 10 come in
        ([1, 9], None, 36),
        ("[4, 6, ...]", None, -1),  # cut short by the writer
        ("[4, 3, 3]", None, -1),  # not one part a member
        ("wibble", None, -1),
        ("[0, 0]", None, -1),
    ],
)
def test_uneven_splits_count_what_leaves_the_rank(
    split_in: Any, split_out: Any, remote: int | None
) -> None:
    """Of an uneven all-to-all the larger of what goes to and comes from others counts, in bytes."""
    splits = {"In split size": split_in, "Out split size": split_out}
    about = {**collective("all_to_allv", elems=10), **splits}
    assert (
        one(SEND_RECV, **{k: v for k, v in about.items() if v is not None}).remote_bytes == remote
    )


@pytest.mark.parametrize(
    ("value", "identity"),
    [(5, "5"), (2**64 - 1, str(2**64 - 1)), (2**70, str(2**70)), ("abc", "abc"), (0, None),
     ("", None), ("0", None), (None, None), (1.5, None), ([1], None)],
)  # fmt: skip
def test_identities_are_texts(value: Any, identity: str | None) -> None:
    """A ``Comms Id`` keeps every digit; 0 and what is no id mean none."""
    assert one(**{**collective(seq=1), "Comms Id": value}).comms_id == identity


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("[0, 1, 5]", [0, 1, 5]), (" [ 0,1 ] ", [0, 1]), ("[]", []), ([2, 3], [2, 3]),
     ("[0, 1, ...]", None), ("[0, -1]", None), ("0, 1", None), ("[0; 1]", None),
     ([1, "2"], None), ([True], None), (5, None), ("__import__('os')", None),
     ("[" + "1, " * 5000 + "1]", [1] * 5001)],
)  # fmt: skip
def test_rank_lists(text: Any, ranks: list[int] | None) -> None:
    """A list of ranks is read from a list or its text; a shortened or odd one is none at all."""
    assert int_list(text) == ranks


# -- groups -----------------------------------------------------------------------------------


def test_a_group_is_what_the_row_says() -> None:
    """Name, description, members and size come from the arguments of the operation."""
    group = one(**collective(group="7", desc="mesh_tp", ranks=(0, 2))).group
    assert group == Group("7", "mesh_tp", (0, 2), 2, "tp", known=True)


def test_a_shortened_list_leaves_the_size() -> None:
    """A rank list that the writer cut short does not count; the stated size does."""
    about = {**collective(size=64, ranks=None), "Process Group Ranks": "[0, 1, 2, ...]"}
    group = one(**about).group
    assert (group.ranks, group.size) == (None, 64)


def config(*groups: dict[str, Any]) -> Kineto:
    """A file whose header lists these groups."""
    file = Kineto(0, 4)
    file.header["distributedInfo"]["pg_config"] = list(groups)
    return file


def test_the_header_completes_a_group() -> None:
    """Description, members and size that a row lacks are taken from ``pg_config`` by name."""
    file = config({"pg_name": "7", "pg_desc": "mesh_dp", "ranks": [0, 3], "pg_size": 2})
    (o,) = of(file.comm(0, 5, **collective(group="7", ranks=None)))
    assert o.group == Group("7", "mesh_dp", (0, 3), 2, "dp", known=True)


def test_the_header_s_size_without_ranks() -> None:
    """A group whose members the header does not list has the size it states."""
    file = config({"pg_name": "7", "pg_desc": "x", "ranks": [], "pg_size": 8}, {"junk": 1})
    (o,) = of(file.comm(0, 5, **collective(group="7", ranks=None)))
    assert (o.group.ranks, o.group.size, o.group.axis) == (None, 8, "x")


def test_our_own_header_names_axes() -> None:
    """The ``tracekit`` header maps groups to axes of the grid."""
    file = Kineto(tracekit={"groups": [{"name": "z_rs", "axis": "z", "ranks": [0, 1]}, "junk"]})
    (o,) = of(file.comm(0, 5, **collective(group="3", desc="z_rs")))
    assert o.group.axis == "z"


def test_neither_name_nor_members_alone_make_a_group() -> None:
    """Groups are told apart by name and members together."""
    keys = {
        one(**collective(group=name, ranks=ranks)).group.key
        for name in ("0", "1")
        for ranks in ((0, 1), (0, 2))
    }
    assert len(keys) == 4


def test_without_metadata_the_only_group_of_the_header_is_taken() -> None:
    """An operation without metadata has the members of the only listed group, and no name."""
    file = config({"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]})
    (o,) = of(file.comm(0, 5))
    assert (o.group.known, o.group.ranks, o.group.size, o.group.name) == (
        False,
        (0, 1, 2, 3),
        4,
        "",
    )


def test_without_metadata_several_groups_leave_it_open() -> None:
    """Where the header lists several groups, an operation without metadata may be of any."""
    file = config({"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "1", "ranks": [0, 1]})
    (o,) = of(file.comm(0, 5))
    assert (o.group.known, o.group.ambiguous, o.group.size) == (False, True, None)


# -- rows that belong together ------------------------------------------------------------------


def test_the_issuing_row_describes_its_kernel() -> None:
    """A kernel without arguments is described by the host row that issued it."""
    about = collective("_allgather_base", elems=8, out_elems=16, group="5", seq=3)
    file = Kineto().issue(1, 9, 77, **about).comm(20, 30, ALL_GATHER, **{"External id": 77})
    (o,) = of(file)
    assert (o.op, o.num_bytes, o.group.name, o.seq) == ("all_gather", 64, "5", 3)


def test_the_kernel_s_own_words_win() -> None:
    """What the kernel says itself counts before what its issuing row says."""
    file = Kineto().issue(1, 9, 77, **collective("allreduce", elems=8, seq=3))
    (o,) = of(
        file.comm(20, 30, **{"External id": 77, **collective("broadcast", elems=4, seq=None)})
    )
    assert (o.op, o.num_bytes, o.seq) == ("broadcast", 16, 3)


def test_the_issuing_row_is_found_around_the_launch() -> None:
    """Without ids, the row around the launch on the same thread is the issuing one."""
    file = Kineto().issue(1, 9, -1, **collective(elems=8, group="5"))
    file.issue(1, 9, -1, tid=2, **collective(elems=4, group="6"))
    (o,) = of(file.comm(20, 30, launched=5))
    assert (o.group.name, o.num_bytes) == ("5", 32)


def test_rows_of_one_issue_are_one_operation() -> None:
    """Several kernels or copies of one collective are one operation over all of their time."""
    file = Kineto().issue(1, 9, 7, **collective("_allgather_base", elems=8, out_elems=16))
    file.copy(60, 90, **{"External id": 7}).copy(20, 50, **{"External id": 7})
    (o,) = of(file)
    assert (o.start, o.end, len(o.entries)) == (20_000, 90_000, 2)


@pytest.mark.parametrize(
    ("name", "op", "ends"),
    [
        ("nccl:all_reduce", "all_reduce", (None, None)),
        ("nccl:send 0->1", "send_recv", (0, 1)),
        ("nccl:recv 0<-1", "send_recv", (1, 0)),
        ("nccl:_all_gather_base", "all_gather", (None, None)),
    ],
)
def test_an_annotation_names_an_operation(
    name: str, op: str, ends: tuple[int | None, int | None]
) -> None:
    """The annotation around a launch names operation and ends where no argument does."""
    (o,) = of(Kineto().mark(0, 10, name).comm(20, 30, "ncclDevKernel_Generic", launched=5))
    assert (o.op, (o.src, o.dst)) == (op, ends)


@pytest.mark.parametrize(
    ("op", "ranks", "ends"),
    [
        ("send", {"Dst Rank": 3}, (0, 3)), ("recv", {"Src Rank": 3}, (3, 0)),
        ("send", {"Src Rank": 0, "Dst Rank": 3}, (0, 3)), ("send", {}, (None, None)),
        ("isend", {"Dst Rank": "3"}, (0, 3)),
    ],
)  # fmt: skip
def test_the_ends_of_a_message(
    op: str, ranks: dict[str, Any], ends: tuple[int | None, int | None]
) -> None:
    """The end that is not written is the rank itself."""
    o = one(SEND_RECV, **collective(op, elems=4, **ranks))
    assert (o.src, o.dst) == ends


def test_the_first_work_of_a_window_is_known() -> None:
    """A collective is the first work when nothing of its rank starts before it."""
    assert [o.first_work for o in of(Kineto().comm(10, 20).comm(30, 40))] == [True, False]
    assert [o.first_work for o in of(Kineto().kernel(0, 5).comm(10, 20))] == [False]


def test_a_gloo_span_is_described_by_its_tensors() -> None:
    """Elements and type of a gloo span are those of its tensors."""
    shapes = {"Input Dims": [[2, 3], [4]], "Input type": ["float", "float"]}
    (o,) = of(Kineto().mark(0, 9, "gloo:all_reduce", **shapes))
    assert (o.op, o.in_elems, o.dtype, o.num_bytes) == ("all_reduce", 10, "float", 40)


def test_hostile_shapes_end_in_no_size() -> None:
    """Shapes of absurd size or depth give no message size, and take no time."""
    deep: Any = [3]
    for _ in range(700):
        deep = [deep]
    for dims in ([[2**63] * 4000], [[2**40, 2**40]], deep, "x", [[1.5]], [["2"]], []):
        about = {"Input Dims": dims, "Input type": "float"}
        (o,) = of(Kineto().mark(0, 9, "gloo:all_reduce", **about))
        assert o.num_bytes is None
    assert one(**collective(elems=2**62)).num_bytes is None


def test_names_are_those_given() -> None:
    """A user's own rules decide which kernels are operations."""
    assert of(Kineto().kernel(0, 5, "my_exchange")) == []
    assert load().rule("my_exchange") is None


def test_a_cut_list_of_members_tells_groups_apart() -> None:
    """Groups of one name and size whose lists of members are cut short differ in what is left."""
    groups = []
    for first in ("[0, 1, ...]", "[2, 3, ...]"):
        about = collective(elems=4, group="7", **{"Process Group Ranks": first, "Group size": 64})
        (o,) = of(Kineto().comm(10, 20, **about))
        groups.append(o.group)
    assert [(g.ranks, g.size, g.cut) for g in groups] == [
        (None, 64, "[0, 1, ...]"),
        (None, 64, "[2, 3, ...]"),
    ]
    assert groups[0].key != groups[1].key


@pytest.mark.parametrize(
    ("listed", "ranks"),
    [([0, 1, 2], (0, 1, 2)), ([0, 3, 4], None), ([1, 2, 3], None), ([0, 1], None)],
)
def test_the_header_completes_a_cut_list_it_agrees_with(
    listed: list[int], ranks: tuple[int, ...] | None
) -> None:
    """A header's list is taken where it has the rank, the size and the members not cut away."""
    config = {"pg_name": "7", "pg_desc": "tp", "pg_size": len(listed), "ranks": listed}
    file = Kineto(0, 8)
    file.header["distributedInfo"]["pg_config"] = [config]
    about = {"Process Group Ranks": "[0, 1, ...]", "Group size": 3}
    (o,) = of(file.comm(10, 20, **collective(elems=4, group="7", **about)))
    assert o.group.ranks == ranks
