"""The watch over a running job: sees overdue ops, gathers who is where and the stacks, and judges.

It only reads: boxes by ``pread``, stacks through other processes with a deadline. Whatever fails is
a note of the run's manifest; the job does not notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from comminsight.capture.session import SessionData
from comminsight.capture.stacks import stack_settings, take_stack
from comminsight.diagnosis.hang import judge_hang
from comminsight.errors import InputError
from comminsight.launch.boxes import RunBoxes
from comminsight.launch.ends import EndWatch
from comminsight.launch.ras_asking import RasAsking, job_environment
from comminsight.model.hang import HangEvent, Stack
from comminsight.model.manifest import ProcessEnd
from comminsight.model.units import ns_from_seconds
from comminsight.model.verdict import Message, Verdict
from comminsight.pipeline.hang_store import write_hang
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import sort_out, tail_session, with_resolved_rank
from comminsight.pipeline.observe import observe
from comminsight.pipeline.trace import joined_communicators

MAX_EVENTS = 10
MAX_NOTES = 10
MAX_STACKS = 16
STACKS_DEADLINE_S = 30.0
SETTLE_S = 1.0  # others become overdue within a moment: one event holds them all
REPEAT_S = 10.0  # how often a standing hang is looked at again: each look reads every box


@dataclass(slots=True)
class Watch:
    """One run's watch; ``tick`` is called a few times a second while the job runs."""

    paths: RunPaths
    boxes: RunBoxes
    overdue_limit_s: float
    on_hang: Callable[[Verdict], None]
    stack_signal: str = ""
    notes: list[Message] = field(default_factory=list)
    ends: tuple[ProcessEnd, ...] = ()
    _end_watch: EndWatch = field(default_factory=EndWatch)
    _ras: RasAsking = field(default_factory=RasAsking)
    _seen: frozenset[tuple[int, int, int]] = frozenset()
    _n_events: int = 0
    _n_overdue: int = 0
    _due_s: float = 0.0  # when to gather; 0 while nothing is overdue

    def tick(self) -> None:
        """Look once; gathers evidence when ops have become overdue since the last event."""
        try:
            self._look(time.monotonic())
        except Exception as error:  # noqa: BLE001 - bulkhead: the job goes on; a note counts it
            self.note("launch.watch_failed", f"{type(error).__name__}: {error}")

    def _look(self, now_s: float) -> None:
        n_overdue = self.boxes.n_overdue()
        self._end_watch.follow(self.boxes.processes.values())
        if n_overdue != self._n_overdue:
            self._due_s = now_s + SETTLE_S if n_overdue else 0.0
        self._n_overdue = n_overdue
        if self._due_s and now_s >= self._due_s and self._n_events < MAX_EVENTS:
            self._due_s = now_s + REPEAT_S
            self.gather()

    def gather(self) -> None:
        """Write one HangEvent and judge it, if it is news."""
        sessions = self.sessions()
        event = self.event(sessions)
        news = overdue_ops(event)
        if not news - self._seen:
            return
        self._seen |= news
        self._n_events += 1
        self._ras.begin(sessions, job_environment(self.boxes), self.paths, event.observed_mono_ns)
        communicators = joined_communicators(sessions)[0]
        suspects = judge_hang(event, communicators).culprits
        stacks = take_stacks(sessions, suspects, self.boxes.spool, self.stack_signal)
        event = msgspec.structs.replace(event, stacks=stacks)
        try:
            write_hang(self.paths, event)
        except OSError as error:
            self.note("launch.hang_not_stored", str(error))
        self.on_hang(judge_hang(event, communicators))

    def sessions(self) -> tuple[SessionData, ...]:
        """The run's sessions by rank, from their boxes and the tail of their segments."""
        found = []
        for entry in self.boxes.sessions():
            try:
                found.append(with_resolved_rank(tail_session(entry)))
            except InputError as error:
                self.note("launch.hang_incomplete", str(error))
        return sort_out(found, ()).sessions

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
        self.boxes.settle()
        self.ends = self._end_watch.close()
        self.notes += self.boxes.archive(self.paths.boxes)
        self.notes += self._ras.finish()

    def note(self, code: str, error: str) -> None:
        """Keep a note once, and not without end."""
        made = Message(code, {"error": error})
        if made not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(made)


def overdue_ops(event: HangEvent) -> frozenset[tuple[int, int, int]]:
    """(global_rank, comm_id, op_seq) of the ops beyond the limit."""
    return frozenset(
        (op.global_rank, op.comm_id, op.op_seq) for op in event.waiting if op.is_overdue
    )


def take_stacks(
    sessions: Sequence[SessionData], suspects: Sequence[int], stack_dir: Path, stack_signal: str
) -> tuple[Stack, ...]:
    """Stacks of the suspects first, then of others while the time lasts; by rank.

    ``stack_dir`` and ``stack_signal`` are those that the job was started with.
    """
    told = {"COMMINSIGHT_STACK_DIR": str(stack_dir), "COMMINSIGHT_STACK_SIGNAL": stack_signal}
    settings = stack_settings(told)
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
