"""Verdicts on calls that went through although members disagreed, and silence without proof."""

import dataclasses

import numpy as np
import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.finished_mismatch import RULE, judge_finished
from comminsight.model.ops import DType, Op, RecordKind
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Cause, ChainLevel, Confidence, Coverage
from comminsight.sim import (
    AbsentStep,
    FusedStep,
    LateRank,
    LostRecords,
    SimLayout,
    SkippedOp,
    ddp_layout,
    fsdp2_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    run_trace,
    simulate,
)

MS = 1_000_000
LAYOUTS = {
    "ddp": ddp_layout(6),
    "fsdp2": fsdp2_layout(4),
    "tp pp dp": megatron_layout(2, 2, 4),
    "core": megatron_core_layout(2, 2, 2),
    "experts": moe_layout(8, 4),
}
each = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
SEEN = Coverage(ranks_expected=8, ranks_seen=8)


def played(layout: SimLayout, *faults, steps: int = 6, seed: int = 3) -> RunTrace:
    return run_trace(simulate(layout, steps=steps, seed=seed, faults=list(faults)))


def changed(trace: RunTrace, rank: int, rows: np.ndarray, **values: int) -> RunTrace:
    """The trace with the given rows of one rank called otherwise."""
    ops = trace.ranks[rank].ops.copy()
    for name, value in values.items():
        column = ops[name]
        column[rows] = value
    other = dataclasses.replace(trace.ranks[rank], ops=ops)
    ranks = (*trace.ranks[:rank], other, *trace.ranks[rank + 1 :])
    return dataclasses.replace(trace, ranks=ranks)


def reductions(trace: RunTrace, rank: int, least: int = 3) -> list[tuple[int, int]]:
    """(comm_id, row) of the rank's reductions in groups of at least so many members."""
    own = trace.ranks[rank]
    is_one = (own.ops["kind"] == RecordKind.COLLECTIVE) & np.isin(
        own.ops["op"], (Op.ALL_REDUCE, Op.REDUCE_SCATTER)
    )
    comm_ids = own.comm_ids_of(own.ops["comm_index"])
    return [
        (int(comm_ids[row]), int(row))
        for row in np.flatnonzero(is_one)
        if len(trace.communicators[comm_ids[row]].members) >= least
    ]


@each
def test_a_planted_type_names_its_rank_op_and_step(layout: SimLayout) -> None:
    trace = played(layout)
    steps = align_steps(trace)
    n_named = 0
    for rank in range(layout.world_size):
        places = reductions(trace, rank)
        for comm_id, row in places[len(places) // 3 : len(places) // 3 + 3]:
            op = trace.ranks[rank].ops[row]
            found = judge_finished(
                changed(trace, rank, np.array([row]), dtype=DType.FLOAT8_E5M2), SEEN, steps
            )
            assert all(one.culprits == (rank,) for one in found)  # right, or silent
            for one in found:
                n_named += 1
                assert (one.rule, one.cause) == (RULE, Cause.DTYPE_MISMATCH)
                assert (one.confidence, one.comm_id) == (Confidence.HIGH, comm_id)
                assert one.first_bad_op is not None
                assert one.first_bad_op.match_seq == op["match_seq"]
                (window,) = [
                    step.step
                    for step in steps
                    if step.members[rank].start_ns <= op["start_ns"] <= step.members[rank].end_ns
                ]
                assert one.first_step == window
    assert n_named >= layout.world_size


@each
@pytest.mark.parametrize(
    "faults",
    [
        (),
        (LateRank(rank=1, extra_ns=20 * MS),),
        (AbsentStep(2),),
        (FusedStep(3),),
        (LostRecords(rank=1, burst=(9, 3)),),
        (LostRecords(fraction=0.05),),
    ],
    ids=lambda faults: type(faults[0]).__name__ if faults else "healthy",
)
def test_silent_where_all_called_alike(layout: SimLayout, faults) -> None:
    for seed in range(3):
        assert judge_finished(played(layout, *faults, seed=seed), SEEN) == ()


@each
def test_shifted_numbers_name_nobody(layout: SimLayout) -> None:
    """A recorder that missed a call without a word: all later numbers are one less."""
    trace = played(layout)
    for rank in range(0, layout.world_size, 3):
        own = trace.ranks[rank]
        for comm_id, row in reductions(trace, rank, least=2)[::5]:
            ops = own.ops.copy()
            comm_ids = own.comm_ids_of(ops["comm_index"])
            is_later = (comm_ids == comm_id) & (ops["kind"] == RecordKind.COLLECTIVE)
            is_later &= ops["match_seq"] > ops["match_seq"][row]
            ops["match_seq"][is_later] -= 1
            cut = dataclasses.replace(own, ops=np.delete(ops, row))
            ranks = (*trace.ranks[:rank], cut, *trace.ranks[rank + 1 :])
            assert judge_finished(dataclasses.replace(trace, ranks=ranks), SEEN) == ()


def test_skipped_calls_are_no_unlike_ones() -> None:
    for layout in (ddp_layout(4), fsdp2_layout(4)):
        trace = played(layout, SkippedOp(rank=2, step=2, op_index=1))
        assert judge_finished(trace, SEEN) == ()


def one_place(n_ranks: int = 4) -> tuple[RunTrace, int]:
    trace = played(ddp_layout(n_ranks))
    return trace, reductions(trace, 1, least=2)[8][1]


def test_evidence_of_both_sides_and_what_to_do() -> None:
    trace, row = one_place()
    (verdict,) = judge_finished(changed(trace, 1, np.array([row]), size_bytes=12), SEEN)
    assert (verdict.cause, verdict.victims) == (Cause.SHAPE_MISMATCH, ())
    said = [(one.message.code, one.message.params) for one in verdict.evidence]
    assert [code for code, _ in said] == [codes.SIGNATURE] * 2 + [codes_calls.WENT_THROUGH]
    assert [params["ranks"] for _, params in said[:2]] == [[0, 2, 3], [1]]
    assert said[1][1]["size_bytes"] == 12
    assert said[2][1]["n_ops"] == 1
    assert [one.code for one in verdict.next_actions] == [
        codes_calls.DOUBT_RESULTS, codes.COMPARE_PATHS
    ]  # fmt: skip
    # without steps none is named
    assert {link.level: link.value for link in verdict.chain}[ChainLevel.STEP] == "unknown"


def test_two_members_are_both_named_and_nobody_is_sure() -> None:
    trace, row = one_place(2)
    (verdict,) = judge_finished(changed(trace, 1, np.array([row]), size_bytes=12), SEEN)
    assert (verdict.culprits, verdict.confidence) == ((0, 1), Confidence.MEDIUM)
    assert [one.code for one in verdict.missing] == [codes.MISSING_MAJORITY]


def test_nobody_is_named_where_records_are_lost() -> None:
    trace, row = one_place()
    trace = changed(trace, 1, np.array([row]), size_bytes=12)
    assert len(judge_finished(trace, SEEN)) == 1
    lossy = Coverage(ranks_expected=4, ranks_seen=4, records_lost=1)
    assert judge_finished(trace, lossy) == ()


def test_the_earliest_comes_first_and_each_culprit_once() -> None:
    trace = played(ddp_layout(5), steps=8)
    rows = {rank: [row for _, row in reductions(trace, rank)] for rank in (1, 3)}
    trace = changed(trace, 3, np.array([rows[3][9]]), size_bytes=12)
    trace = changed(trace, 1, np.array([rows[1][13], rows[1][17]]), size_bytes=16)
    found = judge_finished(trace, SEEN)
    assert [one.culprits for one in found] == [(3,), (1,)]
