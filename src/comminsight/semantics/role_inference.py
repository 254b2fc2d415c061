"""Roles of communicators that no name tells, from what one session did on them.

Each observation is a *clue*: a weight for one role, with a code that says what was seen. The role
with the largest sum wins; its lead over the second is the confidence, ``1 - exp(-0.7 lead)``. Below
``MIN_CONFIDENCE`` the role stays unknown: a wrong role is worse than none. Clues of several ranks
add up (``role_join``); one session alone knows sizes, its own comm ranks and its own ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.op_mix import OpMix

MIN_CONFIDENCE = 0.5
DATA_PARALLEL = frozenset({CommRole.DP, CommRole.DP_SHARD, CommRole.DP_REPLICATE, CommRole.EDP})

_LEAD_WEIGHT = 0.7
_MANY, _MORE = 3.0, 1.5  # times as many ops as on any other communicator
_FEW_PER_STEP = 12
_FEW_SIZES = 4
_MIN_MARKS = 4.0
_OFTEN, _RARELY = 0.6, 0.3
_FORWARD_PASS = 3  # gathers in a row: parameters ahead of layers; activations alternate
_IN_TURNS = 0.7
_PAIR = 2
_ALONE, _NEVER_ALONE = 0.03, 0.005  # of the calls; between them lost records may be the reason
_MANY_PER_ROUND, _FEW_PER_ROUND = 6, 4


class Clue(NamedTuple):
    """What speaks for (or, with a negative weight, against) a role."""

    role: CommRole
    weight: float
    code: str


class RoleGuess(NamedTuple):
    """A role with its confidence in 0..1 and the codes of what spoke for it, strongest first."""

    role: CommRole
    confidence: float
    evidence: tuple[str, ...]


NO_GUESS = RoleGuess(CommRole.UNKNOWN, 0.0, ())


@dataclass(frozen=True, slots=True)
class Place:
    """What a session knows of itself; -1 where it does not."""

    world_size: int = -1
    global_rank: int = -1


def guess(clues: Iterable[Clue]) -> RoleGuess:
    """The role that the clues speak for; UNKNOWN, with the confidence it would have had, where
    they do not single one out."""
    own = tuple(clues)
    sums: dict[CommRole, float] = {}
    for clue in own:
        sums[clue.role] = sums.get(clue.role, 0.0) + clue.weight
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0].value))
    if not ranked or ranked[0][1] <= 0:
        return NO_GUESS
    lead = ranked[0][1] - max(ranked[1][1] if len(ranked) > 1 else 0.0, 0.0)
    confidence = round(1 - math.exp(-_LEAD_WEIGHT * lead), 3)
    codes = sorted((c for c in own if c.role is ranked[0][0] and c.weight > 0), key=_by_weight)
    evidence = tuple(dict.fromkeys(clue.code for clue in codes))
    role = ranked[0][0] if confidence >= MIN_CONFIDENCE else CommRole.UNKNOWN
    return RoleGuess(role, confidence, evidence)


def _by_weight(clue: Clue) -> tuple[float, str]:
    return -clue.weight, clue.code


def session_clues(
    mixes: Sequence[OpMix], place: Place, named: Mapping[int, CommRole] | None = None
) -> dict[int, tuple[Clue, ...]]:
    """Clues by ``comm_index`` for the communicators among ``mixes`` that ``named`` does not hold.

    ``named`` are roles that names gave; they count as neighbours. Communicators of one rank get no
    clue.
    """
    known = named or {}
    own = (m for m in mixes if m.size > 1 and known.get(m.comm_index) is not CommRole.CPU)
    return _Session(tuple(own), place, known).clues()


def world_purpose(mixes: Sequence[OpMix], place: Place) -> tuple[Clue, ...]:
    """What the only communicator of the whole world is used for, where data go over it."""
    session = _Session(tuple(mix for mix in mixes if mix.size > 1), place, {})
    return tuple(session.purpose())


class _Session:
    """All communicators of one session while they are compared with each other."""

    def __init__(
        self, mixes: tuple[OpMix, ...], place: Place, named: Mapping[int, CommRole]
    ) -> None:
        self._mixes, self._place, self._named = mixes, place, named
        self._world_size = place.world_size if place.world_size > 0 else _widest(mixes)
        self._spanning = [mix for mix in mixes if mix.size == self._world_size]
        self._reduced = [mix for mix in mixes if mix.n_data and not _moves(mix)]
        clocks = [mix.n_repeated_control for mix in self._spanning]
        self._n_steps = min((n for n in clocks if n > 1), default=0)
        self._sharded = _shard_pairs(self._reduced)

    def clues(self) -> dict[int, tuple[Clue, ...]]:
        found = {mix.comm_index: tuple(self._of(mix)) for mix in self._mixes}
        roles = {index: guess(clues).role for index, clues in found.items()} | dict(self._named)
        for mix in self._mixes:
            found[mix.comm_index] += tuple(self._by_neighbours(mix, roles))
        return {index: clues for index, clues in found.items() if index not in self._named}

    def purpose(self) -> Iterable[Clue]:
        """Clues for the one communicator of the world, as if it did not span it."""
        for mix in self._spanning if len(self._spanning) == 1 else ():
            if mix.n_exchanges:
                yield Clue(CommRole.EP, 3.0, "exchanges")
            elif mix.has_p2p:
                yield from _of_p2p(mix)
            elif mix.n_data:
                yield from self._of_data(mix)

    def _of(self, mix: OpMix) -> Iterable[Clue]:
        if mix in self._spanning:
            yield Clue(CommRole.GLOBAL, 4.0 if len(self._spanning) == 1 else 0.2, "spans_world")
            if len(self._spanning) == 1:
                yield from _of_one_replica(mix)
                return
        if mix.n_exchanges:
            yield Clue(CommRole.EP, 3.0, "exchanges")
        elif mix.has_p2p:
            yield from _of_p2p(mix)
            if mix.size == _PAIR:
                yield from self._of_pair(mix)
        elif mix.n_data:
            yield from self._of_data(mix)
        elif mix.is_control_only:
            yield from self._of_control(mix)

    # numbers only

    def _of_control(self, mix: OpMix) -> Iterable[Clue]:
        kinds = set(mix.controls)
        if kinds == {(Op.ALL_GATHER, False)}:
            yield Clue(CommRole.DP, 1.3, "agrees_on_numbers")
            return
        if mix not in self._spanning:
            return
        has_floats = any(is_float for _, is_float in kinds)
        if not has_floats:
            yield Clue(CommRole.GLOBAL, 2.5, "counts_over_world")
        elif self._has_counting_peer(mix):
            is_mixed = any(not is_float for _, is_float in kinds)
            role = CommRole.MP if is_mixed else CommRole.DIST_OPT
            yield Clue(role, 1.8, "norms_over_world")

    def _has_counting_peer(self, mix: OpMix) -> bool:
        """Whether another communicator of the world carries integers only."""
        others = [m for m in self._spanning if m is not mix and m.is_control_only]
        return any(not any(f for _, f in other.controls) for other in others)

    # data

    def _of_data(self, mix: OpMix) -> Iterable[Clue]:
        if mix.comm_index in self._sharded:
            yield Clue(*self._sharded[mix.comm_index])
            return
        yield from self._by_order(mix)
        yield from self._by_number(mix)
        yield from self._by_marks(mix)
        yield from self._by_step(mix)
        if self._is_elsewhere(mix):
            yield Clue(CommRole.TP, -1.0, "not_innermost")

    def _by_order(self, mix: OpMix) -> Iterable[Clue]:
        """Activations are gathered and scattered in turns, parameters layer after layer."""
        gathers, scatters = mix.longest_run.get(Op.ALL_GATHER, 0), mix.counts.get(
            Op.REDUCE_SCATTER, 0
        )  # fmt: skip
        if scatters and gathers >= _FORWARD_PASS:
            yield Clue(CommRole.DP, 2.5, "gathers_in_a_row")
        elif scatters > 1 and mix.n_in_turns > _IN_TURNS * scatters:
            yield Clue(CommRole.TP, 1.5, "gather_scatter_in_turns")
        elif scatters and gathers > 1 and mix.longest_run[Op.REDUCE_SCATTER] > 1:
            yield Clue(CommRole.DP, 1.0, "scatters_then_gathers")
        if mix.counts.get(Op.REDUCE, 0) > mix.n_data / 2:
            yield Clue(CommRole.DP, 1.0, "reduces_to_owners")

    def _by_number(self, mix: OpMix) -> Iterable[Clue]:
        others = [m.n_data for m in self._mixes if m is not mix and m.n_data and not _moves(m)]
        if not others:
            if self._is_only_group(mix):
                yield Clue(CommRole.TP, 1.2, "only_group")
            return
        ratio = mix.n_data / max(others)
        is_sharding = mix.longest_run.get(Op.ALL_GATHER, 0) >= _FORWARD_PASS
        if ratio >= _MORE and not is_sharding:
            yield Clue(CommRole.TP, 1.5 if ratio >= _MANY else 0.5, "most_ops")
        elif 1 / ratio >= _MORE:
            yield Clue(CommRole.DP, 1.5 if 1 / ratio >= _MANY else 0.5, "few_ops")

    def _is_only_group(self, mix: OpMix) -> bool:
        """Replicas that do not speak to each other: what is inside them is model parallel."""
        has_run = mix.longest_run.get(Op.ALL_GATHER, 0) >= _FORWARD_PASS
        return (
            mix not in self._spanning
            and not any(_moves(other) for other in self._mixes)
            and mix.n_data >= _FEW_PER_STEP
            and not has_run
        )

    def _by_marks(self, mix: OpMix) -> Iterable[Clue]:
        """Tensor parallel ops lie between the transfers of every microbatch and layer."""
        n_marks, n_occupied = self._occupied(mix)
        if n_marks < _MIN_MARKS:
            return
        share = n_occupied / n_marks
        is_repeated = self._n_steps and n_occupied / self._n_steps >= _PAIR
        if share <= _RARELY:
            yield Clue(CommRole.DP, 2.0, "seldom_between_transfers")
        elif share >= _OFTEN and (is_repeated or self._is_densest(mix)):
            yield Clue(CommRole.TP, 2.0, "between_all_transfers")
        elif share >= _OFTEN and any(other.n_exchanges for other in self._mixes):
            yield Clue(CommRole.TP, 1.2, "between_all_transfers")

    def _occupied(self, mix: OpMix) -> tuple[float, int]:
        """(pairs of transfers of the busiest communicator, intervals of it with own data)."""
        best = (0.0, 0)
        for other in self._mixes:
            n_marks = _n_pairs(other)
            if other is not mix and n_marks > best[0]:
                best = n_marks, len(np.unique(np.searchsorted(other.marks, mix.places)))
        return best

    def _is_densest(self, mix: OpMix) -> bool:
        own = self._occupied(mix)[1]
        others = [self._occupied(other)[1] for other in self._reduced if other is not mix]
        return bool(others) and own >= 2 * max(others)

    def _by_step(self, mix: OpMix) -> Iterable[Clue]:
        """The rate per step, where numbers over the world tell the steps."""
        if not self._n_steps:
            return
        if mix.n_data < _FEW_PER_STEP * self._n_steps:
            yield Clue(CommRole.DP, 0.5 if len(self._reduced) > 1 else 1.0, "few_per_step")
        elif mix.n_sizes <= _FEW_SIZES:
            yield Clue(CommRole.TP, 1.0, "many_alike_per_step")

    def _is_elsewhere(self, mix: OpMix) -> bool:
        """Whether neighbours in rank order cannot be the members."""
        rank = self._place.global_rank
        return rank >= 0 and mix.rank >= 0 and rank % mix.size != mix.rank

    # P2P between two ranks, where next and previous are one

    def _of_pair(self, mix: OpMix) -> Iterable[Clue]:
        n_rounds = _n_pairs(mix)
        if n_rounds < _MIN_MARKS:
            return
        others = [_n_pairs(m) for m in self._mixes if m is not mix and m.has_p2p]
        if others and n_rounds >= _MANY * max(others):
            yield Clue(CommRole.CP, 1.2, "most_transfers")
        elif others and n_rounds * _MANY <= max(others):
            yield Clue(CommRole.PP, 1.2, "few_transfers")
        yield from self._by_layers(mix, n_rounds)
        if mix.rank == 1 and self._place.global_rank >= 0 and self._world_size > 0:
            is_last = self._place.global_rank * 2 >= self._world_size
            role = CommRole.PP if is_last else CommRole.CP
            yield Clue(role, 0.7, "last_half" if is_last else "not_outermost")

    def _by_layers(self, mix: OpMix, n_rounds: float) -> Iterable[Clue]:
        """A ring goes around in every layer, a pipeline once per microbatch: many layers."""
        inside = [m.n_exchanges or m.n_data for m in self._mixes if m is not mix and not m.has_p2p]
        per_round = max(inside, default=0) / n_rounds
        if per_round >= _MANY_PER_ROUND:
            yield Clue(CommRole.PP, 1.5, "layers_between_transfers")
        elif 1 < per_round <= _FEW_PER_ROUND:
            yield Clue(CommRole.CP, 1.2, "transfers_in_every_layer")

    # neighbours

    def _by_neighbours(self, mix: OpMix, roles: Mapping[int, CommRole]) -> Iterable[Clue]:
        def size(role: CommRole) -> int:
            return max((m.size for m in self._mixes if roles.get(m.comm_index) is role), default=1)

        if mix.is_control_only and mix not in self._spanning:
            model = size(CommRole.TP) * max(size(CommRole.PP), self._size_of_transfers(roles))
            if mix.size == model > 1 and any(op == Op.ALL_REDUCE for op, _ in mix.controls):
                yield Clue(CommRole.MP, 2.0, "size_of_model")
        if roles.get(mix.comm_index) is CommRole.DP and mix.n_data and size(CommRole.EP) > 1:
            wide = mix.size * size(CommRole.EP)
            if wide in {size(CommRole.DP), self._size_of_gradients(mix)}:
                yield Clue(CommRole.EDP, 6.0, "size_of_experts")

    def _size_of_transfers(self, roles: Mapping[int, CommRole]) -> int:
        """Of P2P that may be a pipeline's."""
        unknown = [m for m in self._mixes if m.has_p2p and not m.n_exchanges]
        return max(
            (m.size for m in unknown if roles.get(m.comm_index) is CommRole.UNKNOWN), default=1
        )

    def _size_of_gradients(self, mix: OpMix) -> int:
        return max((m.size for m in self._reduced if m is not mix), default=0)


