"""Ranks that PyTorch itself found in different collectives (debug level DETAIL)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from comminsight.analysis.log_index import lines_with
from comminsight.diagnosis import codes as hang_codes
from comminsight.diagnosis import codes_calls as codes
from comminsight.diagnosis.call_evidence import shape_difference
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "fingerprint"
# each rank that the check stops ends with its own exception, and takes the others with it
CONSEQUENCES = frozenset(
    {Cause.RANK_DEAD, Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP, Cause.ALL_PRESENT_STUCK}
)


class Print(NamedTuple):
    """What a rank was running by the check: name of the op, extents, element type."""

    op: str
    shape: str
    dtype: str


def fingerprint_rule(job: JobEvidence) -> Iterator[Claim]:
    """The minority by what the lines say of each rank; all of them where there is none. Ranks are
    named only where they are those of the job and not of some group."""
    lines = list(lines_with(job.logs, LogCode.TORCH_MISMATCH))
    by_rank = _prints(event for _, event in lines)
    sides = _sides(by_rank)
    if len(sides) < 2:
        return
    is_decided = len(sides[0][1]) > len(sides[1][1])
    wrong = [rank for _, ranks in (sides[1:] if is_decided else sides) for rank in ranks]
    same = [event.comm_rank for log, event in lines if _is_global(log, event)]
    # groups of torch list their ranks ascending: up to such a one both numbers are the same
    is_global = len(same) == len(lines) and max(by_rank) <= max(same)
    culprits = tuple(sorted(wrong)) if is_global else ()
    rest = set(by_rank) - set(culprits)
    verdict = job_verdict(
        job,
        JobFinding(
            RULE, _cause([own for own, _ in sides]),
            Confidence.HIGH if is_decided and culprits else Confidence.MEDIUM,
            culprits=culprits, victims=tuple(sorted(rest)) if is_global else (),
            evidence=tuple(_evidence(sides, lines[0][1].text)),
            missing=() if is_decided else (message(hang_codes.MISSING_MAJORITY, ranks=wrong),),
            next_actions=(message(codes.COMPARE_SHAPES, ranks=wrong),),
        ),
    )  # fmt: skip
    yield Claim(verdict, explains=CONSEQUENCES)


def _prints(events: Iterator[LogEvent]) -> dict[int, Print]:
    """By rank in the group; a rank of which two things are said is left out."""
    said: dict[int, set[Print]] = defaultdict(set)
    for event in events:
        values = event.values
        pairs = ((event.comm_rank, ""), (values.get("other_comm_rank", -1), "other_"))
        for rank, prefix in pairs:
            if isinstance(rank, int) and rank >= 0 and f"{prefix}op" in values:
                said[rank].add(_print(values, prefix))
    return {rank: next(iter(own)) for rank, own in said.items() if len(own) == 1}


def _print(values: Mapping[str, object], prefix: str) -> Print:
    op, shape, dtype = (str(values.get(prefix + name, "")) for name in ("op", "shape", "dtype"))
    return Print(op.lower(), shape, dtype)


def _sides(by_rank: Mapping[int, Print]) -> list[tuple[Print, list[int]]]:
    """The ranks that run alike, most first."""
    found: dict[Print, list[int]] = defaultdict(list)
    for rank, own in sorted(by_rank.items()):
        found[own].append(rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def _is_global(log: JobLog, event: LogEvent) -> bool:
    """True where the rank that wrote the line calls itself in its group as in the job."""
    own = event.rank if event.rank >= 0 else log.rank
    return own >= 0 and own == event.comm_rank


def _cause(prints: Sequence[Print]) -> Cause:
    if len({own.op for own in prints}) > 1:
        return Cause.OP_TYPE_MISMATCH
    if len({own.dtype for own in prints}) > 1:
        return Cause.DTYPE_MISMATCH
    return Cause.SHAPE_MISMATCH


def _evidence(sides: Sequence[tuple[Print, list[int]]], text: str) -> Iterator[Evidence]:
    for own, ranks in sides:
        yield told(
            codes.FINGERPRINT, kind="log", text=text, ranks=ranks, op=own.op, shape=own.shape,
            dtype=own.dtype,
        )  # fmt: skip
    right, others = sides[0]
    for own, ranks in sides[1:]:
        if own.op == right.op:
            said: Iterator[Message] = shape_difference(
                ranks, _extents(own.shape), others, _extents(right.shape)
            )
            yield from (Evidence(kind="log", message=one) for one in said)


def _extents(shape: str) -> list[int]:
    return [int(one) for one in shape.replace(" ", "").split(",") if one]
