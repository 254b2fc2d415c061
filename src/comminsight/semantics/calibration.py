"""Which training step of the run each rank's local steps are, from the ops that bound them.

A rank that lost records fuses two steps or drops one, and from then on its own numbers lag behind;
one that joined late or was restarted counts from 0. Anchor, First and Last name op instances that
other ranks recorded too, so the same instance is the same training step. Anchors carry the numbers,
First and Last confirm them, stand in where there is no anchor, and tell what a fused step spans.
Ranks that share no op with the others (replicas of a server) are a part of their own, whose numbers
do not compare with those of other parts. What cannot be told is left raw, with the reason. The
result depends on the steps alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.calibration import LEFT_RAW, SessionCorrection, StepMark, StepProof, StepSpan
from comminsight.model.ranges import range_compress
from comminsight.model.verdict import Confidence
from comminsight.semantics.anchor_axis import anchor_axis
from comminsight.semantics.step_numbers import fill_between, out_of_order, spread, steps_by_bounds
from comminsight.semantics.step_table import SessionStepList, StepTable, step_table
from comminsight.semantics.step_votes import NO_KEY, UNKNOWN_STEP, n_like

_PROOFS = (StepProof.ANCHOR, StepProof.FIRST, StepProof.LAST)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Per row of the table: its step, what it spans, and what says so."""

    steps: np.ndarray
    parts: np.ndarray
    n_before: np.ndarray
    n_behind: np.ndarray
    is_split: np.ndarray
    is_agreed: np.ndarray  # (3, rows): anchor, First, Last say the same as other ranks'
    by_order: np.ndarray
    by_place: np.ndarray
    is_contrary: np.ndarray
    is_doubtful: np.ndarray  # the count may be off by one since a step that one rank alone has


def calibrate(sessions: Sequence[SessionStepList]) -> tuple[SessionCorrection, ...]:
    """One correction per session with steps, in the given order; the first training step that any
    rank of a part recorded is number 0."""
    with_steps = [one for one in sessions if one.steps]
    table = step_table(with_steps)
    if not len(table):
        return ()
    numbered = _number(table)
    ends = np.flatnonzero(np.r_[table.sessions[1:] != table.sessions[:-1], True]) + 1
    starts, span_starts = np.r_[0, ends[:-1]], _span_starts(table, numbered)
    return tuple(
        _session(one, numbered, table, range(first, end), span_starts)
        for one, first, end in zip(with_steps, starts.tolist(), ends.tolist(), strict=True)
    )


def _number(table: StepTable) -> _Numbered:
    found = spread(table, anchor_axis(table))
    steps = found.steps
    firsts, lasts = steps_by_bounds(table, steps)
    is_outvoted = (firsts == lasts) & (firsts != UNKNOWN_STEP) & (table.firsts != table.lasts)
    steps = np.where(is_outvoted, firsts, steps)
    is_contrary = out_of_order(table, steps)
    steps[is_contrary] = UNKNOWN_STEP
    steps[_is_guess(table, found.parts)] = UNKNOWN_STEP
    n_before, n_behind = _spans(table, steps, firsts, lasts)
    by_place = fill_between(table, steps)
    is_doubtful = _is_doubtful(table, steps, found.parts)
    return _Numbered(
        _from_zero(steps, found.parts), found.parts, n_before, n_behind, _is_split(table, steps),
        _is_agreed(table, steps), found.by_order, by_place, is_contrary, is_doubtful,
    )  # fmt: skip


def _is_guess(table: StepTable, parts: np.ndarray) -> np.ndarray:
    """Mask of the rows of a session that is alone in its part, from its first loss on: whether it
    fused steps, or dropped or tore one, no other rank can tell."""
    starts = np.flatnonzero(~table.follows)
    n_sessions = np.bincount(parts[starts] + 1)  # -1 for none
    is_alone = n_sessions[parts + 1] == 1
    n_lossy = np.cumsum(table.has_loss)
    n_before = (n_lossy - table.has_loss)[starts]
    lengths = np.diff(np.r_[starts, len(table)])
    found: np.ndarray = is_alone & (n_lossy > np.repeat(n_before, lengths))
    return found


