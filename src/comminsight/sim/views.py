"""A simulated run as the later stages take it: a ``RunTrace`` with true steps, and a ``HangEvent``.

Both come from the truth and not from the record stream, so that analysis and diagnosis can be
tested without the stages before them.
"""

from __future__ import annotations

import numpy as np

from comminsight.model.hang import (
    HangEvent,
    InFlightOp,
    Liveness,
    Progress,
    RankState,
    Stack,
    StackSource,
)
from comminsight.model.ops import RecordKind
from comminsight.model.step import StepEnd, StepEvidence, StepSummary
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace
from comminsight.sim.cluster import RUN_START_MONO_NS, RUN_START_REAL_NS, SimRank, SimRun
from comminsight.sim.faults import KilledJob, KilledRank, LostRank, LostRecords

_LOST_STACK = "load_batch (data.py:41)\ntrain_step (train.py:88)\n<module> (train.py:120)"


def run_trace(run: SimRun) -> RunTrace:
    """The finished ops that were not lost, with true step windows and exact clock offsets."""
    offsets = {rank.session.boot_id: -rank.clock.offset_ns for rank in run.ranks}
    return RunTrace(
        ranks=tuple(_rank_trace(run, rank) for rank in run.ranks),
        communicators=run.communicators,
        steps={rank.session.session_id: _true_steps(run, rank) for rank in run.ranks},
        clocks=ClockOffsets(offset_ns=offsets, error_ns=dict.fromkeys(offsets, 0)),
        world_size=run.layout.world_size,
    )


def hang_event(run: SimRun) -> HangEvent:
    """What a perfect observer gathers one overdue limit after the run came to rest."""
    observed_mono_ns = RUN_START_MONO_NS + run.observed_ns
    return HangEvent(
        observed_mono_ns=observed_mono_ns,
        observed_real_ns=RUN_START_REAL_NS + run.observed_ns,
        overdue_limit_ns=run.settings.overdue_limit_ns,
        world_size=run.layout.world_size,
        ranks=tuple(_rank_state(run, rank) for rank in run.ranks),
        in_flight=tuple(op for rank in run.ranks for op in _in_flight(run, rank)),
        progress=tuple(entry for rank in run.ranks for entry in _progress(rank)),
        stacks=tuple(_stack(rank) for rank in run.ranks if _is_lost(run, rank)),
    )


def _rank_trace(run: SimRun, rank: SimRank) -> RankTrace:
    ended = rank.records[rank.records["end_ns"] > 0]
    ops = ended[np.lexsort((ended["seq"], ended["start_ns"]))]
    mine = [g.comm_id for g in run.groups if rank.session.global_rank in g.members]
    return RankTrace(rank.session, ops, np.array([-1, *mine], np.int64))


def _true_steps(run: SimRun, rank: SimRank) -> tuple[StepSummary, ...]:
    """Steps whose ops all ended, between the first and the last op of each."""
    log = rank.log
    ops = log.ops.copy()
    ops["start_ns"] = RUN_START_MONO_NS + rank.clock.local_ns(log.start_ns)
    ops["end_ns"] = RUN_START_MONO_NS + rank.clock.local_ns(log.end_ns)
    numbers, firsts, counts = np.unique(log.steps, return_index=True, return_counts=True)
    spans = [
        (int(step), int(first), int(first + count))
        for step, first, count in zip(numbers, firsts, counts, strict=True)
        if not log.is_in_flight[first : first + count].any()
    ]
    starts = [int(ops["start_ns"][first]) for _, first, _ in spans]
    return tuple(
        _summary(run, rank, step, ops[first:last], following)
        for (step, first, last), following in zip(spans, [*starts[1:], 0], strict=True)
    )


def _summary(
    run: SimRun, rank: SimRank, step: int, ops: np.ndarray, next_start_ns: int
) -> StepSummary:
    start_ns, end_ns = int(ops["start_ns"][0]), int(ops["end_ns"].max())
    return StepSummary(
        session_id=rank.session.session_id,
        global_rank=rank.session.global_rank,
        step=step,
        template=f"true-{run.layout.schedule}",
        template_version=1,
        template_file_version=1,
        first=_evidence(rank, ops[0]),
        anchor=_evidence(rank, ops[-1]),
        last=_evidence(rank, ops[-1]),
        start_ns=start_ns,
        end_ns=end_ns,
        span_ns=end_ns - start_ns,
        period_ns=max(0, next_start_ns - start_ns),
        gap_ns=max(0, next_start_ns - end_ns),
        n_ops=len(ops),
        end_proof=StepEnd.CLOSE,
    )


