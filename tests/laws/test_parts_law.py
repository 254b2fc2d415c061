"""Over many jobs: what is healthy keeps its steps, and parts of a step are taken for none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from comminsight.sim import (
    Jitter,
    SimLayout,
    ddp_accumulated_layout,
    ddp_layout,
    fsdp1_layout,
    fsdp2_accumulated_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    pipeline_layout,
    serving_ep_layout,
    serving_layout,
    simulate,
    tensor_layout,
    zero_layout,
)
from tests.unit.semantics.odd_jobs import MIB, StepWriter, ddp, fsdp2, odd_job, speculative
from tests.unit.semantics.schedules import found_on, true_bounds
from tests.unit.semantics.shipped import shipped_templates

TEMPLATES = shipped_templates()
N_JOBS = 200
FRAMED: dict[str, Callable[[int], SimLayout]] = {  # an evaluation or a checkpoint between steps
    "ddp": lambda n: ddp_accumulated_layout(2, microbatches=n),
    "fsdp1": lambda n: replace(fsdp1_layout(2, layers=3), microbatches=n),
    "fsdp2": lambda n: fsdp2_accumulated_layout(2, microbatches=n),
    "fsdp2, unclipped": lambda n: fsdp2_accumulated_layout(2, microbatches=n, has_clipping=False),
    "zero1": lambda n: zero_layout(1, 2, microbatches=n),
    "zero2": lambda n: zero_layout(2, 2, microbatches=n),
    "zero3": lambda n: zero_layout(3, 2, microbatches=n),
    "megatron": lambda n: megatron_core_layout(2, 1, 2, microbatches=n),
}
BARE: dict[str, Callable[[int], SimLayout]] = {
    "ddp, equal buckets": lambda n: ddp_layout(2, buckets=n + 1),
    "tp pp": lambda n: megatron_layout(2, 2, 1, microbatches=n),
    "moe": lambda n: moe_layout(4, 2, layers=n + 1),
    "pipeline": lambda n: pipeline_layout(3, microbatches=n + 3),
    "tp sp": lambda _: tensor_layout(2, has_sequence_parallel=True),
    "serving": lambda _: serving_layout(2),
    "serving, experts": lambda _: serving_ep_layout(2, 2),
}
SIZES = ((3 * MIB, 2 * MIB, MIB), (2 * MIB,) * 4, (MIB, 4 * MIB))
ODD: dict[str, Callable[[int, tuple[int, ...]], StepWriter]] = {
    "ddp, loss per microbatch": lambda n, sizes: ddp(n, sizes, is_loss_per_batch=True),
    "ddp, no loss": lambda n, sizes: ddp(n, sizes, has_loss=False),
    "ddp, loss per step": ddp,
    "ddp, layer sums": lambda n, sizes: ddp(1, sizes, norm_layers=3 * n),
    "ddp, matrix": lambda n, sizes: ddp(1, sizes, matrix_every=5 + n),
    "fsdp2, every microbatch": lambda n, _: fsdp2(n),
    "fsdp2, loss per step": lambda n, _: fsdp2(n, has_loss=True),
    "fsdp2, loss per microbatch": lambda n, _: fsdp2(n, is_loss_per_batch=True),
    "fsdp2, the same, norm": lambda n, _: fsdp2(n, norm=16, is_loss_per_batch=True),
    "fsdp2, layer sums": lambda n, _: fsdp2(1, 4 + n, norm_layers=4 + n, norm=40),
    "fsdp2, layer sums, no norm": lambda n, _: fsdp2(1, 4 + n, norm_layers=4 + n),
    "fsdp2, log": lambda n, _: fsdp2(1, log_every=n),
    "speculative": lambda n, _: speculative(n - 1, 2, 8),
}


def test_healthy_jobs_keep_their_steps() -> None:
    told: Counter[str] = Counter()
    for seed in range(N_JOBS):
        rng = np.random.default_rng(seed)
        kinds = FRAMED | BARE
        name = sorted(kinds)[int(rng.integers(len(kinds)))]
        layout = kinds[name](int(rng.choice([1, 2, 4])))
        if name in FRAMED:
            layout = replace(
                layout,
                optimizer_ns=int(rng.choice([1, 3, 10])) * 1_000_000,
                eval_every=int(rng.choice([0, 3, 10])),
                checkpoint_every=int(rng.choice([0, 4, 10])),
            )
        jitter = Jitter(sigma=float(rng.choice([0.005, 0.02, 0.1])))
        rank = simulate(layout, steps=int(rng.choice([15, 40])), seed=seed, jitter=jitter).ranks[0]
        steps = found_on(rank, TEMPLATES).steps
        is_right = len(steps) == len(true_bounds(rank))
        told["kept" if is_right else "wrong" if steps else "refused"] += 1
    print(dict(told))
    assert told["wrong"] == 0
    assert told["refused"] <= N_JOBS / 100


def test_parts_of_a_step_are_found_as_a_step_or_not_at_all() -> None:
    told: Counter[tuple[str, str]] = Counter()
    for seed, name in enumerate(sorted(ODD) * 6):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([2, 3, 4, 8]))
        write = ODD[name](n, SIZES[int(rng.integers(len(SIZES)))])
        job = odd_job(
            write, int(rng.choice([20, 40])), seed, float(rng.choice([0.005, 0.02, 0.05]))
        )
        found = job.found(TEMPLATES)
        is_right = job.is_right(found) if found.steps else False
        told[name, "right" if is_right else "wrong" if found.steps else "silent"] += 1
    for (name, verdict), times in sorted(told.items()):
        print(f"{name:28} {verdict:7} {times}")
    assert [name for name, verdict in told if verdict == "wrong"] == []
    assert {name for name, verdict in told if verdict == "right"} >= RIGHT


RIGHT = {
    "ddp, layer sums", "ddp, matrix", "fsdp2, loss per step", "fsdp2, the same, norm",
    "fsdp2, layer sums", "fsdp2, log",
}  # fmt: skip
