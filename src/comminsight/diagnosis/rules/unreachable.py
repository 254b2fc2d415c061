"""A path that gave no answer: at its first use it never worked, later it was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.analysis.host_events import (
    gid_changes,
    has_kernel_log,
    host_events,
    killed_ranks,
)
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.analysis.placement import hosts_of_ranks, ranks_at, ranks_on
from comminsight.analysis.transport_errors import (
    TransportError,
    peers_of,
    reporters,
    transport_errors,
)
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.gid_evidence import Reason, gid_reason
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict, told
from comminsight.diagnosis.link_evidence import CONSEQUENCES
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "unreachable"
FIRST_USE_NS = 120_000_000_000  # with all retries of the transport, some 35 s each
LATE_NS = 600_000_000_000


def unreachable_rule(job: JobEvidence) -> Iterator[Claim]:
    """PEER_UNREACHABLE where NCCL says that transfers got no answer. Where the kernel killed a rank
    its peers get none either: then nothing is said of the path."""
    ranks = ranks_of(job.logs, job.world_size)
    errors = transport_errors(job.logs, ranks)
    if not errors or killed_ranks(job.logs, ranks):
        return
    reason = gid_reason(job, errors) or _stalled_host(job, errors)
    culprits = _at_fault(job, ranks, errors, reason) if reason is not None else ()
    reporting = reporters(errors)
    found = JobFinding(
        rule=RULE,
        cause=Cause.PEER_UNREACHABLE,
        confidence=_confidence(reason, errors),
        culprits=culprits,
        victims=tuple(sorted(set(reporting) - set(culprits))),
        place=_place(reason),
        evidence=(_when(errors), *(reason.evidence if reason is not None else ())),
        missing=tuple(_missing(job, errors, reason)),
        next_actions=reason.next_actions if reason is not None else (),
        measures=_measures(errors),
    )
    yield Claim(
        job_verdict(job, found),
        began=errors[0].event.time,
        explains=CONSEQUENCES - {Cause.PEER_UNREACHABLE},
        explains_ranks=frozenset(reporting),
    )


def _at_fault(
    job: JobEvidence, ranks: LogRanks, errors: Sequence[TransportError], reason: Reason
) -> tuple[int, ...]:
    """The ranks at the end at fault: those that send by its port, else those of its host that tell
    an error, else all of its host."""
    users = [r for host in reason.hosts for r in ranks_at(job.links, host, reason.device)]
    telling = reporters([error for error in errors if error.host in reason.hosts])
    own = ranks_on(reason.hosts, hosts_of_ranks(job, ranks))
    return tuple(sorted(users)) or telling or own


def is_first_use(errors: Sequence[TransportError]) -> bool | None:
    """True where the path never worked, False where it had, None where nothing tells it."""
    if all(error.is_setup for error in errors):
        return True
    ages = [error.age_ns for error in errors if error.age_ns is not None and not error.is_setup]
    if not ages:
        return None
    if min(ages) <= FIRST_USE_NS:
        return True
    return False if min(ages) >= LATE_NS else None


def _when(errors: Sequence[TransportError]) -> Evidence:
    is_first = is_first_use(errors)
    ages = [error.age_ns for error in errors if error.age_ns is not None]
    first, ranks, peers = errors[0].event, reporters(errors), peers_of(errors) or ""
    if is_first is None or not ages:
        return told(codes.UNANSWERED, kind="log", text=first.text, ranks=ranks, peers=peers)
    code = codes.AT_FIRST_USE if is_first else codes.LATE_ERROR
    return told(code, kind="log", text=first.text, ranks=ranks, peers=peers, age_ns=min(ages))


def _stalled_host(job: JobEvidence, errors: Sequence[TransportError]) -> Reason | None:
    """Something on the host of an end before: a hint, no proof."""
    hosts, first = {error.host for error in errors} - {""}, errors[0].event
    found = [*gid_changes(job.logs, first, hosts), *host_events(job.logs, first, hosts)]
    said = tuple(
        told(
            codes.HOST_EVENT, kind="log", text=one.event.text, host=one.host,
            event=one.name, delay_ns=one.delay_ns,
        )
        for one in found
    )  # fmt: skip
    return Reason(said, confidence=Confidence.LOW) if said else None


def _confidence(reason: Reason | None, errors: Sequence[TransportError]) -> Confidence:
    if reason is not None:
        return reason.confidence
    return Confidence.MEDIUM if is_first_use(errors) else Confidence.LOW


def _missing(
    job: JobEvidence, errors: Sequence[TransportError], reason: Reason | None
) -> Iterator[Message]:
    hosts = sorted({error.host for error in errors} - {""})
    if is_first_use(errors) is None:
        yield message(codes.MISSING_FIRST_USE, ranks=reporters(errors))
    if not job.hosts.gids:
        yield message(codes.MISSING_GID_TABLE)
    if reason is None:
        yield message(codes.MISSING_PEER_END, peers=peers_of(errors) or "")
    if reason is None and not has_kernel_log(job.logs, hosts):
        yield message(codes.MISSING_HOST_LOG, hosts=hosts)


def _place(reason: Reason | None) -> Place:
    if reason is None or len(reason.hosts) != 1:
        return Place()
    host = next(iter(reason.hosts))
    return Place(node=host, port=f"{host}/{reason.device}" if reason.device else "")


def _measures(errors: Sequence[TransportError]) -> dict[str, float]:
    ages = [error.age_ns for error in errors if error.age_ns is not None]
    return {"since_start_ns": float(min(ages))} if ages else {}
