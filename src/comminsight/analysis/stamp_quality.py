"""What is wrong with stamps and sizes: facts that no working clock or machine can give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.model.activity import Activity, ActivityKind

MAX_SIZE_BYTES = 1 << 45  # 32 TiB: more memory than one rank of any machine has
Key = tuple[int, str, int]  # op, communicator, place in the order of each rank


@dataclass(frozen=True, slots=True)
class ReversedStamps:
    """In a communicator, from the op at ``place`` (from 0, per rank) on, ops end before they begin
    by up to ``shift_ns``; ``n`` of them."""

    comm_label: str
    place: int
    n: int
    shift_ns: int


@dataclass(frozen=True, slots=True)
class UnequalEnds:
    """Collectives that nobody can leave before all have come, whose ends differ between ranks by
    more than the shortest of them lasted: ``n`` of a class, the worst ``spread_ns``."""

    name: str
    comm_label: str
    spread_ns: int
    duration_ns: int
    n: int


def communication_of(activities: Iterable[Activity]) -> list[Activity]:
    """What moved data between ranks."""
    return [one for one in activities if one.kind is ActivityKind.COMMUNICATION]


def reversed_stamps(own: Sequence[Activity]) -> list[ReversedStamps]:
    """By communicator, where ends lie before beginnings; an end of 0 is none."""
    by_comm: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, members in instances(own).items():
        for one in members.values():
            if 0 < one.end_ns < one.start_ns:
                by_comm[key[1]].append((key[2], one.start_ns - one.end_ns))
    return [
        ReversedStamps(comm, min(p for p, _ in found), len(found), max(s for _, s in found))
        for comm, found in sorted(by_comm.items())
    ]


def absurd_sizes(own: Sequence[Activity]) -> list[Activity]:
    """Those that claim more bytes than any rank has, or fewer than none."""
    return [one for one in own if not 0 <= one.size_bytes <= MAX_SIZE_BYTES]


def unequal_ends(
    own: Sequence[Activity], shift_ns: Mapping[int, int] | None = None
) -> list[UnequalEnds]:
    """By class, collectives that end too differently; ``shift_ns`` is added to a rank's stamps."""
    moved = shift_ns or {}
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for (op, comm, _), members in instances(own).items():
        whole = [one for one in members.values() if one.end_ns > one.start_ns > 0]
        if op not in SYNCHRONISING_OPS or len(whole) < 2:
            continue
        ends = [one.end_ns + moved.get(one.global_rank, 0) for one in whole]
        least_ns = min(one.end_ns - one.start_ns for one in whole)
        if max(ends) - min(ends) > least_ns:
            found[whole[0].name, comm].append((max(ends) - min(ends), least_ns))
    return [UnequalEnds(name, comm, *max(rows), len(rows)) for (name, comm), rows in found.items()]


def end_shifts_ns(own: Sequence[Activity]) -> dict[int, int]:
    """What to add to each rank's stamps so that the ends of synchronising collectives agree best:
    the median over them of the difference to the median rank. Empty with fewer than three."""
    rows: dict[int, list[float]] = defaultdict(list)
    n = 0
    for (op, _, _), members in instances(own).items():
        whole = {r: one.end_ns for r, one in members.items() if one.end_ns > one.start_ns > 0}
        if op in SYNCHRONISING_OPS and len(whole) > 1:
            n += 1
            middle = float(np.median(list(whole.values())))
            for rank, end_ns in whole.items():
                rows[rank].append(middle - end_ns)
    if n < 3:
        return {}
    return {rank: round(float(np.median(gaps))) for rank, gaps in sorted(rows.items())}


def instances(own: Iterable[Activity]) -> dict[Key, dict[int, Activity]]:
    """The members of each op by rank: the nth of a class and communicator on every rank. Numbers
    that a profiler gives to events are each rank's own, and join nothing."""
    places: dict[tuple[int, int, str], int] = defaultdict(int)
    found: dict[Key, dict[int, Activity]] = defaultdict(dict)
    for one in sorted(own, key=lambda a: (a.global_rank, max(a.start_ns, a.end_ns))):
        place = places[one.global_rank, one.op, one.comm_label]
        places[one.global_rank, one.op, one.comm_label] += 1
        found[one.op, one.comm_label, place][one.global_rank] = one
    return found
