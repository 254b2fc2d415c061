"""Whether a template's anchor is a global anchor on the data of a run.

Three rules: it means the same on all ranks (one role and op, one size where each rank has one
size), it sits at a stable place in each step (as many ops from the first or from the last one), and
it is the same op of its communicator on all ranks (``match_seq`` advances equally). A rule holds
when it does in nearly all steps: losses are no fault of the template. Fewer than two ranks or steps
are no evidence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from comminsight.model.ops import P2P_OPS, Op
from comminsight.model.step import StepEvidence
from comminsight.model.template_view import AnchorCheck, AnchorRule, Outcome
from comminsight.model.verdict import Message, MessageParam

_Value = TypeVar("_Value", bound=Hashable)
_MOSTLY = 0.95
_MIN_STEPS = 2


@dataclass(frozen=True, slots=True)
class RankAnchors:
    """The anchors of one rank's steps in order, with how many ops of the step stand before
    (``n_before``) and behind (``n_behind``) each."""

    global_rank: int
    anchors: tuple[StepEvidence, ...]
    n_before: np.ndarray
    n_behind: np.ndarray


def check_anchors(ranks: Sequence[RankAnchors]) -> tuple[AnchorCheck, ...]:
    """The three rules in order, over the ranks on which the template won."""
    usable = [rank for rank in ranks if len(rank.anchors) >= _MIN_STEPS]
    if not usable:
        nothing = Message("anchor.too_few_steps", {"n": _MIN_STEPS})
        return tuple(
            AnchorCheck(rule=rule, outcome=Outcome.UNKNOWN, evidence=nothing) for rule in AnchorRule
        )
    return _same_meaning(usable), _stable_place(usable), _advances_equally(usable)


def _same_meaning(ranks: Sequence[RankAnchors]) -> AnchorCheck:
    rule = AnchorRule.SAME_MEANING
    meanings = {rank.global_rank: _meaning(rank) for rank in ranks}
    if not all(size for _, size in meanings.values()):
        meanings = {number: (name, 0) for number, (name, _) in meanings.items()}
    common, odd = _outvoted(meanings)
    if odd:
        params: dict[str, MessageParam] = {
            "ranks": list(odd),
            "own": _words(meanings[odd[0]]),
            "common": _words(common),
        }
        return _fails(rule, odd, Message("anchor.other_meaning", params))
    if len(ranks) < _MIN_STEPS:
        return _one_rank(rule)
    return _holds(rule, Message("anchor.one_meaning", {"common": _words(common)}))


def _meaning(rank: RankAnchors) -> tuple[str, int]:
    """Op and role, and the size if it is always the same (else 0)."""
    op, role = _usual((anchor.op, anchor.role) for anchor in rank.anchors)
    sizes = {anchor.size_bytes for anchor in rank.anchors}
    return f"{Op(op).name.lower()}@{role}", sizes.pop() if len(sizes) == 1 else 0


def _words(meaning: tuple[str, int]) -> str:
    name, size_bytes = meaning
    return f"{name} {size_bytes} B" if size_bytes else name


def _stable_place(ranks: Sequence[RankAnchors]) -> AnchorCheck:
    odd = tuple(rank.global_rank for rank in ranks if _steadiness(rank) < _MOSTLY)
    if odd:
        worst = min(_steadiness(rank) for rank in ranks)
        evidence = Message("anchor.place_moves", {"ranks": list(odd), "pct": round(100 * worst)})
        return _fails(AnchorRule.STABLE_PLACE, odd, evidence)
    places = sorted({_usual(rank.n_behind.tolist()) for rank in ranks})
    return _holds(AnchorRule.STABLE_PLACE, Message("anchor.one_place", {"places": places}))


def _steadiness(rank: RankAnchors) -> float:
    """Share of the steps with the anchor at its usual place, from the better end."""
    places = (rank.n_before.tolist(), rank.n_behind.tolist())
    return max(Counter(place).most_common(1)[0][1] / len(place) for place in places)


def _advances_equally(ranks: Sequence[RankAnchors]) -> AnchorCheck:
    rule = AnchorRule.ADVANCES_EQUALLY
    if len(ranks) < _MIN_STEPS:
        return _one_rank(rule)
    if pairs := tuple(rank.global_rank for rank in ranks if _is_p2p(rank)):
        return _fails(rule, pairs, Message("anchor.p2p", {"ranks": list(pairs)}))
    paces = {rank.global_rank: _pace(rank) for rank in ranks}
    pace, odd = _outvoted(paces)
    if odd:
        params: dict[str, MessageParam] = {"ranks": list(odd), "own": paces[odd[0]], "common": pace}
        return _fails(rule, odd, Message("anchor.other_pace", params))
    if apart := _apart(ranks):
        return _fails(rule, apart, Message("anchor.other_ops", {"ranks": list(apart)}))
    return _holds(rule, Message("anchor.one_pace", {"n": pace}))


def _is_p2p(rank: RankAnchors) -> bool:
    return _usual(anchor.op for anchor in rank.anchors) in P2P_OPS


def _pace(rank: RankAnchors) -> int:
    """How far ``match_seq`` goes from step to step."""
    return _usual(after.match_seq - before.match_seq for before, after in pairwise(rank.anchors))


def _apart(ranks: Sequence[RankAnchors]) -> tuple[int, ...]:
    """Ranks whose anchors are other ops of a communicator than its other members' are.

    A communicator is one in most steps of a rank; only the range that all members have counts.
    """
    members: dict[tuple[int, bool], dict[int, set[int]]] = defaultdict(dict)
    for rank in ranks:
        stream = _usual((anchor.comm_hash, anchor.is_replay) for anchor in rank.anchors)
        members[stream][rank.global_rank] = {anchor.match_seq for anchor in rank.anchors}
    return tuple(sorted(rank for of_ranks in members.values() for rank in _odd_sets(of_ranks)))


def _odd_sets(taken: dict[int, set[int]]) -> list[int]:
    first, last = max(map(min, taken.values())), min(map(max, taken.values()))
    within = {
        rank: {seq for seq in numbers if first <= seq <= last} for rank, numbers in taken.items()
    }
    if first > last:
        return list(taken) if len(taken) > 1 else []
    votes = Counter(seq for numbers in within.values() for seq in numbers)
    common = {seq for seq, n in votes.items() if 2 * n > len(within)}
    allowed = (1 - _MOSTLY) * max(1, len(common))
    return [rank for rank, numbers in within.items() if len(numbers ^ common) > allowed]


def _usual(values: Iterable[_Value]) -> _Value:
    return Counter(values).most_common(1)[0][0]


def _outvoted(by_rank: dict[int, _Value]) -> tuple[_Value, tuple[int, ...]]:
    """What most ranks have, and the ranks that have something else."""
    common = _usual(by_rank.values())
    return common, tuple(sorted(rank for rank, value in by_rank.items() if value != common))


def _holds(rule: AnchorRule, evidence: Message) -> AnchorCheck:
    return AnchorCheck(rule=rule, outcome=Outcome.HOLDS, evidence=evidence)


def _fails(rule: AnchorRule, ranks: tuple[int, ...], evidence: Message) -> AnchorCheck:
    return AnchorCheck(rule=rule, outcome=Outcome.FAILS, ranks=ranks, evidence=evidence)


def _one_rank(rule: AnchorRule) -> AnchorCheck:
    return AnchorCheck(
        rule=rule, outcome=Outcome.UNKNOWN, evidence=Message("anchor.too_few_ranks", {})
    )
