"""Where the communication time goes: from profiler traces, or from a run's own records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from comminsight.analysis.activity_gates import activity_gates, members_of
from comminsight.analysis.exposed import ExposedOp, exposed_ops, exposed_ranks, exposed_steps
from comminsight.analysis.exposed_owners import call_shares, owners, parts, streams
from comminsight.analysis.exposure import exposures, imbalance_ratio
from comminsight.analysis.op_owners import with_owners
from comminsight.diagnosis import codes_exposed as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.hotspot import OWNER_DOUBTS, judged_op
from comminsight.diagnosis.miscounts import miscounts_in, missing_counts
from comminsight.errors import InputError
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import (
    EXPOSED_SCHEMA_VERSION,
    ExposedReport,
    ExposureSource,
    OwnerDoubt,
    OwnerExposed,
    RankExposed,
)
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.ops import CommRole
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Message
from comminsight.pipeline.exposed_records import RecordedCalls, recorded_calls
from comminsight.pipeline.job_evidence import gather
from comminsight.semantics.roles import role_of

MAX_NAMES = 3  # of kernels where none communicates, of files without a trace
NEXT_STEP = (
    "give traces of the PyTorch profiler, Nsight Systems or msprof, or a run directory; "
    "`comminsight import` makes one of records of NCCL's Inspector"
)


def exposed_in_files(paths: Sequence[Path]) -> ExposedReport:
    """The report on the traces in ``paths``; raises InputError where no trace is in them."""
    found = exposed_in_traces(paths)
    if found is None:
        named = ", ".join(map(str, paths[:MAX_NAMES])) + (", ..." if paths[MAX_NAMES:] else "")
        raise InputError("no trace with device activities", path=named, next_step=NEXT_STEP)
    return found


def exposed_in_traces(paths: Sequence[Path]) -> ExposedReport | None:
    """The report on the traces in ``paths``, None where no trace is in them."""
    job = gather(paths).job
    if not job.activities:
        return None
    return exposed_report(
        job.activities, ExposureSource.TRACE, world_size=job.world_size, missing=job.missing,
        unread=job.unread,
    )  # fmt: skip


def exposed_in_run(trace: RunTrace) -> ExposedReport:
    """The report on a run's records: they hold no compute, so that nothing is told of overlap and
    exposed is all that was in communication. Compute is inferred where steps were rebuilt."""
    found = recorded_calls(trace)
    known = {one.comm_id: one for one in trace.communicators}
    miscounts = miscounts_in(trace)
    missing = (
        *([message(codes.MISSING_BETWEEN, n=found.n_between)] if found.n_between else ()),
        *([message(codes.MISSING_UNTIMED, n=found.n_untimed)] if found.n_untimed else ()),
        *([message(codes.MISSING_ENDS, n=found.n_late_seen)] if found.n_late_seen else ()),
        *([missing_counts(miscounts, known)] if miscounts else ()),
    )
    return exposed_report(
        found.calls, ExposureSource.RECORDS, world_size=trace.world_size, missing=missing,
        recorded=found,
    )  # fmt: skip


def exposed_report(
    activities: Sequence[Activity],
    source: ExposureSource,
    *,
    world_size: int,
    missing: tuple[Message, ...] = (),
    unread: tuple[UnreadFile, ...] = (),
    recorded: RecordedCalls | None = None,
) -> ExposedReport:
    """The report on ``activities``, measured or ``recorded``."""
    calls = recorded.calls if recorded else tuple(_communications(activities))
    gates, clock_error_ns = (
        (recorded.gates, recorded.clock_error_ns) if recorded else activity_gates(calls, world_size)
    )
    roles = [_role(one.comm_label, recorded, world_size) for one in calls]
    activities = _common_labels(activities)
    found = exposures(activities)
    shares = call_shares(calls, gates, found)
    classes = [(one.op, one.comm_label) for one in _communications(activities)]
    ops = with_owners(exposed_ops(activities, found), calls, classes, gates, found)
    ranks = exposed_ranks(activities, found, infers_compute=bool(recorded and recorded.has_steps))
    is_compute_known = any(len(one.compute) for one in found)
    total_ns = sum(one.exposed_ns for one in ops)
    is_one_job = world_size > 1  # unknown where traces disagree, or are of several jobs
    owned = owners(calls, gates, shares, recorded.passed_on if recorded else None)
    return ExposedReport(
        schema_version=EXPOSED_SCHEMA_VERSION,
        source=source,
        world_size=world_size or len(ranks),
        ops=tuple(judged_op(one, total_ns, is_compute_known=is_compute_known) for one in ops),
        ranks=ranks,
        steps=exposed_steps(found),
        owners=owned,
        roles=parts(roles, shares),
        phases=parts([one.phase for one in calls], shares),
        streams=streams(activities, found) if source is ExposureSource.TRACE else (),
        clock_error_ns=clock_error_ns,
        rank_imbalance_ratio=(
            imbalance_ratio(one.exposed_ns for one in ranks) if is_one_job else None
        ),
        rank_imbalance_observed=is_one_job and len(ranks) > 1,
        findings=tuple(_findings(activities, ranks, max(world_size, len(ranks)))),
        missing=(*missing, *_missing(ops, owned, is_compute_known=is_compute_known)),
        unread=unread,
    )


def _communications(activities: Iterable[Activity]) -> Iterator[Activity]:
    for one in activities:
        if one.kind is ActivityKind.COMMUNICATION and one.end_ns > one.start_ns > 0:
            yield one


def _role(label: str, recorded: RecordedCalls | None, world_size: int) -> str:
    """The role of a communicator: that of a recorded one, else by what its label states; "" for
    unknown ones."""
    if recorded is not None:
        role = recorded.roles.get(label, CommRole.UNKNOWN)
    else:
        members = members_of(label, world_size)
        size = 0 if isinstance(members, OwnerDoubt) else len(members)
        desc = label.rpartition(" (")[0]
        role, _ = role_of("", desc.rpartition(":")[0] or desc, 0, size, world_size)
    return "" if role == CommRole.UNKNOWN else str(role)


def _findings(
    activities: Sequence[Activity], ranks: Sequence[RankExposed], n_ranks: int
) -> Iterator[Message]:
    """No communication in the traces of several ranks is no 0 %: it was not recorded, or not
    recognised."""
    without = [one.global_rank for one in ranks if not one.communication_ns]
    if len(without) < len(ranks):
        if without:
            yield message(codes.NO_COMMUNICATION_RANKS, ranks=without)
        return
    if n_ranks < 2:
        return
    names = Counter(one.name for one in activities if one.kind is ActivityKind.OTHER)
    n_kernels = len(activities)
    if names:
        told = [name[:80] for name, _ in names.most_common(MAX_NAMES)]
        yield message(
            codes.NO_COMMUNICATION_NAMED, n_ranks=n_ranks, n_kernels=n_kernels, names=told
        )
    else:
        yield message(codes.NO_COMMUNICATION_SEEN, n_ranks=n_ranks, n_kernels=n_kernels)


def _missing(
    ops: Sequence[ExposedOp], owned: Sequence[OwnerExposed], *, is_compute_known: bool
) -> Iterator[Message]:
    if not is_compute_known:
        yield message(codes.MISSING_COMPUTE)
    few = sorted({op_name(one.op) if one.op else "unknown" for one in ops if one.fit() is None})
    if few:
        yield message(codes.MISSING_SIZES, ops=few)
    for one in owned:
        if one.doubt is not None:
            yield message(OWNER_DOUBTS[one.doubt], ratio=one.share_ratio, n_calls=one.n_calls)


def _common_labels(activities: Sequence[Activity]) -> list[Activity]:
    """The activities without labels that one of several ranks alone has: they name a stream or a
    group of a process, and no communicator."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for one in activities:
        ranks[one.comm_label].add(one.global_rank)
    n_ranks = len({one.global_rank for one in activities})
    lone = {label for label, own in ranks.items() if label and len(own) < min(2, n_ranks)}
    return [replace(one, comm_label="") if one.comm_label in lone else one for one in activities]
