"""The same op on all its members: instances of collectives and P2P ops within a window.

A collective is the nth of its communicator (``match_seq``); a P2P op is the nth between an ordered
pair of members: the sender's nth SEND to j meets j's nth RECV from it. A broadcast root or a sender
may run ahead of its partners; matching does not look at times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import align_column
from comminsight.model.ops import Op, OpFlag, RecordKind, TimingSource
from comminsight.model.topology import Communicator
from comminsight.model.trace import ClockOffsets, RankTrace

ROOTED_OPS = (Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER)
UNEVEN_OPS = (Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER)  # members' sizes may differ by right

_TIMES = ("enqueue_ns", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns")


@dataclass(frozen=True, slots=True)
class OpColumns:
    """Hot columns of many ranks' ops, one row per op of a rank; all arrays are ``(n_ops,)``.

    ``rank`` indexes the caller's rank list. Times are on the run's clock. ``peer`` is the partner
    or root (comm-local). ``clock_domain`` is -1 for aligned nodes, else the number of a node whose
    clock stands alone. ``is_end_bound``: the end was seen when somebody waited, which may be long
    after it. ``row`` is the row in the rank's ``RankTrace.ops``.
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
    enqueue_ns: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    gpu_start_ns: np.ndarray
    gpu_end_ns: np.ndarray
    clock_domain: np.ndarray

    @property
    def n_ops(self) -> int:
        """Number of rows."""
        return len(self.rank)

    def take(self, rows: np.ndarray | slice) -> OpColumns:
        """The given rows, in their order."""
        return OpColumns(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Instances:
    """Op instances of a window: ``instance[i]`` is the dense id of row ``i`` of ``ops``.

    ``start_ns`` and ``end_ns`` are the instants to reason with: GPU times where every member of
    the instance has them, else host times, never mixed within one instance. ``expected`` is the
    number of members an instance should have, 0 where unknown. ``n_members`` counts those present.
    ``is_mismatched``: members disagree on op, size, dtype, reduction or root.
    ``is_evidence`` is false where the members' clocks cannot be compared.
    """

    ops: OpColumns
    n_ranks: int
    instance: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    n_members: np.ndarray
    expected: np.ndarray
    is_p2p: np.ndarray
    is_mismatched: np.ndarray
    is_evidence: np.ndarray

    @property
    def n_instances(self) -> int:
        """Number of instances."""
        return len(self.n_members)

    @property
    def n_unpaired(self) -> int:
        """Send or recv halves without their partner."""
        return int(np.count_nonzero(self.is_p2p & (self.n_members < self.expected)))

    @property
    def n_incomplete(self) -> int:
        """Collective instances that lack a member."""
        return int(np.count_nonzero(~self.is_p2p & (self.n_members < self.expected)))

    @property
    def n_mismatched(self) -> int:
        """Instances whose members disagree."""
        return int(np.count_nonzero(self.is_mismatched))


def rank_columns(
    trace: RankTrace,
    rank: int,
    communicators: Sequence[Communicator],
    clocks: ClockOffsets,
    clock_domain: int = -1,
) -> OpColumns:
    """Hot columns of one session, aligned; ops of unknown communicators are left out."""
    ops = trace.ops
    comm_id = trace.comm_ids[ops["comm_index"]].astype(np.int64)
    row = np.flatnonzero(comm_id >= 0)
    ops, comm_id = ops[row], comm_id[row]
    boot_id = trace.session.boot_id
    times = {name: align_column(_column(ops, name), boot_id, clocks) for name in _TIMES}
    comm_rank = _comm_ranks(trace.global_rank, communicators)[comm_id]
    is_end_bound = (_column(ops, "flags") & OpFlag.ASYNC) != 0
    is_end_bound |= _column(ops, "timing_source") == TimingSource.HOST_WAIT
    return OpColumns(
        rank=np.full(len(row), rank, np.int64),
        row=row,
        comm_id=comm_id,
        comm_rank=comm_rank,
        peer=_column(ops, "peer_or_root"),
        match_seq=_column(ops, "match_seq"),
        size_bytes=_column(ops, "size_bytes"),
        kind=_column(ops, "kind"),
        op=_column(ops, "op"),
        dtype=_column(ops, "dtype"),
        red_op=_column(ops, "red_op"),
        is_end_bound=is_end_bound,
        is_folded=_column(ops, "n_folded") > 1,
        clock_domain=np.full(len(row), clock_domain, np.int64),
        **times,
    )


def join_columns(parts: Sequence[OpColumns]) -> OpColumns:
    """Rows of all parts, one after the other."""
    names = OpColumns.__slots__
    if not parts:
        dtypes = (bool if name.startswith("is_") else np.int64 for name in names)
        return OpColumns(*(np.empty(0, dtype) for dtype in dtypes))
    return OpColumns(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def match_ops(ops: OpColumns, n_ranks: int, communicators: Sequence[Communicator]) -> Instances:
    """Instances of a window: same communicator, kind and ``match_seq`` (and pair, for P2P).

    O(n log n) in the number of rows. A rank that appears twice in an instance counts once.
    """
    is_p2p_row = (ops.kind == RecordKind.P2P) & ~ops.is_folded
    instance, n = _instance_ids(ops, is_p2p_row)
    first = np.zeros(n, np.int64)
    first[instance[::-1]] = np.arange(ops.n_ops - 1, -1, -1)
    sizes = np.array([c.comm_size for c in communicators] or [0], np.int64)
    is_p2p = is_p2p_row[first]
    expected = np.where(is_p2p, 2, sizes[ops.comm_id[first]])
    expected[ops.is_folded[first]] = 0  # who takes part in a fan-out is not in the record
    members = np.unique(instance * max(n_ranks, 1) + ops.rank) // max(n_ranks, 1)
    domain = ops.clock_domain
    start_ns, end_ns = _instants(ops, instance, n)
    return Instances(
        ops=ops,
        n_ranks=n_ranks,
        instance=instance,
        start_ns=start_ns,
        end_ns=end_ns,
        n_members=np.bincount(members, minlength=n),
        expected=expected,
        is_p2p=is_p2p,
        is_mismatched=_mismatched(ops, instance, first),
        is_evidence=~_any(domain != domain[first][instance], instance, n),
    )


def _column(ops: np.ndarray, name: str) -> np.ndarray:
    return np.ascontiguousarray(ops[name].astype(np.int64))


def _comm_ranks(global_rank: int, communicators: Sequence[Communicator]) -> np.ndarray:
    """``[comm_id]`` -> place of the rank in the communicator, -1 where unknown."""
    places = (
        c.members.index(global_rank) if global_rank in c.members else -1 for c in communicators
    )
    return np.fromiter(places, np.int64, len(communicators))


def _instance_ids(ops: OpColumns, is_p2p_row: np.ndarray) -> tuple[np.ndarray, int]:
    """Dense instance id per row, in the order of (channel, match_seq), and their number."""
    sends = ops.op == Op.SEND
    sender = np.where(sends, ops.comm_rank, ops.peer) + 1
    receiver = np.where(sends, ops.peer, ops.comm_rank) + 1
    width = int(max(sender.max(initial=0), receiver.max(initial=0))) + 1
    pair = np.where(is_p2p_row, 1 + sender * width + receiver, 0)
    folded = ops.is_folded.astype(np.int64)  # fan-outs of one group call meet each other only
    channel = (ops.comm_id * (width * width + 1) + pair) * 2 + folded
    _, channel = np.unique(channel, return_inverse=True)
    keys, instance = np.unique((channel << 32) | ops.match_seq, return_inverse=True)
    return instance, len(keys)


def _any(flag: np.ndarray, instance: np.ndarray, n_instances: int) -> np.ndarray:
    """Per instance: does any of its rows carry the flag?"""
    return np.bincount(instance[flag], minlength=n_instances) > 0


def _instants(ops: OpColumns, instance: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end per row: GPU where all members of the instance have it, else host.

    An end that was not seen, or lies before the begin, reads as the begin.
    """
    no_gpu_start = _any(ops.gpu_start_ns == 0, instance, n)[instance]
    no_gpu_end = _any(ops.gpu_end_ns == 0, instance, n)[instance] | no_gpu_start
    start_ns = np.where(no_gpu_start, ops.start_ns, ops.gpu_start_ns)
    end_ns = np.where(no_gpu_end, ops.end_ns, ops.gpu_end_ns)
    return start_ns, np.maximum(start_ns, end_ns)


def _mismatched(ops: OpColumns, instance: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Per instance: does a member differ from the first one in its signature?"""
    reference = first[instance]
    is_collective = ops.kind == RecordKind.COLLECTIVE
    is_even = ~np.isin(ops.op, [int(op) for op in UNEVEN_OPS])
    is_rooted = np.isin(ops.op, [int(op) for op in ROOTED_OPS])
    differs = ops.dtype != ops.dtype[reference]
    differs |= is_even & (ops.size_bytes != ops.size_bytes[reference])
    differs |= is_rooted & is_collective & (ops.peer != ops.peer[reference])
    differs |= is_collective & (ops.op != ops.op[reference])
    differs |= is_collective & (ops.red_op != ops.red_op[reference])
    return _any(differs & ~ops.is_folded, instance, len(first))
