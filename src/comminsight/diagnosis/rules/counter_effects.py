"""Errors that a port counts, and whether they slowed the job."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.counter_effect import CounterEffect, Effect, counter_effect
from comminsight.analysis.counter_rise import increments
from comminsight.analysis.log_ranks import short_host
from comminsight.analysis.placement import ranks_at
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.diagnosis.link_evidence import map_missing
from comminsight.diagnosis.rules.roce_loss import LOSS_COUNTERS
from comminsight.model.counters import CounterSeries
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Message, Verdict

RULE = "counter_effects"
# errors of a port: what grows with mere traffic (bytes, packets, marks, pauses) is none
ERROR_COUNTERS = LOSS_COUNTERS | {
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "local_ack_timeout_err", "rnr_nak_retry_err", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "replay_errors", "recovery_errors", "crc_flit_errors",
    "crc_data_errors",
}  # fmt: skip
SIGNIFICANT_RATIO = 0.05  # of the step time


def counter_effects_rule(job: JobEvidence) -> Iterator[Claim]:
    """SLOW_LINK at the port whose errors came with longer steps of the ranks that send by it; of
    the others what is known: present without an effect, or not to be told."""
    for series in job.counters:
        if series.counter in ERROR_COUNTERS and increments(series.values).sum() > 0:
            yield Claim(_judged(job, series))


def _judged(job: JobEvidence, series: CounterSeries) -> Verdict:
    place = {
        "host": short_host(series.host), "device": series.device, "counter": series.counter,
    }  # fmt: skip
    users = ranks_at(job.links, series.host, series.device)
    steps = [one for one in job.step_times if one.global_rank in users]
    found = counter_effect(series, steps)
    if not users and job.step_times:
        found = CounterEffect(Effect.UNKNOWN, reason="effect.no_link_map")
    if found.effect is Effect.UNKNOWN:
        return abstained(
            job, RULE, (), [message(codes.MISSING_EFFECT, reason=found.reason, **place)]
        )
    if found.effect is Effect.SLOWED and found.ratio >= SIGNIFICANT_RATIO:
        return job_verdict(job, _slowed(series, users, found, place, map_missing(job, series.host)))
    said = told(codes.EFFECT_NONE, n_steps=found.n_risen, **place)
    return abstained(job, RULE, [said] if found.effect is not Effect.ABSENT else ())


def _slowed(
    series: CounterSeries,
    users: tuple[int, ...],
    found: CounterEffect,
    place: dict[str, str],
    missing: list[Message],
) -> JobFinding:
    said = told(
        codes.EFFECT_SLOWED, ratio=found.ratio, first_step=found.first_step,
        last_step=found.last_step, host=place["host"], device=place["device"],
        counter=place["counter"],
    )  # fmt: skip
    return JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.MEDIUM,
        culprits=users,
        place=Place(node=place["host"], port=f"{place['host']}/{series.device}"),
        evidence=(said,),
        missing=tuple(missing),
        next_actions=(message(codes.CHECK_PORT, host=place["host"], device=series.device),),
        measures={"slowdown_ratio": found.ratio, "p_value": found.p_value},
        steps=(found.first_step, found.last_step),
    )
