"""From a job's Flight Recorder dumps to one HangEvent: who is in which op, how far everyone came.

Collectives meet on their number in the group. P2P calls have none that two ranks share, and are
numbered in flight_recorder_p2p.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from comminsight.format.flight_recorder import FlightCounters
from comminsight.format.flight_recorder_entry import FlightEntry
from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.hang import HangEvent, InFlightOp, Liveness, Progress, RankState
from comminsight.model.ops import Backend, RecordKind
from comminsight.model.topology import Communicator
from comminsight.pipeline.flight_recorder_calls import (
    Call,
    RankCalls,
    Reached,
    calls_of,
    is_gloo_alone,
    mixed_groups,
)
from comminsight.pipeline.flight_recorder_files import RankDump
from comminsight.pipeline.flight_recorder_groups import JobGroups
from comminsight.pipeline.flight_recorder_history import call_histories
from comminsight.pipeline.flight_recorder_idle import never_used
from comminsight.pipeline.flight_recorder_order import skipped_ops
from comminsight.pipeline.flight_recorder_p2p import (
    Stream,
    StreamKnowledge,
    over_before,
    p2p_progress,
)
from comminsight.pipeline.flight_recorder_pairs import without_past_pairs

FIRST_WITH_RIGHT_NUMBERS = [2, 9]
MAX_SEQ = 1 << 63


@dataclass(frozen=True)
class FlightJob:
    """All dumps of a job, joined. ``mixed`` are communicators whose counters number P2P too;
    ``misnumbered`` those of them in which their version numbers collectives unlike on each rank.
    """

    dumps: Mapping[int, RankDump]
    calls: Mapping[int, RankCalls]
    groups: JobGroups
    mixed: frozenset[int]
    misnumbered: frozenset[int]
    newest_ns: int  # the newest stamp, on clocks of which nobody knows how well they agree
    is_gloo: bool  # all that was recorded was recorded by gloo
    unseen: frozenset[int]  # ranks that may be in a call of which there is no entry
    older: frozenset[int] = frozenset()  # ranks whose dumps are of an earlier time than others

    def comm_id(self, rank: int, pg_id: int) -> int:
        """The communicator of a rank's own number of a group; -1 where that is not known, or the
        rank is no member of it."""
        return self._comm_ids[rank].get(pg_id, -1)

    @cached_property
    def _comm_ids(self) -> dict[int, dict[int, int]]:
        members = [frozenset(one.members) for one in self.groups.communicators]
        return {
            rank: {pg_id: comm_id for pg_id, comm_id in own.items() if rank in members[comm_id]}
            for rank, own in self.groups.comm_ids.items()
        }

    def members(self, comm_id: int) -> tuple[int, ...]:
        """Global ranks by their place in the communicator."""
        return self.groups.communicators[comm_id].members

    def counts_collectives(self, comm_id: int, told: FlightCounters, *, alone: bool) -> bool:
        """Whether a counter is that of collectives. One without an entry beside it may be of sends
        and receives that no dump shows: it must then end right before the oldest op in flight."""
        if self.groups.communicators[comm_id].backend is not Backend.NCCL or comm_id in self.mixed:
            return False
        return not alone or self.oldest_open.get(comm_id, told.enqueued + 1) == told.enqueued + 1

    @cached_property
    def oldest_open(self) -> dict[int, int]:
        """The oldest collective that any rank is in, by communicator."""
        found: dict[int, int] = {}
        for rank, own in self.calls.items():
            for pg_id, reached in own.reached.items():
                if reached.oldest_open is not None:
                    comm_id = self.comm_id(rank, pg_id)
                    found[comm_id] = min(reached.oldest_open, found.get(comm_id, MAX_SEQ))
        return found

    @cached_property
    def streams(self) -> StreamKnowledge:
        """What is known of the job's sends and receives."""
        return StreamKnowledge(
            over=over_before(self.calls, self.comm_id, self.members),
            whole=frozenset(rank for rank, own in self.calls.items() if own.is_whole),
            idle=self.idle,
            unseen=self.unseen,
        )

    @property
    def idle(self) -> frozenset[int]:
        """Ranks that are in no call that was recorded."""
        return frozenset(rank for rank, own in self.calls.items() if not own.in_flight)

    def age_ns(self, rank: int, entry: FlightEntry) -> int:
        """How long at least it had been called when the last stamp of any rank was made."""
        return max(0, self.newest_ns - entry.created_ns)


