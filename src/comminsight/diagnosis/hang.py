"""Who began a hang: the rank everybody waits for, directly or over several groups.

The verdict follows the wait-for graph and not the clock: neither the op that was overdue first
nor the rank that complained is the origin by itself. A rank without evidence is never named; if
waiting ends at one, there is no verdict and its data is what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.diagnosis import codes, codes_calls, codes_groups
from comminsight.diagnosis.chain import hang_chain, hang_coverage, op_name, op_ref
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.death_actions import death_actions, death_of
from comminsight.diagnosis.hang_evidence import (
    evidence_of,
    is_cut,
    missing_of,
    stack_of,
)
from comminsight.diagnosis.hang_findings import HangFinding, findings
from comminsight.diagnosis.killed import has_failed_first, judge_killed
from comminsight.diagnosis.long_work import as_long_work
from comminsight.diagnosis.mismatch import RULE, mismatch_verdict
from comminsight.diagnosis.presence import Observed, observe
from comminsight.diagnosis.run_end import before_the_end, left_waiting
from comminsight.diagnosis.signatures import first_mismatch
from comminsight.diagnosis.stuck_evidence import pending_evidence, pending_nowhere
from comminsight.diagnosis.waitfor import WaitGraph
from comminsight.diagnosis.wavefront import wavefront
from comminsight.model.hang import HangEvent, Liveness, Presence, StackSource
from comminsight.model.ops import Backend
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

MAX_LOOKS = 2
NOTABLE_NS = 3_000_000_000  # waiting that is told while it lasts, before it is judged

# A callback that does not come may also be a thread of the library that does not call.
TOLD_BY_CALLBACKS = frozenset(
    {Cause.HOST_BLOCKED, Cause.KERNEL_NOT_STARTED, Cause.PEER_UNREACHABLE}
)


def judge_hang(event: HangEvent, communicators: Sequence[Communicator]) -> Verdict:
    """The verdict on an observed hang; NO_VERDICT with what is missing when it cannot be told.

    Precedence: all processes gone with nothing overdue, and nobody left waiting → how the run
    ended; members that disagree on one op → the mismatch; otherwise the origin of the wait-for
    graph that most ranks wait for.
    """
    observed = observe(event, communicators)
    if event.is_over:
        # what ended them while they hung says nothing about what they hung on
        observed = observe(before_the_end(event), communicators)
        is_overdue = any(op.is_overdue for op in event.waiting)
        if has_failed_first(event) or not (is_overdue or left_waiting(observed)):
            return judge_killed(event, communicators)
        if not is_overdue:
            return _left_by(observed) or judge_killed(event, communicators)
    mismatch = first_mismatch(observed.instances)
    if mismatch is not None:
        return mismatch_verdict(observed, mismatch)
    limit_ns = event.overdue_limit_ns
    if not any(op.is_overdue or op.age_ns >= limit_ns for op in event.waiting):
        return _no_verdict(observed, message(codes.MISSING_OVERDUE, limit_ns=limit_ns))
    graph = WaitGraph(observed)
    found = findings(observed, graph.origins())
    if not found:
        waiting = sorted({op.global_rank for op in event.waiting})
        return _no_verdict(observed, message(codes.MISSING_ORIGIN, ranks=waiting))
    return as_long_work(_verdict(observed, graph, found[0], found[1:]), event)


def _left_by(observed: Observed) -> Verdict | None:
    """The verdict on ranks that were gone long before the others; None when waiting does not begin
    at them."""
    graph = WaitGraph(observed)
    found = findings(observed, graph.origins())
    is_left = bool(found) and set(found[0].culprits) <= set(left_waiting(observed))
    return _verdict(observed, graph, found[0], found[1:]) if is_left else None


def _verdict(
    observed: Observed, graph: WaitGraph, main: HangFinding, others: Sequence[HangFinding]
) -> Verdict:
    direct = graph.direct_waiters(main.culprits) if main.culprits else main.victims
    culprits = main.culprits if main.cause is not Cause.NO_VERDICT else ()
    instance = main.instance
    return Verdict(
        rule=RULE,
        cause=main.cause,
        confidence=_confidence(observed, main),
        coverage=hang_coverage(observed.event),
        culprits=culprits,
        victims=main.victims,
        comm_id=instance.key.comm_id if instance is not None else -1,
        first_bad_op=op_ref(instance) if instance is not None else None,
        measures=_waits(observed, main, direct),
        chain=hang_chain(observed, instance, culprits),
        evidence=(
            *evidence_of(observed, main, direct),
            *_other_origins(others),
            *wavefront(observed, graph, culprits),
        ),
        missing=tuple(missing_of(observed, main)),
        next_actions=tuple(_actions(observed, main)),
    )


def _waits(observed: Observed, main: HangFinding, direct: tuple[int, ...]) -> dict[str, float]:
    """How long, as far as that is known, and how many."""
    instance = main.instance
    counts = {
        "n_waiting": float(len(main.victims)),
        "n_waiting_directly": float(len(set(direct) & set(main.victims))),
    }
    if is_cut(observed, instance):
        return counts
    return {"longest_wait_ns": float(instance.age_ns if instance is not None else 0)} | counts


def _no_verdict(observed: Observed, why: Message) -> Verdict:
    return Verdict(
        rule=RULE,
        cause=Cause.NO_VERDICT,
        confidence=Confidence.NONE,
        coverage=hang_coverage(observed.event),
        missing=(why, *missing_of(observed, None)),
        evidence=(*pending_evidence(observed), *_not_yet_entered(observed)),
        next_actions=tuple(
            _stack_action(observed, rank) for rank in pending_nowhere(observed)[:MAX_LOOKS]
        ),
        chain=hang_chain(observed, None, ()),
    )


def _not_yet_entered(observed: Observed) -> Iterator[Evidence]:
    """Who waits, and who has not come, in the op that somebody has been in for longest; nothing
    where all that are known to be missing may have come."""
    for instance in observed.instances[:1]:
        absent = instance.ranks(Presence.ABSENT)
        if absent and instance.age_ns >= NOTABLE_NS:
            op = instance.first_op
            said = message(
                codes.NOT_YET, ranks=list(instance.waiters), absent=list(absent),
                op=op_name(op.op), comm=instance.communicator.label, match_seq=op.match_seq,
                age_ns=instance.age_ns, limit_ns=observed.event.overdue_limit_ns,
            )  # fmt: skip
            yield Evidence(kind="record", message=said, comm_id=op.comm_id, match_seq=op.match_seq)


def _confidence(observed: Observed, found: HangFinding) -> Confidence:
    """High when every member's place is known and nothing but the origin stands against it."""
    if found.cause is Cause.NO_VERDICT:
        return Confidence.NONE
    instance = found.instance
    is_doubtful = instance is not None and bool(
        instance.n_unnamed or Presence.UNKNOWN in instance.presence.values()
    )
    if is_doubtful or (found.cause is Cause.PEER_UNREACHABLE and len(found.culprits) == 1):
        return Confidence.LOW
    states = [observed.states[rank] for rank in found.culprits if rank in observed.states]
    is_unsure = any(
        state.liveness is Liveness.UNKNOWN
        or (observed.event.is_past and state.liveness is Liveness.DEAD and not state.exit_status)
        for state in states
    )
    is_partial = len(observed.states) < observed.event.world_size
    is_told_by_callbacks = found.cause in TOLD_BY_CALLBACKS
    if is_unsure or is_partial or is_told_by_callbacks or not found.origin.is_certain:
        return Confidence.MEDIUM
    return Confidence.HIGH


