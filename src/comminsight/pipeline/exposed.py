"""Where the communication time goes: from profiler traces, or from a run's own records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from comminsight.analysis.exposed import ExposedOp, exposed_ops, exposed_ranks, exposed_steps
from comminsight.analysis.exposure import exposures, imbalance_ratio
from comminsight.diagnosis import codes_data
from comminsight.diagnosis import codes_exposed as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.hotspot import judged_op
from comminsight.errors import InputError
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import EXPOSED_SCHEMA_VERSION, ExposedReport, ExposureSource
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.ops import Op
from comminsight.model.step import StepSummary
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Message
from comminsight.pipeline.job_evidence import gather

MAX_NAMES = 3  # of kernels, where none communicates
NEXT_STEP = "give traces of the PyTorch profiler, Nsight Systems or msprof, or a run directory"


def exposed_in_files(paths: Sequence[Path]) -> ExposedReport:
    """The report on the traces in ``paths``; raises InputError where no trace is in them."""
    job = gather(paths).job
    if not job.activities:
        named = ", ".join(map(str, paths))
        raise InputError("no trace with device activities", path=named, next_step=NEXT_STEP)
    return exposed_report(
        job.activities, ExposureSource.TRACE, world_size=job.world_size, missing=job.missing,
        unread=job.unread,
    )  # fmt: skip


def exposed_in_run(trace: RunTrace) -> ExposedReport:
    """The report on a run's records: they hold no compute, so that nothing is told of overlap and
    exposed is all that was in communication."""
    activities = list(_recorded(trace))
    n_left_out = sum(len(rank.ops) for rank in trace.ranks) - len(activities)
    left_out = (message(codes.MISSING_BETWEEN, n=n_left_out),) if n_left_out else ()
    return exposed_report(
        activities, ExposureSource.RECORDS, world_size=trace.world_size, missing=left_out
    )


def exposed_report(
    activities: Sequence[Activity],
    source: ExposureSource,
    *,
    world_size: int,
    missing: tuple[Message, ...] = (),
    unread: tuple[UnreadFile, ...] = (),
) -> ExposedReport:
    """The report on ``activities``, measured or recorded."""
    activities = _common_labels(activities)
    found = exposures(activities)
    ops = exposed_ops(activities, found)
    is_compute_known = any(len(one.compute) for one in found)
    ranks = exposed_ranks(activities, found)
    total_ns = sum(one.exposed_ns for one in ops)
    is_one_job = world_size > 1  # unknown where traces disagree, or are of several jobs
    imbalance = imbalance_ratio(one.exposed_ns for one in ranks) if is_one_job else None
    return ExposedReport(
        schema_version=EXPOSED_SCHEMA_VERSION,
        source=source,
        world_size=world_size or len(ranks),
        ops=tuple(judged_op(one, total_ns, is_compute_known=is_compute_known) for one in ops),
        ranks=ranks,
        steps=exposed_steps(found),
        rank_imbalance_ratio=imbalance,
        rank_imbalance_observed=is_one_job and len(ranks) > 1,
        findings=tuple(_findings(activities, ops, max(world_size, len(ranks)))),
        missing=(*missing, *_missing(ops, is_compute_known=is_compute_known)),
        unread=unread,
    )


def _findings(
    activities: Sequence[Activity], ops: Sequence[ExposedOp], n_ranks: int
) -> Iterator[Message]:
    """No communication in the traces of several ranks is no 0 %: it was not recorded, or not
    recognised."""
    if ops or n_ranks < 2:
        return
    names = Counter(one.name for one in activities if one.kind is ActivityKind.OTHER)
    n_kernels = len(activities)
    if names:
        told = [name[:80] for name, _ in names.most_common(MAX_NAMES)]
        yield message(
            codes.NO_COMMUNICATION_NAMED, n_ranks=n_ranks, n_kernels=n_kernels, names=told
        )
    else:
        yield message(codes_data.NO_COMMUNICATION, n_ranks=n_ranks, n_kernels=n_kernels)


def _missing(ops: Sequence[ExposedOp], *, is_compute_known: bool) -> Iterator[Message]:
    if not is_compute_known:
        yield message(codes.MISSING_COMPUTE)
    few = sorted({op_name(one.op) if one.op else "unknown" for one in ops if one.fit() is None})
    if few:
        yield message(codes.MISSING_SIZES, ops=few)
    if ops:
        yield message(codes.MISSING_OWNER)


def _common_labels(activities: Sequence[Activity]) -> list[Activity]:
    """The activities without labels that one of several ranks alone has: they name a stream or a
    group of a process, and no communicator."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for one in activities:
        ranks[one.comm_label].add(one.global_rank)
    n_ranks = len({one.global_rank for one in activities})
    lone = {label for label, own in ranks.items() if label and len(own) < min(2, n_ranks)}
    return [replace(one, comm_label="") if one.comm_label in lone else one for one in activities]


def _recorded(trace: RunTrace) -> Iterator[Activity]:
    """The finished ops of each rank inside of its steps; outside of any where it has none."""
    labels = {one.comm_id: one.label for one in trace.communicators}
    for rank in trace.ranks:
        steps = _Steps(trace.steps.get(rank.session.session_id, ()))
        comm_ids = rank.comm_ids_of(rank.ops["comm_index"]).tolist()
        columns = (rank.ops[name].tolist() for name in ("start_ns", "end_ns", "op", "size_bytes"))
        for start_ns, end_ns, op, size_bytes, comm_id in zip(*columns, comm_ids, strict=True):
            step = steps.step_at(start_ns)
            if step is not None:
                yield Activity(
                    global_rank=rank.global_rank,
                    kind=ActivityKind.COMMUNICATION,
                    name=op_name(op),
                    start_ns=start_ns,
                    end_ns=end_ns,
                    op=Op(op),
                    size_bytes=size_bytes,
                    comm_label=labels.get(comm_id, ""),
                    step=step,
                )


class _Steps:
    """Tells the step of a time; times are to be asked for in their order."""

    def __init__(self, steps: Sequence[StepSummary]) -> None:
        self._steps = steps
        self._at = 0

    def step_at(self, time_ns: int) -> int | None:
        """The step; -1 where there are no steps at all, None between two steps."""
        if not self._steps:
            return -1
        while self._at < len(self._steps) and self._steps[self._at].end_ns <= time_ns:
            self._at += 1
        if self._at == len(self._steps) or self._steps[self._at].start_ns > time_ns:
            return None
        return self._steps[self._at].step
