"""Templates that could stand for a period, the simplest first, and how each does on the data.

The period and its cut say where every step begins and ends; a template says it by Open and Close
alone. Each draft is therefore run through the boundary machine on the ranks that it was made from,
and compared with what the period says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from comminsight.semantics.boundary import BoundaryMachine
from comminsight.semantics.learn import resolve
from comminsight.semantics.learn_close import MIN_BLOCKS_AT_END
from comminsight.semantics.losses import LossLog
from comminsight.semantics.op_kinds import NUMBERS_BYTES, Detail, Kind, KindTable, position_of
from comminsight.semantics.parts import blocks_of, content_period
from comminsight.semantics.pauses import pause_period
from comminsight.semantics.period import Pattern, Periods, RankCodes
from comminsight.semantics.step_cut import StepCut
from comminsight.semantics.template import Sequence as Symbols
from comminsight.semantics.template import Template

PRIORITY = 50  # above the shipped ones: it was made for this job
_MAX_CLOSE = 64
_MAX_ANCHOR_KINDS = 2
_OPENS = (
    (1, Detail.CALL), (1, Detail.SIZE_CLASS), (2, Detail.CALL), (2, Detail.SIZE_CLASS),
    (3, Detail.SIZE_CLASS), (1, Detail.EXACT), (2, Detail.EXACT),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CutRank:
    """One rank with the periods of the anchor and the cut in them."""

    codes: RankCodes
    periods: Periods
    cut: StepCut

    @property
    def tail(self) -> np.ndarray:
        """Ops of the example from behind the anchor to the end of the step."""
        first = int(self.periods.first[self.cut.example])
        return np.arange(first, first + self.cut.n_tail)

    def head(self, n: int) -> np.ndarray:
        """The first ``n`` ops of the step that follows in the example."""
        first = int(self.periods.first[self.cut.example]) + self.cut.n_tail
        return np.arange(first, min(first + n, len(self.codes.starts_ns)))

    @property
    def begins_with_anchor(self) -> bool:
        """The anchor is the first thing of the step."""
        return self.cut.n_tail == len(self.cut.word)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a template did on one rank: regular boundaries where they should be, and steps."""

    n_right: int
    n_regular: int
    n_steps: int
    n_anchors: int
    n_between: int = 0
    n_between_right: int = 0
    looks_like_parts: bool = False

    @property
    def between_ratio(self) -> float:
        """Of the steps before which something comes in, the share that begins behind it."""
        return self.n_between_right / self.n_between if self.n_between else 1.0

    @property
    def is_perfect(self) -> bool:
        """Every regular boundary, and a step per anchor; the first or last step may be cut off."""
        is_complete = self.n_anchors - 1 <= self.n_steps <= self.n_anchors
        return self.n_right == self.n_regular and is_complete

    @property
    def score(self) -> float:
        """1 for a perfect fit, less for wrong boundaries and for steps too many or too few."""
        apart = max(0, abs(2 * (self.n_anchors - self.n_steps) - 1) - 1) / 2
        return self.n_right / max(1, self.n_regular) - apart / max(1, self.n_anchors)


def drafts(ranks: Sequence[CutRank], pattern: Pattern, table: KindTable) -> Iterator[Template]:
    """Templates that could say the same as the period."""
    anchor = _anchor(ranks, pattern, table)
    blank = Template(name="learned", version=1, priority=PRIORITY, anchors=(anchor,))
    if all(rank.begins_with_anchor for rank in ranks):
        yield msgspec.structs.replace(
            blank, opens=(anchor,), learn="until_open", is_close_inside_open=True
        )
        return
    ends = tuple(_ends(ranks, blank, anchor, table))
    for n, detail in _OPENS:
        opened = _positions([rank.codes.codes[detail][rank.head(n)] for rank in ranks], table)
        for end in ends:
            yield msgspec.structs.replace(end, opens=(opened,))


