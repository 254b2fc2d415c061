"""One rank's period in detail: its ops, the pauses before them, and what comes in now and then.

A *pause* is the time before an op in which none of the ops before it is in flight. A period has no
beginning of its own here: its ops are a circle, from behind the anchor to the anchor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from comminsight.semantics.op_kinds import MODEL_PARALLEL, Detail, Kind, KindTable
from comminsight.semantics.period import Periods, RankCodes

_MAX_PERIODS = 256  # looked at of each kind
_MIN_TIMES = 3  # for something that comes at a constant distance
_MAX_LOST = 0.04
_MOSTLY = 0.75  # of the distances are one


class Insertion(NamedTuple):
    """What a period holds beyond the usual one: ``front`` is the place in the usual period of the
    op behind it, -1 where that is not clear, and ``pause_ns`` the pause before that op."""

    front: int
    pause_ns: int


@dataclass(frozen=True, slots=True)
class Block:
    """The usual period of one rank: ``kinds[i]`` (``exact[i]`` with its size) with
    ``pauses_ns[:, i]`` in several of them."""

    kinds: tuple[Kind, ...]
    exact: tuple[int, ...]
    pauses_ns: np.ndarray
    duration_ns: float
    insertions: tuple[Insertion, ...]
    is_partial: bool  # some periods, in turn, hold other gradients

    @property
    def gradients(self) -> list[int]:
        """Places of the reductions of gradients."""
        return [place for place, kind in enumerate(self.kinds) if kind.is_gradient]

    @property
    def exact_gradients(self) -> list[int]:
        """Their kinds with their sizes."""
        return [self.exact[place] for place in self.gradients]

    @property
    def rests_ns(self) -> np.ndarray:
        """Pauses from each gradient to the next, summed, ``(n_periods, n_gradients)``; the last one
        leads round to the first."""
        total = np.cumsum(self.pauses_ns, axis=1)
        until = total[:, self.gradients]
        inside = np.diff(until, axis=1)
        around = total[:, -1:] - inside.sum(axis=1, keepdims=True)
        return np.concatenate([inside, around], axis=1)

    def behind_gradients_ns(self, front: int) -> float:
        """Pauses behind the last gradient of the period that begins with the op at ``front``."""
        usual = np.roll(np.median(self.pauses_ns, axis=0), -front)
        kinds = [*self.kinds[front:], *self.kinds[:front]]
        last = max(place for place, kind in enumerate(kinds) if kind.is_gradient)
        return float(usual[last + 1 :].sum())


def block_of(rank: RankCodes, periods: Periods, table: KindTable) -> Block | None:
    """The rank's usual period; None where no two are in the same order."""
    words = _words(rank, periods)
    usual = [i for i in np.flatnonzero(periods.is_regular)[-_MAX_PERIODS:].tolist() if i in words]
    if not usual:
        return None
    word, _ = Counter(words[i] for i in usual).most_common(1)[0]
    same = [i for i in usual if words[i] == word]
    spans = [slice(int(periods.first[i]), int(periods.last[i + 1]) + 1) for i in same]
    codes, exact = rank.codes[Detail.SIZE_CLASS], rank.codes[Detail.EXACT]
    insertions = [
        found
        for i in np.flatnonzero(~periods.is_regular)[-_MAX_PERIODS:].tolist()
        if (found := _insertion(rank, periods, i, word, words[i], table)) is not None
    ]
    return Block(
        kinds=tuple(table.kinds[code] for code in codes[spans[0]].tolist()),
        exact=tuple(exact[spans[0]].tolist()),
        pauses_ns=np.stack([rank.pauses_ns[span] for span in spans]),
        duration_ns=float(np.median(np.diff(rank.starts_ns[periods.last]))),
        insertions=tuple(insertions),
        is_partial=_is_partial(periods, words, word, table),
    )


