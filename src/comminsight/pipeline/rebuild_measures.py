"""Waits and blame of a rebuilt run, range of steps by range of steps.

The driver reads steps and communicators, never records: it tells which steps of the ranks are the
same, cuts them into ranges, and says for each range in which segments its ops lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from comminsight.analysis.alignment import AlignedStep, align_steps
from comminsight.diagnosis.miscounts import miscounts_in, missing_counts
from comminsight.errors import InputError
from comminsight.format.document import UNREADABLE
from comminsight.format.segment import SegmentReader
from comminsight.model.event import empty_batch
from comminsight.model.step import StepSummary
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace
from comminsight.model.verdict import Message
from comminsight.pipeline.executor import Err, Executor
from comminsight.pipeline.measure_tasks import (
    Measured,
    MeasureTask,
    RangePlan,
    RankPart,
    bounds_ns,
    measure_range,
)
from comminsight.pipeline.rebuild_run import RunRebuilt
from comminsight.pipeline.rebuild_tasks import Rebuilt
from comminsight.semantics.communicators import join_communicators

STEPS_PER_RANGE = 200


class MeasuredRun(NamedTuple):
    """The tables of all ranges in order, and problems; ``withheld`` says why there is no table at
    all though there are steps: ops of one number are not one op."""

    tables: tuple[Measured, ...]
    problems: tuple[str, ...] = ()
    withheld: Message | None = None


def measure_run(
    rebuilt: RunRebuilt,
    folder: Path,
    executor: Executor,
    *,
    steps_per_range: int = STEPS_PER_RANGE,
) -> MeasuredRun:
    """Waits and blame of the run in tables in ``folder``.

    Raises InputError when the folder cannot be written or steps cannot be read.
    """
    sessions = [one for one in rebuilt.sessions if one.steps_path and one.spans]
    world_size = max((one.identity.world_size for one in sessions), default=0)
    trace = _steps_trace(sessions, world_size)
    if miscounts := miscounts_in(trace):
        comms = {one.comm_id: one for one in trace.communicators}
        return MeasuredRun((), withheld=missing_counts(miscounts, comms))
    aligned = align_steps(trace)
    tasks = []
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(aligned), steps_per_range):
        own = aligned[first : first + steps_per_range]
        name = f"steps-{own[0].step:06d}-{own[-1].step:06d}"
        plan = folder / f"{name}.plan"
        plan.write_bytes(msgspec.msgpack.encode(_plan(own, sessions, world_size)))
        tasks.append(MeasureTask(str(plan), str(folder / f"{name}.parquet")))
    measured, problems = [], []
    for result in executor.map_unordered(measure_range, tasks):
        if isinstance(result, Err):
            problems.append(result.message)
        else:
            measured.append(result.value)
            Path(result.key.plan).unlink(missing_ok=True)
    tables = tuple(sorted(measured, key=lambda one: one.path))
    return MeasuredRun(tables, tuple(sorted(problems)))


def _steps_trace(sessions: Sequence[Rebuilt], world_size: int) -> RunTrace:
    """The run without its ops: enough to tell which steps are the same."""
    communicators, comm_ids = join_communicators([(one.identity, _comms(one)) for one in sessions])
    ranks = tuple(
        RankTrace(one.identity, empty_batch(), comm_ids[one.identity.session_id], one.unseen_calls)
        for one in sessions
    )
    steps = {one.identity.session_id: _read_steps(one.steps_path) for one in sessions}
    return RunTrace(ranks, communicators, steps, ClockOffsets(), world_size)


def _comms(session: Rebuilt) -> np.ndarray:
    """The communicator rows that the newest segment states before its records."""
    with SegmentReader(session.spans[-1][0]) as reader:
        for _ in reader.poll():
            pass
        return reader.comms


def _read_steps(path: str) -> tuple[StepSummary, ...]:
    try:
        lines = Path(path).read_bytes().splitlines()
        return tuple(msgspec.json.decode(line, type=StepSummary) for line in lines)
    except (*UNREADABLE, OSError) as error:
        raise InputError(
            f"steps do not read: {error}", path=path, next_step="rebuild the run"
        ) from error


def _plan(
    aligned: Sequence[AlignedStep], sessions: Sequence[Rebuilt], world_size: int
) -> RangePlan:
    parts = []
    for one in sessions:
        rank = one.identity.global_rank
        steps = {step.step: step.members[rank] for step in aligned if rank in step.members}
        if not steps:
            continue
        begin_ns, end_ns = bounds_ns(list(steps.values()))
        segments = tuple(p for p, low, high in one.spans if low <= end_ns and high >= begin_ns)
        parts.append(RankPart(identity=one.identity, segments=segments, steps=steps))
    numbers = tuple(step.step for step in aligned)
    return RangePlan(world_size=world_size, steps=numbers, parts=tuple(parts))
