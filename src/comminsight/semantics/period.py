"""What recurs in the ops of one rank, and how alike the periods are.

A *pattern* is one to three consecutive kinds of ops. It is found as a template's sequence is:
strictly consecutive, restarting at the op that broke it. What lies between two of its occurrences
is a period; two periods are alike when they hold the same kinds of calls equally often, in any
order: communicators overlap, and their ops change places from step to step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from comminsight.model.records import is_replay
from comminsight.model.splitmix import splitmix64
from comminsight.model.topology import SessionIdentity
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.matcher import Matcher
from comminsight.semantics.op_kinds import Detail, KindTable

MAX_PATTERN = 3
_MIN_TIMES = 2
_MAX_UNMATCHED_RATIO = 0.05


class Pattern(NamedTuple):
    """Consecutive kinds, all of one detail."""

    kinds: tuple[int, ...]
    detail: Detail


@dataclass(frozen=True, slots=True)
class RankStream:
    """The committed ops of one rank (``OP_DTYPE``, in time order) with its communicators.

    ``comm_ids[comm_index]`` names the communicator over all ranks, -1 if unknown. ``is_from_start``
    and ``is_to_end`` say that the stream begins and ends with the job.
    """

    identity: SessionIdentity
    rows: np.ndarray
    comms: CommTable
    comm_ids: np.ndarray
    is_from_start: bool = True
    is_to_end: bool = True

    @property
    def global_rank(self) -> int:
        """Rank of the process."""
        return self.identity.global_rank


class RankCodes:
    """A stream with its kinds, one array per detail, and what is computed from them once."""

    __slots__ = ("_bags", "codes", "kinds", "match_seqs", "pauses_ns", "starts_ns", "stream")

    def __init__(self, stream: RankStream, table: KindTable) -> None:
        rows = stream.rows
        self.stream = stream
        self.codes = tuple(table.encode(rows, stream.comms, detail) for detail in Detail)
        self.kinds = tuple(frozenset(np.unique(codes).tolist()) for codes in self.codes)
        self.starts_ns = np.ascontiguousarray(rows["start_ns"])
        self.pauses_ns = _pauses_ns(rows)
        self.match_seqs = np.ascontiguousarray(rows["match_seq"]).astype(np.int64)
        self._bags = np.concatenate([[0], np.cumsum(_mixed(self.codes[Detail.CALL]))])

    def bags(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """A number per range of ops, equal where the ranges hold the same calls equally often."""
        counted: np.ndarray = self._bags[end] - self._bags[first]
        return counted


@dataclass(frozen=True, slots=True)
class Periods:
    """Occurrences of a pattern on one rank. Period ``i`` is ``[first[i], end[i])`` in ops, behind
    occurrence ``i`` and before the next one; ``last`` are the last ops of the occurrences."""

    last: np.ndarray
    first: np.ndarray
    end: np.ndarray
    is_regular: np.ndarray
    n_ops: int

    @property
    def rest_ratio(self) -> float:
        """Ops behind the last occurrence, over those from the first to the last."""
        if len(self.last) < _MIN_TIMES:
            return 0.0
        span = int(self.last[-1] - self.last[0])
        return (self.n_ops - 1 - int(self.last[-1])) / max(1, span)

    @property
    def regular_ratio(self) -> float:
        """Share of the periods that are like most."""
        return float(self.is_regular.mean()) if len(self.is_regular) else 0.0


def _pauses_ns(rows: np.ndarray) -> np.ndarray:
    """Time before each op in which none of the ops before it is in flight; 0 for the first."""
    ends_ns = np.maximum.accumulate(rows["end_ns"])
    pauses_ns = np.zeros(len(rows), np.int64)
    pauses_ns[1:] = np.maximum(rows["start_ns"][1:] - ends_ns[:-1], 0)
    return pauses_ns


def periods_of(rank: RankCodes, pattern: Pattern) -> Periods:
    """Where a pattern occurs and what lies between."""
    last = occurrences(rank.codes[pattern.detail], pattern.kinds)
    first, end = last[:-1] + 1, last[1:] - len(pattern.kinds) + 1
    bags = rank.bags(first, end)
    values, inverse, counts = np.unique(bags, return_inverse=True, return_counts=True)
    is_regular = inverse.reshape(-1) == (int(counts.argmax()) if len(values) else 0)
    return Periods(last, first, end, is_regular, len(rank.starts_ns))


def occurrences(codes: np.ndarray, kinds: tuple[int, ...]) -> np.ndarray:
    """Indices of the last op of each occurrence, as a template's matcher finds them."""
    if kinds[0] not in kinds[1:]:  # it cannot overlap itself: every window counts
        n = len(codes) - len(kinds) + 1
        is_hit = np.ones(max(n, 0), np.bool_)
        for place, kind in enumerate(kinds):
            is_hit &= codes[place : place + len(is_hit)] == kind
        return np.flatnonzero(is_hit) + len(kinds) - 1
    known = sorted(set(kinds))
    classes = np.searchsorted(known, codes)
    classes[~np.isin(codes, known)] = len(known)
    fits = np.array([[kind == wanted for wanted in kinds] for kind in (*known, -1)])
    return Matcher(fits).feed(classes)