def _is_doubtful(table: StepTable, steps: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Mask of the rows from the first step of their part on that nobody has, or only one of several
    ranks that have steps on both sides, or one with a loss: it may be half of the step before, or
    one more than there was. All count it, so that they agree with each other and may be off."""
    found = np.zeros(len(table), np.bool_)
    for part in np.unique(parts[parts >= 0]).tolist():
        rows = np.flatnonzero((parts == part) & (steps != UNKNOWN_STEP))
        if not len(rows):
            continue
        own, sessions = steps[rows], table.sessions[rows]
        numbers, n_sessions = np.unique(
            np.unique(np.array([own, sessions]), axis=1)[0], return_counts=True
        )
        starts = np.flatnonzero(np.r_[True, sessions[1:] != sessions[:-1]])
        lows = np.sort(np.minimum.reduceat(own, starts))
        highs = np.sort(np.maximum.reduceat(own, starts))
        n_around = np.searchsorted(lows, own) - np.searchsorted(highs, own, side="right")
        is_single = np.isin(own, numbers[n_sessions == 1])
        doubts = own[is_single & (table.has_loss[rows] | (n_around > 1))]
        doubts = np.r_[doubts, numbers[1:][np.diff(numbers) > 1]]
        found[rows] = own >= doubts.min() if len(doubts) else False
    return found


def _from_zero(steps: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The same steps, those of each part from 0 on."""
    shifted = steps.copy()
    for part in np.unique(parts[steps != UNKNOWN_STEP]).tolist():
        rows = (parts == part) & (steps != UNKNOWN_STEP)
        shifted[rows] -= steps[rows].min()
    return shifted


def _is_agreed(table: StepTable, steps: np.ndarray) -> np.ndarray:
    """``(3, rows)``: whether another row with the same step names the row's anchor, First, Last."""
    anchors, firsts, lasts = n_like(table.instances, np.tile(steps, 3)).reshape(3, -1)
    firsts = np.where(table.firsts == table.anchors, anchors, firsts)
    lasts = np.where(table.lasts == table.anchors, anchors, lasts)
    lasts = np.where(table.lasts == table.firsts, firsts, lasts)
    agreed: np.ndarray = np.array([anchors, firsts, lasts]) > 1
    return agreed


def _spans(
    table: StepTable, steps: np.ndarray, firsts: np.ndarray, lasts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many steps before and behind its own each row spans: up to its neighbours' at most."""
    known = steps != UNKNOWN_STEP
    low, high = np.full(len(table), -(1 << 61)), np.full(len(table), 1 << 61)
    both = table.follows.copy()
    both[1:] &= known[1:] & known[:-1]
    low[both] = steps[np.flatnonzero(both) - 1]
    high[np.flatnonzero(both) - 1] = steps[both]
    is_wide_before = known & (firsts != UNKNOWN_STEP) & (firsts < steps) & (firsts > low)
    is_wide_behind = known & (lasts != UNKNOWN_STEP) & (lasts > steps) & (lasts < high)
    return np.where(is_wide_before, steps - firsts, 0), np.where(is_wide_behind, lasts - steps, 0)


def _is_split(table: StepTable, steps: np.ndarray) -> np.ndarray:
    like_before = table.follows & (steps == np.roll(steps, 1)) & (steps != UNKNOWN_STEP)
    found: np.ndarray = like_before | np.roll(like_before, -1)
    return found


def _session(
    one: SessionStepList, numbered: _Numbered, table: StepTable, rows: range, starts: np.ndarray
) -> SessionCorrection:
    """``starts`` are the rows at which a span begins, of all sessions."""
    first, end = np.searchsorted(starts, (rows.start, rows.stop)).tolist()
    own = [*starts[first:end].tolist(), rows.stop]
    spans = (_span(numbered, table, row, until - row) for row, until in itertools.pairwise(own))
    return SessionCorrection(
        session_id=one.identity.session_id, global_rank=one.identity.global_rank,
        part=int(numbered.parts[rows.start]), spans=tuple(spans), missing=_missing(numbered, rows),
    )  # fmt: skip


def _span_starts(table: StepTable, numbered: _Numbered) -> np.ndarray:
    """The rows that do not just go on from the row before, with the same to be said of them."""
    unknown = numbered.steps == UNKNOWN_STEP
    said = np.vstack([
        numbered.is_agreed, numbered.by_order, numbered.by_place, numbered.is_contrary,
        numbered.is_split, numbered.n_before, numbered.n_behind, unknown, _has_no_op(table),
        numbered.is_doubtful,
    ])  # fmt: skip
    is_odd = numbered.is_split | (numbered.n_before + numbered.n_behind > 0)
    goes_on = table.follows & ~is_odd
    goes_on[1:] &= (said[:, 1:] == said[:, :-1]).all(axis=0)
    goes_on[1:] &= unknown[1:] | (np.diff(numbered.steps) == 1)
    goes_on[1:] &= np.diff(table.local_steps) == 1
    return np.flatnonzero(~goes_on)


def _has_no_op(table: StepTable) -> np.ndarray:
    keys = np.array([table.anchors, table.firsts, table.lasts])
    found: np.ndarray = (keys == NO_KEY).all(axis=0)
    return found


def _span(numbered: _Numbered, table: StepTable, row: int, n_steps: int) -> StepSpan:
    local_step = int(table.local_steps[row])
    if numbered.steps[row] == UNKNOWN_STEP:
        keys = (table.anchors[row], table.firsts[row], table.lasts[row])
        reason = "no_shared_op" if all(key == NO_KEY for key in keys) else "not_linked"
        return StepSpan(
            local_step=local_step, n_steps=n_steps, step=LEFT_RAW, mark=StepMark.RAW,
            confidence=Confidence.NONE, reason="contrary" if numbered.is_contrary[row] else reason,
        )  # fmt: skip
    before, behind = int(numbered.n_before[row]), int(numbered.n_behind[row])
    mark = StepMark.SPLIT if numbered.is_split[row] else StepMark.NONE
    proofs, confidence = _proofs(numbered, row)
    return StepSpan(
        local_step=local_step, n_steps=n_steps, step=int(numbered.steps[row]),
        mark=StepMark.FUSED if before + behind else mark, confidence=confidence, proofs=proofs,
        n_before=before, n_behind=behind,
    )  # fmt: skip


def _proofs(numbered: _Numbered, row: int) -> tuple[tuple[StepProof, ...], Confidence]:
    """Two ops that others confirm are high, one is medium; counted on, placed or alone is low, and
    all behind a step of which nobody can tell whether it was one."""
    proofs = tuple(
        proof for proof, agreed in zip(_PROOFS, numbered.is_agreed[:, row], strict=True) if agreed
    )
    if numbered.by_place[row]:
        return (StepProof.PLACE,), Confidence.LOW
    if numbered.by_order[row]:
        is_sure = proofs and not numbered.is_doubtful[row]
        return (StepProof.ORDER, *proofs), Confidence.MEDIUM if is_sure else Confidence.LOW
    if not proofs:
        return (StepProof.ALONE,), Confidence.LOW
    if numbered.is_doubtful[row]:
        return proofs, Confidence.LOW
    return proofs, Confidence.HIGH if len(proofs) > 1 else Confidence.MEDIUM


def _missing(numbered: _Numbered, rows: range) -> str:
    """Training steps that no step of the session covers, between its first and its last."""
    own = rows.start + np.flatnonzero(numbered.steps[rows.start : rows.stop] != UNKNOWN_STEP)
    if not len(own):
        return ""
    low = numbered.steps[own] - numbered.n_before[own]
    high = np.maximum.accumulate(numbered.steps[own] + numbered.n_behind[own])
    gaps = np.flatnonzero(low[1:] > high[:-1] + 1)
    return range_compress(
        step
        for begin, end in zip(high[gaps].tolist(), low[gaps + 1].tolist(), strict=True)
        for step in range(begin + 1, end)
    )
