"""gloo got more bytes than a rank awaited: two ranks are in unlike collectives of a CPU group."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_calls as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "gloo_sizes"
EXCHANGE_BYTES = 8  # an exchange of objects sends their sizes as one number first
PAYLOAD_RATIO = 1024  # beyond this the two are not one op with another shape
# the rank that notices it ends, and the others lose their connection to it
CONSEQUENCES = frozenset({Cause.RANK_DEAD, Cause.RANK_NOT_ENTERED, Cause.PEER_UNREACHABLE})


def gloo_sizes_rule(job: JobEvidence) -> Iterator[Claim]:
    """The mismatch without a culprit: the line names neither of the two ranks, and who of them is
    where it should be is not known either."""
    ranks = ranks_of(job.logs, job.world_size)
    lines = [
        (ranks.rank_of(log, event), event)
        for log, event in lines_with(job.logs, LogCode.GLOO_SIZE_MISMATCH)
        if _sizes(event)
    ]  # fmt: skip
    if not lines:
        return
    received, expected = _sizes(lines[0][1])
    verdict = job_verdict(
        job,
        JobFinding(
            RULE, _cause(received, expected), Confidence.LOW,
            victims=tuple(sorted({rank for rank, _ in lines} - {-1})),
            evidence=tuple(_evidence(lines[0][1], received, expected)),
            missing=(message(codes.MISSING_SENDER),),
            next_actions=(message(codes.LOOK_AT_HOST),),
        ),
    )  # fmt: skip
    yield Claim(verdict, explains=CONSEQUENCES)


def _sizes(event: LogEvent) -> tuple[int, ...]:
    found = (event.values.get("received_bytes"), event.values.get("expected_bytes"))
    return tuple(one for one in found if isinstance(one, int)) if None not in found else ()


def _cause(received: int, expected: int) -> Cause:
    small, large = sorted((received, expected))
    is_other_op = small <= EXCHANGE_BYTES or large >= PAYLOAD_RATIO * small
    return Cause.OP_TYPE_MISMATCH if is_other_op else Cause.SHAPE_MISMATCH


def _evidence(event: LogEvent, received: int, expected: int) -> Iterator[Evidence]:
    yield told(
        codes.GLOO_SIZES, kind="log", text=event.text, received_bytes=received,
        expected_bytes=expected, source=f"{event.file}:{event.line}",
    )  # fmt: skip
    if (small := min(received, expected)) <= EXCHANGE_BYTES:
        yield told(codes.SIZE_EXCHANGE, size_bytes=small)
