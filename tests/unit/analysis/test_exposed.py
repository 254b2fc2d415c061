"""Exposed time by op, rank and step: against a grid, and exactly on small traces."""

from __future__ import annotations

import random

import pytest

from comminsight.analysis.exposed import exposed_ops, exposed_ranks, exposed_steps
from comminsight.analysis.exposure import exposures, imbalance_ratio
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.ops import Op
from tests.builders.activities import US, comm, compute


def random_trace(rng: random.Random) -> list[Activity]:
    made = []
    for _ in range(rng.randint(1, 12)):
        rank, step = rng.randint(0, 1), rng.randint(0, 1)
        begin, length = rng.randint(0, 40), rng.randint(1, 15)
        op = rng.choice((Op.ALL_REDUCE, Op.ALL_GATHER, Op.UNKNOWN))
        made.append(
            comm(rank, op, begin, length, step=step, stream=rng.randint(1, 2))
            if rng.random() < 0.5
            else compute(rank, begin, length, step=step)
        )
    return made


def covered(own: list[Activity], at_us: int, base_ns: int) -> bool:
    return any(one.start_ns <= base_ns + at_us * US < one.end_ns for one in own)


@pytest.mark.parametrize("seed", range(150))
def test_every_sum_is_that_of_a_grid(seed: int) -> None:
    every = random_trace(random.Random(seed))
    base = min(one.start_ns for one in every) // (100 * US) * (100 * US)
    found = exposures(every)
    exposed = {"all": 0}
    for one in found:
        here = [a for a in every if (a.global_rank, a.step) == (one.global_rank, one.step)]
        rank = [a for a in every if a.global_rank == one.global_rank]
        hiding = [a for a in rank if a.kind is ActivityKind.COMPUTE]  # of any step
        sending = [a for a in here if a.kind is ActivityKind.COMMUNICATION]
        before = exposed["all"]
        for at in range(200):
            if covered(sending, at, base) and not covered(hiding, at, base):
                exposed["all"] += US
            for op in {a.op for a in sending}:
                own = [a for a in sending if a.op == op]
                if covered(own, at, base) and not covered(hiding, at, base):
                    exposed[op] = exposed.get(op, 0) + US
        assert one.exposed_ns == exposed["all"] - before
        assert one.exposed_ns + one.overlapped_ns == one.communication_ns
    ranks = exposed_ranks(every, found)
    assert sum(one.exposed_ns for one in ranks) == exposed["all"]
    assert {one.op: one.exposed_ns for one in exposed_ops(every, found) if one.exposed_ns} == {
        op: ns for op, ns in exposed.items() if op != "all"
    }
    for one in ranks:
        assert one.exposed_ns + one.overlapped_ns == one.communication_ns
        assert 0 <= one.dark_ns <= one.span_ns


def test_the_worst_calls_are_those_with_the_most_exposed_time() -> None:
    trace = [compute(0, 0, 100)] + [
        comm(0, Op.ALL_REDUCE, begin, length)
        for begin, length in ((0, 90), (95, 30), (200, 20), (300, 21), (400, 1))
    ]
    (one,) = exposed_ops(trace, exposures(trace))
    assert [call.exposed_ns // US for call in one.exposed_calls] == [25, 21, 20]


def test_steps_are_medians_over_ranks() -> None:
    trace = [comm(rank, Op.ALL_REDUCE, 0, 10 * (rank + 1)) for rank in range(3)]
    (one,) = exposed_steps(exposures(trace))
    assert (one.n_ranks, one.exposed_ns, one.exposed_ratio) == (3, 20 * US, 1.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([3], None), ([0, 0], None), ([2, 2], 0.0), ([1, 1, 3], 2.0)],
)
def test_imbalance(values: list[int], expected: float | None) -> None:
    assert imbalance_ratio(values) == expected
