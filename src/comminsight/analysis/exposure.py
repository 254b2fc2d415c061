"""Where communication time goes: hidden behind compute, or exposed, per rank and step.

Exposed and overlapped add up to the union of communication, always (article 004, "exposed
communication"). Only what is known to be compute hides anything: unknown kernels and
synchronisations that merely stand in the trace hide nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.intervals import EMPTY, common, length_ns, united, without
from comminsight.model.activity import Activity, ActivityKind

RankStep = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Exposure:
    """One rank in one step; sets as in ``analysis.intervals``. ``span_ns`` is from its first
    activity to its last. ``compute`` is that of the step, ``hiding`` that of the rank: what a step
    sends is often hidden by the compute of the next."""

    global_rank: int
    step: int
    span_ns: int
    communication: np.ndarray
    compute: np.ndarray
    hiding: np.ndarray

    @property
    def overlapped_ns(self) -> int:
        """Communication behind compute."""
        return length_ns(common(self.communication, self.hiding))

    @property
    def exposed_ns(self) -> int:
        """Communication that no compute hides."""
        return length_ns(without(self.communication, self.hiding))

    @property
    def communication_ns(self) -> int:
        """All communication, each instant once."""
        return length_ns(self.communication)


def exposures(activities: Iterable[Activity]) -> list[Exposure]:
    """One for each rank and step, ascending; activities without an end are left out."""
    by_step: dict[RankStep, list[Activity]] = defaultdict(list)
    for one in activities:
        if one.end_ns > one.start_ns > 0:
            by_step[one.global_rank, one.step].append(one)
    hiding: dict[int, list[Activity]] = defaultdict(list)
    for (rank, _), own in by_step.items():
        hiding[rank] += own
    sets = {rank: set_of(own, ActivityKind.COMPUTE) for rank, own in hiding.items()}
    return [
        _exposure(key, own, sets[key[0]])
        for key, own in sorted(by_step.items(), key=lambda item: item[0])
    ]


def _exposure(key: RankStep, own: list[Activity], hiding: np.ndarray) -> Exposure:
    begin, end = min(one.start_ns for one in own), max(one.end_ns for one in own)
    return Exposure(
        global_rank=key[0],
        step=key[1],
        span_ns=end - begin,
        communication=set_of(own, ActivityKind.COMMUNICATION),
        compute=set_of(own, ActivityKind.COMPUTE),
        hiding=hiding,
    )


def set_of(activities: Iterable[Activity], kind: ActivityKind) -> np.ndarray:
    """The time that activities of one kind cover together."""
    rows = [(one.start_ns, one.end_ns) for one in activities if one.kind is kind]
    return united(np.array(rows, np.int64)) if rows else EMPTY


def imbalance_ratio(exposed: Iterable[float]) -> float | None:
    """How much more the largest is than the median, 0 where all are equal; None with fewer than two
    ranks, or where the median is 0: nothing to compare with."""
    values = np.array(list(exposed), float)
    if len(values) < 2 or np.median(values) <= 0:
        return None
    return float(values.max() / np.median(values) - 1)
