"""Op instances in flight anywhere, and where each member stands: entered, absent, done, unknown.

Members meet on ``match_seq``: collectives by (communicator, n), P2P by (communicator, sender,
receiver, n), replays of captured graphs apart from both. *Unknown* is a rank that left no evidence,
or one whose record does not tell: some of it was lost, or lies before what was read. Only a rank
whose own record ends before the op is *absent*, alive or dead: had it entered, the record would
show it. *Behind* is a rank that called the op of an NCCL communicator and whose kernel has long not
begun, while another member's runs; or who, where the ends of ops are told, holds an op that all
others are ready for: an older call of its own is not over.

In a communicator whose members miss unlike numbers of calls, no number means the same op on all:
it has no instances.

Ops of which nothing could tell that they had ended are no instances: their ranks have entered.
P2P ops without one known partner (folds, calls whose peer was not seen) are no instances either,
and where a rank made such calls, none of its P2P there is known to be absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.diagnosis.miscounts import Miscounts, miscounts_of
from comminsight.diagnosis.stuck_op import BEFORE_KERNEL, IN_KERNEL, Stage, stage_of
from comminsight.model.hang import GONE, HangEvent, InFlightOp, Presence, Progress, RankState
from comminsight.model.ops import P2P_OPS, Backend, Op
from comminsight.model.topology import Communicator

WANTED = (Presence.ABSENT, Presence.UNKNOWN, Presence.BEHIND)
# an op that was called for less than this share of the overdue limit is taken to be moving
STANDSTILL_RATIO = 0.5

StreamKey = tuple[int, int, int, int, bool]  # global rank, comm_id, peer, direction, is_replay


class InstanceKey(NamedTuple):
    """Identity of an op instance; ``source`` and ``target`` (comm-local) only for P2P."""

    comm_id: int
    match_seq: int
    source: int = -1
    target: int = -1
    is_replay: bool = False

    @property
    def is_p2p(self) -> bool:
        """True for a send and its receive."""
        return self.source >= 0


@dataclass(frozen=True)
class Instance:
    """One op instance with at least one op in flight; ``presence`` is by global rank."""

    key: InstanceKey
    communicator: Communicator
    ops: tuple[InFlightOp, ...]
    presence: dict[int, Presence]
    n_unnamed: int  # members that no evidence names
    finished: tuple[InFlightOp, ...] = ()  # of members for whom it is over
    lagging: tuple[int, ...] = ()  # ranks in whom it does not end though it has for other members

    @cached_property
    def start_ns(self) -> int:
        """When its first member entered."""
        return min(op.start_ns for op in self.ops)

    @cached_property
    def age_ns(self) -> int:
        """How long its first member has been in it."""
        return max(op.age_ns for op in self.ops)

    @cached_property
    def first_op(self) -> InFlightOp:
        """The op of the member that entered first."""
        return min(self.ops, key=lambda op: (op.start_ns, op.global_rank))

    @cached_property
    def waiting_ops(self) -> tuple[InFlightOp, ...]:
        """The ops of the members that wait in it: not of those that are behind."""
        return tuple(
            op for op in self.ops if self.presence.get(op.global_rank) is not Presence.BEHIND
        )

    @cached_property
    def waiters(self) -> tuple[int, ...]:
        """Ranks that wait in it, ascending."""
        return tuple(sorted(op.global_rank for op in self.waiting_ops))

    def ranks(self, *presences: Presence) -> tuple[int, ...]:
        """Members that stand so, ascending."""
        return tuple(sorted(r for r, presence in self.presence.items() if presence in presences))

    @property
    def is_complete(self) -> bool:
        """True when every member entered or has even finished."""
        return not self.n_unnamed and not self.ranks(*WANTED)


@dataclass(frozen=True, slots=True)
class Observed:
    """A hang event indexed for questions by rank, stream and instance."""

    event: HangEvent
    communicators: dict[int, Communicator]
    states: dict[int, RankState]
    instances: tuple[Instance, ...] = ()
    n_without_communicator: int = 0
    peerless: tuple[InFlightOp, ...] = ()
    miscounts: Miscounts = field(default_factory=dict)
    _progress: dict[StreamKey, Progress] = field(default_factory=dict)

    def is_gone(self, global_rank: int) -> bool:
        """True when the process is known to be dead or to have ended."""
        state = self.states.get(global_rank)
        return state is not None and state.liveness in GONE

    def progress(self, global_rank: int, key: InstanceKey) -> Progress | None:
        """How far ``global_rank`` came in the stream that ``key`` belongs to."""
        comm_rank = self._comm_rank(global_rank, key.comm_id)
        peer, direction = _stream(key, comm_rank)
        return self._progress.get((global_rank, key.comm_id, peer, direction, key.is_replay))

    def presence(self, global_rank: int, key: InstanceKey) -> Presence:
        """Where a rank without an op in flight stands towards ``key``."""
        state = self.states.get(global_rank)
        if state is None:
            return Presence.UNKNOWN
        progress = self.progress(global_rank, key)
        if progress is not None and progress.last_done >= key.match_seq:
            return Presence.DONE
        if progress is not None and progress.last_entered >= key.match_seq:
            return Presence.ENTERED
        is_told = not (key.is_p2p and self._made_peerless_calls(global_rank, key))
        is_told = is_told and not self._is_in_miscounted(global_rank)
        return Presence.ABSENT if is_told and _is_telling(state, progress) else Presence.UNKNOWN

    def _made_peerless_calls(self, global_rank: int, key: InstanceKey) -> bool:
        """True when some P2P of the rank may be of any of its streams in the communicator."""
        kinds = (Op.SEND, Op.RECV, Op.ALL_TO_ALL)
        streams = ((global_rank, key.comm_id, -1, int(kind), key.is_replay) for kind in kinds)
        return any(stream in self._progress for stream in streams)

    def _is_in_miscounted(self, global_rank: int) -> bool:
        """True when it is inside an op of which nobody can say which it is: that may hold it."""
        return bool(self.miscounts) and any(
            op.global_rank == global_rank and op.comm_id in self.miscounts
            for op in self.event.waiting
        )

    def _comm_rank(self, global_rank: int, comm_id: int) -> int:
        return self.communicators[comm_id].members.index(global_rank)


def _is_telling(state: RankState, progress: Progress | None) -> bool:
    """True when the rank's record would show that it had come further than ``progress``."""
    if state.is_whole or progress is None:
        return state.is_whole
    if progress.is_current is None:  # an observer that only counted what was lost
        return not state.records_lost
    return progress.is_current


