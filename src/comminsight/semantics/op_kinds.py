"""Ops as small integers in three degrees of detail, the same integers on all ranks.

*CALL*: role, op and direction along the ranks. *SIZE_CLASS*: also element type and whether the
message is a number or two, a small vector, or data. *EXACT*: also element type and size. What
recurs in a job whose sizes change is seen in the coarser ones only.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np

from comminsight.model.ops import P2P_OPS, CommRole, DType, Op
from comminsight.semantics.comm_table import ROLES, CommTable
from comminsight.semantics.symbols import N_DTYPES, N_OPS, PEERS, columns_of, directions
from comminsight.semantics.template import ANY, Peer, Position, Symbol

NUMBERS_BYTES = 64
SMALL_BYTES = 8192
_CLASS_BOUNDS = np.array([NUMBERS_BYTES + 1, SMALL_BYTES + 1])
_CLASSES = ((0, NUMBERS_BYTES), (NUMBERS_BYTES + 1, SMALL_BYTES), (SMALL_BYTES + 1, ANY))
_SIZE_BITS = 44
_REDUCTIONS = frozenset({Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE})
_KNOWN_OPS = frozenset(Op)
_KNOWN_DTYPES = frozenset(DType) - {DType.UNKNOWN}
MODEL_PARALLEL = frozenset({CommRole.TP, CommRole.PP, CommRole.CP, CommRole.EP})


class Detail(IntEnum):
    """How much of an op its kind tells."""

    CALL = 0
    SIZE_CLASS = 1
    EXACT = 2


class Kind(NamedTuple):
    """What ops of one kind have in common; ``dtype`` 0 and ``max_bytes`` ANY leave it open."""

    detail: Detail
    role: CommRole
    op: int
    peer: Peer
    dtype: int
    min_bytes: int
    max_bytes: int

    @property
    def symbol(self) -> Symbol:
        """The predicate that fits exactly this kind."""
        return Symbol(
            roles=(self.role,),
            ops=(Op(self.op),) if self.op in _KNOWN_OPS else (),
            dtypes=(DType(self.dtype),) if self.dtype in _KNOWN_DTYPES else (),
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            peer=self.peer,
        )

    @property
    def is_p2p(self) -> bool:
        """Send or receive: known to two ranks only."""
        return self.op in P2P_OPS

    @property
    def is_large(self) -> bool:
        """Data, not numbers."""
        return self.min_bytes > SMALL_BYTES

    @property
    def is_gradient(self) -> bool:
        """A reduction of data over ranks that hold the same parameters."""
        return self.is_large and self.op in _REDUCTIONS and self.role not in MODEL_PARALLEL

    @property
    def is_control(self) -> bool:
        """A reduction of numbers over ranks that hold the same parameters, or over all."""
        is_small = 0 <= self.max_bytes <= SMALL_BYTES
        return is_small and self.op == Op.ALL_REDUCE and self.role not in MODEL_PARALLEL


class KindTable:
    """Numbers for kinds, given in the order of their first appearance."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self._numbers: dict[tuple[Detail, int], int] = {}

    def encode(self, rows: np.ndarray, comms: CommTable, detail: Detail) -> np.ndarray:
        """Number of each op's kind (int32, same length as ``rows``)."""
        keys, inverse = np.unique(_keys(rows, comms, detail), return_inverse=True)
        numbers = [self._number(detail, key) for key in keys.tolist()]
        codes: np.ndarray = np.array(numbers, np.int32)[inverse.reshape(-1)]
        return codes

    def label(self, codes: Iterable[int]) -> str:
        """The kinds as people read them."""
        return ", ".join(self.kinds[code].symbol.label for code in codes)

    def _number(self, detail: Detail, key: int) -> int:
        number = self._numbers.setdefault((detail, key), len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(_kind(detail, key))
        return number


def position_of(kinds: Iterable[Kind]) -> Position:
    """One position that fits each of the kinds and nothing else."""
    merged: dict[Symbol, list[Op]] = {}
    for symbol in dict.fromkeys(kind.symbol for kind in kinds):
        merged.setdefault(msgspec.structs.replace(symbol, ops=()), []).extend(symbol.ops)
    return tuple(msgspec.structs.replace(rest, ops=tuple(ops)) for rest, ops in merged.items())


def _keys(rows: np.ndarray, comms: CommTable, detail: Detail) -> np.ndarray:
    columns = columns_of(rows, comms)
    keys = columns.role_op.astype(np.int64) * len(PEERS) + directions(rows, columns.comm, comms)
    dtypes = np.minimum(rows["dtype"], N_DTYPES - 1) if detail > Detail.CALL else 0
    keys = keys * N_DTYPES + dtypes
    sizes = np.zeros(len(rows), np.int64)
    if detail is Detail.SIZE_CLASS:
        sizes = np.searchsorted(_CLASS_BOUNDS, rows["size_bytes"], side="right")
    elif detail is Detail.EXACT:
        sizes = np.clip(rows["size_bytes"], 0, (1 << _SIZE_BITS) - 1)
    combined: np.ndarray = (keys << _SIZE_BITS) | sizes
    return combined


def _kind(detail: Detail, key: int) -> Kind:
    rest, size = divmod(key, 1 << _SIZE_BITS)
    rest, dtype = divmod(rest, N_DTYPES)
    rest, peer = divmod(rest, len(PEERS))
    role, op = divmod(rest, N_OPS)
    low, high = (0, ANY) if detail is Detail.CALL else (size, size)
    if detail is Detail.SIZE_CLASS:
        low, high = _CLASSES[size]
    return Kind(detail, ROLES[role], op, PEERS[peer], dtype, low, high)
