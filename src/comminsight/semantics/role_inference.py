"""Roles of communicators that no name tells, from what one session did on them.

Each observation is a clue (``role_clues``). A role stays unknown where the clues do not single one
out: a wrong role is worse than none. Clues of several ranks add up (``role_join``); one session
alone knows sizes, its own comm ranks and its own ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.op_mix import OpMix
from comminsight.semantics.p2p_roles import (
    MIN_ROUNDS,
    PAIR,
    is_moving,
    n_rounds,
    p2p_clues,
    pair_clues,
)
from comminsight.semantics.role_clues import Clue, guess
from comminsight.semantics.role_exchanges import exchange_clues, may_be_experts
from comminsight.semantics.role_rhythm import (
    gathers_ahead,
    gathers_and_scatters_by_block,
    has_pass_of_its_own,
    in_turns,
    is_alternating,
    is_bursty,
    is_in_blocks,
    is_one_replica,
    is_single_between,
    is_two_way,
    lies_before_bursts,
    lies_between_gathers,
    may_carry_gradients,
    overlaps,
    serves,
    updates,
)
from comminsight.semantics.role_shards import shard_pairs

BESIDE_GRADIENTS = "gathers_beside_gradients"
_FEW_PER_STEP = 12  # data ops: buckets, not layers
_OFTEN, _RARELY = 0.6, 0.3  # of the rounds of transfers
_REPEATED = 2  # rounds of transfers per step that it lies in
_LEAST_DATA, _PER_STEP = 2, 0.5  # ops that make data the purpose of the world's only group
_SYNCHRONISING = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.REDUCE)


@dataclass(frozen=True, slots=True)
class Place:
    """What a session knows of itself; -1 where it does not."""

    world_size: int = -1
    global_rank: int = -1


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
        self._reduced = [mix for mix in mixes if mix.n_data and not is_moving(mix)]
        self._exchanging = [mix for mix in mixes if may_be_experts(mix)]
        clocks = [mix.n_repeated_control for mix in self._spanning]
        self._n_steps = min((n for n in clocks if n > 1), default=0)
        self._sharded = shard_pairs(self._reduced)

    def clues(self) -> dict[int, tuple[Clue, ...]]:
        found = {mix.comm_index: tuple(self._of(mix)) for mix in self._mixes}
        roles = {index: guess(clues).role for index, clues in found.items()} | dict(self._named)
        for mix in self._mixes:
            found[mix.comm_index] += tuple(self._by_neighbours(mix, roles, found[mix.comm_index]))
        return {index: clues for index, clues in found.items() if index not in self._named}

    def purpose(self) -> Iterable[Clue]:
        """Clues for the one communicator of the world, as if it did not span it."""
        least = max(_PER_STEP * self._n_steps, _LEAST_DATA)
        for mix in self._spanning if len(self._spanning) == 1 else ():
            if mix.n_exchanges:
                yield from exchange_clues(mix)
            elif mix.has_p2p:
                yield from p2p_clues(mix)
            elif sum(mix.counts.get(op, 0) for op in _SYNCHRONISING) >= least:
                yield from self._of_data(mix)

    def _of(self, mix: OpMix) -> Iterable[Clue]:
        if mix in self._spanning:
            yield Clue(CommRole.GLOBAL, 4.0 if len(self._spanning) == 1 else 0.2, "spans_world")
            if len(self._spanning) == 1:
                if is_one_replica(mix):
                    yield Clue(CommRole.TP, 5.0, "reduces_then_gathers")
                return
        if mix.n_exchanges:
            yield from exchange_clues(mix)
        elif mix.has_p2p:
            yield from p2p_clues(mix)
            if mix.size == PAIR:
                yield from pair_clues(mix, self._mixes)
                yield from self._of_place(mix)
        elif mix.n_data:
            yield from self._of_data(mix)
        elif mix.is_control_only:
            yield from self._of_control(mix)

    def _of_place(self, mix: OpMix) -> Iterable[Clue]:
        """The second of two stages is in the last half of the world."""
        if n_rounds(mix) >= MIN_ROUNDS and mix.rank == 1 and self._place.global_rank >= 0 and (
            self._world_size > 0
        ):  # fmt: skip
            is_last = self._place.global_rank * 2 >= self._world_size
            role = CommRole.PP if is_last else CommRole.CP
            yield Clue(role, 0.7, "last_half" if is_last else "not_outermost")

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
        if self._is_in_turns(mix):
            is_layer = not is_alternating(mix) or len(self._reduced) == 1 or self._has_marks()
            yield Clue(CommRole.TP, 1.5 if is_layer else 0.9, "gather_scatter_in_turns")
            yield from self._of_layers(mix) if is_layer else ()
        elif is_two_way(mix):
            yield from self._of_shards(mix)
        else:
            yield from self._of_reductions(mix)
        if self._is_elsewhere(mix):
            yield Clue(CommRole.TP, -1.0, "not_innermost")

    def _others(self, mix: OpMix) -> list[np.ndarray]:
        """Rows that cut the session into passes: other data, transfers, numbers over the world."""
        own = [m.places for m in self._reduced if m is not mix]
        own += [m.marks for m in self._mixes if m.has_p2p and not m.n_exchanges]
        return own + [m.controls_at for m in self._spanning if m is not mix]

    def _is_in_turns(self, mix: OpMix) -> bool:
        return is_two_way(mix) and in_turns(mix, self._others(mix))

    def _has_marks(self) -> bool:
        return any(mix.has_p2p and not mix.n_exchanges for mix in self._mixes)

    def _of_shards(self, mix: OpMix) -> Iterable[Clue]:
        """Parameters and gradients, or keys and values whose gradients others reduce."""
        others = [m for m in self._reduced if m is not mix and not self._is_in_turns(m)]
        carriers = [other for other in others if may_carry_gradients(other, mix)]
        wide = [c for c in carriers if any(mix.size * m.size == c.size for m in self._exchanging)]
        of_experts = not wide or all(is_in_blocks(mix, m.marks) for m in self._exchanging)
        left = [carrier for carrier in carriers if carrier not in wide]
        if of_experts and updates(mix, left, self._others(mix)):
            yield Clue(CommRole.DP, 2.0, "scatters_then_gathers")
        elif any(m.size > mix.size or not is_two_way(m) or self._updates(m) for m in carriers):
            if not self._exchanging:
                yield Clue(CommRole.CP, 0.6, BESIDE_GRADIENTS)
        elif not carriers:
            if gathers_ahead(mix):
                yield Clue(CommRole.DP, 2.5, "gathers_in_a_row")
            elif gathers_and_scatters_by_block(mix):
                is_alone = len(self._reduced) == 1
                yield Clue(CommRole.DP, 1.5 if is_alone else 1.0, "scatters_then_gathers")
            if overlaps(mix):
                yield Clue(CommRole.DP, 2.0, "overlaps_itself")

    def _of_reductions(self, mix: OpMix) -> Iterable[Clue]:
        """Gradients, one after the other, or activations, with a layer between them."""
        if mix.counts.get(Op.REDUCE, 0) > mix.n_data / 2:
            yield Clue(CommRole.DP, 1.0, "reduces_to_owners")
        if overlaps(mix):
            yield Clue(CommRole.DP, 2.0, "overlaps_itself")
        elif is_bursty(mix):
            yield Clue(CommRole.DP, 2.0, "bursts")
        else:
            yield from self._of_layers(mix)
        yield from self._by_step(mix)
        n_marks, n_occupied = self._occupied(mix)
        if n_marks >= MIN_ROUNDS and n_occupied <= _RARELY * n_marks:
            yield Clue(CommRole.DP, 2.0, "seldom_between_transfers")

    def _of_layers(self, mix: OpMix) -> Iterable[Clue]:
        """What lies in every layer of every pass."""
        others = [other for other in self._reduced if other is not mix]
        if any(is_two_way(m) and lies_between_gathers(mix, m) for m in others):
            yield Clue(CommRole.TP, 2.0, "between_gathers")
        if any(self._is_once_per_step(m, mix) and lies_before_bursts(mix, m) for m in others):
            yield Clue(CommRole.TP, 1.5, "between_gradients")
        elif not self._exchanging:
            yield from self._by_stretches(mix, others)
        yield from self._by_marks(mix)
        if not others and self._is_only_group(mix):
            yield Clue(CommRole.TP, 1.2, "only_group")

    def _updates(self, mix: OpMix) -> bool:
        return updates(mix, [], self._others(mix))

    def _is_once_per_step(self, mix: OpMix, layers: OpMix) -> bool:
        if is_two_way(mix):
            return self._updates(mix)
        is_lone = not self._has_marks() and is_single_between(mix, layers)
        return is_bursty(mix) or overlaps(mix) or is_lone

    def _by_stretches(self, mix: OpMix, others: Iterable[OpMix]) -> Iterable[Clue]:
        for other in others:
            if has_pass_of_its_own(mix, other):
                yield Clue(CommRole.TP, 1.5, "forward_without_gradients")
            elif is_single_between(mix, other) and not self._has_marks():
                yield Clue(CommRole.DP, 1.2, "alone_between_passes")
            elif has_pass_of_its_own(other, mix) and not is_two_way(mix):
                yield Clue(CommRole.DP, 1.5, "only_in_backward")

    def _is_only_group(self, mix: OpMix) -> bool:
        """Replicas that do not speak to each other and serve. Reductions alone may as well be
        gradients of jobs side by side."""
        is_still = not any(is_moving(other) for other in self._mixes)
        return mix not in self._spanning and is_still and serves(mix)

    def _by_marks(self, mix: OpMix) -> Iterable[Clue]:
        """Tensor parallel ops lie between the transfers of every microbatch and layer."""
        n_marks, n_occupied = self._occupied(mix)
        if n_marks < MIN_ROUNDS or n_occupied < _OFTEN * n_marks:
            return
        is_repeated = self._n_steps and n_occupied / self._n_steps >= _REPEATED
        if is_repeated or self._is_densest(mix):
            yield Clue(CommRole.TP, 2.0, "between_all_transfers")
        elif self._exchanging:
            yield Clue(CommRole.TP, 1.2, "between_all_transfers")

    def _occupied(self, mix: OpMix) -> tuple[float, int]:
        """(rounds of transfers of the busiest communicator, rounds with own data after them)."""
        best = (0.0, 0)
        for other in self._mixes:
            n_marks = n_rounds(other)
            if other is not mix and n_marks > best[0]:
                per_round = max(1, round(len(other.marks) / n_marks))
                rounds = np.searchsorted(other.marks, mix.places) // per_round
                best = n_marks, len(np.unique(rounds))
        return best

    def _is_densest(self, mix: OpMix) -> bool:
        own = self._occupied(mix)[1]
        others = [self._occupied(other)[1] for other in self._reduced if other is not mix]
        return bool(others) and own >= 2 * max(others)

    def _by_step(self, mix: OpMix) -> Iterable[Clue]:
        """The rate per step, where numbers over the world tell the steps."""
        if self._n_steps and mix.n_data < _FEW_PER_STEP * self._n_steps:
            is_alone = len(self._reduced) == 1 and mix in self._spanning
            yield Clue(CommRole.DP, 1.0 if is_alone else 0.3, "few_per_step")

    def _is_elsewhere(self, mix: OpMix) -> bool:
        """Whether neighbours in rank order cannot be the members."""
        rank = self._place.global_rank
        return rank >= 0 and mix.rank >= 0 and rank % mix.size != mix.rank

    # neighbours

    def _by_neighbours(
        self, mix: OpMix, roles: Mapping[int, CommRole], own: Sequence[Clue]
    ) -> Iterable[Clue]:
        def size(role: CommRole) -> int:
            return max((m.size for m in self._mixes if roles.get(m.comm_index) is role), default=1)

        if mix.is_control_only and mix not in self._spanning:
            model = size(CommRole.TP) * max(size(CommRole.PP), self._size_of_transfers(roles))
            if mix.size == model > 1 and any(op == Op.ALL_REDUCE for op, _ in mix.controls):
                yield Clue(CommRole.MP, 2.0, "size_of_model")
        if roles.get(mix.comm_index) is CommRole.DP and mix.n_data:
            yield from self._by_experts(mix, roles, own)

    def _by_experts(
        self, mix: OpMix, roles: Mapping[int, CommRole], own: Sequence[Clue]
    ) -> Iterable[Clue]:
        """Gradients of experts, where the sizes say so; where the exchanges may be others', no
        more than possible."""
        wide = self._sizes_of_gradients(mix, roles)
        fitting = [m for m in self._exchanging if m.size * mix.size in wide]
        told = {roles.get(exchange.comm_index) for exchange in fitting}
        if told & {CommRole.EP, CommRole.UNKNOWN, CommRole.GLOBAL}:
            as_data = sum(clue.weight for clue in own if clue.role is CommRole.DP)
            lead = 1.5 if CommRole.EP in told else 0.0
            yield Clue(CommRole.EDP, as_data + lead, "size_of_experts")

    def _size_of_transfers(self, roles: Mapping[int, CommRole]) -> int:
        """Of P2P that may be a pipeline's."""
        unknown = [m for m in self._mixes if m.has_p2p and not m.n_exchanges]
        return max(
            (m.size for m in unknown if roles.get(m.comm_index) is CommRole.UNKNOWN), default=1
        )

    def _sizes_of_gradients(self, mix: OpMix, roles: Mapping[int, CommRole]) -> set[int]:
        known = {CommRole.DP, CommRole.GLOBAL}
        others = (m for m in self._reduced if m is not mix)
        return {m.size for m in others if roles.get(m.comm_index) in known or m in self._spanning}


def _widest(mixes: Iterable[OpMix]) -> int:
    """The largest size where there is a smaller one too; 0 otherwise."""
    sizes = {mix.size for mix in mixes}
    return max(sizes) if len(sizes) > 1 else 0
