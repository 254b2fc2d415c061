"""What each origin of a hang amounts to: a cause, the ranks to name, and the op it shows in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from comminsight.diagnosis.presence import Instance, Observed
from comminsight.diagnosis.waitfor import Origin
from comminsight.model.hang import Liveness, Presence
from comminsight.model.verdict import Cause

# share of the overdue limit for which a rank must have been seen communicating elsewhere
# after its peers began to wait, before it counts as having skipped the op
WENT_ON_RATIO = 0.5
# an all-present op younger than this share of the limit is taken to be moving
STANDSTILL_RATIO = 0.5

_PRECEDENCE = (Cause.RANK_DEAD, Cause.CONTROL_FLOW_SKIP, Cause.RANK_NOT_ENTERED)


@dataclass(frozen=True, slots=True)
class Finding:
    """One origin judged. ``cause`` is NO_VERDICT where the origin is a rank without evidence."""

    cause: Cause
    origin: Origin
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    instance: Instance | None


def findings(observed: Observed, origins: Iterable[Origin]) -> list[Finding]:
    """Findings by weight: known before unknown, then by the number of ranks that wait.

    Origins of the same cause in the same instance are one finding (five ranks that left before
    the same op). Ranks inside an op that still moves are no finding.
    """
    merged: dict[tuple[Cause, object], Finding] = {}
    for origin in origins:
        found = _judge(observed, origin)
        if found is None:
            continue
        key = (found.cause, found.instance.key if found.instance else found.culprits)
        merged[key] = _joined(merged[key], found) if key in merged else found
    return sorted(merged.values(), key=_weight)


def _judge(observed: Observed, origin: Origin) -> Finding | None:
    if origin.cycle:
        return _judge_cycle(origin)
    (rank,) = origin.ranks
    wanting = [
        one for one in observed.instances
        if one.presence.get(rank) in {Presence.ABSENT, Presence.UNKNOWN}
    ]  # fmt: skip
    if not wanting:
        return _judge_inside(observed, origin, rank)
    if rank not in observed.states or all(
        one.presence[rank] is Presence.UNKNOWN for one in wanting
    ):
        return Finding(Cause.NO_VERDICT, origin, (rank,), origin.victims, wanting[0])
    first = next(one for one in wanting if one.presence[rank] is Presence.ABSENT)
    if observed.is_gone(rank):
        return Finding(
            _cause_of_gone(observed, rank, first), origin, (rank,), origin.victims, first
        )
    inside = _judge_inside(observed, origin, rank)
    if inside is not None:
        return inside
    limit_ns = observed.event.overdue_limit_ns
    went_on_ns = went_on(observed, rank, first)
    cause = Cause.RANK_NOT_ENTERED
    if went_on_ns >= WENT_ON_RATIO * limit_ns > 0:
        cause = Cause.CONTROL_FLOW_SKIP
    return Finding(cause, origin, (rank,), origin.victims, first)


def went_on(observed: Observed, rank: int, instance: Instance) -> int:
    """How long after the first member entered ``rank`` was last seen to do something."""
    return observed.states[rank].last_event_ns - instance.start_ns


def _judge_cycle(origin: Origin) -> Finding:
    oldest = min((edge.instance for edge in origin.cycle), key=lambda one: one.start_ns)
    kinds = {edge.instance.key.is_p2p for edge in origin.cycle}
    # one waits for a message, the other has gone on to a collective without sending it
    is_unmatched = len(origin.ranks) == 2 and kinds == {True, False}
    cause = Cause.P2P_UNMATCHED if is_unmatched else Cause.CROSS_GROUP_CYCLE
    if is_unmatched:
        oldest = next(edge.instance for edge in origin.cycle if edge.instance.key.is_p2p)
    return Finding(cause, origin, origin.ranks, origin.victims, oldest)


def _judge_inside(observed: Observed, origin: Origin, rank: int) -> Finding | None:
    """The op that ``rank`` stands in although all its members are there.

    A transfer that both sides have begun is no evidence: its end is seen when somebody waits for
    it, and a rank that computes on has not waited yet.
    """
    needed_ns = STANDSTILL_RATIO * observed.event.overdue_limit_ns
    for instance in observed.instances:
        if rank not in instance.waiters or not instance.is_complete:
            continue
        gone = tuple(r for r in sorted(instance.presence) if observed.is_gone(r))
        if not gone and (instance.key.is_p2p or instance.age_ns < needed_ns):
            continue
        waiting = {*origin.victims, *instance.waiters, rank} - set(gone)
        cause = Cause.RANK_DEAD if gone else Cause.ALL_PRESENT_STUCK
        return Finding(cause, origin, gone, tuple(sorted(waiting)), instance)
    return None


def _cause_of_gone(observed: Observed, rank: int, instance: Instance) -> Cause:
    has_left = observed.states[rank].liveness is Liveness.CLOSED
    return Cause.P2P_UNMATCHED if has_left and instance.key.is_p2p else Cause.RANK_DEAD


def _joined(one: Finding, other: Finding) -> Finding:
    culprits = {*one.culprits, *other.culprits}
    victims = {*one.victims, *other.victims} - culprits
    origin = replace(one.origin, is_certain=one.origin.is_certain and other.origin.is_certain)
    return replace(
        one, origin=origin, culprits=tuple(sorted(culprits)), victims=tuple(sorted(victims))
    )


def _weight(found: Finding) -> tuple[bool, int, int, int, tuple[int, ...]]:
    start_ns = found.instance.start_ns if found.instance else 0
    rank = _PRECEDENCE.index(found.cause) if found.cause in _PRECEDENCE else len(_PRECEDENCE)
    is_unknown = found.cause is Cause.NO_VERDICT
    return (is_unknown, -len(found.victims), rank, start_ns, found.culprits)