def _words(rank: RankCodes, periods: Periods) -> dict[int, tuple[int, ...]]:
    codes = rank.codes[Detail.SIZE_CLASS]
    looked = [*np.flatnonzero(periods.is_regular)[-_MAX_PERIODS:].tolist()]
    looked += np.flatnonzero(~periods.is_regular)[-_MAX_PERIODS:].tolist()
    return {i: tuple(codes[periods.first[i] : periods.end[i]].tolist()) for i in looked}


def _insertion(
    rank: RankCodes, periods: Periods, index: int, word: Sequence[int], other: Sequence[int],
    table: KindTable,
) -> Insertion | None:  # fmt: skip
    """What came in, if it may be the end of a step: numbers reduced, or data of another kind, and
    no gradients."""
    extra, missing = Counter(other) - Counter(word), Counter(word) - Counter(other)
    kinds = [table.kinds[code] for code in extra]
    known = {table.kinds[code] for code in word}
    is_end = any(kind.is_control or (_is_shared(kind) and kind not in known) for kind in kinds)
    if missing or not is_end or any(kind.is_gradient for kind in kinds):
        return None
    front = _front(other, word, table)
    if front < 0:
        return Insertion(-1, 0)
    place = int(periods.end[index]) - len(word) + front
    return Insertion(front, int(rank.pauses_ns[place]))


def _front(other: Sequence[int], word: Sequence[int], table: KindTable) -> int:
    """The place in ``word`` before which the rest of ``other`` was inserted, -1 for no single one.

    What came in and is like its neighbours may be cut in several ways: such that it ends with
    numbers.
    """
    first, last = len(word) - _n_common(other[::-1], word[::-1]), _n_common(other, word)
    n_more = len(other) - len(word)
    fronts = range(last, first - 1, -1)
    with_numbers = (n for n in fronts if table.kinds[other[n + n_more - 1]].is_control)
    return next(with_numbers, last) if first <= last else -1


def _is_shared(kind: Kind) -> bool:
    """Data that all replicas share, as updated parameters are."""
    return kind.is_large and not kind.is_p2p and kind.role not in MODEL_PARALLEL


def _is_partial(
    periods: Periods, words: dict[int, tuple[int, ...]], word: Sequence[int], table: KindTable
) -> bool:
    """Whether periods with other gradients than the usual ones come at one distance, or some hold
    gradients and others none at all: more than lost records explain."""
    usual = _gradients_in(word, table)
    places: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for index in sorted(words):
        own = _gradients_in(words[index], table)
        if not periods.is_regular[index] and own != usual:
            places.setdefault(tuple(sorted(own.items())), []).append(index)
    if not usual:
        return sum(map(len, places.values())) >= _MIN_TIMES
    n_double = sum(
        len(found) for own, found in places.items() if _is_multiple(Counter(dict(own)), usual)
    )
    if n_double > max(1, _MAX_LOST * len(words)):
        return True
    n_most = _MAX_LOST * len(words) if usual.total() == 1 else 0
    return len(places.get((), ())) > n_most or any(map(_is_in_turn, places.values()))


def _is_multiple(own: Counter[int], usual: Counter[int]) -> bool:
    """Whether it is the usual one several times: what marks the period was not there between."""
    times = {own[code] / n for code, n in usual.items()}
    return own.keys() == usual.keys() and len(times) == 1 and min(times).is_integer()


def _gradients_in(codes: Sequence[int], table: KindTable) -> Counter[int]:
    return Counter(code for code in codes if table.kinds[code].is_gradient)


def _is_in_turn(places: Sequence[int]) -> bool:
    distances = [b - a for a, b in pairwise(places)]
    if len(distances) < _MIN_TIMES - 1:
        return False
    return Counter(distances).most_common(1)[0][1] >= _MOSTLY * len(distances)


def _n_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the beginning that both share."""
    n = min(len(one), len(other))
    return next((i for i in range(n) if one[i] != other[i]), n)
