"""Hot columns of many ranks' ops: what analysis computes with, instead of records.

Columns are cut for one step at a time, from all ranks at once: memory follows the step and not the
length of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import align_rows
from comminsight.model.event import concatenate_rows, take_rows
from comminsight.model.ops import OpFlag, TimingSource
from comminsight.model.records import is_peerless, is_replay, is_untimed
from comminsight.model.topology import Communicator
from comminsight.model.trace import ClockOffsets, RankTrace

_COPIED = ("match_seq", "size_bytes", "kind", "op", "dtype", "red_op")
MAX_SLIP_NS = 1_000_000  # where nothing bounds the mapping of GPU stamps
_TIMES = ("enqueue_ns", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True)
class OpColumns:
    """Hot columns of many ranks' ops, one row per op of a rank; all arrays are ``(n_ops,)``.

    ``rank`` indexes the caller's rank list. Times are on the run's clock. ``peer`` is the partner
    or root (comm-local). ``clock_domain`` is -1 for aligned nodes, else the number of a node whose
    clock stands alone. ``is_end_bound``: the end was seen when somebody waited, which may be long
    after it. ``is_peerless``: a P2P without one known partner. ``is_untimed``: only the call was
    seen, ``start_ns`` is when it was enqueued. ``is_replay``: of a captured graph. ``row`` is the
    row in the rank's ``RankTrace.ops``.

    Stamps of the GPU are not among them: those of two GPUs cannot be compared, and ``start_ns`` and
    ``end_ns`` are the GPU's already, on the host's clock, where the record has them.
    """

    rank: np.ndarray
    row: np.ndarray
    comm_id: np.ndarray
    comm_rank: np.ndarray
    peer: np.ndarray
    match_seq: np.ndarray
    size_bytes: np.ndarray
    kind: np.ndarray
    op: np.ndarray
    dtype: np.ndarray
    red_op: np.ndarray
    is_end_bound: np.ndarray
    is_folded: np.ndarray
    is_peerless: np.ndarray
    is_untimed: np.ndarray
    is_replay: np.ndarray
    enqueue_ns: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    clock_domain: np.ndarray

    @property
    def n_ops(self) -> int:
        """Number of rows."""
        return len(self.rank)

    def take(self, rows: np.ndarray | slice) -> OpColumns:
        """The given rows, in their order."""
        return OpColumns(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class OpSource:
    """One session's ops and what is needed to read them on the run's terms.

    ``rank`` indexes the caller's rank list. ``comm_ids[comm_index]`` is -1 for a communicator that
    is not known, ``comm_ranks[comm_index]`` the session's own place in it, -1 where unknown.
    """

    trace: RankTrace
    rank: int
    comm_ids: np.ndarray
    comm_ranks: np.ndarray
    offset_ns: int
    clock_domain: int


Cut = tuple[OpSource, int, int]  # rows begin : end of a session


def op_source(
    trace: RankTrace,
    rank: int,
    communicators: Sequence[Communicator],
    clocks: ClockOffsets,
    clock_domain: int = -1,
) -> OpSource:
    """The session as a source of columns, on the clock that ``clocks`` gives."""
    comm_ids = trace.comm_ids.astype(np.int64)
    places = [
        communicators[comm_id].members.index(trace.global_rank)
        if comm_id >= 0 and trace.global_rank in communicators[comm_id].members
        else -1
        for comm_id in comm_ids.tolist()
    ]
    return OpSource(
        trace=trace,
        rank=rank,
        comm_ids=comm_ids,
        comm_ranks=np.array(places, np.int64),
        offset_ns=clocks.offset_ns.get(trace.session.boot_id, 0),
        clock_domain=clock_domain,
    )


def cut_columns(cuts: Sequence[Cut]) -> OpColumns:
    """Columns of all cuts, one after the other; ops of unknown communicators are left out."""
    ops = concatenate_rows([source.trace.ops[begin:end] for source, begin, end in cuts])
    counts = np.array([end - begin for _, begin, end in cuts], np.int64)
    cut = np.repeat(np.arange(len(cuts)), counts)
    first = np.array([begin for _, begin, _ in cuts], np.int64)
    row = np.arange(len(ops)) + (first - np.cumsum(counts) + counts)[cut]
    comm_id, comm_rank = _communicators(cuts, cut, ops)
    known = np.flatnonzero(comm_id >= 0)
    if len(known) < len(ops):
        ops, cut, row = take_rows(ops, known), cut[known], row[known]
        comm_id, comm_rank = comm_id[known], comm_rank[known]

    def per_cut(values: Sequence[int]) -> np.ndarray:
        return np.array(values, np.int64)[cut]

    offset_ns = per_cut([source.offset_ns for source, _, _ in cuts])
    times = {name: align_rows(ops[name].astype(np.int64), offset_ns) for name in _TIMES}
    times["end_ns"] = settled_ends(ops, cut, times["start_ns"], times["end_ns"])
    is_end_bound = (ops["flags"] & OpFlag.ASYNC) != 0
    is_end_bound |= ops["timing_source"] == TimingSource.HOST_WAIT
    return OpColumns(
        rank=per_cut([source.rank for source, _, _ in cuts]),
        row=row,
        comm_id=comm_id,
        comm_rank=comm_rank,
        peer=ops["peer_or_root"].astype(np.int64),
        is_end_bound=is_end_bound,
        is_folded=ops["n_folded"] > 1,
        is_peerless=is_peerless(ops),
        is_untimed=is_untimed(ops),
        is_replay=is_replay(ops),
        clock_domain=per_cut([source.clock_domain for source, _, _ in cuts]),
        **{name: ops[name].astype(np.int64) for name in _COPIED},
        **times,
    )


def settled_ends(
    ops: np.ndarray, cut: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray
) -> np.ndarray:
    """The ends, none of them a little after the start of the next op on the same stream.

    Each GPU stamp is mapped to the host by what was known then, so that two kernels that ran one
    after the other may seem to overlap. Overlap within the error of the mapping is none; a stream
    that is not told is that of the communicator, whose kernels run one after the other.
    """
    rows = np.flatnonzero(ops["timing_source"] == TimingSource.GPU)
    if len(rows) < 2:
        return end_ns
    stream = ops["stream_id"].astype(np.int64)
    stream = np.where(stream > 0, stream, -1 - ops["comm_index"].astype(np.int64))
    rows = rows[np.lexsort((start_ns[rows], stream[rows], cut[rows]))]
    this, following = rows[:-1], rows[1:]
    is_same = (cut[this] == cut[following]) & (stream[this] == stream[following])
    error_ns = np.minimum(ops["clock_error_ns"].astype(np.int64), MAX_SLIP_NS)
    overlap_ns = end_ns[this] - start_ns[following]
    is_slip = is_same & (overlap_ns > 0) & (start_ns[following] > start_ns[this])
    is_slip &= overlap_ns <= np.maximum(error_ns[this], error_ns[following])
    settled = end_ns.copy()
    settled[this[is_slip]] = start_ns[following[is_slip]]
    return settled


def _communicators(
    cuts: Sequence[Cut], cut: np.ndarray, ops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(comm_id, own place) of every row; -1 outside of the session's table."""
    sizes = np.array([len(source.comm_ids) for source, _, _ in cuts], np.int64)
    bases = np.cumsum(sizes) - sizes
    comm_index = ops["comm_index"].astype(np.int64)
    nowhere = int(sizes.sum())
    place = np.where(comm_index < sizes[cut], bases[cut] + comm_index, nowhere)
    absent = np.array([-1])
    comm_ids = np.concatenate([*(source.comm_ids for source, _, _ in cuts), absent])
    comm_ranks = np.concatenate([*(source.comm_ranks for source, _, _ in cuts), absent])
    return comm_ids[place], comm_ranks[place]