def n_groups(ranks: Sequence[RankCodes], periods: Sequence[Periods]) -> int:
    """Communicators of the last op, or 0 when it is not the same op of them on all their ranks."""
    members: dict[int, list[np.ndarray]] = {}
    for rank, found in zip(ranks, periods, strict=True):
        ids = rank.stream.comm_ids
        index = rank.stream.rows["comm_index"][found.last]
        comm_ids = np.where(index < len(ids), ids.take(index, mode="clip"), -1)
        streams = comm_ids.astype(np.int64) << 1 | is_replay(rank.stream.rows[found.last])
        for stream in np.unique(streams).tolist():
            members.setdefault(stream, []).append(rank.match_seqs[found.last[streams == stream]])
    is_same = all(_agree(seqs) for seqs in members.values())
    return len(members) if is_same and min(members, default=0) >= 0 else 0


def _agree(seqs: Sequence[np.ndarray]) -> bool:
    """Whether ranks took the same ops, as far as all of them were there."""
    low, high = max(int(s.min()) for s in seqs), min(int(s.max()) for s in seqs)
    within = [s[(s >= low) & (s <= high)] for s in seqs]
    allowed = _MAX_UNMATCHED_RATIO * max(map(len, within))
    apart = [len(np.setxor1d(within[0], other)) for other in within[1:]]
    return max(map(len, within)) > 0 and max(apart, default=0) <= allowed


def patterns_in(rank: RankCodes) -> Iterator[Pattern]:
    """Every pattern that occurs at least twice, coarse and short ones first."""
    for detail in Detail:
        known, places = np.unique(rank.codes[detail], return_inverse=True)
        keys = np.zeros(len(places), np.int64)
        for length in range(1, MAX_PATTERN + 1):
            following = places.reshape(-1)[length - 1 :]
            keys = keys[: len(following)] * len(known) + following
            found, counts = np.unique(keys, return_counts=True)
            for key in found[counts >= _MIN_TIMES].tolist():
                digits = _digits(key, len(known), length)
                yield Pattern(tuple(known[list(digits)].tolist()), detail)


def _digits(key: int, base: int, length: int) -> tuple[int, ...]:
    """The number's digits to a base, the first one first."""
    digits: list[int] = []
    for _ in range(length):
        key, digit = divmod(key, base)
        digits.append(digit)
    return tuple(reversed(digits))


def _mixed(codes: np.ndarray) -> np.ndarray:
    """Each code as 64 well-mixed bits (int64), so that sums of them tell bags apart."""
    return splitmix64(codes.astype(np.int64) + 1).view(np.int64)
