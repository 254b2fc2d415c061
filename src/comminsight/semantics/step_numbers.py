"""A training step for every local step, spread from the anchors of one communicator.

    anchors of the largest communicator ─► its rows
      ─► rows that share First, Anchor or Last with known ones, until there are none
      ─► another communicator of the same ranks, counted on from where they left the one before
      ─► what is left is a part of its own: ranks that share no op with the others
      ─► rows between two known ones, when exactly as many numbers are free

What a number is known by is not kept here: it is found again in the end, from all rows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from comminsight.semantics.anchor_axis import AnchorAxis
from comminsight.semantics.step_table import StepTable, seq_of, stream_of
from comminsight.semantics.step_votes import NO_KEY, UNKNOWN_STEP, Votes, n_like, usual, vote


@dataclass(frozen=True, slots=True)
class Spread:
    """Per row: its step or ``UNKNOWN_STEP``, from an arbitrary number on in each part; the number
    of its session's part, -1 for none; whether it was counted on by order."""

    steps: np.ndarray
    parts: np.ndarray
    by_order: np.ndarray


def spread(table: StepTable, axis: AnchorAxis) -> Spread:
    """The steps of all rows that can be told. Second choices of an anchor speak for nobody, and for
    themselves only where neither First nor Last does."""
    places = axis.places
    steps = np.full(len(table), UNKNOWN_STEP)
    parts = np.full(len(table), -1)
    by_order = np.zeros(len(table), np.bool_)
    streams = stream_of(places)
    part = 0
    while (open_rows := (steps == UNKNOWN_STEP) & (streams >= 0)).any():
        seeds = open_rows & (streams == usual(streams[open_rows]))
        steps[seeds] = seq_of(places[seeds])
        counted_on = seeds
        while counted_on.any():
            _spread_shared(table, places, steps)
            counted_on = _count_on(table, places, steps)
            by_order |= counted_on
        _smooth(places, steps)
        likely = vote(places, steps).of(axis.likely_places)
        steps[:] = np.where(steps == UNKNOWN_STEP, likely, steps)
        parts[(steps != UNKNOWN_STEP) & (parts < 0)] = part
        part += 1
    starts = np.flatnonzero(~table.follows)
    lengths = np.diff(np.r_[starts, len(table)])
    of_session = np.maximum.reduceat(parts, starts) if len(table) else parts
    return Spread(steps, np.repeat(of_session, lengths), by_order)


