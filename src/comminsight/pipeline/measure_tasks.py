"""The second stage of a rebuild, one task per range of steps: waits and blame of all its ranks.

A task reads of every session the segments that overlap the range, and nothing else. Blame judges a
step against the usual one, which is here the usual one *of the range*; waits are those of the run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.clock import estimate_clocks
from comminsight.analysis.measures import straggler_measures
from comminsight.errors import InputError
from comminsight.format.document import UNREADABLE
from comminsight.format.segment import read_segment
from comminsight.model.event import COMM_DTYPE, concatenate_rows, take_rows
from comminsight.model.measures import StragglerMeasures
from comminsight.model.step import StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.pipeline.kernels import pair_sweep
from comminsight.pipeline.trace import finished_ops
from comminsight.semantics.communicators import join_communicators

SCHEMA_VERSION = 1
LOOK_BACK_OPS = 64  # before the first step: its entry is sought there
_COLUMNS = (
    "is_complete", "span_ns", "period_ns", "index_pct", "caused_wait_ns", "waited_ns",
    "own_delay_ns", "transfer_delay_ns", "passed_on_ns", "step_cost_ns",
)  # fmt: skip
_COUNTS = ("clock_error_ns", "n_unpaired", "n_incomplete", "n_mismatched", "n_incomparable")


class RankPart(msgspec.Struct, frozen=True, kw_only=True):
    """One session's part of a range: its segments, and its own steps by number over all ranks."""

    identity: SessionIdentity
    segments: tuple[str, ...]
    steps: dict[int, StepSummary]


class RangePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is to measure; it lies in a file, since it may be large."""

    world_size: int
    steps: tuple[int, ...]
    parts: tuple[RankPart, ...]


class MeasureTask(msgspec.Struct, frozen=True):
    """Measure the range whose plan lies at ``plan`` and write the table to ``target``."""

    plan: str
    target: str


class Measured(msgspec.Struct, frozen=True):
    """Where the table is, and how many steps it has."""

    path: str
    n_steps: int


def measure_range(task: MeasureTask) -> Measured:
    """The table of one range, written. Raises InputError when plan or segments cannot be read."""
    try:
        plan = msgspec.msgpack.decode(Path(task.plan).read_bytes(), type=RangePlan)
    except (*UNREADABLE, OSError) as error:
        raise InputError(f"is no plan of a range: {error}", path=task.plan) from error
    aligned = tuple(AlignedStep(step, _members(plan, step)) for step in plan.steps)
    measures = straggler_measures(_trace(plan), aligned_steps=aligned, sweep=pair_sweep())
    target = Path(task.target)
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    pq.write_table(table_of(measures), temporary, compression="zstd")
    os.replace(temporary, target)
    return Measured(task.target, len(aligned))


def _members(plan: RangePlan, step: int) -> dict[int, StepSummary]:
    return {p.identity.global_rank: p.steps[step] for p in plan.parts if step in p.steps}


def table_of(measures: StragglerMeasures) -> pa.Table:
    """One row per step and rank; what holds for the range as a whole stands in the metadata."""
    n_steps, n_ranks = measures.is_complete.shape
    columns = {
        "step": np.repeat(measures.steps, n_ranks),
        "global_rank": np.tile(measures.global_ranks, n_steps),
    }
    columns |= {name: getattr(measures, name).reshape(-1) for name in _COLUMNS}
    counts = {name: str(getattr(measures, name)) for name in _COUNTS}
    metadata = {"comminsight.schema_version": str(SCHEMA_VERSION), **counts}
    return pa.table(columns).replace_schema_metadata(metadata)


def _trace(plan: RangePlan) -> RunTrace:
    read = [(part, *_read(part)) for part in plan.parts]
    communicators, comm_ids = join_communicators([(p.identity, comms) for p, comms, _ in read])
    ranks = tuple(
        RankTrace(session=p.identity, ops=ops, comm_ids=comm_ids[p.identity.session_id])
        for p, _, ops in read
    )
    return RunTrace(
        ranks=ranks, communicators=communicators, clocks=estimate_clocks(ranks),
        steps={p.identity.session_id: tuple(p.steps.values()) for p in plan.parts},
        world_size=plan.world_size,
    )  # fmt: skip


def _read(part: RankPart) -> tuple[np.ndarray, np.ndarray]:
    """(communicator rows, the ops of the range and a few before)."""
    comms = np.zeros(0, COMM_DTYPE)
    records: list[np.ndarray] = []
    for path in part.segments:
        data = read_segment(path)
        comms = data.comms
        records.append(data.records)
    ops = finished_ops(concatenate_rows(records))
    return comms, take_rows(ops, np.arange(*_window(ops, list(part.steps.values()))))


def _window(ops: np.ndarray, steps: Sequence[StepSummary]) -> tuple[int, int]:
    if not steps:
        return 0, 0
    begin_ns, end_ns = bounds_ns(steps)
    begin, end = np.searchsorted(ops["start_ns"], (begin_ns, end_ns + 1)).tolist()
    return max(begin - LOOK_BACK_OPS, 0), end


def bounds_ns(steps: Sequence[StepSummary]) -> tuple[int, int]:
    """First and last instant at which an op of these steps of one session may start; at least one
    step."""
    begin_ns = min(step.first.start_ns for step in steps)
    return begin_ns, max(max(step.end_ns, step.last.start_ns) for step in steps)
