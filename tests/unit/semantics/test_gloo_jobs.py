"""Steps of real jobs equal their own marks."""

from __future__ import annotations

import bisect

import pytest

from comminsight.semantics.engine import EnginePhase, SessionEngine
from tests.unit.semantics.gloo_jobs import GlooRank, load_rank
from tests.unit.semantics.shipped import shipped_templates


def engine_for(rank: GlooRank) -> SessionEngine:
    engine = SessionEngine(shipped_templates(), identity=rank.identity)
    engine.add_comms(rank.comms)
    return engine


@pytest.mark.parametrize(
    ("job", "ranks", "template", "n_ops"),
    [
        ("ddp", 2, "ddp", [1, 4, 4, 4]),
        ("ddp_accum", 2, "ddp", [1, 4, 4, 4]),
        ("zero1", 2, "ddp", [1, 4, 4, 4]),
        ("fsdp2", 2, "fsdp2", [13, 13, 13, 13]),
        ("hsdp", 4, "fsdp2", [17, 17, 17, 17]),
        ("tpsp", 2, "tp-sp", [12, 12, 12, 12]),
    ],
)
def test_each_marked_step_is_found_once(
    job: str, ranks: int, template: str, n_ops: list[int]
) -> None:
    for number in range(ranks):
        rank = load_rank(job, number)
        engine = engine_for(rank)
        steps = engine.push(rank.batch) + engine.finish()
        assert engine.state.template == template
        assert [step.n_ops for step in steps] == n_ops
        assert [bisect.bisect(rank.marks_ns, step.start_ns) for step in steps] == [1, 2, 3, 4]
        assert all(step.coverage_complete for step in steps)
        assert all(step.anchor is not None for step in steps)
        assert [step.period_ns > 0 for step in steps] == [True, True, True, False]


@pytest.mark.parametrize(("number", "n_ops"), [(0, 8), (1, 16), (2, 16)])
def test_a_pipeline_alone_gives_its_steps_by_what_is_in_flight(number: int, n_ops: int) -> None:
    rank = load_rank("pp", number)
    engine = engine_for(rank)
    steps = engine.push(rank.batch) + engine.finish()
    assert engine.state.template == "pipeline"
    assert [step.n_ops for step in steps] == [n_ops] * 4
    assert [bisect.bisect(rank.marks_ns, step.start_ns) for step in steps] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("job", "number", "template", "reason"),
    [
        ("pp", 3, "pipeline", "one_microbatch_in_flight"),  # the last stage
        ("tp", 0, "ddp", "gradient_bytes_undecided"),  # equal all-reduces and nothing else
    ],
)
def test_a_job_without_a_decidable_boundary_gets_no_step_and_reasons(
    job: str, number: int, template: str, reason: str
) -> None:
    rank = load_rank(job, number)
    engine = engine_for(rank)
    assert engine.push(rank.batch) + engine.finish() == []
    assert engine.state.phase is EnginePhase.FINISHED
    assert all(score.reason for score in engine.selection)
    assert {score.template: score.reason for score in engine.selection}[template] == reason
    assert engine.tally["ops_before_first_step"] == len(rank.batch)


def test_a_live_reader_sees_the_same_steps_record_by_record() -> None:
    rank = load_rank("fsdp2", 0)
    whole = engine_for(rank)
    expected = whole.push(rank.batch) + whole.finish()
    engine = engine_for(rank)
    found = [step for row in rank.batch for step in engine.push(row.reshape(1))]
    assert found + engine.finish() == expected


def test_without_an_explicit_end_the_tail_stays_open() -> None:
    rank = load_rank("ddp", 0)
    engine = engine_for(rank)
    assert engine.push(rank.batch) + engine.finish(explicit_end=False) == []
    assert engine.state.phase is EnginePhase.SEEKING
    assert engine.state.n_pending + engine.state.n_held == len(rank.batch)
