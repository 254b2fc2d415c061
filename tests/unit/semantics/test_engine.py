"""The session as a whole: template choice, breaker, snapshot, counts."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from comminsight.errors import InputError
from comminsight.model.ops import DType, EndReason, NoticeReason, OpState, RecordKind
from comminsight.semantics.breaker import BreakerSettings
from comminsight.semantics.engine import (
    EnginePhase,
    EngineSettings,
    SessionEngine,
)
from comminsight.semantics.template import Template
from tests.builders import (
    MS,
    Stream,
    comm_row,
    comm_rows,
    identity,
    net_summary,
    notice,
    ops,
    record,
)
from tests.unit.semantics.shipped import shipped_templates
from tests.unit.semantics.snapshots import carried

COMMS = comm_rows(
    comm_row(1, "0-7", 5, desc=b"default_pg"),
    comm_row(2, [4, 5], 5, desc=b"mesh_tp"),
    comm_row(3, [1, 5], 5, desc=b"mesh_pp"),
    comm_row(4, [5, 7], 5, desc=b"mesh_dp"),
)
STEP_MS = 100
N_OPS = 10


def job(n_steps: int, *, first_ms: float = 1000) -> Stream:
    """Steps of a later pipeline stage: receive, four TP ops, send, gradients, anchor, report."""
    stream = Stream()
    stream.broadcast(first_ms - 500)
    for step in range(n_steps):
        at = first_ms + step * STEP_MS
        stream.recv(at, comm=3, peer=0)
        for i in range(4):
            stream.allreduce(at + 10 + i * 5, comm=2)
        stream.send(at + 40, comm=3, peer=0)
        for i in range(2):
            stream.allreduce(at + 50 + i, comm=4, size=8 << 20)
        stream.allreduce(at + 60, comm=1, size=4)
        stream.broadcast(at + 70, comm=1, size=256, dtype=DType.INT64)
    return stream


def session(settings: EngineSettings | None = None, *templates: Template) -> SessionEngine:
    engine = SessionEngine(templates or shipped_templates(), settings, identity(5, 8))
    engine.add_comms(COMMS)
    return engine


def test_a_megatron_like_job_gives_its_steps_and_counts() -> None:
    engine = session()
    steps = engine.push(job(50).batch())
    assert engine.state.phase is EnginePhase.STEPPING
    steps += engine.finish()
    assert engine.state.template == "tp-pp-dp"
    assert [step.step for step in steps] == list(range(50))
    assert {(step.n_ops, step.n_ops_between, step.coverage_complete) for step in steps} == {
        (9, 1, True)
    }
    assert {step.period_ns for step in steps[:-1]} == {STEP_MS * MS}
    assert {step.span_ns for step in steps} == {61 * MS}
    assert {step.gap_ns for step in steps[:-1]} == {39 * MS}
    assert engine.tally["steps_emitted"] == 50
    assert engine.tally["steps_open"] == 0
    assert engine.tally["ops_between_steps"] == 50
    assert engine.tally["ops_before_first_step"] == 1
    assert engine.tally["order_emitted"] == 50 * N_OPS + 1


def test_every_template_has_a_score_and_a_reason() -> None:
    engine = session()
    engine.push(job(50).batch())
    scores = {score.template: score for score in engine.selection}
    assert [name for name, score in scores.items() if score.is_chosen] == ["tp-pp-dp"]
    assert scores["ddp"].reason == "forbidden_seen"
    assert scores["ddp"].missing_symbols == ("any@TP|PP|EP|CP",)
    assert scores["fsdp2"].reason == "required_missing"
    assert scores["tp-pp-dp"].n_steps >= 2
    assert scores["tp-pp-dp"].covered_ops_ratio > 0.5


def test_the_higher_priority_wins_and_the_lower_is_outranked() -> None:
    (tp_pp_dp,) = (t for t in shipped_templates() if t.name == "tp-pp-dp")
    rival = msgspec.structs.replace(tp_pp_dp, name="rival", priority=99)
    engine = session(None, tp_pp_dp, rival)
    engine.push(job(50).batch())
    assert engine.state.template == "rival"
    assert [score.reason for score in engine.selection] == ["outranked", ""]


def test_a_higher_template_that_lacks_only_steps_is_waited_for() -> None:
    (tp_pp_dp,) = (t for t in shipped_templates() if t.name == "tp-pp-dp")
    (never,) = (t for t in shipped_templates() if t.name == "fsdp2")
    never = msgspec.structs.replace(never, name="never", priority=99, requires=(), forbids=())
    engine = session(EngineSettings(patience_ops=200), tp_pp_dp, never)
    assert engine.push(job(38).batch()) == []
    assert engine.selection[0].reason == "waits_for_higher_priority"
    patient = session(EngineSettings(patience_ops=200), tp_pp_dp, never)
    assert len(patient.push(job(60).batch())) > 30


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (EngineSettings(breaker=BreakerSettings(max_held_ops=100)), "no_template_matches"),
        (EngineSettings(breaker=BreakerSettings(max_held_ns=2_000 * MS)), "no_template_matches"),
    ],
)
def test_without_a_template_the_session_is_broken_off_and_freed(
    settings: EngineSettings, reason: str
) -> None:
    (ddp,) = (t for t in shipped_templates() if t.name == "ddp")
    engine = session(settings, ddp)
    batch = job(100).batch()
    assert engine.push(batch) == []
    assert engine.state.phase is EnginePhase.BROKEN
    assert engine.state.reason == reason
    assert engine.state.n_held == engine.state.n_pending == 0
    assert engine.push(batch[:7]) + engine.finish() == []
    tally = engine.tally
    assert tally["sessions_broken"] == 1
    assert tally["order_read"] == len(batch) + 7
    assert tally["order_emitted"] + tally["order_dropped"] == len(batch) + 7
    assert tally["ops_before_first_step"] == tally["order_emitted"]


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(breaker=BreakerSettings(max_ops_without_step=5000)),
        EngineSettings(breaker=BreakerSettings(max_ns_without_step=40_000 * MS)),
    ],
)
def test_a_job_that_stops_stepping_is_broken_off(settings: EngineSettings) -> None:
    stream = job(30)
    for i in range(20_000):
        stream.allreduce(5_000 + i * 5, comm=2)
    engine = session(settings)
    steps = engine.push(stream.batch())
    assert len(steps) == 29 + 1
    assert engine.state.reason == "no_step_closes"


def test_a_lost_record_marks_the_step_that_spans_it() -> None:
    batch = job(40).batch()
    engine = session()
    steps = engine.push(np.delete(batch, 1 + 12 * N_OPS + 3)) + engine.finish()
    assert [step.step for step in steps if not step.coverage_complete] == [12]
    assert steps[12].n_lost == 1
    assert engine.tally["seq_gaps"] == 1


@pytest.mark.parametrize(
    ("place", "span_ms"),
    [(0, 61), (2, 61), (6, 61), (8, 60)],  # Open, inside, a gradient, Anchor and Close
)
def test_ops_without_an_end_bound_steps_as_others_do(place: int, span_ms: int) -> None:
    """They stand by when they were called; a step whose last op has no end is that much shorter."""
    batch = job(40).batch()
    rows = np.arange(1 + place, len(batch), N_OPS)
    batch["end_ns"][rows], batch["state"][rows] = 0, OpState.UNOBSERVABLE
    batch["reason"][rows] = EndReason.NO_TASK
    engine = session()
    steps = engine.push(batch) + engine.finish()
    assert {(step.n_ops, step.span_ns, step.coverage_complete) for step in steps} == {
        (9, span_ms * MS, True)
    }
    assert len(steps) == 40
    assert engine.tally["order_late"] == engine.tally["order_bad"] == 0


def test_network_summaries_and_counters_change_no_step() -> None:
    plain = job(40).batch()
    parts = []
    for row in np.split(plain, len(plain)):
        at_ms = float(row["start_ns"][0]) / MS
        parts += [row, net_summary(row, 0), notice(0, at_ms, NoticeReason.COUNTERS)]
    batch = ops(*parts)
    batch["seq"] = batch["seq_low"] = np.arange(1, len(batch) + 1)
    with_others, alone = session(), session()
    seen = with_others.push(batch) + with_others.finish()
    expected = alone.push(plain) + alone.finish()
    assert len(seen) == 40
    for one, other in zip(seen, expected, strict=True):
        assert (one.start_ns, one.end_ns, one.n_ops) == (other.start_ns, other.end_ns, other.n_ops)
        assert (one.coverage_complete, one.n_late, one.n_lost) == (True, 0, 0)
    assert with_others.tally["order_markers"] == 2 * len(plain)


def test_a_change_of_what_is_recorded_marks_the_step_it_falls_into() -> None:
    batch = job(40).batch()
    at = 1 + 12 * N_OPS + 3
    start_ns = int(batch["start_ns"][at])
    notice = record(kind=RecordKind.NOTICE, start_ns=start_ns, enqueue_ns=start_ns)
    with_notice = ops(batch[:at], notice, batch[at:])
    with_notice["seq"] = np.arange(1, len(with_notice) + 1)
    engine = session()
    steps = engine.push(with_notice) + engine.finish()
    assert [step.step for step in steps if not step.coverage_complete] == [12]
    assert len(steps) == 40


@pytest.mark.parametrize(("arrives_after_step", "flagged"), [(73, [52]), (90, [])])
def test_a_late_record_marks_its_step_unless_that_is_final(
    arrives_after_step: int, flagged: list[int]
) -> None:
    """The op starts at 6220 ms. At 8370 ms the cut stands at 6250 ms, before the step that spans
    it became final (6300 ms); after step 90 the step has long been given away."""
    batch = job(150).batch()
    index = 1 + 52 * N_OPS + 3
    at = arrives_after_step * N_OPS + N_OPS
    rest = np.delete(batch, index)
    arrived = ops(rest[:at], batch[index : index + 1], rest[at:])
    arrived["seq"] = np.arange(1, len(arrived) + 1)
    engine = session()
    steps = engine.push(arrived) + engine.finish()
    assert engine.tally["order_late"] == 1
    assert [step.step for step in steps if step.n_late] == flagged
    assert [step.step for step in steps if not step.coverage_complete] == flagged


def test_a_snapshot_travels_as_bytes_and_needs_its_template() -> None:
    batch = job(60).batch()
    whole = session()
    expected = whole.push(batch) + whole.finish()
    first = session()
    steps = first.push(batch[:333])
    snapshot = carried(first)
    second = SessionEngine.resume(snapshot, shipped_templates())
    steps += second.push(batch[333:]) + second.finish()
    assert steps == expected
    assert second.tally == whole.tally
    assert second.selection == whole.selection
    with pytest.raises(InputError, match="tp-pp-dp"):
        SessionEngine.resume(snapshot, [])
    with pytest.raises(InputError, match="version 99"):
        SessionEngine.resume(msgspec.structs.replace(snapshot, version=99), shipped_templates())


def test_finish_is_final_and_repeatable() -> None:
    engine = session()
    engine.push(job(5).batch())
    assert engine.finish(explicit_end=False) == []
    assert len(engine.finish()) == 5
    assert engine.finish() == []
    assert engine.state.phase is EnginePhase.FINISHED
    assert engine.push(job(5).batch()) == []
    assert engine.tally["order_dropped"] == 51


def test_an_empty_session_ends_without_a_step() -> None:
    engine = SessionEngine(shipped_templates())
    assert engine.push(ops()) + engine.finish() == []
    assert engine.tally.as_dict() == {}