def flight_job(dumps: Sequence[RankDump], groups: JobGroups) -> FlightJob:
    """The job of these dumps."""
    calls = {one.global_rank: calls_of(one.dump) for one in dumps}
    mixed = frozenset(mixed_groups(calls, groups.comm_ids))
    newest_ns = max((one.dump.newest_ns for one in dumps), default=0)
    job = FlightJob(
        dumps={one.global_rank: one for one in dumps},
        calls=calls,
        groups=groups,
        mixed=mixed,
        misnumbered=mixed if any(_is_early(one) for one in dumps) else frozenset(),
        newest_ns=newest_ns,
        is_gloo=is_gloo_alone(one.dump for one in dumps),
        unseen=frozenset(rank for rank, own in calls.items() if own.is_inside_unseen),
    )
    older = _older(job)
    job = dataclasses.replace(job, unseen=job.unseen | older, older=older)
    return _with_hidden_p2p(job) if job.is_gloo else job


def _older(job: FlightJob) -> frozenset[int]:
    """Ranks that have not called what is over on others and needs them: their dumps were written
    before, or in an earlier attempt of the job."""
    over: dict[int, int] = {}
    for rank, own in job.calls.items():
        for pg_id, reached in own.reached.items():
            comm_id = job.comm_id(rank, pg_id)
            over[comm_id] = max(reached.synchronised, over.get(comm_id, 0))
    return frozenset(
        rank
        for rank in job.calls
        for entry in _collective_progress(job, rank)
        if entry.last_entered < over.get(entry.comm_id, 0)
    )


def _is_early(one: RankDump) -> bool:
    """Versions in which a batch of sends and receives could count as a collective."""
    numbers = [int(part) for part in one.dump.version.split(".")] if one.dump.version else [0]
    return numbers < FIRST_WITH_RIGHT_NUMBERS


def _with_hidden_p2p(job: FlightJob) -> FlightJob:
    """gloo keeps no trace of a send or receive: a rank that is in no call may be in one. That it
    is not is only believed of a single rank for which all others wait in calls of their own, in a
    job in which nothing points to sends and receives."""
    idle = job.idle
    n_silent = len(idle) + job.groups.world_size - len(job.calls)
    may_hide = any(own.may_hide_p2p for own in job.calls.values())
    in_flight = _places(job, is_over=False)
    has_moved_on = not in_flight.isdisjoint(_places(job, is_over=True))
    may_hide |= _lacks_members(job)
    if n_silent > 1 or may_hide or has_moved_on or not _all_wait_for(job, idle):
        return dataclasses.replace(job, unseen=job.unseen | idle)
    return job


def _lacks_members(job: FlightJob) -> bool:
    """Whether some group has members of which there is no dump: those that a gather counts, or the
    partners of a rank that is alone in it."""
    return any(
        -1 in one.members or (one.comm_id in job.groups.assumed and len(one.members) == 1)
        for one in job.groups.communicators
    )


def _all_wait_for(job: FlightJob, ranks: frozenset[int]) -> bool:
    """Whether every other rank is in a call on a group of which one of ``ranks`` is a member."""
    return all(
        any(
            not ranks.isdisjoint(job.members(comm_id))
            for call in own.in_flight
            if (comm_id := job.comm_id(rank, call.pg_id)) >= 0
        )
        for rank, own in job.calls.items()
        if rank not in ranks
    )


def _places(job: FlightJob, *, is_over: bool) -> set[tuple[int, int]]:
    """(communicator, number) of the collectives that are over on some rank, or in flight."""
    return {
        (job.comm_id(rank, call.pg_id), call.seq)
        for rank, own in job.calls.items()
        for call in own.collectives
        if call.is_over == is_over
    }


def flight_event(job: FlightJob) -> HangEvent:
    """The event. That the job stood still when the dumps were written is taken for granted: they
    do not say when that was."""
    called = [op for rank in job.calls for op in _in_flight(job, rank)]
    in_flight = without_past_pairs(called, job.calls, job.members)
    progress = [entry for rank in job.calls for entry in _collective_progress(job, rank)]
    progress += p2p_progress(in_flight, job.streams, job.calls, job.members)
    event = HangEvent(
        observed_mono_ns=job.newest_ns,
        observed_real_ns=job.newest_ns,
        overdue_limit_ns=0,
        world_size=job.groups.world_size,
        ranks=tuple(_state(job, rank) for rank in job.calls),
        in_flight=tuple(in_flight),
        progress=tuple(progress),
        clock_error_ns=UNBOUNDED_NS,
        tells_ends=True,
        finished=tuple(_finished(job, in_flight)),
        histories=call_histories(job.calls, job.comm_id, job.misnumbered) if in_flight else (),
        skipped=tuple(skipped_ops(job.calls, job.groups, progress)),
    )
    return replace(event, communicators=_padded(job, event))


def _state(job: FlightJob, rank: int) -> RankState:
    own = job.calls[rank]
    return RankState(
        global_rank=rank,
        liveness=Liveness.UNKNOWN,
        last_event_ns=job.dumps[rank].dump.newest_ns,
        is_whole=own.is_whole and rank not in job.unseen,
        is_cut=True,
    )


