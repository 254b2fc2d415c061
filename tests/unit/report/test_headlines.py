"""The first sentence says what the evidence says, where one cause has several stories."""

from __future__ import annotations

import pytest

from comminsight.model.verdict import Cause, Confidence, Coverage, Evidence, Message, OpRef, Verdict
from comminsight.report.catalogue import catalogue
from comminsight.report.verdict_text import headline
from tests.unit.report.reports import report

ROTATING = Message("evidence.recurs_rotating", {"ranks": [1, 3], "n_hit": 20, "n_steps": 24})
EXIT, SIGNAL, UNSEEN = "exit code 3", "signal 9 (SIGKILL)", ""


def died(rank: int, status: str) -> Message:
    return Message("evidence.died", {"rank": rank, "exit_status": status})


@pytest.mark.parametrize(
    ("cause", "said", "en", "zh"),
    [
        (
            Cause.NO_VERDICT, (ROTATING,),
            "No verdict: large delays wander between ranks 1,3, in 20 of 24 steps, and stay with "
            "none of them.",
            "暂不下结论：较大的延迟在 Rank 1,3 之间轮换（24 个 Step 中出现 20 次），"
            "没有固定在任何一个上。",
        ),
        (
            Cause.NO_VERDICT, (), "No verdict: the evidence does not single out a cause.",
            "暂不下结论：现有证据不足以锁定原因。",
        ),
        (
            Cause.JOB_KILLED, (died(0, EXIT), died(1, EXIT)),
            "Every process ended with an error of its own, none of them first.",
            "所有进程都因自身错误退出，分不出先后。",
        ),
        (
            Cause.JOB_KILLED, (died(0, EXIT), died(1, SIGNAL)), "The job was ended from outside.",
            "任务被外部终止。",
        ),
        (
            Cause.JOB_KILLED, (died(0, UNSEEN),), "The job was ended from outside.",
            "任务被外部终止。",
        ),
    ],
)  # fmt: skip
def test_the_headline_follows_the_evidence(
    cause: Cause, said: tuple[Message, ...], en: str, zh: str
) -> None:
    verdict = Verdict(
        rule="r", cause=cause, confidence=Confidence.NONE,
        coverage=Coverage(ranks_expected=4, ranks_seen=4),
        evidence=tuple(Evidence(kind="measure", message=message) for message in said),
    )  # fmt: skip
    found = [headline(verdict, report(verdict), catalogue(lang)) for lang in ("en", "zh")]
    assert found == [en, zh]


def test_a_lost_record_may_have_been_of_an_earlier_op() -> None:
    """Then the op is only the last that the rank can have missed."""
    op = OpRef(comm_id=0, comm_label="DP w#0", match_seq=3, op="all_reduce")

    def told(lost: int) -> str:
        verdict = Verdict(
            rule="hang", cause=Cause.RANK_NOT_ENTERED, confidence=Confidence.LOW, culprits=(1,),
            first_bad_op=op,
            coverage=Coverage(ranks_expected=2, ranks_seen=2, records_lost=lost),
        )  # fmt: skip
        return headline(verdict, report(verdict), catalogue("en"))

    assert "did not enter all_reduce #3 of DP w#0, or already stopped at an earlier one" in told(5)
    assert "earlier" not in told(0)
