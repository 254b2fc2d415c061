"""Template learning depends on what the ranks did, not on how they are given or numbered; and of
random training programs it proposes the true step or nothing. ``pytest -s`` shows the table."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.semantics.period import RankStream
from comminsight.semantics.template_learning import Learned, learn_template
from comminsight.sim import (
    Clocks,
    SimLayout,
    fsdp2_accumulated_layout,
    megatron_core_layout,
    serving_layout,
    simulate,
)
from tests.unit.semantics.learning import learn, reloaded, streams_of
from tests.unit.semantics.learning_programs import Family, drawn, n_wrong
from tests.unit.semantics.learning_programs import run_of as simulated
from tests.unit.semantics.schedules import found_bounds, found_on, true_bounds

LAYOUTS = (
    fsdp2_accumulated_layout(4), megatron_core_layout(2, 2, 2), serving_layout(2, 2)
)  # fmt: skip
NUMBERS = st.sampled_from(range(len(LAYOUTS)))


@cache
def run_of(which: int) -> list[RankStream]:
    return streams_of(simulate(LAYOUTS[which], steps=8, seed=1))


@cache
def learnt_from(which: int) -> Learned:
    return learn_template(run_of(which), "learned")


@settings(max_examples=25, deadline=None)
@given(NUMBERS, st.randoms(use_true_random=False))
def test_the_order_of_the_ranks_does_not_matter(which: int, random: object) -> None:
    shuffled = list(run_of(which))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found, expected = learn_template(shuffled, "learned"), learnt_from(which)
    assert found.learning.n_regular == expected.learning.n_regular
    assert (found.template is None) == (expected.template is None)
    assert found.learning.anchor == expected.learning.anchor


@settings(max_examples=25, deadline=None)
@given(
    NUMBERS,
    st.integers(-(10**15), 10**15),
    st.integers(2, 10**6),
)
def test_neither_do_clocks_nor_the_numbers_of_communicators(
    which: int, shift_ns: int, factor: int
) -> None:
    moved = []
    for stream in run_of(which):
        rows = stream.rows.copy()
        for field in ("start_ns", "end_ns", "enqueue_ns"):
            rows[field] += shift_ns
        ids = np.where(stream.comm_ids >= 0, stream.comm_ids * factor, -1)
        moved.append(replace(stream, rows=rows, comm_ids=ids))
    assert learn_template(moved, "learned") == learnt_from(which)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(LAYOUTS), st.integers(0, 10**6), st.integers(4, 14))
def test_a_whole_job_gives_a_template_of_its_true_steps(
    layout: SimLayout, seed: int, steps: int
) -> None:
    run = simulate(layout, steps=steps, seed=seed, clocks=Clocks(spread_ns=10**9, drift_ppm=10))
    template = reloaded(learn(run))
    for rank in run.ranks:
        firsts = [first for first, _ in found_bounds(found_on(rank, (template,)).steps)]
        assert firsts == [first for first, _ in true_bounds(rank)]


N_PROGRAMS = 600 if os.environ.get("COMMINSIGHT_FULL") == "1" else 100
LEAST_RIGHT = 0.3  # half of the programs hide their steps in microbatches that look like steps


def test_of_random_programs_the_true_step_is_proposed_or_none() -> None:
    table = {family: Counter[str]() for family in Family}
    wrong = []
    for seed in range(N_PROGRAMS):
        draw = drawn(np.random.default_rng(seed))
        run = simulated(draw, seed)
        learned = learn(run)
        outcome = "refused"
        if learned.template is not None:
            template = reloaded(learned)
            is_wrong = any(n_wrong(rank, template) for rank in run.ranks)
            outcome = "wrong" if is_wrong else "right"
            wrong += [f"{seed}: {draw.label}"] if is_wrong else []
        table[draw.family][outcome] += 1
    print(f"\n{'':10}{'right':>8}{'refused':>9}{'wrong':>7}")
    for family, counts in table.items():
        print(f"{family:10}{counts['right']:8}{counts['refused']:9}{counts['wrong']:7}")
    assert wrong == []
    assert sum(counts["right"] for counts in table.values()) >= LEAST_RIGHT * N_PROGRAMS
