import numpy as np
import pytest

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


def test_gpu_times_count_only_when_every_member_has_them() -> None:
    rows = [(0, 0, AR, 1, 10, 90), (0, 0, AR, 2, 110, 190),
            (1, 0, AR, 1, 20, 90), (1, 0, AR, 2, 120, 190)]  # fmt: skip
    found = match(rows, 2, [0, 1], gpu_start_ns=[15, 115, 25, 0], gpu_end_ns=[80, 180, 80, 180])
    assert found.start_ns.tolist() == [15, 110, 25, 120]
    assert found.end_ns.tolist() == [80, 190, 80, 190]


def test_an_unseen_end_reads_as_the_begin() -> None:
    rows = [(0, 0, AR, 1, 10, 0), (1, 0, AR, 1, 20, 90)]
    assert match(rows, 2, [0, 1]).end_ns.tolist() == [10, 90]


def test_members_on_unrelated_clocks_are_no_evidence() -> None:
    rows = [(0, 0, AR, 1, 0, 9), (1, 0, AR, 1, 0, 9), (1, 1, AR, 1, 20, 29), (2, 1, AR, 1, 20, 29)]
    found = match(rows, 3, [0, 1], [1, 2], clock_domain=[-1, 1, 1, 1])
    assert found.is_evidence.tolist() == [False, True]


def test_fan_outs_meet_by_number_whoever_takes_part() -> None:
    rows = [(0, 0, SEND, 1, 0, 9, 1), (1, 0, SEND, 1, 0, 9, 0)]
    found = match(rows, 2, [0, 1], is_folded=[True, True])
    assert (found.n_instances, found.n_unpaired, found.n_mismatched) == (1, 0, 0)


def test_nothing_matches_nothing() -> None:
    found = match([], 2, [0, 1])
    assert (found.n_instances, found.n_unpaired) == (0, 0)
    assert found.start_ns.dtype == np.int64
