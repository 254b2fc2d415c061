"""Batches of sends and receives that are all there on both sides, and none of which ends.

One bad link or rank stops those batches that need it, and no others. Where two pairs without a
common rank stand still, the batches themselves hold each other: a circle that no queue shows. It is
told with low confidence, since a fault of the whole network looks alike, and not at all where a log
tells of transfers without an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.transport_errors import transport_errors
from comminsight.diagnosis import codes_calls
from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import message
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op, RecordKind
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

MAX_SHOWN = 16
Edge = tuple[int, int]  # global ranks: sender, receiver


def with_pairs_apart(verdict: Verdict, job: JobEvidence) -> Verdict:
    """As a circle of sends and receives where pairs apart from each other stand still alike."""
    op, event = verdict.first_bad_op, job.hang
    if verdict.cause is not Cause.ALL_PRESENT_STUCK or op is None or event is None:
        return verdict
    if op.sender < 0 or verdict.culprits or _has_failed_transfers(job):
        return verdict
    edges = _both_ways(_matched(event, {one.comm_id: one for one in job.communicators}))
    pairs = sorted({(min(edge), max(edge)) for edge in edges})
    ranks = sorted({rank for pair in pairs for rank in pair})
    if not _are_apart(pairs) or _others_open(event, set(ranks)):
        return verdict
    shown = [f"{low}-{high}" for low, high in pairs[:MAX_SHOWN]]
    return replace(
        verdict,
        cause=Cause.P2P_CYCLE,
        confidence=Confidence.LOW,
        culprits=tuple(ranks),
        victims=tuple(rank for rank in verdict.victims if rank not in ranks),
        evidence=(_entry(shown), *verdict.evidence),
        missing=(*verdict.missing, message(codes_calls.MISSING_LINK_STATE, ranks=ranks)),
        next_actions=(message(codes.ONE_GROUP_CALL, ranks=ranks), *verdict.next_actions),
    )


def _has_failed_transfers(job: JobEvidence) -> bool:
    return bool(job.logs and transport_errors(job.logs, ranks_of(job.logs, job.world_size)))


def _entry(pairs: list[str]) -> Evidence:
    return Evidence(kind="graph", message=message(codes.PAIRS_APART, pairs=pairs))


def _matched(event: HangEvent, communicators: dict[int, Communicator]) -> set[Edge]:
    """Transfers of which both halves are open; () where any half is open alone: somebody is
    missing then, and that is what the others wait for."""
    halves: Counter[tuple[int, Edge, bool]] = Counter()
    for op in event.in_flight:
        if op.kind != RecordKind.P2P or op.comm_id not in communicators or op.is_peerless:
            continue
        members = communicators[op.comm_id].members
        if op.peer >= len(members):
            return set()
        ends = (op.global_rank, members[op.peer])
        edge = ends if op.op == Op.SEND else ends[::-1]
        halves[op.comm_id, edge, op.op == Op.SEND] += 1
    is_matched = all(
        halves[comm_id, edge, not is_send] == n
        for (comm_id, edge, is_send), n in list(halves.items())
    )
    return {edge for (_, edge, _), n in halves.items() if n} if is_matched else set()


def _both_ways(edges: set[Edge]) -> set[Edge]:
    return {edge for edge in edges if edge[::-1] in edges}


def _are_apart(pairs: Iterable[Edge]) -> bool:
    """True when two of the pairs share no rank, so that nothing single lies on all of them."""
    pairs = list(pairs)
    return any(not set(one) & set(other) for one in pairs for other in pairs)


def _others_open(event: HangEvent, ranks: set[int]) -> bool:
    """True when a rank outside, or a collective, is open as well: it may be what holds them."""
    return any(op.global_rank not in ranks or op.kind != RecordKind.P2P for op in event.in_flight)
