"""How the data ops of a session's communicators lie in time and among each other.

Gradients come once per step and one right after the other, or while the backward pass runs;
activations are reduced in every layer of both passes, and something is computed before each of
them. So it counts where ops lie and not how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from comminsight.model.ops import Op
from comminsight.semantics.op_mix import REDUCING, OpMix

_TIGHT = 0.05  # of an op's length: nothing was computed between two ops
_MUCH = 10  # times an op's length: what lies between two steps' gradients
_OVERLAPS = 0.3  # of the ops begin before the one before them has ended
_LEAST = 3  # of what recurs
_ACTIVATIONS = 2  # gathers before a scatter: in the backward pass the inputs once more
_SELDOM = 0.08  # of the runs; so many look strange where records are lost
_IN_TURNS = 0.7  # of the scatters follow a gather
_SINGLE = 0.35  # of the gathers' runs are of one: those of the forward pass
_OFTEN = 0.6  # of the gathers
_LONG, _EVEN = 2.5, 1.6  # longest stretch, of the usual one
_KINDS_PER_ITERATION = 1.6  # sizes of its reductions: all of one, but for lost gathers
_LARGER = 64  # times the largest gradients: less are numbers about the job
_LAYERS = 4  # reductions of two layers
_PASSES = 4  # reductions of a layer: two forward, two backward
_NO_FORWARD = 4  # times the long pauses inside an iteration: a forward pass takes longer


def is_two_way(mix: OpMix) -> bool:
    """Whether data are gathered and scattered: activations in turns, shards, keys and values."""
    return bool(mix.counts.get(Op.ALL_GATHER)) and bool(mix.counts.get(Op.REDUCE_SCATTER))


def overlaps(mix: OpMix) -> bool:
    """Whether an op often begins before the one before it has ended."""
    return mix.overlap_ratio >= _OVERLAPS


def is_bursty(mix: OpMix) -> bool:
    """Whether three ops and more usually follow each other with nothing computed between them, or
    two with much computed before the next two."""
    if mix.n_data < 2 * _LEAST:
        return False
    lengths_ns, idle_ns = mix.ends_ns - mix.starts_ns, mix.starts_ns[1:] - mix.ends_ns[:-1]
    usual_ns = np.median(lengths_ns)
    is_apart = idle_ns > _TIGHT * usual_ns
    firsts = np.append(0, np.flatnonzero(is_apart) + 1)
    usual_run = np.median(np.diff(np.append(firsts, mix.n_data)))
    if len(firsts) < _LEAST or usual_run < 2:
        return False
    return bool(usual_run >= _LEAST or np.median(idle_ns[is_apart]) > _MUCH * usual_ns)


def gathers_ahead(mix: OpMix) -> bool:
    """Whether again and again three gathers and more follow each other, as those of the forward
    pass do; a lost scatter between activations looks so now and then."""
    runs = _runs(mix, Op.ALL_GATHER)
    ahead = runs[runs > _ACTIVATIONS]
    if len(ahead) < min(len(runs), 2):
        return False
    return len(ahead) > _SELDOM * len(runs) or bool(np.median(ahead) > 2 * _LEAST)


def gathers_and_scatters_by_block(mix: OpMix) -> bool:
    """Whether usually several gathers follow each other, and several scatters."""
    return all(np.median(_runs(mix, op)) > 1 for op in (Op.ALL_GATHER, Op.REDUCE_SCATTER))


def _runs(mix: OpMix, op: Op) -> np.ndarray:
    """How many of ``op`` follow each other."""
    is_of_op = np.append(0, np.append(mix.ops == op, 0).astype(np.int64))
    edges = np.diff(is_of_op)
    runs: np.ndarray = np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)
    return runs


def in_turns(mix: OpMix, others: Iterable[np.ndarray]) -> bool:
    """Whether a scatter follows each gather, or two of them, and that more than once between what
    else the session does (rows ``others``): every layer has several such pairs."""
    own = mix.places[np.isin(mix.ops, (Op.ALL_GATHER, Op.REDUCE_SCATTER))]
    ops = mix.ops[np.isin(mix.ops, (Op.ALL_GATHER, Op.REDUCE_SCATTER))]
    reductions = mix.places[mix.ops == Op.ALL_REDUCE]
    bounds = np.unique(np.concatenate([reductions, *others]))
    segment = np.searchsorted(bounds, own)
    is_pair = (ops[:-1] == Op.ALL_GATHER) & (ops[1:] == Op.REDUCE_SCATTER)
    is_pair &= segment[:-1] == segment[1:]
    n_pairs = int(np.count_nonzero(is_pair))
    runs = _runs(mix, Op.ALL_GATHER)
    if gathers_ahead(mix) or not len(bounds) or np.mean(runs == 1) < _SINGLE:
        return False
    if n_pairs <= _IN_TURNS * mix.counts.get(Op.REDUCE_SCATTER, 0):
        return False
    _, per_segment = np.unique(segment[:-1][is_pair], return_counts=True)
    return bool(per_segment[per_segment > 1].sum() > n_pairs / 2)


def is_alternating(mix: OpMix) -> bool:
    """Whether never two gathers follow each other: keys and values of a single layer do so too."""
    return bool(np.mean(_runs(mix, Op.ALL_GATHER) == 1) > 1 - _SELDOM)


def updates(mix: OpMix, carriers: Sequence[OpMix], others: Sequence[np.ndarray]) -> bool:
    """Whether gradients are scattered and then, with nothing of ``carriers`` in between, the
    updated parameters gathered; the whole rest of the step (rows ``others``) lies between a gather
    and the next scatter."""
    back = _between(mix, (Op.REDUCE_SCATTER, Op.ALL_GATHER), [one.places for one in carriers])
    forth = _between(mix, (Op.ALL_GATHER, Op.REDUCE_SCATTER), others)
    return min(len(back), len(forth)) >= _LEAST and not back.any() and bool(np.median(forth) > 0)


def is_in_blocks(mix: OpMix, marks: np.ndarray) -> bool:
    """Whether several gathers, and several scatters, follow each other without a transfer among
    all (rows ``marks``): they are not those of layers."""
    inside = [
        _between(mix, (op, op), [marks]) for op in (Op.ALL_GATHER, Op.REDUCE_SCATTER)
    ]  # fmt: skip
    return all(len(counts) >= _LEAST and not counts.any() for counts in inside)


def _between(mix: OpMix, pair: tuple[Op, Op], others: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of ``others`` between each op of the first kind that one of the second follows, and
    that one."""
    at = np.flatnonzero((mix.ops[:-1] == pair[0]) & (mix.ops[1:] == pair[1]))
    rows = np.sort(np.concatenate([*others, mix.places[:0]]))
    counts: np.ndarray = np.searchsorted(rows, mix.places[at + 1]) - np.searchsorted(
        rows, mix.places[at]
    )
    return counts


