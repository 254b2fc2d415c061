"""What NCCL's RAS says of a job that left nothing else: who is behind, and what that proves.

RAS counts launches at one moment. That some are behind is no hang before a second answer counts the
same, or a log says that the job hung; and that most are behind a few is no fault of the many: then
either side may be the one that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import has_any
from comminsight.analysis.ras_sides import RasSides, still_sides
from comminsight.diagnosis import codes, codes_groups
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.ras import RasReading
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, OpRef, Verdict

RULE = "ras"
MINORITY_RATIO = 0.25  # of a communicator: more ranks than that are no exception
HANG_CODES = frozenset(
    {
        LogCode.TORCH_WATCHDOG_TIMEOUT, LogCode.TORCH_FIRST_SIGNAL, LogCode.TORCH_DESYNC_TIMEOUT,
        LogCode.GLOO_TIMEOUT,
    }
)  # fmt: skip


def ras_rule(job: JobEvidence) -> Iterator[Claim]:
    """RANK_NOT_ENTERED for few ranks that stay behind in a communicator of all ranks; no verdict,
    with both sides listed, for all else that differs. Where dumps or records tell the state of the
    ranks, RAS is evidence beside them and no rule of its own."""
    if job.hang is not None or not job.ras:
        return
    is_hung = has_any(job.logs, HANG_CODES)
    found = list(still_sides(job.ras))
    for sides, reading, same in found:
        if (same or is_hung) and (ranks := _late(job, sides)):
            yield Claim(_behind(job, sides, reading, same, ranks))
            return
    if found:
        yield Claim(_open(job, found, is_hung=is_hung))


def _late(job: JobEvidence, sides: RasSides) -> tuple[int, ...]:
    """The global ranks that are behind, where all of them are known and few; () otherwise."""
    sizes = [
        one.comm_size for reading in job.ras for one in reading.answer.communicators
    ]  # fmt: skip
    is_world = 0 < sides.comm_size == (job.world_size or max(sizes, default=0))
    is_whole = len(sides.behind) == sides.n_behind
    is_whole = is_whole and sides.n_behind + sides.n_ahead == sides.comm_size
    is_few = sides.n_behind <= max(1, MINORITY_RATIO * sides.comm_size)
    is_few = is_few and 2 * sides.n_behind < sides.comm_size
    return sides.behind if is_world and is_whole and is_few else ()


def _behind(
    job: JobEvidence, sides: RasSides, reading: RasReading, same: str, ranks: tuple[int, ...]
) -> Verdict:
    evidence = [_sides_evidence(sides)]
    if same:
        said = message(
            codes_groups.RAS_STILL, source=reading.source, other=same, comm=_label(sides)
        )
        evidence.append(Evidence(kind="ras", message=said))
    return Verdict(
        rule=RULE,
        cause=Cause.RANK_NOT_ENTERED,
        confidence=Confidence.MEDIUM if same else Confidence.LOW,
        coverage=job_coverage(job),
        culprits=ranks,
        victims=tuple(rank for rank in sides.ahead if rank not in ranks),
        first_bad_op=OpRef(
            comm_id=-1, comm_label=_label(sides), op=op_name(sides.op),
            match_seq=sides.n_launched + 1,
        ),
        evidence=tuple(evidence),
        missing=tuple(_missing(reading, is_open=not same)),
        next_actions=tuple(
            message(codes.TAKE_STACK, rank=rank, pid=pid, host=host)
            for rank, pid, host in _processes(reading, sides)
        ),
    )  # fmt: skip


def _processes(reading: RasReading, sides: RasSides) -> Iterator[tuple[int, int, str]]:
    for communicator in reading.answer.communicators:
        if (communicator.comm_hash, communicator.second_hash) == sides.place[:2]:
            for rank in communicator.ranks:
                if rank.comm_rank in sides.behind and rank.process.pid > 0:
                    yield rank.comm_rank, rank.process.pid, rank.process.host


def _open(
    job: JobEvidence, found: list[tuple[RasSides, RasReading, str]], *, is_hung: bool
) -> Verdict:
    missing: dict[str, Message] = {}
    for sides, reading, same in found:
        side = message(
            codes_groups.MISSING_SIDE_STATE, behind=list(sides.behind), ahead=list(sides.ahead)
        )
        missing[f"{sides.place}"] = side
        for one in _missing(reading, is_open=not same and not is_hung):
            missing[f"{reading.source} {one.code}"] = one
    return Verdict(
        rule=RULE,
        cause=Cause.NO_VERDICT,
        confidence=Confidence.NONE,
        coverage=job_coverage(job),
        evidence=tuple(_sides_evidence(sides) for sides, _, _ in found),
        missing=tuple(missing.values()),
        next_actions=(message(codes_groups.ASK_RAS_AGAIN), message(codes.COLLECT_EVIDENCE)),
    )


def _sides_evidence(sides: RasSides) -> Evidence:
    said = message(
        codes_groups.RAS_BEHIND, comm=_label(sides), op=op_name(sides.op),
        behind=list(sides.behind), n_behind=sides.n_behind, launched=sides.n_launched,
        ahead=list(sides.ahead), n_ahead=sides.n_ahead, others=sides.n_launched_ahead,
    )  # fmt: skip
    return Evidence(kind="ras", message=said)


def _missing(reading: RasReading, *, is_open: bool) -> Iterator[Message]:
    if is_open:
        yield message(codes_groups.MISSING_SECOND_ANSWER, source=reading.source)
    if not reading.answer.is_whole:
        yield message(codes.MISSING_RAS_END, source=reading.source)
    if reading.answer.n_unread:
        yield message(codes.MISSING_RAS_UNREAD, source=reading.source, n=reading.answer.n_unread)


def _label(sides: RasSides) -> str:
    return f"{sides.comm_hash:016x}"
