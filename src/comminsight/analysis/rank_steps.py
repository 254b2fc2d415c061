"""The steps of each rank on the wall clock of its node, to be held against counters of ports."""

from __future__ import annotations

from collections.abc import Sequence

from comminsight.analysis.alignment import AlignedStep
from comminsight.model.counters import RankSteps
from comminsight.model.trace import RunTrace


def rank_steps(trace: RunTrace, steps: Sequence[AlignedStep]) -> tuple[RankSteps, ...]:
    """One of each rank with a step that ended and a wall clock, ascending. A step lasts until the
    next one begins; the last one until its own end."""
    found = []
    for rank in trace.ranks:
        wall_ns = rank.session.real_minus_mono_ns
        own = [(step.step, step.members.get(rank.global_rank)) for step in steps]
        ended = [(n, one) for n, one in own if one is not None and one.end_ns > one.start_ns > 0]
        if ended and rank.session.created_real_ns:
            start_ns = [one.start_ns + wall_ns for _, one in ended]
            lasted = [one.period_ns or one.end_ns - one.start_ns for _, one in ended]
            found.append(
                RankSteps(
                    global_rank=rank.global_rank,
                    steps=tuple(n for n, _ in ended),
                    start_ns=tuple(start_ns),
                    end_ns=tuple(a + b for a, b in zip(start_ns, lasted, strict=True)),
                )
            )
    return tuple(sorted(found, key=lambda one: one.global_rank))
