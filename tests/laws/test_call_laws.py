"""One rank calls something else than the others: it is named, or nobody is, whatever is known."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from comminsight.model.verdict import Cause
from comminsight.pipeline.flight_recorder import diagnose_flight_recorder
from tests.builders.flight_recorder import Call, FlightJob, parallel_job, write_dumps
from tests.cases.diverging import played, world

N_SEEDS = 400 if os.environ.get("COMMINSIGHT_FULL") == "1" else 60
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
MISMATCH = {Cause.OP_TYPE_MISMATCH, Cause.SHAPE_MISMATCH, Cause.DTYPE_MISMATCH}
ABSENT = {Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP}
# what each fault may be called: what is known may be no more than that calls differ
CAUSES = {
    "skip": {Cause.CONTROL_FLOW_SKIP, Cause.RANK_NOT_ENTERED, *MISMATCH},
    "extra": {Cause.EXTRA_COLLECTIVE, *MISMATCH},
    "swap": {Cause.ORDER_INVERSION, *MISMATCH},
    "shape": {Cause.SHAPE_MISMATCH},
    "dtype": {Cause.DTYPE_MISMATCH},
    "op": {Cause.OP_TYPE_MISMATCH},
}


def a_step(rng: random.Random) -> list[Call]:
    """Layers, some of them alike, and a reduction."""
    layers = [Call("0", rng.choice(OPS), (rng.choice((8, 64, 512, 4096)),)) for _ in range(4)]
    n_layers = rng.randrange(1, 7)
    return [rng.choice(layers) for _ in range(n_layers)] + [Call("0", "all_reduce", (1,))]


def with_fault(rng: random.Random, kind: str, program: list[Call], index: int) -> list[Call]:
    call, new = program[index], list(program)
    if kind == "skip":
        del new[index]
    elif kind == "extra":
        new.insert(index, rng.choice([one for one in program if not one.is_p2p]))
    elif kind == "swap":
        new[index], new[index + 1] = new[index + 1], new[index]
    elif kind == "shape":
        new[index] = call._replace(shape=(call.shape[0] + 3,))
    elif kind == "dtype":
        new[index] = call._replace(dtype="Float")
    else:
        new[index] = call._replace(op="broadcast" if call.op != "broadcast" else "all_gather")
    return new


@pytest.mark.parametrize("n_missing", [0, 1])
@pytest.mark.parametrize("kind", CAUSES)
def test_nobody_but_the_odd_rank_is_named(kind: str, n_missing: int, tmp_path: Path) -> None:
    rng = random.Random(f"{kind} {n_missing}")
    n_named = 0
    for seed in range(N_SEEDS):
        n_ranks = rng.choice((2, 3, 4, 8))
        program = a_step(rng) * rng.randrange(1, 12)
        odd, index = rng.randrange(n_ranks), rng.randrange(len(program) - 1)
        programs = dict.fromkeys(range(n_ranks), program)
        programs[odd] = with_fault(rng, kind, program, index)
        job = played(world(n_ranks), programs, run_ahead=rng.choice((1, 2, 6, 30)))
        folder = tmp_path / str(seed)
        folder.mkdir()
        gone = rng.sample(range(n_ranks), n_missing)
        write_dumps(
            folder, job, ranks=[rank for rank in range(n_ranks) if rank not in gone],
            ring=rng.choice((4, 15, 10_000)), is_json=rng.random() < 0.3,
        )  # fmt: skip
        verdict = diagnose_flight_recorder([folder], world_size=n_ranks).verdict
        seen = (seed, n_ranks, odd, gone, index, verdict.cause, verdict.culprits)
        assert set(verdict.culprits) <= {odd} or is_both(verdict.culprits, odd, job, gone), seen
        assert not verdict.culprits or verdict.cause in CAUSES[kind] | ABSENT, seen
        n_named += verdict.culprits == (odd,)
    assert n_named >= 0.3 * N_SEEDS * (1 - n_missing)


LAYOUTS = ((2, 2, 2), (1, 4, 2), (4, 1, 2), (2, 1, 4), (1, 1, 8), (2, 2, 1), (1, 2, 4))


@pytest.mark.parametrize("kind", ["skip", "extra", "swap"])
def test_over_several_groups_the_odd_rank_is_among_those_named(kind: str, tmp_path: Path) -> None:
    """Or nobody is named: in a circle all of its ranks are, the odd one with them."""
    rng = random.Random(f"groups {kind}")
    for seed in range(N_SEEDS // 4):
        made = parallel_job(*rng.choice(LAYOUTS), n_steps=rng.choice((1, 3, 8)))
        odd = rng.randrange(len(made.programs))
        program = made.programs[odd]
        some = range(len(program) // 3, len(program) - 1)
        index = rng.choice([n for n in some if not program[n].is_p2p])
        if kind == "swap" and program[index + 1].is_p2p:
            continue
        programs = made.programs | {odd: with_fault(rng, kind, program, index)}
        if any(call.is_p2p for call in set(programs[odd]) - set(program)):
            continue
        job = played(made.groups, programs, run_ahead=rng.choice((1, 3, 6, 20)))
        folder = tmp_path / str(seed)
        folder.mkdir()
        gone = rng.sample(sorted(programs), rng.choice((0, 0, 1)))
        write_dumps(
            folder, job, ranks=[rank for rank in programs if rank not in gone],
            ring=rng.choice((15, 40, 10_000)),
        )  # fmt: skip
        verdict = diagnose_flight_recorder([folder], world_size=len(programs)).verdict
        seen = (seed, odd, gone, index, verdict.cause, verdict.culprits)
        assert not verdict.culprits or odd in verdict.culprits, seen


def is_both(culprits: tuple[int, ...], odd: int, job: FlightJob, gone: list[int]) -> bool:
    """Where two sides of one size are known, both are named: who is right is not known."""
    return odd in culprits and len(culprits) == 2 == len(job.programs) - len(gone)
