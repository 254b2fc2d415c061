"""Transfers that became slow although every member had entered: a candidate, never a port.

The communicator is the one whose members fit the ranks with transfer delay best. Without a map
from ranks to ports the link itself cannot be named, so the confidence stays low.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.diagnosis import codes
from comminsight.diagnosis.basis import step_times_ns
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.recurrence import Episode
from comminsight.diagnosis.straggler_evidence import recurrence_evidence
from comminsight.model.measures import StragglerMeasures
from comminsight.model.topology import Communicator
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Confidence,
    Coverage,
    Evidence,
    Verdict,
)

RULE = "slow_link"
AFFECTED_RATIO = 0.5  # of the largest transfer delay
MIN_FIT = 0.5  # Jaccard index of affected ranks and members


def judge_slow_link(
    used: StragglerMeasures,
    communicators: Sequence[Communicator],
    coverage: Coverage,
    main: Episode,
) -> Verdict:
    """SLOW_LINK with the communicator that fits, or NO_VERDICT where none does. Names no rank as
    culprit: both ends of a slow transfer look the same."""
    window = slice(main.first, main.last)
    delay_ns = np.median(used.transfer_delay_ns[window], axis=0)
    is_affected = delay_ns >= AFFECTED_RATIO * delay_ns.max()
    affected = {int(rank) for rank in used.global_ranks[is_affected]}
    best = max(communicators, key=lambda c: (_fit(c, affected), -c.comm_size), default=None)
    if best is None or _fit(best, affected) < MIN_FIT:
        return Verdict(
            rule=RULE,
            cause=Cause.NO_VERDICT,
            confidence=Confidence.NONE,
            coverage=coverage,
            missing=(message(codes.MISSING_AGREEMENT, ranks=sorted(affected)),),
        )
    step_ns = float(np.median(step_times_ns(used)[window]))
    said = message(
        codes.TRANSFER, ranks=sorted(affected), comm=best.label, cost_ns=round(main.cost_ns)
    )
    return Verdict(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.LOW,
        coverage=coverage,
        victims=tuple(sorted(affected)),
        comm_id=best.comm_id,
        first_step=int(used.steps[main.first]),
        last_step=int(used.steps[main.last - 1]),
        measures={
            "step_cost_ns": main.cost_ns,
            "step_cost_ratio": main.cost_ns / step_ns if step_ns else 0.0,
            "transfer_delay_ns": float(delay_ns.max()),
        },
        chain=_chain(used, coverage, best),
        evidence=(
            Evidence(kind="measure", message=said, comm_id=best.comm_id),
            recurrence_evidence(used, main),
        ),
        missing=(message(codes.MISSING_PORT, comm=best.label),),
        next_actions=(message(codes.CHECK_TRANSFER, comm=best.label),),
    )


def _fit(communicator: Communicator, affected: set[int]) -> float:
    members = set(communicator.members)
    return len(members & affected) / len(members | affected)


def _chain(
    used: StragglerMeasures, coverage: Coverage, communicator: Communicator
) -> tuple[ChainLink, ...]:
    by_rank = dict(zip(used.global_ranks.tolist(), used.hosts, strict=True))
    hosts = sorted({by_rank.get(rank, "") for rank in communicator.members} - {""})
    return (
        ChainLink(ChainLevel.JOB, f"{coverage.ranks_expected} ranks"),
        ChainLink(ChainLevel.ROLE, communicator.role.value),
        ChainLink(ChainLevel.COMMUNICATOR, communicator.label),
        ChainLink(ChainLevel.NODE, ", ".join(hosts) or "unknown"),
        ChainLink(ChainLevel.PORT, "unknown"),
    )
