"""What stands behind members that disagree on an op: calls left out, added, or in another order.

Where the calls of the ranks are known from before and behind the op, the first call that differs is
looked for, which may lie far before the op in which the job stands still; and what makes the calls
of one side out of those of the other from there on. The larger side is taken to be right; between
two of one size the side that goes on with what all had repeated before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from comminsight.analysis.call_alignment import (
    Alignment,
    Difference,
    Pattern,
    Signature,
    alignment,
    breaks_pattern,
    n_common,
    signature,
)
from comminsight.diagnosis.presence import Observed
from comminsight.diagnosis.signatures import Mismatch
from comminsight.model.call_history import CalledOp
from comminsight.model.verdict import Cause

_CAUSES = {
    Difference.PERMUTED: Cause.ORDER_INVERSION,
    Difference.SKIPPED: Cause.CONTROL_FLOW_SKIP,
    Difference.EXTRA: Cause.EXTRA_COLLECTIVE,
}


@dataclass(frozen=True, slots=True)
class Divergence:
    """``sides`` are the ranks that call alike, the one taken to be right first where
    ``is_decided``; ``alignments`` tell of each of the others how its calls come out of those of
    the first, ``first`` the call in which the sides differ first, by rank.

    ``n_alike`` calls of the communicator before it are known to be the same on all.
    """

    sides: tuple[tuple[int, ...], ...]
    is_decided: bool
    cause: Cause | None
    alignments: tuple[Alignment, ...] = ()
    pattern: Pattern | None = None
    n_alike: int = 0
    first: Mapping[int, CalledOp] | None = None

    @property
    def wrong(self) -> tuple[int, ...]:
        """The ranks that are not of the right side; all of them where none is known to be."""
        sides = self.sides[1:] if self.is_decided else self.sides
        return tuple(sorted(rank for side in sides for rank in side))


@dataclass(frozen=True, slots=True)
class _Line:
    """The calls of one rank in the communicator, and how many of them are before the difference."""

    calls: Sequence[CalledOp]
    signatures: Sequence[Signature]
    n_before: int

    @property
    def behind(self) -> Sequence[Signature]:
        return self.signatures[self.n_before :]


def divergence(observed: Observed, mismatch: Mismatch) -> Divergence:
    """How the sides of a mismatch differ, as far as their calls are known."""
    calls = _calls_of(observed, mismatch)
    told = compared(calls) if calls else None
    return told or Divergence(mismatch.groups, not mismatch.is_tied, None)


def compared(calls: Mapping[int, Sequence[CalledOp]]) -> Divergence | None:
    """The sides of the first call that differs between ranks, of those who made one there; None
    where none does. The calls of a rank are of one communicator, without a gap, and those of all
    ranks begin with the same one."""
    lines = _lines(calls)
    if not lines:
        return None
    by_call: dict[Signature, list[int]] = {}
    for rank, line in lines.items():
        by_call.setdefault(line.behind[0], []).append(rank)
    own_sides = (tuple(sorted(own)) for own in by_call.values())
    sides = sorted(own_sides, key=lambda own: (-len(own), own))
    is_tied = len(sides[0]) == len(sides[1])
    pattern = None
    if is_tied and (kept := _side_of_pattern(sides, lines)) is not None:
        sides.sort(key=lambda own: own != kept[0])
        is_tied, pattern = False, kept[1]
    heads = [max((lines[rank] for rank in side), key=_n_behind) for side in sides]
    found = tuple(alignment(heads[0].behind, head.behind) for head in heads[1:])
    return Divergence(
        tuple(sides), not is_tied, _cause(found, is_tied=is_tied), found, pattern,
        heads[0].n_before, {rank: line.calls[line.n_before] for rank, line in lines.items()},
    )  # fmt: skip


def _n_behind(line: _Line) -> int:
    return len(line.behind)


def _calls_of(observed: Observed, mismatch: Mismatch) -> dict[int, list[CalledOp]]:
    """Per rank the calls from the first number on that all of them know; empty where those of some
    rank are not known."""
    comm_id = mismatch.instance.key.comm_id
    ranks = {rank for group in mismatch.groups for rank in group}
    own = {
        history.global_rank: [call for call in history.calls if call.comm_id == comm_id]
        for history in observed.event.histories
        if history.global_rank in ranks
    }
    if mismatch.instance.key.is_replay or len(own) < len(ranks) or not all(own.values()):
        return {}
    first_seq = max(calls[0].match_seq for calls in own.values())
    cut = {rank: _unbroken(calls, first_seq) for rank, calls in own.items()}
    reach = {rank: calls[-1].match_seq if calls else 0 for rank, calls in cut.items()}
    return cut if min(reach.values()) >= mismatch.instance.key.match_seq else {}


def _lines(calls: Mapping[int, Sequence[CalledOp]]) -> dict[int, _Line]:
    """The calls of the ranks that made one where the first one differs; empty where none does."""
    signatures = {rank: [signature(call) for call in own] for rank, own in calls.items()}
    n_before = _n_alike(list(signatures.values()))
    told = {rank: own for rank, own in calls.items() if len(own) > n_before}
    if len({signatures[rank][n_before] for rank in told}) < 2:
        return {}
    return {rank: _Line(own, signatures[rank], n_before) for rank, own in told.items()}


def _n_alike(sequences: Sequence[Sequence[Signature]]) -> int:
    """How many calls are the same on all who made that many."""
    longest = max(map(len, sequences), default=0)
    n = n_common([own for own in sequences if own])
    while n < longest and len({own[n] for own in sequences if len(own) > n}) == 1:
        n += 1
    return n


def _unbroken(calls: Sequence[CalledOp], first_seq: int) -> list[CalledOp]:
    kept = [call for call in calls if call.match_seq >= first_seq]
    expected = range(first_seq, first_seq + len(kept))
    return [call for call, number in zip(kept, expected, strict=True) if call.match_seq == number]


def _side_of_pattern(
    sides: Sequence[tuple[int, ...]], lines: Mapping[int, _Line]
) -> tuple[tuple[int, ...], Pattern] | None:
    """The one side whose call goes on with the pattern that the others break."""
    broken = {
        side: breaks_pattern(line.signatures, line.n_before) for side, line in _heads(sides, lines)
    }
    kept = [side for side, pattern in broken.items() if pattern is None]
    patterns = [pattern for pattern in broken.values() if pattern is not None]
    if len(kept) != 1 or not patterns:
        return None
    (side,), expected = kept, {pattern.following for pattern in patterns}
    return (side, patterns[0]) if expected == {lines[side[0]].behind[0]} else None


def _heads(
    sides: Sequence[tuple[int, ...]], lines: Mapping[int, _Line]
) -> Iterator[tuple[tuple[int, ...], _Line]]:
    for side in sides:
        yield side, lines[side[0]]


def _cause(found: Sequence[Alignment], *, is_tied: bool) -> Cause | None:
    """None where the calls themselves do not tell more than that they differ. Where nobody is known
    to be right, one more on one side is one less on the other."""
    kinds = {one.kind for one in found}
    if len(kinds) != 1 or (is_tied and kinds != {Difference.PERMUTED}):
        return None
    return _CAUSES.get(next(iter(kinds)))
