"""Numbers from outside that would size something: bounded where bytes become values."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import FormatError
from comminsight.format.blackbox import parse_box
from comminsight.format.segment import read_segment
from comminsight.model.ranges import MAX_MEMBERS
from tests.builders import allreduce, box_bytes, comm_row, identity, segment_bytes, write_segment

HUGE = (1 << 31) - 1
RECORDS = allreduce(1, 1.0)


@pytest.mark.parametrize("field", ["world_size", "global_rank", "local_rank"])
def test_an_impossible_world_or_rank_is_named(field: str, tmp_path: Path) -> None:
    who = identity(**{"global_rank": 1, field: HUGE})
    with pytest.raises(FormatError, match=rf"identity\.{field}"):
        read_segment(write_segment(tmp_path, segment_bytes(RECORDS, who=who)))
    with pytest.raises(FormatError, match=rf"identity\.{field}"):
        parse_box(box_bytes(RECORDS, who=who))


def test_the_largest_world_reads() -> None:
    who = identity(MAX_MEMBERS - 1, MAX_MEMBERS, pid=7)
    assert parse_box(box_bytes(RECORDS, who=who)).identity.world_size == MAX_MEMBERS


@pytest.mark.parametrize(
    ("fields", "size", "rank", "n_bad"),
    [
        ({"comm_size": HUGE}, 0, 0, 1),
        ({"comm_size": -1}, 0, 0, 1),
        ({"comm_rank": HUGE}, 4, -1, 1),
        ({"comm_rank": -2, "comm_size": MAX_MEMBERS + 1}, 0, -1, 1),
        ({"comm_rank": -1, "comm_size": MAX_MEMBERS}, MAX_MEMBERS, -1, 0),
    ],
)
def test_an_impossible_communicator_is_unknown_and_counted(
    fields: dict[str, int], size: int, rank: int, n_bad: int, tmp_path: Path
) -> None:
    row = comm_row(1, **fields)
    stored = read_segment(write_segment(tmp_path, segment_bytes(RECORDS, row)))
    for data in (stored, parse_box(box_bytes(RECORDS, row))):
        assert (data.comms["comm_size"].item(), data.comms["comm_rank"].item()) == (size, rank)
        assert data.tally["segment_rows_bad"] == n_bad
