"""The calls of every layout fit together over all ranks, and a deviation is what its name says."""

from collections import Counter

import pytest

from comminsight.lab.step_calls import (
    DEVIATIONS,
    LAYOUTS,
    P2P,
    Call,
    calls_of,
    deviated,
    groups_of,
    members_of,
)

SIZES = [
    (layout, n_ranks)
    for layout in LAYOUTS
    for n_ranks in (4, 5, 6, 7, 8)
    if layout not in {"tp_dp", "pp_dp"} or n_ranks % 2 == 0
]


@pytest.mark.parametrize(("layout", "n_ranks"), SIZES)
def test_each_rank_is_in_one_list_of_every_group(layout, n_ranks):
    for lists in groups_of(layout, n_ranks).values():
        assert sorted(rank for members in lists for rank in members) == list(range(n_ranks))


@pytest.mark.parametrize(("layout", "n_ranks"), SIZES)
def test_members_call_the_same_collectives_in_the_same_order(layout, n_ranks):
    for name, lists in groups_of(layout, n_ranks).items():
        for members in lists:
            orders = {
                tuple(c for c in calls_of(layout, n_ranks, rank) if c.group == name)
                for rank in members
                if name != "pp"
            }
            assert len(orders) <= 1


@pytest.mark.parametrize("n_ranks", [4, 6, 8])
def test_every_send_has_its_receive(n_ranks):
    pairs = {"send": Counter(), "recv": Counter()}
    for rank in range(n_ranks):
        chain = members_of("pp_dp", n_ranks, rank, "pp")
        for call in calls_of("pp_dp", n_ranks, rank):
            if call.op in P2P:
                ends = (rank, chain[call.peer])
                pairs[call.op][ends if call.op == "send" else ends[::-1]] += 1
    assert pairs["send"] == pairs["recv"]
    assert pairs["send"].total() > 0


ONE, TWO = Call("broadcast", "dp", 8), Call("all_reduce", "dp", 4)


@pytest.mark.parametrize(
    ("deviation", "expected"),
    [
        ("skip", [TWO]),
        ("extra", [Call("all_reduce", "dp", 3), ONE, TWO]),
        ("twice", [ONE, ONE, TWO]),
        ("swap", [TWO, ONE]),
        ("resize", [Call("broadcast", "dp", 10), TWO]),
        ("retype", [Call("broadcast", "dp", 8, dtype="float64"), TWO]),
        ("reroot", [Call("broadcast", "dp", 8, peer=1), TWO]),
    ],
)
def test_a_deviation_touches_one_place(deviation, expected):
    calls = [ONE, TWO]
    assert deviated(calls, deviation, 0, 1) == expected
    assert calls == [ONE, TWO]


def test_every_deviation_changes_something():
    assert all(deviated([ONE, TWO], how, 0, 1) != [ONE, TWO] for how in DEVIATIONS)