def _evidence(rank: SimRank, op: np.void) -> StepEvidence:
    comm_index = int(op["comm_index"])
    return StepEvidence(
        comm_hash=int(rank.comms["comm_hash"][comm_index - 1]),
        comm_index=comm_index,
        role="",
        op=int(op["op"]),
        op_seq=int(op["op_seq"]),
        match_seq=int(op["match_seq"]),
        func_seq=int(op["func_seq"]),
        size_bytes=int(op["size_bytes"]),
        start_ns=int(op["start_ns"]),
        seq=0,
    )


def _in_flight(run: SimRun, rank: SimRank) -> list[InFlightOp]:
    log = rank.log
    return [
        InFlightOp(
            global_rank=rank.session.global_rank,
            comm_id=int(log.comm_ids[place]),
            kind=int(log.ops["kind"][place]),
            op=int(log.ops["op"][place]),
            op_seq=int(log.ops["op_seq"][place]),
            match_seq=int(log.ops["match_seq"][place]),
            start_ns=RUN_START_MONO_NS + int(log.start_ns[place]),
            age_ns=run.observed_ns - int(log.start_ns[place]),
            size_bytes=int(log.ops["size_bytes"][place]),
            count=int(log.ops["count"][place]),
            dtype=int(log.ops["dtype"][place]),
            red_op=int(log.ops["red_op"][place]),
            peer=int(log.ops["peer_or_root"][place]),
            owner_tid=rank.session.pid,
            is_overdue=run.observed_ns - int(log.start_ns[place]) >= run.settings.overdue_limit_ns,
        )
        for place in np.flatnonzero(log.is_in_flight)
    ]


def _progress(rank: SimRank) -> list[Progress]:
    log = rank.log
    is_p2p = log.ops["kind"] == RecordKind.P2P
    peers = np.where(is_p2p, log.ops["peer_or_root"], -1)
    directions = np.where(is_p2p, log.ops["op"], 0)
    streams = sorted(
        set(zip(log.comm_ids.tolist(), peers.tolist(), directions.tolist(), strict=True))
    )
    entries = []
    for comm_id, peer, direction in streams:
        mask = (log.comm_ids == comm_id) & (peers == peer) & (directions == direction)
        match_seq = log.ops["match_seq"][mask]
        is_done = ~log.is_in_flight[mask]
        entries.append(
            Progress(
                global_rank=rank.session.global_rank,
                comm_id=comm_id,
                last_entered=int(match_seq.max()),
                last_done=int(match_seq[is_done].max(initial=0)),
                peer=peer,
                direction=direction,
                last_end_ns=RUN_START_MONO_NS + int(log.end_ns[mask].max()),
            )
        )
    return entries


def _rank_state(run: SimRun, rank: SimRank) -> RankState:
    global_rank = rank.session.global_rank
    is_dead = any(
        isinstance(fault, KilledJob)
        or (isinstance(fault, KilledRank) and fault.rank == global_rank)
        for fault in run.faults
    )
    return RankState(
        global_rank=global_rank,
        liveness=Liveness.DEAD if is_dead else Liveness.ALIVE,
        host=rank.session.host,
        pid=rank.session.pid,
        last_event_ns=RUN_START_MONO_NS
        + int(max(log_ns.max(initial=0) for log_ns in _times(rank))),
        exit_status="signal 9" if is_dead else "",
        records_lost=_n_lost(run, rank),
        is_whole=not _n_lost(run, rank),
    )


def _times(rank: SimRank) -> tuple[np.ndarray, np.ndarray]:
    return rank.log.start_ns, rank.log.end_ns


def _n_lost(run: SimRun, rank: SimRank) -> int:
    if not any(isinstance(fault, LostRecords) for fault in run.faults):
        return 0
    seq = rank.records["seq"]
    return int(seq.max(initial=0)) - len(seq)


def _is_lost(run: SimRun, rank: SimRank) -> bool:
    return any(
        isinstance(fault, LostRank) and fault.rank == rank.session.global_rank
        for fault in run.faults
    )


def _stack(rank: SimRank) -> Stack:
    return Stack(
        global_rank=rank.session.global_rank,
        pid=rank.session.pid,
        source=StackSource.PY_SPY,
        text=_LOST_STACK,
    )
