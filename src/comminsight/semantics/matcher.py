"""Strictly consecutive matching of a sequence, as a table over op classes.

A wrong op breaks the candidate and is tested again as the start of a new one: *restart*, not the
longest border of KMP. ``A A B`` is therefore not found in ``A A A B``. After a completion the
matcher starts anew, so completions do not share ops:

    next[s][c] = s + 1   if position s fits class c
                 1       if position 0 fits c
                 0       else                      (state L, complete, behaves as state 0)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain

import numpy as np

_COMMON = 1 / 16  # of the ops; a first op that is more common is no shortcut


class Matcher:
    """One sequence over the classes of a coder; ``state`` is how many positions have matched."""

    __slots__ = ("_is_hit", "_table", "length", "state")

    def __init__(self, fits: np.ndarray) -> None:
        """``fits[class, position]`` says whether a class satisfies a position of the sequence."""
        self.length = fits.shape[1]
        self.state = 0
        self._is_hit = np.ascontiguousarray(fits[:, 0])
        restart = fits[:, 0].astype(np.intp)
        rows = [np.where(fits[:, s], s + 1, restart).tolist() for s in range(self.length)]
        self._table = [*rows, rows[0]]

    def feed(self, classes: np.ndarray) -> np.ndarray:
        """Indices of the ops that complete the sequence, ascending; the state is carried on."""
        starts = np.flatnonzero(self._is_hit.take(classes))
        if self.length == 1:
            return starts
        if len(starts) > len(classes) * _COMMON:
            return self._feed_all(classes)
        return self._feed_from(starts.tolist(), classes)

    def _feed_all(self, classes: np.ndarray) -> np.ndarray:
        table, length, state = self._table, self.length, self.state
        hits = []
        for index, symbol in enumerate(classes.tolist()):
            state = table[state][symbol]
            if state == length:
                hits.append(index)
        self.state = state
        return np.array(hits, np.intp)

    def _feed_from(self, starts: list[int], classes: np.ndarray) -> np.ndarray:
        """The same, looking only at what stands behind a first op: all else leaves state 0."""
        table, length, state = self._table, self.length, self.state
        symbols = np.ascontiguousarray(classes).data
        hits: list[int] = []
        index, n = 0, len(symbols)
        following = iter(starts)
        while True:
            while 0 < state < length and index < n:
                state = table[state][symbols[index]]
                index += 1
                if state == length:
                    hits.append(index - 1)
            index = next((start for start in following if start >= index), n)
            if index >= n:
                break
            state, index = 1, index + 1
        is_over = n > 0 and state == length and hits[-1:] != [n - 1]
        self.state = 0 if is_over else state
        return np.array(hits, np.intp)


class AnyMatcher:
    """Several alternative sequences; a completion of any counts."""

    __slots__ = ("_matchers",)

    def __init__(self, fits: list[np.ndarray]) -> None:
        self._matchers = [Matcher(table) for table in fits]

    @property
    def states(self) -> list[int]:
        """State of each alternative, for the snapshot."""
        return [matcher.state for matcher in self._matchers]

    def restore(self, states: list[int]) -> None:
        """Continue from ``states``."""
        for matcher, state in zip(self._matchers, states, strict=True):
            matcher.state = state

    @property
    def max_length(self) -> int:
        """Ops in the longest alternative."""
        return max((matcher.length for matcher in self._matchers), default=0)

    def feed(self, classes: np.ndarray, base: int) -> Hits:
        """Completions as positions in the stream; ``base`` is the position of the first class."""
        lasts = [matcher.feed(classes) + base for matcher in self._matchers]
        if len(lasts) == 1:
            return Hits(lasts[0], lasts[0] - (self._matchers[0].length - 1))
        if not lasts:
            return Hits(np.empty(0, np.intp), np.empty(0, np.intp))
        firsts = [last - (m.length - 1) for last, m in zip(lasts, self._matchers, strict=True)]
        last, first = np.concatenate(lasts), np.concatenate(firsts)
        order = np.lexsort((first, last))
        return Hits(last[order], first[order])

    def once(self, classes: np.ndarray, base: int) -> Hits:
        """Completions within these classes alone; what is carried on stays as it is."""
        states = self.states
        self.restore([0] * len(states))
        found = self.feed(classes, base)
        self.restore(states)
        return found


def sound_suffix(
    shape: tuple[int, ...], blocks: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The shortest end of ``shape`` that completes at the end of every such block and nowhere but
    at block ends, while the blocks run through a matcher one after the other; None if none does."""
    lengths = range(1, len(shape) + 1)
    return next((shape[-n:] for n in lengths if _is_sound(shape[-n:], shape, blocks)), None)


def completions(sequence: tuple[int, ...], symbols: Iterable[int]) -> Iterator[int]:
    """Where a matcher of ``sequence`` completes in ``symbols``, ascending."""
    state = 0
    for index, symbol in enumerate(symbols):
        state = state + 1 if symbol == sequence[state] else int(symbol == sequence[0])
        if state == len(sequence):
            yield index
            state = 0


def _is_sound(
    suffix: tuple[int, ...], shape: tuple[int, ...], blocks: Sequence[tuple[int, ...]]
) -> bool:
    ends = [n - 1 for n in accumulate(map(len, blocks))]
    permitted = frozenset(ends)
    due = {end for end, block in zip(ends, blocks, strict=True) if block == shape}
    for last in completions(suffix, chain.from_iterable(blocks)):
        if last not in permitted:
            return False
        due.discard(last)
    return not due


class Hits:
    """Completions in ascending order: positions of their last and first op."""

    __slots__ = ("_first", "_last")

    def __init__(self, last: np.ndarray, first: np.ndarray) -> None:
        # indexing a memoryview gives plain ints, several times faster than indexing an array
        self._last, self._first = last.data, first.data

    def __len__(self) -> int:
        return len(self._last)

    def without(self, lasts: np.ndarray) -> Hits:
        """The completions whose last op is none of these positions."""
        kept = ~np.isin(self._last, lasts)
        return Hits(np.asarray(self._last)[kept], np.asarray(self._first)[kept])

    def next_from(self, first_at_least: int, last_at_least: int = 0) -> tuple[int, int] | None:
        """(first, last) of the earliest completion that begins and ends at or after a position."""
        index = bisect_left(self._last, max(first_at_least, last_at_least))
        while index < len(self._last):
            first = self._first[index]
            if first >= first_at_least:
                return first, self._last[index]
            index += 1
        return None
