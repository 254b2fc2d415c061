"""Which rank makes the steps long: the origin of delay that persists, never the rank waited for.

A culprit needs all of: a cost along the critical path beyond both a share of the step and the
noise of the other ranks; hits that persist or recur far beyond chance (``recurrence``); delay of
its own and not of a transfer; a cost beyond what the clocks can be wrong by. The Straggler Index
and waits are shown and decide nothing. Without enough steps, ranks or records nobody is named.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from comminsight.analysis.changepoint import find_shift
from comminsight.diagnosis import codes, codes_speed
from comminsight.diagnosis.basis import MIN_STEPS, complete_steps, missing_basis, step_times_ns
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.places import (
    UniformPlace,
    alone_in_stage,
    is_by_design,
    may_share_cores,
    uniform_place,
)
from comminsight.diagnosis.recurrence import (
    Episode,
    Recurrence,
    episodes,
    excess_over_typical,
    unsuspected,
)
from comminsight.diagnosis.slow_link import find_slow_transfer, judge_slow_link
from comminsight.diagnosis.straggler_evidence import (
    chain_of,
    evidence_of,
    explained_ratio,
    victims_of,
)
from comminsight.model.measures import StragglerMeasures
from comminsight.model.topology import Communicator
from comminsight.model.verdict import (
    Cause,
    Confidence,
    Coverage,
    Evidence,
    Message,
    Verdict,
)

RULE = "straggler"

MIN_COST_RATIO = 0.03  # of the step time
NOISE_QUANTILE = 0.65
NOISE_FACTOR = 1.0  # times what the worst other rank costs in a bad but usual step
INTERMITTENT_COST_RATIO = 0.08
ROTATING_RATIO = 0.6  # of the steps must be long for delays that wander to be mentioned
BLIND_RATIO = 0.06  # of the step: a health that could hide more is stated with low confidence
COMMON_RATIO = 0.15  # by which steps that are longer for all are no healthy ones
FELT_RATIO = 0.25  # of the cost, by which the step must have become longer
CLOCK_FACTOR = 2.0
SECONDARY_RATIO = 0.33  # of the first culprit's cost; less is not named beside it
OWN_SHARE = 0.6
BAD_QUANTILE, STANDOUT_FACTOR = 0.9, 3.0
LEAD_RATIO = 0.6  # of the steps in which a named rank must be the most costly one
RIVAL_FACTOR = 1.5  # by which a culprit's usual cost must exceed that of every rank not named


def judge_straggler(
    measures: StragglerMeasures, communicators: Sequence[Communicator], coverage: Coverage
) -> Verdict:
    """COMPUTE_STRAGGLER, LOAD_IMBALANCE or SLOW_LINK with its cost per step; HEALTHY when nothing
    persists; NO_VERDICT with what is missing when the evidence does not allow either."""
    missing = missing_basis(measures, coverage)
    if missing:
        return _silent(Cause.NO_VERDICT, coverage, missing=missing)
    used = complete_steps(measures)
    step_ns = float(np.median(step_times_ns(used)))
    excess_ns = excess_over_typical(used.step_cost_ns)
    noise_ns = _noise_ns(excess_ns)
    needed_ns = np.maximum(MIN_COST_RATIO * step_ns, NOISE_FACTOR * noise_ns)
    found = episodes(excess_ns, needed_ns, INTERMITTENT_COST_RATIO * step_ns)
    own = [
        episode
        for episode in found
        if _own_share(used, episode) >= OWN_SHARE and _is_felt(used, episode)
    ]
    uniform = uniform_place(used, MIN_COST_RATIO * step_ns)
    if uniform is not None and {e.column for e in own} <= set(uniform.columns):
        return _of_place(used, coverage, uniform, communicators)
    if own:
        return _straggler_verdict(used, coverage, own, needed_ns)
    is_mixed = bool(found) and _own_share(used, found[0]) > 1 - OWN_SHARE
    slow = None if is_mixed else find_slow_transfer(used, step_ns)
    if slow is not None:
        return judge_slow_link(used, communicators, coverage, slow)
    if found:
        ranks = [int(used.global_ranks[episode.column]) for episode in found]
        doubt = message(codes.MISSING_AGREEMENT, ranks=ranks)
        return _silent(Cause.NO_VERDICT, coverage, missing=[doubt])
    if used.hidden_ratio > BLIND_RATIO:
        doubt = message(codes.MISSING_WAITED_FOR, ratio=used.hidden_ratio)
        return _silent(Cause.NO_VERDICT, coverage, missing=[doubt])
    return _nobody(used, coverage, needed_ns, step_ns)


def _straggler_verdict(
    used: StragglerMeasures, coverage: Coverage, own: list[Episode], needed_ns: np.ndarray
) -> Verdict:
    main = own[0]
    if main.cost_ns <= CLOCK_FACTOR * used.clock_error_ns:
        error_ns = used.clock_error_ns
        doubt = message(codes.MISSING_CLOCK, clock_error_ns=error_ns, cost_ns=round(main.cost_ns))
        return _silent(Cause.NO_VERDICT, coverage, missing=[doubt])
    named = [one for one in own if one.cost_ns >= SECONDARY_RATIO * main.cost_ns]
    columns = [episode.column for episode in named]
    rivals = _rivals(used, main, columns)
    if rivals:
        ranks = sorted(int(used.global_ranks[column]) for column in (*columns, *rivals))
        doubt = message(codes.MISSING_AGREEMENT, ranks=ranks)
        return _silent(Cause.NO_VERDICT, coverage, missing=[doubt])
    confidence = _confidence(main, float(needed_ns[main.column]))
    verdict = _verdict(used, coverage, main, columns, None)
    noise_ns = float(_noise_ns(excess_over_typical(used.step_cost_ns))[main.column])
    return replace(
        verdict,
        confidence=confidence,
        measures={**verdict.measures, "noise_ns": noise_ns},
        next_actions=tuple(_actions(used, columns)),
    )


def _rivals(used: StragglerMeasures, main: Episode, named: Sequence[int]) -> list[int]:
    """Ranks that nobody names although they cost nearly as much as the worst one in a usual step:
    under heavy-tailed noise one of several always comes first, and that is no evidence."""
    excess_ns = excess_over_typical(used.step_cost_ns)[main.first : main.last]
    if main.recurrence is Recurrence.INTERMITTENT:
        excess_ns = excess_ns[excess_ns[:, main.column] >= main.cost_ns / 2]
    usual_ns = np.median(excess_ns, axis=0)
    n_led = np.bincount(excess_ns.argmax(axis=1), minlength=excess_ns.shape[1])
    is_close = usual_ns * RIVAL_FACTOR > usual_ns[main.column]
    if n_led[list(named)].sum() < LEAD_RATIO * len(excess_ns):
        is_close |= n_led == np.delete(n_led, list(named)).max(initial=0)
    return [int(column) for column in np.flatnonzero(is_close) if column not in named]


def _of_place(
    used: StragglerMeasures,
    coverage: Coverage,
    found: UniformPlace,
    communicators: Sequence[Communicator],
) -> Verdict:
    """LOAD_IMBALANCE of the place, where ranks that are slow for another reason would hardly be
    just those of a place."""
    if is_by_design(found, may_share_cores=may_share_cores(used.hosts, communicators)):
        return _imbalance_verdict(used, coverage, found)
    ranks = sorted(int(used.global_ranks[column]) for column in found.columns)
    doubt = message(codes_speed.MISSING_DESIGN, ranks=ranks, place=found.place)
    return _silent(Cause.NO_VERDICT, coverage, missing=[doubt])


def _imbalance_verdict(used: StragglerMeasures, coverage: Coverage, found: UniformPlace) -> Verdict:
    """All ranks of one place carry the same delay from the first step on: the layout's doing."""
    main = Episode(
        found.columns[0], Recurrence.ALWAYS, 0, len(used.steps), found.n_hit, found.cost_ns
    )
    verdict = _verdict(used, coverage, main, found.columns, found.place)
    action = message(codes.REBALANCE, place=found.place)
    return replace(
        verdict, cause=Cause.LOAD_IMBALANCE, confidence=Confidence.MEDIUM, next_actions=(action,)
    )


