"""Ops to small integers: one class per set of template positions that an op satisfies.

All predicates of a template are evaluated once, when it is compiled, over a grid of (role, op,
dtype, peer direction) times size class times count class; a size class is an interval between the
bounds that occur in the predicates. Per batch only lookups are left: no predicate runs per op.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from comminsight.model.ops import Op
from comminsight.semantics.comm_table import ROLE_CODE, ROLES, CommTable
from comminsight.semantics.template import ANY, Peer, Position, Symbol

N_OPS = 16  # op codes told apart
N_DTYPES = 32
PEERS = (Peer.ANY, Peer.NEXT, Peer.PREVIOUS)  # by the numbers of ``directions``
_N_ROLES = len(ROLES)
_SEND, _RECV = int(Op.SEND), int(Op.RECV)  # plain: numpy compares enumerations slowly
_FEW_BOUNDS = 8  # up to here comparisons beat a binary search
# by op code: whether the job fixes how much it moves; transfers and exchanges follow the tokens
IS_OF_FIXED_SIZE = np.isin(
    np.arange(256),
    (Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER, Op.ALL_GATHER, Op.GATHER, Op.BROADCAST),
)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Class boundaries along the two numeric axes, and which optional axes are used at all."""

    sizes: np.ndarray
    counts: np.ndarray
    has_dtype: bool
    has_peer: bool


class Columns(NamedTuple):
    """Of each op: its row of the communicator table, ``role code * N_OPS + op`` (u2), and its size
    in bytes."""

    comm: np.ndarray
    role_op: np.ndarray
    size_bytes: np.ndarray


def columns_of(rows: np.ndarray, comms: CommTable) -> Columns:
    """What every coder needs of these ops (``OP_DTYPE``)."""
    index = comms.clip(np.ascontiguousarray(rows["comm_index"]))
    code = comms.roles.take(index).astype(np.uint16)
    code *= N_OPS
    code += np.minimum(rows["op"], N_OPS - 1)
    return Columns(index, code, np.ascontiguousarray(rows["size_bytes"]))


class SymbolCoder:
    """Compiled predicates: ops to classes; ``fits[class, position]`` is what a class means."""

    __slots__ = ("_grid", "_kind_of_code", "_of_kind", "fits")

    def __init__(self, positions: tuple[Position, ...]) -> None:
        self._grid, self._kind_of_code, self._of_kind, self.fits = _compiled(positions)

    @property
    def n_classes(self) -> int:
        """Number of classes; ``encode`` gives numbers below it."""
        return len(self.fits)

    def encode(
        self, rows: np.ndarray, comms: CommTable, columns: Columns | None = None
    ) -> np.ndarray:
        """Class of each op (u2, same length as ``rows``); ``columns`` saves reading them again."""
        index, code, size_bytes = columns or columns_of(rows, comms)
        if self._grid.has_dtype:
            code = code * N_DTYPES
            code += np.minimum(rows["dtype"], N_DTYPES - 1)
        if self._grid.has_peer:
            code = code * len(PEERS)
            code += directions(rows, index, comms)
        flat = self._kind_of_code.take(code).astype(np.int64)
        for bounds, values in ((self._grid.sizes, size_bytes), (self._grid.counts, rows["count"])):
            if len(bounds):
                flat *= len(bounds) + 1
                flat += _interval(np.ascontiguousarray(values), bounds)
        classes: np.ndarray = self._of_kind.reshape(-1).take(flat)
        return classes


@lru_cache(maxsize=256)  # a session tries all templates several times, a worker many sessions
def _compiled(
    positions: tuple[Position, ...],
) -> tuple[_Grid, np.ndarray, np.ndarray, np.ndarray]:
    """(grid, kind of each code, class of each cell, ``fits``); nobody writes to them."""
    symbols = tuple(symbol for position in positions for symbol in position)
    grid = _grid_of(symbols)
    kinds, kind_of_code = _unique_columns(np.array([_fits_code(s, grid) for s in symbols]))
    by_size = np.array([_fits_size(symbol, grid.sizes) for symbol in symbols])
    by_count = np.array([_fits_count(symbol, grid.counts) for symbol in symbols])
    one_by_one = kinds[:, :, None, None] & by_size[:, None, :, None] & by_count[:, None, None, :]
    per_position = np.array(_any_per_position(positions, one_by_one.reshape(len(symbols), -1)))
    meanings, classes = _unique_columns(per_position)
    fits = np.ascontiguousarray(meanings.T)
    of_kind = classes.reshape(one_by_one.shape[1:])
    for shared in (kind_of_code, of_kind, fits):
        shared.flags.writeable = False
    return grid, kind_of_code, of_kind, fits


