"""Ends of kernels that ran one after the other, as stamps of a GPU map them to the host."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.columns import MAX_SLIP_NS, settled_ends
from comminsight.model.event import OP_DTYPE, UNBOUNDED_NS
from comminsight.model.ops import TimingSource

GPU, HOST = TimingSource.GPU, TimingSource.HOST_KERNEL_CALLBACK


def settled(*rows: tuple[int, int, int, int], **columns: object) -> list[int]:
    """(start, end, stream, clock error) of the ops of one rank, in any order."""
    ops = np.zeros(len(rows), OP_DTYPE)
    start_ns, end_ns, ops["stream_id"], ops["clock_error_ns"] = np.array(rows, np.int64).T
    ops["timing_source"], ops["comm_index"] = GPU, 1
    cut = np.array(columns.pop("cut", [0] * len(rows)))
    for name, values in columns.items():
        ops[name] = values
    found: list[int] = settled_ends(ops, cut, start_ns, end_ns).tolist()
    return found


@pytest.mark.parametrize(
    ("overlap", "error", "end"),
    [(0, 10, 100), (10, 10, 100), (11, 10, 111), (50, UNBOUNDED_NS, 100),
     (MAX_SLIP_NS + 1, UNBOUNDED_NS, MAX_SLIP_NS + 101)],
)  # fmt: skip
def test_an_overlap_within_the_error_of_the_mapping_is_none(
    overlap: int, error: int, end: int
) -> None:
    assert settled((0, 100 + overlap, 3, 0), (100, 9_000_000, 3, error)) == [end, 9_000_000]


@pytest.mark.parametrize(
    ("columns", "end"),
    [
        ({"stream_id": [3, 4]}, 105),  # two streams
        ({"stream_id": [0, 0]}, 100),  # not told: that of the communicator
        ({"stream_id": [0, 0], "comm_index": [1, 2]}, 105),
        ({"comm_index": [1, 2]}, 100),  # two communicators on one stream
        ({"cut": [0, 1]}, 105),  # two ranks
        ({"timing_source": [GPU, HOST]}, 105),
    ],
)
def test_only_kernels_that_run_one_after_the_other_are_settled(
    columns: dict[str, object], end: int
) -> None:
    assert settled((0, 105, 3, 10), (100, 200, 3, 10), **columns)[0] == end


def test_fused_ops_share_their_stamps_and_keep_them() -> None:
    assert settled((0, 105, 3, 10), (0, 105, 3, 10), (100, 200, 3, 10)) == [105, 100, 200]


def test_the_next_op_of_a_stream_need_not_be_the_next_row() -> None:
    rows = [(100, 200, 3, 10), (50, 60, 4, 10), (0, 105, 3, 10)]
    assert settled(*rows) == [200, 60, 100]
