"""Whether the gaps behind found steps tell that several of them are one: they have a period.

Behind the last microbatch of a step the optimizer works and the next batch is loaded, so every nth
gap is longer. Three things are asked of the gaps, by falling strength:

1. *long ones in turn*: those by far the longest come at one distance;
2. *place*: the place in a period explains how the pauses differ, or those at one place are longer
   than chance allows;
3. *marked ones*: at one distance a gap holds a control op more (a norm, a loss), and the pause in
   it is longer: before a control op that every gap has, it was an evaluation.

Pauses are compared between gaps of one content only, without the time of the ops in them. A gap
with ops of its own (an evaluation, a checkpoint) is no evidence and left out.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import lgamma, log, sqrt

import numpy as np

from comminsight.semantics.parts import MAX_PERIOD, MIN_ROUNDS, Blocks

_OF_SHORTER_HALF = 0.25  # the median of the shorter half: every other pause may be a long one
_FACTOR = 2.0  # times the usual pause
_MOSTLY = 0.75  # of the long pauses come at one distance: a lost record shifts one
_EXPLAINED = 0.8  # of the variance, by the place in the period
_LONGER = 0.005  # of the block's period: by less the optimizer of no job is done
_LOG_CHANCE = log(1e-3)  # over all places of all periods that are tried
_MAX_CONTROL_OPS = 3  # more than other gaps have: a norm, a loss and a flag
MIN_Z = 3.0  # of a rank test that is asked once


def pause_period(blocks: Blocks) -> int:
    """How many blocks make a step by the pauses between them; 0 where nothing tells."""
    is_control = blocks.is_control
    other = blocks.gap_sums(np.where(is_control, np.uint64(0), blocks.kinds(has_sizes=False)))
    n_control = blocks.gap_sums(is_control.astype(np.int64))
    is_usual = other == _most_common(other)
    n_usual = _most_common(n_control[is_usual])
    took_ns = np.maximum(blocks.rows["end_ns"] - blocks.rows["start_ns"], 0)
    pauses_ns = blocks.gap_ns - blocks.gap_sums(took_ns)
    is_plain = is_usual & (n_control == n_usual)
    plain_ns = np.where(is_plain, pauses_ns, np.nan)
    least_ns = _LONGER * float(np.median(blocks.period_ns))
    if n := period_of(plain_ns, least_ns):
        return n
    n_more = n_control - n_usual
    is_marked = is_usual & (n_more > 0) & (n_more <= _MAX_CONTROL_OPS)
    n = _distance(np.flatnonzero(is_marked), is_usual)
    if n == 0:
        return 0
    if n_usual:
        before_ns, after_ns = _around_control(blocks)
        if _is_longer(before_ns, is_marked, is_plain, least_ns, is_by_far=True):
            return 0
        pauses_ns = after_ns
    return n if _is_longer(pauses_ns, is_marked, is_plain, least_ns) else 0


def period_of(pauses_ns: np.ndarray, least_ns: float = 0.0) -> int:
    """The period of pauses (NaN where there is none to compare); 0 for none. Differences below
    ``least_ns`` are none."""
    is_known = ~np.isnan(pauses_ns)
    known = pauses_ns[is_known]
    if len(known) < 2 * MIN_ROUNDS:
        return 0
    usual_ns = float(np.quantile(known, _OF_SHORTER_HALF))
    is_long = is_known & (pauses_ns > _FACTOR * max(usual_ns, 0.0))
    is_long &= np.nan_to_num(pauses_ns) >= usual_ns + least_ns
    return _distance(np.flatnonzero(is_long), is_known) or _place_period(pauses_ns, least_ns)


def _distance(places: np.ndarray, is_known: np.ndarray) -> int:
    """The one distance, of at least two, at which most of these places come; 0 for none. What would
    lie between two of them and is not known is passed over."""
    pairs = list(pairwise(places.tolist()))
    if len(pairs) < MIN_ROUNDS - 1:
        return 0
    distance, n_times = Counter(later - one for one, later in pairs).most_common(1)[0]
    n_times += sum(
        1
        for one, later in pairs
        if later - one > distance
        and (later - one) % distance == 0
        and not is_known[one + distance : later : distance].any()
    )
    return distance if distance > 1 and n_times >= _MOSTLY * len(pairs) else 0


def _place_period(pauses_ns: np.ndarray, least_ns: float) -> int:
    """The period at one place of which the pauses are longer than chance allows, or whose places
    explain most of how they differ."""
    ranks = _ranks(pauses_ns)
    most = min(len(ranks) // MIN_ROUNDS, MAX_PERIOD)
    n_tries = max(1, most * (most + 1) // 2 - 1)
    best, best_z = 0, 0.0
    for n in range(2, most + 1):
        rounds = ranks[: len(ranks) // n * n].reshape(-1, n)
        n_known = (~np.isnan(rounds)).sum(axis=0)
        if n_known.min() < MIN_ROUNDS:
            continue
        within = np.nanvar(rounds, axis=0, ddof=1).mean()
        if within < (1 - _EXPLAINED) * np.nanvar(rounds) and _spread_ns(pauses_ns, n) >= least_ns:
            return n
        z = _z_of_places(rounds, n_known)
        place = int(np.argmax(z))
        is_clear = z[place] > sqrt(2 * (log(n_tries) - _LOG_CHANCE)) or _is_on_top(
            ranks[place::n], ranks, n_tries
        )
        if is_clear and z[place] > best_z and _excess_ns(pauses_ns, n, place) > least_ns:
            best, best_z = n, float(z[place])
    return best


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 of the known values, NaN for the others."""
    ranks = np.full(len(values), np.nan)
    known = np.flatnonzero(~np.isnan(values))
    ranks[known[np.argsort(values[known], kind="stable")]] = np.arange(len(known))
    return ranks


