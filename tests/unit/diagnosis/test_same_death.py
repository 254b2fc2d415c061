"""A death that records and logs both tell is told once, with what both say of it."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes, codes_ends, codes_logs
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job import judge_job
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Coverage, Evidence, Verdict
from tests.unit.analysis.log_texts import job_log

FAULT = "[rank2]: CUDA error: an illegal memory access was encountered"
CLOSED = "[rank{}]: [/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4"
COVERAGE = Coverage(ranks_expected=4, ranks_seen=4)


def recorded(culprit: int, cause: Cause = Cause.RANK_DEAD) -> Verdict:
    """What the records of a run say by themselves."""
    said = message(codes.DIED, rank=culprit, exit_status="signal 6")
    return Verdict(
        rule="hang", cause=cause, confidence=Confidence.HIGH, coverage=COVERAGE,
        culprits=(culprit,), evidence=(Evidence(kind="process", message=said),),
        next_actions=(message(codes.READ_FIRST_ERROR, ranks=[culprit]),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("told", "causes"),
    [
        (recorded(2), [(Cause.RANK_DEAD, (2,))]),
        (recorded(1), [(Cause.RANK_DEAD, (1,)), (Cause.RANK_DEAD, (2,))]),
        (recorded(2, Cause.DATA_CORRUPT), [(Cause.DATA_CORRUPT, (2,)), (Cause.RANK_DEAD, (2,))]),
    ],
)
def test_only_the_same_death_is_one(
    told: Verdict, causes: list[tuple[Cause, tuple[int, ...]]]
) -> None:
    job = JobEvidence(logs=(job_log(CLOSED.format(0), FAULT),), told=(told,), world_size=4)
    assert [(one.cause, one.culprits) for one in judge_job(job)] == causes


def test_what_the_logs_say_stands_with_the_records() -> None:
    job = JobEvidence(logs=(job_log(FAULT),), told=(recorded(2),), world_size=4)
    (verdict,) = judge_job(job)
    said = [entry.message.code for entry in verdict.evidence]
    assert said[:2] == [codes.DIED, codes_logs.FIRST_ERROR]
    assert codes.MISSING_EXIT_STATUS not in {one.code for one in verdict.missing}
    said = [one.code for one in verdict.next_actions]
    assert said == [codes.READ_FIRST_ERROR, codes_ends.CHECK_KERNEL_CODE]


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ([CLOSED.format(0), CLOSED.format(1)], codes_logs.MISSING_FIRST_SILENT),
        (["step 3 loss 0.5"], codes.MISSING_SIGNS),
    ],
)
def test_who_only_waited_is_no_silence_of_the_files(lines: list[str], missing: str) -> None:
    (verdict,) = judge_job(JobEvidence(logs=(job_log(*lines),), world_size=4))
    assert verdict.cause is Cause.NO_VERDICT
    assert missing in {one.code for one in verdict.missing}
    assert not verdict.culprits
