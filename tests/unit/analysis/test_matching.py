import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.model.ops import Op, RecordKind
from tests.unit.analysis.tables import AR, RECV, SEND, match

BROADCAST = (RecordKind.COLLECTIVE, Op.BROADCAST)


def test_collectives_meet_on_their_number_not_on_time() -> None:
    rows = [(0, 0, AR, 1, 0, 9), (0, 0, AR, 2, 10, 19), (1, 0, AR, 2, 11, 19), (1, 0, AR, 1, 0, 9)]
    found = match(rows, 2, [0, 1])
    assert found.instance.tolist() == [0, 1, 0, 1]
    assert (found.n_instances, found.n_incomplete, found.n_mismatched) == (2, 0, 0)


def test_equal_numbers_of_other_communicators_and_kinds_stay_apart() -> None:
    rows = [
        (0, 0, AR, 1, 0, 9), (1, 1, AR, 1, 0, 9),
        (0, 2, SEND, 1, 10, 11, 1), (1, 2, AR, 1, 10, 11),
    ]  # fmt: skip
    assert match(rows, 2, [0], [1], [0, 1]).n_instances == 4


def test_a_send_may_run_ahead_of_its_receive() -> None:
    rows = [(0, 0, SEND, 1, 0, 1, 1), (0, 0, SEND, 2, 2, 3, 1),
            (1, 0, RECV, 1, 50, 51, 0), (1, 0, RECV, 2, 52, 53, 0)]  # fmt: skip
    found = match(rows, 2, [0, 1])
    assert found.instance.tolist() == [0, 1, 0, 1]
    assert found.n_unpaired == 0


def test_both_directions_of_a_pair_are_numbered_apart() -> None:
    rows = [(0, 0, SEND, 1, 0, 1, 1), (1, 0, RECV, 1, 0, 1, 0),
            (1, 0, SEND, 1, 5, 6, 0), (0, 0, RECV, 1, 5, 6, 1)]  # fmt: skip
    assert match(rows, 2, [0, 1]).instance.tolist() == [0, 1, 0, 1]


def test_missing_members_and_halves_are_counted_apart() -> None:
    rows = [(0, 0, AR, 1, 0, 9), (1, 0, AR, 1, 0, 9), (0, 0, SEND, 1, 10, 11, 2)]
    found = match(rows, 3, [0, 1, 2])
    assert (found.n_incomplete, found.n_unpaired) == (1, 1)


@pytest.mark.parametrize(
    ("column", "values", "is_fault"),
    [
        ("size_bytes", [4096, 8192], True),
        ("dtype", [7, 9], True),
        ("red_op", [1, 4], True),
        ("op", [Op.ALL_REDUCE, Op.ALL_GATHER], True),
        ("peer", [0, 1], False),  # no root in an all-reduce
    ],
)
def test_signatures_of_a_collective(column: str, values: list[int], is_fault: bool) -> None:
    rows = [(0, 0, AR, 1, 0, 9), (1, 0, AR, 1, 0, 9)]
    assert match(rows, 2, [0, 1], **{column: values}).n_mismatched == is_fault


def test_roots_of_a_broadcast_must_agree() -> None:
    rows = [(0, 0, BROADCAST, 1, 0, 9, 0), (1, 0, BROADCAST, 1, 0, 9, 1)]
    assert match(rows, 2, [0, 1]).n_mismatched == 1


def test_uneven_exchanges_are_no_fault() -> None:
    kind = (RecordKind.COLLECTIVE, Op.ALL_TO_ALL)
    rows = [(0, 0, kind, 1, 0, 9), (1, 0, kind, 1, 0, 9)]
    assert match(rows, 2, [0, 1], size_bytes=[100, 7]).n_mismatched == 0


def test_an_unseen_end_reads_as_the_begin() -> None:
    rows = [(0, 0, AR, 1, 10, 0), (1, 0, AR, 1, 20, 90)]
    assert match(rows, 2, [0, 1]).end_ns.tolist() == [10, 90]


def test_members_on_unrelated_clocks_are_no_evidence() -> None:
    rows = [(0, 0, AR, 1, 0, 9), (1, 0, AR, 1, 0, 9), (1, 1, AR, 1, 20, 29), (2, 1, AR, 1, 20, 29)]
    found = match(rows, 3, [0, 1], [1, 2], clock_domain=[-1, 1, 1, 1])
    assert found.is_evidence.tolist() == [False, True]


def test_fan_outs_and_calls_without_a_peer_stand_alone() -> None:
    """Their numbers agree, and yet nothing says that they met."""
    rows = [(0, 0, SEND, 1, 0, 9), (0, 0, SEND, 1, 10, 19, 1), (1, 0, RECV, 1, 0, 9),
            (1, 0, RECV, 1, 50, 59, 0)]  # fmt: skip
    found = match(rows, 2, [0, 1], is_peerless=[True, False, True, False])
    assert found.n_instances == 3
    assert found.instance[1] == found.instance[3]
    assert found.instance[0] != found.instance[2]
    assert (found.n_unpaired, found.n_incomplete, found.n_mismatched) == (0, 0, 0)
    assert sorted(found.expected.tolist()) == [0, 0, 2]


def test_coalesced_collectives_meet_by_number_whoever_takes_part() -> None:
    rows = [(0, 0, AR, 1, 0, 9), (1, 0, AR, 1, 0, 9)]
    found = match(rows, 2, [0, 1, 2], is_folded=[True, True])
    assert (found.n_instances, found.n_incomplete, found.n_mismatched) == (1, 0, 0)


def test_an_op_of_which_only_the_call_was_seen_gives_no_wait() -> None:
    """Its start is when it was enqueued, which may be long before it ran."""
    rows = [(0, 0, AR, 1, 0, 0), (1, 0, AR, 1, 90, 99), (0, 0, AR, 2, 100, 109),
            (1, 0, AR, 2, 100, 109)]  # fmt: skip
    found = match(rows, 2, [0, 1], is_untimed=[True, False, False, False])
    assert found.is_evidence.tolist() == [False, True]
    assert found.n_incomparable == 1


def test_nothing_matches_nothing() -> None:
    found = match([], 2, [0, 1])
    assert (found.n_instances, found.n_unpaired) == (0, 0)
    assert found.start_ns.dtype == np.int64


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_replays_and_calls_meet_whatever_the_order_they_were_told_in(program, data) -> None:
    """Two ranks run one program of replays (True) and calls, each numbered apart; the other thread
    that tells the replays is early or late on every rank."""
    n_of = {True: 0, False: 0}
    ops = []
    for is_replay in program:
        n_of[is_replay] += 1
        ops.append((is_replay, n_of[is_replay]))
    kinds = {True: AR, False: (RecordKind.COLLECTIVE, Op.ALL_GATHER)}
    rows, replays = [], []
    for rank in (0, 1):
        told = data.draw(st.permutations(ops))
        rows += [(rank, 0, kinds[is_replay], n, t, t + 1) for t, (is_replay, n) in enumerate(told)]
        replays += [is_replay for is_replay, _ in told]
    found = match(rows, 2, [0, 1], is_replay=replays)
    assert (found.n_instances, found.n_incomplete, found.n_mismatched) == (len(ops), 0, 0)
