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
    ranks = [rank for group in mismatch.groups for rank in group]
    lines = _lines(observed, mismatch, ranks)
    if not lines:
        return Divergence(mismatch.groups, not mismatch.is_tied, None)
    by_call: dict[Signature, list[int]] = {}
    for rank, line in lines.items():
        by_call.setdefault(line.behind[0], []).append(rank)
    sides = sorted(
        (tuple(sorted(own)) for own in by_call.values()), key=lambda own: (-len(own), own)
    )
    is_tied = len(sides) > 1 and len(sides[0]) == len(sides[1])
    pattern = None
    if is_tied and (kept := _side_of_pattern(sides, lines)) is not None:
        sides.sort(key=lambda own: own != kept[0])
        is_tied, pattern = False, kept[1]
    heads = [
        max((lines[rank] for rank in side), key=lambda line: len(line.behind)) for side in sides
    ]
    found = tuple(alignment(heads[0].behind, head.behind) for head in heads[1:])
    some = next(iter(lines.values()))
    return Divergence(
        tuple(sides), not is_tied, _cause(found, is_tied=is_tied), found, pattern, some.n_before,
        {rank: line.calls[line.n_before] for rank, line in lines.items()},
    )  # fmt: skip


def _lines(observed: Observed, mismatch: Mismatch, ranks: Sequence[int]) -> dict[int, _Line]:
    """Per rank the calls from the first number on that all of them know, without a gap; empty where
    some rank's are not known, or do not differ."""
    comm_id = mismatch.instance.key.comm_id
    own = {
        history.global_rank: [call for call in history.calls if call.comm_id == comm_id]
        for history in observed.event.histories
        if history.global_rank in ranks
    }
    if mismatch.instance.key.is_replay or len(own) < len(ranks) or not all(own.values()):
        return {}
    first_seq = max(calls[0].match_seq for calls in own.values())
    cut = {rank: _unbroken(calls, first_seq) for rank, calls in own.items()}
    if not all(cut.values()):
        return {}
    signatures = {rank: [signature(call) for call in calls] for rank, calls in cut.items()}
    n_before = n_common(list(signatures.values()))
    if any(len(calls) <= n_before for calls in cut.values()):
        return {}
    return {rank: _Line(calls, signatures[rank], n_before) for rank, calls in cut.items()}


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