def observe(event: HangEvent, communicators: Iterable[Communicator]) -> Observed:
    """The event with its op instances, oldest first."""
    observed = Observed(
        event,
        {communicator.comm_id: communicator for communicator in communicators},
        {state.global_rank: state for state in event.ranks},
        miscounts=miscounts_of(event),
        _progress={_stream_key(entry): entry for entry in event.progress},
    )
    grouped: dict[InstanceKey, list[InFlightOp]] = {}
    entered: dict[InstanceKey, list[int]] = {}
    n_without = 0
    for op in event.in_flight:
        if op.comm_id in observed.miscounts:
            continue
        key = _key(op, observed.communicators)
        if key is None:
            n_without += not (op.is_peerless and op.comm_id in observed.communicators)
        elif is_waiting(op):
            grouped.setdefault(key, []).append(op)
        else:
            entered.setdefault(key, []).append(op.global_rank)
    found = (_instance(key, ops, entered.get(key, []), observed) for key, ops in grouped.items())
    instances = sorted(
        (one for one in found if not _is_left_behind(one)), key=lambda one: (one.start_ns, one.key)
    )
    instances = _with_finished(instances, observed)
    if event.tells_ends:
        instances = _with_held(_with_lagging(instances, observed))
    return Observed(
        event, observed.communicators, observed.states, tuple(instances), n_without,
        tuple(op for op in event.waiting if op.is_peerless), observed.miscounts,
        observed._progress,
    )  # fmt: skip


def _with_finished(instances: list[Instance], observed: Observed) -> list[Instance]:
    """With the ops that are over elsewhere."""
    finished: dict[InstanceKey, list[InFlightOp]] = {}
    for op in observed.event.finished:
        if (key := _key(op, observed.communicators)) is not None:
            finished.setdefault(key, []).append(op)
    return [replace(one, finished=tuple(finished.get(one.key, ()))) for one in instances]


def _with_lagging(instances: list[Instance], observed: Observed) -> list[Instance]:
    """With who lags: an op that needs all members has ended for some of them, so all had come;
    where it has not, the rank itself or its link holds it."""
    needed_ns = STANDSTILL_RATIO * observed.event.overdue_limit_ns
    found = []
    for one in instances:
        own = one
        if _is_lagging(one, observed) and one.age_ns >= needed_ns:
            came = {rank: _come(presence) for rank, presence in one.presence.items()}
            own = replace(own, presence=came, lagging=one.waiters)
        found.append(own)
    return found


def _is_lagging(instance: Instance, observed: Observed) -> bool:
    """On gloo only where something is known of every member: the others' processes move the data,
    and one that stands still after it has sent its own part holds up some and not all."""
    is_gloo = instance.communicator.backend is Backend.GLOO
    is_known = not instance.n_unnamed and observed.states.keys() >= instance.presence.keys()
    if is_gloo and not is_known:
        return False
    is_synchronising = not instance.key.is_p2p and instance.first_op.op in SYNCHRONISING_OPS
    seen = instance.presence.values()
    return is_synchronising and Presence.DONE in seen and Presence.ABSENT not in seen


