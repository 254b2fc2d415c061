"""Whether collectives in traces of several ranks may be matched by their order.

Windows of two profilers rarely begin at the same op. The nth op of one rank is the nth of another
only where both show equally many in every step, in windows that overlap; else the ranks are kept
apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from comminsight.model.activity import Activity, ActivityKind

ClassKey = tuple[int, str]  # op, communicator


def kept_apart(activities: Sequence[Activity]) -> tuple[list[Activity], frozenset[str]]:
    """The activities, with the rank in the label of each communicator whose ops cannot be matched
    by order, and these labels as they were."""
    doubtful = {label for _, label in _doubtful(activities)}
    named = [
        replace(one, comm_label=f"{one.comm_label} of rank {one.global_rank}".strip())
        if one.kind is ActivityKind.COMMUNICATION and one.comm_label in doubtful
        else one
        for one in activities
    ]
    return named, frozenset(doubtful)


def _doubtful(activities: Sequence[Activity]) -> set[ClassKey]:
    counts: dict[ClassKey, dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for one in activities:
        if one.kind is ActivityKind.COMMUNICATION:
            counts[one.op, one.comm_label][one.global_rank][one.step] += 1
    ranks: dict[str, set[int]] = defaultdict(set)
    for (_, label), by_rank in counts.items():
        ranks[label] |= by_rank.keys()
    windows = _windows(activities)
    return {
        key
        for key, by_rank in counts.items()
        if len(own := ranks[key[1]]) > 1
        and (
            by_rank.keys() != own
            or len({_shape(one) for one in by_rank.values()}) > 1
            or max(windows[rank][0] for rank in own) >= min(windows[rank][1] for rank in own)
        )
    }


def _windows(activities: Sequence[Activity]) -> dict[int, tuple[int, int]]:
    """From the first begin to the last end of each rank."""
    found: dict[int, tuple[int, int]] = {}
    for one in activities:
        begin, end = found.get(one.global_rank, (one.start_ns, one.end_ns))
        found[one.global_rank] = (min(begin, one.start_ns), max(end, one.end_ns))
    return found


def _shape(counts: Counter[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(counts.items()))
