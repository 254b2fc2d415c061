"""Verdicts on the quality of our own records, which stand beside what the records tell.

DATA_CORRUPT: stamps or sizes that cannot be, or parts whose checksum is wrong. DATA_INCOMPLETE:
ranks or a noticeable share of the ops without records. Neither names a culprit, and neither takes
anything from a hang; but what rests on stamps that cannot be is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from comminsight.analysis.drift_line import CLEAR_FACTOR
from comminsight.analysis.record_quality import EndBeforeEntry, EndDrift, RankRecords
from comminsight.diagnosis import codes_records as codes
from comminsight.diagnosis import finished_mismatch, slow_link, straggler
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_data import CAPTURE_AGAIN
from comminsight.model.verdict import (
    UNREMARKABLE,
    Cause,
    Confidence,
    Coverage,
    Evidence,
    Message,
    MessageParam,
    Verdict,
)

RULE = "recorded_data"
MIN_REVERSED = 3  # of a rank; and as many collectives that end before their last rank comes
MIN_SHIFT_NS = 1_000_000
MIN_ZERO_RATIO = 0.02  # of the ops
MIN_LOST_RATIO = 0.01  # of the ops of all ranks
MIN_OWN_LOST_RATIO = 0.05  # of those of one
MAX_DRIFT_RATIO = 0.001  # of the time: twice what a clock is ever slewed by
MAX_RANKS_TOLD = 4
RULES_ON_RECORDS = frozenset({straggler.RULE, slow_link.RULE, finished_mismatch.RULE})
_Of = Callable[[RankRecords], int]


@dataclass(frozen=True, slots=True)
class RecordFaults:
    """All that is known of the records' quality; ``is_over``: no record will still come."""

    ranks: tuple[RankRecords, ...]
    before_entry: tuple[EndBeforeEntry, ...] = ()
    drifts: tuple[EndDrift, ...] = ()
    is_over: bool = True


def with_data_verdicts(
    verdicts: Sequence[Verdict], faults: RecordFaults, coverage: Coverage
) -> tuple[Verdict, ...]:
    """The verdicts that still hold, then those on the data; one that finds nothing comes last,
    since the data say how much that is worth."""
    wrong = [*_bad_stamps(faults), *_bad_sizes(faults.ranks)]
    corrupt = [*wrong, *_bad_bytes(faults.ranks)]
    incomplete = list(_incomplete(faults, coverage))
    held = _held(verdicts, wrong)
    own = []
    if corrupt:
        own.append(_verdict(Cause.DATA_CORRUPT, corrupt, coverage))
    if incomplete:
        own.append(_verdict(Cause.DATA_INCOMPLETE, incomplete, coverage))
    if not own:
        return tuple(verdicts)
    told = [one for one in held if one.cause not in UNREMARKABLE]
    return (*told, *own, *(one for one in held if one.cause in UNREMARKABLE))


def _held(verdicts: Sequence[Verdict], wrong: Sequence[Evidence]) -> list[Verdict]:
    """What still holds; of several that are withdrawn for one reason it is said once."""
    found: list[Verdict] = []
    is_told = False
    for one in verdicts:
        left = _withdrawn(one, wrong)
        if left is one or not is_told:
            found.append(left)
        is_told |= left is not one
    return found


def _withdrawn(verdict: Verdict, wrong: Sequence[Evidence]) -> Verdict:
    """The verdict, or why there is none where it rests on times or sizes that cannot be."""
    if not wrong or verdict.rule not in RULES_ON_RECORDS:
        return verdict
    return Verdict(
        rule=verdict.rule, cause=Cause.NO_VERDICT, confidence=Confidence.NONE,
        coverage=verdict.coverage, missing=(message(codes.MISSING_SOUND, ranks=_ranks(wrong)),),
    )  # fmt: skip


def _ranks(told: Sequence[Evidence]) -> list[int]:
    found: set[int] = set()
    for one in told:
        named = one.message.params.get("ranks", ())
        found |= {int(rank) for rank in named} if isinstance(named, (list, tuple)) else set()
        found |= {one.global_rank} - {-1}
    return sorted(found)


def _bad_stamps(faults: RecordFaults) -> Iterator[Evidence]:
    reversed_ = [
        one for one in faults.ranks if one.n_reversed >= MIN_REVERSED or one.shift_ns > MIN_SHIFT_NS
    ]
    if reversed_:
        yield _of_ranks(
            codes.RECORDS_REVERSED, reversed_, lambda one: one.n_reversed,
            shift_ns=max(one.shift_ns for one in reversed_),
        )  # fmt: skip
    zero = [one for one in faults.ranks if one.n_zero > MIN_ZERO_RATIO * max(1, one.n_ops)]
    if zero:
        yield _of_ranks(codes.RECORDS_ZERO, zero, lambda one: one.n_zero)
    for entry in faults.before_entry:
        if entry.n >= MIN_REVERSED and entry.shift_ns > MIN_SHIFT_NS:
            yield _told(
                codes.END_BEFORE_ENTRY, ranks=list(entry.ranks),
                n=entry.n, n_ops=entry.n_ops, shift_ns=entry.shift_ns,
            )  # fmt: skip
    for drift in faults.drifts:
        is_clear = drift.shift_ns > max(CLEAR_FACTOR * drift.residual_ns, MIN_SHIFT_NS)
        if abs(drift.ratio) > MAX_DRIFT_RATIO and is_clear:
            yield _of_rank(
                codes.END_DRIFT, drift.global_rank, ratio=abs(drift.ratio), shift_ns=drift.shift_ns
            )


