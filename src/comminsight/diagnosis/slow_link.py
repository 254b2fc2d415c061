"""Transfers that became slow although every member had entered: a candidate, never a port.

The communicator is the one whose members fit the ranks with transfer delay best. Without a map
from ranks to ports the link itself cannot be named, so the confidence stays low.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from comminsight.analysis.changepoint import find_shift
from comminsight.diagnosis import codes
from comminsight.diagnosis.basis import step_times_ns
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.recurrence import MIN_WINDOW, Episode, Recurrence
from comminsight.diagnosis.rules.slow_place import slow_place_rule
from comminsight.diagnosis.straggler_evidence import recurrence_evidence
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import Backend
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
MIN_COST_RATIO = 0.05  # of the step time
MIN_ENDS = 2  # ranks at the ends of a transfer
MIN_HIT_RATIO = 0.8
CONTRAST = 3.0  # affected against unaffected ranks, or after against before
MIN_FIT = 0.5  # Jaccard index of affected ranks and members


def find_slow_transfer(used: StragglerMeasures, step_ns: float) -> Episode | None:
    """The steps in which transfers of some ranks are slow, led by the rank they cost most.

    Others must transfer as fast as ever meanwhile: what is slow for everybody is no link, and on
    one machine it is as a rule the processor.
    """
    delay_ns = used.transfer_delay_ns.astype(float)
    share = delay_ns / np.maximum(delay_ns + used.own_delay_ns, 1.0)
    cost_ns = used.step_cost_ns * share
    worst_ns = cost_ns.max(axis=1)
    shift = find_shift(worst_ns)
    is_onset = shift is not None and shift.after >= CONTRAST * max(shift.before, 1.0)
    first = shift.onset if shift is not None and is_onset else 0
    inside = worst_ns[first:]
    n_hit = int((inside >= MIN_COST_RATIO * step_ns).sum())
    if len(inside) < MIN_WINDOW or n_hit < MIN_HIT_RATIO * len(inside):
        return None
    typical_ns = np.median(delay_ns[first:], axis=0)
    is_affected = typical_ns >= AFFECTED_RATIO * typical_ns.max()
    if is_affected.sum() < MIN_ENDS:
        return None
    if is_affected.all():
        return None  # everybody alike: the machine or the fabric as a whole, no link of its own
    others_ns = float(np.median(typical_ns[~is_affected]))
    if others_ns * CONTRAST > float(np.median(typical_ns[is_affected])):
        return None
    column = int(np.median(cost_ns[first:], axis=0).argmax())
    recurrence = Recurrence.SINCE if first else Recurrence.ALWAYS
    cost = float(np.median(inside))
    return Episode(column, recurrence, first, len(worst_ns), n_hit, cost)


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
    fitting = fitting_groups(communicators, affected)
    if not fitting or _is_loopback(used, fitting):
        return _no_group(coverage, affected)
    only = fitting[0][0] if len(fitting) == len(fitting[0]) == 1 else None
    # several may fit, since ranks are all that is known of a transfer delay here
    shown = " | ".join(_group_label(group) for group in fitting)
    step_ns = float(np.median(step_times_ns(used)[window]))
    said = message(codes.TRANSFER, ranks=sorted(affected), comm=shown, cost_ns=round(main.cost_ns))
    comm_id = only.comm_id if only is not None else -1
    return Verdict(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.LOW,
        coverage=coverage,
        victims=tuple(sorted(affected)),
        comm_id=comm_id,
        first_step=int(used.steps[main.first]),
        last_step=int(used.steps[main.last - 1]),
        measures={
            "step_cost_ns": main.cost_ns,
            "step_cost_ratio": main.cost_ns / step_ns if step_ns else 0.0,
            "transfer_delay_ns": float(delay_ns.max()),
        },
        chain=_chain(used, coverage, only, shown),
        evidence=(
            Evidence(kind="measure", message=said, comm_id=comm_id),
            recurrence_evidence(used, main),
        ),
        missing=(message(codes.MISSING_PORT, comm=shown),),
        next_actions=(message(codes.CHECK_TRANSFER, comm=shown),),
    )


def _no_group(coverage: Coverage, affected: set[int]) -> Verdict:
    return Verdict(
        rule=RULE,
        cause=Cause.NO_VERDICT,
        confidence=Confidence.NONE,
        coverage=coverage,
        missing=(message(codes.MISSING_AGREEMENT, ranks=sorted(affected)),),
    )


def fitting_groups(
    communicators: Sequence[Communicator], affected: set[int]
) -> list[list[Communicator]]:
    """Communicators, alone or all of one description together, that fit the affected ranks.

    Those with the best Jaccard index, if it reaches ``MIN_FIT``; more than one when several fit
    equally well.
    """
    families: dict[str, list[Communicator]] = {}
    for communicator in communicators:
        families.setdefault(f"{communicator.role} {communicator.desc}", []).append(communicator)
    groups = [[communicator] for communicator in communicators]
    groups += [family for family in families.values() if len(family) > 1]
    fits = [_fit(group, affected) for group in groups]
    best = max(fits, default=0.0)
    return [g for g, fit in zip(groups, fits, strict=True) if fit == best >= MIN_FIT]


def _is_loopback(used: StragglerMeasures, fitting: list[list[Communicator]]) -> bool:
    """True when gloo moved everything inside one machine: that is its processor, not a link."""
    backends = {communicator.backend for group in fitting for communicator in group}
    return backends == {Backend.GLOO} and len(set(used.hosts)) == 1


def _fit(group: Sequence[Communicator], affected: set[int]) -> float:
    members = {rank for communicator in group for rank in communicator.members}
    return len(members & affected) / max(1, len(members | affected))


def _group_label(group: Sequence[Communicator]) -> str:
    first = group[0]
    return first.label if len(group) == 1 else f"{first.role.value} {first.desc or '*'}"


def _chain(
    used: StragglerMeasures, coverage: Coverage, only: Communicator | None, shown: str
) -> tuple[ChainLink, ...]:
    by_rank = dict(zip(used.global_ranks.tolist(), used.hosts, strict=True))
    members = only.members if only is not None else ()
    hosts = sorted({by_rank.get(rank, "") for rank in members} - {""})
    return (
        ChainLink(ChainLevel.JOB, f"{coverage.ranks_expected} ranks"),
        ChainLink(ChainLevel.ROLE, only.role.value if only is not None else "unknown"),
        ChainLink(ChainLevel.COMMUNICATOR, shown),
        ChainLink(ChainLevel.NODE, ", ".join(hosts) or "unknown"),
        ChainLink(ChainLevel.PORT, "unknown"),
    )


def placed(
    verdicts: Sequence[Verdict], rows: Callable[[], Sequence[BandwidthRow]]
) -> tuple[Verdict, ...]:
    """The verdicts, those on slow transfers with the place at which the bandwidth of the run's own
    paths points, where it lies among their victims. ``rows`` is called for such verdicts only."""
    return tuple(
        _with_place(verdict, rows()) if _is_open(verdict) else verdict for verdict in verdicts
    )


def _is_open(verdict: Verdict) -> bool:
    return verdict.cause is Cause.SLOW_LINK and not verdict.culprits


def _with_place(verdict: Verdict, rows: Sequence[BandwidthRow]) -> Verdict:
    job = JobEvidence(bandwidth=tuple(rows), world_size=verdict.coverage.ranks_expected)
    for claim in slow_place_rule(job):
        found = claim.verdict
        touched = {*found.culprits, *found.victims}
        if found.cause is Cause.SLOW_LINK and touched and touched <= set(verdict.victims):
            return replace(
                verdict,
                culprits=found.culprits,
                victims=tuple(sorted(set(verdict.victims) - set(found.culprits))),
                confidence=found.confidence if found.culprits else verdict.confidence,
                measures={**verdict.measures, **found.measures},
                evidence=(*verdict.evidence, *found.evidence),
            )
    return verdict
