"""A seeded simulated run: every rank's records, and the truth beside them.

The same arguments give the same run, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.topology import Communicator, SessionIdentity
from comminsight.sim.arrival import (
    RankLog,
    RecorderSettings,
    number_ops,
    records_in_arrival_order,
    static_ops,
    without_lost,
)
from comminsight.sim.faults import (
    AbsentStep,
    Fault,
    FusedStep,
    KilledJob,
    KilledRank,
    LostRank,
    SkippedOp,
    SlowLink,
    origin_ranks,
)
from comminsight.sim.groups import (
    SimGroup,
    comm_rows,
    communicators_of,
    groups_by_dimension,
    groups_of,
)
from comminsight.sim.layout import SimLayout
from comminsight.sim.machine import CostRatio, Lane, Machine
from comminsight.sim.noise import Clocks, Jitter, NodeClock, Noise
from comminsight.sim.program import PHASES, OpSpec, Program
from comminsight.sim.schedules import step_programs

RUN_START_MONO_NS = 1_000_000_000_000
RUN_START_REAL_NS = 1_790_000_000_000_000_000
_POOL_MASK = 4095


@dataclass(frozen=True, slots=True)
class SimTruth:
    """What really happened. Arrays ``(n_steps, n_ranks)`` on the true clock, from the run's start;
    a step that a rank never ended holds -1 in ``end_ns`` (and in ``start_ns`` if it never began).
    ``origin`` are the ranks a right verdict names, ``labels`` the planted faults by class name."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    origin: tuple[int, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimRank:
    """One process: who it is, its communicator table (``COMM_DTYPE``), its records in arrival
    order (``OP_DTYPE``) and its clock. ``log`` is the full truth of its ops."""

    session: SessionIdentity
    comms: np.ndarray
    records: np.ndarray
    clock: NodeClock
    log: RankLog
    is_stopped: bool


@dataclass(frozen=True, slots=True)
class SimRun:
    """The whole run. ``observed_ns`` (true clock) is when somebody looked: the end of a run that
    finished, or one overdue limit after the last event of one that did not."""

    layout: SimLayout
    ranks: tuple[SimRank, ...]
    groups: tuple[SimGroup, ...]
    truth: SimTruth
    faults: tuple[Fault, ...]
    settings: RecorderSettings
    observed_ns: int
    is_finished: bool

    @property
    def communicators(self) -> tuple[Communicator, ...]:
        """The run's communicators; ``comm_id`` is the place in the tuple."""
        return communicators_of(self.groups)


def simulate(
    layout: SimLayout,
    *,
    steps: int,
    seed: int,
    faults: Sequence[Fault] = (),
    jitter: Jitter | None = None,
    clocks: Clocks | None = None,
    settings: RecorderSettings | None = None,
) -> SimRun:
    """The run of ``layout`` over ``steps`` steps with the planted ``faults``."""
    planted = tuple(faults)
    settings = settings or RecorderSettings()
    noise = Noise(seed, jitter or Jitter())
    groups = groups_of(layout)
    lanes = _lanes(layout, groups, steps, planted, noise)
    Machine(lanes, _cost_ratio(noise, groups, planted), is_buffered=layout.is_send_buffered).run()
    logs, observed_ns = _observed(lanes, planted, settings)
    node_clocks = noise.node_clocks(layout.node(layout.world_size - 1) + 1, clocks or Clocks())
    recorder = _Recorder(layout, groups, node_clocks, settings, observed_ns, planted, noise)
    ranks = tuple(recorder.rank(lane, log) for lane, log in zip(lanes, logs, strict=True))
    is_finished = all(lane.is_finished for lane in lanes) and not any(
        isinstance(fault, KilledJob) for fault in planted
    )
    return SimRun(
        layout, ranks, groups, _truth(lanes, steps, planted), planted, settings, observed_ns,
        is_finished,
    )  # fmt: skip


def _lanes(
    layout: SimLayout,
    groups: tuple[SimGroup, ...],
    steps: int,
    faults: tuple[Fault, ...],
    noise: Noise,
) -> list[Lane]:
    lanes = []
    for rank, dimensions in enumerate(groups_by_dimension(layout, groups)):
        programs = step_programs(layout, groups, dimensions, rank, steps)
        segments = programs[0].segments if programs else []
        work_ns = noise.work_ns(rank, segments, steps, faults).tolist()
        lanes.append(Lane(rank, _with_faults(programs, rank, faults), work_ns))
    return lanes


def _with_faults(programs: list[Program], rank: int, faults: tuple[Fault, ...]) -> list[Program]:
    for fault in faults:
        match fault:
            case LostRank() | KilledRank() if fault.rank == rank:
                programs[fault.step] = programs[fault.step].stopped_at(fault.op_index)
            case SkippedOp() if fault.rank == rank:
                programs[fault.step] = programs[fault.step].without_op(fault.op_index)
            case AbsentStep():
                programs[fault.step] = programs[fault.step].without_ops()
            case FusedStep():
                programs[fault.step] = programs[fault.step].without_op(-1)
    return programs


