"""What transfers between single partners tell: a pipeline or a ring.

A pipeline goes forth and back between neighbours and has a send or a receive alone at both ends of
a step; a ring goes around, sending and receiving at once. Of two ranks next and previous are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.op_mix import OpMix
from comminsight.semantics.role_clues import Clue, guess
from comminsight.semantics.role_exchanges import n_exchange_rounds
from comminsight.semantics.role_rhythm import is_bursty

PAIR = 2
MIN_ROUNDS = 4.0
_ALONE, _NEVER_ALONE = 0.05, 0.025  # of the calls; lost records leave some alone too
_MOSTLY = 0.8
_MANY = 3.0  # times as many transfers as on any other communicator
_MANY_PER_ROUND, _FEW_PER_ROUND = 6, 4


def is_moving(mix: OpMix) -> bool:
    """Whether data go between partners, or are exchanged among all."""
    return bool(mix.n_exchanges or mix.has_p2p)


def n_rounds(mix: OpMix) -> float:
    """Transfers that belong together counted once: there and back, in and out, once around."""
    if mix.n_exchanges:
        return n_exchange_rounds(mix)
    is_ring = guess(p2p_clues(mix)).role is CommRole.CP
    return len(mix.marks) / (2 * (mix.size - 1) if is_ring else 2)


def p2p_clues(mix: OpMix) -> Iterable[Clue]:
    """A pipeline goes forth and back between neighbours, a ring goes around."""
    ways = mix.ways
    if mix.size == PAIR:
        yield from _of_two(mix)
        return
    to_next, from_previous = (Op.SEND, 1) in ways, (Op.RECV, -1) in ways
    to_previous, from_next = (Op.SEND, -1) in ways, (Op.RECV, 1) in ways
    if (to_next and from_next) or (to_previous and from_previous):
        yield Clue(CommRole.PP, 3.0, "forth_and_back")
    elif to_next and from_previous:
        is_wrapped = mix.rank in {0, mix.size - 1}
        is_ring = mix.n_both > _MOSTLY * (mix.n_alone + mix.n_both)
        yield Clue(CommRole.CP, 3.0 if is_ring else 1.5 if is_wrapped else 0.0, "once_around")
        yield Clue(CommRole.PP, 0.0 if is_ring or is_wrapped else 1.0, "one_way")
    elif ways <= {(Op.SEND, 1), (Op.RECV, -1), (Op.SEND, -1), (Op.RECV, 1)}:
        yield Clue(CommRole.PP, 1.0, "one_way")


def _of_two(mix: OpMix) -> Iterable[Clue]:
    """A ring sends and receives at once; a pipeline has a send or a receive alone at both ends of
    a step."""
    n_calls = mix.n_alone + mix.n_both
    if mix.n_alone >= MIN_ROUNDS and mix.n_alone > _ALONE * n_calls:
        yield Clue(CommRole.PP, 2.3, "sends_alone")
    elif n_calls >= MIN_ROUNDS and mix.n_alone < _NEVER_ALONE * n_calls:
        yield Clue(CommRole.CP, 1.8, "sends_and_receives_at_once")


def pair_clues(mix: OpMix, mixes: Sequence[OpMix]) -> Iterable[Clue]:
    """Of two ranks: how often they transfer beside the others (``mixes``, with ``mix``)."""
    rounds = n_rounds(mix)
    if rounds < MIN_ROUNDS:
        return
    others = [n_rounds(other) for other in mixes if other is not mix and other.has_p2p]
    if others and rounds >= _MANY * max(others):
        yield Clue(CommRole.CP, 1.2, "most_transfers")
    elif others and rounds * _MANY <= max(others):
        yield Clue(CommRole.PP, 1.2, "few_transfers")
    still = [other for other in mixes if not (other is mix or other.has_p2p or is_bursty(other))]
    per_round = max((other.n_exchanges or other.n_data for other in still), default=0) / rounds
    if per_round >= _MANY_PER_ROUND:  # a pipeline transfers once per microbatch: many layers
        yield Clue(CommRole.PP, 1.5, "layers_between_transfers")
    elif 1 < per_round <= _FEW_PER_ROUND:
        yield Clue(CommRole.CP, 1.2, "transfers_in_every_layer")
