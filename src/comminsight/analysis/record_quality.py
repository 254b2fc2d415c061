"""What is wrong with recorded ops: stamps and sizes that cannot be, numbers that are missing.

Facts only; ``diagnosis/recorded_data`` judges them. Noise of a busy machine makes none of them: a
late callback makes an end later, never earlier than what it depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.analysis.drift_line import MIN_DRIFT_OPS, drift_line
from comminsight.analysis.stamp_quality import MAX_SIZE_BYTES
from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.ops import Op, OpFlag, OpState, RecordKind, TimingSource
from comminsight.model.records import is_ended_op, is_op, n_calls
from comminsight.model.trace import RankTrace, RunTrace

MAX_OPS_PER_RANK = 4096  # of those held against other ranks: more would say the same again
FARTHEST = 0.9  # of the one that lies farthest
# stamps of the caller's thread and of the GPU; a helper thread's may be late by any amount
_IS_OWN_STAMP = np.isin(
    np.arange(256),
    (TimingSource.HOST_FUTURE, TimingSource.HOST_RETURN, TimingSource.GPU),
)
# an all-to-all may give a rank nothing to wait for
_IS_SYNCHRONISING = np.isin(np.arange(256), [o for o in SYNCHRONISING_OPS if o != Op.ALL_TO_ALL])


@dataclass(frozen=True, slots=True)
class RankRecords:
    """What one rank left: ``n_ops`` ended ops, of which ``n_zero`` have no begin or no end,
    ``n_reversed`` end before they begin by up to ``shift_ns``, ``n_absurd`` claim up to
    ``absurd_bytes``.

    ``n_missing`` arrival numbers are missing in ``n_holes`` holes between ``first_seq`` and
    ``last_seq``, the longest of ``longest``; the rest is as its recorder and reader counted it.
    """

    global_rank: int
    n_ops: int
    n_zero: int = 0
    n_reversed: int = 0
    shift_ns: int = 0
    n_absurd: int = 0
    absurd_bytes: int = 0
    n_missing: int = 0
    n_holes: int = 0
    longest: int = 0
    first_seq: int = 0
    last_seq: int = 0
    n_lost: int = 0
    n_overwritten: int = 0
    n_filtered: int = 0
    n_bad_frames: int = 0
    n_bad_records: int = 0
    n_unread_files: int = 0


@dataclass(frozen=True, slots=True)
class EndBeforeEntry:
    """``n`` of ``n_ops`` collectives ended on some rank before another rank of the same clock had
    entered, by up to ``shift_ns``; the ends of ``ranks`` lie farthest from those of the others
    (several where none lies farther than the rest)."""

    ranks: tuple[int, ...]
    n: int
    n_ops: int
    shift_ns: int


@dataclass(frozen=True, slots=True)
class EndDrift:
    """The ends of one rank move against those of its peers by ``ratio`` of the time, ``shift_ns``
    over all its ops; ``residual_ns`` is what the line does not explain."""

    global_rank: int
    ratio: float
    shift_ns: int
    residual_ns: int


def rank_records(global_rank: int, records: np.ndarray) -> RankRecords:
    """The facts of one rank from its records (``OP_DTYPE``, all kinds, in ``seq`` order); what a
    recorder or a reader counted is 0."""
    ops = records[is_ended_op(records)]
    behind_ns = _behind_ns(ops)
    stated = records[is_op(records)]
    size = np.maximum(np.abs(stated["size_bytes"]), np.abs(stated["count"]))
    is_absurd = (size > MAX_SIZE_BYTES) | (stated["size_bytes"] < 0) | (stated["count"] < 0)
    seq = np.sort(records["seq"])
    holes = np.diff(seq) - 1
    holes = holes[holes > 0]
    return RankRecords(
        global_rank=global_rank,
        n_ops=int(n_calls(ops).sum()),
        n_zero=int(np.count_nonzero(_is_zero(ops))),
        n_reversed=int(np.count_nonzero(behind_ns > 0)),
        shift_ns=int(behind_ns.max(initial=0)),
        n_absurd=int(np.count_nonzero(is_absurd)),
        absurd_bytes=int(size[is_absurd].max(initial=0)),
        n_missing=int(holes.sum()),
        n_holes=len(holes),
        longest=int(holes.max(initial=0)),
        first_seq=int(seq[0]) if len(seq) else 0,
        last_seq=int(seq[-1]) if len(seq) else 0,
    )


def _is_zero(ops: np.ndarray) -> np.ndarray:
    """Which ops lack a stamp that their state says they have."""
    is_ended = (ops["state"] == OpState.DONE) & (ops["flags"] & OpFlag.END_UNSEEN == 0)
    mask: np.ndarray = (ops["start_ns"] <= 0) | (is_ended & (ops["end_ns"] <= 0))
    return mask


def _behind_ns(ops: np.ndarray) -> np.ndarray:
    """By how much each op ends before it begins, beyond what its stamps may be wrong by."""
    known = (ops["start_ns"] > 0) & (ops["end_ns"] > 0) & (ops["clock_error_ns"] < UNBOUNDED_NS)
    behind_ns = ops["start_ns"] - ops["end_ns"] - 2 * ops["clock_error_ns"].astype(np.int64)
    found: np.ndarray = np.where(known, behind_ns, 0)
    return found


def ends_before_entries(trace: RunTrace, left_out: Sequence[int] = ()) -> list[EndBeforeEntry]:
    """By rank, collectives that nobody can leave before all have entered and that somebody left
    all the same; only ranks of one boot are compared, whose clock is one. ``left_out`` are
    comm_ids whose numbers disagree."""
    boots = sorted({rank.session.boot_id for rank in trace.ranks})
    found = (
        _before_entries([rank for rank in trace.ranks if rank.session.boot_id == boot], left_out)
        for boot in boots
    )
    return [one for one in found if one is not None]


def _before_entries(ranks: Sequence[RankTrace], left_out: Sequence[int]) -> EndBeforeEntry | None:
    table = _table(ranks, left_out)
    if table is None:
        return None
    rank, instance, start_ns, end_ns, op = table
    n = int(instance.max()) + 1
    entered_ns, left_ns = np.full(n, np.iinfo(np.int64).min), np.full(n, np.iinfo(np.int64).max)
    np.maximum.at(entered_ns, instance, start_ns)
    np.minimum.at(left_ns, instance, end_ns)
    low, high = np.full(n, 255), np.zeros(n, np.int64)
    np.minimum.at(low, instance, op)
    np.maximum.at(high, instance, op)
    before_ns = np.where(low == high, entered_ns - left_ns, 0)
    if not (before_ns > 0).any():
        return None
    mean_ns = np.bincount(instance, end_ns - end_ns.min(), n) / np.bincount(instance, minlength=n)
    apart_ns = np.abs(end_ns - end_ns.min() - mean_ns[instance]) * (before_ns > 0)[instance]
    apart = np.bincount(rank, apart_ns, len(ranks))
    farthest = (apart >= FARTHEST * apart.max()).tolist()
    return EndBeforeEntry(
        ranks=tuple(one.global_rank for one, is_far in zip(ranks, farthest, strict=True) if is_far),
        n=int(np.count_nonzero(before_ns > 0)),
        n_ops=n,
        shift_ns=int(before_ns.max()),
    )


def end_drifts(trace: RunTrace, left_out: Sequence[int] = ()) -> list[EndDrift]:
    """By rank, the straight line through the differences of its ends to the median of its peers';
    those with enough ops of at least three members."""
    table = _table(trace.ranks, left_out)
    if table is None:
        return []
    rank, instance, _, end_ns, _ = table
    order = np.lexsort((end_ns, instance))
    first = np.flatnonzero(np.diff(instance[order], prepend=-1))
    sizes = np.diff(np.append(first, len(order)))
    middle_ns = end_ns[order[first + (sizes - 1) // 2]]
    gap_ns = end_ns - middle_ns[instance]
    is_told = sizes[instance] >= 3
    found = []
    for column, one in enumerate(trace.ranks):
        own = np.flatnonzero(is_told & (rank == column))
        if len(own) >= MIN_DRIFT_OPS:
            found.append(_line(one.global_rank, middle_ns[instance[own]], gap_ns[own]))
    return found


def _line(global_rank: int, at_ns: np.ndarray, gap_ns: np.ndarray) -> EndDrift:
    line = drift_line(at_ns, gap_ns)
    return EndDrift(global_rank, line.ratio, line.shift_ns, line.residual_ns)


_Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _table(ranks: Sequence[RankTrace], left_out: Sequence[int]) -> _Table | None:
    """(place of the rank, dense instance, start, end, op) of the synchronising ops of all; of long
    runs every so manieth op, the same on all ranks."""
    longest = max((len(rank.ops) for rank in ranks), default=0)
    stride = max(1, -(-longest // MAX_OPS_PER_RANK))
    columns: list[list[np.ndarray]] = [[], [], [], [], []]
    for place, one in enumerate(ranks):
        ops, comm_ids = one.ops, one.comm_ids_of(one.ops["comm_index"])
        rows = np.flatnonzero(
            _is_comparable(ops) & (comm_ids >= 0) & ~np.isin(comm_ids, list(left_out))
            & (ops["match_seq"] % stride == 0)
        )  # fmt: skip
        ops, comm_ids = ops[rows], comm_ids[rows]
        replayed = (ops["flags"] & OpFlag.GRAPH != 0).astype(np.int64)
        error_ns = ops["clock_error_ns"].astype(np.int64)
        columns[0].append(np.full(len(rows), place))
        columns[1].append((comm_ids << 1 | replayed) << 32 | ops["match_seq"])
        columns[2].append(ops["start_ns"] - error_ns)
        columns[3].append(ops["end_ns"] + error_ns)
        columns[4].append(ops["op"].astype(np.int64))
    if not sum(map(len, columns[0])):
        return None
    rank, key, start_ns, end_ns, op = (np.concatenate(column) for column in columns)
    return rank, np.unique(key, return_inverse=True)[1], start_ns, end_ns, op


def _is_comparable(ops: np.ndarray) -> np.ndarray:
    is_whole = (ops["start_ns"] > 0) & (ops["end_ns"] > 0)
    has_data = (ops["size_bytes"] > 0) | (ops["op"] == Op.BARRIER)
    mask: np.ndarray = (
        is_whole & has_data & (ops["kind"] == RecordKind.COLLECTIVE)
        & _IS_SYNCHRONISING[ops["op"]] & _IS_OWN_STAMP[ops["timing_source"]]
        & (ops["flags"] & OpFlag.COALESCED == 0) & (ops["clock_error_ns"] < UNBOUNDED_NS)
    )  # fmt: skip
    return mask
