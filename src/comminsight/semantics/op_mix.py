"""What kinds of ops each communicator of one session carries: the evidence for its role.

Data are collectives and P2P ops above ``DATA_BYTES`` (in a session of nothing but small ones, above
``CONTROL_BYTES``), control ops those up to ``CONTROL_BYTES`` and barriers; what lies between is
neither. A group call that reaches three partners, or the caller itself, is an exchange among all
members, whatever the library made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from comminsight.model.event import take_rows
from comminsight.model.ops import P2P_OPS, DType, Op
from comminsight.model.records import is_op

CONTROL_BYTES = 64
DATA_BYTES = 512
_SMALL_JOB_BYTES = 65_536
_EXCHANGE_PARTNERS = 3
_AT_ONCE_RATIO = 0.1  # of the usual time between P2P ops
_P2P = tuple(P2P_OPS)
_FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
_INTEGERS = (DType.INT32, DType.UINT32, DType.INT64, DType.UINT64)
_COUNTS_BYTES = 65_536  # a number for each expert, not tokens
REDUCING = (Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Exchanges:
    """The exchanges of data among all members in order: bytes that this rank sent, begin and end.
    ``n_of_counts`` others carried counts only."""

    sizes: np.ndarray = field(default_factory=lambda: _NONE)
    starts_ns: np.ndarray = field(default_factory=lambda: _NONE)
    ends_ns: np.ndarray = field(default_factory=lambda: _NONE)
    n_of_counts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class OpMix:
    """The ops of one communicator as one session saw them, data unless stated otherwise.

    ``ways`` are (op, way) of P2P with way 1 to the next comm rank, -1 to the previous one, 2 to
    both (of two), 0 to another.
    ``overlap_ratio`` is the share of data that began before the one before it had ended.
    ``n_alone`` are calls with P2P in one direction only, ``n_both`` those with both at once.
    ``scattered`` and ``reduced`` are (bytes, dtype) of what is scattered and all-reduced.
    ``controls_at``, ``places`` and ``marks`` are row numbers: of control ops, of data collectives,
    and of what moves on one microbatch or layer (P2P and exchanges). ``ops``, ``sizes``,
    ``starts_ns`` and ``ends_ns`` go with ``places``.
    """

    comm_index: int
    size: int
    rank: int
    n_ops: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    controls: dict[tuple[int, bool], int] = field(default_factory=dict)
    n_repeated_control: int = 0
    overlap_ratio: float = 0.0
    ways: frozenset[tuple[int, int]] = frozenset()
    n_exchanges: int = 0
    exchanges: Exchanges = field(default_factory=Exchanges)
    n_alone: int = 0
    n_both: int = 0
    scattered: frozenset[tuple[int, int]] = frozenset()
    reduced: frozenset[tuple[int, int]] = frozenset()
    controls_at: np.ndarray = field(default_factory=lambda: _NONE)
    places: np.ndarray = field(default_factory=lambda: _NONE)
    ops: np.ndarray = field(default_factory=lambda: _NONE)
    sizes: np.ndarray = field(default_factory=lambda: _NONE)
    starts_ns: np.ndarray = field(default_factory=lambda: _NONE)
    ends_ns: np.ndarray = field(default_factory=lambda: _NONE)
    marks: np.ndarray = field(default_factory=lambda: _NONE)

    @property
    def n_data(self) -> int:
        """Data collectives, exchanges left out."""
        return len(self.places)

    @property
    def has_p2p(self) -> bool:
        """Whether there is P2P between single partners."""
        return bool(self.ways)

    @property
    def is_control_only(self) -> bool:
        """Nothing but numbers and barriers."""
        return not (self.n_data or self.has_p2p or self.n_exchanges) and bool(self.controls)


def op_mixes(
    rows: np.ndarray, comm_index: np.ndarray, sizes: np.ndarray, ranks: np.ndarray
) -> list[OpMix]:
    """One mix per communicator that has ops in ``rows`` (``OP_DTYPE``, in order of their start).

    ``comm_index`` is each row's entry in ``sizes`` and ``ranks``, 0 where unknown; those are left
    out.
    """
    known = np.flatnonzero(is_op(rows) & (comm_index > 0))
    order = known[np.argsort(comm_index[known], kind="stable")]
    numbers, firsts = np.unique(comm_index[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(order)][: len(firsts)]
    is_small = int(rows["size_bytes"][known].max(initial=0)) <= _SMALL_JOB_BYTES
    least = CONTROL_BYTES if is_small else DATA_BYTES
    return [
        _mix(number, int(sizes[number]), int(ranks[number]), rows, order[first:end], least)
        for number, first, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True)
    ]


def _mix(
    comm_index: int, size: int, rank: int, rows: np.ndarray, places: np.ndarray, least_bytes: int
) -> OpMix:
    own = take_rows(rows, places)
    op, size_bytes = np.ascontiguousarray(own["op"]), np.ascontiguousarray(own["size_bytes"])
    is_p2p = np.isin(op, _P2P)
    call_of = _exchange_of(own, is_p2p, rank)
    is_exchange = call_of >= 0
    is_control = ((size_bytes <= CONTROL_BYTES) | (op == Op.BARRIER)) & ~is_p2p & ~is_exchange
    is_large = size_bytes > least_bytes
    is_data = is_large & ~is_p2p & ~is_exchange
    controls = _controls(own[is_control])
    ways = own[is_p2p & is_large & ~is_exchange]
    n_alone, n_both = _group_calls(ways)
    data = op[is_data]
    return OpMix(
        comm_index=comm_index, size=size, rank=rank, n_ops=len(own), counts=_counted(data),
        controls=controls, n_repeated_control=max(controls.values(), default=0),
        overlap_ratio=_overlap_ratio(own[is_data]),
        ways=_ways(ways, size, rank),
        n_exchanges=int(call_of.max(initial=-1)) + 1,
        exchanges=_exchanges(own[is_exchange], call_of[is_exchange]),
        n_alone=n_alone, n_both=n_both,
        scattered=_messages(own[is_data & (op == Op.REDUCE_SCATTER)]),
        reduced=_messages(own[is_data & (op == Op.ALL_REDUCE)]),
        controls_at=places[is_control],
        places=places[is_data], ops=data.astype(np.int64), sizes=size_bytes[is_data],
        starts_ns=own["start_ns"][is_data], ends_ns=own["end_ns"][is_data],
        marks=places[is_large & (is_p2p | is_exchange)],
    )  # fmt: skip


def _messages(own: np.ndarray) -> frozenset[tuple[int, int]]:
    return frozenset(zip(own["size_bytes"].tolist(), own["dtype"].tolist(), strict=True))


def _counted(values: np.ndarray) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _controls(own: np.ndarray) -> dict[tuple[int, bool], int]:
    """How often each (op, is it on floats) of the control ops occurs."""
    is_float = np.isin(own["dtype"], _FLOATS)
    keys = own["op"].astype(np.int64) * 2 + is_float
    return {(key >> 1, bool(key & 1)): n for key, n in _counted(keys).items()}


def _exchange_of(own: np.ndarray, is_p2p: np.ndarray, rank: int) -> np.ndarray:
    """The number of the exchange among all members that each op belongs to, -1 for none."""
    calls = np.where(own["op"] == Op.ALL_TO_ALL, -2 - np.arange(len(own)), -1)
    grouped = np.flatnonzero(is_p2p & (own["group_id"] > 0))
    if len(grouped):
        group, peer = own["group_id"][grouped].astype(np.int64), own["peer_or_root"][grouped]
        pairs = np.unique(group << 32 | (peer.astype(np.int64) & 0xFFFFFFFF))
        groups, n_partners = np.unique(pairs >> 32, return_counts=True)
        fans = np.union1d(groups[n_partners >= _EXCHANGE_PARTNERS], group[peer == rank])
        is_fan = np.isin(group, fans)
        calls[grouped[is_fan]] = group[is_fan]
    belongs = np.flatnonzero(calls != -1)
    _, firsts, which = np.unique(calls[belongs], return_index=True, return_inverse=True)
    numbers = np.full(len(own), -1, np.int64)
    numbers[belongs] = np.argsort(np.argsort(firsts))[which]
    return numbers


def _exchanges(own: np.ndarray, number: np.ndarray) -> Exchanges:
    """The exchanges that these ops are, by their number."""
    n = int(number.max(initial=-1)) + 1
    sent = np.where(own["op"] == Op.RECV, 0, own["size_bytes"])
    sizes, starts_ns, ends_ns = np.zeros((3, n), np.int64)
    starts_ns[:] = np.iinfo(np.int64).max
    np.add.at(sizes, number, sent)
    np.minimum.at(starts_ns, number, own["start_ns"])
    np.maximum.at(ends_ns, number, own["end_ns"])
    is_integer = np.zeros(n, np.bool_)
    is_integer[number] = np.isin(own["dtype"], _INTEGERS)
    is_count = is_integer & (sizes <= _COUNTS_BYTES)
    return Exchanges(
        sizes[~is_count], starts_ns[~is_count], ends_ns[~is_count], int(np.count_nonzero(is_count))
    )


def _group_calls(p2p: np.ndarray) -> tuple[int, int]:
    """Calls with sends or receives only, and with both: by group call, or by time where the library
    counts none."""
    is_send = p2p["op"] == Op.SEND
    groups = p2p["group_id"].astype(np.int64)
    if len(p2p) > 1 and not groups.any():
        gaps_ns = np.diff(p2p["start_ns"])
        groups = np.cumsum(np.append(0, gaps_ns > _AT_ONCE_RATIO * np.quantile(gaps_ns, 0.75)))
    else:  # beside group calls those without a group stand alone
        groups = np.where(groups > 0, groups, -1 - np.arange(len(p2p)))
    _, n_kinds = np.unique(np.unique(groups << 1 | is_send) >> 1, return_counts=True)
    return int(np.count_nonzero(n_kinds == 1)), int(np.count_nonzero(n_kinds > 1))


def _ways(p2p: np.ndarray, size: int, rank: int) -> frozenset[tuple[int, int]]:
    pairs = set(zip(p2p["op"].tolist(), p2p["peer_or_root"].tolist(), strict=True))
    return frozenset((op, _way(peer, size, rank)) for op, peer in pairs if peer >= 0)


def _way(peer: int, size: int, rank: int) -> int:
    if size == 2:  # next and previous are one
        return 2
    offset = (peer - rank) % max(size, 1)
    return 1 if offset == 1 else -1 if offset == size - 1 else 0


def _overlap_ratio(data: np.ndarray) -> float:
    overlaps = data["start_ns"][1:] < data["end_ns"][:-1]
    return float(overlaps.mean()) if len(overlaps) else 0.0
