"""Training steps of simulated jobs after calibration, against the truth of the simulation.

Clocks are off by seconds. Clean input: every step has its number. 1 % of the records lost, some
twice, some too late: at least 99.5 % of the steps that were found have it, in every layout. A step
that ran into the next one, which happens to a rank that lost the end of it, may have the number of
either; then one training step less has a step of its own. ``pytest -s`` shows the table, by found
and by true steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.model.calibration import LEFT_RAW, Correction, StepProof, StepSpan
from comminsight.model.event import concatenate_rows, take_rows
from comminsight.model.step import StepSummary
from comminsight.model.verdict import Confidence
from comminsight.pipeline.rebuild import rebuild_session
from comminsight.pipeline.simulated import simulated_session, simulated_sessions
from comminsight.pipeline.templates import shipped_templates
from comminsight.run import Run, run_of_sessions
from comminsight.sim import (
    Clocks,
    LostRecords,
    SimLayout,
    SimRank,
    SimRun,
    ddp_accumulated_layout,
    ddp_layout,
    fsdp1_layout,
    fsdp2_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    pipeline_layout,
    serving_ep_layout,
    serving_layout,
    simulate,
    zero_layout,
)

STEPS = 60
OFFSETS = Clocks(spread_ns=3_000_000_000, drift_ppm=20.0)
LAYOUTS = {
    "ddp 8": ddp_layout(8),
    "ddp accumulated 8": ddp_accumulated_layout(8),
    "fsdp1 8": fsdp1_layout(8),
    "fsdp2 16": fsdp2_layout(16),
    "zero1 8": zero_layout(1, 8),
    "zero3 8": zero_layout(3, 8),
    "megatron 2x2x2": megatron_layout(2, 2, 2),
    "megatron 4x4x4": megatron_layout(4, 4, 4),
    "megatron core 2x2x2": megatron_core_layout(2, 2, 2),
    "megatron core dist-opt": megatron_core_layout(2, 2, 2, has_dist_opt=True),
    "moe 8 ep 4": moe_layout(8, 4),
    "pipeline 4": pipeline_layout(4),
    "serving 4 x 2": serving_layout(4, 2),
    "serving ep 2 x 2": serving_ep_layout(2, 2),
}


@dataclass(frozen=True)
class Score:
    """Local steps, and how many of them have their true number raw and calibrated; of ``n_true``
    steps that the ranks really made, ``n_true_right`` have a local one with their number."""

    n_steps: int
    n_raw_right: int
    n_right: int
    n_left_raw: int
    n_fused: int
    n_fused_seen: int
    n_true: int
    n_true_right: int


def corrected(found: Run) -> Correction:
    return found.calibration.preview().correction


@dataclass(frozen=True)
class Numbered:
    """A local step, what calibration made of it, and the true steps of its first and last op."""

    rank: SimRank
    step: StepSummary
    number: int
    span: StepSpan
    first: int
    last: int

    @property
    def is_right(self) -> bool:
        return self.first <= self.number <= self.last


def calibrated(run: SimRun, sessions: tuple[SessionData, ...]) -> Iterator[Numbered]:
    """Every local step of the sessions of the ranks, in their order."""
    found = run_of_sessions(sessions)
    corrections = {s.session_id: s for s in corrected(found).sessions}
    for session, rank in zip(sessions, run.ranks, strict=True):
        true_step = step_of_op(rank)
        steps = found.session_steps[session.identity.session_id]
        told = corrections[session.identity.session_id].numbers() if steps else ()
        for step, (number, span) in zip(steps, told, strict=True):
            first, last = (true_step[e.comm_index, e.op_seq] for e in (step.first, step.last))
            yield Numbered(rank, step, number, span, first, last)


def scored(run: SimRun, sessions: tuple[SessionData, ...]) -> Score:
    counts = np.zeros(8, np.int64)
    right: set[tuple[int, int]] = set()
    for one in calibrated(run, sessions):
        right |= {(one.rank.session.global_rank, one.number)} if one.is_right else set()
        is_fused = one.last > one.first
        counts[:6] += [
            1, one.first <= one.step.step <= one.last, one.is_right, one.number == LEFT_RAW,
            is_fused, is_fused and one.span.n_before + one.span.n_behind > 0,
        ]  # fmt: skip
    counts[6:] = sum(len(np.unique(rank.log.steps)) for rank in run.ranks), len(right)
    return Score(*counts.tolist())


def picked(run: SimRun, n: int, stride: int) -> tuple[SimRun, tuple[SessionData, ...]]:
    """At most ``n`` of the ranks, every ``stride``-th all round, with their sessions."""
    n_all = len(run.ranks)
    numbers = sorted({number * stride % n_all for number in range(min(n, n_all))})
    ranks = tuple(run.ranks[number] for number in numbers)
    sessions = (simulated_session(rank, is_finished=run.is_finished) for rank in ranks)
    return replace(run, ranks=ranks), tuple(sessions)


def step_of_op(rank: SimRank) -> dict[tuple[int, int], int]:
    ops = rank.log.ops
    keys = zip(ops["comm_index"].tolist(), ops["op_seq"].tolist(), strict=True)
    return dict(zip(keys, rank.log.steps.tolist(), strict=True))


def disturbed(session: SessionData, seed: int) -> SessionData:
    """0.1 % of the records come twice, 0.1 % far too late."""
    rng = np.random.default_rng(seed)
    place = np.arange(len(session.records), dtype=np.float64)
    is_late = rng.random(len(place)) < 0.001
    place[is_late] += rng.uniform(500, 5000, is_late.sum())
    twice = np.flatnonzero(rng.random(len(place)) < 0.001)
    both = concatenate_rows([session.records, take_rows(session.records, twice)])
    order = np.argsort(np.r_[place, place[twice] + rng.uniform(0, 50, len(twice))], kind="stable")
    return replace(session, records=take_rows(both, order))


def table_line(name: str, n_ranks: int, loss: str, score: Score) -> str:
    raw_pct, right_pct = (
        100 * n / max(1, score.n_steps) for n in (score.n_raw_right, score.n_right)
    )
    true_pct = 100 * score.n_true_right / score.n_true
    return (
        f"{name:24}{n_ranks:6}{loss:>7}{score.n_steps:8}{raw_pct:9.2f}{right_pct:12.2f}"
        f"{score.n_left_raw:10}{score.n_fused:7}{score.n_fused_seen:7}{score.n_true:8}{true_pct:9.2f}"
    )


HEADER = (
    "layout                   ranks   loss   found    raw %calibrated %  left raw  fused   seen"
    "    true  right %"
)


@pytest.mark.parametrize(("name", "layout"), LAYOUTS.items(), ids=LAYOUTS)
def test_every_step_of_a_clean_recording_has_its_number(name: str, layout: SimLayout) -> None:
    n_steps = STEPS if layout.world_size < 64 else STEPS // 2
    run = simulate(layout, steps=n_steps, seed=5, clocks=OFFSETS)
    score = scored(run, simulated_sessions(run))
    print(f"\n{HEADER}\n{table_line(name, layout.world_size, '0', score)}")
    assert score.n_steps >= (n_steps - 1) * (layout.world_size - 1)
    assert (score.n_right, score.n_raw_right) == (score.n_steps, score.n_steps)
    assert score.n_true_right == score.n_steps  # each another true step


@pytest.mark.parametrize(("name", "layout"), LAYOUTS.items(), ids=LAYOUTS)
def test_nearly_every_step_has_its_number_with_one_record_in_a_hundred_lost(
    name: str, layout: SimLayout
) -> None:
    n_steps = STEPS if layout.world_size < 64 else STEPS // 2
    run = simulate(
        layout, steps=n_steps, seed=5, faults=[LostRecords(fraction=0.01)], clocks=OFFSETS
    )
    sessions = tuple(disturbed(s, n) for n, s in enumerate(simulated_sessions(run)))
    score = scored(run, sessions)
    print(f"\n{HEADER}\n{table_line(name, layout.world_size, '1 %', score)}")
    assert score.n_steps > 0.7 * n_steps * layout.world_size
    assert score.n_right >= 0.995 * score.n_steps
    assert score.n_raw_right <= score.n_right


PAIRS = {
    "pipeline 4 interleaved": pipeline_layout(4, microbatches=8, chunks=2),
    "pipeline 2": pipeline_layout(2),
    "pipeline 3": pipeline_layout(3),
}


@pytest.mark.parametrize("seed", [1, 3, 5])
@pytest.mark.parametrize("layout", PAIRS.values(), ids=PAIRS)
def test_ranks_that_share_few_ops_have_no_sure_number_that_is_wrong(
    layout: SimLayout, seed: int
) -> None:
    """Pairs of ranks, one op between them, with 1 % lost: low or left raw rather than wrong,
    and always raw where one rank has all steps."""
    run = simulate(layout, steps=40, seed=seed, faults=[LostRecords(fraction=0.01)], clocks=OFFSETS)
    sessions = tuple(disturbed(s, n) for n, s in enumerate(simulated_sessions(run)))
    told = [one for one in calibrated(run, sessions) if one.number != LEFT_RAW]
    wrong = [
        (one.rank.session.global_rank, one.number, one.first)
        for one in told
        if not one.is_right
        and (one.span.confidence in {Confidence.HIGH, Confidence.MEDIUM} or layout.world_size == 2)
    ]
    assert (wrong, len(told) > 0) == ([], True)


def test_the_order_of_the_sessions_makes_no_difference() -> None:
    run = simulate(
        megatron_layout(2, 2, 2), steps=30, seed=7, faults=[LostRecords(fraction=0.01)],
        clocks=OFFSETS,
    )  # fmt: skip
    sessions = simulated_sessions(run)
    one, other = (corrected(run_of_sessions(order)) for order in (sessions, sessions[::-1]))
    assert one.raw_sha256 == other.raw_sha256
    assert one.counts == other.counts
    by_id = {s.session_id: s for s in other.sessions}
    assert all(s == by_id[s.session_id] for s in one.sessions)


def test_a_number_that_other_ranks_confirm_is_never_wrong_at_ten_times_the_loss() -> None:
    run = simulate(
        megatron_layout(2, 2, 4), steps=STEPS, seed=3, faults=[LostRecords(fraction=0.1)],
        clocks=OFFSETS,
    )  # fmt: skip
    sure = [
        one
        for one in calibrated(run, simulated_sessions(run))
        if StepProof.ANCHOR in one.span.proofs
    ]
    assert [one for one in sure if not one.is_right] == []
    assert len(sure) > 300


def test_both_lives_of_a_restarted_rank_have_their_numbers() -> None:
    """The second life counts from 0; the first ends in the middle of a step."""
    run = simulate(megatron_layout(2, 2, 2), steps=40, seed=11, clocks=OFFSETS)
    *others, whole = simulated_sessions(run)
    cut = len(whole.records) // 2
    lives = [
        life(whole, whole.records[:cut], "first", 0),
        life(whole, whole.records[cut:], "second", 1_000),
    ]
    found = {s.session_id: s for s in corrected(run_of_sessions((*others, *lives))).sessions}
    true_step = step_of_op(run.ranks[-1])
    for session in lives:
        steps = rebuild_session(session, shipped_templates()).steps
        assert [step.step for step in steps] == list(range(len(steps)))
        told = found[session.identity.session_id].numbers()
        for step, (number, _) in zip(steps, told, strict=True):
            assert number == true_step[step.last.comm_index, step.last.op_seq]
        assert len(steps) > 15


def life(whole: SessionData, records: np.ndarray, name: str, later_ns: int) -> SessionData:
    identity = msgspec.structs.replace(
        whole.identity, session_id=name,
        created_real_ns=whole.identity.created_real_ns + later_ns,
    )  # fmt: skip
    return replace(whole, identity=identity, records=records)
