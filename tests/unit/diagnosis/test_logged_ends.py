"""One verdict on a hang rests on the dumps and on the logs of who ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes, codes_logs
from comminsight.diagnosis.job import judge_job
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.flight_recorder import flight_evidence
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.unit.analysis.log_texts import job_log

N_RANKS, CULPRIT = 4, 2
FAULT = f"[rank{CULPRIT}]: CUDA error: an illegal memory access was encountered"
CLOSED = "[rank0]: [/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4"


@pytest.fixture
def hang(tmp_path: Path) -> JobEvidence:
    """All ranks but one wait in the last op, and all left a dump."""
    calls = {rank: [Call("0", "all_reduce", (1,))] * 9 for rank in range(N_RANKS)}
    world = {"0": Group("default_pg", tuple(range(N_RANKS)))}
    job = FlightJob(world, calls, host_stops={CULPRIT: 8}).play()
    return flight_evidence(write_dumps(tmp_path, job))


def verdicts(job: JobEvidence, *lines: str) -> tuple[Verdict, ...]:
    logs: tuple[JobLog, ...] = (job_log(*lines),) if lines else ()
    return judge_job(replace(job, logs=logs))


def codes_of(verdict: Verdict) -> set[str]:
    return {entry.message.code for entry in verdict.evidence}


def test_without_a_line_the_rank_is_absent(hang: JobEvidence) -> None:
    (verdict,) = verdicts(hang)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (CULPRIT,))
    assert codes_logs.FLAG_OP in codes_of(verdict)


def test_a_rank_that_failed_by_its_log_is_dead_and_both_are_told(hang: JobEvidence) -> None:
    (verdict,) = verdicts(hang, FAULT, CLOSED)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (CULPRIT,))
    assert {codes.ABSENT, codes.DIED, codes_logs.FIRST_ERROR} <= codes_of(verdict)


def test_a_complaint_of_the_absent_rank_does_not_kill_it(hang: JobEvidence) -> None:
    own = CLOSED.replace("rank0", f"rank{CULPRIT}")
    verdict = verdicts(hang, own)[0]
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (CULPRIT,))
