"""What the simulated frameworks emit, op by op, and the truth that stands beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from comminsight.model.ops import Op
from comminsight.sim import (
    SimLayout,
    SimRun,
    ddp_accumulated_layout,
    fsdp1_layout,
    fsdp2_accumulated_layout,
    megatron_core_layout,
    pipeline_layout,
    serving_ep_layout,
    serving_layout,
    simulate,
    tensor_layout,
    zero_layout,
)
from comminsight.sim.program import BETWEEN_STEPS, PHASES, Phase
from comminsight.sim.schedules_pipeline import Pass, passes

SHORT = {
    Op.ALL_REDUCE: "ar", Op.ALL_GATHER: "ag", Op.REDUCE_SCATTER: "rs", Op.BROADCAST: "bc",
    Op.REDUCE: "rd", Op.ALL_TO_ALL: "a2a", Op.SEND: "s", Op.RECV: "r", Op.BARRIER: "barrier",
}  # fmt: skip
DIMENSIONS = {
    "default_pg": "world", "TENSOR_MODEL_PARALLEL_GROUP": "tp", "CONTEXT_PARALLEL_GROUP": "cp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp", "DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "MODEL_PARALLEL_GROUP": "mp", "EXPERT_MODEL_PARALLEL_GROUP": "ep", "dp:device": "dp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp", "tp:device": "tp", "moe_ep:device": "ep",
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": "opt",
}  # fmt: skip


def emitted(run: SimRun, rank: int = 0, step: int = 0) -> str:
    """Ops of one rank in one step, ``op`` or ``op:group`` off the default group."""
    log = run.ranks[rank].log
    descs = [DIMENSIONS[desc.decode()] for desc in run.ranks[rank].comms["desc"].tolist()]
    words = []
    for op in log.ops[log.steps == step]:
        group = descs[int(op["comm_index"]) - 1]
        words.append(SHORT[Op(int(op["op"]))] + (f":{group}" if group != "world" else ""))
    return " ".join(words)


def once(layout: SimLayout, rank: int = 0, step: int = 0, steps: int = 1) -> str:
    run = simulate(layout, steps=steps, seed=1)
    assert run.is_finished
    return emitted(run, rank, step)


def test_ddp_with_accumulation_hides_its_microbatches() -> None:
    assert once(ddp_accumulated_layout(2)) == "ar ar ar ar ar"


def test_fsdp1_gathers_root_and_blocks_and_again_all_but_the_root() -> None:
    backward = "ag ag rs ag rs rs rs"
    assert once(fsdp1_layout(2, layers=3)) == f"ag ag ag ag {backward} ar"
    assert once(fsdp1_layout(2, layers=3, has_clipping=False)).endswith("rs rs rs")


def test_fsdp2_scatters_in_the_last_microbatch_only() -> None:
    layout = fsdp2_accumulated_layout(2, layers=2, microbatches=2)
    assert once(layout) == "ag ag ag ag ag ag ag ag rs rs ar"


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (1, "ar ar ar ar ar ar ag ag"),
        (2, "rd rd rd rd rd rd rd rd ar ar ag ag"),
        (3, "ag ag ag ag ag ag rs ag rs ag rs rs " * 2 + "ar ar ag"),
    ],
)
def test_zero_ends_with_overflow_norm_and_gathers(stage: int, expected: str) -> None:
    assert once(zero_layout(stage, 4)) == expected
    in_bf16 = zero_layout(stage, 4, is_fp16=False)
    assert len(once(in_bf16).split()) == len(expected.split()) - 1


def test_a_megatron_step_in_its_own_order() -> None:
    layout = replace(megatron_core_layout(2, 2, 2, microbatches=2, has_dist_opt=True), layers=1)
    batch, layer = "bc:tp bc:tp", "ar:tp ar:tp"
    first = f"{batch} {layer} s:pp {batch} {layer} s:pp r:pp {layer} r:pp {layer}"
    end = "rs:dp rs:dp ar ar:opt ag:dp ag:dp ar:mp ar:mp"
    assert once(layout) == f"{first} {end}"
    last = f"r:pp {batch} {layer} ar:tp ar:tp ar:tp {layer} s:pp"
    assert once(layout, rank=4) == f"{last} {last} {end} ar:dp"


def test_sequence_parallel_gathers_and_scatters_and_reduces_its_layer_norms() -> None:
    layout = replace(
        megatron_core_layout(2, 1, 1, microbatches=1), layers=1, has_sequence_parallel=True
    )
    layer = "ag:tp rs:tp ag:tp rs:tp"
    assert once(layout) == (
        f"bc:tp bc:tp {layer} ar:tp ar:tp ar:tp {layer} ar:tp ar ar:mp ar:mp ar:mp"
    )


def test_experts_and_rings_have_their_own_groups() -> None:
    moe = replace(megatron_core_layout(1, 1, 4, ep=2, microbatches=1), layers=1)
    assert once(moe) == "a2a:ep a2a:ep a2a:ep a2a:ep ar:dp ar:dp ar:edp ar:edp ar ar:dp"
    ring = replace(megatron_core_layout(1, 1, 4, cp=4, microbatches=1), layers=1)
    around = "s:cp r:cp " * 3
    assert once(ring) == f"{around}{around}ar:dp ar:dp ar ar:dp"
    run = simulate(moe, steps=1, seed=1)
    members = dict(zip(run.ranks[1].comms["desc"].tolist(), run.ranks[1].comms["members"].tolist(),
                       strict=True))  # fmt: skip
    assert members[b"EXPERT_MODEL_PARALLEL_GROUP"] == b"0-1"
    assert members[b"EXPERT_DATA_PARALLEL_GROUP"] == b"1,3"
    assert members[b"DATA_PARALLEL_GROUP_WITH_CP"] == b"0-3"


def test_a_serving_iteration_and_its_idle_time() -> None:
    layout = replace(serving_layout(2), layers=2, prefill_every=2, idle_every=0)
    run = simulate(layout, steps=2, seed=1)
    assert emitted(run) == emitted(run, step=1) == "ar:tp ar:tp ar:tp ar:tp ar:tp ag:tp"
    log = run.ranks[0].log
    decode, prefill = (log.ops["size_bytes"][log.steps == step][0] for step in (0, 1))
    assert prefill == 16 * decode
    experts = replace(serving_ep_layout(2, 2), layers=1, idle_every=1)
    assert once(experts) == "ag:dp " * 6 + "ar:tp ar:tp a2a:ep a2a:ep ag:tp"


def test_tensor_parallel_alone() -> None:
    assert once(tensor_layout(2)) == " ".join(["ar"] * 8)
    with_sp = tensor_layout(2, has_sequence_parallel=True)
    assert once(with_sp) == " ".join(["ag rs"] * 8 + ["ar"] * 8)


@pytest.mark.parametrize(("n_stages", "microbatches", "chunks"), [(4, 8, 1), (4, 8, 2), (2, 4, 3)])
def test_every_pass_runs_once_and_backward_after_forward(
    n_stages: int, microbatches: int, chunks: int
) -> None:
    for stage in range(n_stages):
        order = list(passes(n_stages, stage, microbatches, chunks))
        assert len(set(order)) == len(order) == 2 * microbatches * chunks
        for one in order:
            if one.phase is Phase.BACKWARD:
                forward = Pass(Phase.FORWARD, one.microbatch, one.chunk)
                assert order.index(forward) < order.index(one)


def test_warm_up_is_as_the_schedules_define_it() -> None:
    def warm_up(stage: int, chunks: int) -> int:
        order = passes(4, stage, 8, chunks)
        return next(n for n, one in enumerate(order) if one.phase is Phase.BACKWARD) - 1

    assert [warm_up(stage, 1) for stage in range(4)] == [3, 2, 1, 0]
    assert [warm_up(stage, 2) for stage in range(4)] == [10, 8, 6, 4]


@pytest.mark.parametrize(
    "layout", [pipeline_layout(4), pipeline_layout(4, microbatches=8, chunks=2)]
)
def test_sends_meet_receives_on_every_pair(layout: SimLayout) -> None:
    run = simulate(layout, steps=2, seed=1)
    assert run.is_finished
    pairs: Counter[tuple[int, int]] = Counter()
    for rank in run.ranks:
        me = rank.session.global_rank
        for op in rank.log.ops:
            peer = int(op["peer_or_root"])
            pairs[(me, peer) if op["op"] == Op.SEND else (peer, me)] += (
                1 if op["op"] == Op.SEND else -1
            )
    assert set(pairs.values()) == {0}


def test_phases_and_microbatches_are_told() -> None:
    layout = replace(megatron_core_layout(2, 1, 2, microbatches=2), layers=1)
    log = simulate(layout, steps=1, seed=1).ranks[0].log
    told = Counter(
        (PHASES[phase].value, int(number))
        for phase, number in zip(log.phases, log.microbatches, strict=True)
    )
    assert told == {
        ("forward", 0): 7, ("backward", 0): 2, ("forward", 1): 7, ("backward", 1): 2,
        ("grad_sync", -1): 2, ("optimizer", -1): 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "phase", "ops"),
    [
        (replace(fsdp1_layout(2), eval_every=2), Phase.EVALUATION, "ag " * 8 + "ar"),
        (replace(zero_layout(1, 2), eval_every=2), Phase.EVALUATION, "ar"),
        (
            replace(ddp_accumulated_layout(2), checkpoint_every=2),
            Phase.CHECKPOINT,
            "barrier barrier",
        ),
        (replace(serving_ep_layout(1, 2), idle_every=2), Phase.IDLE, "ag:dp " * 5),
    ],
)
def test_what_lies_between_the_steps_is_told_apart(
    layout: SimLayout, phase: Phase, ops: str
) -> None:
    run = simulate(replace(layout, prefill_every=0), steps=4, seed=1)
    log = run.ranks[0].log
    outside = log.phases == PHASES.index(phase)
    assert [phase in BETWEEN_STEPS, outside.any()] == [True, True]
    assert sorted(set(log.steps[outside].tolist())) == [1, 3]
    words = emitted(run, step=1).split()
    where = np.flatnonzero(outside[log.steps == 1])
    assert [words[i] for i in where] == ops.split()
    plain = [word for i, word in enumerate(words) if i not in set(where.tolist())]
    assert plain == emitted(run, step=0).split()


def test_a_pause_takes_its_time_and_late_ranks_stay_late() -> None:
    layout = replace(ddp_accumulated_layout(2), checkpoint_every=2)
    starts_ns = simulate(layout, steps=4, seed=1).truth.start_ns[:, 0]
    steps_ms = np.diff(starts_ns) / 1e6
    assert steps_ms[1] - steps_ms[0] == pytest.approx(2_000, rel=0.1)
    assert steps_ms[2] == pytest.approx(steps_ms[0], rel=0.1)


def test_replicas_may_end_at_different_steps() -> None:
    run = simulate(replace(serving_layout(2, 2), steps_short=(0, 3)), steps=8, seed=1)
    assert run.is_finished
    n_steps = [int(rank.log.steps.max()) + 1 for rank in run.ranks]
    assert n_steps == [8, 8, 5, 5]
    assert (run.truth.end_ns[:, 2] >= 0).sum() == 5
