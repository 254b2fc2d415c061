"""What exchanges among all members tell: experts, or heads and sequence in turns.

Experts exchange tokens in pairs, to them and back. How many go where depends on the data, so counts
go ahead of them or sizes differ from layer to layer. Heads are exchanged around each attention:
queries, keys and values one after the other and the result alone, or all three in one exchange that
is wider than the one of the result; in the backward pass the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from comminsight.model.ops import CommRole
from comminsight.semantics.op_mix import Exchanges, OpMix
from comminsight.semantics.role_clues import Clue, guess

_LEAST = 4
_LEAST_UNEVEN = 8
_RATIOS = 3  # wide to narrow, narrow to wide, equal
_KNOWN = 0.65  # of the steps from one exchange to the next
_TIGHT = 0.2  # of their own length: nothing was computed between two exchanges
_HEADS, _ALONE = 3, 1
_MOSTLY, _NEARLY_HALF = 0.8, 0.35
_COMPARABLE = 0.15  # shortest time between exchanges, of the long ones


def exchange_clues(mix: OpMix) -> Iterable[Clue]:
    """For EP or CP; nothing where equal exchanges might be either."""
    own = mix.exchanges
    if own.n_of_counts:
        yield Clue(CommRole.EP, 3.0, "counts_before_exchanges")
    elif len(own.sizes) < _LEAST or mix.counts:
        return
    elif _is_uneven(own.sizes):
        yield Clue(CommRole.EP, 3.0, "uneven_exchanges")
    elif _is_around_attention(own):
        yield Clue(CommRole.CP, 3.0, "heads_exchanged")
    elif _is_wide_then_narrow(own.sizes):
        yield Clue(CommRole.CP, 2.5, "heads_exchanged_at_once")
    elif _is_in_pairs(own):
        yield Clue(CommRole.EP, 1.5, "exchanges_in_pairs")


def may_be_experts(mix: OpMix) -> bool:
    """Whether there are exchanges that are not those of heads."""
    return bool(mix.n_exchanges) and guess(exchange_clues(mix)).role is not CommRole.CP


def n_exchange_rounds(mix: OpMix) -> float:
    """Layers that exchanged, once per pass."""
    is_single = guess(exchange_clues(mix)).evidence[:1] == ("heads_exchanged",)
    return len(mix.exchanges.sizes) / (_HEADS + _ALONE if is_single else 2)


def _is_uneven(sizes: np.ndarray) -> bool:
    """Whether nothing is sent at times, or sizes change at will from one exchange to the next:
    between those of one attention they have three ratios, whatever the lengths of sequences."""
    if len(sizes) < _LEAST_UNEVEN or not sizes.any():
        return False
    if not sizes.all():
        return True
    _, counts = np.unique(sizes[1:] / sizes[:-1], return_counts=True)
    return bool(np.sort(counts)[-_RATIOS:].sum() < _KNOWN * (len(sizes) - 1))


def _is_around_attention(own: Exchanges) -> bool:
    lengths = _tight_runs(own)
    n_heads, n_alone = (int(np.count_nonzero(lengths == n)) for n in (_HEADS, _ALONE))
    return (
        min(n_heads, n_alone) >= _NEARLY_HALF * len(lengths)
        and n_heads + n_alone >= _MOSTLY * len(lengths)
    )  # fmt: skip


def _is_wide_then_narrow(sizes: np.ndarray) -> bool:
    """Two sizes, equally often, in turns that change their order from pass to pass."""
    found, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    if len(found) != 2 or counts.min() < _MOSTLY * counts.max():
        return False
    before, after = which[:-1], which[1:]
    n_changes = int(np.count_nonzero(before != after))
    n_narrow = int(np.count_nonzero((before == 0) & (after == 0)))
    n_wide = int(np.count_nonzero((before == 1) & (after == 1)))
    return min(n_narrow, n_wide) > 1 and n_changes >= max(n_narrow, n_wide)


def _is_in_pairs(own: Exchanges) -> bool:
    """There and back at once, or equal exchanges with as much computed between any two of them."""
    lengths = _tight_runs(own)
    if np.count_nonzero(lengths == 2) >= _MOSTLY * len(lengths):
        return True
    if len(np.unique(own.sizes)) > 2 or np.any(lengths > _ALONE):
        return False
    low_ns, high_ns = np.quantile(_idle_ns(own), (0.1, 0.75))
    return bool(low_ns > _COMPARABLE * high_ns)


def _idle_ns(own: Exchanges) -> np.ndarray:
    idle_ns: np.ndarray = own.starts_ns[1:] - own.ends_ns[:-1]
    return idle_ns


def _tight_runs(own: Exchanges) -> np.ndarray:
    """Lengths of the runs of exchanges between which nothing was computed."""
    lengths_ns = own.ends_ns - own.starts_ns
    is_apart = _idle_ns(own) > _TIGHT * np.median(lengths_ns)
    firsts = np.append(0, np.flatnonzero(is_apart) + 1)
    runs: np.ndarray = np.diff(np.append(firsts, len(own.sizes)))
    return runs