def _in_flight(job: FlightJob, rank: int) -> Iterator[InFlightOp]:
    own = job.calls[rank]
    numbers: Counter[Stream] = Counter()
    for call in own.in_flight:
        comm_id = job.comm_id(rank, call.pg_id)
        match_seq = call.seq
        if call.first.is_p2p:
            stream = rank, comm_id, call.first.peer, int(call.op)
            numbers[stream] += 1
            match_seq = job.streams.over[stream] + numbers[stream]
        elif comm_id in job.misnumbered:
            comm_id = -1
        yield _op(job, rank, call, comm_id, match_seq, is_queued=own.is_queued(call))


def _op(
    job: FlightJob, rank: int, call: Call, comm_id: int, match_seq: int, *, is_queued: bool = False
) -> InFlightOp:
    entry = call.first
    dtypes = {one.dtype for one in call.entries}
    return InFlightOp(
        global_rank=rank,
        comm_id=comm_id,
        kind=RecordKind.P2P if entry.is_p2p else RecordKind.COLLECTIVE,
        op=call.op,
        op_seq=entry.op_id,
        match_seq=match_seq,
        start_ns=entry.created_ns,
        age_ns=job.age_ns(rank, entry),
        size_bytes=sum(one.size_bytes for one in call.entries),
        count=sum(one.count for one in call.entries),
        dtype=entry.dtype if len(dtypes) == 1 else 0,
        peer=entry.peer if entry.is_p2p else -1,
        is_overdue=not call.is_over,
        n_folded=0 if entry.is_p2p or len(call.entries) == 1 else len(call.entries),
        is_queued=is_queued,
        call=entry.call,
        shape=entry.shape,
        out_count=sum(one.n_out for one in call.entries),
        frames=entry.frames,
    )


def _finished(job: FlightJob, in_flight: Iterable[InFlightOp]) -> Iterator[InFlightOp]:
    """Ops that are over, of collectives that another rank is in."""
    wanted: dict[int, set[int]] = {}
    for op in in_flight:
        if op.kind == RecordKind.COLLECTIVE and op.comm_id not in job.misnumbered:
            wanted.setdefault(op.comm_id, set()).add(op.match_seq)
    for rank, own in job.calls.items():
        places = {pg_id: job.comm_id(rank, pg_id) for pg_id in own.reached}
        numbers = {pg_id: wanted[place] for pg_id, place in places.items() if place in wanted}
        for call in own.collectives:
            if call.is_over and call.pg_id in numbers and call.seq in numbers[call.pg_id]:
                yield _op(job, rank, call, places[call.pg_id], call.seq)


def _collective_progress(job: FlightJob, rank: int) -> Iterator[Progress]:
    own, counters = job.calls[rank], job.dumps[rank].dump.counters
    calls: dict[int, list[Reached]] = {}
    for pg_id, reached in own.reached.items():
        calls.setdefault(job.comm_id(rank, pg_id), []).append(reached)
    for pg_id in job.groups.comm_ids[rank]:
        comm_id = job.comm_id(rank, pg_id)
        if comm_id < 0 or comm_id in job.misnumbered:
            continue
        told = counters.get(pg_id)
        here = calls.get(comm_id, [])
        is_counted = told is not None and (
            told.enqueued <= 0 or job.counts_collectives(comm_id, told, alone=not here)
        )
        if not (here or is_counted or own.is_whole):
            continue
        entered = max((reached.entered for reached in here), default=0)
        done = max((reached.done for reached in here), default=0)
        if told is not None and is_counted:
            entered, done = max(entered, told.enqueued), max(done, told.completed)
        open_seqs = [one.oldest_open for one in here if one.oldest_open is not None]
        yield Progress(
            global_rank=rank, comm_id=comm_id, last_entered=entered,
            last_done=min((done, *(seq - 1 for seq in open_seqs))),
            is_current=rank not in job.unseen,
        )  # fmt: skip
    for comm_id in never_used(job.dumps[rank].dump, job.groups.communicators):
        yield Progress(
            global_rank=rank, comm_id=comm_id, last_entered=0, last_done=0,
            is_current=rank not in job.unseen,
        )  # fmt: skip


def _padded(job: FlightJob, event: HangEvent) -> tuple[Communicator, ...]:
    """The communicators; one whose members were only seen to use it gets a member that nobody knows
    where all the others are in one op: they wait for somebody."""
    reached: dict[tuple[int, int], set[int]] = {}
    for op in (*event.in_flight, *event.finished):
        if op.comm_id in job.groups.assumed and op.kind == RecordKind.COLLECTIVE:
            reached.setdefault((op.comm_id, op.match_seq), set()).add(op.global_rank)
    open_ops = {(op.comm_id, op.match_seq) for op in event.in_flight}
    full = {
        comm_id
        for (comm_id, seq), ranks in reached.items()
        if (comm_id, seq) in open_ops and ranks >= set(job.members(comm_id))
    }
    return tuple(
        replace(one, members=(*one.members, -1)) if one.comm_id in full else one
        for one in job.groups.communicators
    )
