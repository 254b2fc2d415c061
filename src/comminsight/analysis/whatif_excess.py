"""How much of a duration goes when a part of the job behaves like its peers: low, expected, high.

Durations of one program stand in a grid ``(n_steps, n_ranks, n_ops)``. Peers are the other ranks of
the program in the same step, so a step that is heavy for all is nobody's loss. Peers are not still
either: what differs from them within their own noise is kept.

- *expected*: what of a rank's step is beyond the usual one in the middle of all steps, by more than
  chance allows, and what is beyond that by more than ``NOISE_LIMIT`` times the noise in a fifth of
  the steps;
- *low*: as expected, but the rank becomes like the slowest of its peers, and chance counts against
  the gain;
- *high*: every op becomes as short as with the fastest peer.

Without peers nothing is removed from work. Of a transfer without peers what goes is what is beyond
the usual one of the same place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOISE_LIMIT = 4.0
MIN_EVENTS = 3  # steps; what happened less often happens to anybody,
MIN_EVENT_RATIO = 0.2  # and what happened in fewer of the steps
_LOW, _MIDDLE = 0.1, 0.4  # quantiles of a place over all steps, on the side that no fault moves
_STEP_TO_STEP = 0.954  # middle change from one normal value to the next, in standard deviations
STAGE_RATIO = 0.05  # by which parts that do different work differ without a fault
PEER_RATIO = (
    0.01  # by which healthy ranks differ for good; of n peers the middle by 1/sqrt(n) of it
)
_MEDIAN_ERROR = 1.25  # standard error of a median over that of a mean


@dataclass(frozen=True, slots=True)
class Removed:
    """What goes, each of the shape of the durations, float ns, 0 <= low <= expected <= high."""

    low: np.ndarray
    expected: np.ndarray
    high: np.ndarray

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> Removed:
        """Zeros to be written into."""
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    def levels(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Low, expected, high."""
        return self.low, self.expected, self.high

    def put(self, where: tuple[slice | np.ndarray | int, ...], other: Removed) -> None:
        """Write what goes of some of the durations."""
        for whole, part in zip(self.levels(), other.levels(), strict=True):
            whole[where] = part


def beyond_each(grid_ns: np.ndarray) -> Removed:
    """What goes of each rank when it alone, or all of them, become like the middle rank."""
    if grid_ns.shape[1] < 2:
        return Removed.nothing(grid_ns.shape)
    usual = lower_median(grid_ns, axis=1)[:, None]
    if grid_ns.shape[1] == 2:  # the lower of two is no middle: each is compared with the other
        usual = grid_ns[:, ::-1]
    best = np.median(grid_ns, axis=0).min(axis=0)
    middle = np.median((grid_ns - usual).sum(axis=2), axis=0)
    order = np.argsort(middle)
    slowest = np.full(len(middle), middle[order[-1]])
    slowest[order[-1]] = middle[order[-2]]
    return _removed(grid_ns, usual, best, slowest, len(middle) - 1)


def beyond_others(grid_ns: np.ndarray, is_part: np.ndarray) -> Removed:
    """What goes when the ranks ``is_part (n_ranks,)`` become like the others; nothing of others,
    nothing at all without others."""
    removed = Removed.nothing(grid_ns.shape)
    if is_part.all() or not is_part.any():
        return removed
    peers, mine = grid_ns[:, ~is_part], grid_ns[:, is_part]
    usual = lower_median(peers, axis=1)[:, None]
    best = np.median(peers, axis=0).min(axis=0)
    sums = (peers - usual).sum(axis=2)
    slowest = np.median(sums, axis=0).max()
    found = _removed(mine, usual, best, slowest, peers.shape[1])
    removed.put((slice(None), is_part), found)
    return removed


def beyond_own(grid_ns: np.ndarray) -> Removed:
    """What goes when every step becomes like the usual one of the same place."""
    usual = np.quantile(grid_ns, _MIDDLE, axis=(0, 1))[None, None]
    best = np.quantile(grid_ns, _LOW, axis=0)
    return _removed(grid_ns, usual, best, np.zeros(1), 0)


