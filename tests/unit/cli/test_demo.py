"""The demo checks its own verdicts: right ones pass, every way of being wrong is named."""

import msgspec
import pytest

from comminsight.cli import demo
from comminsight.errors import ExitCode
from comminsight.model.exposed import (
    EXPOSED_SCHEMA_VERSION,
    ExposedReport,
    ExposureSource,
    OpExposure,
    OwnerExposed,
    OwnerKind,
    RankExposed,
)
from comminsight.model.report import REPORT_SCHEMA_VERSION, RunFacts, RunReport
from comminsight.model.verdict import Cause, Confidence, Coverage, Verdict
from comminsight.report.catalogue import catalogue

WORDS = catalogue("en")
SEEN = Coverage(ranks_expected=8, ranks_seen=8)
RIGHT = Verdict(
    rule="straggler", cause=Cause.COMPUTE_STRAGGLER, confidence=Confidence.HIGH, coverage=SEEN,
    culprits=(demo.LATE_RANK,), first_step=demo.LATE_FROM_STEP,
)  # fmt: skip


def report(*verdicts):
    facts = RunFacts(run_id="r", path="", world_size=8, ranks_seen=8)
    return RunReport(
        schema_version=REPORT_SCHEMA_VERSION, facts=facts, coverage=SEEN, verdicts=verdicts
    )


def changed(**fields):
    return msgspec.structs.replace(RIGHT, **fields)


@pytest.mark.parametrize(
    ("verdicts", "n_faults"),
    [
        ((RIGHT,), 0),
        ((changed(first_step=demo.LATE_FROM_STEP + 1),), 0),
        ((changed(first_step=demo.LATE_FROM_STEP + 2),), 1),
        ((changed(culprits=(4,)),), 1),
        ((changed(culprits=(4, 5)),), 1),
        ((), 1),
        ((changed(cause=Cause.HEALTHY, culprits=()),), 1),
        ((RIGHT, changed(cause=Cause.RANK_NOT_ENTERED)), 1),
        ((RIGHT, changed(cause=Cause.HEALTHY, culprits=())), 0),
    ],
)
def test_a_wrong_verdict_is_noticed(verdicts, n_faults):
    assert len(demo.judge(demo.STRAGGLER, report(*verdicts))) == n_faults


def test_without_torch_the_simulator_shows_both_faults_under_its_banner(capsys):
    assert demo.simulated("en") == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.count("SIMULATED") == 4
    exposure = out.split("SIMULATED: no real job ran")[1]
    assert "What the exposed time went into" in exposure
    assert "Rank 5" in exposure
    assert "What the exposed time went into" not in out.split("SIMULATED: no real job ran")[3]
    assert "Rank 5" in out
    assert "Rank 3" in out
    assert "torch is not installed" in err


def test_a_wrong_demo_exits_non_zero(tmp_path, capsys):
    assert demo.conclude(["culprits [4], planted [5]"], 1.0, tmp_path, WORDS) == ExitCode.INTERNAL
    assert "WRONG: culprits [4], planted [5]" in capsys.readouterr().err
    assert demo.conclude([], 1.0, tmp_path, WORDS) == ExitCode.OK


def exposure(*owners, exposed_ns=100):
    op = OpExposure(
        op="recv", comm_label="pp", n_calls=1, calls_per_step=1.0, median_size_bytes=8,
        size_bytes=8, communication_ns=100, exposed_ns=100, share_ratio=1.0,
    )  # fmt: skip
    rank = RankExposed(
        global_rank=0, n_steps=1, span_ns=200, compute_ns=0, communication_ns=100,
        overlapped_ns=0, exposed_ns=exposed_ns, dark_ns=0,
    )  # fmt: skip
    return ExposedReport(
        schema_version=EXPOSED_SCHEMA_VERSION, source=ExposureSource.RECORDS, world_size=8,
        ops=(op,), ranks=(rank,), owners=owners,
    )  # fmt: skip


def late(rank, exposed_ns, passed_on=0.0):
    return OwnerExposed(
        kind=OwnerKind.LATE, global_rank=rank, exposed_ns=exposed_ns, share_ratio=0.0, n_calls=1,
        passed_on_ratio=passed_on,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("report", "n_faults"),
    [
        (exposure(late(demo.LATE_RANK, 60), late(4, 40)), 0),
        (exposure(late(demo.LATE_RANK, 30), late(4, 70, passed_on=0.9)), 0),
        (exposure(late(demo.LATE_RANK, 40), late(4, 60)), 1),
        (exposure(late(demo.LATE_RANK, 40), late(4, 59)), 1 + 1),  # and does not add up
        (exposure(late(demo.LATE_RANK, 99)), 1),
        (exposure(exposed_ns=0), 1),
        (msgspec.structs.replace(exposure(late(demo.LATE_RANK, 100)), ops=()), 1),
    ],
)
def test_a_wrong_account_of_the_exposed_time_is_noticed(report, n_faults):
    assert len(demo.judge_exposure(report)) == n_faults
