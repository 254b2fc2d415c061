"""Whether a counter that rose slowed the job: its rate per step against the time of the steps.

Steps in which the counter rose unusually (against its own past) are compared with the others. How
often chance gives as large a difference is told by shifting the steps against the counter in a
circle: that keeps the order within both series, so a slow drift of the job is no effect. With the
limit of 1 % an unrelated counter is called an effect in at most 1 of 100 tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from comminsight.analysis.counter_rise import increments
from comminsight.model.counters import CounterSeries, RankSteps

FALSE_ALARM_RATE = 0.01
MIN_STEPS = 120  # of which each shift is one draw
MIN_RISEN = 5
MAX_RISEN_RATIO = 0.5
N_DEVIATIONS = 6.0
MAD_TO_SIGMA = 1.4826


class Effect(StrEnum):
    """What a rising counter did to the job."""

    SLOWED = "slowed"
    NONE = "none"
    UNKNOWN = "unknown"
    ABSENT = "absent"  # it did not rise


@dataclass(frozen=True, slots=True)
class CounterEffect:
    """``ratio`` is by how much steps are longer while the counter rises; ``reason`` a code where
    the effect is unknown. Steps are numbers of the job, -1 where it did not rise."""

    effect: Effect
    ratio: float = 0.0
    p_value: float = 1.0
    first_step: int = -1
    last_step: int = -1
    n_risen: int = 0
    reason: str = ""


def rate_per_step(series: CounterSeries, steps: RankSteps) -> np.ndarray:
    """By how much the counter rose in each step, ``(n_steps,)``: its growth between samples is
    spread evenly. NaN for a step outside of the samples."""
    order = np.argsort(series.times_ns, kind="stable")
    times = np.asarray(series.times_ns, float)[order]
    total = np.concatenate([[0.0], np.cumsum(increments(np.asarray(series.values)[order]))])
    start, end = np.asarray(steps.start_ns, float), np.asarray(steps.end_ns, float)
    risen = np.interp(end, times, total) - np.interp(start, times, total)
    inside = (
        (start >= times[0]) & (end <= times[-1]) if len(times) > 1 else np.zeros(len(start), bool)
    )
    rates: np.ndarray = np.where(inside, risen, np.nan)
    return rates


def counter_effect(series: CounterSeries, users: Sequence[RankSteps]) -> CounterEffect:
    """The effect on the steps of the ranks that use the counter's port, of which the one with the
    longest communication (else the longest step) counts. O(n log n) in the steps."""
    if not users:
        return CounterEffect(Effect.UNKNOWN, reason="effect.no_steps")
    numbers, rates, times = _combined(series, users)
    known = ~np.isnan(rates)
    numbers, rates, times = numbers[known], rates[known], times[known]
    if len(rates) == 0 or rates.max() <= 0:
        return CounterEffect(Effect.ABSENT)
    is_risen = rates > _limit(rates)
    n_risen = int(is_risen.sum())
    if len(rates) < MIN_STEPS:
        return CounterEffect(Effect.UNKNOWN, n_risen=n_risen, reason="effect.too_few_steps")
    if not MIN_RISEN <= n_risen <= MAX_RISEN_RATIO * len(rates):
        return CounterEffect(Effect.UNKNOWN, n_risen=n_risen, reason="effect.no_contrast")
    ratio, p_value = _shifted(is_risen, times)
    where = numbers[is_risen]
    is_slowed = p_value <= FALSE_ALARM_RATE and ratio > 0
    effect = Effect.SLOWED if is_slowed else Effect.NONE
    return CounterEffect(effect, ratio, p_value, int(where[0]), int(where[-1]), n_risen)


def _combined(
    series: CounterSeries, users: Sequence[RankSteps]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(step, rate, time) of the steps that all users have: the largest of each."""
    common = sorted(set(users[0].steps).intersection(*(one.steps for one in users)))
    numbers = np.array(common, np.int64)
    rates, times = [], []
    for one in users:
        place = {step: i for i, step in enumerate(one.steps)}
        rows = np.array([place[step] for step in common], np.int64)
        rates.append(rate_per_step(series, one)[rows])
        times.append(_times(one)[rows])
    return numbers, np.max(rates, axis=0), np.max(times, axis=0)


def _times(one: RankSteps) -> np.ndarray:
    """Time in communication where it was measured, else of the whole step."""
    if len(one.communication_ns) == len(one.steps):
        return np.asarray(one.communication_ns, float)
    spans: np.ndarray = np.asarray(one.end_ns, float) - np.asarray(one.start_ns, float)
    return spans


def _limit(rates: np.ndarray) -> float:
    middle = float(np.median(rates))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(rates - middle)))
    return float(middle + N_DEVIATIONS * spread)


def _shifted(is_risen: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """By how much the risen steps are longer, and the share of shifts that give as much."""
    order = np.argsort(np.argsort(times, kind="stable"), kind="stable").astype(float)
    # rank sums of all shifts at once: a circular correlation
    spectrum = np.fft.rfft(order) * np.conj(np.fft.rfft(is_risen.astype(float)))
    sums = np.round(np.fft.irfft(spectrum, len(times)), 3)
    p_value = float((sums >= sums[0]).mean())
    usual = float(np.median(times[~is_risen]))
    ratio = float(np.median(times[is_risen])) / usual - 1.0 if usual > 0 else 0.0
    return ratio, p_value
