"""A straggler that waits for its input: told only where the waiting itself was measured."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from comminsight.diagnosis import codes_speed
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.recurrence import excess_over_typical
from comminsight.model.measures import StragglerMeasures
from comminsight.model.verdict import Cause, Evidence, Verdict

MIN_COVERED_RATIO = 0.8  # of the rank's delay, by its wait for input beyond its peers'
FELT_RATIO = 0.5  # of the verdict's cost, from which a step counts as hit


def with_input(verdict: Verdict, used: StragglerMeasures) -> Verdict:
    """The verdict, as INPUT_STRAGGLER where the wait for input of every culprit accounts for at
    least ``MIN_COVERED_RATIO`` of its delay in the steps that it hit; unchanged otherwise."""
    if used.input_wait_ns is None:
        return verdict
    columns = np.flatnonzero(np.isin(used.global_ranks, verdict.culprits))
    waits_ns = excess_over_typical(used.input_wait_ns)
    covered = [_covered_ratio(verdict, used, waits_ns, int(column)) for column in columns]
    if not covered or min(covered) < MIN_COVERED_RATIO:
        return verdict
    said = tuple(
        Evidence(
            kind="measure",
            message=message(
                codes_speed.INPUT_WAIT, rank=int(used.global_ranks[column]), ratio=ratio
            ),
            global_rank=int(used.global_ranks[column]),
        )
        for column, ratio in zip(columns, covered, strict=True)
    )
    ranks = list(verdict.culprits)
    return replace(
        verdict,
        cause=Cause.INPUT_STRAGGLER,
        evidence=(*verdict.evidence, *said),
        next_actions=(message(codes_speed.CHECK_INPUT, ranks=ranks),),
    )


def _covered_ratio(
    verdict: Verdict, used: StragglerMeasures, waits_ns: np.ndarray, column: int
) -> float:
    """Share of the rank's delay that it waited for input longer than its typical peer."""
    inside = (used.steps >= verdict.first_step) & (used.steps <= verdict.last_step)
    cost_ns = used.step_cost_ns[:, column]
    hits = inside & (cost_ns >= FELT_RATIO * verdict.measures["step_cost_ns"])
    delay_ns = used.own_delay_ns[hits, column].astype(float)
    if not len(delay_ns) or not delay_ns.sum():
        return 0.0
    return float(np.minimum(waits_ns[hits, column], delay_ns).sum() / delay_ns.sum())
