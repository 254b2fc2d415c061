"""What changed from step to step: the template, the ranks that take part, what is recorded, and how
long the steps take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.fail_slow import episodes_of
from comminsight.capture.session import SessionData
from comminsight.model.ops import NoticeReason
from comminsight.model.records import notices
from comminsight.model.step import PhaseKind, StepSummary
from comminsight.model.verdict import Message, MessageParam

REASONS = {
    NoticeReason.CONTROL: "change.recording",
    NoticeReason.OVERHEAD_GUARD: "change.overhead_guard",
}
Params = dict[str, MessageParam]
_OF_ITERATIONS = {PhaseKind.FORWARD, PhaseKind.PREFILL, PhaseKind.DECODE}


def step_changes(
    aligned: Sequence[AlignedStep], sessions: Sequence[SessionData]
) -> tuple[Message, ...]:
    """Codes under ``change`` with ``step`` (the first step that is different) and ``ranks``, by
    step; ranks that change alike share one."""
    found = [
        *_template_changes(aligned), *_rank_changes(aligned), *_slow_episodes(aligned),
        *_recording(aligned, sessions),
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda message: int(str(message.params["step"]))))


def _template_changes(aligned: Sequence[AlignedStep]) -> Iterator[Message]:
    """Ranks whose steps are bounded by another template, or another version of it, than before."""
    last: dict[int, tuple[str, int, int]] = {}
    alike: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for step in aligned:
        for rank, own in step.members.items():
            now = (own.template, own.template_version, own.template_file_version)
            before = last.get(rank, now)
            if now != before:
                alike[step.step, _template(before), _template(now)].append(rank)
            last[rank] = now
    for (number, before_text, now_text), ranks in alike.items():
        params: Params = {"before": before_text, "now": now_text}
        yield _message("change.template", number, ranks, params)


def _template(version: tuple[str, int, int]) -> str:
    return f"{version[0]} {version[2]}.{version[1]}"


def _rank_changes(aligned: Sequence[AlignedStep]) -> Iterator[Message]:
    """Ranks that take part for the first time or after a pause, and ranks that no longer do."""
    for before, now in pairwise(aligned):
        if joined := now.members.keys() - before.members.keys():
            yield _message("change.ranks_joined", now.step, joined, {})
        if left := before.members.keys() - now.members.keys():
            yield _message("change.ranks_left", now.step, left, {})


def _slow_episodes(aligned: Sequence[AlignedStep]) -> Iterator[Message]:
    """Steps that took longer for some time, on the ranks together. Iterations of a serving job do
    not count: they are as long as what was asked for."""
    timed = [step for step in aligned if any(map(_is_timed, step.members.values()))]
    periods_ns = [
        float(np.median([own.period_ns for own in step.members.values() if _is_timed(own)]))
        for step in timed
    ]
    for episode in episodes_of(periods_ns):
        is_over = episode.end >= 0
        params: Params = {
            "before_ns": round(episode.normal), "now_ns": round(episode.level),
            "longer": episode.ratio, **({"last": timed[episode.end - 1].step} if is_over else {}),
        }  # fmt: skip
        code = "change.slower_for_a_time" if is_over else "change.slower"
        first = timed[episode.onset]
        yield _message(code, first.step, first.members, params)


def _is_timed(own: StepSummary) -> bool:
    kinds = {phase.kind for phase in own.phases}
    return own.period_ns > 0 and not (kinds and kinds <= _OF_ITERATIONS)


def _recording(
    aligned: Sequence[AlignedStep], sessions: Sequence[SessionData]
) -> Iterator[Message]:
    """What is recorded from some moment on, as the recorders noted it."""
    alike: dict[tuple[int, str, int, int, int], list[int]] = defaultdict(list)
    for session in sessions:
        rank = session.identity.global_rank
        for notice in notices(session.records):
            if (code := REASONS.get(notice["reason"])) is None:
                continue
            number = _step_at(aligned, rank, int(notice["start_ns"]))
            is_recording, event_mask = int(notice["is_recording"]), int(notice["event_mask"])
            now = (is_recording, event_mask, int(notice["min_size_bytes"]))
            alike[(number, code, *now)].append(rank)
    for (number, code, is_recording, event_mask, min_size_bytes), ranks in alike.items():
        params: Params = {
            "what": "recording.on" if is_recording else "recording.off",
            "mask": f"{event_mask:#x}",
            "size_bytes": min_size_bytes,
        }
        yield _message(code, number, ranks, params)


def _step_at(aligned: Sequence[AlignedStep], rank: int, at_ns: int) -> int:
    """The first step of the rank that is not over at this moment; behind all of them, the one that
    would follow."""
    own = [(a.step, a.members[rank].end_ns) for a in aligned if rank in a.members]
    place = int(np.searchsorted([end_ns for _, end_ns in own], at_ns))
    if place < len(own):
        return own[place][0]
    return own[-1][0] + 1 if own else 0


def _message(
    code: str, step: int, ranks: Iterable[int], params: Mapping[str, MessageParam]
) -> Message:
    return Message(code, {"step": step, "ranks": sorted(set(ranks)), **params})
