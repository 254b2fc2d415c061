"""A port that went down while the job used the network, and the transfers that failed after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import lines_in_order
from comminsight.analysis.log_order import apart_at_least_ns
from comminsight.analysis.log_ranks import LogRanks, ranks_of, short_host
from comminsight.analysis.placement import is_used, is_whole_at, ranks_at
from comminsight.analysis.port_events import PortLoss, port_losses
from comminsight.analysis.transport_errors import NO_ANSWERS, hosts_by_address, is_no_answer
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.diagnosis.link_evidence import CONSEQUENCES, map_missing
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "link_flap"
WITHIN_NS = 120_000_000_000  # all retries of a transfer, some 35 s each, and what follows
FAILURES = frozenset(
    {LogCode.TORCH_NCCL_ERROR, LogCode.TORCH_ASYNC_ERROR, LogCode.NCCL_PROXY_FAILED}
)
REMOTE_WORDS = ("remote", "unhandled system", "ncclsystemerror", "ncclremoteerror")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed transfer as a rank tells it, with the hosts of both ends as far as they are known;
    ``device`` is "" where the line names none."""

    rank: int
    hosts: frozenset[str]
    device: str
    event: LogEvent


def link_flap_rule(job: JobEvidence) -> Iterator[Claim]:
    """LINK_FLAP of each port after whose loss transfers of its host failed; what was seen of the
    others."""
    losses = port_losses(job.logs, job.hosts.interfaces)
    failures = list(_failures(job, ranks_of(job.logs, job.world_size))) if losses else []
    for loss in losses:
        after = [one for one in failures if _is_after(loss, one)]
        if after and _may_be_ours(job, loss, after):
            yield _claim(job, loss, after)
        else:
            missing = message(codes.MISSING_LINK_EFFECT, host=loss.host, device=loss.device)
            yield Claim(abstained(job, RULE, _seen(loss), [missing]))


def _may_be_ours(job: JobEvidence, loss: PortLoss, after: Sequence[Failure]) -> bool:
    """True for a port that the job used: by the map, by the line of a failure, or, where no whole
    map denies it, one that NCCL itself opened. The kernel tells of management ports too."""
    if is_whole_at(job.links, loss.host) or ranks_at(job.links, loss.host, loss.device):
        return is_used(job.links, loss.host, loss.device)
    is_named = any(_is_named(loss, one) for one in after)
    return is_named or any(event.code is LogCode.NCCL_IB_EVENT for event in loss.down)


def _is_named(loss: PortLoss, failure: Failure) -> bool:
    return failure.device == loss.device and loss.host in failure.hosts


def _failures(job: JobEvidence, ranks: LogRanks) -> Iterator[Failure]:
    by_address = hosts_by_address(job.logs)
    for log, event in lines_in_order(job.logs, NO_ANSWERS | FAILURES):
        if is_no_answer(event) or (event.code in FAILURES and _is_of_network(event)):
            own = {short_host(event.host or log.host)}
            peer = str(event.values.get("peer", ""))
            ends = own | by_address.get(peer, {short_host(peer)})
            device = str(event.values.get("device", ""))
            yield Failure(ranks.rank_of(log, event), frozenset(ends - {""}), device, event)


def _is_of_network(event: LogEvent) -> bool:
    return any(word in event.text.lower() for word in REMOTE_WORDS)


def _is_after(loss: PortLoss, failure: Failure) -> bool:
    """True for a failure at the port's host soon after it went down, that no line puts on another
    port."""
    is_elsewhere = failure.device not in {"", loss.device}
    is_near = loss.host in failure.hosts and not is_elsewhere
    return is_near and _delay_ns(loss, failure) is not None


def _delay_ns(loss: PortLoss, failure: Failure) -> int | None:
    """From the last loss before the failure; None where there is none near enough."""
    gaps = [
        gap
        for down in loss.down
        if (gap := apart_at_least_ns(down, failure.event)) is not None and 0 <= gap <= WITHIN_NS
    ]
    return min(gaps, default=None)


def _claim(job: JobEvidence, loss: PortLoss, after: Sequence[Failure]) -> Claim:
    delays = [delay for one in after if (delay := _delay_ns(loss, one)) is not None]
    first = min(after, key=lambda one: _delay_ns(loss, one) or 0)
    reporting = tuple(sorted({one.rank for one in after} - {-1}))
    users = ranks_at(job.links, loss.host, loss.device)
    is_named = any(_is_named(loss, one) for one in after)
    failed = told(
        codes.FAILED_AFTER, kind="log", text=first.event.text, ranks=reporting,
        delay_ns=min(delays),
    )  # fmt: skip
    found = JobFinding(
        rule=RULE,
        cause=Cause.LINK_FLAP,
        confidence=Confidence.HIGH if is_named else Confidence.MEDIUM,
        culprits=users,
        victims=tuple(sorted(set(reporting) - set(users))),
        place=Place(node=loss.host, port=f"{loss.host}/{loss.device}"),
        evidence=(*_seen(loss), failed),
        missing=tuple(map_missing(job, loss.host)),
        next_actions=(message(codes.CHECK_PORT, host=loss.host, device=loss.device),),
    )
    return Claim(
        job_verdict(job, found),
        began=loss.down[0].time,
        explains=CONSEQUENCES,
        explains_ranks=frozenset(reporting),
    )


def _seen(loss: PortLoss) -> list[Evidence]:
    said = [
        told(
            codes.PORT_DOWN, kind="log", text=loss.down[0].text, host=loss.host,
            device=loss.device,
        )
    ]  # fmt: skip
    if (back_ns := loss.back_after_ns) is not None:
        said.append(
            told(codes.PORT_BACK, kind="log", host=loss.host, device=loss.device, after_ns=back_ns)
        )
    return said
