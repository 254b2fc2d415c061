"""Phases of a pipeline stage, from the direction of its sends and receives.

A receive from the previous stage begins a forward pass, a send to the next one ends it; backward
the other way round. Between two messages lies a *stretch* of own work. The first stage receives no
activations and the last none of their gradients: a stretch there may hold two passes. On the first
stage they are told apart where a batch is handed out, or by the number of ops of a forward pass; on
the last where the loss is reduced.

Among two stages both neighbours are one: with several model chunks per stage a message forward
looks like one backward. Directions hold there only if the ops inside the passes rule chunks out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from comminsight.model.step import PhaseKind
from comminsight.semantics.phase_plan import (
    Edge,
    PlannedPhase,
    counted,
    earlier,
    end_of,
    gradient_sync,
    optimizer,
    passes_end,
    start_of,
    where,
)
from comminsight.semantics.phase_symbols import (
    INSIDE,
    ON_DEFAULT_GROUP,
    PIPELINE,
    RECEIVES,
    SENDS,
    Sign,
    place_of,
)
from comminsight.semantics.phase_tensor import loss_end

_F, _B = PhaseKind.FORWARD, PhaseKind.BACKWARD
_BEGINS = {Sign.RECV_PREVIOUS: _F, Sign.RECV_NEXT: _B}
_ENDS = {Sign.SEND_NEXT: _F, Sign.SEND_PREVIOUS: _B}
_PAIR = 2
_MAX_PLAIN = 2  # messages one way of two stages that cannot be those of several chunks


@dataclass(frozen=True, slots=True)
class Stretch:
    """What lies between two messages (or groups of them). ``kinds`` are the passes in it in order,
    empty for none and UNKNOWN alone where the messages contradict each other."""

    start: Edge
    end: Edge
    first: int
    until: int
    kinds: tuple[PhaseKind, ...]
    inside: tuple[int, ...]  # ops inside layers

    @property
    def n_ops(self) -> int:
        """All ops in it."""
        return self.until - self.first


def is_pipeline(signs: np.ndarray) -> bool:
    """Whether there is any message along a pipeline."""
    return len(where(signs, PIPELINE)) > 0


def pipeline_plan(numbers: np.ndarray, signs: np.ndarray) -> list[PlannedPhase]:
    """Passes with their microbatch, the parts of the schedule, bubbles, gradients, optimizer."""
    messages = where(signs, PIPELINE)
    rest = [*gradient_sync(signs, int(messages[0])), *optimizer(signs)]
    stretches = list(_stretches(signs, messages))
    end = passes_end(signs, int(messages[-1]))
    bubbles = _bubbles(signs, messages)
    is_bare = len(messages) == len(signs)  # then the default group is the pipeline
    is_foreign = bool((numbers[messages] & ON_DEFAULT_GROUP).any()) and not is_bare
    if is_foreign or Sign.P2P_UNKNOWN in signs or not _is_plain_pair(numbers, messages, stretches):
        unknown = PlannedPhase(PhaseKind.UNKNOWN, start_of(0), end, int(messages[-1]) + 1)
        return [unknown, *bubbles, *rest]
    is_numbered = _is_one_chunk(numbers, messages, stretches)
    passes = _passes(signs, stretches, is_numbered=is_numbered)
    if is_numbered:
        passes = counted(passes, sum(_F in stretch.kinds for stretch in stretches))
    return [*passes, *bubbles, *_parts(stretches), *rest]


# stretches


def _stretches(signs: np.ndarray, messages: np.ndarray) -> Iterator[Stretch]:
    inside = where(signs, INSIDE)
    groups = _groups(messages, has_work=bool(len(inside) and inside[0] < messages[-1]))
    before: list[int] = []
    for group in [*groups, []]:
        first = before[-1] + 1 if before else 0
        until = group[0] if group else len(signs)
        end = start_of(group[0]) if group else passes_end(signs, int(messages[-1]))
        last_body = end[0] // 2 if not group else until
        own = inside[(inside >= first) & (inside < last_body)]
        yield Stretch(
            _work_start(signs, before), end, first, until if group else last_body,
            _kinds(signs, before, group, is_empty=not len(own)), tuple(own.tolist()),
        )  # fmt: skip
        before = group


def _groups(messages: np.ndarray, *, has_work: bool) -> list[list[int]]:
    """Messages one behind the other are one call where passes have ops of their own."""
    if not has_work:
        return [[message] for message in messages.tolist()]
    cuts = np.flatnonzero(np.diff(messages) > 1) + 1
    return [part.tolist() for part in np.split(messages, cuts)]


def _work_start(signs: np.ndarray, group: list[int]) -> Edge:
    """Work behind messages begins when the receive among them ends, or another op begins."""
    if not group:
        return start_of(0)
    received = [op for op in group if Sign(signs[op]) in RECEIVES]
    if not received:
        return start_of(group[-1])
    return _arrival(signs, received[-1], group[-1] + 1)


def _arrival(signs: np.ndarray, receive: int, following: int) -> Edge:
    is_last = following >= len(signs) or Sign(signs[following]) in PIPELINE
    return end_of(receive) if is_last else earlier(end_of(receive), start_of(following))


def _kinds(
    signs: np.ndarray, before: list[int], after: list[int], *, is_empty: bool
) -> tuple[PhaseKind, ...]:
    begins = {_BEGINS[Sign(signs[op])] for op in before if Sign(signs[op]) in RECEIVES}
    ends = {_ENDS[Sign(signs[op])] for op in after if Sign(signs[op]) in SENDS}
    if len(begins) > 1 or len(ends) > 1:
        return (PhaseKind.UNKNOWN,)
    kinds = tuple(dict.fromkeys([*begins, *ends]))
    if not kinds and not is_empty:
        return (PhaseKind.UNKNOWN,)
    return kinds


# what they mean


def _is_plain_pair(numbers: np.ndarray, messages: np.ndarray, stretches: list[Stretch]) -> bool:
    """Whether directions hold: three stages or more, or two that have one model chunk each."""
    places = {place_of(number) for number in numbers[messages].tolist()}
    if places not in ({(0, _PAIR)}, {(1, _PAIR)}):
        return True  # groups of pairs along a longer pipeline have two places
    if len(messages) <= 2 * _MAX_PLAIN:
        return True
    mixed = [len(stretch.inside) for stretch in stretches if len(stretch.kinds) > 1]
    if places == {(0, _PAIR)}:  # a first forward pass behind a receive would be a second chunk's
        alone = len(stretches[0].inside)
        return bool(mixed and alone) and min(mixed) > alone
    return bool(mixed) and 0 < min(mixed) == max(mixed)


def _is_one_chunk(numbers: np.ndarray, messages: np.ndarray, stretches: list[Stretch]) -> bool:
    """Whether passes are microbatches: as many forwards in front as 1F1B has on this stage."""
    places = {place_of(number) for number in numbers[messages].tolist()}
    (rank, size), *others = places
    if others or size == 0:
        return False
    order = [kind for stretch in stretches for kind in stretch.kinds]
    n_forwards = order.count(_F)
    if _B not in order or PhaseKind.UNKNOWN in order:
        return False
    return order.index(_B) == min(size - rank, n_forwards) and order.count(_B) == n_forwards


def _forward_ops(stretches: list[Stretch]) -> int:
    """Ops of a forward pass of the first stage: all before its first message; 0 for unknown."""
    return len(stretches[0].inside) if stretches[0].kinds == (_F,) else 0


def _passes(
    signs: np.ndarray, stretches: list[Stretch], *, is_numbered: bool
) -> Iterator[PlannedPhase]:
    """All passes; the nth forward and the nth backward are of the nth microbatch."""
    seen = {_F: 0, _B: 0, PhaseKind.UNKNOWN: 0}
    n_forward = _forward_ops(stretches)
    for stretch in stretches:
        numbers = {kind: seen[kind] if is_numbered else -1 for kind in stretch.kinds}
        for kind in stretch.kinds:
            seen[kind] += 1
        if len(stretch.kinds) == 1:
            (kind,) = stretch.kinds
            number = numbers[kind]
            yield PlannedPhase(kind, stretch.start, stretch.end, stretch.n_ops, number)
        elif stretch.kinds:
            yield from _two_passes(signs, stretch, n_forward, numbers)


def _two_passes(
    signs: np.ndarray, stretch: Stretch, n_forward: int, numbers: Mapping[PhaseKind, int]
) -> Iterator[PlannedPhase]:
    turn = _turn(signs, stretch, n_forward)
    if turn is None:
        yield PlannedPhase(PhaseKind.UNKNOWN, stretch.start, stretch.end, stretch.n_ops)
        return
    first, second = stretch.kinds
    n_ops = turn.following - stretch.first
    yield PlannedPhase(first, stretch.start, turn.until, n_ops, numbers[first])
    if turn.until != turn.begin:
        yield PlannedPhase(PhaseKind.UNKNOWN, turn.until, turn.begin)
    yield PlannedPhase(second, turn.begin, stretch.end, stretch.n_ops - n_ops, numbers[second])


class _Turn(NamedTuple):
    """Where one pass ends, where the other begins, and the first op of the other."""

    until: Edge
    begin: Edge
    following: int


def _turn(signs: np.ndarray, stretch: Stretch, n_forward: int) -> _Turn | None:
    if stretch.kinds == (_F, _B):
        loss = loss_end(signs, stretch.inside)
        return None if loss < 0 else _Turn(end_of(loss), end_of(loss), loss + 1)
    for op in stretch.inside:
        if signs[op] == Sign.BATCH:
            return _Turn(start_of(op), start_of(op), op) if op > stretch.inside[0] else None
    n_backward = len(stretch.inside) - n_forward
    if not n_forward or n_backward <= 0:
        return None
    last, following = stretch.inside[n_backward - 1], stretch.inside[n_backward]
    return _Turn(end_of(last), start_of(following), following)


def _bubbles(signs: np.ndarray, messages: np.ndarray) -> list[PlannedPhase]:
    """The wait in each receive, as long as no op but another message begins."""
    groups = np.split(messages, np.flatnonzero(np.diff(messages) > 1) + 1)
    return [
        PlannedPhase(
            PhaseKind.BUBBLE, start_of(op), _arrival(signs, op, int(group[-1]) + 1), n_ops=1
        )
        for group in groups
        for op in group.tolist()
        if Sign(signs[op]) in RECEIVES
    ]


def _parts(stretches: list[Stretch]) -> list[PlannedPhase]:
    """Warm-up, steady state and cool-down; nothing where a pass is unknown."""
    working = [stretch for stretch in stretches if stretch.kinds]
    forwards = [n for n, stretch in enumerate(working) if _F in stretch.kinds]
    backwards = [n for n, stretch in enumerate(working) if _B in stretch.kinds]
    if not forwards or not backwards or any(PhaseKind.UNKNOWN in w.kinds for w in working):
        return []
    first = max((n for n in forwards if n < backwards[0]), default=backwards[0])
    first = backwards[0] if working[backwards[0]].kinds == (_F, _B) else first
    last = forwards[-1]
    if working[last].kinds[-1] is _F:
        last = min((n for n in backwards if n > last), default=last)
    steady = PlannedPhase(PhaseKind.STEADY, working[first].start, working[last].end)
    parts = [steady]
    if first > 0:
        parts.insert(0, PlannedPhase(PhaseKind.WARM_UP, working[0].start, steady.start))
    if last + 1 < len(working):
        parts.append(PlannedPhase(PhaseKind.COOL_DOWN, steady.end, working[-1].end))
    return parts