def _widest(mixes: Iterable[OpMix]) -> int:
    """The largest size where there is a smaller one too; 0 otherwise."""
    sizes = {mix.size for mix in mixes}
    return max(sizes) if len(sizes) > 1 else 0


def _moves(mix: OpMix) -> bool:
    return bool(mix.n_exchanges or mix.has_p2p)


def _n_pairs(mix: OpMix) -> float:
    """Transfers that belong together counted once: there and back, in and out, once around."""
    if mix.n_exchanges:
        return mix.n_exchanges / 2
    is_ring = guess(_of_p2p(mix)).role is CommRole.CP
    return len(mix.marks) / (2 * (mix.size - 1) if is_ring else 2)


def _of_p2p(mix: OpMix) -> Iterable[Clue]:
    """A pipeline goes forth and back between neighbours, a ring goes around."""
    ways = mix.ways
    if mix.size == _PAIR:
        yield from _of_two(mix)
        return
    to_next, from_previous = (Op.SEND, 1) in ways, (Op.RECV, -1) in ways
    to_previous, from_next = (Op.SEND, -1) in ways, (Op.RECV, 1) in ways
    if (to_next and from_next) or (to_previous and from_previous):
        yield Clue(CommRole.PP, 3.0, "forth_and_back")
    elif to_next and from_previous and mix.longest_p2p < _PAIR:
        is_wrapped = mix.rank in {0, mix.size - 1}
        yield Clue(CommRole.CP, 3.0 if is_wrapped or mix.n_both else 1.5, "once_around")
        yield Clue(CommRole.PP, 0.0 if is_wrapped else 0.5, "one_way")
    elif ways <= {(Op.SEND, 1), (Op.RECV, -1), (Op.SEND, -1), (Op.RECV, 1)}:
        yield Clue(CommRole.PP, 1.0, "one_way")


