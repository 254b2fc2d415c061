"""What a step lost: late records and gaps of the arrival numbers, placed in stream time.

A loss is known when some record arrives, while a step becomes final when some op is committed.
To make the answer independent of how reads were chunked, each loss carries the *cut* (everything
that starts before it was decidable) that was in force at its arrival. An op that starts at T is
committed only when the cut has passed T, so every loss whose cut is at most T is known by then in
any chunking; losses with a later cut are left for later steps even if they are known already.
"""

from __future__ import annotations

from collections import deque

import msgspec

MAX_LOSSES = 65_536  # older ones are forgotten; they stay in the tally


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Records missing from the stream whose starts lie in ``[low_ns, high_ns]``, or a change of
    what is recorded at that time, after which ops may be missing by intent."""

    cut_ns: int
    low_ns: int
    high_ns: int
    n_late: int = 0
    n_lost: int = 0
    n_changes: int = 0


class LossLog:
    """Losses in order of arrival, taken by the steps that span them."""

    __slots__ = ("_losses",)

    def __init__(self, losses: list[Loss] | None = None) -> None:
        self._losses: deque[Loss] = deque(losses or (), maxlen=MAX_LOSSES)

    def add(self, loss: Loss) -> None:
        """Remember one loss; cuts must not decrease."""
        self._losses.append(loss)

    def take(self, start_ns: int, next_start_ns: int, final_ns: int) -> tuple[int, int, int]:
        """(late records, lost records, changes) of the window ``[start_ns, next_start_ns)``.

        ``final_ns`` is the start of the op that made the window final. Losses that no later window
        can span are forgotten; one that reaches over the end stays for the next window too.
        """
        n_late = n_lost = n_changes = 0
        kept = []
        while self._losses and self._losses[0].cut_ns <= final_ns:
            loss = self._losses.popleft()
            if loss.low_ns < next_start_ns and loss.high_ns >= start_ns:
                n_late += loss.n_late
                n_lost += loss.n_lost
                n_changes += loss.n_changes
            if loss.high_ns >= next_start_ns:
                kept.append(loss)
        self._losses.extendleft(reversed(kept))
        return n_late, n_lost, n_changes

    def clear(self) -> None:
        """Forget everything."""
        self._losses.clear()

    def snapshot(self) -> list[Loss]:
        """The losses not yet taken, in order."""
        return list(self._losses)
