"""Pauses of the host that wander from rank to rank: each late once in a while, nobody for good.

Told apart from noise by its shape: lengths lie in one tight band and almost nothing lies between
them and the usual; told apart from a straggler since no rank has more than its share by chance; and
from what slows all at once since one rank pauses at a time. A garbage collector that each process
starts when its own counters say so looks like this (article of the field: training at 512 GPUs).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from comminsight.diagnosis import codes_speed
from comminsight.diagnosis.basis import step_times_ns
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.recurrence import excess_over_typical
from comminsight.model.measures import StragglerMeasures
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

MIN_PAUSES = 8
MIN_RANKS = 3
MIN_LENGTH_RATIO = 0.08  # of the step
MIN_COST_RATIO = 0.03  # of the whole time: less is noise that every machine has
BAND = (0.75, 1.3)  # times the typical length
MIN_BAND_RATIO = 0.85  # of the paused time, by pauses within the band
MIN_ALONE_RATIO = 0.75  # of the steps with a pause, in which one rank alone pauses
NOISE_QUANTILE, NOISE_FACTOR = 0.9, 2.5
OWN_SHARE = 0.6
SHARE_FALSE_ALARM_RATE = 1e-3  # over all ranks, of one having more than its share by chance


@dataclass(frozen=True, slots=True)
class Pauses:
    """Delays of their own, at least ``MIN_LENGTH_RATIO`` of a step long: ``is_pause (n_steps,
    n_ranks)``. ``is_tight``: they are of one length, apart from what costs little."""

    is_pause: np.ndarray
    length_ns: float
    spread_ns: float
    is_tight: bool

    @property
    def n_pauses(self) -> int:
        """All of them."""
        return int(self.is_pause.sum())


def find_pauses(used: StragglerMeasures) -> Pauses | None:
    """The pauses of a run of complete steps; None where they cost little or are few, where one rank
    has most of them, or where several ranks pause at once."""
    own_ns = excess_over_typical(used.own_delay_ns)
    times_ns = step_times_ns(used)
    # of one rank at a time: the next most late rank of each step says what noise is
    second_ns = np.sort(own_ns, axis=1)[:, -2] if own_ns.shape[1] > 1 else own_ns[:, 0]
    noise_ns = float(np.quantile(second_ns, NOISE_QUANTILE))
    least_ns = max(MIN_LENGTH_RATIO * float(np.median(times_ns)), NOISE_FACTOR * noise_ns)
    is_own = used.own_delay_ns >= OWN_SHARE * (used.own_delay_ns + used.transfer_delay_ns)
    is_pause = is_own & (own_ns >= least_ns) & (used.step_cost_ns > 0)
    if own_ns[is_pause].sum() < MIN_COST_RATIO * times_ns.sum():
        return None
    typical_ns = _half_of_the_time(own_ns[is_pause])
    is_alike = is_pause & (own_ns >= BAND[0] * typical_ns) & (own_ns <= BAND[1] * typical_ns)
    is_tight = own_ns[is_alike].sum() >= MIN_BAND_RATIO * own_ns[is_pause].sum()
    is_pause = is_alike if is_tight else is_pause
    if not _is_wandering(is_pause):
        return None
    low_ns, length_ns, high_ns = np.quantile(own_ns[is_pause], (0.1, 0.5, 0.9))
    return Pauses(is_pause, float(length_ns), float(high_ns - low_ns), bool(is_tight))


def _half_of_the_time(lengths_ns: np.ndarray) -> float:
    """The length up to which the shorter pauses make up half of all paused time."""
    ordered = np.sort(lengths_ns)
    return float(ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)])


def _is_wandering(is_pause: np.ndarray) -> bool:
    of_rank, of_step = is_pause.sum(axis=0), is_pause.sum(axis=1)
    n_pauses = int(of_rank.sum())
    if n_pauses < MIN_PAUSES or int((of_rank > 0).sum()) < MIN_RANKS:
        return False
    if int((of_step == 1).sum()) < MIN_ALONE_RATIO * int((of_step > 0).sum()):
        return False
    n_ranks = len(of_rank)
    chance = binomial_tail(int(of_rank.max()), n_pauses, 1 / n_ranks) * n_ranks
    return chance > SHARE_FALSE_ALARM_RATE


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(at least ``k`` of ``n`` independent trials succeed), each with probability ``p``."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def judge_pauses(verdict: Verdict, used: StragglerMeasures, pauses: Pauses) -> Verdict:
    """HOST_PAUSE where the pauses are of one length; else what is known of them, without a cause.

    Nobody is named: it happens to every rank.
    """
    rows = np.flatnonzero(pauses.is_pause.any(axis=1))
    times_ns = step_times_ns(used)
    cost_ns = np.where(pauses.is_pause, used.step_cost_ns, 0).max(axis=1)
    said = Evidence(kind="measure", message=_pauses_message(used, pauses))
    if not pauses.is_tight:
        return replace(
            verdict,
            cause=Cause.NO_VERDICT,
            confidence=Confidence.NONE,
            evidence=(said,),
            missing=(*verdict.missing, *_undecided(used, pauses)),
            next_actions=(message(codes_speed.RECORD_INPUT),),
        )
    return replace(
        verdict,
        cause=Cause.HOST_PAUSE,
        confidence=Confidence.MEDIUM,
        first_step=int(used.steps[rows[0]]),
        last_step=int(used.steps[rows[-1]]),
        measures={
            "step_cost_ns": float(cost_ns[rows].mean()),
            "step_cost_ratio": float(cost_ns.sum() / times_ns.sum()),
            "n_hit_steps": float(len(rows)),
            "hit_ratio": len(rows) / len(times_ns),
        },
        evidence=(said,),
        missing=(message(codes_speed.MISSING_HOST_STACKS),),
        next_actions=(message(codes_speed.CHECK_COLLECTOR),),
    )


def _pauses_message(used: StragglerMeasures, pauses: Pauses) -> Message:
    return message(
        codes_speed.PAUSES, n_pauses=pauses.n_pauses,
        n_ranks=int(pauses.is_pause.any(axis=0).sum()), n_steps=len(used.steps),
        length_ns=round(pauses.length_ns), spread_ns=round(pauses.spread_ns),
    )  # fmt: skip


def _undecided(used: StragglerMeasures, pauses: Pauses) -> Iterator[Message]:
    ranks = used.global_ranks[pauses.is_pause.any(axis=0)]
    yield message(codes_speed.MISSING_INPUT_WAITS, ranks=sorted(map(int, ranks)))
