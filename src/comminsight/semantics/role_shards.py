"""Hybrid sharding: two communicators of which one scatters gradients over the shards and the other
reduces each of the parts over the replicas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.op_mix import OpMix
from comminsight.semantics.role_clues import Clue

_FEW, _NEARLY_ALL = 0.1, 0.8  # of the scatters


def shard_pairs(mixes: Sequence[OpMix]) -> dict[int, Clue]:
    """By ``comm_index``: what is scattered over the shards is reduced over the replicas."""
    found: dict[int, Clue] = {}
    for shard in mixes:
        parts = {(size // shard.size, dtype) for size, dtype in shard.scattered}
        for other in mixes:
            is_reducing = set(other.counts) == {int(Op.ALL_REDUCE)}
            if other is not shard and is_reducing and other.reduced and (
                other.reduced <= parts and _reduces_parts(other, shard)
            ):  # fmt: skip
                found[shard.comm_index] = Clue(CommRole.DP_SHARD, 3.0, "shards_reduced_elsewhere")
                found[other.comm_index] = Clue(CommRole.DP_REPLICATE, 3.0, "reduces_shards")
    return found


def _reduces_parts(replicas: OpMix, shards: OpMix) -> bool:
    """Whether a reduction follows each scatter."""
    scatters = shards.places[shards.ops == Op.REDUCE_SCATTER]
    reductions = replicas.places[replicas.ops == Op.ALL_REDUCE]
    if abs(len(scatters) - len(reductions)) > _FEW * len(scatters):
        return False
    n_between = np.diff(np.searchsorted(scatters, reductions))
    return bool(np.count_nonzero(n_between == 1) >= _NEARLY_ALL * len(n_between))
