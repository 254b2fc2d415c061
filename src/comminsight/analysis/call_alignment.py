"""How calls of two ranks differ, and whether a rank still does what it did in every step before.

Calls are compared by what has to be equal on all members: function, element type, root, and size
where the function needs equal sizes. An alignment holds only if it explains *every* call that is
known of both after the first one that differs, among them one that agrees again, and if no other
kind of alignment does as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import NamedTuple

from comminsight.model.call_history import CalledOp
from comminsight.model.ops import Op

UNEVEN = frozenset({Op.UNKNOWN, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.BARRIER})
LIST_FORMS = frozenset({"all_gather", "allgather", "reduce_scatter"})
FLAT_PREFIXES = ("all_gather", "allgather", "reduce_scatter")
MAX_SHIFT = 64  # ops that a rank may be ahead or behind and still be recognised
MIN_MATCHED = 2  # calls that have to agree again after some were left out or added
MIN_REPEATS = 3  # times that a pattern must have been seen before it is one
MAX_PERIOD = 1024

Signature = tuple[int, ...]


class Difference(StrEnum):
    """What makes one sequence of calls out of another."""

    NONE = "none"
    SKIPPED = "skipped"  # some calls of the reference are left out
    EXTRA = "extra"  # there are some that the reference has not
    PERMUTED = "permuted"  # the same calls in another order
    REPLACED = "replaced"  # one call is another one, and all behind it are the same
    OTHER = "other"


class Alignment(NamedTuple):
    """``n_ops`` calls are left out, added or permuted; ``n_matched`` agree behind them."""

    kind: Difference
    n_ops: int = 0
    n_matched: int = 0


class Pattern(NamedTuple):
    """The last ``period`` calls, ``own``, had been made ``n_repeats`` times in a row;
    ``following`` is the call that goes on with it."""

    period: int
    n_repeats: int
    following: Signature
    own: frozenset[Signature]

    def is_broken_by(self, call: Signature) -> bool | None:
        """Whether a call does not go on with it; None for one that is not of the pattern: steps
        hold patterns of their own, behind which something else comes."""
        return None if call not in self.own else call != self.following


def form_of(call: str) -> str:
    """``list`` or ``flat``: how a gather or scatter takes the tensors of all members; "" where the
    name of the function does not tell. Both come from what PyTorch calls its functions."""
    word = call.lower().lstrip("_")
    if word in LIST_FORMS:
        return "list"
    is_flat = word.startswith(FLAT_PREFIXES) and ("base" in word or "tensor" in word)
    return "flat" if is_flat else ""


def needed_count(op: int, count: int, out_count: int) -> int:
    """Elements that have to be as many on all members; 0 where none have to be. What is gathered
    may be of unlike sizes, as long as all members await the same."""
    if op in UNEVEN:
        return 0
    return out_count if op == Op.ALL_GATHER and out_count else count


def signature(call: CalledOp) -> Signature:
    """What has to be equal on all members of the communicator."""
    op, count = call.op, call.count
    if op in UNEVEN or op == Op.ALL_GATHER:
        count = needed_count(op, count, call.out_count)
    return call.comm_id, op, call.dtype, call.peer, count


def n_common(sequences: Sequence[Sequence[Hashable]]) -> int:
    """How many of their first items are the same in all sequences."""
    n = 0
    for items in zip(*sequences, strict=False):
        if len(set(items)) > 1:
            break
        n += 1
    return n


def alignment(reference: Sequence[Hashable], own: Sequence[Hashable]) -> Alignment:
    """What makes ``own`` out of ``reference`` from their first items on; OTHER where nothing simple
    does, or more than one thing."""
    if own[: len(reference)] == reference[: len(own)]:
        return Alignment(Difference.NONE, 0, min(len(own), len(reference)))
    found = [
        one
        for kind in (_permuted, _skipped, _extra, _replaced)
        if (one := kind(reference, own)) is not None
    ]
    is_told = len(found) == 1 and found[0].n_matched > 0
    return found[0] if is_told else Alignment(Difference.OTHER)


def _permuted(reference: Sequence[Hashable], own: Sequence[Hashable]) -> Alignment | None:
    """The shortest stretch of both with the same items, after which both agree."""
    balance: Counter[Hashable] = Counter()
    for place, (expected, found) in enumerate(zip(reference, own, strict=False)):
        balance[expected] += 1
        balance[found] -= 1
        n_ops = place + 1
        if not any(balance.values()):
            rest = min(len(reference), len(own)) - n_ops
            is_same = reference[n_ops : n_ops + rest] == own[n_ops : n_ops + rest]
            return Alignment(Difference.PERMUTED, n_ops, rest) if is_same else None
    return None


def _skipped(reference: Sequence[Hashable], own: Sequence[Hashable]) -> Alignment | None:
    for n_ops in range(1, min(MAX_SHIFT, len(reference) - 1) + 1):
        n_matched = min(len(own), len(reference) - n_ops)
        if n_matched < MIN_MATCHED:
            return None
        if own[:n_matched] == reference[n_ops : n_ops + n_matched]:
            return Alignment(Difference.SKIPPED, n_ops, n_matched)
    return None


def _replaced(reference: Sequence[Hashable], own: Sequence[Hashable]) -> Alignment | None:
    n_matched = min(len(reference), len(own)) - 1
    is_same = n_matched > 0 and reference[1 : n_matched + 1] == own[1 : n_matched + 1]
    return Alignment(Difference.REPLACED, 1, n_matched) if is_same else None


def _extra(reference: Sequence[Hashable], own: Sequence[Hashable]) -> Alignment | None:
    mirrored = _skipped(own, reference)
    return mirrored and Alignment(Difference.EXTRA, mirrored.n_ops, mirrored.n_matched)


def pattern_of(calls: Sequence[Signature]) -> Pattern | None:
    """The pattern that the calls have kept up to their end; None without one.

    Steps hold runs that repeat too, for shorter: the pattern that reaches furthest back is it. It
    must have been seen ``MIN_REPEATS`` times, reach back over half of the calls, and be more than
    one call again and again, which ends in every step.
    """
    n = len(calls)
    best = (0, 0)  # reach, -period
    for period in range(2, min(MAX_PERIOD, n // MIN_REPEATS) + 1):
        reach = period
        while reach < n and calls[n - 1 - reach] == calls[n - 1 - reach + period]:
            reach += 1
        if reach >= MIN_REPEATS * period and 2 * reach >= n:
            best = max(best, (reach, -period))
    reach, period = best[0], -best[1]
    own = frozenset(calls[n - period :]) if period else frozenset()
    if len(own) < 2:
        return None
    return Pattern(period, reach // period, calls[n - period], own)


def breaks_pattern(calls: Sequence[Signature], place: int) -> Pattern | None:
    """The pattern of the calls before ``place`` that the call at it breaks."""
    pattern = pattern_of(calls[:place])
    return pattern if pattern is not None and pattern.is_broken_by(calls[place]) else None
