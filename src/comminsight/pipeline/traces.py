"""Profiler traces as evidence: what each rank's devices did, one trace or several for a rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from comminsight.analysis.trace_order import kept_apart
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_trace import TRACE_COMPUTE, TRACE_EVENTS, TRACE_ORDER
from comminsight.errors import InputError
from comminsight.format.kineto_trace import UnusableTraceError
from comminsight.model.activity import Activity, LaunchCount, NumberedOps
from comminsight.model.device_trace import DeviceTrace
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.verdict import Message
from comminsight.pipeline.ascend_profiles import read_ascend_profiles
from comminsight.pipeline.inspector_files import inspector_evidence
from comminsight.pipeline.trace_files import TraceKind, UnknownDatabaseError, by_kind, read_traces
from comminsight.semantics.trace_activities import activities_of, launches_of


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    """What the traces of a job tell; ``world_size`` is 0 where they disagree or do not say.
    ``inferred_world_size`` is the size of the largest communicator, where that is all they tell of
    the world. ``inspected_ranks`` are those of which NCCL's Inspector left records."""

    activities: tuple[Activity, ...] = ()
    launches: tuple[LaunchCount, ...] = ()
    world_size: int = 0
    inferred_world_size: int = 0
    unread: tuple[UnreadFile, ...] = ()
    missing: tuple[Message, ...] = ()
    numbered: tuple[NumberedOps, ...] = ()
    inspected_ranks: tuple[int, ...] = ()
    is_inspected: bool = False  # records of NCCL's Inspector were read

    @property
    def is_any(self) -> bool:
        """True where a trace tells something."""
        return bool(self.activities or self.launches or self.is_inspected)


def read_trace(path: Path) -> DeviceTrace:
    """The first trace of one file; raises InputError for what is none, OSError for a file that
    vanished."""
    return read_traces(path)[0]


def trace_evidence(paths: Iterable[Path]) -> TraceEvidence:
    """The evidence in ``paths``. Left out and named are files that do not read, that do not tell
    their rank beside others, and those of a rank that two of them claim for the same time."""
    files = by_kind(paths)
    traces, unread = _read(files[TraceKind.FILE])
    bare: list[int] = []
    for profile in read_ascend_profiles(files[TraceKind.ASCEND]):
        traces += profile.traces
        unread += profile.unread
        bare += [one.global_rank for one in profile.bare]
    inspected = inspector_evidence(files[TraceKind.INSPECTOR])
    usable, doubted = _by_one_rank(traces)
    activities, apart = kept_apart([one for trace in usable for one in activities_of(trace)])
    stated = {one.world_size for one in usable if not one.is_world_inferred} - {0}
    inferred = {one.world_size for one in usable if one.is_world_inferred}
    inferred = (inferred | {inspected.world_size}) - {0}
    return TraceEvidence(
        activities=tuple(activities),
        launches=tuple(_launches(usable)),
        world_size=stated.pop() if len(stated) == 1 else 0,
        inferred_world_size=inferred.pop() if len(inferred) == 1 and not stated else 0,
        unread=(*unread, *doubted, *inspected.unread),
        missing=(*_missing(usable, apart, bare), *inspected.missing),
        numbered=inspected.numbered,
        inspected_ranks=inspected.ranks,
        is_inspected=bool(inspected.processes),
    )


def _read(paths: Iterable[Path]) -> tuple[list[DeviceTrace], list[UnreadFile]]:
    traces: list[DeviceTrace] = []
    unread: list[UnreadFile] = []
    for path in paths:
        try:
            traces += read_traces(path)
        except UnusableTraceError as error:
            unread.append(UnreadFile(file=str(path), reason=Message(error.reason)))
        except UnknownDatabaseError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.unknown_form")))
        except InputError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.damaged")))
        except OSError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.unreadable")))
    return traces, unread


def _by_one_rank(
    traces: Sequence[DeviceTrace],
) -> tuple[list[DeviceTrace], list[UnreadFile]]:
    by_rank: dict[int, list[DeviceTrace]] = defaultdict(list)
    for trace in traces:
        by_rank[trace.global_rank].append(trace)
    usable: list[DeviceTrace] = []
    unread: list[UnreadFile] = []
    for rank, own in sorted(by_rank.items()):
        if rank < 0 and len(traces) > 1:
            unread += _refused(own, "unread.no_rank")
        elif _is_at_once(own):
            unread += _refused(own, "unread.same_rank")
        else:
            usable += own
    return usable, unread


def _is_at_once(own: Sequence[DeviceTrace]) -> bool:
    """True where windows overlap: no process is profiled twice at a time."""
    spans = sorted(
        (trace.slices[0].start_ns, max(one.end_ns for one in trace.slices))
        for trace in own
        if trace.slices
    )
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))


def _refused(own: Iterable[DeviceTrace], reason: str) -> Iterator[UnreadFile]:
    for trace in own:
        yield UnreadFile(file=trace.file, reason=Message(reason), rank=trace.global_rank)


def _launches(traces: Sequence[DeviceTrace]) -> Iterator[LaunchCount]:
    """One of each rank, over all its windows."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for trace in traces:
        for one in launches_of(trace):
            sums[one.global_rank][0] += one.n_launches
            sums[one.global_rank][1] += one.n_kernels
    for rank, (n_launches, n_kernels) in sorted(sums.items()):
        yield LaunchCount(global_rank=rank, n_launches=n_launches, n_kernels=n_kernels)


def _missing(
    traces: Sequence[DeviceTrace], apart: Iterable[str], bare: Sequence[int]
) -> Iterator[Message]:
    for trace in traces:
        if trace.n_unusable:
            yield message(TRACE_EVENTS, n=trace.n_unusable, source=trace.file)
    if n_apart := len(frozenset(apart)):
        yield message(TRACE_ORDER, n=n_apart)
    if bare:
        yield message(TRACE_COMPUTE, ranks=sorted(bare))
