"""Calls that NCCL counted and told nobody of."""

import numpy as np
import pytest

from comminsight.capture.unseen import unseen_calls
from comminsight.model.ops import Backend, OpFlag
from tests.builders.records import allgather, allreduce, comm_row, ops, send

NCCL = comm_row(backend=Backend.NCCL)
NOTHING = np.zeros(0, allreduce(1, 1.0).dtype)


def reduce_no(seq, number, **fields):
    return allreduce(seq, seq, func_seq=number, n_channels=2, **fields)


def gather_no(seq, number, **fields):
    return allgather(seq, seq, func_seq=number, n_channels=2, **fields)


@pytest.mark.parametrize(
    ("rows", "n_unseen"),
    [
        ([reduce_no(1, 0), gather_no(2, 0), reduce_no(3, 1)], 0),
        ([reduce_no(1, 0), reduce_no(2, 2)], 1),
        ([reduce_no(1, 3)], 3),  # the first ones too
        ([reduce_no(1, 0), gather_no(2, 2), reduce_no(3, 4)], 5),
        # one that was passed over on purpose has its number in the communicator
        ([reduce_no(1, 0), reduce_no(3, 2)], 0),
        # one of which no task was seen may have been counted
        ([reduce_no(1, 0), allreduce(2, 2.0), reduce_no(3, 2)], 0),
        # replays are counted among the calls
        ([reduce_no(1, 0), reduce_no(2, 1, flags=OpFlag.GRAPH), reduce_no(3, 2)], 0),
        ([reduce_no(1, 0), send(2, 2.0, peer=1, n_channels=1), reduce_no(3, 1)], 0),
    ],
)
def test_a_number_without_a_record_is_an_unseen_call(rows, n_unseen):
    expected = {1: n_unseen} if n_unseen else {}
    assert unseen_calls(ops(*rows), NOTHING, NCCL) == expected
    assert unseen_calls(ops(*rows), NOTHING, comm_row()) == {}  # other libraries count otherwise


def test_the_op_in_flight_tells_of_those_before_it():
    assert unseen_calls(reduce_no(1, 0), reduce_no(2, 4), NCCL) == {1: 3}
