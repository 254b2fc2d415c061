"""Whether the period that looks like the step may be another one: a part of it, or several.

Three things speak against it, on any of the ranks but a few:

- *inserted*: some periods hold numbers reduced beyond the others (or data of another kind). It may
  be the norm of a step whose microbatches the periods are, or a log between steps. The pauses
  decide: the optimizer takes its time either behind the norm, or in every one of the periods.
- *several*: the pause between two of its gradients is as long as that between two periods: forward
  pass and optimizer may lie in it. Parameters gathered once at its end, behind numbers that are
  reduced only there, say that it is one step.
- *partial*: gradients of which only some periods, in turn, have all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from comminsight.model.learning import PeriodDoubt
from comminsight.model.ops import Op
from comminsight.semantics.op_kinds import MODEL_PARALLEL, Kind, KindTable
from comminsight.semantics.period import RankCodes
from comminsight.semantics.period_block import Block, block_of
from comminsight.semantics.period_choice import Choice, Level, Marked

_SHARDED = frozenset({Op.ALL_GATHER, Op.REDUCE_SCATTER})
_MAX_RANKS = 32
_MOST = 0.75  # of the ranks must tell
_LOW, _HIGH = 0.1, 0.9  # of usual pauses lie between these quantiles
_NO_LONGER = 1.05  # times the usual pause
_MIN_WORK = 0.02  # of a period, for work behind its gradients that is an optimizer
_ALIKE = 0.75  # of the longest pause between gradients: as long as that
_A_PASS = (0.985, 1.5)  # times what another takes; the first of a step may load data
_MIN_BETWEEN = 0.1  # of the longest pause
_FEW = 3
_MIN_SERIES = 2  # equal gradients that may be layers of two parts
_MIN_FORWARD = 0.3  # what the forward pass takes of the backward pass, at least


def review(
    ranks: Sequence[RankCodes], levels: Sequence[Level], choice: Choice, table: KindTable
) -> Choice:
    """The step that nothing speaks against: the one that was chosen, or an inner one where the
    pauses say that all further out comes in between."""
    chosen = choice.step or (choice.rivals[0] if choice.rivals else None)
    if chosen is None:
        return choice
    if not chosen.has_gradients:
        level, blocks = _looked_at(ranks, chosen, table)
        is_part = _is_partial(blocks)
        return Choice(None, doubt=PeriodDoubt.PARTIAL) if is_part else replace(choice, step=level)
    n_inner = next(n for n, level in enumerate(levels) if level is chosen) + 1
    looked = [_looked_at(ranks, lv, table) for lv in levels[:n_inner] if lv.has_gradients]
    level, blocks = looked[-1]
    doubt = doubt_about(blocks)
    if choice.step is not None and doubt is None:
        return replace(choice, step=level, is_told=_is_told(level, blocks))
    for inner, own in reversed(looked):
        if _is_told(inner, own) and doubt_about(own) is None:
            return Choice(inner, is_told=True)
    if choice.rivals:
        return choice
    outer = [lv for lv in levels[n_inner:] if lv.best.n_times < chosen.best.n_times]
    if doubt is PeriodDoubt.INSERTED and outer:
        return Choice(None, (chosen, outer[0]))
    if doubt is PeriodDoubt.SEVERAL and n_inner > 1 and len(looked) > 1:
        return Choice(None, (levels[n_inner - 2], chosen))
    return Choice(None, doubt=doubt)


def _looked_at(
    ranks: Sequence[RankCodes], level: Level, table: KindTable
) -> tuple[Level, list[Block | None]]:
    """The level by those of its patterns whose periods hold all gradients, and the blocks of the
    ranks by the best of them."""
    for marks in (level.marks, level.spare):
        found = [(mark, _blocks(ranks, mark, table)) for mark in marks]
        whole = [(mark, blocks) for mark, blocks in found if not _is_partial(blocks)]
        if whole:
            return replace(level, marks=tuple(mark for mark, _ in whole)), whole[0][1]
    return level, _blocks(ranks, level.best, table)


def _blocks(ranks: Sequence[RankCodes], mark: Marked, table: KindTable) -> list[Block | None]:
    pairs = list(zip(ranks, mark.periods, strict=True))
    some = pairs[:: max(1, len(pairs) // _MAX_RANKS)]
    return [block_of(rank, periods, table) for rank, periods in some]


def _is_partial(blocks: Sequence[Block | None]) -> bool:
    return doubt_about(blocks) is PeriodDoubt.PARTIAL


def doubt_about(blocks: Sequence[Block | None]) -> PeriodDoubt | None:
    """What speaks against a period, by the blocks of the ranks."""
    checks: tuple[tuple[PeriodDoubt, Callable[[Block], bool]], ...] = (
        (PeriodDoubt.PARTIAL, lambda block: block.is_partial),
        (PeriodDoubt.SEVERAL, _may_be_several),
        (PeriodDoubt.INSERTED, lambda block: bool(block.insertions) and not _comes_between(block)),
    )
    for doubt, is_doubtful in checks:
        n = sum(block is None or is_doubtful(block) for block in blocks)
        if n > (1 - _MOST) * len(blocks):
            return doubt
    return None


def _is_told(level: Level, blocks: Sequence[Block | None]) -> bool:
    """Whether something comes in, and the pauses say that it comes between two steps. Those of
    layers say nothing: forward and backward passes lie in some and not in others."""
    if level.is_of_layers and any(kind.op in _SHARDED for kind in level.kinds):
        return False
    told = [block is not None and _comes_between(block) for block in blocks]
    return sum(told) >= _MOST * len(told)


# inserted


def _comes_between(block: Block) -> bool:
    """Whether what is inserted lies between two steps: the optimizer runs in every period.

    Either the pause before a period is shorter behind it, since the optimizer's time has passed by
    then; or every period has work behind its gradients and before its last ops, and the pause
    behind what is inserted is no longer than usual.
    """
    fronts = Counter(one.front for one in block.insertions)
    if not fronts or fronts[-1]:
        return False
    front, n_fronts = fronts.most_common(1)[0]
    behind = np.array([one.pause_ns for one in block.insertions if one.front == front])
    usual = block.pauses_ns[:, front % len(block.kinds)]
    if n_fronts < _MOST * len(block.insertions):
        return False
    least_ns = _MIN_WORK * block.duration_ns
    is_shorter = np.quantile(behind, _HIGH) < np.quantile(usual, _LOW)
    if is_shorter and np.median(usual) - np.median(behind) >= least_ns:
        return True
    has_work = block.behind_gradients_ns(front) >= least_ns
    longest_ns = max(np.quantile(usual, _HIGH), _NO_LONGER * np.median(usual))
    return has_work and bool(np.median(behind) <= longest_ns)


# several


def _may_be_several(block: Block) -> bool:
    """Whether the gradients come in several goes, each perhaps a step of its own."""
    rests_ns = np.median(block.rests_ns, axis=0)
    if len(rests_ns) < 2:
        return False
    last = int(np.argmax(rests_ns))
    segments = _segments(block, last)
    if _has_update_at_end(block, last, segments) or _has_layer_norms(segments):
        return False
    if any(kind.is_control and kind.min_bytes == 0 for s in segments[:-1] for kind in s):
        return True  # a loss of each microbatch, or of each step
    *inside, longest = sorted(rests_ns.tolist())
    has_forward = longest - inside[-1] >= _MIN_FORWARD * sum(inside)
    is_alike = inside[-1] >= _ALIKE * longest
    return is_alike or not has_forward or _is_repeated(block, rests_ns, segments)


def _is_repeated(block: Block, rests_ns: np.ndarray, segments: list[list[Kind]]) -> bool:
    """Whether the gradients are one series several times, with long pauses exactly between: of
    buckets of several sizes or of many, or with numbers reduced between. A few equal ones in a row
    and one other op may be whichever."""
    last = int(np.argmax(rests_ns))
    is_few = len(rests_ns) <= _FEW and not any(segments[:-1]) and len(segments[-1]) == 1
    if is_few and len(set(block.exact_gradients)) == 1:
        return bool(np.sort(rests_ns)[-2] > _MIN_BETWEEN * rests_ns[last])
    places = np.roll(block.gradients, -last - 1).tolist()
    rests = np.roll(rests_ns, -last - 1)
    exact = [block.exact[place] for place in places]
    is_control = np.array([[kind.is_control for kind in s].count(True) > 0 for s in segments])
    is_bare = all(kind.is_control for segment in segments[:-1] for kind in segment)
    for n in range(2, len(exact) // 2 + 1):
        if len(exact) % n or exact != exact[:n] * (len(exact) // n):
            continue
        is_between = np.arange(1, len(exact)) % n == 0
        between, within = rests[:-1][is_between], rests[:-1][~is_between]
        least = max((1 + n / 3) * within.max(), _MIN_BETWEEN * rests[-1])
        is_series = is_bare and (n > _MIN_SERIES or len({*exact[:n]}) > 1)
        if between.min() > least and (is_series or is_control[:-1][is_between].all()):
            return True
    return False


def _segments(block: Block, last: int) -> list[list[Kind]]:
    """Ops behind each gradient, up to the next; those behind the gradient ``last`` come last."""
    places, size = block.gradients, len(block.kinds)
    ends = [*places[1:], places[0] + size]
    found = [
        [block.kinds[place % size] for place in range(first + 1, end)]
        for first, end in zip(places, ends, strict=True)
    ]
    return [*found[last + 1 :], *found[: last + 1]]


def _has_layer_norms(segments: list[list[Kind]]) -> bool:
    """Whether vectors, at least two in a row, are reduced behind the last gradient only."""
    *inside, tail = [[kind.is_control and kind.min_bytes > 0 for kind in s] for s in segments]
    return any(map(all, pairwise(tail))) and not any(map(any, inside))


def _has_update_at_end(block: Block, last: int, segments: list[list[Kind]]) -> bool:
    """Whether parameters are gathered at one place, behind the last gradient and behind more
    numbers than are reduced between two gradients: one optimizer, one step. What follows to the
    next gradient is a pass as those inside are; behind an evaluation it lacks the optimizer."""
    *inside, tail = segments
    others = [kind for segment in inside for kind in segment]
    gathers = [n for n, kind in enumerate(tail) if _is_update(kind) and kind not in others]
    if not gathers or not _is_pass(block, last, len(tail), gathers[-1]):
        return False
    n_before = sum(kind.is_control for kind in tail[: gathers[0]])
    return n_before > max(sum(kind.is_control for kind in segment) for segment in inside)


def _is_pass(block: Block, last: int, n_tail: int, place: int) -> bool:
    """Whether the pauses from behind this place in the tail to the next gradient are those of the
    longest stretch between two gradients inside."""
    first = block.gradients[last] + 1
    own = (np.arange(first + place + 1, first + n_tail + 1)) % len(block.kinds)
    behind_ns = float(np.median(block.pauses_ns[:, own].sum(axis=1)))
    inside = np.delete(block.rests_ns, last, axis=1)
    usual = np.median(inside, axis=0)
    passes = inside[:, usual >= _ALIKE * usual.max()]
    middle = float(np.median(passes))
    low = min(float(np.quantile(passes, 0.25)), _A_PASS[0] * middle)
    high = max(float(np.quantile(passes, 0.75)), _A_PASS[1] * middle)
    return low <= behind_ns <= high


def _is_update(kind: Kind) -> bool:
    return (
        kind.is_large
        and not kind.is_p2p
        and not kind.is_gradient
        and kind.role not in MODEL_PARALLEL
    )
