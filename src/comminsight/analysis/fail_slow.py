"""Episodes in which a series of durations runs high: from when, until when, and by how much.

One pass, one value at a time, so that live and replay tell the same. What is normal is the median
of the latest values outside of episodes. How far each value lies above it, less half of the
smallest shift of interest, is summed up, never below 0 (one-sided CUSUM: Page, "Continuous
inspection schemes", Biometrika 1954); a value counts up to a limit only, so that spikes are no
shift. Where the sum passes its threshold and the median since then is high too, an episode is
told. The same sum of values that are low again ends it. A level that has lasted is the new normal.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

MIN_NORMAL = 30  # values before anything is judged
WINDOW = 100  # values of which the median is normal
MIN_RATIO = 0.05  # the smallest shift of interest, over normal
MAX_SCORE = 0.10  # what one value counts at most
THRESHOLD = 0.45  # of the sum: 18 values of the smallest shift
BACK = 4.0  # the sum of low values that ends an episode: four in a row, or more among high ones
LASTING = 400  # values after which a level is the new normal


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """Values from ``onset`` up to ``end`` (-1: not over) ran at ``level`` instead of ``normal``;
    it was told at ``told_at``. Places count from 0, levels are in the series' own unit."""

    onset: int
    end: int = -1
    told_at: int
    normal: float
    level: float

    @property
    def ratio(self) -> float:
        """How much longer, over normal."""
        return self.level / self.normal - 1


class SlowWatch(msgspec.Struct, kw_only=True):
    """The watch over one series of positive values; its fields are its snapshot."""

    n_seen: int = 0
    normal: list[float] = []
    recent: list[float] = []  # since the sum last left 0, or of the episode
    score: float = 0.0
    n_back: int = 0  # of the recent values, that may be behind the end of the episode
    episode: Episode | None = None

    def push(self, value: float) -> Episode | None:
        """An episode that this value begins (it is told late) or ends, or None."""
        self.n_seen += 1
        if len(self.normal) < MIN_NORMAL:
            self.normal.append(value)
            return None
        self.recent.append(value)
        return self._seek(value) if self.episode is None else self._follow(self.episode, value)

    def _seek(self, value: float) -> Episode | None:
        normal = float(np.median(self.normal))
        self.score = max(0.0, self.score + _score(value, normal))
        if not self.score:
            self._take_for_normal()
        elif self.score > THRESHOLD and np.median(self.recent) > (1 + MIN_RATIO / 2) * normal:
            self.recent = self.recent[_first_high(self.recent, normal) :]
            self.score, self.n_back = 0.0, 0
            self.episode = Episode(
                onset=self.n_seen - len(self.recent), told_at=self.n_seen - 1, normal=normal,
                level=float(np.median(self.recent)),
            )  # fmt: skip
            return self.episode
        return None

    def _follow(self, episode: Episode, value: float) -> Episode | None:
        level = float(np.median(self.recent[-WINDOW:]))
        middle, half = (episode.normal + level) / 2, (level - episode.normal) / 2
        # in parts of half the shift, so that large and small ones end alike fast
        self.score = max(0.0, self.score + min(max((middle - value) / half, -2.0), 1.0))
        self.n_back = self.n_back + 1 if self.score else 0
        if self.score > BACK:
            behind = self.recent[-self.n_back :]
            level = float(np.median(self.recent[: -self.n_back] or self.recent))
            end = self.n_seen - self.n_back
            self.episode, self.recent, self.score = None, behind, 0.0
            self._take_for_normal()
            return msgspec.structs.replace(episode, end=end, level=level)
        if self.n_seen - episode.onset >= LASTING:
            self.normal = []
            self.episode, self.score = None, 0.0
            self._take_for_normal()
        return None

    def _take_for_normal(self) -> None:
        self.normal = [*self.normal, *self.recent][-WINDOW:]
        self.recent = []


def episodes_of(series: Iterable[float]) -> tuple[Episode, ...]:
    """The episodes of a whole series, in order."""
    watch = SlowWatch()
    found: dict[int, Episode] = {}
    for value in series:
        if (episode := watch.push(value)) is not None:
            found[episode.onset] = episode
    return tuple(found.values())


def _score(value: float, normal: float) -> float:
    return min(value / normal - 1, MAX_SCORE) - MIN_RATIO / 2


def _first_high(recent: list[float], normal: float) -> int:
    """Where the values behind are highest in sum over the middle of both levels."""
    values = np.array(recent)
    middle = (normal + float(np.median(values[-5:]))) / 2
    limit = MAX_SCORE * normal
    over = np.clip(values - middle, -limit, limit)[::-1].cumsum()[::-1]
    return int(over.argmax())
