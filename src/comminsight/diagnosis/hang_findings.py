"""What each origin of a hang amounts to: a cause, the ranks to name, and the op it shows in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from comminsight.diagnosis.cycle_pattern import first_use, have_called_all, off_pattern
from comminsight.diagnosis.frozen import frozen_ranks
from comminsight.diagnosis.open_calls import out_of_order
from comminsight.diagnosis.presence import STANDSTILL_RATIO, WANTED, Instance, Observed
from comminsight.diagnosis.stuck_op import IN_KERNEL, Stage, stage_of
from comminsight.diagnosis.stuck_path import stuck_path
from comminsight.diagnosis.waitfor import Origin
from comminsight.model.hang import Liveness, Presence, SkippedOp
from comminsight.model.verdict import Cause

# share of the overdue limit after which a rank must have been seen to begin an op elsewhere
# once its peers had begun to wait, before it counts as having skipped the op
WENT_ON_RATIO = 0.5

_CAUSE_OF_STAGE = {
    Stage.OPEN_GROUP: Cause.GROUP_MISUSE,
    Stage.HOST: Cause.HOST_BLOCKED,
    Stage.LAUNCH: Cause.HOST_BLOCKED,
    Stage.NOT_STARTED: Cause.KERNEL_NOT_STARTED,
}

_PRECEDENCE = (Cause.RANK_DEAD, Cause.CONTROL_FLOW_SKIP, Cause.RANK_NOT_ENTERED)


@dataclass(frozen=True, slots=True)
class HangFinding:
    """One origin judged. ``cause`` is NO_VERDICT where the origin is a rank without evidence."""

    cause: Cause
    origin: Origin
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    instance: Instance | None


def findings(observed: Observed, origins: Iterable[Origin]) -> list[HangFinding]:
    """Findings by weight: known before unknown, then by the number of ranks that wait.

    Origins of the same cause in the same instance are one finding (five ranks that left before
    the same op). Ranks inside an op that still moves are no finding.
    """
    alike: dict[tuple[Cause, object], list[HangFinding]] = {}
    origins = list(origins)
    alone = {origin.ranks[0] for origin in origins if not origin.cycle}
    for origin in origins:
        found = _judge(observed, origin, alone)
        if found is None:
            continue
        key = (found.cause, found.instance.key if found.instance else found.culprits)
        alike.setdefault(key, []).append(found)
    return sorted(map(_joined, alike.values()), key=_weight)


def _judge(observed: Observed, origin: Origin, alone: set[int]) -> HangFinding | None:
    """``alone`` are all ranks that wait for nobody."""
    if origin.cycle:
        return _judge_cycle(observed, origin)
    (rank,) = origin.ranks
    wanting = [
        one for one in observed.instances
        if one.presence.get(rank) in WANTED
    ]  # fmt: skip
    if not wanting:
        return _judge_inside(observed, origin, rank)
    if rank not in observed.states or all(
        one.presence[rank] is Presence.UNKNOWN for one in wanting
    ):
        return HangFinding(Cause.NO_VERDICT, origin, (rank,), origin.victims, wanting[0])
    first = _first_wanting(wanting, rank, alone)
    if observed.is_gone(rank):
        return HangFinding(
            _cause_of_gone(observed, rank, first), origin, (rank,), origin.victims, first
        )
    inside = _judge_inside(observed, origin, rank)
    if inside is not None:
        return inside
    if unnamed := next(
        (one for one in observed.instances if one.n_unnamed and rank in one.waiters), None
    ):
        return HangFinding(Cause.NO_VERDICT, origin, (), (*origin.victims, rank), unnamed)
    if first.presence[rank] is Presence.BEHIND:
        return HangFinding(cause_behind(first, rank), origin, (rank,), origin.victims, first)
    limit_ns = observed.event.overdue_limit_ns
    went_on_ns = went_on(observed, rank, first)
    cause = Cause.RANK_NOT_ENTERED
    if went_on_ns >= WENT_ON_RATIO * limit_ns > 0:
        cause = Cause.CONTROL_FLOW_SKIP
    return HangFinding(cause, origin, (rank,), origin.victims, first)


def cause_behind(instance: Instance, rank: int) -> Cause:
    """What holds back a rank that called the op, by how far its op came."""
    own = next(op for op in instance.ops if op.global_rank == rank)
    # what is only queued behind another op may have begun: nobody knows what holds it
    return _CAUSE_OF_STAGE.get(stage_of(own), Cause.NO_VERDICT)


def _first_wanting(wanting: list[Instance], rank: int, alone: set[int]) -> Instance:
    """The op that a rank is missed in to begin with: one that other origins are missed in as well
    before one of its own, so that they make one finding; of these the oldest."""
    known = [one for one in wanting if one.presence[rank] is not Presence.UNKNOWN]
    if len(known) == 1:
        return known[0]
    return max(known, key=lambda one: (len(alone & set(one.ranks(*WANTED))), -one.start_ns))


def skip_of(observed: Observed, rank: int, instance: Instance | None) -> SkippedOp | None:
    """That the rank went past this op, where the order of its calls tells it."""
    if instance is None or instance.key.is_p2p:
        return None
    place = rank, instance.key.comm_id, instance.key.match_seq
    skips = observed.event.skipped
    return next((s for s in skips if (s.global_rank, s.comm_id, s.match_seq) == place), None)


def went_on(observed: Observed, rank: int, instance: Instance) -> int:
    """How long after the first member entered ``rank`` last began an op."""
    return observed.states[rank].last_event_ns - instance.start_ns


def _judge_cycle(observed: Observed, origin: Origin) -> HangFinding:
    skipping = [e for e in origin.cycle if skip_of(observed, e.waited_for, e.instance)]
    if len(skipping) == 1:  # the others keep to the order that everybody else keeps to
        instance = skipping[0].instance
        ranks = {rank for rank in instance.presence if skip_of(observed, rank, instance)}
        victims = {*origin.victims, *origin.ranks} - ranks
        return HangFinding(
            Cause.CONTROL_FLOW_SKIP, origin, tuple(sorted(ranks)), tuple(sorted(victims)), instance
        )
    untold = next(
        (e for e in origin.cycle if e.instance.presence.get(e.waited_for) is Presence.UNKNOWN), None
    )
    if untold is not None:  # whether it has come there is what decides
        waiting = tuple(sorted({*origin.victims, *origin.ranks}))
        return HangFinding(Cause.NO_VERDICT, origin, (untold.waited_for,), waiting, untold.instance)
    oldest = min((edge.instance for edge in origin.cycle), key=lambda one: one.start_ns)
    kinds = {edge.instance.key.is_p2p for edge in origin.cycle}
    if kinds == {True}:
        return HangFinding(Cause.P2P_CYCLE, origin, origin.ranks, origin.victims, oldest)
    if odd := out_of_order(origin.cycle):
        victims = {*origin.victims, *origin.ranks} - set(odd)
        return HangFinding(Cause.ORDER_INVERSION, origin, odd, tuple(sorted(victims)), oldest)
    if (told := _judge_calls(observed, origin)) is not None:
        return told
    # one waits for a message, the other has gone on to a collective without sending it
    is_unmatched = len(origin.ranks) == 2 and kinds == {True, False}
    cause = Cause.P2P_UNMATCHED if is_unmatched else Cause.CROSS_GROUP_CYCLE
    if is_unmatched:
        oldest = next(edge.instance for edge in origin.cycle if edge.instance.key.is_p2p)
    return HangFinding(cause, origin, origin.ranks, origin.victims, oldest)


def _judge_calls(observed: Observed, origin: Origin) -> HangFinding | None:
    """A circle that one group's first use closes, or one rank by leaving its own pattern; and one
    of two ops that all of its ranks called, in opposite orders."""
    everybody = {*origin.victims, *origin.ranks}
    unused = first_use(observed, origin.cycle)
    instance = unused[0].instance if unused else None
    ranks = () if instance is None else instance.ranks(Presence.ABSENT)
    ranks = tuple(rank for rank in ranks if rank in everybody)
    # where as many have come to it as have not, they may be the ones that are early
    if instance is not None and len(ranks) < len(instance.waiters):
        victims = tuple(sorted(everybody - set(ranks)))
        return HangFinding(Cause.RANK_NOT_ENTERED, origin, ranks, victims, instance)
    is_inverted = have_called_all(origin.cycle)
    cause = Cause.ORDER_INVERSION if is_inverted else Cause.CONTROL_FLOW_SKIP
    if (told := off_pattern(observed, origin.cycle)) is not None:
        rank, instance = told[0], next(e.instance for e in origin.cycle if e.waited_for == told[0])
        victims = tuple(sorted(everybody - {rank}))
        return HangFinding(cause, origin, (rank,), victims, instance)
    if is_inverted and len(origin.ranks) == 2:
        oldest = min((edge.instance for edge in origin.cycle), key=lambda one: one.start_ns)
        return HangFinding(cause, origin, origin.ranks, origin.victims, oldest)
    return None


def _judge_inside(observed: Observed, origin: Origin, rank: int) -> HangFinding | None:
    """The op that ``rank`` stands in although all its members are there.

    One that has ended for others names the ranks in whom it has not. A transfer that both sides
    have begun is no evidence, unless their kernels run or ends are told by themselves: otherwise
    its end is seen when somebody waits for it, and a rank that computes on has not waited yet.
    """
    needed_ns = STANDSTILL_RATIO * observed.event.overdue_limit_ns
    lags = [one for one in observed.instances if rank in one.lagging]
    if lags:
        most = max(lags, key=lambda one: (len(one.lagging), -one.start_ns))
        held = tuple(sorted(set(origin.victims) - set(most.lagging)))
        return HangFinding(Cause.ALL_PRESENT_STUCK, origin, most.lagging, held, most)
    for instance in observed.instances:
        if rank not in instance.waiters or not instance.is_complete:
            continue
        gone = tuple(r for r in sorted(instance.presence) if observed.is_gone(r))
        is_told = observed.event.tells_ends or _is_running(instance)
        is_begun_only = instance.key.is_p2p and not is_told
        if not gone and (is_begun_only or instance.age_ns < needed_ns):
            continue
        cause, culprits = Cause.RANK_DEAD, gone
        if not gone:
            culprits = stuck_path(instance, observed.event.observed_mono_ns, needed_ns)
            cause = Cause.PEER_UNREACHABLE if culprits else Cause.ALL_PRESENT_STUCK
            culprits = culprits or frozen_ranks(observed, instance)
        waiting = {*origin.victims, *instance.waiters, rank} - set(culprits)
        return HangFinding(cause, origin, culprits, tuple(sorted(waiting)), instance)
    return None


def _is_running(instance: Instance) -> bool:
    """True when every op of it in flight has its kernel running."""
    return all(stage_of(op) in IN_KERNEL for op in instance.ops)


def _cause_of_gone(observed: Observed, rank: int, instance: Instance) -> Cause:
    has_left = observed.states[rank].liveness is Liveness.CLOSED
    return Cause.P2P_UNMATCHED if has_left and instance.key.is_p2p else Cause.RANK_DEAD


def _joined(alike: list[HangFinding]) -> HangFinding:
    """One finding of several of one cause; all at once, for they may be as many as the ranks."""
    first = alike[0]
    if len(alike) == 1:
        return first
    culprits = {rank for one in alike for rank in one.culprits}
    lists = {id(one.victims): one.victims for one in alike}
    victims = {rank for own in lists.values() for rank in own} - culprits
    origin = replace(first.origin, is_certain=all(one.origin.is_certain for one in alike))
    return replace(
        first, origin=origin, culprits=tuple(sorted(culprits)), victims=tuple(sorted(victims))
    )


def _weight(found: HangFinding) -> tuple[bool, int, int, int, tuple[int, ...]]:
    start_ns = found.instance.start_ns if found.instance else 0
    rank = _PRECEDENCE.index(found.cause) if found.cause in _PRECEDENCE else len(_PRECEDENCE)
    is_unknown = found.cause is Cause.NO_VERDICT
    return (is_unknown, -len(found.victims), rank, start_ns, found.culprits)
