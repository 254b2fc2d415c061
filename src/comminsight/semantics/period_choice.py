"""Which of the periods in a job's ops is the step.

Patterns that recur equally often form a *level*: layers, microbatches, steps, evaluations. A level
counts when one of its patterns recurs on every rank up to the end, most periods of every rank are
alike, and its last op is the same op of its communicator on all ranks. A run of one kind of op has
no period. From the innermost level outwards the step so far gives way to the next level outside

1. that is the first to have gradients (a reduction of data outside of model parallel groups);
2. if neither has gradients nor the inner one a control op (a reduction of numbers), that has a
   control op, or collectives of a kind that the inner one does not have;
3. if the inner one has gradients but no control op, that has one and moves data of another kind
   (parameters), or that has more data between some of its inner periods: they are its layers.

A step with gradients and without a control op, around which only control ops recur, may as well be
a microbatch: the periods compete and neither is taken. So do they where rule 3 would take layers
for layers twice. All that lies further out is a log, an evaluation, a checkpoint; ``period_doubt``
asks the pauses whether that is so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from comminsight.model.learning import FoundPeriod, PeriodDoubt, PeriodStanding
from comminsight.model.ops import Op
from comminsight.semantics.op_kinds import Detail, Kind, KindTable
from comminsight.semantics.period import (
    Pattern,
    Periods,
    RankCodes,
    n_groups,
    patterns_in,
    periods_of,
)  # fmt: skip

MIN_TIMES = 4  # three whole periods
MIN_REGULAR_RATIO = 0.6
_MIN_RATIO_UNPROVED = 0.8  # where chance may be the reason
_MANY = 8  # of fewer equal periods it may be, unless the others lack nothing
_MIN_WHOLE_RATIO = 0.9
_SAME_LEVEL = 1.5  # patterns whose numbers differ by less mark the same period
_MAX_LEVELS = 12
_MAX_TRIED = 48  # patterns of a level that are looked at on all ranks
_MAX_KEPT = 4  # of those that occur equally often
_MAX_ODD = 64  # irregular periods that are looked into
_BARE_OPS = 3  # a period of so few ops is a layer, if there is a longer one
_COLLECTIVES = frozenset(
    {Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.REDUCE, Op.GATHER, Op.ALL_TO_ALL}
)
_MAX_REST_RATIO = 0.5  # an evaluation may come last
_RATIO_STEPS = 10  # ratios that differ by less than 10 % are equal


@dataclass(frozen=True, slots=True)
class Marked:
    """A pattern on all ranks: the periods it marks, and the communicators its last op is on."""

    pattern: Pattern
    periods: tuple[Periods, ...]
    is_widest: bool
    is_control: bool
    whole_ratio: float  # share of periods that lack nothing, on the first rank
    n_groups: int  # 0: not the same op on all ranks

    @property
    def n_times(self) -> int:
        """Occurrences on the rank that has fewest."""
        return min(len(periods.last) for periods in self.periods)

    @property
    def rest_ratio(self) -> float:
        """How long the job goes on without it, on the rank where it does so longest."""
        return max(periods.rest_ratio for periods in self.periods)

    @property
    def regular_ratio(self) -> float:
        """Share of equal periods on the rank where it is lowest."""
        return min(periods.regular_ratio for periods in self.periods)

    @property
    def n_ops(self) -> int:
        """Ops from one occurrence to the next, on the first rank."""
        found = self.periods[0]
        n_between = (found.end - found.first)[found.is_regular]
        return len(self.pattern.kinds) + int(np.median(n_between)) if len(n_between) else 0

    @property
    def n_regular(self) -> int:
        """Equal periods on the rank that has fewest."""
        return min(int(periods.is_regular.sum()) for periods in self.periods)

    @property
    def quality(self) -> tuple[bool, int, bool, int, int]:
        """Larger is better: seen by all ranks, whole, made for control, short, coarse."""
        ratio = round((self.regular_ratio + self.whole_ratio) / 2 * _RATIO_STEPS)
        pattern = self.pattern
        return self.is_widest, ratio, self.is_control, -len(pattern.kinds), -pattern.detail


@dataclass(frozen=True, slots=True)
class Level:
    """A period of the job by the patterns that mark it best, and the kinds it is made of."""

    marks: tuple[Marked, ...]
    kinds: frozenset[Kind]
    has_data_between: bool  # more data lies between some of its periods than in the others
    n_ops: int  # of a period
    bag: Counter[int]  # kinds of a period (SIZE_CLASS)
    spare: tuple[Marked, ...] = ()  # that mark the same period less often

    @property
    def best(self) -> Marked:
        """The best of its patterns."""
        return self.marks[0]

    @property
    def is_of_layers(self) -> bool:
        """There is too little in a period for a step, or more data between some of them."""
        return self.has_data_between or self.n_ops <= _BARE_OPS

    @property
    def is_part(self) -> bool:
        """If nothing recurs outside of it, it is a part of steps that are too few."""
        is_bare = self.n_ops <= _BARE_OPS and self.best.pattern.detail < Detail.EXACT
        return not self.has_control and (self.has_data_between or is_bare)

    def is_same(self, other: Level) -> bool:
        """It is the other one, perhaps with fewer patterns."""
        return self.bag is other.bag

    def repeats(self, inner: Level) -> bool:
        """Its period is nothing but the inner one several times."""
        times = {n / inner.bag[call] for call, n in self.bag.items() if inner.bag[call]}
        return len(times) == 1 and self.bag.keys() == inner.bag.keys()

    def has_more_than(self, inner: Level) -> bool:
        """Collectives of a kind that the inner level does not have."""
        return any(kind.op in _COLLECTIVES for kind in self.kinds - inner.kinds)

    def has_other_data_than(self, inner: Level) -> bool:
        """Data of a kind that the inner level does not move."""
        return any(kind.is_large for kind in self.kinds - inner.kinds)

    @property
    def has_gradients(self) -> bool:
        """Parameters' gradients are reduced in it."""
        return any(kind.is_gradient for kind in self.kinds)

    @property
    def has_control(self) -> bool:
        """Numbers are reduced in it."""
        return any(kind.is_control for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Choice:
    """The level of the step, or None, and how every period fared."""

    step: Level | None
    rivals: tuple[Level, ...] = ()
    doubt: PeriodDoubt | None = None
    is_told: bool = False  # what recurs further out comes in between two steps
    periods: tuple[FoundPeriod, ...] = ()


Review = Callable[[Sequence[Level], Choice], Choice]


def choose_period(
    ranks: Sequence[RankCodes], table: KindTable, world_size: int, review: Review
) -> Choice:
    """The period that is the step, as ``review`` leaves it."""
    levels: list[Level] = []
    refused: list[FoundPeriod] = []
    for patterns in _by_level(ranks, table):
        marks = [_marked(ranks, pattern, table, world_size) for pattern in patterns]
        sound = sorted(filter(_is_sound, marks), key=lambda mark: mark.quality, reverse=True)
        if sound:
            level = _level(ranks[0], sound, table)
            if levels and level.bag == levels[-1].bag:
                levels[-1] = replace(levels[-1], spare=levels[-1].spare + level.marks)
            elif not levels or not level.repeats(levels[-1]):
                levels.append(level)
        elif marks:
            best = max(marks, key=lambda mark: (mark.n_times >= MIN_TIMES, mark.quality))
            refused.append(_found(ranks, best, table, _standing(best)))
    choice = review(levels, _judge(levels))
    named = [_found(ranks, lv.best, table, _place(lv, choice)) for lv in levels]
    is_step = choice.step is not None and (choice.is_told or not choice.step.is_part)
    step = choice.step if is_step else None
    return replace(choice, step=step, periods=(*named, *refused))


def _by_level(ranks: Sequence[RankCodes], table: KindTable) -> Iterator[list[Pattern]]:
    """Patterns that most periods of the first rank repeat, by how often they occur."""
    shared = [frozenset.intersection(*(rank.kinds[detail] for rank in ranks)) for detail in Detail]
    counted: list[tuple[int, float, Pattern]] = []
    for pattern in patterns_in(ranks[0]):
        if not shared[pattern.detail].issuperset(pattern.kinds):
            continue
        if table.kinds[pattern.kinds[-1]].is_p2p:
            continue
        periods = periods_of(ranks[0], pattern)
        is_regular = periods.regular_ratio >= MIN_REGULAR_RATIO
        if is_regular and len(set(_example(ranks[0], periods, pattern.detail))) > 1:
            counted.append((len(periods.last), periods.regular_ratio, pattern))
    counted.sort(key=lambda entry: -entry[0])
    for _ in range(_MAX_LEVELS):
        if not counted:
            return
        level = [entry for entry in counted if entry[0] * _SAME_LEVEL > counted[0][0]]
        counted = counted[len(level) :]
        level.sort(key=lambda entry: _promise(entry, table))
        yield [pattern for _, _, pattern in level[:_MAX_TRIED]]


def _promise(entry: tuple[int, float, Pattern], table: KindTable) -> tuple[int, bool, int, int]:
    """Smaller is more likely to be the best of its level."""
    _, ratio, pattern = entry
    is_control = any(table.kinds[kind].is_control for kind in pattern.kinds)
    return -round(ratio * _RATIO_STEPS), not is_control, len(pattern.kinds), pattern.detail


def _marked(
    ranks: Sequence[RankCodes], pattern: Pattern, table: KindTable, world_size: int
) -> Marked:
    periods = tuple(periods_of(rank, pattern) for rank in ranks)
    comms, index = ranks[0].stream.comms, ranks[0].stream.rows["comm_index"][periods[0].last]
    is_widest = bool((comms.sizes[comms.clip(index)] == world_size).all())
    is_control = any(table.kinds[kind].is_control for kind in pattern.kinds)
    whole = _whole_ratio(ranks[0], periods[0])
    return Marked(pattern, periods, is_widest, is_control, whole, n_groups(ranks, periods))


def _whole_ratio(rank: RankCodes, periods: Periods) -> float:
    """Share of the periods that hold at least what a regular one holds: something may come in
    between two steps, but a step does not lack anything."""
    calls = rank.codes[Detail.CALL]
    bags = [Counter(calls[a:b].tolist()) for a, b in zip(periods.first, periods.end, strict=True)]
    usual = [bag for bag, is_one in zip(bags, periods.is_regular, strict=True) if is_one][:1]
    odd = [bag for bag, is_one in zip(bags, periods.is_regular, strict=True) if not is_one]
    n_whole = sum(bag >= usual[0] for bag in odd[:_MAX_ODD]) if usual else 0
    share_of_odd = n_whole / max(1, len(odd[:_MAX_ODD]))
    return periods.regular_ratio + (1 - periods.regular_ratio) * share_of_odd


def _is_sound(mark: Marked) -> bool:
    return _standing(mark) is PeriodStanding.STEP


def _standing(mark: Marked) -> PeriodStanding:
    if mark.n_times < MIN_TIMES:
        return PeriodStanding.TOO_FEW
    is_proved = mark.n_regular >= _MANY or mark.whole_ratio >= _MIN_WHOLE_RATIO
    least = MIN_REGULAR_RATIO if is_proved and mark.n_ops > _BARE_OPS else _MIN_RATIO_UNPROVED
    if mark.regular_ratio < least:
        return PeriodStanding.IRREGULAR
    if mark.rest_ratio > _MAX_REST_RATIO:
        return PeriodStanding.ENDS_EARLY
    return PeriodStanding.STEP if mark.n_groups else PeriodStanding.UNMATCHED


def _level(rank: RankCodes, sound: Sequence[Marked], table: KindTable) -> Level:
    periods = sound[0].periods[0]
    codes = _example(rank, periods, Detail.SIZE_CLASS)
    is_large = np.array([kind.is_large for kind in table.kinds])
    n_large = np.concatenate([[0], np.cumsum(is_large[rank.codes[Detail.SIZE_CLASS]])])
    n_in = n_large[periods.end] - n_large[periods.first]
    odd, usual = n_in[~periods.is_regular], n_in[periods.is_regular]
    has_data_between = len(odd) > 0 and bool(np.median(odd) > np.median(usual))
    kept: dict[int, list[Marked]] = {}
    for mark in sound:
        kept.setdefault(len(mark.periods[0].last), []).append(mark)
    return Level(
        marks=tuple(mark for marks in kept.values() for mark in marks[:_MAX_KEPT]),
        kinds=frozenset(table.kinds[code] for code in set(codes)),
        has_data_between=has_data_between,
        n_ops=len(codes),
        bag=Counter(codes),
    )


def _example(rank: RankCodes, periods: Periods, detail: Detail) -> list[int]:
    """Codes of the first regular period with the occurrence that ends it."""
    usual = np.flatnonzero(periods.is_regular)[:1].tolist()
    found: list[int] = []
    for index in usual:
        found = rank.codes[detail][periods.first[index] : periods.last[index + 1] + 1].tolist()
    return found


def _judge(levels: Sequence[Level]) -> Choice:
    """The step, or the levels that compete for it."""
    step = levels[0] if levels else None
    has_layers = False
    for outer in levels[1:]:
        if step is None or (step.has_control and (step.has_gradients or not outer.has_gradients)):
            continue
        if not step.has_gradients:
            is_outer = outer.has_gradients or outer.has_control or outer.has_more_than(step)
            step = outer if is_outer else step
        elif outer.has_control and outer.has_other_data_than(step):
            step = outer
        elif step.is_of_layers and not has_layers:
            step, has_layers = outer, True
        elif step.is_of_layers or outer.has_control:
            return Choice(None, (step, outer))
    return Choice(step)


def _place(level: Level, choice: Choice) -> PeriodStanding:
    step, rivals = choice.step, choice.rivals
    if step is not None and level.is_same(step):
        return PeriodStanding.PART if step.is_part and not choice.is_told else PeriodStanding.STEP
    if any(map(level.is_same, rivals)) or (step is None and not rivals):
        return PeriodStanding.COMPETES
    least = step or rivals[0]
    is_inner = level.best.n_times > least.best.n_times
    return PeriodStanding.INNER if is_inner else PeriodStanding.OUTER


def _found(
    ranks: Sequence[RankCodes], mark: Marked, table: KindTable, standing: PeriodStanding
) -> FoundPeriod:
    """One row of the table of periods."""
    periods = mark.periods[0]
    at_ns = ranks[0].starts_ns[periods.last]
    has_length = len(periods.last) > 1
    return FoundPeriod(
        label=table.label(mark.pattern.kinds),
        standing=standing,
        n_times=mark.n_times,
        n_ops=int(np.median(np.diff(periods.last))) if has_length else 0,
        duration_ns=int(np.median(np.diff(at_ns))) if has_length else 0,
        regular_ratio=mark.regular_ratio,
        n_ranks=sum(len(p.last) > 0 for p in mark.periods),
    )
