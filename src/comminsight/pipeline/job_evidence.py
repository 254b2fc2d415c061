"""All evidence of one job from the files that are at hand, whatever their mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from comminsight.analysis.activity_steps import activity_steps
from comminsight.analysis.log_links import log_links
from comminsight.analysis.log_lives import last_life
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_logs import EARLIER_LIFE, EVENTS_BEYOND
from comminsight.diagnosis.codes_trace import WORLD_INFERRED
from comminsight.errors import InputError
from comminsight.format.regular_file import open_regular
from comminsight.model.job_evidence import JobEvidence, JobLog, UnreadFile
from comminsight.model.ras import RasReading
from comminsight.model.verdict import Message
from comminsight.pipeline.evidence_files import (
    NEXT_STEP,
    EvidenceFiles,
    not_given,
    sorted_files,
)
from comminsight.pipeline.flight_recorder import flight_evidence
from comminsight.pipeline.host_files import host_evidence, read_host_file
from comminsight.pipeline.job_logs import read_log, read_logs
from comminsight.pipeline.ras_store import read_ras
from comminsight.pipeline.traces import TraceEvidence, read_trace, trace_evidence


@dataclass(frozen=True, slots=True)
class GatheredEvidence:
    """The evidence and the files that it was read from."""

    job: JobEvidence
    files: EvidenceFiles


def gather(paths: Sequence[Path], *, world_size: int = 0) -> GatheredEvidence:
    """The evidence in ``paths``: Flight Recorder dumps, logs, answers of RAS, profiler traces,
    tables of nccl-tests, ports, GIDs and counters, or folders of them.

    ``world_size`` is needed where nothing names all ranks. Files that cannot be read are named in
    the evidence. Raises InputError where nothing can be read at all.
    """
    files = sorted_files(paths)
    if not files.is_any:
        if files.refused:
            raise files.refused[0]
        named = ", ".join(map(str, paths))
        raise InputError("holds nothing that can be judged", path=named, next_step=NEXT_STEP)
    logs, unread = read_logs(files.logs)
    answers, unread_ras = _answers(files.ras)
    traces = trace_evidence(files.traces)
    hosts = host_evidence(files.hosts)
    is_other = bool(logs or answers or traces.is_any or hosts.is_any)
    if not (is_other or files.dumps):
        _refuse(files)
    job = _of_dumps(files.dumps, world_size, is_needed=not is_other)
    lives = last_life(logs)
    odd = [UnreadFile(file=str(path), reason=Message(code)) for path, code in files.unknown]
    job = _with_traces(
        replace(
            job,
            logs=lives,
            hosts=hosts.facts,
            links=log_links(lives, ranks_of(lives, job.world_size or world_size)),
            counters=tuple(hosts.counters),
            bandwidth=tuple(hosts.bandwidth),
            missing=(*job.missing, *_left_out(logs, lives)),
            ras=tuple(answers),
            unread=(*job.unread, *unread, *unread_ras),
        ),
        traces,
    )
    job = replace(
        job, missing=(*job.missing, *hosts.missing), unread=(*job.unread, *hosts.unread, *odd)
    )
    return GatheredEvidence(job, files)


def _left_out(logs: Sequence[JobLog], lives: Sequence[JobLog]) -> Iterator[Message]:
    """That lines of an earlier life of the job, or beyond the bound of a log, are not looked at."""
    n_lines = sum(len(log.events) for log in logs) - sum(len(log.events) for log in lives)
    if n_lines:
        yield message(EARLIER_LIFE, n_lines=n_lines)
    if n_beyond := sum(log.tally.n_events - len(log.events) for log in logs):
        yield message(EVENTS_BEYOND, n_lines=n_beyond)


def _with_traces(job: JobEvidence, traces: TraceEvidence) -> JobEvidence:
    """The evidence and that of the traces; what they only let infer of the world is told."""
    world = job.world_size or traces.world_size
    inferred = 0 if world else traces.inferred_world_size
    told = (message(WORLD_INFERRED, n_ranks=inferred),) if inferred else ()
    return replace(
        job,
        world_size=world,
        inferred_world_size=inferred,
        activities=traces.activities,
        step_times=activity_steps(traces.activities) if job.counters else (),
        launches=traces.launches,
        numbered=traces.numbered,
        inspected_ranks=traces.inspected_ranks,
        missing=(*job.missing, *traces.missing, *told),
        unread=(*job.unread, *traces.unread),
    )


def _of_dumps(paths: Sequence[Path], world_size: int, *, is_needed: bool) -> JobEvidence:
    """What the dumps tell; raises InputError where none does and nothing else is at hand."""
    try:
        if paths:
            return flight_evidence(paths, world_size=world_size)
    except InputError:
        if is_needed:
            raise
    return JobEvidence(world_size=world_size, unread=tuple(map(_unread, paths)))


def _unread(path: Path) -> UnreadFile:
    """The file that told nothing: it is damaged, unless the system does not give it at all."""
    try:
        opened = open_regular(path)
    except OSError:
        opened = None
    if opened is not None:
        opened.close()
    reason = "unread.damaged" if opened is not None else "unread.unreadable"
    return UnreadFile(file=str(path), reason=Message(reason))


def _refuse(files: EvidenceFiles) -> None:
    """Raises what is wrong with the first file, where none can be read."""
    for path in files.ras:
        read_ras(path)
    readers: list[tuple[Path, Callable[[Path], object]]] = [
        *((path, read_log) for path in files.logs), *((path, read_trace) for path in files.traces),
        *((path, read_host_file) for path in files.hosts),
    ]  # fmt: skip
    for path, read in readers:
        try:
            read(path)
        except OSError as error:
            raise not_given(path, error) from error


def _answers(paths: Sequence[Path]) -> tuple[list[RasReading], list[UnreadFile]]:
    found, unread = [], []
    for path in paths:
        try:
            found.append(read_ras(path))
        except InputError:
            unread.append(_unread(path))
    return found, unread