def lies_between_gathers(mix: OpMix, gathering: OpMix) -> bool:
    """Whether data are reduced between most gathers that ``gathering`` does one after another."""
    rows = mix.places[np.isin(mix.ops, REDUCING)]
    counts = _between(gathering, (Op.ALL_GATHER, Op.ALL_GATHER), [rows])
    return len(counts) >= _LEAST and bool(np.count_nonzero(counts) > _OFTEN * len(counts))


def stretches(mix: OpMix, other: OpMix) -> np.ndarray:
    """How many ops follow each other without one of ``other``, but for what was cut off at both
    ends."""
    _, lengths = np.unique(np.searchsorted(other.places, mix.places), return_counts=True)
    return lengths[1:-1] if len(lengths) > 2 else lengths[:0]


def lies_before_bursts(mix: OpMix, bursts: OpMix) -> bool:
    """Whether the passes of a layer and more lie between each two stretches of ``bursts``."""
    own = stretches(mix, bursts)
    return len(own) > 1 and bool(np.median(own) >= _PASSES)


def is_single_between(mix: OpMix, layers: OpMix) -> bool:
    """Whether again and again one reduction lies alone between the passes of ``layers``."""
    own = stretches(mix, layers)
    is_lone = len(own) > 1 and own.max() == 1 and set(mix.counts) == {int(Op.ALL_REDUCE)}
    return is_lone and lies_before_bursts(layers, mix)


def has_pass_of_its_own(mix: OpMix, other: OpMix) -> bool:
    """Whether again and again a long stretch lies without ``other``, as the forward pass without
    gradients, and ``other`` has no such stretch."""
    own, its = stretches(mix, other), stretches(other, mix)
    if len(own) < 2 * _LEAST or len(its) < 2 * _LEAST:
        return False
    longest = np.sort(own)[-_LEAST]
    is_even = np.sort(its)[-_LEAST] <= _EVEN * np.quantile(its, 0.25)
    return bool(longest >= max(_LONG * np.quantile(own, 0.25), _PASSES) and is_even)


def may_carry_gradients(other: OpMix, mix: OpMix) -> bool:
    """Whether ``other`` may reduce the gradients of a model whose ``mix`` gathers and scatters: its
    groups may hold those of ``mix``, and it reduces more than numbers, not in the forward pass."""
    if other.size % mix.size or other.size < mix.size:
        return False
    if _LARGER * max(other.sizes, default=0) < max(mix.scattered, default=(0, 0))[0]:
        return False
    return not lies_between_gathers(other, mix)


def serves(mix: OpMix) -> bool:
    """Whether activations are reduced layer after layer and then gathered, again and again: all of
    one size, of another one when prompts are read, or without the forward pass that lies before
    gradients."""
    reductions, gathers = mix.counts.get(Op.ALL_REDUCE, 0), mix.counts.get(Op.ALL_GATHER, 0)
    if gathers < 2 or reductions + gathers != mix.n_data or reductions < _LAYERS * gathers:
        return False
    is_gather = mix.ops == Op.ALL_GATHER
    iteration = np.cumsum(is_gather)[~is_gather]
    n_iterations = len(np.unique(iteration))
    n_kinds = len(np.unique(iteration << 40 | mix.sizes[~is_gather]))
    if n_kinds > _KINDS_PER_ITERATION * n_iterations:
        return False
    if len({size for size, _ in mix.reduced}) > 1:
        return True
    idle_ns, is_first = mix.starts_ns[1:] - mix.ends_ns[:-1], is_gather[:-1]
    inside_ns = np.quantile(idle_ns[~is_first & ~is_gather[1:]], 0.75)
    return bool(np.median(idle_ns[is_first]) <= _NO_FORWARD * inside_ns)


def is_one_replica(mix: OpMix) -> bool:
    """Whether activations are reduced layer after layer, then gathered, and no norm: a model that
    serves on all ranks."""
    reductions, gathers = mix.counts.get(Op.ALL_REDUCE, 0), mix.counts.get(Op.ALL_GATHER, 0)
    is_all = reductions + gathers == mix.n_data and not mix.controls and not mix.has_p2p
    return is_all and gathers > 1 and reductions >= _LAYERS * gathers
