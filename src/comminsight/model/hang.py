"""A hang as observed: which ops are in flight where, how far every rank came, and the stacks."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.call_history import CallHistory
from comminsight.model.ops import RecordKind, SlotFlag
from comminsight.model.topology import Communicator


class Presence(StrEnum):
    """Where a member stands towards one op instance.

    BEHIND: it called the op, whose kernel does not run on its GPU while another member's does.
    """

    ENTERED = "entered"
    BEHIND = "behind"
    ABSENT = "absent"
    DONE = "done"
    UNKNOWN = "unknown"


class Liveness(StrEnum):
    """What is known of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    CLOSED = "closed"  # it ended in order
    UNKNOWN = "unknown"


GONE = frozenset({Liveness.DEAD, Liveness.CLOSED})


class InFlightOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op without an end at the time of observation. ``peer`` is comm-local, -1 for none or
    unknown.

    What follows ``is_overdue`` is of the NCCL door and 0 elsewhere: ``slot_flags`` (``SlotFlag``),
    the channels of its kernel, ``wait_side`` (``WaitSide`` of sends and, a byte higher, receives),
    and what the network has done for it. ``pending_peers`` of a fold are the comm-local ranks whose
    calls have not finished, each standing for ``pending_span`` ranks from it on.
    """

    global_rank: int
    comm_id: int
    kind: int
    op: int
    op_seq: int
    match_seq: int
    start_ns: int
    age_ns: int
    size_bytes: int = 0
    count: int = 0
    dtype: int = 0
    red_op: int = 0
    peer: int = -1
    owner_tid: int = 0
    is_overdue: bool = False
    n_folded: int = 0
    stream_id: int = 0
    slot_flags: int = 0
    n_channels: int = 0
    started_mask: int = 0
    stopped_mask: int = 0
    launch_ns: int = 0
    wait_side: int = 0
    net_posted_bytes: int = 0
    net_done_bytes: int = 0
    net_progress_ns: int = 0
    pending_peers: tuple[int, ...] = ()
    pending_span: int = 1
    is_replay: bool = False  # of a captured graph
    is_awaited: bool = False  # not launched, and not over: another member waits, or is absent
    is_passed: bool = False  # a later op of its communicator is over: its own end was not told
    is_queued: bool = False  # called behind an op of its rank that is not over, and may hold it
    # as dumps tell them: the function that was called, its first tensor, and who called it
    call: str = ""
    shape: tuple[int, ...] = ()
    out_count: int = 0  # elements given out
    frames: tuple[str, ...] = ()  # innermost first

    @property
    def is_peerless(self) -> bool:
        """True for a P2P op without one known partner: a fold, or a call whose peer is not seen."""
        return self.kind == RecordKind.P2P and (self.peer < 0 or self.n_folded > 1)

    @property
    def is_observable(self) -> bool:
        """False when its end could not be seen whether or not it has come: it tells no hang."""
        flags = self.slot_flags
        if not flags & SlotFlag.NCCL or self.is_awaited:
            return True
        if self.is_passed or flags & SlotFlag.NO_KERNEL_EVENTS:
            return False
        is_past_call = flags & SlotFlag.GROUP_LEFT and not flags & SlotFlag.TASK_SEEN
        is_in_launch = flags & SlotFlag.LAUNCH_BEGUN and not flags & SlotFlag.LAUNCH_RETURNED
        return bool(is_in_launch or not is_past_call)

    @property
    def is_unlaunched(self) -> bool:
        """True for an NCCL op whose call has returned and of which nothing was launched: a helper
        thread has it, or what NCCL tells nobody of (copy engine, symmetric kernel) did it."""
        flags = self.slot_flags
        further = SlotFlag.LAUNCH_BEGUN | SlotFlag.TASK_SEEN | SlotFlag.NO_KERNEL_EVENTS
        has_left = flags & SlotFlag.NCCL and flags & SlotFlag.GROUP_LEFT
        return bool(has_left and not flags & further and not self.is_passed)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one rank came in one stream of matches.

    ``peer`` is -1 and ``direction`` 0 for the collectives of the communicator; for P2P they name
    the partner (comm-local) and the ``Op`` (SEND or RECV). Numbers are ``match_seq``; replays of
    captured graphs are streams of their own.
    ``is_current``: had the rank come further, its record would show it; None where the observer
    did not say. A direction without a peer tells that the rank made calls of which nobody knows
    with whom: no stream of its P2P in this communicator is known to its end.
    """

    global_rank: int
    comm_id: int
    last_entered: int
    last_done: int
    peer: int = -1
    direction: int = 0
    is_replay: bool = False
    last_end_ns: int = 0
    is_current: bool | None = None
    n_unseen: int = 0  # calls in the communicator that nobody was told of: the numbers lack them


class StackSource(StrEnum):
    """The rung of the ladder that gave the stack."""

    PY_SPY = "py-spy"
    FAULTHANDLER = "faulthandler"
    PROC = "proc"
    NONE = "none"


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Stack of one process, or the reason why there is none and how to get one."""

    global_rank: int
    pid: int
    source: StackSource
    text: str = ""
    reason: str = ""  # a catalogue code when source is NONE or a lower rung was used


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's process at the time of observation.

    ``is_whole``: all that it recorded, from its first op on, is known to the observer, so that an
    op of which there is no trace was not entered. ``last_sign_ns`` is when its recorder last showed
    that it lived, on the clock that all ranks of the event share; 0 where that is not known.
    ``last_event_ns`` is when its program last began an op. ``is_cut``: without its black box, it
    may have recorded more than is known.
    """

    global_rank: int
    liveness: Liveness
    host: str = ""
    pid: int = -1
    last_event_ns: int = 0
    exit_status: str = ""
    records_lost: int = 0
    is_whole: bool = False
    last_sign_ns: int = 0
    is_cut: bool = False
    has_broken: bool = False  # an op of its own failed: its end may be the consequence


class SkippedOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op that a rank has not entered though it went on to a later one, before which
    ``n_others`` ranks, all that are known, had done theirs of the same kind."""

    global_rank: int
    comm_id: int
    match_seq: int
    n_others: int


class HangEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known when some op was overdue; the input of the hang rule.

    ``ranks`` holds only the ranks that left evidence: a rank of the world that is not there is
    *unknown*, never absent. ``communicators`` are those that its numbers (``comm_id``) speak of;
    empty where the observer did not say. ``is_past``: the processes have ended since, and nobody
    can look at them any more.

    ``tells_ends``: that an op is over would be seen though nobody waited for it. ``finished`` are
    ops that are over on their rank, of instances that other members are in; ``skipped`` are known
    from the order of a rank's calls. ``histories`` are what the ranks called before and since.
    """

    observed_mono_ns: int
    observed_real_ns: int
    overdue_limit_ns: int
    world_size: int
    ranks: tuple[RankState, ...]
    in_flight: tuple[InFlightOp, ...]
    progress: tuple[Progress, ...]
    stacks: tuple[Stack, ...] = ()
    clock_error_ns: int = 0
    communicators: tuple[Communicator, ...] = ()
    is_past: bool = False
    tells_ends: bool = False
    finished: tuple[InFlightOp, ...] = ()
    skipped: tuple[SkippedOp, ...] = ()
    histories: tuple[CallHistory, ...] = ()

    @property
    def is_over(self) -> bool:
        """True when the process of every rank that left evidence is gone."""
        return bool(self.ranks) and all(state.liveness in GONE for state in self.ranks)

    @property
    def waiting(self) -> tuple[InFlightOp, ...]:
        """The ops in flight of which it could be seen that they had ended."""
        return tuple(op for op in self.in_flight if op.is_observable)