def _other_origins(others: Sequence[HangFinding]) -> Iterator[Evidence]:
    for found in others:
        if found.culprits:
            ranks = list(found.culprits)
            said = message(codes.OTHER_ORIGIN, ranks=ranks, n_waiting=len(found.victims))
            yield Evidence(kind="graph", message=said)


def _actions(observed: Observed, found: HangFinding) -> Iterator[Message]:
    ranks = list(found.culprits)
    comm = found.instance.communicator.label if found.instance is not None else ""
    name = op_name(found.instance.first_op.op) if found.instance is not None else ""
    match found.cause:
        case Cause.NO_VERDICT:
            yield message(codes.COLLECT_RANKS, ranks=ranks)
        case Cause.RANK_DEAD:
            yield from death_actions(death_of(rank, observed.states.get(rank)) for rank in ranks)
        case Cause.P2P_CYCLE | Cause.CROSS_GROUP_CYCLE | Cause.ORDER_INVERSION:
            yield _order_action(found)
        case Cause.GROUP_MISUSE:
            yield message(codes.END_GROUP, ranks=ranks, op=name, comm=comm)
            yield from (_stack_action(observed, rank) for rank in found.culprits)
        case Cause.HOST_BLOCKED:
            yield message(codes.CHECK_HOST, ranks=ranks)
            yield from (_stack_action(observed, rank) for rank in found.culprits)
        case Cause.KERNEL_NOT_STARTED:
            yield message(codes.CHECK_STREAM, ranks=ranks)
        case Cause.PEER_UNREACHABLE:
            yield message(codes.CHECK_LINK, ranks=ranks)
        case Cause.ALL_PRESENT_STUCK if not found.culprits or _is_lagging(found):
            is_cpu = found.instance and found.instance.communicator.backend is Backend.GLOO
            code = codes_calls.CHECK_CPU_NETWORK if is_cpu else codes.CHECK_TRANSFER
            yield message(code, comm=comm)
        case Cause.CONTROL_FLOW_SKIP | Cause.P2P_UNMATCHED:
            yield message(codes.COMPARE_PATHS, ranks=ranks, op=name, comm=comm)
        case _:
            yield from (_stack_action(observed, rank) for rank in found.culprits)


def _is_lagging(found: HangFinding) -> bool:
    return found.instance is not None and bool(found.instance.lagging)


def _order_action(found: HangFinding) -> Message:
    if found.cause is Cause.P2P_CYCLE:
        return message(codes_groups.ONE_GROUP_CALL, ranks=list(found.culprits))
    labels = {edge.instance.communicator.label for edge in found.origin.cycle}
    return message(codes.ORDER_GROUPS, comms=sorted(labels))


def _stack_action(observed: Observed, rank: int) -> Message:
    stack = stack_of(observed, rank)
    if stack is not None and stack.source is not StackSource.NONE:
        return message(codes.READ_STACK, rank=rank)
    if observed.event.is_past:
        return message(codes.READ_LOG, rank=rank)
    state = observed.states.get(rank)
    pid = state.pid if state is not None and state.pid > 0 else "PID"
    return message(codes.TAKE_STACK, rank=rank, pid=pid, host=state.host if state else "")
