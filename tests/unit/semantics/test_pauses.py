"""Steps whose pauses say that several of them are one."""

from __future__ import annotations

import pytest

from comminsight.model.step import StepEvidence, StepSummary
from comminsight.semantics.pauses import look_like_parts

NOTHING = StepEvidence(
    comm_hash=0, comm_index=0, role="", op=0, op_seq=0, match_seq=0, func_seq=0, size_bytes=0,
    start_ns=0, seq=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("gaps_ms", "expected"),
    [
        ([1, 1, 9] * 4, True),
        ([1, 9] * 4, True),
        ([9, 1, 1, 1, 1] * 5, True),
        ([1, 1, 9] * 3 + [1, 9] + [1, 1, 9] * 3, True),  # one was lost
        ([1, 1, 9] * 3, False),  # too few rounds
        ([5, 4, 6, 5, 4, 7, 5, 4, 6, 5, 6, 4], False),
        ([1, 1, 1.9] * 4, False),  # longer, but not by far
        ([1, 9, 1, 1, 9, 1, 9, 9, 1, 1, 1, 9], False),  # no period
        ([3, 3, 5, 7] * 8, True),  # layers: forward, backward, and the optimizer after them
        ([3, 3, 5, 7] * 3, False),
        ([1] * 40 + [90], False),  # a checkpoint
        ([], False),
    ],
)
def test_every_nth_pause_by_far_the_longest(gaps_ms: list[float], expected: bool) -> None:
    steps = [
        StepSummary(
            session_id="", global_rank=0, step=i, template="", template_version=1,
            template_file_version=1, first=NOTHING, last=NOTHING, period_ns=1,
            gap_ns=round(gap * 1e6),
        )
        for i, gap in enumerate(gaps_ms)
    ]  # fmt: skip
    assert look_like_parts(steps) is expected