def steps_by_bounds(table: StepTable, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the step that most numbered rows give to its First, and to its Last."""
    instances, votes = table.instances, np.tile(steps, 3)
    firsts = vote(instances, votes).of(table.firsts)
    return firsts, vote(instances, votes, prefers_high=True).of(table.lasts)


def fill_between(table: StepTable, steps: np.ndarray) -> np.ndarray:
    """Numbers runs of unknown rows that lie between two known ones of their session, when exactly
    as many numbers are free; the mask of these rows."""
    filled = np.zeros(len(table), np.bool_)
    known = np.flatnonzero(steps != UNKNOWN_STEP)
    for at in np.flatnonzero(np.diff(known) > 1).tolist():
        before, behind = known[at : at + 2].tolist()
        n = behind - before - 1
        is_one = table.sessions[before] == table.sessions[behind]
        if is_one and steps[behind] - steps[before] == n + 1:
            steps[before + 1 : behind] = np.arange(steps[before] + 1, steps[behind])
            filled[before + 1 : behind] = True
    return filled


def out_of_order(table: StepTable, steps: np.ndarray) -> np.ndarray:
    """Mask of the fewest rows without which the steps of each session never go back."""
    mask = np.zeros(len(table), np.bool_)
    known = np.flatnonzero(steps != UNKNOWN_STEP)
    is_back = np.zeros(len(known), np.bool_)
    is_back[1:] = (table.sessions[known[1:]] == table.sessions[known[:-1]]) & (
        steps[known[1:]] < steps[known[:-1]]
    )
    for session in np.unique(table.sessions[known[is_back]]).tolist():
        rows = known[table.sessions[known] == session]
        mask[rows] = True
        mask[rows[_longest_rising(steps[rows].tolist())]] = False
    return mask


def _spread_shared(table: StepTable, places: np.ndarray, steps: np.ndarray) -> None:
    """Number what shares an op with numbered rows. A whole place gets one number, by vote: a single
    row may have run into the next step. Ranks without any number join by more than one such row."""
    while (unknown := steps == UNKNOWN_STEP).any():
        firsts, lasts = steps_by_bounds(table, steps)
        own = _by_bounds(firsts, lasts)
        own[unknown & ~_may_join(table, places, steps, own)] = UNKNOWN_STEP
        is_whole = (firsts == lasts) | (firsts == UNKNOWN_STEP) | (lasts == UNKNOWN_STEP)
        proposed = np.where(unknown, np.where(is_whole, own, UNKNOWN_STEP), steps)
        at_places = vote(places, proposed).of(places)
        found = np.where(places == NO_KEY, own, at_places)
        steps[unknown] = found[unknown]
        if (steps == UNKNOWN_STEP).sum() == unknown.sum():
            return


def _may_join(
    table: StepTable, places: np.ndarray, steps: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """Mask of the rows that may take ``own``, the step by their bounds: those of sessions and
    streams with numbers; of others, those in which two places of the stream agree, or whose step
    lost nothing on either side. One step that lost its edge would number all of them wrongly."""
    known, has_place = steps != UNKNOWN_STEP, places != NO_KEY
    streams = stream_of(places)
    is_old = np.isin(table.sessions, table.sessions[known])
    is_old |= has_place & np.isin(streams, streams[known])
    new = np.flatnonzero(~is_old & (own != UNKNOWN_STEP))
    if not len(new):
        return is_old
    bases = np.where(has_place, seq_of(places), table.local_steps)[new]
    units = np.where(has_place, 2 * streams, 2 * table.sessions + 1)[new]
    distances = own[new] - bases
    _, at = np.unique(np.array([units, bases, distances]), axis=1, return_index=True)
    twice = np.where(n_like(units[at], distances[at]) > 1, distances[at], UNKNOWN_STEP)
    is_agreed = vote(units[at], twice).of(units) == distances
    is_lossy = table.has_loss | (table.follows & np.roll(table.has_loss, 1))
    whole = _by_bounds(*steps_by_bounds(table, np.where(is_lossy, UNKNOWN_STEP, steps)))
    joins = is_old.copy()
    joins[new] = is_agreed | (~is_lossy & (whole == own))[new]
    return joins


def _by_bounds(firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    return np.where(lasts != UNKNOWN_STEP, lasts, firsts)


def _smooth(places: np.ndarray, steps: np.ndarray) -> None:
    """A step that is nearer to one neighbour of its communicator, and farther from the other, than
    their distance to each other allows was voted in by a fused step: it goes back to its place."""
    known = vote(places, steps)
    streams, shifts = stream_of(known.keys), known.values - seq_of(known.keys)
    is_inside = np.zeros(len(shifts), np.bool_)
    is_inside[1:-1] = (streams[2:] == streams[:-2]) & (shifts[2:] == shifts[:-2])
    is_astray = is_inside & (np.roll(shifts, 1) != shifts)
    right = np.where(is_astray, np.roll(shifts, 1) + seq_of(known.keys), UNKNOWN_STEP)
    found = Votes(known.keys, right).of(places)
    moved = found != UNKNOWN_STEP
    steps[moved] = found[moved]


def _count_on(table: StepTable, places: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Number one more communicator's rows, from those that come next after a numbered row of their
    session, or before one; the mask of the new ones. The most frequent distance counts."""
    rows = np.arange(len(table))
    known, usable = steps != UNKNOWN_STEP, (steps == UNKNOWN_STEP) & (places != NO_KEY)
    before = np.maximum.accumulate(np.where(known, rows, -1))
    behind = np.minimum.accumulate(np.where(known, rows, len(table))[::-1])[::-1]
    borders, distances = [], []
    for nearest in (before, behind):
        inside = usable & (nearest >= 0) & (nearest < len(table))
        at = rows[inside]
        at = at[table.sessions[at] == table.sessions[nearest[at]]]
        borders.append(at)
        distances.append(steps[nearest[at]] + at - nearest[at] - seq_of(places[at]))
    at, distance = np.concatenate(borders), np.concatenate(distances)
    if not len(at):
        return np.zeros(len(table), np.bool_)
    stream = usual(stream_of(places[at]))
    new: np.ndarray = usable & (stream_of(places) == stream)
    steps[new] = seq_of(places[new]) + usual(distance[stream_of(places[at]) == stream])
    return new


def _longest_rising(values: list[int]) -> list[int]:
    """Positions of a longest subsequence that never falls."""
    best: list[int] = []  # position at which a subsequence of each length ends lowest
    back = [-1] * len(values)
    for at, value in enumerate(values):
        length = bisect_right(best, value, key=values.__getitem__)
        back[at] = best[length - 1] if length else -1
        best[length : length + 1] = [at]
    chain = []
    at = best[-1] if best else -1
    while at >= 0:
        chain.append(at)
        at = back[at]
    return chain[::-1]
