"""Memory for RDMA that was not registered, and queues that the card did not give."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_limits import (
    LOCKED,
    UNLIMITED,
    LimitLine,
    PlacedLine,
    limits,
    lines_of,
    named,
)
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "rdma_memory"
CONSEQUENCES = frozenset({Cause.RANK_DEAD, Cause.INIT_STUCK, Cause.PEER_UNREACHABLE})
LOW_BYTES = 1 << 30  # NCCL registers some megabytes for each connection and channel
NO_MEMORY = "cannot allocate memory"
QUEUES = ("ibv_create_cq", "ibv_create_qp")
REGISTRATIONS = ("ibv_reg_mr", "ibv_reg_dmabuf_mr")


def rdma_memory_rule(job: JobEvidence) -> Iterator[Claim]:
    """MEMLOCK_LOW where the limit of the process is low, QP_CQ_EXHAUSTED where a queue was not
    made though it is not; without the limit, nothing is said of either."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    failed = [one for one in lines_of(job.logs, ranks, [LogCode.NCCL_IB_CALL]) if _is_memory(one)]
    if not failed:
        return
    told = limits(job.logs, LOCKED)
    evidence = (*_calls(failed), *_limit(told))
    if not told:
        missing = (message(logs.MISSING_RESOURCE_LIMIT, limit=LOCKED),)
        yield Claim(abstained(job, RULE, evidence, missing, (message(logs.RAISE_MEMLOCK),)))
        return
    is_low = told[0].value < LOW_BYTES
    is_queue = any(_call(one).startswith(QUEUES) for one in failed)
    if is_low:
        cause, action = Cause.MEMLOCK_LOW, message(logs.RAISE_MEMLOCK)
    elif is_queue:
        cause, action = Cause.QP_CQ_EXHAUSTED, message(logs.FEWER_CONNECTIONS)
    else:
        yield Claim(abstained(job, RULE, evidence))
        return
    yield Claim(
        job_verdict(job, _finding(failed, cause, evidence, action)),
        failed[0].event.time, CONSEQUENCES,
    )  # fmt: skip


def _finding(
    failed: list[PlacedLine], cause: Cause, evidence: tuple[Evidence, ...], action: Message
) -> JobFinding:
    hosts = sorted({one.host for one in failed} - {""})
    return JobFinding(
        rule=RULE, cause=cause, confidence=Confidence.MEDIUM, culprits=named(failed),
        place=Place(node=", ".join(hosts)), evidence=evidence, next_actions=(action,),
    )  # fmt: skip


def _call(one: PlacedLine) -> str:
    return str(one.event.values.get("call", ""))


def _is_memory(one: PlacedLine) -> bool:
    is_call = _call(one).startswith((*QUEUES, *REGISTRATIONS))
    return is_call and NO_MEMORY in str(one.event.values.get("error", "")).lower()


def _calls(failed: list[PlacedLine]) -> Iterator[Evidence]:
    for call in sorted({_call(one) for one in failed}):
        own = [one for one in failed if _call(one) == call]
        said = message(
            logs.CALL_FAILED, ranks=list(named(own)), call=call,
            error=str(own[0].event.values.get("error", "")),
        )  # fmt: skip
        yield Evidence(kind="log", message=said, text=own[0].event.text)


def _limit(told: list[LimitLine]) -> Iterator[Evidence]:
    for one in told[:1]:
        value = "unlimited" if one.value == UNLIMITED else f"{one.value // 1024} KiB"
        said = message(logs.LIMIT_VALUE, limit=one.name, value=value, source=one.event.file)
        yield Evidence(kind="log", message=said, text=one.event.text)
