"""Whether communication always begins when something else ends: a dependency, stated or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.activity import Activity, ActivityKind

TOLERANCE_NS = 50_000  # between the end of one and the launch of the next
TOLERANCE_RATIO = 0.05  # of the shorter of the two


@dataclass(frozen=True, slots=True)
class Succession:
    """How often an activity of ``after`` began right at the end of one of ``before``, and how often
    it ran beside one. Each is a name: a class of communication, or compute."""

    before: str
    after: str
    n: int
    n_right_after: int
    n_beside: int
    is_one_stream: bool
    links: tuple[str, str]


def successions(activities: Iterable[Activity]) -> list[Succession]:
    """Of every class of communication, what stands before it: compute, and every other class."""
    classes: dict[str, list[Activity]] = defaultdict(list)
    for one in activities:
        if one.end_ns > one.start_ns > 0 and (name := class_of(one)):
            classes[name].append(one)
    found = []
    for after, own in sorted(classes.items()):
        if after == COMPUTE:
            continue
        for before, others in sorted(classes.items()):
            if before != after:
                found.append(_succession(before, others, after, own))
    return found


COMPUTE = "compute"


def class_of(activity: Activity) -> str:
    """The class of communication: its name up to numbers, and its communicator; "" for what is
    neither communication nor compute."""
    if activity.kind is ActivityKind.COMPUTE:
        return COMPUTE
    if activity.kind is not ActivityKind.COMMUNICATION:
        return ""
    return f"{activity.name} {activity.comm_label}".strip()


def _succession(
    before: str, others: Sequence[Activity], after: str, own: Sequence[Activity]
) -> Succession:
    counts = np.zeros(3, np.int64)
    by_rank: dict[int, list[Activity]] = defaultdict(list)
    for one in others:
        by_rank[one.global_rank].append(one)
    for rank in {one.global_rank for one in own}:
        mine = [one for one in own if one.global_rank == rank]
        counts += _of_rank(by_rank[rank], mine)
    everybody = (*others, *own)
    n_streams = len({(one.global_rank, one.stream) for one in everybody})
    return Succession(
        before=before,
        after=after,
        n=int(counts[0]),
        n_right_after=int(counts[1]),
        n_beside=int(counts[2]),
        is_one_stream=n_streams == len({one.global_rank for one in everybody}),
        links=(_link(others), _link(own)),
    )


def _of_rank(others: Sequence[Activity], own: Sequence[Activity]) -> np.ndarray:
    """(all that follow something, right after one, beside one)."""
    if not others:
        return np.zeros(3, np.int64)
    start = np.array([one.start_ns for one in others], np.int64)
    end = np.array([one.end_ns for one in others], np.int64)
    order = np.argsort(end)
    start, end = start[order], end[order]
    found = np.zeros(3, np.int64)
    for one in own:
        is_beside = bool(((start < one.end_ns) & (end > one.start_ns + _slack(one))).any())
        place = int(np.searchsorted(end, one.start_ns + TOLERANCE_NS, "right")) - 1
        if place < 0 and not is_beside:
            continue  # nothing of that class had been before
        gap_ns = one.start_ns - int(end[place]) if place >= 0 else 1 << 62
        found += (1, int(not is_beside and gap_ns <= _slack(one)), int(is_beside))
    return found


def _slack(one: Activity) -> int:
    return max(TOLERANCE_NS, round(TOLERANCE_RATIO * (one.end_ns - one.start_ns)))


def _link(activities: Sequence[Activity]) -> str:
    links = {one.link for one in activities}
    return links.pop() if len(links) == 1 else ""
