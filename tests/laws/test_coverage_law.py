"""Of every record that a process numbered it is known whether it was read: readable + lost = last.

Sessions of segments, of a box, and of both, with records that were never written, that are torn in
the ring, that left it, and that hold impossible values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comminsight.capture.session import join_session
from comminsight.format.blackbox import BoxData, parse_box
from comminsight.format.layout import RING_CAPACITY
from comminsight.format.segment import SegmentData, read_segment
from comminsight.model.ops import LossReason
from comminsight.model.tally import NOT_READ
from comminsight.pipeline.coverage import LOST
from tests.builders import allreduce, box_bytes, comm_row, segment_bytes, write_segment

N = 60
numbers = st.sets(st.integers(1, N), max_size=20)


def rows(seqs: np.ndarray, bad: set[int]) -> np.ndarray:
    made = np.repeat(allreduce(1, 1.0), len(seqs))
    made["seq"] = made["seq_low"] = made["op_seq"] = made["match_seq"] = seqs
    made["size_bytes"][np.isin(seqs, list(bad))] = -5
    return made


def without(last: int, holes: set[int]) -> np.ndarray:
    return np.setdiff1d(np.arange(1, last + 1), list(holes))


def stored(folder: Path, last: int, holes: set[int], bad: set[int], cut: int) -> list[SegmentData]:
    """Two segments; the last record is sound, so that the highest number is known."""
    seqs = without(last, holes - {last})
    parts = (seqs[seqs <= cut], seqs[seqs > cut])
    return [
        read_segment(write_segment(folder, segment_bytes(rows(p, bad - {last})), number=n))
        for n, p in enumerate(parts, start=1)
        if len(p)
    ]


def boxed(begin: int, last: int, holes: set[int], bad: set[int]) -> BoxData:
    """A ring that shows ``begin`` to ``last``: what was before is overwritten or never was."""
    seqs = without(last, holes)
    ring = rows(seqs[seqs >= begin], bad)
    return parse_box(box_bytes(ring, ring_head=last))


def is_all_accounted(parts: list[SegmentData], box: BoxData | None, last: int) -> bool:
    joined = join_session(parts, box)
    return len(joined.records) + joined.tally.sum_of(NOT_READ) == last


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    last=st.integers(1, N), ahead=st.integers(0, 9), cut=st.integers(0, N),
    holes=numbers, bad=numbers, torn=numbers,
)  # fmt: skip
def test_every_number_is_read_or_counted(
    tmp_path_factory: pytest.TempPathFactory,
    last: int, ahead: int, cut: int, holes: set[int], bad: set[int], torn: set[int],
) -> None:  # fmt: skip
    parts = stored(tmp_path_factory.mktemp("s"), last, holes, bad, cut)
    assert is_all_accounted(parts, None, last)
    box = boxed(1, last + ahead, torn, bad)
    assert is_all_accounted([], box, last + ahead)
    assert is_all_accounted(parts, box, last + ahead)


@settings(max_examples=8, deadline=None)
@given(gone=st.integers(1, 20_000), torn=numbers)
def test_what_left_the_ring_is_lost(gone: int, torn: set[int]) -> None:
    last = gone + RING_CAPACITY
    box = boxed(gone + 1, last, {gone + seq for seq in torn}, set())
    joined = join_session([], box)
    assert joined.tally["ring_records_overwritten"] == gone
    assert len(joined.records) + joined.tally.sum_of(LOST) == last


@pytest.mark.parametrize(
    ("reason", "n_lost"),
    [
        (LossReason.SLOTS_FULL, 7),
        (LossReason.FORKED, 7),
        (LossReason.CAPTURE_SKIPPED, 7),
        # asked for
        (LossReason.MASKED, 0),
        (LossReason.BELOW_MIN_SIZE, 0),
        # the record is in the segment, or its number is missing there
        (LossReason.FIFO_FULL, 0),
        (LossReason.RING_OVERWRITTEN, 0),
        (LossReason.SEGMENT_WRITE, 0),
        (LossReason.SEGMENT_CAP, 0),
    ],
)
def test_what_the_recorder_counts_is_lost_unless_it_is_counted_elsewhere(
    reason: LossReason, n_lost: int
) -> None:
    counted = {(1, reason): 7}
    joined = join_session([], parse_box(box_bytes(allreduce(1, 1.0), comm_row(), losses=counted)))
    assert joined.tally.sum_of(LOST) == n_lost
