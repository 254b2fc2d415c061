"""All that is known of one job, whatever it was read from: the input of the rules of ``judge_job``.

A part that is empty was not given; a rule that needs it abstains and says so.
"""

from __future__ import annotations

import msgspec

from comminsight.model.activity import Activity, LaunchCount, NumberedOps
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, LinkMap, RankSteps
from comminsight.model.hang import HangEvent
from comminsight.model.host_facts import HostFacts
from comminsight.model.log_event import LogEvent, LogTail, LogTally
from comminsight.model.ras import RasReading
from comminsight.model.result_digest import ResultDigest
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Message, Verdict


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one log, in the order of its lines, placed in epoch time as far as they can be.

    ``rank`` is the global rank whose log it is by its name or content, -1 where it holds several
    or where nobody can tell; ``host`` likewise. ``local_rank`` is what torchrun's folders name.
    """

    file: str
    events: tuple[LogEvent, ...] = ()
    tail: LogTail = LogTail()
    tally: LogTally = LogTally()
    rank: int = -1
    local_rank: int = -1
    host: str = ""


class CallFrames(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of a rank's oldest call in flight, innermost frame first, as its dump has it."""

    global_rank: int
    frames: tuple[str, ...]


class GroupClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank says of a process group: its name, description and members (global ranks)."""

    global_rank: int
    name: str
    members: tuple[int, ...]
    desc: str = ""
    comm_id: int = -1
    is_used: bool = True  # the rank enqueued something in it


class UnreadFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was given and tells nothing; ``reason`` says why, ``rank`` whose it was (-1)."""

    file: str
    reason: Message
    rank: int = -1


class JobEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One job. ``hang`` is the state in which its ranks were last seen, by dumps or records.

    ``inferred_world_size`` is set where the largest communicator is all that tells of the world:
    the job may have more ranks, and none is missing for it. ``inspected_ranks`` are those of which
    NCCL's Inspector left records.
    ``doubted`` are ranks that may be in a call of which their evidence shows nothing. ``baseline``
    is another run of the same job, for the question what has changed. ``told`` are the verdicts on
    what recorders of our own left of the job, ``own_bandwidth`` what those measured: it was judged
    there, and here tells only whether the groups of a port are slow.
    """

    world_size: int = 0
    inferred_world_size: int = 0
    hang: HangEvent | None = None
    communicators: tuple[Communicator, ...] = ()
    groups: tuple[GroupClaim, ...] = ()
    frames: tuple[CallFrames, ...] = ()
    doubted: frozenset[int] = frozenset()
    logs: tuple[JobLog, ...] = ()
    ras: tuple[RasReading, ...] = ()
    hosts: HostFacts = HostFacts()
    counters: tuple[CounterSeries, ...] = ()
    links: LinkMap | None = None
    bandwidth: tuple[BandwidthRow, ...] = ()
    own_bandwidth: tuple[BandwidthRow, ...] = ()
    activities: tuple[Activity, ...] = ()
    launches: tuple[LaunchCount, ...] = ()
    numbered: tuple[NumberedOps, ...] = ()
    inspected_ranks: tuple[int, ...] = ()
    step_times: tuple[RankSteps, ...] = ()
    digests: tuple[ResultDigest, ...] = ()
    unread: tuple[UnreadFile, ...] = ()
    n_records: int = 0
    told: tuple[Verdict, ...] = ()
    missing: tuple[Message, ...] = ()  # what the readers know to be missing, for every verdict
    label: str = ""
    baseline: JobEvidence | None = None