def _bad_sizes(ranks: Sequence[RankRecords]) -> Iterator[Evidence]:
    absurd = [one for one in ranks if one.n_absurd]
    if absurd:
        largest = max(one.absurd_bytes for one in absurd)
        yield _of_ranks(codes.RECORDS_ABSURD, absurd, lambda one: one.n_absurd, size_bytes=largest)


def _bad_bytes(ranks: Sequence[RankRecords]) -> Iterator[Evidence]:
    counted: tuple[tuple[str, _Of], ...] = (
        (codes.BAD_FRAMES, lambda one: one.n_bad_frames),
        (codes.BAD_VALUES, lambda one: one.n_bad_records),
    )
    yield from _counted(ranks, counted)


def _incomplete(faults: RecordFaults, coverage: Coverage) -> Iterator[Evidence]:
    n_unseen = coverage.ranks_expected - coverage.ranks_seen
    if n_unseen > 0 and coverage.ranks_seen and faults.is_over:
        unseen = list(coverage.ranks_missing)
        yield _told(codes.UNSEEN_RANKS, ranks=unseen, n_ranks=n_unseen)
    yield from _losses(faults.ranks)
    yield from _shares(codes.FILTERED, faults.ranks, lambda one: one.n_filtered)
    yield from _counted(faults.ranks, ((codes.UNREAD_FILES, lambda one: one.n_unread_files),))


def _losses(ranks: Sequence[RankRecords]) -> Iterator[Evidence]:
    """How much, whether the ring was the reason, and the pattern of those with most holes."""
    shares = list(_shares(codes.LOST_OPS, ranks, lambda one: one.n_lost))
    if not shares:
        return
    yield from shares
    yield from _counted(ranks, ((codes.OVERWRITTEN, lambda one: one.n_overwritten),))
    for one in sorted(ranks, key=lambda r: -r.n_missing)[:MAX_RANKS_TOLD]:
        if one.n_missing:
            yield _of_rank(
                codes.SEQ_HOLES, one.global_rank, n=one.n_missing, n_holes=one.n_holes,
                longest=one.longest, first=one.first_seq, last=one.last_seq,
            )  # fmt: skip


def _shares(code: str, ranks: Sequence[RankRecords], of: _Of) -> Iterator[Evidence]:
    lacking = [one for one in ranks if of(one)]
    n, n_ops = sum(map(of, lacking)), sum(one.n_ops for one in ranks)
    worst = max((of(one) / (one.n_ops + of(one)) for one in lacking), default=0.0)
    if n and (n / (n_ops + n) >= MIN_LOST_RATIO or worst >= MIN_OWN_LOST_RATIO):
        yield _of_ranks(code, lacking, of, ratio=n / (n_ops + n))


def _counted(ranks: Sequence[RankRecords], counts: Sequence[tuple[str, _Of]]) -> Iterator[Evidence]:
    for code, of in counts:
        having = [one for one in ranks if of(one)]
        if having:
            yield _of_ranks(code, having, of)


def _of_ranks(code: str, ranks: Sequence[RankRecords], of: _Of, **params: MessageParam) -> Evidence:
    named = sorted(one.global_rank for one in ranks)
    return _told(code, ranks=named, n=sum(map(of, ranks)), **params)


def _of_rank(code: str, rank: int, **params: MessageParam) -> Evidence:
    return replace(_told(code, rank=rank, **params), global_rank=rank)


def _told(code: str, **params: MessageParam) -> Evidence:
    return Evidence(kind="measure", message=message(code, **params))


def _verdict(cause: Cause, evidence: Sequence[Evidence], coverage: Coverage) -> Verdict:
    return Verdict(
        rule=RULE,
        cause=cause,
        confidence=Confidence.HIGH,
        coverage=coverage,
        evidence=tuple(evidence),
        next_actions=tuple(_actions({one.message.code for one in evidence})),
    )


def _actions(told: set[str]) -> Iterator[Message]:
    if told & {codes.UNSEEN_RANKS, codes.UNREAD_FILES, codes.BAD_FRAMES}:
        yield message(codes.ALL_FILES)
    if codes.FILTERED in told:
        yield message(codes.NO_FILTER)
    if told - {codes.UNSEEN_RANKS, codes.UNREAD_FILES, codes.FILTERED}:
        yield message(CAPTURE_AGAIN)
