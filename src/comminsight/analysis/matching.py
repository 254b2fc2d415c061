"""The same op on all its members: instances of collectives and P2P ops within a window.

A collective is the nth of its communicator (``match_seq``); a P2P op is the nth between an ordered
pair of members: the sender's nth SEND to j meets j's nth RECV from it. A broadcast root or a sender
may run ahead of its partners; matching does not look at times. Replays of a captured graph meet
replays: they are numbered apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.columns import OpColumns
from comminsight.model.ops import Op, RecordKind
from comminsight.model.topology import Communicator


def op_table(ops: Sequence[Op]) -> np.ndarray:
    """``[op]`` -> is it one of these, ``(256,)`` bool: cheaper than ``np.isin``."""
    table = np.zeros(256, bool)
    table[[int(op) for op in ops]] = True
    return table


ROOTED_OPS = (Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER)
UNEVEN_OPS = (Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER)  # members' sizes may differ by right
IS_ROOTED, IS_UNEVEN = op_table(ROOTED_OPS), op_table(UNEVEN_OPS)
_MAX_SPREAD = 16  # table entries per row up to which a table is cheaper than a sort


@dataclass(frozen=True, slots=True)
class Instances:
    """Op instances of a window: ``instance[i]`` is the dense id of row ``i`` of ``ops``.

    ``start_ns`` and ``end_ns`` are the instants to reason with; an end that was not seen reads as
    the begin. ``expected`` is the number of members an instance should have, 0 where unknown.
    ``n_members`` counts those present. ``is_mismatched``: members disagree on op, size, dtype,
    reduction or root. ``is_evidence`` is false where the members' clocks cannot be compared, or
    nobody knows when one of them ran.
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

    @property
    def n_incomparable(self) -> int:
        """Instances whose members' instants cannot be compared: no pair of them is a wait."""
        return int(np.count_nonzero(~self.is_evidence))


def match_ops(ops: OpColumns, n_ranks: int, communicators: Sequence[Communicator]) -> Instances:
    """Instances of a window: same communicator, kind and ``match_seq`` (and pair, for P2P),
    replayed from a graph or not.

    O(n log n) in the number of rows. A rank that appears twice in an instance counts once. A P2P op
    without one known partner stands alone: nothing tells whom it met.
    """
    is_p2p_row = (ops.kind == RecordKind.P2P) & ~ops.is_peerless
    instance, n = _instance_ids(ops, is_p2p_row)
    first = np.zeros(n, np.int64)
    first[instance[::-1]] = np.arange(ops.n_ops - 1, -1, -1)
    sizes = np.array([c.comm_size for c in communicators] or [0], np.int64)
    is_p2p = is_p2p_row[first]
    expected = np.where(is_p2p, 2, sizes[ops.comm_id[first]])
    expected[(ops.is_folded | ops.is_peerless)[first]] = 0
    domain = ops.clock_domain
    is_incomparable = (domain != domain[first][instance]) | ops.is_untimed
    return Instances(
        ops=ops,
        n_ranks=n_ranks,
        instance=instance,
        start_ns=ops.start_ns,
        end_ns=np.maximum(ops.start_ns, ops.end_ns),
        n_members=_member_counts(instance, ops.rank, n, max(n_ranks, 1)),
        expected=expected,
        is_p2p=is_p2p,
        is_mismatched=_mismatched(ops, instance, first),
        is_evidence=~_any(is_incomparable, instance, n),
    )


def _dense(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Ranks of the keys among their distinct values, and how many those are.

    By direct addressing where the keys lie close together, else by sorting.
    """
    if len(keys) == 0:
        return np.zeros(0, np.int64), 0
    low, high = int(keys.min()), int(keys.max())
    if high - low > _MAX_SPREAD * len(keys):
        distinct, dense = np.unique(keys, return_inverse=True)
        return dense, len(distinct)
    offset = keys - low
    is_used = np.zeros(high - low + 1, bool)
    is_used[offset] = True
    dense = np.cumsum(is_used) - 1
    return dense[offset], int(dense[-1]) + 1


def _instance_ids(ops: OpColumns, is_p2p_row: np.ndarray) -> tuple[np.ndarray, int]:
    """Dense instance id per row, in the order of (channel, match_seq), and their number; rows
    without a partner follow, each by itself."""
    sends = ops.op == Op.SEND
    sender = np.where(is_p2p_row, np.where(sends, ops.comm_rank, ops.peer) + 1, 0)
    receiver = np.where(is_p2p_row, np.where(sends, ops.peer, ops.comm_rank) + 1, 0)
    width = int(max(sender.max(initial=0), receiver.max(initial=0))) + 1
    pair = np.where(is_p2p_row, 1 + sender * width + receiver, 0)
    folded = ops.is_folded.astype(np.int64)  # coalesced collectives meet each other only
    apart = folded * 2 + ops.is_replay
    channel, n_channels = _dense((ops.comm_id * (width * width + 1) + pair) * 4 + apart)
    lowest = np.full(n_channels, np.iinfo(np.int64).max)
    np.minimum.at(lowest, channel, ops.match_seq)
    nth = ops.match_seq - lowest[channel]
    length = np.zeros(n_channels, np.int64)
    np.maximum.at(length, channel, nth + 1)
    ids, n = _dense((np.cumsum(length) - length)[channel] + nth)
    if not ops.is_peerless.any():
        return ids, n
    return _dense(np.where(ops.is_peerless, n + np.arange(len(ids)), ids))


def _member_counts(instance: np.ndarray, rank: np.ndarray, n: int, n_ranks: int) -> np.ndarray:
    """Distinct ranks per instance."""
    member = instance * n_ranks + rank
    if _dense(member)[1] == len(member):
        return np.bincount(instance, minlength=n)
    return np.bincount(np.unique(member) // n_ranks, minlength=n)


def _any(flag: np.ndarray, instance: np.ndarray, n_instances: int) -> np.ndarray:
    """Per instance: does any of its rows carry the flag?"""
    if not flag.any():
        return np.zeros(n_instances, bool)
    return np.bincount(instance[flag], minlength=n_instances) > 0


def _mismatched(ops: OpColumns, instance: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Per instance: does a member differ from the first one in its signature?"""
    reference = first[instance]
    is_collective = ops.kind == RecordKind.COLLECTIVE
    is_even, is_rooted = ~IS_UNEVEN[ops.op], IS_ROOTED[ops.op]
    differs = ops.dtype != ops.dtype[reference]
    differs |= is_even & (ops.size_bytes != ops.size_bytes[reference])
    differs |= is_rooted & is_collective & (ops.peer != ops.peer[reference])
    differs |= is_collective & (ops.op != ops.op[reference])
    differs |= is_collective & (ops.red_op != ops.red_op[reference])
    return _any(differs & ~ops.is_folded, instance, len(first))