def _verdict(
    used: StragglerMeasures,
    coverage: Coverage,
    main: Episode,
    columns: Sequence[int],
    place: str | None,
) -> Verdict:
    before_ns, after_ns = _before_and_after_ns(used, main)
    return Verdict(
        rule=RULE,
        cause=Cause.COMPUTE_STRAGGLER,
        confidence=Confidence.LOW,
        coverage=coverage,
        culprits=tuple(sorted(int(used.global_ranks[column]) for column in columns)),
        victims=victims_of(used, main, columns),
        first_step=int(used.steps[main.first]),
        last_step=int(used.steps[main.last - 1]),
        measures=_numbers(used, main, before_ns, after_ns),
        chain=chain_of(used, coverage, main, columns),
        evidence=tuple(evidence_of(used, main, columns, place, (before_ns, after_ns))),
    )


def _noise_ns(excess_ns: np.ndarray) -> np.ndarray:
    """Per rank: the excess of the worst of the others in a bad but usual step of its own, without
    the few highest, so that two stragglers do not hide each other."""
    level_ns = np.quantile(excess_ns, NOISE_QUANTILE, axis=0)
    return np.array(
        [unsuspected(level_ns, column).max(initial=0.0) for column in range(len(level_ns))]
    )


def _own_share(used: StragglerMeasures, episode: Episode) -> float:
    """Own work's share of the rank's delay; where neither side is clear, of its delay beyond that
    of the step's typical rank, since a busy machine slows the transfers of all."""
    window = slice(episode.first, episode.last)
    own_ns, transfer_ns = used.own_delay_ns[window], used.transfer_delay_ns[window]
    share = _share(own_ns[:, episode.column], transfer_ns[:, episode.column])
    if not 1 - OWN_SHARE < share < OWN_SHARE:
        return share
    own_ns, transfer_ns = excess_over_typical(own_ns), excess_over_typical(transfer_ns)
    return _share(own_ns[:, episode.column], transfer_ns[:, episode.column])


