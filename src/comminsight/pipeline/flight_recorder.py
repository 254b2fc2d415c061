"""The verdict on a job that left nothing but PyTorch Flight Recorder dumps.

report = diagnose_flight_recorder([Path("dumps")])
report.verdict.culprits
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job import judge_job
from comminsight.format.flight_recorder import FlightDump
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.job_evidence import CallFrames, GroupClaim, JobEvidence, UnreadFile
from comminsight.model.report import REPORT_SCHEMA_VERSION, RunFacts, RunReport
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Message, Verdict
from comminsight.pipeline.flight_recorder_event import FlightJob, flight_event, flight_job
from comminsight.pipeline.flight_recorder_files import ReadDumps, read_dumps
from comminsight.pipeline.flight_recorder_groups import groups_of, join_groups
from comminsight.pipeline.flight_recorder_p2p import only_awaited_in_messages

OVERDUE_LIMIT_NS = 30_000_000_000


class FlightReport(msgspec.Struct, frozen=True, kw_only=True):
    """``verdict`` with what it rests on.

    ``sources`` is the file of each rank, ``others`` are files of the given folders that are no
    dumps, ``overwritten`` how many entries of each rank its ring has lost (ranks that lost none, or
    of which it is not known, are left out). ``frames`` are the innermost frames of the oldest call
    in flight of each rank, where its dump has them.
    """

    verdict: Verdict
    communicators: tuple[Communicator, ...]
    event: HangEvent
    sources: Mapping[int, str]
    others: tuple[str, ...] = ()
    n_entries: int = 0
    overwritten: Mapping[int, int] = {}
    frames: Mapping[int, tuple[str, ...]] = {}

    def as_run_report(self) -> RunReport:
        """The same as a report of a run, for whoever shows or writes reports."""
        coverage = self.verdict.coverage
        facts = RunFacts(
            run_id="",
            path=os.path.commonpath([Path(source).parent for source in self.sources.values()]),
            world_size=coverage.ranks_expected,
            ranks_seen=coverage.ranks_seen,
        )
        return RunReport(
            schema_version=REPORT_SCHEMA_VERSION,
            facts=facts,
            coverage=coverage,
            communicators=self.communicators,
            verdicts=(self.verdict,),
        )


def diagnose_flight_recorder(
    paths: Sequence[Path | str], *, world_size: int = 0, overdue_limit_ns: int = OVERDUE_LIMIT_NS
) -> FlightReport:
    """The verdict on the dumps in ``paths``: files, or folders of them, one dump per rank.

    ``world_size`` is needed where dumps are missing and no group names all ranks. A call counts as
    stuck unless the files were written less than ``overdue_limit_ns`` after it began. Raises
    InputError for what is no dump, or of which nobody can tell the rank.
    """
    read = read_dumps([Path(path) for path in paths])
    dumps = read.dumps
    job = flight_job(dumps, join_groups(dumps, max(world_size, _world_of(read))))
    event = _timed(job, flight_event(job), overdue_limit_ns)
    evidence = _evidence_of(job, event, read.unread)
    verdict = judge_job(evidence)[0]
    return FlightReport(
        verdict=verdict,
        communicators=evidence.communicators,
        event=event,
        sources={one.global_rank: one.source for one in dumps},
        others=tuple(read.others),
        n_entries=evidence.n_records,
        overwritten={rank: own.n_lost for rank, own in job.calls.items() if own.n_lost},
        frames={one.global_rank: one.frames for one in evidence.frames},
    )


def flight_evidence(
    paths: Sequence[Path], *, world_size: int = 0, overdue_limit_ns: int = OVERDUE_LIMIT_NS
) -> JobEvidence:
    """What the dumps in ``paths`` tell of their job; raises as ``diagnose_flight_recorder``."""
    read = read_dumps(paths)
    job = flight_job(read.dumps, join_groups(read.dumps, max(world_size, _world_of(read))))
    return _evidence_of(job, _timed(job, flight_event(job), overdue_limit_ns), read.unread)


def _world_of(read: ReadDumps) -> int:
    """How many ranks there are at least by the files of dumps that tell nothing else; 0 where that
    need not be known, because the dumps name the members of their groups."""
    if not read.unread or any(group.members for one in read.dumps for group in one.dump.groups):
        return 0
    known = {one.global_rank for one in read.dumps} | {one.rank for one in read.unread} - {-1}
    return max(1 + max(known), len(known) + sum(one.rank < 0 for one in read.unread))


def _evidence_of(job: FlightJob, event: HangEvent, unread: Sequence[UnreadFile]) -> JobEvidence:
    """The state of the ranks and what the dumps say besides."""
    return JobEvidence(
        world_size=event.world_size,
        hang=event,
        communicators=event.communicators,
        groups=tuple(_groups(job)),
        frames=tuple(_frames(job)),
        doubted=_doubted(job, event) | _cut_while_open(job),
        n_records=sum(len(one.dump.entries) for one in job.dumps.values()),
        missing=tuple(_missing(job, event)),
        unread=tuple(unread),
    )


def _timed(job: FlightJob, event: HangEvent, limit_ns: int) -> HangEvent:
    """The event of a job that was dumped while it may have run: nothing is overdue in it then.

    The file's time is at least that of the dump, so what it calls young was young.
    """
    ages = {op: _written_age_ns(job, op) for op in event.in_flight}
    if any(not 0 <= age_ns < limit_ns for age_ns in ages.values()) or _has_timed_out(job):
        return event
    return replace(
        event,
        overdue_limit_ns=limit_ns,
        in_flight=tuple(
            replace(op, age_ns=age_ns, is_overdue=False) for op, age_ns in ages.items()
        ),
    )


def _written_age_ns(job: FlightJob, op: InFlightOp) -> int:
    """How long the op was in flight at most when its dump was written; -1 where unknown."""
    written_ns = job.dumps[op.global_rank].written_ns
    return written_ns - op.start_ns if written_ns and op.start_ns else -1


def _has_timed_out(job: FlightJob) -> bool:
    """True when some call was given up: its watchdog had waited for all of its timeout."""
    entries = (entry for one in job.dumps.values() for entry in one.dump.entries)
    return any(entry.is_retired and not entry.is_over for entry in entries)


def _doubted(job: FlightJob, event: HangEvent) -> frozenset[int]:
    """Ranks in no call of which it is not certain what they left out: those of gloo may be in a
    send or receive, and one that is only awaited in messages may have been rid of them long ago,
    where its first calls were overwritten."""
    if all(own.is_whole for own in job.calls.values()):
        return frozenset()
    if job.is_gloo:
        return job.idle
    return only_awaited_in_messages(event.in_flight, job.idle - job.streams.whole, job.members)


def _cut_while_open(job: FlightJob) -> frozenset[int]:
    """Ranks whose oldest entry that is left is in flight, where an older call may be too: calls
    before it were overwritten, or counters tell of one."""
    return frozenset(
        rank
        for rank, one in job.dumps.items()
        if one.dump.entries
        and not one.dump.entries[0].is_over
        and (job.calls[rank].n_lost or rank in job.unseen or _skips_open_calls(one.dump))
    )


def _skips_open_calls(dump: FlightDump) -> bool:
    """True where a group's first entry is beyond the call that is next by its counter; messages
    are counted apart, so that groups with any are left out."""
    mixed = {entry.pg_id for entry in dump.entries if entry.is_p2p}
    oldest: dict[int, int] = {}
    for entry in dump.entries:
        oldest.setdefault(entry.pg_id, entry.seq)
    done = {pg_id: max(0, counters.completed) for pg_id, counters in dump.counters.items()}
    return any(oldest[pg_id] > done[pg_id] + 1 for pg_id in (oldest.keys() & done) - mixed)


def _groups(job: FlightJob) -> Iterator[GroupClaim]:
    """Each group as each rank has it, where its dump names the members."""
    for rank, one in job.dumps.items():
        used = {pg_id for pg_id, _ in one.dump.firsts}
        own = job.groups.comm_ids.get(rank, {})
        for pg_id, group in groups_of(one.dump).items():
            if group.members:
                yield GroupClaim(
                    global_rank=rank, name=group.name, desc=group.desc, members=group.members,
                    comm_id=own.get(pg_id, -1), is_used=pg_id in used,
                )  # fmt: skip


def _missing(job: FlightJob, event: HangEvent) -> Iterator[Message]:
    idle = job.idle if event.in_flight and job.is_gloo else frozenset()
    if job.older:
        yield message(codes.MISSING_LATER_DUMPS, ranks=sorted(job.older))
    if unseen := sorted((job.unseen | idle | _cut_while_open(job)) - job.older):
        yield message(codes.MISSING_UNSEEN_CALL, ranks=unseen)
    if job.misnumbered:
        labels = [job.groups.communicators[comm_id].label for comm_id in sorted(job.misnumbered)]
        yield message(codes.MISSING_NUMBERS, comms=labels)
    if event.in_flight and not event.overdue_limit_ns:
        yield message(codes.MISSING_DUMP_TIME)


def _frames(job: FlightJob) -> Iterator[CallFrames]:
    for rank, own in job.calls.items():
        found = next((call.first.frames for call in own.in_flight if call.first.frames), ())
        if found:
            yield CallFrames(global_rank=rank, frames=found)
