"""Aligned steps as a correction numbers them."""

from __future__ import annotations

import numpy as np

from comminsight.analysis.calibrated import calibrated_steps, joined_steps
from comminsight.model.calibration import (
    LEFT_RAW,
    Correction,
    CorrectionCounts,
    SessionCorrection,
    StepMark,
    StepSpan,
)
from comminsight.model.event import empty_batch
from comminsight.model.step import StepEvidence, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace

OP = StepEvidence(
    comm_hash=1, comm_index=0, role="DP", op=1, op_seq=1, match_seq=1, func_seq=1, size_bytes=4,
    start_ns=1, seq=1,
)  # fmt: skip


def summary(rank: int, step: int) -> StepSummary:
    return StepSummary(
        session_id=f"s{rank}", global_rank=rank, step=step, template="t", template_version=1,
        template_file_version=1, first=OP, last=OP, anchor=OP, start_ns=100 * step,
        end_ns=100 * step + 80, span_ns=80, period_ns=100, gap_ns=20, n_ops=5, n_ops_between=1,
    )  # fmt: skip


def shown(spans: dict[int, list[StepSpan]]) -> dict[int, dict[int, StepSummary]]:
    """The aligned members by number, of sessions with as many steps as their spans tell."""
    sessions = tuple(
        SessionCorrection(session_id=f"s{rank}", global_rank=rank, part=0, spans=tuple(own))
        for rank, own in spans.items()
    )
    n_steps = {rank: sum(span.n_steps for span in own) for rank, own in spans.items()}
    trace = RunTrace(
        ranks=tuple(
            RankTrace(
                SessionIdentity(session_id=f"s{r}", global_rank=r), empty_batch(), np.zeros(1, int)
            )
            for r in spans
        ),
        communicators=(),
        steps={f"s{r}": tuple(summary(r, n) for n in range(n_steps[r])) for r in spans},
        clocks=ClockOffsets(),
        world_size=len(spans),
    )
    correction = Correction(
        run_id="r", raw_sha256="", templates=(), sessions=sessions, counts=CorrectionCounts()
    )
    return {aligned.step: aligned.members for aligned in calibrated_steps(trace, correction)}


def span(local: int, n: int, step: int, mark: StepMark = StepMark.NONE) -> StepSpan:
    return StepSpan(local_step=local, n_steps=n, step=step, mark=mark)


def test_members_meet_by_their_corrected_numbers() -> None:
    members = shown({0: [span(0, 3, 0)], 1: [span(0, 1, 0), span(1, 1, 2)]})
    assert {step: sorted(own) for step, own in members.items()} == {0: [0, 1], 1: [0], 2: [0, 1]}
    assert members[2][1].step == 1
    assert all(own.coverage_complete for own in members[2].values())


def test_parts_of_a_step_become_one_and_fused_ones_are_not_complete() -> None:
    members = shown(
        {0: [span(0, 1, 0, StepMark.SPLIT), span(1, 1, 0, StepMark.SPLIT), span(2, 1, 1)],
         1: [span(0, 1, 1, StepMark.FUSED)]}
    )  # fmt: skip
    assert members[0][0] == joined_steps(summary(0, 0), summary(0, 1))
    assert not members[0][0].coverage_complete
    assert (members[1][0].coverage_complete, members[1][1].coverage_complete) == (True, False)


def test_a_step_left_raw_stands_at_its_own_number_or_the_next_free_one() -> None:
    raw = span(1, 1, LEFT_RAW, StepMark.RAW)
    members = shown({0: [span(0, 1, 1), raw, span(2, 1, 2)]})
    assert sorted(members) == [1, 2, 3]
    assert (members[3][0].step, members[3][0].coverage_complete) == (1, False)


def test_two_steps_as_one() -> None:
    joined = joined_steps(summary(0, 3), summary(0, 4))
    assert (joined.step, joined.start_ns, joined.end_ns, joined.span_ns) == (3, 300, 480, 180)
    assert (joined.period_ns, joined.gap_ns, joined.n_ops) == (200, 20, 11)
    assert not joined.coverage_complete