def _z_of_places(rounds: np.ndarray, n_known: np.ndarray) -> np.ndarray:
    """Of each place, by how many standard deviations its ranks lie above those of the others."""
    n_all = int(n_known.sum())
    spread = np.sqrt((n_all + 1) * (n_all - n_known) / (12.0 * n_known))
    z: np.ndarray = (np.nanmean(rounds, axis=0) - np.nanmean(rounds)) / spread
    return z


def _is_on_top(own: np.ndarray, ranks: np.ndarray, n_tries: int) -> bool:
    """Whether it is hardly chance that all pauses of one place are among the longest: those of a
    last round that is not whole speak too."""
    known = own[~np.isnan(own)]
    n_above = int((ranks >= known.min()).sum())
    n_all = int((~np.isnan(ranks)).sum())
    chance = _log_choices(n_above, len(known)) - _log_choices(n_all, len(known))
    return chance + log(n_tries) < _LOG_CHANCE


def _log_choices(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _excess_ns(pauses_ns: np.ndarray, n: int, place: int) -> float:
    """By how much the usual pause at a place is longer than elsewhere."""
    is_own = np.arange(len(pauses_ns)) % n == place
    return float(np.nanmedian(pauses_ns[is_own]) - np.nanmedian(pauses_ns[~is_own]))


def _spread_ns(pauses_ns: np.ndarray, n: int) -> float:
    """By how much the usual pauses of two places differ at most."""
    usual = [float(np.nanmedian(pauses_ns[place::n])) for place in range(n)]
    return max(usual) - min(usual)


def _is_longer(
    pauses_ns: np.ndarray, is_marked: np.ndarray, is_plain: np.ndarray, least_ns: float, *,
    is_by_far: bool = False,
) -> bool:  # fmt: skip
    """Whether the marked pauses are longer than the plain ones, by a rank test; by far is twice."""
    marked, plain = pauses_ns[is_marked], pauses_ns[is_plain]
    if not len(plain) or np.median(marked) < np.median(plain) + least_ns:
        return False
    if is_by_far:
        return bool(np.median(marked) > _FACTOR * np.median(plain))
    return rank_z(marked, plain) > MIN_Z or bool(marked.min() > plain.max())


def rank_z(own: np.ndarray, others: np.ndarray) -> float:
    """By how many standard deviations the ranks of ``own`` lie above those of both; neither may be
    empty."""
    ranks = _ranks(np.concatenate([own, others]))
    n_all, n_own = len(ranks), len(own)
    spread = sqrt((n_all + 1) * (n_all - n_own) / (12.0 * n_own))
    return float(ranks[:n_own].mean() - ranks.mean()) / spread


def _around_control(blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Of each gap, the pause before its last control op and the one behind its last op."""
    rows = blocks.rows
    start_ns = np.ascontiguousarray(rows["start_ns"])
    over_ns = np.maximum.accumulate(np.maximum(rows["end_ns"], start_ns))
    following = blocks.first[1:]
    after_ns = np.maximum(start_ns[following] - over_ns[following - 1], 0)
    places = np.where(blocks.is_control, np.arange(len(rows)), 0)
    newest = np.maximum(np.maximum.accumulate(places)[following - 1], 1)
    before_ns = np.maximum(start_ns[newest] - over_ns[newest - 1], 0)
    return before_ns.astype(np.float64), after_ns.astype(np.float64)


def _most_common(values: np.ndarray) -> int:
    """The value that occurs most often, of those the smallest."""
    kinds, n_times = np.unique(values, return_counts=True)
    return int(kinds[np.argmax(n_times)])
