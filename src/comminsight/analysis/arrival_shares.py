"""What the time inside a class of collectives was: waiting for the last rank, or moving data.

Clocks are aligned on the ends of the collectives themselves, since nobody can leave one before the
last has come. Of one instance, over its members: ``skew`` is the last start minus the first,
``transfer`` what the last to come then took. Where the transfer alone is known from elsewhere (a
baseline without skew), what exceeds it is neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.analysis.stamp_quality import end_shifts_ns, instances
from comminsight.model.activity import Activity


@dataclass(frozen=True, slots=True)
class ArrivalShares:
    """Sums over the instances of a class, ns; ``last`` counts who came last, by global rank.

    ``residual_ns`` is how far ends still differ after alignment (median), ``shift_ns`` how far a
    clock was moved at most.
    """

    op: int
    name: str
    comm_label: str
    size_bytes: int
    n: int
    duration_ns: int
    skew_ns: int
    transfer_ns: int
    last: Mapping[int, int]
    shift_ns: int
    residual_ns: int


def arrival_shares(own: Sequence[Activity]) -> list[ArrivalShares]:
    """By class and size; instances of which a member is missing are left out, and the first of
    each class, in which connections are made."""
    shifts = end_shifts_ns(own)
    ranks = {one.global_rank for one in own}
    found: dict[tuple[int, str, int], list[dict[int, Activity]]] = defaultdict(list)
    for (op, comm, place), members in instances(own).items():
        whole = {r: one for r, one in members.items() if one.end_ns > one.start_ns > 0}
        if place and op in SYNCHRONISING_OPS and len(whole) == len(ranks) > 1:
            size = max(one.size_bytes for one in whole.values())
            found[op, comm, size].append(whole)
    return [_shares(key, rows, shifts) for key, rows in sorted(found.items()) if shifts]


def _shares(
    key: tuple[int, str, int], rows: Sequence[dict[int, Activity]], shifts: Mapping[int, int]
) -> ArrivalShares:
    duration = skew = transfer = 0
    last: Counter[int] = Counter()
    residual = []
    for members in rows:
        start = {r: one.start_ns + shifts.get(r, 0) for r, one in members.items()}
        end = [one.end_ns + shifts.get(r, 0) for r, one in members.items()]
        late = max(start, key=lambda rank: (start[rank], rank))
        duration += max(end) - min(start.values())
        skew += start[late] - min(start.values())
        transfer += members[late].end_ns - members[late].start_ns
        last[late] += 1
        residual.append(max(end) - min(end))
    op, comm, size = key
    return ArrivalShares(
        op=op,
        name=next(iter(rows[0].values())).name,
        comm_label=comm,
        size_bytes=size,
        n=len(rows),
        duration_ns=duration,
        skew_ns=skew,
        transfer_ns=transfer,
        last=dict(last),
        shift_ns=max(map(abs, shifts.values()), default=0),
        residual_ns=round(float(np.median(residual))),
    )
