"""A hang as observed: which ops are in flight where, how far every rank came, and the stacks."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.topology import Communicator


class Presence(StrEnum):
    """Where a member stands towards one op instance."""

    ENTERED = "entered"
    ABSENT = "absent"
    DONE = "done"
    UNKNOWN = "unknown"


class Liveness(StrEnum):
    """What is known of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    CLOSED = "closed"  # it ended in order
    UNKNOWN = "unknown"


class InFlightOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op without an end at the time of observation. ``peer`` is comm-local, -1 for none."""

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


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one rank came in one stream of matches.

    ``peer`` is -1 and ``direction`` 0 for the collectives of the communicator; for P2P they name
    the partner (comm-local) and the ``Op`` (SEND or RECV). Numbers are ``match_seq``.
    ``is_current``: had the rank come further, its record would show it; None where the observer
    did not say.
    """

    global_rank: int
    comm_id: int
    last_entered: int
    last_done: int
    peer: int = -1
    direction: int = 0
    last_end_ns: int = 0
    is_current: bool | None = None


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
    op of which there is no trace was not entered.
    """

    global_rank: int
    liveness: Liveness
    host: str = ""
    pid: int = -1
    last_event_ns: int = 0
    exit_status: str = ""
    records_lost: int = 0
    is_whole: bool = False


class HangEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known when some op was overdue; the input of the hang rule.

    ``ranks`` holds only the ranks that left evidence: a rank of the world that is not there is
    *unknown*, never absent. ``communicators`` are those that its numbers (``comm_id``) speak of;
    empty where the observer did not say.
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
