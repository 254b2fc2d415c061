"""Collectives that went through although their members had called something unlike.

Some libraries end such an op and leave wrong data behind. Members are compared at equal numbers of
one communicator, as far as every member's calls are known from its first one on. Only what has to
be equal is compared: the op; the root; sizes of reductions and broadcasts; element types, and where
an op only moves bytes those types only whose width differs. Numbers that had shifted would look
alike, so that a difference counts only

- between calls before and behind that are the same on all members,
- of one kind throughout, with the same ranks on each side,
- where the calls of either side are not those of the other at other numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from comminsight.analysis.matching import IS_ROOTED, op_table
from comminsight.model.call_history import CalledOp
from comminsight.model.event import take_rows
from comminsight.model.ops import Op, OpState, RecordKind
from comminsight.model.records import is_replay
from comminsight.model.topology import Communicator
from comminsight.model.trace import RankTrace, RunTrace

MAX_RUN = 64  # unlike calls in a row: more are two programs, not a call
MAX_SHIFT = 64  # calls by which numbers may have shifted
SHIFT_WINDOW = 2048  # calls in which that would show
MAX_UNLIKE_RATIO = 0.5  # of the calls: beyond it nothing tells that the same ones are compared

IS_SIZED = op_table((Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER, Op.BROADCAST))
IS_REDUCING = op_table((Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER))
IS_GATHERED = op_table((Op.ALL_GATHER,))  # of parts that may be uneven: widths tell all the same

FIELDS = ("op", "type", "root", "size")  # of a signature, in the order in which they are judged


class UnlikeIn(StrEnum):
    """What members had to pass alike and did not."""

    OP = "op"
    DTYPE = "dtype"
    ROOT = "root"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class FinishedMismatch:
    """Ended collectives of one communicator in which the same members differed in the same way.

    ``sides`` are global ranks that called alike, the largest side first; ``calls`` and ``op_seqs``
    those of the first rank of each in the first such op, which that of ``sides[0]`` began at
    ``start_ns`` of its own clock. ``n_ops`` went through like that, of ``n_compared`` calls.
    """

    comm_id: int
    unlike: UnlikeIn
    sides: tuple[tuple[int, ...], ...]
    calls: tuple[CalledOp, ...]
    op_seqs: tuple[int, ...]
    start_ns: int
    n_ops: int
    n_compared: int

    @property
    def first_rank(self) -> int:
        """The rank that ``calls[0]`` and ``start_ns`` are of."""
        return self.sides[0][0]

    @property
    def has_majority(self) -> bool:
        """True when more than half of the members called alike."""
        return 2 * len(self.sides[0]) > sum(map(len, self.sides))


def finished_mismatches(trace: RunTrace) -> tuple[FinishedMismatch, ...]:
    """All of them by communicator, in the order of their numbers; none of a communicator that has a
    member without records, or with calls that nobody was told of. O(n log n) in the number of ops.
    """
    ranks = {rank.global_rank: _Lines(rank.ops, _rows_by_comm(rank)) for rank in trace.ranks}
    return tuple(
        found
        for comm in trace.communicators
        if (own := _members(comm, ranks)) is not None
        for found in _of_comm(comm, own)
    )


class _Lines(NamedTuple):
    """The collectives of a rank, and their rows by comm_id, which are numbered 1, 2, 3 ..."""

    ops: np.ndarray
    rows: Mapping[int, np.ndarray]


def _rows_by_comm(rank: RankTrace) -> dict[int, np.ndarray]:
    """Rows of the rank's collectives, up to the first number that is not there."""
    unseen = [index for index, n in rank.unseen_calls.items() if n]
    ops = rank.ops
    is_used = (ops["kind"] == RecordKind.COLLECTIVE) & ~is_replay(ops)
    if unseen:
        is_used &= ~np.isin(ops["comm_index"], unseen)
    rows = np.flatnonzero(is_used)
    comm_ids = rank.comm_ids_of(ops["comm_index"][rows])
    numbers = ops["match_seq"][rows].astype(np.int64)
    order = np.lexsort((numbers, comm_ids))
    rows, comm_ids, numbers = rows[order], comm_ids[order], numbers[order]
    bounds = np.flatnonzero(np.diff(comm_ids, prepend=-2, append=-2))
    lines = {}
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        is_there = numbers[begin:end] == np.arange(1, end - begin + 1)
        n = end - begin if is_there.all() else int(np.argmin(is_there))
        lines[int(comm_ids[begin])] = rows[begin : begin + n]
    return lines


def _members(comm: Communicator, ranks: Mapping[int, _Lines]) -> list[np.ndarray] | None:
    """Each member's calls, in the order of the members and of one length; None where one has
    none."""
    members = comm.members
    if len(members) < 2 or len(set(members)) < len(members):
        return None
    if any(r not in ranks or comm.comm_id not in ranks[r].rows for r in members):
        return None
    n = min(len(ranks[r].rows[comm.comm_id]) for r in members)
    lines = [take_rows(ranks[r].ops, ranks[r].rows[comm.comm_id][:n]) for r in members]
    return lines if n else None


def _signatures(rows: np.ndarray) -> np.ndarray:
    """What has to be equal, ``(len(FIELDS), n)``; 0 where a field may differ."""
    op = rows["op"].astype(np.int64)
    size_bytes, count = rows["size_bytes"], rows["count"]
    width = size_bytes // np.maximum(count, 1)
    kind = np.where(IS_REDUCING[op], rows["dtype"], np.where(IS_GATHERED[op], width, 0))
    root = np.where(IS_ROOTED[op], rows["peer_or_root"], 0)
    return np.stack([op, kind, root, np.where(IS_SIZED[op], size_bytes, 0)])


