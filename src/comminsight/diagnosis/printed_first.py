"""Which group's watchdog gave up first, where waiting begins in another one.

The group with the shortest limit prints first, not the one at which the others wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.claim import is_certainly_before
from comminsight.diagnosis.codes import message
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Evidence, Verdict

PRINTED_BY = frozenset({LogCode.TORCH_FIRST_SIGNAL, LogCode.TORCH_PROGRESS})


def with_printed_first(verdict: Verdict, job: JobEvidence) -> Verdict:
    """With the group that printed first, where it is known and another than the verdict's."""
    origin = next((one for one in job.communicators if one.comm_id == verdict.comm_id), None)
    if origin is None or not verdict.culprits:
        return verdict
    printed = [(event, log) for log in job.logs for event in _printed(log)]
    own = [event for event, _ in printed if _is_of(event, origin)]
    first = next(
        (
            (event, log)
            for event, log in printed
            if not _is_of(event, origin)
            and any(_is_of(event, one) for one in job.communicators)
            and all(is_certainly_before(event.time, other.time) for other in own)
        ),
        None,
    )
    if first is None:
        return verdict
    event, log = first
    said = message(
        codes.PRINTED_FIRST, printed=str(event.values["pg"]), comm=origin.label,
        timeout_ms=_limit_ms(log),
    )  # fmt: skip
    evidence = Evidence(kind="log", message=said, text=event.text)
    return replace(verdict, evidence=(*verdict.evidence, evidence))


def _printed(log: JobLog) -> Iterator[LogEvent]:
    return (event for event in log.events if event.code in PRINTED_BY and event.values.get("pg"))


def _is_of(event: LogEvent, communicator: Communicator) -> bool:
    """The label in a line is the description of the group, its guid the name."""
    guid = event.values.get("pg_guid")
    if guid and communicator.name:
        return guid == communicator.name
    return event.values["pg"] == communicator.desc


def _limit_ms(log: JobLog) -> int:
    found = (
        event.values.get("timeout_ms", 0)
        for event in log.events
        if event.code is LogCode.TORCH_WATCHDOG_TIMEOUT
    )
    value = next(found, 0)
    return value if isinstance(value, int) else 0
