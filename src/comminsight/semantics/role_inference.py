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
from comminsight.semantics.p2p_roles import MIN_ROUNDS, PAIR, is_moving, n_rounds, p2p_clues
from comminsight.semantics.role_clues import Clue, guess

_MANY, _MORE = 3.0, 1.5  # times as many ops as on any other communicator
_FEW_PER_STEP = 12
_FEW_SIZES = 4
_OFTEN, _RARELY = 0.6, 0.3
_FORWARD_PASS = 3  # gathers in a row: parameters ahead of layers; activations alternate
_IN_TURNS = 0.7
_OVERLAPS = 0.3
_SYNCHRONISING = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.REDUCE)
_MANY_PER_ROUND, _FEW_PER_ROUND = 6, 4


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
        clocks = [mix.n_repeated_control for mix in self._spanning]
        self._n_steps = min((n for n in clocks if n > 1), default=0)
        self._sharded = _shard_pairs(self._reduced)

    def clues(self) -> dict[int, tuple[Clue, ...]]:
        found = {mix.comm_index: tuple(self._of(mix)) for mix in self._mixes}
        roles = {index: guess(clues).role for index, clues in found.items()} | dict(self._named)
        for mix in self._mixes:
            found[mix.comm_index] += tuple(self._by_neighbours(mix, roles, found[mix.comm_index]))
        return {index: clues for index, clues in found.items() if index not in self._named}

    def purpose(self) -> Iterable[Clue]:
        """Clues for the one communicator of the world, as if it did not span it."""
        for mix in self._spanning if len(self._spanning) == 1 else ():
            if mix.n_exchanges:
                yield Clue(CommRole.EP, 3.0, "exchanges")
            elif mix.has_p2p:
                yield from p2p_clues(mix)
            elif 2 * sum(mix.counts.get(op, 0) for op in _SYNCHRONISING) >= max(self._n_steps, 4):
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
            yield from p2p_clues(mix)
            if mix.size == PAIR:
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
        if mix.overlap_ratio >= _OVERLAPS:
            yield Clue(CommRole.DP, 2.0, "overlaps_itself")
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
        others = [m.n_data for m in self._mixes if m is not mix and m.n_data and not is_moving(m)]
        if not others:
            if self._is_only_group(mix):
                yield Clue(CommRole.TP, 1.2, "only_group")
            return
        ratio = mix.n_data / max(others)
        in_turn = [m.n_data for m in self._in_turn() if m is not mix]
        is_sharding = mix.longest_run.get(Op.ALL_GATHER, 0) >= _FORWARD_PASS
        if ratio >= _MORE and not is_sharding and mix.overlap_ratio < _OVERLAPS:
            yield Clue(CommRole.TP, 1.5 if ratio >= _MANY else 0.5, "most_ops")
        elif in_turn and 1 / ratio >= _MORE and max(in_turn) == max(others):
            yield Clue(CommRole.DP, 1.5 if 1 / ratio >= _MANY else 0.5, "few_ops")

    def _in_turn(self) -> list[OpMix]:
        """Communicators on which one op waits for the other, as layers do."""
        return [mix for mix in self._reduced if mix.overlap_ratio < _OVERLAPS]

    def _is_only_group(self, mix: OpMix) -> bool:
        """Replicas that do not speak to each other and serve: activations reduced, then gathered.
        Reductions alone may as well be gradients of jobs side by side."""
        reductions, gathers = mix.counts.get(Op.ALL_REDUCE, 0), mix.counts.get(Op.ALL_GATHER, 0)
        return (
            mix not in self._spanning
            and not any(is_moving(other) for other in self._mixes)
            and reductions + gathers == mix.n_data >= _FEW_PER_STEP
            and gathers > 1
            and reductions >= 2 * gathers
        )

    def _by_marks(self, mix: OpMix) -> Iterable[Clue]:
        """Tensor parallel ops lie between the transfers of every microbatch and layer."""
        n_marks, n_occupied = self._occupied(mix)
        if n_marks < MIN_ROUNDS:
            return
        share = n_occupied / n_marks
        is_repeated = self._n_steps and n_occupied / self._n_steps >= PAIR
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
            n_marks = n_rounds(other)
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
            is_alone = len(self._reduced) == 1 and mix in self._spanning
            yield Clue(CommRole.DP, 1.0 if is_alone else 0.5, "few_per_step")
        elif mix.n_sizes <= _FEW_SIZES:
            yield Clue(CommRole.TP, 1.0, "many_alike_per_step")

    def _is_elsewhere(self, mix: OpMix) -> bool:
        """Whether neighbours in rank order cannot be the members."""
        rank = self._place.global_rank
        return rank >= 0 and mix.rank >= 0 and rank % mix.size != mix.rank

    # P2P between two ranks, where next and previous are one

    def _of_pair(self, mix: OpMix) -> Iterable[Clue]:
        rounds = n_rounds(mix)
        if rounds < MIN_ROUNDS:
            return
        others = [n_rounds(m) for m in self._mixes if m is not mix and m.has_p2p]
        if others and rounds >= _MANY * max(others):
            yield Clue(CommRole.CP, 1.2, "most_transfers")
        elif others and rounds * _MANY <= max(others):
            yield Clue(CommRole.PP, 1.2, "few_transfers")
        yield from self._by_layers(mix, rounds)
        if mix.rank == 1 and self._place.global_rank >= 0 and self._world_size > 0:
            is_last = self._place.global_rank * 2 >= self._world_size
            role = CommRole.PP if is_last else CommRole.CP
            yield Clue(role, 0.7, "last_half" if is_last else "not_outermost")

    def _by_layers(self, mix: OpMix, rounds: float) -> Iterable[Clue]:
        """A ring goes around in every layer, a pipeline once per microbatch: many layers."""
        inside = [m.n_exchanges or m.n_data for m in self._mixes if m is not mix and not m.has_p2p]
        per_round = max(inside, default=0) / rounds
        if per_round >= _MANY_PER_ROUND:
            yield Clue(CommRole.PP, 1.5, "layers_between_transfers")
        elif 1 < per_round <= _FEW_PER_ROUND:
            yield Clue(CommRole.CP, 1.2, "transfers_in_every_layer")

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
        if roles.get(mix.comm_index) is CommRole.DP and mix.n_data and size(CommRole.EP) > 1:
            wide = mix.size * size(CommRole.EP)
            if wide in {size(CommRole.DP), self._size_of_gradients(mix)}:
                as_data = sum(clue.weight for clue in own if clue.role is CommRole.DP)
                yield Clue(CommRole.EDP, as_data + 1.5, "size_of_experts")

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
