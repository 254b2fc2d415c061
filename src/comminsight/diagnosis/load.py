"""Uneven load that moves: whoever has most to send in a step is late in it.

Asked where no rank is late for good. The bytes of a rank's ops, against what it usually moves,
stand for its load: they follow the tokens that experts, or lengths of sequences, gave it.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from comminsight.diagnosis import codes_speed
from comminsight.diagnosis.basis import step_times_ns
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.recurrence import excess_over_typical
from comminsight.model.measures import StragglerMeasures
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

MIN_HITS = 8
MIN_COST_RATIO = 0.05  # of the step
MIN_MATCH_RATIO = 0.75  # of the hit steps, in which the rank with most bytes is the late one
MIN_UNEVEN_RATIO = 0.2  # by which it has more than the typical rank
ALIKE_RATIO = 0.99  # of the most loaded rank: its tensor-parallel peers move as much
CHANCE_FACTOR = 2.0  # times what chance alone would match


def moving_load(verdict: Verdict, used: StragglerMeasures) -> Verdict | None:
    """LOAD_IMBALANCE without culprits where load explains who is late when; None elsewhere."""
    if used.moved_bytes is None or not used.moved_bytes.any():
        return None
    moved = used.moved_bytes.astype(float)
    load = moved / np.maximum(np.median(moved, axis=0), 1.0)
    cost_ns = excess_over_typical(used.own_delay_ns + used.transfer_delay_ns)
    step_ns = float(np.median(step_times_ns(used)))
    late, most = cost_ns.argmax(axis=1), load.max(axis=1)
    is_heavy = np.take_along_axis(load, late[:, None], axis=1)[:, 0] >= ALIKE_RATIO * most
    hits = cost_ns.max(axis=1) >= MIN_COST_RATIO * step_ns
    n_hit = int(hits.sum())
    if n_hit < MIN_HITS:
        return None
    uneven = most / np.maximum(np.median(load, axis=1), 1e-9) - 1
    n_match = int((hits & is_heavy & (uneven >= MIN_UNEVEN_RATIO)).sum())
    n_alike = (load >= ALIKE_RATIO * most[:, None]).sum(axis=1)
    by_chance = float(n_alike[hits].sum()) / moved.shape[1]
    if n_match < max(MIN_MATCH_RATIO * n_hit, CHANCE_FACTOR * by_chance):
        return None
    if len(set(late[hits].tolist())) < 2:
        return None
    said = message(
        codes_speed.LOAD_MOVES, n_match=n_match, n_hit=n_hit,
        ratio=float(np.median(uneven[hits])), n_ranks=len(set(late[hits].tolist())),
    )  # fmt: skip
    cost = float(np.median(cost_ns.max(axis=1)[hits]))
    return replace(
        verdict,
        cause=Cause.LOAD_IMBALANCE,
        confidence=Confidence.MEDIUM,
        first_step=int(used.steps[hits][0]),
        last_step=int(used.steps[hits][-1]),
        measures={
            "step_cost_ns": cost, "step_cost_ratio": cost / step_ns if step_ns else 0.0,
            "n_hit_steps": float(n_hit),
        },
        evidence=(Evidence(kind="measure", message=said),),
        missing=(),
        next_actions=(message(codes_speed.EVEN_LOAD),),
    )  # fmt: skip
