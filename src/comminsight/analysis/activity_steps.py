"""The steps of each rank that its trace marks, on the wall clock, to be held against counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from comminsight.model.activity import Activity
from comminsight.model.counters import RankSteps

WALL_NS = range(946_684_800 * 10**9, 4_102_444_800 * 10**9)  # the years 2000 to 2099


def activity_steps(activities: Iterable[Activity]) -> tuple[RankSteps, ...]:
    """One of each rank with at least two steps in a row whose stamps can be those of a wall clock,
    ascending. A step lasts until the next one begins on the device, so that the last one of a
    window has no end and is left out, as is each one before a gap."""
    begun: dict[int, dict[int, int]] = defaultdict(dict)
    for one in activities:
        if one.step >= 0 and one.global_rank >= 0 and one.start_ns in WALL_NS:
            first = begun[one.global_rank].get(one.step, one.start_ns)
            begun[one.global_rank][one.step] = min(first, one.start_ns)
    found = (_rank_steps(rank, own) for rank, own in sorted(begun.items()))
    return tuple(one for one in found if one.steps)


def _rank_steps(rank: int, begun: dict[int, int]) -> RankSteps:
    whole = [
        (step, start_ns, end_ns)
        for (step, start_ns), (after, end_ns) in pairwise(sorted(begun.items()))
        if after == step + 1 and end_ns > start_ns
    ]
    return RankSteps(
        global_rank=rank,
        steps=tuple(step for step, _, _ in whole),
        start_ns=tuple(start_ns for _, start_ns, _ in whole),
        end_ns=tuple(end_ns for _, _, end_ns in whole),
    )