def _come(presence: Presence) -> Presence:
    return Presence.ENTERED if presence is Presence.UNKNOWN else presence


def _with_held(instances: list[Instance]) -> list[Instance]:
    """With BEHIND where a rank holds back others: by an op that it called before, and that lags in
    it, stands still though nothing holds it, or is what all others of a complete op wait for.

    What a rank called after an op of the first two kinds it does not wait in yet: an op in which
    nobody else waits either is left out.
    """
    since: dict[int, int] = {}
    for one in instances:
        if one.lagging or _is_rooted(one):
            for op in one.ops:
                since[op.global_rank] = min(since.get(op.global_rank, op.start_ns), op.start_ns)
    found = (one if one.lagging or _is_rooted(one) else _held(one, since) for one in instances)
    return [one for one in found if one.waiting_ops]


def _is_rooted(instance: Instance) -> bool:
    """True when all members have come, and none has called anything before that is not over."""
    return instance.is_complete and not any(op.is_queued for op in instance.ops)


def _held(instance: Instance, since: dict[int, int]) -> Instance:
    held = {
        op.global_rank
        for op in instance.ops
        if op.start_ns > since.get(op.global_rank, op.start_ns)
        or (op.is_queued and instance.is_complete)
    }
    behind = dict.fromkeys(held, Presence.BEHIND)
    return replace(instance, presence=instance.presence | behind)


def _stream_key(entry: Progress) -> StreamKey:
    return entry.global_rank, entry.comm_id, entry.peer, entry.direction, entry.is_replay


def is_waiting(op: InFlightOp) -> bool:
    """False for an op whose kernel has left, and for one whose end could not be seen anyway."""
    return op.is_observable and stage_of(op) is not Stage.FINISHED


def _key(op: InFlightOp, communicators: dict[int, Communicator]) -> InstanceKey | None:
    """The instance of an op; None when its communicator or its own place in it is not known, and
    for a P2P op without one known partner."""
    communicator = communicators.get(op.comm_id)
    if communicator is None or op.global_rank not in communicator.members:
        return None
    if op.op not in P2P_OPS and not op.is_peerless:
        return InstanceKey(op.comm_id, op.match_seq, is_replay=op.is_replay)
    if op.is_peerless or op.peer >= communicator.comm_size:
        return None
    me = communicator.members.index(op.global_rank)
    source, target = (me, op.peer) if op.op == Op.SEND else (op.peer, me)
    return InstanceKey(op.comm_id, op.match_seq, source, target, op.is_replay)


def _instance(
    key: InstanceKey, ops: list[InFlightOp], entered: list[int], observed: Observed
) -> Instance:
    communicator = observed.communicators[key.comm_id]
    members = communicator.members
    if key.is_p2p:
        members = (members[key.source], members[key.target])
    named = [rank for rank in members if rank >= 0]
    inside = dict.fromkeys(entered, Presence.ENTERED)
    inside |= {op.global_rank: Presence.ENTERED for op in ops}
    inside |= dict.fromkeys(_behind(ops, observed.event.overdue_limit_ns), Presence.BEHIND)
    presence = {rank: inside.get(rank) or observed.presence(rank, key) for rank in named}
    return Instance(key, communicator, tuple(ops), presence, len(members) - len(named))


def _behind(ops: list[InFlightOp], overdue_limit_ns: int) -> list[int]:
    """Ranks whose kernel has not begun, long after the call, while another member's runs; and those
    in a group of calls not yet ended, of which nothing is issued, while another member is past."""
    seen = {stage_of(op) for op in ops}
    held: frozenset[Stage] = frozenset()
    if seen & IN_KERNEL:
        held = BEFORE_KERNEL
    elif seen & BEFORE_KERNEL - {Stage.OPEN_GROUP}:
        held = frozenset({Stage.OPEN_GROUP})
    needed_ns = STANDSTILL_RATIO * overdue_limit_ns
    is_held = {op: op.age_ns >= needed_ns and stage_of(op) in held for op in ops}
    moving = {op.global_rank for op in ops if not is_held[op]}
    return [op.global_rank for op in ops if op.global_rank not in moving]


def _is_left_behind(instance: Instance) -> bool:
    """A send whose receive is over: nothing is pending, only nobody has waited for it yet."""
    if not instance.key.is_p2p:
        return False
    is_only_send = all(op.op == Op.SEND for op in instance.ops)
    return is_only_send and Presence.DONE in instance.presence.values()


def _stream(key: InstanceKey, comm_rank: int) -> tuple[int, int]:
    """(peer, direction) of the stream in which ``comm_rank`` counts this instance."""
    if not key.is_p2p:
        return -1, 0
    if comm_rank == key.source:
        return key.target, Op.SEND
    return key.source, Op.RECV
