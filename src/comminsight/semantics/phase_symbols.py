"""What an op tells about the part of a step that it stands in, as one number per op.

The low byte is the symbol. Sends and receives of a pipeline carry the place of this rank in their
communicator above it, gradients reduced or scattered a weight that stands for their bytes and adds
up as they do, so that a rule needs nothing but the numbers of a step.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.comm_table import ROLES, CommTable
from comminsight.semantics.symbols import N_OPS, Columns

SCALAR_MAX_BYTES = 16  # a norm, an overflow flag, a loss: never a gradient
LOSS_MAX_BYTES = 65_536  # a number per token: of the cross entropy, where activations are larger
SMALL_MAX_BYTES = 8192  # a norm per parameter tensor, or a small gradient: the step decides
_RANK_SHIFT, _SIZE_SHIFT, _MAX_SIZE = 8, 20, 0xFFF
_WEIGHT_SHIFT = 8
N_WEIGHTS = 16_777_213  # the largest prime of 24 bits: bytes are often powers of two
_BYTES_PER_WEIGHT = 2  # the smallest element of gradients


class Sign(IntEnum):
    """The symbol of one op."""

    OTHER = 0
    GATHER = 1  # parameters, over the data parallel ranks
    SCATTER = 2  # gradients, to their owners
    REDUCE = 3  # gradients, to all
    REDUCE_ROOT = 4  # gradients, one owner at a time
    SMALL = 5  # all-reduce of at most 8 KiB over the data parallel ranks
    SCALAR = 6  # all-reduce of at most 16 bytes, outside tensor, context and expert groups
    INNER = 7  # inside a layer: tensor, context, expert parallel
    INNER_SCATTER = 8  # of sequence parallel
    INNER_REDUCE = 15  # over the tensor parallel ranks
    LOSS = 16  # the same of at most 64 KiB
    BATCH = 9  # broadcast of a batch to the tensor parallel ranks
    RECV_PREVIOUS = 10  # activations
    SEND_NEXT = 11
    RECV_NEXT = 12  # gradients of activations
    SEND_PREVIOUS = 13
    P2P_UNKNOWN = 14  # between ranks whose order is not known


# plain numbers: numpy compares enumerations slowly
_REDUCE, _SMALL, _SCALAR = int(Sign.REDUCE), int(Sign.SMALL), int(Sign.SCALAR)
_SCATTER = int(Sign.SCATTER)
_INNER_REDUCE, _LOSS, _MESSAGE = int(Sign.INNER_REDUCE), int(Sign.LOSS), int(Sign.P2P_UNKNOWN)
_UNKNOWN_MESSAGE = np.uint32(_MESSAGE)
_RECEIVE = int(Op.RECV)
SIGN_MASK = 0x7F
ON_DEFAULT_GROUP = 0x80  # a message between neighbours of the default group
SENDS = frozenset({Sign.SEND_NEXT, Sign.SEND_PREVIOUS})
RECEIVES = frozenset({Sign.RECV_PREVIOUS, Sign.RECV_NEXT})
PIPELINE = SENDS | RECEIVES | {Sign.P2P_UNKNOWN}
INSIDE = frozenset({Sign.INNER, Sign.INNER_SCATTER, Sign.INNER_REDUCE, Sign.LOSS, Sign.BATCH})
REDUCED_INSIDE = frozenset({Sign.INNER_REDUCE, Sign.LOSS})
GRADIENTS = frozenset({Sign.SCATTER, Sign.REDUCE, Sign.REDUCE_ROOT})
_DATA_ROLES = {
    CommRole.GLOBAL, CommRole.DP, CommRole.DP_SHARD, CommRole.DP_REPLICATE, CommRole.EDP
}  # fmt: skip
_INNER_ROLES = {CommRole.TP, CommRole.CP, CommRole.EP}
_SCALAR_ROLES = {CommRole.MP, CommRole.DIST_OPT, CommRole.LOSS}
_DATA_SIGNS = {
    Op.ALL_GATHER: Sign.GATHER,
    Op.REDUCE_SCATTER: Sign.SCATTER,
    Op.ALL_REDUCE: Sign.REDUCE,
    Op.REDUCE: Sign.REDUCE_ROOT,
}
_TENSOR_SIGNS = {
    Op.BROADCAST: Sign.BATCH,
    Op.REDUCE_SCATTER: Sign.INNER_SCATTER,
    Op.ALL_REDUCE: Sign.INNER_REDUCE,
}
_P2P_SIGNS = np.array(
    [Sign.SEND_NEXT, Sign.SEND_PREVIOUS, Sign.RECV_NEXT, Sign.RECV_PREVIOUS], np.uint32
)


def phase_signs(rows: np.ndarray, comms: CommTable, columns: Columns) -> np.ndarray:
    """The number of each op (u4, same length as ``rows``, whose ``columns`` are given)."""
    signs: np.ndarray = _SIGN_OF_CODE.take(columns.role_op)
    size_bytes = columns.size_bytes
    small = np.flatnonzero(size_bytes <= LOSS_MAX_BYTES)
    if len(small):
        signs[small] = _small_signs(signs[small], size_bytes[small])
    messages = np.flatnonzero(signs == _MESSAGE)
    if len(messages):
        is_receive = columns.role_op[messages] % N_OPS == _RECEIVE
        peers = rows["peer_or_root"][messages]
        signs[messages] = _p2p_signs(columns.comm[messages], peers, is_receive, comms)
    gradients = np.flatnonzero((signs == _REDUCE) | (signs == _SMALL) | (signs == _SCATTER))
    if len(gradients):
        weights = size_bytes[gradients] // _BYTES_PER_WEIGHT % N_WEIGHTS
        signs[gradients] |= weights.astype(np.uint32) << _WEIGHT_SHIFT
    return signs


def _small_signs(signs: np.ndarray, size_bytes: np.ndarray) -> np.ndarray:
    is_reduce = signs == _REDUCE
    signs[is_reduce & (size_bytes <= SMALL_MAX_BYTES)] = _SMALL
    signs[is_reduce & (size_bytes <= SCALAR_MAX_BYTES)] = _SCALAR
    signs[signs == _INNER_REDUCE] = _LOSS
    return signs


def place_of(number: int) -> tuple[int, int]:
    """(rank, size) of this rank in the communicator of a pipeline op; size 0 for unknown."""
    return number >> _RANK_SHIFT & _MAX_SIZE, number >> _SIZE_SHIFT & _MAX_SIZE


def weight_of(number: int) -> int:
    """The weight of gradients reduced or scattered; sums of it agree, modulo ``N_WEIGHTS``, where
    sums of bytes do."""
    return number >> _WEIGHT_SHIFT


def _p2p_signs(
    index: np.ndarray, peers: np.ndarray, is_receive: np.ndarray, comms: CommTable
) -> np.ndarray:
    places, ranks, sizes = _places(comms), comms.ranks.take(index), comms.sizes.take(index)
    ahead = peers - ranks
    is_ring = sizes > 2
    is_next = (ahead == 1) | (is_ring & (ahead == 1 - sizes))
    is_previous = (ahead == -1) | (is_ring & (ahead == sizes - 1))
    place = places.take(index)
    is_known = (is_next | is_previous) & (peers >= 0) & (place > 0)
    return np.where(is_known, _P2P_SIGNS[is_receive * 2 + is_previous] | place, _UNKNOWN_MESSAGE)


def _places(comms: CommTable) -> np.ndarray:
    """Of each communicator that may be a pipeline: rank and size; 0 for others."""
    ranks, sizes = comms.ranks, comms.sizes
    is_default = comms.roles == _GLOBAL
    is_placed = is_default | (comms.roles == _PP)
    is_placed &= (ranks >= 0) & (sizes > 1) & (sizes <= _MAX_SIZE)
    flag = np.where(is_default, ON_DEFAULT_GROUP, 0)
    places: np.ndarray = np.where(is_placed, flag | ranks << _RANK_SHIFT | sizes << _SIZE_SHIFT, 0)
    return places.astype(np.uint32)


def _sign(role: CommRole, op: Op) -> Sign:
    if role in _INNER_ROLES:
        return _TENSOR_SIGNS.get(op, Sign.INNER) if role is CommRole.TP else Sign.INNER
    if op in {Op.SEND, Op.RECV}:
        return Sign.P2P_UNKNOWN
    if role in _DATA_ROLES:
        return _DATA_SIGNS.get(op, Sign.OTHER)
    return Sign.SCALAR if role in _SCALAR_ROLES and op is Op.ALL_REDUCE else Sign.OTHER


_OPS = frozenset(Op)
_PP, _GLOBAL = ROLES.index(CommRole.PP), ROLES.index(CommRole.GLOBAL)
_SIGN_OF_CODE = np.array(
    [[_sign(role, Op(op)) if op in _OPS else Sign.OTHER for op in range(N_OPS)] for role in ROLES],
    np.uint32,
).reshape(-1)
