"""What a hang verdict shows: who is absent, who waits, what processes say, what is not known."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.cycle_pattern import off_pattern
from comminsight.diagnosis.frozen import frozen_evidence
from comminsight.diagnosis.hang_findings import HangFinding, skip_of, went_on
from comminsight.diagnosis.miscounts import missing_counts
from comminsight.diagnosis.open_calls import call_orders
from comminsight.diagnosis.presence import Instance, Observed
from comminsight.diagnosis.stuck_evidence import missing_of_ops, pending_evidence, stage_evidence
from comminsight.model.hang import Liveness, Presence, Stack, StackSource
from comminsight.model.ops import Backend, Op
from comminsight.model.ranges import missing_ranks
from comminsight.model.verdict import Cause, Evidence, Message, MessageParam

MAX_STACKS = 8
# the culprit called the op, and is not absent from it
CALLED_CAUSES = frozenset({Cause.GROUP_MISUSE, Cause.HOST_BLOCKED, Cause.KERNEL_NOT_STARTED})

ABSENT_CAUSES = frozenset({Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP})


def evidence_of(
    observed: Observed, found: HangFinding, direct: tuple[int, ...]
) -> Iterator[Evidence]:
    """Absent, waiting, dead or gone on, then the stacks of the culprits verbatim."""
    instance = found.instance
    in_flight = codes.IN_FLIGHT_SINCE if is_cut(observed, instance) else codes.IN_FLIGHT
    if found.origin.cycle:
        yield from _cycle(found)
        yield from call_orders(observed, {*found.culprits, *found.origin.ranks})
        yield from _of_pattern(observed, found)
    elif instance is not None and instance.lagging:
        done = list(instance.ranks(Presence.DONE))
        yield _instance_evidence(codes.LAGGING, instance, instance.lagging, done=done)
    elif instance is not None and instance.is_complete:
        yield _instance_evidence(codes.ALL_PRESENT, instance, instance.waiters)
        yield from frozen_evidence(observed, instance, found.culprits)
    elif instance is not None and found.cause is Cause.NO_VERDICT:
        yield _instance_evidence(in_flight, instance, instance.waiters)
    elif instance is not None:
        if found.cause not in CALLED_CAUSES:
            yield absence(observed, instance, found.culprits)
            yield from _never_used(observed, instance, found.culprits)
        yield _instance_evidence(in_flight, instance, instance.waiters)
    if instance is not None:
        yield from _on_cpu(instance)
        yield from stage_evidence(instance)
    yield from pending_evidence(observed)
    indirect = sorted(set(found.victims) - set(direct) - set(_members(found)))
    if indirect:
        culprits = list(found.culprits)
        yield Evidence(
            kind="graph",
            message=message(codes.WAITS_TRANSITIVELY, ranks=indirect, culprits=culprits),
        )
    for rank in found.culprits:
        yield from _process(observed, found, rank)
    yield from stacks_of(observed, found.culprits)


def _on_cpu(instance: Instance) -> Iterator[Evidence]:
    if instance.communicator.backend is Backend.GLOO:
        said = message(codes_calls.ON_CPU_GROUP, comm=instance.communicator.label)
        yield Evidence(kind="record", message=said, comm_id=instance.key.comm_id)


def _of_pattern(observed: Observed, found: HangFinding) -> Iterator[Evidence]:
    told = off_pattern(observed, found.origin.cycle)
    if told is not None and found.culprits == (told[0],):
        rank, pattern = told
        said = message(
            codes_calls.PATTERN, ranks=[rank], period=pattern.period, n_repeats=pattern.n_repeats
        )
        yield Evidence(kind="record", message=said, global_rank=rank)
    instance = found.instance
    if instance is not None and found.cause in ABSENT_CAUSES:
        yield from _never_used(observed, instance, found.culprits)


def _never_used(
    observed: Observed, instance: Instance, ranks: tuple[int, ...]
) -> Iterator[Evidence]:
    """That this is the first op of its group, and these ranks made none in it."""
    if instance.key.is_p2p or instance.key.match_seq != 1 or instance.n_unnamed:
        return
    progress = [observed.progress(rank, instance.key) for rank in ranks]
    if not any(one is not None and one.last_entered for one in progress):
        comm = instance.communicator.label
        said = message(codes_calls.NEVER_USED, ranks=list(ranks), comm=comm)
        yield Evidence(kind="record", message=said, comm_id=instance.key.comm_id, match_seq=1)


def absence(observed: Observed, instance: Instance, ranks: tuple[int, ...]) -> Evidence:
    """That ``ranks`` have not entered the op, and the last one of its kind that all of them did."""
    entered = [observed.progress(rank, instance.key) for rank in ranks if rank in instance.presence]
    last = min((p.last_entered if p is not None else 0 for p in entered), default=0)
    return _instance_evidence(codes.ABSENT, instance, ranks, last_entered=last)


def is_cut(observed: Observed, instance: Instance | None) -> bool:
    """True when it is not known how long the members in it went on to wait: no black box tells."""
    waiters = instance.waiters if instance is not None else ()
    return any(observed.states[rank].is_cut for rank in waiters if rank in observed.states)


def stacks_of(observed: Observed, ranks: tuple[int, ...]) -> Iterator[Evidence]:
    """The stacks of ``ranks``, word for word."""
    for rank in ranks[:MAX_STACKS]:
        stack = stack_of(observed, rank)
        if stack is not None and stack.source is not StackSource.NONE:
            said = message(codes.STACK, rank=rank, source=stack.source.value)
            yield Evidence(kind="stack", message=said, global_rank=rank, text=stack.text)


def missing_of(observed: Observed, found: HangFinding | None) -> Iterator[Message]:
    """What was not known, beginning with what weighs most."""
    event = observed.event
    seen = {state.global_rank for state in event.ranks}
    # the ranks at which the waiting ends come alone and first: their data decides
    deciding = sorted(set(found.culprits) - seen) if found is not None else []
    for ranks in (deciding, list(missing_ranks(event.world_size, {*seen, *deciding}))):
        if ranks:
            yield message(codes.MISSING_RANKS, ranks=ranks)
    lossy = [state for state in event.ranks if state.records_lost]
    if lossy:
        ranks = sorted(state.global_rank for state in lossy)
        lost = sum(state.records_lost for state in lossy)
        yield message(codes.MISSING_RECORDS, ranks=ranks, lost=lost)
    if cut := sorted(state.global_rank for state in event.ranks if state.is_cut):
        yield message(codes.MISSING_BOX, ranks=cut)
    if observed.miscounts:
        yield missing_counts(observed.miscounts, observed.communicators)
    yield from missing_of_ops(observed, found.instance if found is not None else None)
    if observed.n_without_communicator:
        yield message(codes.MISSING_COMMUNICATOR, n_ops=observed.n_without_communicator)
    if found is not None:
        yield from _missing_of_finding(observed, found)


def stack_of(observed: Observed, rank: int) -> Stack | None:
    """The best stack of ``rank``: a text before a reason."""
    stacks = [stack for stack in observed.event.stacks if stack.global_rank == rank]
    return min(stacks, key=lambda stack: stack.source is StackSource.NONE, default=None)


def _missing_of_finding(observed: Observed, found: HangFinding) -> Iterator[Message]:
    instance = found.instance
    if instance is not None and found.cause is Cause.NO_VERDICT:
        untold = [rank for rank in found.culprits if rank in observed.states]
        if untold:
            comm = instance.communicator.label
            yield message(codes.MISSING_PROGRESS, ranks=untold, comm=comm)
    if instance is not None and instance.n_unnamed:
        comm = instance.communicator.label
        yield message(codes.MISSING_MEMBERS, comm=comm, n_members=instance.n_unnamed)
    if not found.origin.is_certain:
        senders = {
            op.global_rank for one in observed.instances for op in one.ops if op.op == Op.SEND
        }
        uncertain = senders & {*found.culprits, *found.victims}
        if uncertain:
            yield message(codes.MISSING_SEND_END, ranks=sorted(uncertain))
    states = [observed.states[rank] for rank in found.culprits if rank in observed.states]
    unsure = [state.global_rank for state in states if state.liveness is Liveness.UNKNOWN]
    if unsure:
        is_past = observed.event.is_past
        yield message(codes.MISSING_END_TIME if is_past else codes.MISSING_LIVENESS, ranks=unsure)
    silent = [s.global_rank for s in states if s.liveness is Liveness.DEAD and not s.exit_status]
    if silent:
        yield message(codes.MISSING_EXIT_STATUS, ranks=silent)
    for state in states:
        stack = stack_of(observed, state.global_rank)
        is_readable = state.liveness in {Liveness.ALIVE, Liveness.UNKNOWN}
        if is_readable and (stack is None or stack.source is StackSource.NONE):
            reason = stack.reason if stack is not None else ""
            yield message(codes.MISSING_STACK, rank=state.global_rank, reason=reason)


def _instance_evidence(
    code: str, instance: Instance, ranks: tuple[int, ...], **more: MessageParam
) -> Evidence:
    op = instance.first_op
    params: dict[str, MessageParam] = {
        "ranks": list(ranks), "op": op_name(op.op), "comm": instance.communicator.label,
        "match_seq": op.match_seq, **more,
    }  # fmt: skip
    if code not in {codes.ABSENT, codes.LAGGING}:
        params["age_ns"] = instance.age_ns
    return Evidence(
        kind="record", message=message(code, **params), comm_id=op.comm_id,
        match_seq=op.match_seq, global_rank=ranks[0] if len(ranks) == 1 else -1,
    )  # fmt: skip


def _cycle(found: HangFinding) -> Iterator[Evidence]:
    for edge in found.origin.cycle:
        op = next(op for op in edge.instance.ops if op.global_rank == edge.waiter)
        said = message(
            codes.CYCLE_EDGE, waiter=edge.waiter, waited_for=edge.waited_for, op=op_name(op.op),
            comm=edge.instance.communicator.label, match_seq=op.match_seq,
        )  # fmt: skip
        yield Evidence(
            kind="record", message=said, global_rank=edge.waiter, comm_id=op.comm_id,
            op_seq=op.op_seq, match_seq=op.match_seq,
        )  # fmt: skip


def _process(observed: Observed, found: HangFinding, rank: int) -> Iterator[Evidence]:
    state = observed.states.get(rank)
    if state is None:
        return
    if state.liveness is Liveness.DEAD:
        said = message(codes.DIED, rank=rank, exit_status=state.exit_status)
        yield Evidence(kind="process", message=said, global_rank=rank, text=state.exit_status)
    elif state.liveness is Liveness.CLOSED:
        yield Evidence(kind="process", message=message(codes.LEFT, rank=rank), global_rank=rank)
    elif (skip := skip_of(observed, rank, found.instance)) is not None:
        said = message(codes.SKIPPED, rank=rank, n_others=skip.n_others)
        yield Evidence(kind="record", message=said, global_rank=rank)
    elif found.cause is Cause.CONTROL_FLOW_SKIP and found.instance is not None:
        later_ns = went_on(observed, rank, found.instance)
        said = message(codes.WENT_ON, rank=rank, later_ns=later_ns)
        yield Evidence(kind="record", message=said, global_rank=rank)


def _members(found: HangFinding) -> tuple[int, ...]:
    if found.instance is None:
        return ()
    return found.instance.ranks(Presence.ENTERED, Presence.DONE)
