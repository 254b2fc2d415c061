"""From what a rank did to the records a reader gets, in arrival order.

A record arrives when its op ends. An op in flight longer than half the safe window leaves an OPEN
marker when that time has passed, and an OVERDUE marker at the overdue limit; its own record then
says so in its flags. ``seq`` counts arrivals from 1, so a lost record is a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import OpFlag, OpState, RecordKind, TimingSource
from comminsight.sim.faults import Fault, LostRecords
from comminsight.sim.machine import IN_FLIGHT
from comminsight.sim.program import OpSpec

_NEVER_NS = np.iinfo(np.int64).max
_STATIC = ("comm_index", "op", "size_bytes", "dtype", "red_op")


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """When markers are written, and how a reader dumps.

    ``dump_period_ns`` > 0 delivers each period's records communicator by communicator, as a dump
    per communicator does; 0 delivers them as they complete.
    """

    safe_window_ns: int = 2_000_000_000
    overdue_limit_ns: int = 30_000_000_000
    dump_period_ns: int = 0


@dataclass(frozen=True, slots=True)
class RankLog:
    """One rank's ops in program order; ``end_ns`` is ``IN_FLIGHT`` for those that never ended.

    Times count from the start of the run on the true clock. ``ops`` is ``OP_DTYPE`` with every
    field but times, ``seq`` and state filled in; ``comm_ids`` is the run's id per op. ``steps``,
    ``phases`` (index into ``PHASES``) and ``microbatches`` (-1 for none) are the truth.
    """

    ops: np.ndarray
    comm_ids: np.ndarray
    steps: np.ndarray
    phases: np.ndarray
    microbatches: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray

    @property
    def is_in_flight(self) -> np.ndarray:
        """Mask of the ops that never ended."""
        mask: np.ndarray = self.end_ns == IN_FLIGHT
        return mask

    def until(self, last_ns: int) -> RankLog:
        """The log of a process that died at ``last_ns``."""
        kept = self.start_ns <= last_ns
        end_ns = np.where(self.end_ns > last_ns, IN_FLIGHT, self.end_ns)
        return RankLog(
            self.ops[kept], self.comm_ids[kept], self.steps[kept], self.phases[kept],
            self.microbatches[kept], self.start_ns[kept], end_ns[kept],
        )  # fmt: skip


def static_ops(specs: list[OpSpec]) -> np.ndarray:
    """``OP_DTYPE`` rows of the given ops without sequences and times."""
    rows = np.zeros(len(specs), OP_DTYPE)
    for name in _STATIC:
        rows[name] = [getattr(spec, name) for spec in specs]
    rows["count"] = [spec.n_elements for spec in specs]
    rows["peer_or_root"] = [spec.peer for spec in specs]
    rows["kind"] = [RecordKind.COLLECTIVE if s.source < 0 else RecordKind.P2P for s in specs]
    rows["flags"] = [OpFlag.ASYNC if spec.is_async else 0 for spec in specs]
    rows["timing_source"] = [
        TimingSource.HOST_FUTURE if spec.source < 0 else TimingSource.HOST_WAIT for spec in specs
    ]
    rows["n_folded"] = 1
    return rows


def number_ops(ops: np.ndarray) -> None:
    """Fills ``op_seq`` (per communicator) and ``match_seq`` (per match stream), both from 1."""
    comm = ops["comm_index"].astype(np.int64)
    is_p2p = ops["kind"] == RecordKind.P2P
    peer = np.where(is_p2p, ops["peer_or_root"].astype(np.int64) + 1, 0)
    direction = np.where(is_p2p, ops["op"].astype(np.int64), 0)
    ops["op_seq"] = _running_count(comm)
    ops["match_seq"] = _running_count((comm << 40) | (peer << 8) | direction)


def records_in_arrival_order(
    log: RankLog, local_start_ns: np.ndarray, local_end_ns: np.ndarray, settings: RecorderSettings,
    observed_ns: int,
) -> np.ndarray:  # fmt: skip
    """``OP_DTYPE`` in arrival order up to ``observed_ns`` (local time), markers included."""
    is_open = log.is_in_flight
    ended_ns = np.where(is_open, _NEVER_NS, local_end_ns)
    parts = []
    done = log.ops[~is_open].copy()
    done["start_ns"] = done["enqueue_ns"] = local_start_ns[~is_open]
    done["end_ns"] = local_end_ns[~is_open]
    done["state"] = OpState.DONE
    for state, age_ns, flag in (
        (OpState.OPEN, settings.safe_window_ns // 2, OpFlag.WAS_OPEN),
        (OpState.OVERDUE, settings.overdue_limit_ns, OpFlag.WAS_OVERDUE),
    ):
        marked_ns = local_start_ns + age_ns
        is_marked = (ended_ns > marked_ns) & (marked_ns <= observed_ns)
        marker = log.ops[is_marked].copy()
        marker["start_ns"] = marker["enqueue_ns"] = local_start_ns[is_marked]
        marker["state"] = state
        parts.append((marker, marked_ns[is_marked]))
        done["flags"] |= np.where(is_marked[~is_open], flag, 0).astype(np.uint16)
    parts.append((done, done["end_ns"]))
    records = np.concatenate([part for part, _ in parts])
    arrival_ns = np.concatenate([when for _, when in parts])
    order = _arrival_order(records, arrival_ns, settings.dump_period_ns)
    records = np.take(records, order)
    records["seq"] = np.arange(1, len(records) + 1)
    records["seq_low"] = records["seq"] & 0xFFFFFFFF
    return records


def without_lost(
    records: np.ndarray, global_rank: int, faults: tuple[Fault, ...], rng: np.random.Generator
) -> np.ndarray:
    """The records that reach the reader."""
    kept = np.ones(len(records), np.bool_)
    for fault in faults:
        if isinstance(fault, LostRecords) and fault.rank in {-1, global_rank}:
            first, length = fault.burst
            kept &= rng.random(len(records)) >= fault.fraction
            kept &= (records["seq"] < first) | (records["seq"] >= first + length)
    return records[kept]


def _arrival_order(records: np.ndarray, arrival_ns: np.ndarray, dump_period_ns: int) -> np.ndarray:
    if dump_period_ns <= 0:
        return np.argsort(arrival_ns, kind="stable")
    return np.lexsort((arrival_ns, records["comm_index"], arrival_ns // dump_period_ns))


def _running_count(keys: np.ndarray) -> np.ndarray:
    """1, 2, 3, … within each key, in the given order."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.r_[True, ordered[1:] != ordered[:-1]] if len(keys) else np.empty(0, np.bool_)
    position = np.arange(len(keys))
    counts = np.empty(len(keys), np.int64)
    counts[order] = position - np.maximum.accumulate(np.where(is_first, position, 0)) + 1
    return counts