def _of_two(mix: OpMix) -> Iterable[Clue]:
    """A ring sends and receives at once; a pipeline has a send or a receive alone at both ends of
    a step."""
    n_calls = mix.n_alone + mix.n_both
    if mix.n_alone > _ALONE * n_calls:
        yield Clue(CommRole.PP, 2.3, "sends_alone")
    elif n_calls >= _MIN_MARKS and mix.n_alone < _NEVER_ALONE * n_calls:
        yield Clue(CommRole.CP, 1.8, "sends_and_receives_at_once")


def _of_one_replica(mix: OpMix) -> Iterable[Clue]:
    """Activations reduced layer after layer, then gathered, and no norm: a model that serves."""
    reductions, gathers = mix.counts.get(Op.ALL_REDUCE, 0), mix.counts.get(Op.ALL_GATHER, 0)
    is_all = reductions + gathers == mix.n_data and not mix.controls and not mix.has_p2p
    if is_all and gathers > 1 and reductions >= _FEW_PER_ROUND * gathers:
        yield Clue(CommRole.TP, 5.0, "reduces_then_gathers")


def _shard_pairs(mixes: Sequence[OpMix]) -> dict[int, Clue]:
    """Hybrid sharding: what is scattered over the shards is reduced over the replicas."""
    found: dict[int, Clue] = {}
    for shard in mixes:
        parts = {size // shard.size for size in shard.scattered_bytes}
        for other in mixes:
            is_reducing = set(other.counts) == {int(Op.ALL_REDUCE)}
            if other is not shard and is_reducing and other.reduced_bytes and (
                other.reduced_bytes <= parts
            ):  # fmt: skip
                found[shard.comm_index] = Clue(CommRole.DP_SHARD, 3.0, "shards_reduced_elsewhere")
                found[other.comm_index] = Clue(CommRole.DP_REPLICATE, 3.0, "reduces_shards")
    return found
