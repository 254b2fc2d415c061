"""A mismatch that the transport tells although all ranks made the same calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.link_verdict import abstained, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Evidence

RULE = "calls_agree"
COMPARED = ("op", "op_count", "count", "datatype", "red_op", "root")
BETWEEN_TWO = frozenset({"Send", "Recv"})
Calls = dict[int, list[tuple[object, ...]]]


def calls_agree_rule(job: JobEvidence) -> Iterator[Claim]:
    """No accusation of the program: its calls were compared and are equal. What remains is the
    transport, of which the lines tell no more."""
    ranks = ranks_of(job.logs, job.world_size)
    calls: Calls = defaultdict(list)
    told_by: list[tuple[int, LogEvent]] = []
    for log in job.logs:
        for event in log.events:
            rank = ranks.rank_of(log, event)
            if event.code is LogCode.NCCL_COLL and event.values.get("op") not in BETWEEN_TWO:
                calls[rank].append(tuple(event.values.get(name) for name in COMPARED))
            elif event.code is LogCode.NCCL_SIZE_MISMATCH:
                told_by.append((rank, event))
    if told_by and _are_equal(calls, max(job.world_size, ranks.world_size)):
        n_calls = len(next(iter(calls.values())))
        said = told(codes.CALLS_AGREE, kind="log", n_ranks=len(calls), n_calls=n_calls)
        actions = [message(codes.TRY_OTHER_NETWORK)]
        yield Claim(abstained(job, RULE, [said, _mismatch(told_by)], (), actions))


def _are_equal(calls: Calls, world_size: int) -> bool:
    """True where the calls of all ranks of the job are at hand, and the same on each."""
    if -1 in calls or len(calls) < 2 or len(calls) < world_size:
        return False
    first = next(iter(calls.values()))
    return all(one == first for one in calls.values())


def _mismatch(told_by: list[tuple[int, LogEvent]]) -> Evidence:
    event = told_by[0][1]
    values = event.values
    return told(
        codes.SIZES_DISAGREE, kind="log", text=event.text,
        ranks=sorted({rank for rank, _ in told_by} - {-1}),
        local_bytes=int(str(values.get("local_size_bytes", values.get("expected_bytes", 0)))),
        remote_bytes=int(str(values.get("remote_size_bytes", values.get("received_bytes", 0)))),
    )  # fmt: skip