def _of_comm(comm: Communicator, lines: list[np.ndarray]) -> Iterator[FinishedMismatch]:
    first = _signatures(lines[0])
    is_unlike = np.zeros(first.shape[1], bool)
    for rows in lines[1:]:
        is_unlike |= (_signatures(rows) != first).any(axis=0)
    places = np.flatnonzero(is_unlike)
    if not len(places) or len(places) > MAX_UNLIKE_RATIO * len(is_unlike):
        return
    told: dict[tuple[UnlikeIn, tuple[tuple[int, ...], ...]], list[int]] = {}
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        kinds = {_kind(lines, place) for place in run.tolist()}
        is_bounded = len(run) <= MAX_RUN and run[-1] + 1 < len(is_unlike)
        if is_bounded and len(kinds) == 1 and (kind := kinds.pop()) is not None:
            told.setdefault(kind, []).extend(run.tolist())
    for (unlike, sides), found in told.items():
        if not any(_is_elsewhere(lines, sides[0][0], side[0], found) for side in sides[1:]):
            yield _told(comm, lines, unlike, sides, found)


def _kind(
    lines: Sequence[np.ndarray], place: int
) -> tuple[UnlikeIn, tuple[tuple[int, ...], ...]] | None:
    """In what the members differ at a place, and the sides as places in the communicator; None
    where that is not certain, or the op did not end well on all."""
    rows = np.array([own[place] for own in lines])
    if (rows["state"] != OpState.DONE).any() or (rows["n_folded"] > 1).any():
        return None
    signatures = _signatures(rows)
    by_call: dict[tuple[int, ...], list[int]] = {}
    for member, call in enumerate(signatures.T.tolist()):
        by_call.setdefault(tuple(call), []).append(member)
    sides = sorted((tuple(own) for own in by_call.values()), key=lambda own: (-len(own), own))
    unlike = _unlike_in(rows, signatures)
    return None if unlike is None else (unlike, tuple(sides))


def _unlike_in(rows: np.ndarray, signatures: np.ndarray) -> UnlikeIn | None:
    differs = dict(zip(FIELDS, (signatures != signatures[:, :1]).any(axis=1).tolist(), strict=True))
    if differs["op"]:
        return UnlikeIn.OP if rows["op"].all() else None
    if not rows["dtype"].all():  # a type that is not known may be any
        return UnlikeIn.ROOT if differs["root"] and not differs["size"] else None
    if differs["type"] or (differs["size"] and len(set(rows["dtype"].tolist())) > 1):
        is_same_call = len(set(rows["count"].tolist())) == 1 or IS_SIZED[rows["op"][0]]
        return UnlikeIn.DTYPE if is_same_call else None
    return UnlikeIn.ROOT if differs["root"] else UnlikeIn.SIZE


def _is_elsewhere(
    lines: Sequence[np.ndarray], right: int, other: int, places: Sequence[int]
) -> bool:
    """Whether the calls of two members are the same in another order, or agree in more places when
    the numbers of one are shifted."""
    rows = [lines[member] for member in (right, other)]
    at = np.array(places)
    passed = [Counter(map(tuple, _signatures(own[at]).T.tolist())) for own in rows]
    if passed[0] == passed[1]:
        return True
    begin, end = max(0, places[0] - MAX_SHIFT), places[0] + SHIFT_WINDOW
    reference, own = (_signatures(one[begin:end]) for one in rows)
    own = own[:, places[0] - begin :]
    return any(
        _fits_better(reference, own, places[0] - begin, shift)
        for shift in range(-MAX_SHIFT, MAX_SHIFT + 1)
        if shift and places[0] - begin + shift >= 0
    )


def _fits_better(reference: np.ndarray, own: np.ndarray, begin: int, shift: int) -> bool:
    """``own`` begins at column ``begin`` of the reference."""
    shifted = reference[:, begin + shift :]
    straight = reference[:, begin:]
    n = min(shifted.shape[1], own.shape[1])
    n_unlike = [int((own[:, :n] != one[:, :n]).any(axis=0).sum()) for one in (straight, shifted)]
    return n_unlike[1] < n_unlike[0]


def _told(
    comm: Communicator,
    lines: Sequence[np.ndarray],
    unlike: UnlikeIn,
    sides: Sequence[tuple[int, ...]],
    places: Sequence[int],
) -> FinishedMismatch:
    global_rank = comm.members.__getitem__
    sides = [tuple(sorted(side, key=global_rank)) for side in sides]
    heads = [lines[side[0]][places[0]] for side in sides]
    return FinishedMismatch(
        comm_id=comm.comm_id,
        unlike=unlike,
        sides=tuple(tuple(map(global_rank, side)) for side in sides),
        calls=tuple(_called(comm.comm_id, head) for head in heads),
        op_seqs=tuple(int(head["op_seq"]) for head in heads),
        start_ns=int(heads[0]["start_ns"]),
        n_ops=len(places),
        n_compared=len(lines[0]),
    )


def _called(comm_id: int, row: np.void) -> CalledOp:
    return CalledOp(
        comm_id=comm_id, match_seq=int(row["match_seq"]), op=int(row["op"]),
        dtype=int(row["dtype"]), count=int(row["count"]), size_bytes=int(row["size_bytes"]),
        peer=int(row["peer_or_root"]),
    )  # fmt: skip