def fit(template: Template, rank: CutRank) -> Fit:
    """How the template does on the rank."""
    stream, periods, n_tail = rank.codes.stream, rank.periods, rank.cut.n_tail
    rows, n_anchors = stream.rows, len(periods.last)
    usual = np.flatnonzero(periods.is_regular)
    is_seen_whole = (usual > 0) | stream.is_from_start  # else the first step has no beginning
    n_regular = len(usual) + int(is_seen_whole.sum())
    resolved = resolve(template, rows, stream.comms, MIN_BLOCKS_AT_END)
    if isinstance(resolved, str):
        return Fit(0, n_regular, 0, n_anchors)
    machine = BoundaryMachine(resolved, stream.identity, stream.comms, LossLog())
    steps = machine.feed(rows) + machine.finish()
    cuts = periods.first[usual] + n_tail
    begins = {step.first.seq for step in steps}
    ends = {step.last.seq for step in steps}
    open_step = machine.step
    if open_step is not None:  # cut off by the end of the stream, but begun
        begins.add(open_step.first.evidence.seq)
    n_right = sum(seq in begins for seq in rows["seq"][cuts].tolist())
    n_right += sum(seq in ends for seq in rows["seq"][cuts[is_seen_whole] - 1].tolist())
    behind = _behind_insertions(rank)
    n_behind = sum(seq in begins for seq in rows["seq"][behind].tolist())
    blocks = blocks_of(steps, rows, stream.comms)
    are_parts = blocks is not None and bool(
        content_period(blocks, is_iteration=False) or pause_period(blocks)
    )
    return Fit(n_right, n_regular, len(steps), n_anchors, len(behind), n_behind, are_parts)


def _behind_insertions(rank: CutRank) -> list[int]:
    """Where steps begin before which something came in: the head behind it is as usual."""
    codes, periods, cut = rank.codes.codes[Detail.SIZE_CLASS], rank.periods, rank.cut
    head = np.array(cut.word[cut.n_tail :], codes.dtype)
    begins = []
    for index in np.flatnonzero(~periods.is_regular).tolist():
        begin = int(periods.end[index]) - len(head)
        is_whole = begin > periods.first[index] + cut.n_tail
        if is_whole and len(head) and np.array_equal(codes[begin : begin + len(head)], head):
            begins.append(begin)
    return begins


def _ends(
    ranks: Sequence[CutRank], blank: Template, anchor: Symbols, table: KindTable
) -> Iterator[Template]:
    """Ways to end a step."""
    tails = [rank.codes.codes[Detail.CALL][rank.tail] for rank in ranks]
    n_tail = len(tails[0])
    is_common = all(np.array_equal(tail, tails[0]) for tail in tails[1:])
    if is_common and n_tail == 0:
        yield msgspec.structs.replace(blank, closes=(anchor,))
    elif is_common and n_tail <= _MAX_CLOSE:
        fine = [rank.codes.codes[Detail.SIZE_CLASS][rank.tail] for rank in ranks]
        for parts in (tails, fine):
            close = (*anchor, *_positions(parts, table))
            yield msgspec.structs.replace(blank, closes=(close,))
            yield msgspec.structs.replace(blank, closes=(close,), anchors=(close,))
    yield msgspec.structs.replace(blank, learn="until_open")


def _anchor(ranks: Sequence[CutRank], pattern: Pattern, table: KindTable) -> Symbols:
    """The pattern as a sequence, with the element types and size classes that it always has, and
    with the size where it is one or few numbers and never another."""
    n = len(pattern.kinds)
    positions = []
    for place in range(n):
        seen = [_seen(ranks, n - 1 - place, detail, table) for detail in Detail]
        own = table.kinds[pattern.kinds[place]]
        fine, exact = seen[Detail.SIZE_CLASS], seen[Detail.EXACT]
        if pattern.detail is Detail.EXACT or (
            len(exact) == 1 and exact[0].max_bytes <= NUMBERS_BYTES
        ):
            fine = exact
        positions.append(position_of(fine if len(fine) <= _MAX_ANCHOR_KINDS else [own]))
    return tuple(positions)


def _seen(ranks: Sequence[CutRank], n_before: int, detail: Detail, table: KindTable) -> list[Kind]:
    """Kinds of the ops that stand so many ops before the end of the anchor, on any rank."""
    codes: set[int] = set()
    for rank in ranks:
        where = rank.periods.last - n_before
        codes.update(np.unique(rank.codes.codes[detail][where]).tolist())
    return [table.kinds[code] for code in sorted(codes)]


def _positions(parts: Sequence[np.ndarray], table: KindTable) -> Symbols:
    """One position per op, each with what any rank has there."""
    n = min(map(len, parts))
    return tuple(
        position_of(table.kinds[code] for code in dict.fromkeys(int(part[i]) for part in parts))
        for i in range(n)
    )
