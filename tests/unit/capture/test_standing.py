"""Slots of ops of which only a record is left."""

import pytest

from comminsight.capture.standing import LAUNCHED, LEFT, PLANNED, standing_slots
from comminsight.model.ops import Backend, OpFlag, OpState
from tests.builders.records import allreduce, comm_row

NCCL = comm_row(backend=Backend.NCCL)


def slot(comms=NCCL, **fields):
    given = {"end_ns": 0, "state": OpState.OVERDUE} | fields
    return standing_slots(allreduce(1, 5.0, **given), comms)[0]


@pytest.mark.parametrize(
    ("fields", "flags", "started"),
    [
        ({}, LEFT, 0),  # called, and no task of it
        ({"n_channels": 4}, PLANNED, 0),
        ({"n_channels": 4, "channels_started": 4}, LAUNCHED, 0b1111),
        ({"n_channels": 64, "channels_started": 64}, LAUNCHED, (1 << 64) - 1),
        # which channels stopped is not in the record
        ({"n_channels": 4, "channels_started": 4, "channels_stopped": 1}, 0, 0),
        # an early marker: it may have begun since
        ({"n_channels": 4, "state": OpState.OPEN}, 0, 0),
    ],
)
def test_how_far_a_record_shows_that_an_op_of_nccl_came(fields, flags, started):
    found = slot(**fields)
    assert (int(found["slot_flags"]), int(found["started_mask"])) == (flags, started)


def test_other_backends_have_no_stages():
    assert int(slot(comm_row(), n_channels=4, channels_started=4)["slot_flags"]) == 0


@pytest.mark.parametrize(
    ("state", "flags", "is_overdue"),
    [
        (OpState.OVERDUE, 0, True),
        (OpState.OPEN, 0, False),
        (OpState.ABORTED, OpFlag.WAS_OVERDUE, True),
        (OpState.ABORTED, 0, False),
    ],
)
def test_overdue_is_what_the_recorder_found_so(state, flags, is_overdue):
    assert (int(slot(state=state, flags=flags)["state_word"]) == 3) is is_overdue
