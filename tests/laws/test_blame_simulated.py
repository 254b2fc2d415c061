"""The origin of delay on simulated jobs, beside what simpler rankings say of the same runs."""

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
import pytest

from comminsight.analysis.measures import straggler_measures
from comminsight.analysis.waits import union_lengths
from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import Op, RecordKind, TimingSource
from comminsight.model.trace import RunTrace
from comminsight.sim import (
    Fault,
    Jitter,
    LateRank,
    SimLayout,
    SlowLink,
    ddp_layout,
    megatron_layout,
    run_trace,
    simulate,
)

MS = 1_000_000
ONSET = 6
SEEDS = range(20)
Scenario = Callable[[int], tuple[Fault, set[int]]]

UNBALANCED = megatron_layout(1, 4, 2, stage_weights=(1.0, 1.0, 1.6, 1.0))


def late(rank: int, extra_ns: int) -> tuple[Fault, set[int]]:
    return LateRank(rank=rank, extra_ns=extra_ns, from_step=ONSET), {rank}


SCENARIOS: dict[str, tuple[SimLayout, Scenario]] = {
    "unbalanced stages": (UNBALANCED, lambda seed: late(seed % 4, 40 * MS)),
    "inherited over hops": (
        megatron_layout(1, 4, 2, microbatches=8),
        lambda seed: late(seed % 2, 30 * MS),
    ),
    "slow transfer": (
        megatron_layout(1, 4, 2),
        lambda seed: (
            SlowLink("mesh_pp", 60.0, from_step=ONSET, pair=(seed % 2 + 2, seed % 2 + 4)),
            {seed % 2 + 2, seed % 2 + 4},
        ),
    ),
    "data-parallel idle": (megatron_layout(1, 2, 4), lambda seed: late(seed % 8, 25 * MS)),
    "two replicas": (ddp_layout(2), lambda seed: late(seed % 2, 10 * MS)),
}


def own_work(trace: RunTrace, measures: StragglerMeasures) -> np.ndarray:
    """Time outside communication per rank: the ranking by step time minus communication."""
    work = measures.period_ns[ONSET:].sum(axis=0).astype(float)
    for column, rank in enumerate(trace.ranks):
        steps = trace.steps[rank.session.session_id][ONSET:-1]
        begin, end = rank.ops["start_ns"], rank.ops["end_ns"]
        inside = (begin >= steps[0].start_ns) & (begin <= steps[-1].end_ns)
        key = np.zeros(int(inside.sum()), np.int64)
        work[column] -= union_lengths(key, begin[inside], end[inside])[1].sum()
    return work


@pytest.mark.parametrize("name", SCENARIOS)
def test_origin_comes_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    layout, scenario = SCENARIOS[name]
    hits = {"origin": 0, "index": 0, "own work": 0}
    for seed in SEEDS:
        fault, truth = scenario(seed)
        trace = run_trace(simulate(layout, steps=16, seed=seed, faults=[fault]))
        measures = straggler_measures(trace)
        rankings = {
            "origin": measures.step_cost_ns[ONSET:].sum(axis=0),
            "index": measures.index_pct[ONSET:].sum(axis=0),
            "own work": own_work(trace, measures),
        }
        for ranking, values in rankings.items():
            hits[ranking] += int(measures.global_ranks[int(np.argmax(values))]) in truth
    with capsys.disabled():
        sys.stdout.write(f"\n  {name}: first place right of {len(SEEDS)}: {hits}\n")
    assert hits["origin"] >= 0.95 * len(SEEDS)


def test_cost_is_the_time_the_step_lost() -> None:
    fault = LateRank(rank=3, extra_ns=30 * MS, from_step=ONSET)
    quiet = Jitter(sigma=0, hiccup_rate=0, rank_sigma=0, transfer_sigma=0)
    trace = run_trace(simulate(ddp_layout(4), steps=12, seed=1, faults=[fault], jitter=quiet))
    cost = straggler_measures(trace).step_cost_ns
    assert cost[:ONSET].max() < MS
    assert cost[ONSET:, 3].tolist() == pytest.approx([30 * MS] * 6, rel=0.02)
    assert np.delete(cost[ONSET:], 3, axis=1).max() < MS


def test_delay_that_slack_hides_costs_nothing() -> None:
    # stage 2 is twice as heavy: 3 ms more on a light stage of one replica cannot matter
    layout = megatron_layout(1, 4, 2, stage_weights=(1.0, 1.0, 2.0, 1.0))
    fault = LateRank(rank=6, extra_ns=3 * MS, from_step=ONSET)
    quiet = Jitter(sigma=0, hiccup_rate=0, rank_sigma=0, transfer_sigma=0)
    trace = run_trace(simulate(layout, steps=12, seed=1, faults=[fault], jitter=quiet))
    measures = straggler_measures(trace)
    assert measures.own_delay_ns[ONSET:, 6].min() > 2 * MS
    assert measures.step_cost_ns[ONSET:, 6].max() < 2 * MS


def with_sends_waited_for_at_the_end(trace: RunTrace) -> RunTrace:
    """Every send ends when its step does, as an isend does whose wait stands there."""
    ranks = []
    for rank in trace.ranks:
        ops = rank.ops.copy()
        for step in trace.steps[rank.session.session_id]:
            inside = (ops["start_ns"] >= step.start_ns) & (ops["start_ns"] <= step.end_ns)
            is_send = inside & (ops["op"] == Op.SEND) & (ops["kind"] == RecordKind.P2P)
            assert (ops["timing_source"][is_send] == TimingSource.HOST_WAIT).all()
            ops["end_ns"][is_send] = step.end_ns
        ranks.append(dataclasses.replace(rank, ops=ops))
    return dataclasses.replace(trace, ranks=tuple(ranks))


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("late_rank", [0, 3, 5])
def test_the_end_of_a_send_is_only_an_upper_bound(*, late_rank: int, is_buffered: bool) -> None:
    layout = dataclasses.replace(megatron_layout(2, 2, 2), is_send_buffered=is_buffered)
    fault = LateRank(rank=late_rank, extra_ns=30 * MS, from_step=ONSET)
    trace = run_trace(simulate(layout, steps=16, seed=late_rank, faults=[fault]))
    exact = straggler_measures(trace)
    bound = straggler_measures(with_sends_waited_for_at_the_end(trace))
    assert (bound.step_cost_ns[ONSET:].argmax(axis=1) == late_rank).all()
    cost_ns = bound.step_cost_ns[ONSET:, late_rank]
    assert cost_ns.min() > 20 * MS  # slack of the pipeline hides some of it
    assert np.abs(cost_ns - exact.step_cost_ns[ONSET:, late_rank]).max() < 3 * MS
    assert bound.transfer_delay_ns[ONSET:].max() < 3 * MS
