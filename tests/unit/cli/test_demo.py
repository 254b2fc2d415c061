"""The demo checks its own verdicts: right ones pass, every way of being wrong is named."""

import msgspec
import pytest

from comminsight.cli import demo
from comminsight.errors import ExitCode
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
    assert "Rank 5" in out
    assert "Rank 3" in out
    assert "torch is not installed" in err


def test_a_wrong_demo_exits_non_zero(tmp_path, capsys):
    assert demo.conclude(["culprits [4], planted [5]"], 1.0, tmp_path, WORDS) == ExitCode.INTERNAL
    assert "WRONG: culprits [4], planted [5]" in capsys.readouterr().err
    assert demo.conclude([], 1.0, tmp_path, WORDS) == ExitCode.OK