def _grid_of(symbols: tuple[Symbol, ...]) -> _Grid:
    sizes = {symbol.min_bytes for symbol in symbols if symbol.min_bytes > 0}
    sizes |= {symbol.max_bytes + 1 for symbol in symbols if symbol.max_bytes != ANY}
    counts = {symbol.count + step for symbol in symbols if symbol.count != ANY for step in (0, 1)}
    return _Grid(
        np.array(sorted(sizes), np.int64),
        np.array(sorted(counts), np.int64),
        any(symbol.dtypes for symbol in symbols),
        any(symbol.peer for symbol in symbols),
    )


def _fits_code(symbol: Symbol, grid: _Grid) -> np.ndarray:
    roles = _mask([ROLE_CODE[role] for role in symbol.roles], _N_ROLES)
    axes = [roles, _mask([int(op) for op in symbol.ops], N_OPS)]
    if grid.has_dtype:
        axes.append(_mask([int(dtype) for dtype in symbol.dtypes], N_DTYPES))
    if grid.has_peer:
        axes.append(_mask([PEERS.index(symbol.peer)] if symbol.peer else [], len(PEERS)))
    fits = axes[0]
    for axis in axes[1:]:
        fits = (fits[:, None] & axis[None, :]).reshape(-1)
    return fits


def _mask(members: list[int], length: int) -> np.ndarray:
    mask = np.full(length, not members)
    mask[members] = True
    return mask


def _fits_size(symbol: Symbol, bounds: np.ndarray) -> np.ndarray:
    lower = np.concatenate([[np.iinfo(np.int64).min], bounds])
    fits: np.ndarray = (
        lower >= symbol.min_bytes if symbol.min_bytes > 0 else np.full(len(lower), True)
    )
    return fits if symbol.max_bytes == ANY else fits & (lower <= symbol.max_bytes)


def _fits_count(symbol: Symbol, bounds: np.ndarray) -> np.ndarray:
    lower = np.concatenate([[np.iinfo(np.int64).min], bounds])
    fits: np.ndarray = np.full(len(lower), True) if symbol.count == ANY else lower == symbol.count
    return fits


def _any_per_position(positions: tuple[Position, ...], fits: np.ndarray) -> list[np.ndarray]:
    ends = np.cumsum([len(position) for position in positions])
    parts = np.split(fits, ends[:-1])
    return [np.logical_or.reduce(part) for part in parts]


def _unique_columns(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct columns of a truth table, and which of them each column is."""
    packed = np.packbits(table, axis=0).T.copy()
    keys = packed.view(f"V{packed.shape[1]}").reshape(-1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return table[:, first], inverse.reshape(-1).astype(np.uint16)


def _interval(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    if len(bounds) > _FEW_BOUNDS:
        return np.searchsorted(bounds, values, side="right")
    index = np.zeros(len(values), np.uint8)
    for bound in bounds.tolist():
        index += values >= bound
    return index


def directions(rows: np.ndarray, index: np.ndarray, comms: CommTable) -> np.ndarray:
    """1 where the peer is the communicator's next rank, 2 where it is the previous one; else 0."""
    peer = rows["peer_or_root"]
    rank, size = comms.ranks.take(index), np.maximum(comms.sizes.take(index), 1)
    is_p2p = ((rows["op"] == _SEND) | (rows["op"] == _RECV)) & (peer >= 0) & (rank >= 0)
    forward = (peer - rank) % size
    is_pair = size == 2  # both ways round lead to the only peer: larger ranks count as next
    is_next = is_p2p & (forward == 1) & (~is_pair | (peer > rank))
    is_previous = is_p2p & (forward == size - 1) & ~is_next
    return np.where(is_next, 1, np.where(is_previous, 2, 0)).astype(np.uint16)
