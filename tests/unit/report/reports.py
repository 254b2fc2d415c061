"""Small reports to render: a straggler of a two-node job, and a hang in it."""

from __future__ import annotations

import msgspec

from comminsight.model.report import RankRow, RunFacts, RunReport, StepRow
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Confidence,
    Coverage,
    Evidence,
    Message,
    OpRef,
    Verdict,
)

MS = 1_000_000
START_NS = 1_800_000_000 * 1_000_000_000

FACTS = RunFacts(
    run_id="run-1",
    path="/data/run-1",
    world_size=4,
    ranks_seen=4,
    hosts=("node-a", "node-b"),
    command=("torchrun", "train.py"),
    started_real_ns=START_NS,
    ended_real_ns=START_NS + 125_000_000_000,
    end="exited",
    exit_code=0,
)
COVERAGE = Coverage(
    ranks_expected=4,
    ranks_seen=4,
    records_read=12_345,
    records_lost=3,
    steps_used=5,
    steps_excluded=1,
    clock_error_ns=35_000,
    tally={"order_late": 3, "order_read": 12_345},
)
STRAGGLER = Verdict(
    rule="straggler",
    cause=Cause.COMPUTE_STRAGGLER,
    confidence=Confidence.HIGH,
    coverage=COVERAGE,
    culprits=(3,),
    victims=(0, 1, 2),
    first_step=2,
    last_step=5,
    measures={"step_cost_ns": 52.0 * MS, "step_cost_ratio": 0.313},
    chain=(
        ChainLink(ChainLevel.ROLE, "DP"),
        ChainLink(ChainLevel.RANK, "3", "origin of delay"),
        ChainLink(ChainLevel.PORT, "unknown"),
    ),
)
HANG = Verdict(
    rule="hang",
    cause=Cause.RANK_NOT_ENTERED,
    confidence=Confidence.MEDIUM,
    coverage=msgspec.structs.replace(COVERAGE, records_lost=0),
    culprits=(3,),
    victims=(0, 1, 2),
    first_bad_op=OpRef(
        comm_id=0,
        comm_label="DP dp#0",
        op="all_reduce",
        match_seq=41,
        size_bytes=25 << 20,
        dtype="bfloat16",
    ),
    evidence=(
        Evidence(
            kind="stack",
            message=Message("test.code", {"n": 1}),
            global_rank=3,
            match_seq=40,
            text='Thread 7 (idle): "MainThread"\n    read (data.py:12)',
        ),
    ),
)


def step_row(step: int, period_ms: int) -> StepRow:
    return StepRow(
        step=step,
        n_ranks=4,
        span_ns=90 * MS,
        period_ns=period_ms * MS,
        gap_ns=24 * MS,
        n_ops=33,
        is_complete=step != 1,
        template="ddp",
    )


def rank_row(rank: int, origin_ms: int = 0) -> RankRow:
    return RankRow(
        global_rank=rank,
        host=f"node-{'ab'[rank // 2 % 2]}",
        n_steps=5,
        straggler_index_pct=31.2 if origin_ms else 0.4,
        caused_wait_ns=51 * MS if origin_ms else 0,
        origin_delay_ns=origin_ms * MS,
        passed_on_delay_ns=0,
        waited_ns=0 if origin_ms else 51 * MS,
        coords=f"dp{rank}",
    )


def report(*verdicts: Verdict, **changes: object) -> RunReport:
    made = RunReport(
        schema_version="1.0.0",
        facts=FACTS,
        coverage=COVERAGE,
        steps=tuple(map(step_row, range(6), (114, 114, 166, 166, 166, 0))),
        ranks=tuple(rank_row(rank, 52 if rank == 3 else 0) for rank in range(4)),
        verdicts=verdicts,
    )
    return msgspec.structs.replace(made, **changes)
