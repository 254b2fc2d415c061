"""Why there are no steps: nothing there to record, nothing ended, or no template that matches."""

from dataclasses import replace

import pytest

from comminsight.model.tally import Tally
from comminsight.model.verdict import Cause, Confidence, Coverage, Message, Verdict
from comminsight.model.views import TemplateScore
from comminsight.pipeline.load import LoadedRun
from comminsight.pipeline.rebuild import SessionSteps, rebuild_session
from comminsight.pipeline.stepless import explained, template_scores
from comminsight.pipeline.templates import shipped_templates
from comminsight.pipeline.trace import run_trace
from comminsight.run import open_run
from comminsight.sim import ddp_layout, simulate
from tests.builders.records import allreduce, comm_row, comm_rows, ops
from tests.builders.run import write_run
from tests.unit.pipeline.test_ends import session

SILENT = Verdict(
    rule="straggler", cause=Cause.NO_VERDICT, confidence=Confidence.NONE,
    coverage=Coverage(ranks_expected=1, ranks_seen=1),
    missing=(Message("missing.steps", {"used": 0, "needed": 8}),),
    next_actions=(Message("action.record_longer", {"needed": 8}),),
)  # fmt: skip


def told(*sessions, n_steps=0, verdict=SILENT, scores=()):
    trace = run_trace(sessions, {}, len(sessions))
    (made,) = explained([verdict], LoadedRun(tuple(sessions)), trace, n_steps, scores)
    return made


def tp_session(rows):
    return replace(session(0), records=rows, comms=comm_rows(comm_row(1, "0", desc=b"tp")))


def codes(verdict):
    return [message.code for message in (*verdict.missing, *verdict.next_actions)]


def test_nothing_was_there_to_record():
    assert codes(told()) == ["reason.no_group", "reason.create_group"]


def test_a_group_without_an_op():
    assert codes(told(replace(session(0), records=ops()))) == ["reason.no_ops"]


def test_ops_that_no_template_knows():
    rows = ops(*(allreduce(n, 100.0 * n) for n in range(1, 4)))
    made = told(tp_session(rows))
    assert codes(made) == ["reason.no_template", "reason.see_templates"]
    assert made.missing[0].params == {"n_ops": 3, "seen": "TP all_reduce (3)"}


@pytest.mark.parametrize("n_steps", [1, 7])
def test_too_few_steps_are_too_few(n_steps):
    assert told(n_steps=n_steps) == SILENT


def test_other_verdicts_stay():
    other = Verdict(
        rule="hang", cause=Cause.RANK_DEAD, confidence=Confidence.HIGH, coverage=SILENT.coverage
    )
    assert told(verdict=other) is other


def test_the_scores_are_those_of_a_rank_without_steps():
    score = TemplateScore(template="ddp", version=1, priority=1, is_chosen=False)
    bare = SessionSteps((), Tally(), "")
    scored = SessionSteps((), Tally(), "", None, (score,))
    assert template_scores([bare, scored]) == (score,)
    assert template_scores([]) == ()


def test_a_rebuilt_session_keeps_how_the_templates_fared():
    rows = ops(*(allreduce(n, 100.0 * n) for n in range(1, 40)))
    one = tp_session(rows)
    made = rebuild_session(one, shipped_templates())
    assert made.steps == ()
    assert {score.template for score in made.scores} >= {"ddp", "fsdp2"}
    assert all(score.reason for score in made.scores)


@pytest.mark.parametrize(
    ("reasons", "template"),
    [
        (("no_steps", "too_few_ops", "too_few_anchored_steps"), "t1"),
        (("gradient_bytes_undecided",), "t0"),
        (("required_missing", "forbidden_seen", "no_gradient_ops"), ""),
        ((), ""),
    ],
)
def test_a_report_that_is_too_early_says_that_nothing_was_learned_yet(reasons, template):
    scores = tuple(
        TemplateScore(
            template=f"t{n}", version=1, priority=9 - n, is_chosen=False, reason=reason, n_ops=15
        )
        for n, reason in enumerate(reasons)
    )
    rows = ops(*(allreduce(n, 100.0 * n) for n in range(1, 4)))
    made = told(tp_session(rows), scores=scores)
    early = [one for one in made.missing if one.code == "reason.not_learned"]
    assert [one.params["template"] for one in early] == [template] * bool(template)
    assert ("reason.record_more" in codes(made)) is bool(template)
    assert codes(made)[0] == "reason.no_template"


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_the_first_steps_of_a_job_are_too_early_for_its_template(n_steps, tmp_path):
    write_run(tmp_path, simulate(ddp_layout(2), steps=n_steps, seed=1))
    verdict = open_run(tmp_path).report().verdicts[0]
    assert verdict.cause is Cause.NO_VERDICT
    assert {"reason.not_learned", "reason.record_more"} <= set(codes(verdict))
