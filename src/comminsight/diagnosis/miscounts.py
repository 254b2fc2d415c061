"""Communicators whose members were not told of unlike numbers of calls: their counts disagree, and
the nth op of one member is not that of another.

Where all members missed as many calls, the numbers meet again after the gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.codes import message
from comminsight.model.hang import HangEvent
from comminsight.model.topology import Communicator
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Cause, Confidence, Message, Verdict

Miscounts = dict[int, dict[int, int]]  # by comm_id: unseen calls by global rank


def miscounts_of(event: HangEvent) -> Miscounts:
    """Of the communicators that anybody made an op in."""
    counts: Miscounts = defaultdict(dict)
    for entry in event.progress:
        counts[entry.comm_id][entry.global_rank] = entry.n_unseen
    return _unlike(counts)


def miscounts_in(trace: RunTrace) -> Miscounts:
    """Of the communicators of a run."""
    counts: Miscounts = defaultdict(dict)
    for rank in trace.ranks:
        for index, comm_id in enumerate(rank.comm_ids.tolist()):
            if comm_id >= 0:
                own = counts[comm_id]
                n = rank.unseen_calls.get(index, 0)
                own[rank.session.global_rank] = own.get(rank.session.global_rank, 0) + n
    return _unlike(counts)


def without_numbers(verdict: Verdict, trace: RunTrace) -> Verdict:
    """The verdict on what ops of the same number tell; none where the numbers disagree."""
    found = miscounts_in(trace)
    if not found:
        return verdict
    said = missing_counts(found, {one.comm_id: one for one in trace.communicators})
    return replace(
        verdict, cause=Cause.NO_VERDICT, confidence=Confidence.NONE, culprits=(), victims=(),
        comm_id=-1, first_bad_op=None, measures={}, chain=(), evidence=(),
        missing=(said, *verdict.missing), next_actions=(),
    )  # fmt: skip


def missing_counts(found: Miscounts, communicators: Mapping[int, Communicator]) -> Message:
    """Whose calls in which communicators nobody was told of."""
    ranks = {rank for counts in found.values() for rank, n in counts.items() if n}
    labels = [communicators[comm_id].label for comm_id in found if comm_id in communicators]
    n_calls = sum(n for counts in found.values() for n in counts.values())
    return message(codes.MISSING_COUNTS, ranks=sorted(ranks), comms=sorted(labels), n_calls=n_calls)


def _unlike(counts: Mapping[int, Mapping[int, int]]) -> Miscounts:
    return {
        comm_id: dict(by_rank)
        for comm_id, by_rank in counts.items()
        if len(set(by_rank.values())) > 1
    }