def _share(own_ns: np.ndarray, transfer_ns: np.ndarray) -> float:
    own, both = float(own_ns.sum()), float(own_ns.sum() + transfer_ns.sum())
    return own / both if both else 0.0


def _is_felt(used: StragglerMeasures, episode: Episode) -> bool:
    """True unless the steps before the delay began were hardly shorter.

    A machine whose load changes can hide that; then the rank must stand out from all others. So
    must one whose delay was over again: noise has some such stretch in every run.
    """
    if episode.recurrence is not Recurrence.SINCE or _stands_out(used, episode):
        return True
    if episode.last < len(used.steps):
        return False
    before_ns, after_ns = _before_and_after_ns(used, episode)
    return after_ns - before_ns >= FELT_RATIO * episode.cost_ns


def _stands_out(used: StragglerMeasures, episode: Episode) -> bool:
    """True when the rank's usual cost is far beyond the bad steps of every other rank."""
    excess_ns = excess_over_typical(used.step_cost_ns)[episode.first : episode.last]
    bad_ns = np.quantile(np.delete(excess_ns, episode.column, axis=1), BAD_QUANTILE, axis=0)
    own_ns = float(np.median(excess_ns[:, episode.column]))
    return own_ns >= STANDOUT_FACTOR * float(bad_ns.max(initial=0.0))


def _before_and_after_ns(used: StragglerMeasures, main: Episode) -> tuple[float, float]:
    """Step time without and with the delay; where it always acts, without is with minus cost."""
    times_ns = step_times_ns(used)
    inside = np.zeros(len(times_ns), bool)
    inside[main.first : main.last] = True
    if main.recurrence is Recurrence.INTERMITTENT:
        inside &= used.step_cost_ns[:, main.column] >= main.cost_ns / 2
    after_ns = float(np.median(times_ns[inside]))
    before = times_ns[~inside]
    if main.recurrence is Recurrence.ALWAYS or not len(before):
        return after_ns - main.cost_ns, after_ns
    return float(np.median(before)), after_ns