def _cost_ratio(noise: Noise, groups: tuple[SimGroup, ...], faults: tuple[Fault, ...]) -> CostRatio:
    pools = [noise.transfer_ratios(group.comm_id) for group in groups]
    slow: dict[int, list[SlowLink]] = {}
    for fault in faults:
        if isinstance(fault, SlowLink):
            for group in groups:
                if fault.group in {group.name, group.desc}:
                    slow.setdefault(group.comm_id, []).append(fault)

    def ratio(spec: OpSpec, step: int, nth: int) -> float:
        pair_stride = 17 * spec.source + 31 * spec.target
        value = pools[spec.comm_id][(nth + pair_stride) & _POOL_MASK]
        for link in slow.get(spec.comm_id, ()):
            if step >= link.from_step and link.pair in {None, (spec.source, spec.target)}:
                value *= link.factor
        return value

    return ratio


def _rank_log(lane: Lane) -> RankLog:
    # every step's program shares the op table of the first: faults only cut instructions
    specs = lane.programs[0].ops if lane.programs else []
    index = np.array(lane.op_index, np.intp)
    ops = static_ops(specs)[index]
    number_ops(ops)
    return RankLog(
        ops,
        np.array([spec.comm_id for spec in specs], np.int64)[index],
        np.array(lane.step_of_op, np.int64),
        np.array([PHASES.index(spec.phase) for spec in specs], np.uint8)[index],
        np.array([spec.microbatch for spec in specs], np.int64)[index],
        np.array(lane.start_ns, np.int64),
        np.array(lane.end_ns, np.int64),
    )


def _observed(
    lanes: list[Lane], faults: tuple[Fault, ...], settings: RecorderSettings
) -> tuple[list[RankLog], int]:
    logs = [_rank_log(lane) for lane in lanes]
    for fault in faults:
        if isinstance(fault, KilledJob):
            return [log.until(fault.after_ns) for log in logs], fault.after_ns
    latest_ns = max(lane.now_ns for lane in lanes)
    if all(lane.is_finished for lane in lanes):
        return logs, latest_ns
    return logs, latest_ns + settings.overdue_limit_ns + 1_000_000


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Turns what the lanes did into what their processes leave behind."""

    layout: SimLayout
    groups: tuple[SimGroup, ...]
    clocks: tuple[NodeClock, ...]
    settings: RecorderSettings
    observed_ns: int
    faults: tuple[Fault, ...]
    noise: Noise

    def rank(self, lane: Lane, log: RankLog) -> SimRank:
        clock = self.clocks[self.layout.node(lane.rank)]
        local_start_ns = RUN_START_MONO_NS + clock.local_ns(log.start_ns)
        local_end_ns = RUN_START_MONO_NS + clock.local_ns(log.end_ns)
        seen_ns = RUN_START_MONO_NS + int(clock.local_ns(np.array([self.observed_ns]))[0])
        records = records_in_arrival_order(
            log, local_start_ns, local_end_ns, self.settings, seen_ns
        )
        loss = self.noise.loss_stream(lane.rank)
        return SimRank(
            session=_session(self.layout, lane.rank, clock),
            comms=comm_rows(self.groups, lane.rank, RUN_START_MONO_NS + clock.offset_ns),
            records=without_lost(records, lane.rank, self.faults, loss),
            clock=clock,
            log=log,
            is_stopped=lane.is_stopped,
        )


def _session(layout: SimLayout, rank: int, clock: NodeClock) -> SessionIdentity:
    node = layout.node(rank)
    pid = 1000 + rank
    return SessionIdentity(
        session_id=f"5100{node:04x}-{pid}-{100 + rank}", run_id="simulated", host=f"node{node}",
        boot_id=f"5100{node:04x}-0000-4000-8000-{node:012x}", pid=pid, pid_start_ticks=100 + rank,
        global_rank=rank, local_rank=rank % layout.ranks_per_node, world_size=layout.world_size,
        created_mono_ns=RUN_START_MONO_NS + clock.offset_ns, created_real_ns=RUN_START_REAL_NS,
        versions={"comminsight": "simulated"},
    )  # fmt: skip


def _truth(lanes: list[Lane], steps: int, faults: tuple[Fault, ...]) -> SimTruth:
    start_ns = np.full((steps, len(lanes)), -1, np.int64)
    end_ns = np.full((steps, len(lanes)), -1, np.int64)
    for lane in lanes:
        begun = lane.step_starts_ns[:steps]
        start_ns[: len(begun), lane.rank] = begun
        end_ns[: len(lane.step_ends_ns), lane.rank] = lane.step_ends_ns
    labels = tuple(type(fault).__name__ for fault in faults)
    return SimTruth(start_ns, end_ns, origin_ranks(faults), labels)
