"""What verdicts are worth against what was planted, and how sure a rate is."""

import pytest

from comminsight.lab.cases import Accepted, Case
from comminsight.lab.scoring import Mark, Outcome, faults_of, mark_of, rate_bound, summary, table
from comminsight.model.verdict import Cause, Confidence, Coverage, Verdict

SEEN = Coverage(ranks_expected=4, ranks_seen=4)
RIGHT = Accepted(frozenset({Cause.RANK_DEAD}), frozenset({2}))
CIRCLE = Accepted(frozenset({Cause.CROSS_GROUP_CYCLE}), frozenset({2}), frozenset({0, 1}))
FAULT = Case("fault", 3, 4, (), (RIGHT, CIRCLE), (2,))
QUIET = Case("healthy", 4, 4, ())


def verdict(cause, *culprits):
    return Verdict(
        rule="hang", cause=cause, confidence=Confidence.HIGH, coverage=SEEN, culprits=culprits
    )


@pytest.mark.parametrize(
    ("verdicts", "mark"),
    [
        ([verdict(Cause.RANK_DEAD, 2)], Mark.RIGHT),
        ([verdict(Cause.RANK_DEAD, 2), verdict(Cause.HEALTHY)], Mark.RIGHT),
        ([verdict(Cause.CROSS_GROUP_CYCLE, 0, 2)], Mark.RIGHT),
        ([verdict(Cause.CROSS_GROUP_CYCLE, 0, 1)], Mark.WRONG),  # without the planted rank
        ([verdict(Cause.RANK_DEAD, 1, 2)], Mark.WRONG),
        ([verdict(Cause.RANK_DEAD, 3)], Mark.WRONG),
        ([verdict(Cause.RANK_NOT_ENTERED, 2)], Mark.WRONG),
        # also where the first verdict is right, a second one accuses somebody else
        ([verdict(Cause.RANK_DEAD, 2), verdict(Cause.COMPUTE_STRAGGLER, 3)], Mark.WRONG),
        ([verdict(Cause.NO_VERDICT)], Mark.ABSTAINED),
        ([verdict(Cause.JOB_KILLED)], Mark.ABSTAINED),
        ([], Mark.ABSTAINED),
        ([verdict(Cause.ALL_PRESENT_STUCK)], Mark.WRONG),  # names nobody, and says another cause
        ([verdict(Cause.HEALTHY)], Mark.WRONG),
    ],
)
def test_a_fault(verdicts, mark):
    assert mark_of(FAULT, verdicts) is mark


@pytest.mark.parametrize(
    ("verdicts", "mark"),
    [
        ([verdict(Cause.HEALTHY)], Mark.RIGHT),
        ([verdict(Cause.NO_VERDICT)], Mark.RIGHT),
        ([], Mark.RIGHT),
        ([verdict(Cause.HEALTHY), verdict(Cause.COMPUTE_STRAGGLER, 1)], Mark.WRONG),
        ([verdict(Cause.ALL_PRESENT_STUCK)], Mark.WRONG),
    ],
)
def test_nothing_planted(verdicts, mark):
    assert mark_of(QUIET, verdicts) is mark


@pytest.mark.parametrize(
    ("n_hits", "n_runs", "bound"),
    [(0, 50, 0.0582), (0, 150, 0.0198), (1, 50, 0.0914), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_the_bound_of_a_rate(n_hits, n_runs, bound):
    """Of none it is 1 - 0.05 ** (1 / n), just below 3 / n."""
    assert rate_bound(n_hits, n_runs) == pytest.approx(bound, abs=5e-5)


def test_the_table_counts_by_kind_and_a_run_in_which_nothing_was_planted_not_at_all():
    outcomes = [
        Outcome(FAULT, "recording", Mark.RIGHT, "RANK_DEAD[2] high"),
        Outcome(FAULT, "recording", Mark.VOID, "nothing was planted"),
        Outcome(FAULT, "dumps", Mark.WRONG, "RANK_DEAD[1] high"),
        Outcome(QUIET, "recording", Mark.RIGHT, "HEALTHY high"),
    ]
    rows = table(outcomes, "recording").splitlines()
    assert rows[2:] == ["| fault | 1 | 1 | 0 | 0 |", "| healthy | 1 | 1 | 0 | 0 |",
                        "| all faults | 1 | 1 | 0 | 0 |"]  # fmt: skip
    assert summary(outcomes, "dumps").startswith("dumps, faults: right 0 of 1 (0.0 %), wrong 1;")
    assert [line.split()[0] for line in faults_of(outcomes).splitlines()] == ["void", "wrong"]
    assert "--kind fault --seed 3 (dumps): planted [2], said RANK_DEAD[1]" in faults_of(outcomes)
