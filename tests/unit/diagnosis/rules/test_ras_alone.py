"""What RAS proves of a job of which there is nothing else."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes, codes_groups
from comminsight.diagnosis.job import judge_job
from comminsight.diagnosis.rules.ras import ras_rule
from comminsight.format.ras import parse_ras
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.ras import RasReading
from comminsight.model.verdict import Cause, Confidence, Verdict
from tests.builders.ras import ras_comm, ras_json, ras_rank
from tests.unit.diagnosis.events import event

TIMEOUT = JobLog(
    file="rank_0.log", rank=0,
    events=(LogEvent(code=LogCode.TORCH_WATCHDOG_TIMEOUT, file="rank_0.log", line=1, text="t"),),
)  # fmt: skip


def reading(counts: list[int], minute: int, comm_hash: int = 0xAB) -> RasReading:
    members = [ras_rank(rank, launched=n) for rank, n in enumerate(counts)]
    data = ras_json(ras_comm(comm_hash, members), timestamp=f"2026-03-01 12:{minute:02d}:00")
    return RasReading(answer=parse_ras(data), source=f"ras-{minute}")


def told(*readings: RasReading, logs: tuple[JobLog, ...] = (), world: int = 0) -> Verdict | None:
    job = JobEvidence(ras=readings, logs=logs, world_size=world)
    return next((claim.verdict for claim in ras_rule(job)), None)


LATE = [501, 501, 500, 501, 501, 501, 501, 501]


def test_few_that_stay_behind_are_named() -> None:
    verdict = told(reading(LATE, 1), reading(LATE, 4))
    assert verdict is not None
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert (verdict.confidence, verdict.victims) == (Confidence.MEDIUM, (0, 1, 3, 4, 5, 6, 7))
    assert verdict.first_bad_op is not None
    assert (verdict.first_bad_op.op, verdict.first_bad_op.match_seq) == ("all_reduce", 501)
    assert codes_groups.RAS_STILL in {one.message.code for one in verdict.evidence}
    actions = [one.params for one in verdict.next_actions if one.code == codes.TAKE_STACK]
    assert [(one["rank"], one["pid"]) for one in actions] == [(2, 5002)]


def test_a_log_that_says_that_the_job_hung_stands_for_a_second_answer() -> None:
    verdict = told(reading(LATE, 1), logs=(TIMEOUT,))
    assert verdict is not None
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert verdict.confidence is Confidence.LOW


@pytest.mark.parametrize(
    ("readings", "world"),
    [
        ([reading(LATE, 1)], 0),  # one answer may show ranks on the move
        ([reading(LATE, 1), reading([one + 1 for one in LATE], 4)], 0),  # it moves
        ([reading([640] * 6 + [641] * 2, 1), reading([640] * 6 + [641] * 2, 9)], 0),
        ([reading([640] * 4 + [641] * 4, 1), reading([640] * 4 + [641] * 4, 9)], 0),
        ([reading(LATE, 1), reading(LATE, 4)], 16),  # not the communicator of all ranks
    ],
)
def test_nobody_is_named_where_either_side_may_be_wrong(
    readings: list[RasReading], world: int
) -> None:
    verdict = told(*readings, world=world)
    assert verdict is not None
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    said = {one.message.code for one in verdict.evidence} | {one.code for one in verdict.missing}
    assert {codes_groups.RAS_BEHIND, codes_groups.MISSING_SIDE_STATE} <= said


def test_equal_counts_and_a_view_of_the_ranks_leave_ras_nothing_to_say() -> None:
    assert told(reading([7] * 8, 1)) is None
    job = JobEvidence(ras=(reading(LATE, 1), reading(LATE, 4)), hang=event(8, []))
    assert list(ras_rule(job)) == []
    assert [v.cause for v in judge_job(job)] != [Cause.RANK_NOT_ENTERED]


@pytest.mark.parametrize(
    ("architecture", "counts", "is_told"),
    [
        ("aarch64", LATE, True),
        ("x86_64", LATE, False),
        ("aarch64", [501, 501, 490, 501, 501, 501, 501, 501], False),  # many ops behind
    ],
)
def test_a_version_that_is_known_for_one_rank_one_op_behind(
    architecture: str, counts: list[int], is_told: bool
) -> None:
    host = LogEvent(
        code=LogCode.HOST_ARCHITECTURE, file="uname", line=1, text="Linux",
        values={"architecture": architecture},
    )  # fmt: skip
    job = JobEvidence(
        ras=(reading(counts, 1), reading(counts, 5)), logs=(JobLog(file="uname", events=(host,)),)
    )
    also = [Cause.KNOWN_BAD_VERSION] if is_told else []
    assert [one.cause for one in judge_job(job)] == [Cause.RANK_NOT_ENTERED, *also]
    assert judge_job(job)[0].culprits == (2,)