def _numbers(
    used: StragglerMeasures, main: Episode, before_ns: float, after_ns: float
) -> dict[str, float]:
    window = slice(main.first, main.last)
    index = used.index_pct[window].mean(axis=0)
    return {
        "step_cost_ns": main.cost_ns,
        "step_cost_ratio": main.cost_ns / after_ns if after_ns else 0.0,
        "step_before_ns": before_ns,
        "step_after_ns": after_ns,
        "explained_ratio": explained_ratio(used, main),
        "n_hit_steps": float(main.n_hit),
        "hit_ratio": main.hit_ratio,
        "straggler_index_pct": float(index[main.column]),
        "largest_index_pct": float(index.max()),
        "own_delay_ns": float(np.median(used.own_delay_ns[window, main.column])),
    }


def _confidence(main: Episode, needed_ns: float) -> Confidence:
    if main.recurrence is Recurrence.INTERMITTENT:
        return Confidence.LOW
    is_long = main.n_steps >= MIN_STEPS and main.hit_ratio >= 0.9
    return Confidence.HIGH if is_long and main.cost_ns >= 2 * needed_ns else Confidence.MEDIUM


def _actions(used: StragglerMeasures, columns: list[int]) -> list[Message]:
    actions = [
        message(codes.PROFILE_RANK, rank=int(used.global_ranks[column])) for column in columns
    ]
    hosts = {used.hosts[column] for column in columns} - {""}
    if len(hosts) == 1 and len(set(used.hosts)) > 1:
        actions.append(message(codes.COMPARE_HOST, host=hosts.pop()))
    return actions


def _nobody(
    used: StragglerMeasures, coverage: Coverage, needed_ns: np.ndarray, step_ns: float
) -> Verdict:
    """Healthy, unless large delays wander from rank to rank."""
    cost_ns = used.step_cost_ns
    large = cost_ns > INTERMITTENT_COST_RATIO * step_ns
    n_steps = len(used.steps)
    n_hit = int(large.any(axis=1).sum())
    wandering = np.flatnonzero(large.sum(axis=0) >= 2)
    if n_hit >= ROTATING_RATIO * n_steps and len(wandering) > 1:
        ranks = [int(used.global_ranks[column]) for column in wandering]
        said = message(codes.RECURS_ROTATING, ranks=ranks, n_hit=n_hit, n_steps=n_steps)
        doubt = message(codes.MISSING_AGREEMENT, ranks=ranks)
        return _silent(Cause.NO_VERDICT, coverage, said=said, missing=[doubt])
    said = message(
        codes.NOTHING_PERSISTS, cost_ns=round(float(np.median(cost_ns, axis=0).max())),
        needed_ns=round(float(needed_ns.min())), n_steps=n_steps,
    )  # fmt: skip
    if (common := _common_slowdown(used)) is not None:
        return _silent(Cause.NO_VERDICT, coverage, said=said, missing=[common])
    alone = alone_in_stage(used)
    missing = [message(codes.MISSING_REPLICAS, ranks=alone)] if alone else []
    verdict = _silent(Cause.HEALTHY, coverage, said=said, missing=missing)
    # what the noise would hide is not known to be absent
    is_blind = float(np.median(needed_ns)) > BLIND_RATIO * step_ns
    return replace(verdict, confidence=Confidence.LOW) if is_blind else verdict


def _common_slowdown(used: StragglerMeasures) -> Message | None:
    """What to say when the steps became longer for good although no rank stands out."""
    times_ns = step_times_ns(used)
    shift = find_shift(times_ns)
    if shift is None or shift.after < (1 + COMMON_RATIO) * shift.before:
        return None
    return message(
        codes.MISSING_COMMON_CAUSE, step=int(used.steps[shift.onset]),
        before_ns=round(shift.before), after_ns=round(shift.after),
    )  # fmt: skip


def _silent(
    cause: Cause, coverage: Coverage, *, said: Message | None = None, missing: list[Message]
) -> Verdict:
    """A verdict that names nobody."""
    steps_needed = MIN_STEPS if any(m.code == codes.MISSING_STEPS for m in missing) else 0
    return Verdict(
        rule=RULE,
        cause=cause,
        confidence=Confidence.HIGH if cause is Cause.HEALTHY else Confidence.NONE,
        coverage=coverage,
        evidence=() if said is None else (Evidence(kind="measure", message=said),),
        missing=tuple(missing),
        next_actions=(message(codes.RECORD_LONGER, needed=steps_needed),) if steps_needed else (),
    )
