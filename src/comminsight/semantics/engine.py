"""One session's records become steps: reorder, template choice, boundary machine, circuit breaker.

    push(batch) ─► Reorder ─► held until a template wins ─► BoundaryMachine ─► StepSummary

Nothing here reads a clock or a file, and every decision falls at a count of committed ops, so the
steps do not depend on how the records were chunked: live equals replay. Memory is bounded by the
safe window, by the holds and by ``max_held_ops``, whatever the length of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from comminsight.errors import InputError
from comminsight.model.event import OP_DTYPE, concatenate_rows
from comminsight.model.session import BreakReason, SessionBreak
from comminsight.model.step import StepSummary
from comminsight.model.tally import Tally
from comminsight.model.topology import SessionIdentity
from comminsight.model.views import TemplateScore
from comminsight.semantics.arrival import OrderSettings
from comminsight.semantics.boundary import BoundaryMachine, BoundarySnapshot
from comminsight.semantics.breaker import BreakerSettings, StepWatch, WatchSnapshot, active_ns
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.reorder import OrderSnapshot, Reorder
from comminsight.semantics.selection import Judge, Trial, select
from comminsight.semantics.template import Template

SNAPSHOT_VERSION = 6
_FIRST_LOOK_OPS = 16
_PORTION = 16_384  # records per pass: enough to pay for the calls, few enough to stay in the cache


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one session. ``min_steps`` steps must close in the trial before a template wins."""

    order: OrderSettings = OrderSettings()
    breaker: BreakerSettings = BreakerSettings()
    min_steps: int = 2
    patience_ops: int = 8192


class EnginePhase(StrEnum):
    """What the session is doing."""

    SEEKING = "seeking"  # no template has won yet: ops are held
    STEPPING = "stepping"
    BROKEN = "broken"  # closed by the circuit breaker: see the reason
    FINISHED = "finished"


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """The session at a glance. ``broken`` says why and when it was given up, if it was."""

    phase: EnginePhase
    template: str = ""
    broken: SessionBreak | None = None
    n_steps: int = 0
    is_step_open: bool = False
    n_pending: int = 0
    n_held: int = 0

    @property
    def reason(self) -> str:
        """Why the session was given up as a catalogue code; "" if it was not."""
        return self.broken.reason.value if self.broken else ""


class EngineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session between two pushes; serialise it with ``msgspec.msgpack``."""

    version: int
    settings: EngineSettings
    identity: SessionIdentity
    phase: EnginePhase
    broken: SessionBreak | None
    comms: bytes
    order: OrderSnapshot
    held: bytes
    next_look: int
    machine: BoundarySnapshot | None
    watch: WatchSnapshot | None
    selection: tuple[TemplateScore, ...]
    n_steps: int


class SessionEngine:
    """The semantics of one process: feed batches in arrival order, get final steps back."""

    def __init__(
        self,
        templates: Sequence[Template],
        settings: EngineSettings | None = None,
        identity: SessionIdentity | None = None,
    ) -> None:
        self.settings = settings or EngineSettings()
        self.identity = identity or SessionIdentity(session_id="")
        self.selection: tuple[TemplateScore, ...] = ()
        self._judge: Judge | None = Judge(tuple(templates), self.identity)
        self._comms = CommTable(self.identity.world_size)
        self._order = Reorder(self.settings.order)
        self._phase = EnginePhase.SEEKING
        self._broken: SessionBreak | None = None
        self._held: list[np.ndarray] = []
        self._next_look = _FIRST_LOOK_OPS
        self._machine: BoundaryMachine | None = None
        self._watch: StepWatch | None = None
        self._n_steps = 0

    # input

    def add_comms(self, rows: np.ndarray) -> None:
        """Take communicator rows (``COMM_DTYPE``); they must come before the ops that use them."""
        self._comms.add(rows)

    def push(self, batch: np.ndarray) -> list[StepSummary]:
        """Steps that became final with this batch (``OP_DTYPE``, in arrival order)."""
        steps: list[StepSummary] = []
        for first in range(0, len(batch), _PORTION):
            portion = batch[first : first + _PORTION]
            if self._is_closed:
                self._order.refuse(len(portion))
            else:
                steps += self._advance(self._order.push(portion))
        return self._count(steps)

    def finish(self, explicit_end: bool = True) -> list[StepSummary]:  # noqa: FBT001
        """The steps that the end of the input makes final; with ``explicit_end`` false, none.

        Explicit end: pending records are emitted, a template is chosen with what there is, and the
        last step comes out if its end is proved. Otherwise nothing is flushed: what is open stays
        in the snapshot for more input to come.
        """
        if not explicit_end or self._is_closed:
            return []
        steps = self._advance(self._order.drain())
        if self._phase is EnginePhase.SEEKING:
            steps += self._look(is_end=True)
        if not self._is_closed:
            steps += self._machine.finish() if self._machine else []
            self._phase = EnginePhase.FINISHED
        return self._count(steps)

    # output

    @property
    def tally(self) -> Tally:
        """All counts of the session so far: flow, losses, steps."""
        tally = Tally(self._order.tally.as_dict())
        machine, broken = self._machine, self._broken
        tally.add("steps_emitted", self._n_steps)
        tally.add("sessions_broken", int(broken is not None))
        tally.add("steps_open", int(self._is_step_open))
        if machine is not None:
            tally.add("ops_between_steps", machine.n_between)
            tally.add("ops_before_first_step", machine.n_before)
            tally.add("steps_without_phases", machine.n_without_phases)
        elif broken is not None:
            tally.add("ops_between_steps", broken.n_ops_between_steps)
            tally.add("ops_before_first_step", broken.n_ops_before_first_step)
        elif self._phase is EnginePhase.FINISHED:
            tally.add("ops_before_first_step", self._n_held)
        return tally

    @property
    def state(self) -> EngineState:
        """The session at a glance."""
        machine, broken = self._machine, self._broken
        return EngineState(
            phase=self._phase, broken=broken, n_steps=self._n_steps,
            template=machine.template.name if machine else broken.template if broken else "",
            is_step_open=self._is_step_open,
            n_pending=self._order.n_pending, n_held=self._n_held,
        )  # fmt: skip

    # progress

    @property
    def _is_closed(self) -> bool:
        return self._phase in {EnginePhase.BROKEN, EnginePhase.FINISHED}

    @property
    def _is_step_open(self) -> bool:
        if self._broken is not None:
            return self._broken.is_step_open
        return self._machine is not None and self._machine.step is not None

    @property
    def _n_held(self) -> int:
        return sum(map(len, self._held))

    def _count(self, steps: list[StepSummary]) -> list[StepSummary]:
        self._n_steps += len(steps)
        return steps

    def _advance(self, rows: np.ndarray) -> list[StepSummary]:
        """Feed committed ops in portions that end where a decision is due."""
        steps: list[StepSummary] = []
        while len(rows) and not self._is_closed:
            machine, watch = self._machine, self._watch
            if machine is None or watch is None:
                due = self._next_look - self._n_held
                portion, rows = rows[:due], rows[due:]
                self._held.append(portion)
                steps += self._look() if len(portion) == due else []
            else:
                due = watch.n_until_due(rows)
                portion, rows = rows[:due], rows[due:]
                steps += self._step(machine, watch, portion)
        if self._is_closed:
            self._order.drop(emitted=len(rows))
        return steps

    def _look(self, *, is_end: bool = False) -> list[StepSummary]:
        """Try all templates on the held ops; adopt the winner with the steps of its trial."""
        held = concatenate_rows(self._held)
        self._held = [held]
        self._comms.infer(held, self.identity.global_rank)
        assert self._judge is not None  # noqa: S101 - kept while a template is sought
        may_wait = not is_end and len(held) < self.settings.patience_ops
        trials = self._judge.try_all(
            held, self._comms, self._order.losses,
            min_steps=1 if is_end else self.settings.min_steps, is_end=is_end,
        )  # fmt: skip
        winner = select(trials, may_wait=may_wait, has_open_roles=self._comms.is_undecided)
        self.selection = tuple(trial.score() for trial in trials)
        if winner is not None:
            return self._adopt(winner, held)
        if not is_end:
            self._give_up_seeking(trials, held)
        self._next_look += max(self._next_look // 2, 1)
        self._next_look = min(self._next_look, max(self._limits.max_held_ops, len(held) + 1))
        return []

    @property
    def _limits(self) -> BreakerSettings:
        return self.settings.breaker

    def _give_up_seeking(self, trials: Sequence[Trial], held: np.ndarray) -> None:
        """Break off where no template can match any more, or none has for too long."""
        lasted_ns = active_ns(held["start_ns"], self._limits.max_pause_ns)
        is_long = len(held) >= self._limits.max_held_ops or lasted_ns > self._limits.max_held_ns
        if not is_long and not all(trial.can_never_fit for trial in trials):
            return
        is_other_layout = any(trial.lacks_topology for trial in trials)
        self._break(
            SessionBreak(
                reason=BreakReason.TOPOLOGY if is_other_layout else BreakReason.NO_TEMPLATE,
                at_ns=int(held["start_ns"][-1]), n_ops=len(held), n_ops_without_step=len(held),
                active_ns=lasted_ns, n_ops_before_first_step=len(held),
            )
        )  # fmt: skip

    def _adopt(self, winner: Trial, held: np.ndarray) -> list[StepSummary]:
        machine = winner.machine
        assert machine is not None  # noqa: S101 - a trial with steps has one
        self._machine, self._held, self._judge = machine, [], None
        self._watch = StepWatch(self._limits, machine.template, self._comms)
        self._watch.note(held, machine.opened_at)
        self._order.losses = machine.losses
        self._phase = EnginePhase.STEPPING
        return winner.steps

    def _step(
        self, machine: BoundaryMachine, watch: StepWatch, portion: np.ndarray
    ) -> list[StepSummary]:
        base = machine.position
        steps = machine.feed(portion)
        watch.note(portion, machine.opened_at - base)
        is_other_layout = watch.is_topology_left(portion[-1:])
        if is_other_layout or watch.is_over:
            reason = BreakReason.TOPOLOGY if is_other_layout else BreakReason.NO_STEP
            self._break(
                SessionBreak(
                    reason=reason, at_ns=watch.last_start_ns, n_ops=machine.position,
                    n_ops_without_step=watch.n_ops, active_ns=watch.active_ns,
                    template=machine.template.name, n_ops_before_first_step=machine.n_before,
                    n_ops_between_steps=machine.n_between, is_step_open=machine.step is not None,
                )
            )  # fmt: skip
        return steps

    def _break(self, broken: SessionBreak) -> None:
        """Close the session and let go of what it holds; the caller drops what it has in hand."""
        self._phase, self._broken = EnginePhase.BROKEN, broken
        self._held, self._machine, self._watch, self._judge = [], None, None, None

    # snapshot

    def snapshot(self) -> EngineSnapshot:
        """The session between two pushes."""
        return EngineSnapshot(
            version=SNAPSHOT_VERSION, settings=self.settings, identity=self.identity,
            phase=self._phase, broken=self._broken, comms=self._comms.to_bytes(),
            order=self._order.snapshot(), held=b"".join(part.tobytes() for part in self._held),
            next_look=self._next_look,
            machine=None if self._machine is None else self._machine.snapshot(),
            watch=None if self._watch is None else self._watch.snapshot(),
            selection=self.selection, n_steps=self._n_steps,
        )  # fmt: skip

    @classmethod
    def resume(cls, snapshot: EngineSnapshot, templates: Sequence[Template]) -> SessionEngine:
        """The session as it was; raises InputError when its template is not among ``templates``."""
        if snapshot.version != SNAPSHOT_VERSION:
            raise InputError(
                f"engine snapshot version {snapshot.version} is not {SNAPSHOT_VERSION}",
                next_step="rebuild the steps from the segments",
            )
        self = cls(templates, snapshot.settings, snapshot.identity)
        self._phase, self._broken = snapshot.phase, snapshot.broken
        self._comms = CommTable.from_bytes(snapshot.comms, snapshot.identity.world_size)
        self._order = Reorder.resume(snapshot.settings.order, snapshot.order)
        self._held = [np.frombuffer(snapshot.held, OP_DTYPE)] if snapshot.held else []
        self._next_look, self.selection = snapshot.next_look, snapshot.selection
        self._n_steps = snapshot.n_steps
        if snapshot.machine is not None and snapshot.watch is not None:
            self._machine = machine = self._restored(snapshot.machine, templates)
            self._watch = StepWatch(self._limits, machine.template, self._comms)
            self._watch.restore(snapshot.watch)
        if self._phase is not EnginePhase.SEEKING:
            self._judge = None
        return self

    def _restored(
        self, snapshot: BoundarySnapshot, templates: Sequence[Template]
    ) -> BoundaryMachine:
        wanted = (snapshot.template.name, snapshot.template.version)
        if wanted not in {(template.name, template.version) for template in templates}:
            raise InputError(
                f"template {wanted[0]!r} version {wanted[1]} of the snapshot is not loaded",
                next_step="load the template files of that version, or rebuild from the segments",
            )
        machine = BoundaryMachine(snapshot.template, self.identity, self._comms, self._order.losses)
        machine.restore(snapshot)
        return machine
