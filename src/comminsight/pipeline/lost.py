"""Whose records were lost and why, as far as the recorders say, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from comminsight.capture.session import NOT_CAPTURE_LOSS, SessionData
from comminsight.diagnosis import codes
from comminsight.model.ops import LossReason
from comminsight.model.tally import NOT_READ
from comminsight.model.verdict import Message, Verdict

LACKING = {codes.MISSING_RECORDS, codes.MISSING_STEPS, codes.MISSING_COMPLETE_STEPS}
# what a reader is told to do; all others are a matter of the recorder's own bounds
REMEDIES = {
    LossReason.SEGMENT_WRITE: "reason.make_room",
    LossReason.SEGMENT_CAP: "reason.raise_cap",
}
OF_RECORDS = (LossReason.SEGMENT_WRITE, LossReason.SEGMENT_CAP, LossReason.RING_OVERWRITTEN)
# filters that somebody asked for, and a shell tool that was too slow for what the segment holds
NOT_TOLD = {*NOT_CAPTURE_LOSS} - {*OF_RECORDS}
CUT = ("segment_frames_torn", "segment_frames_bad", "segment_files_unreadable")


def ranks_with_losses(sessions: Iterable[SessionData]) -> list[int]:
    """Ranks of which records are known to be missing."""
    names = (*NOT_READ, *CUT)
    return sorted(s.identity.global_rank for s in sessions if s.tally.sum_of(names))


def loss_notes(sessions: Iterable[SessionData]) -> Iterator[Message]:
    """Ranks and number by the reason that the recorders themselves counted, where it has cost a
    record: one that a segment lacks may still be in the ring."""
    ranks: dict[LossReason, list[int]] = defaultdict(list)
    counts: dict[LossReason, int] = defaultdict(int)
    for session in sessions:
        for reason, n in _counted(session):
            ranks[reason].append(session.identity.global_rank)
            counts[reason] += n
    for reason in sorted(counts):
        code = f"loss.{reason.name.lower()}"
        yield Message(
            "note.lost", {"ranks": sorted(ranks[reason]), "n": counts[reason], "reason": code}
        )
    if cut := sorted(s.identity.global_rank for s in sessions if s.tally.sum_of(CUT)):
        yield Message("note.cut", {"ranks": cut})


def _counted(session: SessionData) -> Iterator[tuple[LossReason, int]]:
    n_missing = session.tally.sum_of(("seq_gaps", "ring_records_overwritten"))
    for reason in LossReason:
        n = int(session.losses[:, reason : reason + 1].sum())
        if reason in OF_RECORDS:
            n = min(n, n_missing)
        if n and reason not in NOT_TOLD:
            yield reason, n


def with_losses(
    verdicts: Iterable[Verdict], sessions: Sequence[SessionData], n_steps: int
) -> tuple[Verdict, ...]:
    """The verdicts: lost records by the ranks that lost them, and instead of "record longer", where
    ``n_steps`` would do if they were whole, what makes them whole."""
    ranks = ranks_with_losses(sessions)
    reasons = [reason for session in sessions for reason, _ in _counted(session)]
    remedies = [Message(code) for reason, code in REMEDIES.items() if reason in reasons]
    return tuple(_with_losses(verdict, ranks, remedies, n_steps) for verdict in verdicts)


def _with_losses(
    verdict: Verdict, ranks: list[int], remedies: list[Message], n_steps: int
) -> Verdict:
    said = {message.code for message in verdict.missing}
    actions = list(verdict.next_actions)
    if said & LACKING:
        actions += remedies
    is_enough = codes.MISSING_COMPLETE_STEPS in said or any(
        _is_needless(own, n_steps) for own in actions
    )
    if ranks and is_enough:
        actions = [action for action in actions if not _is_needless(action, n_steps)]
        actions.append(Message("reason.whole_records", {"ranks": ranks, "n_steps": n_steps}))
    missing = tuple(_of_ranks(message, ranks) for message in verdict.missing)
    return msgspec.structs.replace(verdict, missing=missing, next_actions=tuple(actions))


def _is_needless(action: Message, n_steps: int) -> bool:
    needed = action.params.get("needed", 0)
    return action.code == codes.RECORD_LONGER and isinstance(needed, int) and n_steps >= needed


def _of_ranks(message: Message, ranks: list[int]) -> Message:
    if message.code != codes.MISSING_RECORDS or message.params["ranks"]:
        return message
    return Message(message.code, {**message.params, "ranks": ranks})
