"""The watch over a running job: sees overdue ops, gathers who is where and the stacks, and judges.

It only reads: boxes by ``pread``, stacks through other processes with a deadline. Whatever fails is
a note of the run's manifest; the job does not notice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from comminsight.capture.session import SessionData
from comminsight.capture.stacks import stack_settings, take_stack
from comminsight.diagnosis.hang import judge_hang
from comminsight.errors import CommInsightError
from comminsight.launch.boxes import RunBoxes
from comminsight.model.hang import HangEvent, Stack
from comminsight.model.units import ns_from_seconds
from comminsight.model.verdict import Verdict
from comminsight.pipeline.hang_store import write_hang
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import sort_out, tail_session, with_resolved_rank
from comminsight.pipeline.observe import observe
from comminsight.pipeline.trace import joined_communicators

MAX_EVENTS = 10
MAX_STACKS = 16
STACKS_DEADLINE_S = 30.0
SETTLE_S = 1.0  # others become overdue within a moment: one event holds them all


@dataclass(slots=True)
class Watch:
    """One run's watch; ``tick`` is called about twice a second while the job runs."""

    paths: RunPaths
    run_id: str
    spool: Path
    overdue_limit_s: float
    on_hang: Callable[[Verdict], None]
    notes: list[str] = field(default_factory=list)
    _boxes: RunBoxes = field(init=False)
    _seen: frozenset[tuple[int, int, int]] = frozenset()
    _n_events: int = 0
    _overdue_since_s: float = 0.0

    def __post_init__(self) -> None:
        self._boxes = RunBoxes(self.run_id)

    def tick(self) -> None:
        """Look once; gathers evidence when ops have become overdue since the last event."""
        if self._n_events >= MAX_EVENTS or not self._boxes.n_overdue():
            self._overdue_since_s = 0.0
            return
        now_s = time.monotonic()
        self._overdue_since_s = self._overdue_since_s or now_s
        if now_s - self._overdue_since_s >= SETTLE_S:
            self.gather()

    def gather(self) -> None:
        """Write one HangEvent and judge it, if it is news."""
        try:
            sessions = self.sessions()
            event = self.event(sessions)
            if not (news := overdue_ops(event)) - self._seen:
                return
            self._seen |= news
            self._n_events += 1
            communicators = joined_communicators(sessions)[0]
            suspects = judge_hang(event, communicators).culprits
            stacks = take_stacks(sessions, suspects, self.spool)
            event = msgspec.structs.replace(event, stacks=stacks)
            write_hang(self.paths, event)
            verdict = judge_hang(event, communicators)
        except (CommInsightError, OSError) as error:
            self.notes.append(f"hang evidence is incomplete: {error}")
            return
        self.on_hang(verdict)

    def sessions(self) -> tuple[SessionData, ...]:
        """The run's sessions by rank, from their boxes and the tail of their segments."""
        found = self._boxes.sessions(self.spool)
        return sort_out([with_resolved_rank(tail_session(entry)) for entry in found], ()).sessions

    def event(self, sessions: Sequence[SessionData]) -> HangEvent:
        """The hang view now."""
        return observe(
            sessions,
            now_mono_ns=time.monotonic_ns(),
            now_real_ns=time.time_ns(),
            overdue_limit_ns=ns_from_seconds(self.overdue_limit_s),
        )

    def finish(self) -> None:
        """Archive the boxes after the job has ended."""
        self.notes += self._boxes.archive(self.paths.boxes)


def overdue_ops(event: HangEvent) -> frozenset[tuple[int, int, int]]:
    """(global_rank, comm_id, op_seq) of the ops beyond the limit."""
    return frozenset(
        (op.global_rank, op.comm_id, op.op_seq) for op in event.in_flight if op.is_overdue
    )


def take_stacks(
    sessions: Sequence[SessionData], suspects: Sequence[int], stack_dir: Path
) -> tuple[Stack, ...]:
    """Stacks of the suspects first, then of others while the time lasts; by rank."""
    settings = stack_settings({"COMMINSIGHT_STACK_DIR": str(stack_dir), **os.environ})
    begin_s = time.monotonic()
    ordered = sorted(
        sessions, key=lambda s: (s.identity.global_rank not in suspects, s.identity.global_rank)
    )
    taken = []
    for session in ordered[:MAX_STACKS]:
        if time.monotonic() - begin_s > STACKS_DEADLINE_S:
            break
        rank, ticks = session.identity.global_rank, session.identity.pid_start_ticks
        taken.append(take_stack(session.pid, settings, global_rank=rank, start_ticks=ticks))
    return tuple(sorted(taken, key=lambda stack: stack.global_rank))
