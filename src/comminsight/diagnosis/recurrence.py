"""When a rank's delay acts: always, since a step, for a while, now and then, or not at all.

A step is a *hit* when the rank's cost exceeds that of the step's typical rank by more than the
smallest that counts. Hits prove something only if they are far more frequent than on the other
ranks: Fisher's exact test, one-sided, corrected for the ranks and windows tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from comminsight.analysis.changepoint import find_shift

MIN_WINDOW = 5  # steps a lasting delay must have lasted
PERSISTENT_HIT_RATIO = 0.7
INTERMITTENT_HIT_RATIO = 0.12
INTERMITTENT_MIN_HITS = 4
INTERMITTENT_LEAD = 3.0  # times as many hits as the next rank
EDGE_STEPS = 2  # as many calm steps at the end do not yet end an episode
SUSPECT_HIT_RATIO = 0.5
SUSPECT_SHARE = 4  # one rank in so many may be suspect at once; the rest say what chance is
FALSE_ALARM_RATE = 1e-4  # per run, over all ranks and windows
WINDOW_FALSE_ALARM_RATE = 0.05  # where to look, not what to believe
INTERMITTENT_FALSE_ALARM_RATE = 1e-4


class Recurrence(StrEnum):
    """How a delay comes back."""

    ALWAYS = "always"
    SINCE = "since"
    INTERMITTENT = "intermittent"


@dataclass(frozen=True, slots=True)
class Episode:
    """The steps ``[first, last)`` (positions) in which one rank's delay acts."""

    column: int
    recurrence: Recurrence
    first: int
    last: int
    n_hit: int
    cost_ns: float  # median over its hits

    @property
    def n_steps(self) -> int:
        """Length of the window."""
        return self.last - self.first

    @property
    def hit_ratio(self) -> float:
        """Share of the window's steps that are hits."""
        return self.n_hit / self.n_steps


def excess_over_typical(cost_ns: np.ndarray) -> np.ndarray:
    """Cost beyond that of the step's typical rank, >= 0: a step that is bad for all blames nobody.

    Typical is the lower median: of two ranks the calmer one.
    """
    middle = (cost_ns.shape[1] - 1) // 2
    excess_ns: np.ndarray = np.maximum(cost_ns - np.sort(cost_ns, axis=1)[:, middle, None], 0)
    return excess_ns


def episodes(excess_ns: np.ndarray, needed_ns: np.ndarray, large_ns: float) -> list[Episode]:
    """Proven episodes, at most one per rank, the most costly first.

    ``excess_ns (n_steps, n_ranks)``; ``needed_ns (n_ranks,)`` is the smallest cost of a hit,
    ``large_ns`` that of one that counts now and then.
    """
    hits = excess_ns > needed_ns
    large = hits & (excess_ns >= large_ns)
    found = []
    for column in np.flatnonzero(hits.sum(axis=0) >= min(MIN_WINDOW, INTERMITTENT_MIN_HITS)):
        episode = _lasting(excess_ns, hits, int(column)) or _intermittent(
            excess_ns, large, int(column)
        )
        if episode is not None:
            found.append(episode)
    return sorted(found, key=lambda episode: (-episode.cost_ns * episode.n_hit, episode.column))


def fisher_tail(n_hit: int, n: int, other_hits: int, others: int) -> float:
    """P(at least ``n_hit`` of the rank's ``n`` steps are hits) if all hits, its own and the
    ``other_hits`` in ``others`` steps of other ranks, fell at random."""
    total, n_hits = n + others, n_hit + other_hits
    log_all = _log_choose(total, n_hits)
    return sum(
        math.exp(_log_choose(n, k) + _log_choose(others, n_hits - k) - log_all)
        for k in range(n_hit, min(n, n_hits) + 1)
        if n_hits - k <= others
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _lasting(excess_ns: np.ndarray, hits: np.ndarray, column: int) -> Episode | None:
    n_steps, n_ranks = hits.shape
    first, last = _window(excess_ns[:, column], hits[:, column])
    n_hit = int(hits[first:last, column].sum())
    length = last - first
    if length < MIN_WINDOW or n_hit < PERSISTENT_HIT_RATIO * length:
        return None
    other_hits, others = _calm(hits, column)
    false_alarms = fisher_tail(n_hit, length, other_hits, others) * n_ranks * n_steps
    if false_alarms > FALSE_ALARM_RATE:
        return None
    is_always = first < EDGE_STEPS and last == n_steps
    recurrence = Recurrence.ALWAYS if is_always else Recurrence.SINCE
    inside = excess_ns[first:last, column][hits[first:last, column]]
    return Episode(column, recurrence, first, last, n_hit, float(np.median(inside)))


def _intermittent(excess_ns: np.ndarray, hits: np.ndarray, column: int) -> Episode | None:
    n_steps, n_ranks = hits.shape
    n_hit = int(hits[:, column].sum())
    next_most = int(np.delete(hits, column, axis=1).sum(axis=0).max(initial=0))
    is_leading = n_hit >= INTERMITTENT_LEAD * max(1, next_most)
    if not is_leading or n_hit < max(INTERMITTENT_MIN_HITS, INTERMITTENT_HIT_RATIO * n_steps):
        return None
    others = np.delete(hits, column, axis=1)
    false_alarms = fisher_tail(n_hit, n_steps, int(others.sum()), others.size) * n_ranks
    if false_alarms > INTERMITTENT_FALSE_ALARM_RATE:
        return None
    cost = float(np.median(excess_ns[hits[:, column], column]))
    return Episode(column, Recurrence.INTERMITTENT, 0, n_steps, n_hit, cost)


def _window(series: np.ndarray, hits: np.ndarray) -> tuple[int, int]:
    """The stretch of high values: the whole series unless it shifts, once up and once down; its
    edges then move to the ends of the run of values of at least half the usual height there, so
    that a small hit by chance just before the delay is no part of it."""
    first, last = 0, len(series)
    for _ in range(2):
        shift = find_shift(series[first:last], false_alarm_rate=WINDOW_FALSE_ALARM_RATE)
        if shift is None:
            break
        if shift.after > shift.before:
            first += shift.onset
        else:
            last = first + shift.onset
    heights = series[first:last][hits[first:last]]
    if not len(heights):
        return first, last
    is_high = hits & (series >= float(np.median(heights)) / 2)
    inside = np.flatnonzero(is_high[first:last])
    first, last = first + int(inside[0]), first + int(inside[-1]) + 1
    while first > 0 and is_high[first - 1]:
        first -= 1
    while last < len(hits) and is_high[last]:
        last += 1
    # the last steps of a record are not the end of a delay
    return first, len(hits) if len(hits) - last < EDGE_STEPS else last


def unsuspected(level: np.ndarray, column: int) -> np.ndarray:
    """The levels of the other ranks without the highest few, which may be suspects themselves.

    Only a quarter of the ranks can be suspect: where most are high, high is what is normal.
    """
    others = np.sort(np.delete(level, column))
    n_suspect = min(len(others) - 1, max(1, len(level) // SUSPECT_SHARE))
    return others[: len(others) - n_suspect] if len(others) > 1 else others


def _calm(hits: np.ndarray, column: int) -> tuple[int, int]:
    """(hits, steps) of the ranks that are not under suspicion. Suspect are those of the highest
    few that are hit in most steps."""
    others = np.sort(np.delete(hits.sum(axis=0), column))
    is_calm = others < SUSPECT_HIT_RATIO * len(hits)
    is_calm[: len(unsuspected(hits.sum(axis=0), column))] = True
    return int(others[is_calm].sum()), int(is_calm.sum()) * len(hits)
