"""The anchors of one stream as a row of training steps: 0, 1, 2, …

Most ranks take the same op instance as the anchor of a step. A rank that lost records may take
another op near it: such an instance lies closer to the one before than a step is long, and hardly
any rank has both; or it is of another stream than the anchors before and behind. It is a second
choice, which may even be an op of the step behind.

A step of which all ranks lost the anchor leaves a gap of several whole steps, and lost records at
all of them; without these a long gap is just a gap (an evaluation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.semantics.step_table import StepTable, key_of, seq_of, stream_of
from comminsight.semantics.step_votes import NO_KEY, usual

_TOLERANCE = 0.1  # of a step, for a gap that counts as several


@dataclass(frozen=True, slots=True)
class AnchorAxis:
    """Per row the key (stream, number of the step in it), ``NO_KEY`` without an anchor;
    ``likely_places`` holds those of second choices too."""

    places: np.ndarray
    likely_places: np.ndarray


def anchor_axis(table: StepTable) -> AnchorAxis:
    """The places of the anchors of all streams."""
    likely = np.full(len(table), NO_KEY)
    is_usual = np.zeros(len(table), np.bool_)
    streams = stream_of(table.anchors)
    for stream in np.unique(streams[streams >= 0]).tolist():
        rows = np.flatnonzero(streams == stream)
        seqs = seq_of(table.anchors[rows])
        numbers, is_usual[rows] = _numbers(seqs, table.sessions[rows], table.has_loss[rows])
        likely[rows] = key_of(stream, numbers)
    is_usual &= ~_is_interlude(table, streams)
    return AnchorAxis(np.where(is_usual, likely, NO_KEY), likely)


def _is_interlude(table: StepTable, streams: np.ndarray) -> np.ndarray:
    """Mask of the rows between two of their session that both have one other stream."""
    mask = np.zeros(len(table), np.bool_)
    is_inside = table.sessions[2:] == table.sessions[:-2]
    around, own = streams[2:], streams[1:-1]
    mask[1:-1] = is_inside & (around == streams[:-2]) & (around != own)
    return mask


def _numbers(
    seqs: np.ndarray, sessions: np.ndarray, has_loss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(number of the step of each row, mask of those that have its usual instance), in rows of one
    stream sorted by session."""
    instances, of_row = np.unique(seqs, return_inverse=True)
    follows = np.r_[False, sessions[1:] == sessions[:-1]]
    advances = np.diff(seqs, prepend=0)[follows]
    pace = usual(advances[advances > 0]) if (advances > 0).any() else 1
    is_step = _begins_step(instances, of_row, sessions, pace)
    step_of = np.cumsum(is_step) - 1
    heads = _heads(instances, step_of, np.bincount(of_row), pace)
    is_lossy = _is_lossy(step_of[of_row], sessions, has_loss, len(heads))
    n_more = _lost_by_all(heads, pace, is_lossy)
    numbers = (step_of + np.cumsum(n_more)[step_of])[of_row]
    return numbers, seqs == heads[step_of[of_row]]


def _begins_step(
    instances: np.ndarray, of_row: np.ndarray, sessions: np.ndarray, pace: int
) -> np.ndarray:
    """Mask of the instances that do not share a step with the one before."""
    is_step = np.ones(len(instances), np.bool_)
    close = np.flatnonzero(np.diff(instances) < pace) + 1
    if not len(close):
        return is_step
    taken_by = _sessions_by_instance(of_row, sessions, len(instances))
    first, last = _lives(of_row, sessions)
    head = 0
    for at in range(1, len(instances)):
        if instances[at] - instances[head] < pace:
            n_present = int(((first <= at) & (last >= head)).sum())
            n_both = len(taken_by[head] & taken_by[at])
            n_both = max(n_both, len(taken_by[at - 1] & taken_by[at]))
            is_step[at] = 2 * n_both > n_present
        head = at if is_step[at] else head
    return is_step


def _heads(
    instances: np.ndarray, step_of: np.ndarray, n_votes: np.ndarray, pace: int
) -> np.ndarray:
    """The instance that stands for each step: the one of most ranks, of several the one at the
    usual distance from the others, and of these the first."""
    is_even = instances % pace == usual(np.repeat(instances % pace, n_votes))
    order = np.lexsort((instances, ~is_even, -n_votes, step_of))
    is_best = np.r_[True, step_of[order][1:] != step_of[order][:-1]]
    heads: np.ndarray = instances[order[is_best]]
    return heads


def _sessions_by_instance(of_row: np.ndarray, sessions: np.ndarray, n: int) -> list[set[int]]:
    taken: list[set[int]] = [set() for _ in range(n)]
    for at, session in zip(of_row.tolist(), sessions.tolist(), strict=True):
        taken[at].add(session)
    return taken


def _lives(of_row: np.ndarray, sessions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) instance of each session."""
    starts = np.flatnonzero(np.r_[True, sessions[1:] != sessions[:-1]])
    return np.minimum.reduceat(of_row, starts), np.maximum.reduceat(of_row, starts)


def _is_lossy(
    step_of_row: np.ndarray, sessions: np.ndarray, has_loss: np.ndarray, n_steps: int
) -> np.ndarray:
    """Per step whether all its ranks miss records in it or in the one that they had before."""
    before = np.r_[False, has_loss[:-1] & (sessions[1:] == sessions[:-1])]
    is_first = np.r_[True, sessions[1:] != sessions[:-1]]
    has_none = ~(has_loss | before) & ~is_first
    n_without = np.bincount(step_of_row[has_none], minlength=n_steps)
    n_lossy = np.bincount(step_of_row[has_loss | before], minlength=n_steps)
    found: np.ndarray = (n_without == 0) & (n_lossy > 0)
    return found


def _lost_by_all(heads: np.ndarray, pace: int, is_lossy: np.ndarray) -> np.ndarray:
    """How many steps are missing in front of each step."""
    gaps = np.diff(heads, prepend=heads[:1] - pace)
    n = np.rint(gaps / pace).astype(np.int64)
    is_whole = np.abs(gaps - n * pace) <= _TOLERANCE * pace
    more: np.ndarray = np.where(is_whole & is_lossy & (n > 1), n - 1, 0)
    return more