def beyond_totals(totals_ns: np.ndarray) -> Removed:
    """What goes of ``totals_ns (n_steps, n_parts)`` when each part becomes like the others. Parts
    may differ by design."""
    removed = Removed.nothing(totals_ns.shape)
    for part in range(totals_ns.shape[1]):
        others = np.delete(totals_ns, part, axis=1)
        usual = lower_median(others, axis=1)[:, None, None]
        level = np.median(others, axis=0)
        mine = totals_ns[:, part, None, None]
        beyond_slowest = np.maximum(level.max() - np.median(usual), 0)
        best = level.min(keepdims=True)
        found = _removed(mine, usual, best, beyond_slowest, len(level), STAGE_RATIO)
        removed.put((slice(None), part), Removed(*(x[:, 0, 0] for x in found.levels())))
    return removed


def lower_median(values: np.ndarray, axis: int) -> np.ndarray:
    """The middle value, of two the lower: of two peers one may be slow too."""
    nth = (values.shape[axis] - 1) // 2
    middle: np.ndarray = np.partition(values, nth, axis=axis).take(nth, axis=axis)
    return middle


def noise(sums: np.ndarray) -> float:
    """Standard deviation of ``sums (n_steps, n_ranks)`` about whatever level a rank is at: from one
    step to the next, so that being slow for good or since some step is no noise."""
    if len(sums) < 2:
        return 0.0
    return float(np.median(np.abs(np.diff(sums, axis=0)))) / _STEP_TO_STEP


def _removed(
    mine: np.ndarray,
    usual: np.ndarray,
    best: np.ndarray,
    slowest: np.ndarray,
    n_peers: int,
    peer_ratio: float = PEER_RATIO,
) -> Removed:
    """``n_peers`` 0: the usual is the ranks' own, so that nothing is beyond it for good."""
    beyond = mine - usual
    total = beyond.sum(axis=2)
    limit = NOISE_LIMIT * noise(total)
    chance = limit * _MEDIAN_ERROR / np.sqrt(len(mine))
    middle = np.median(total, axis=0)
    lasting = np.where((n_peers > 0) & (middle > chance), np.minimum(total, middle + limit), 0)
    lasting = np.maximum(lasting, 0)
    event = np.where(total - lasting > limit, np.maximum(total - lasting, 0), 0)
    n_events = np.count_nonzero(event, axis=0)
    recurs = n_events >= max(MIN_EVENTS, MIN_EVENT_RATIO * len(mine))
    expected = _shared(beyond, lasting + event * recurs)
    alike = peer_ratio / np.sqrt(n_peers) if n_peers else 0.0
    unsure = np.maximum(slowest, 0) + chance + alike * np.median(np.abs(usual).sum(axis=2), axis=0)
    sure = np.clip(1 - unsure / np.maximum(middle, 1), 0, 1)
    low = _shared(beyond, lasting * sure + event * _sure_ratio(n_events, len(mine)))
    high = np.maximum(mine - best * (1 - alike), expected)
    return Removed(np.minimum(low, expected), expected, np.maximum(high, 0))


def _sure_ratio(n_events: np.ndarray, n_steps: int) -> np.ndarray:
    """Share of rare events that is more than chance; all of what happens in half of the steps."""
    beyond_chance = (n_events - 1 - 2 * np.sqrt(n_events)) / np.maximum(n_events, 1)
    ratio: np.ndarray = np.where(n_events * 2 >= n_steps, 1, np.maximum(beyond_chance, 0))
    return ratio


def _shared(beyond: np.ndarray, total: np.ndarray) -> np.ndarray:
    """``total (n_steps, n_ranks)`` taken from where the ops are beyond, in proportion."""
    positive = np.maximum(beyond, 0)
    share = total / np.maximum(positive.sum(axis=2), 1)
    taken: np.ndarray = positive * np.minimum(share, 1)[:, :, None]
    return taken
