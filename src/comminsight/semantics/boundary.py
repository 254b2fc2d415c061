"""The boundary machine: Open, Anchor and Close become steps.

    outside ──Open──► open ──Anchor or Close──► proved ──Open──► open …
                                                      └ emits the step that ends here

Only after an Anchor or Close of its own may the next Open end a step, so an Open-like sequence in
the middle of a large step does not split it. Close seen: the step ends at Close, and the ops up
to the next Open are counted *between*. Close lost but Anchor seen: it ends at the last op before
the next Open. The first completion of Anchor and of Close counts; an op that failed completes none.

In a template with *work* an Anchor or Close counts from the first work of its step on: what is
complete before is a microbatch's, or an evaluation's. What stands before the usual lead of that
work is left out of the step if it is no training (see ``lead``): those ops count as between the
steps, and the period of the step before them has ended where they begin.

A step is emitted when the next Open is complete: only then are its period, its gap and the ops
after it known, and nothing about it changes later. There is no tail flush: at explicit end a step
whose Close was seen (or its Anchor, if the template says so) is emitted with period and gap 0;
anything else stays one open step. Positions count committed ops from 0; where a batch ends makes
no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec
import numpy as np

from comminsight.model.ops import OpState
from comminsight.model.step import StepEnd, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.held_ops import HeldOps, OpAt
from comminsight.semantics.lead import LeadWatch, OpenStep
from comminsight.semantics.losses import LossLog
from comminsight.semantics.matcher import AnyMatcher, Hits
from comminsight.semantics.phases import Cut, PhaseSnapshot, PhaseTrace
from comminsight.semantics.symbols import SymbolCoder, columns_of
from comminsight.semantics.template import Template

END_OF_TIME_NS = 1 << 62
_FAILED, _ABORTED = int(OpState.FAILED), int(OpState.ABORTED)


class BoundarySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the machine carries from batch to batch."""

    template: Template
    position: int
    n_steps: int
    n_before: int
    n_between: int
    n_hits: list[int]
    states: list[list[int]]
    tail: bytes
    step: OpenStep | None
    is_usual: bool
    phases: PhaseSnapshot


class BoundaryMachine:
    """Steps of one session under one resolved template."""

    def __init__(
        self, template: Template, identity: SessionIdentity, comms: CommTable, losses: LossLog
    ) -> None:
        self.template = template
        self.step: OpenStep | None = None
        self.n_steps = 0
        self.n_before = 0  # ops before the first Open
        self.n_between = 0  # ops after a Close and before the next Open, or left out of a step
        self.n_hits = [0, 0, 0]
        self.losses = losses
        self._identity, self._comms = identity, comms
        self._coder, self._matchers = compiled(template)
        self._may_open_with_work = _may_open_with_work(template, self._coder)
        self._n_tail = max(matcher.max_length for matcher in self._matchers) + 1
        self._held = HeldOps(comms)
        self._lead = LeadWatch(template, self._coder, comms, self._held)
        n_tail = self._n_tail + self._lead.n_ops  # of these may be the first op of the next step
        self._phases = PhaseTrace(comms, n_tail, is_iteration=template.is_iteration)
        self._cuts: list[Cut] = []  # of the steps of this batch

    def feed(self, rows: np.ndarray) -> list[StepSummary]:
        """Steps that became final with these committed ops (``OP_DTYPE``, in time order)."""
        if not len(rows):
            return []
        columns = columns_of(rows, self._comms)
        classes = self._coder.encode(rows, self._comms, columns)
        self._held.take(rows)
        hits = [matcher.feed(classes, self.position) for matcher in self._matchers]
        failed = np.flatnonzero((rows["state"] == _FAILED) | (rows["state"] == _ABORTED))
        if len(failed):  # it proves nothing: the step did not get behind it
            hits[1:] = [found.without(failed + self.position) for found in hits[1:]]
        for kind, found in enumerate(hits[:3]):
            self.n_hits[kind] += len(found)
        self._phases.feed(rows, columns)
        steps = self._with_phases(list(self._walk(*hits)))
        self._keep()
        if self.step is None:
            self._phases.forget(self.position - self._n_tail)
        else:
            closed = None if self.step.close is None else self.step.close.position + 1
            self._phases.forget(self.step.first.position, closed)
        return steps

    def finish(self) -> list[StepSummary]:
        """The last step, if its end is proved; the input has ended in order."""
        step = self.step
        if step is None or not self.is_proved:
            return []
        self.step = None
        last = self._end_step(step, None, END_OF_TIME_NS)
        return self._with_phases([last])

    @property
    def is_proved(self) -> bool:
        """Whether an explicit end would emit the step in progress."""
        step = self.step
        if step is None or (self.template.is_work_behind and step.work < 0):
            return False
        return bool(step.close or (step.anchor and self.template.is_anchor_proof))

    @property
    def position(self) -> int:
        """How many ops have been fed."""
        return self._held.position

    @property
    def opened_at(self) -> int:
        """Position of the last op of the newest Open that began a step; -1 before the first."""
        return -1 if self.step is None else self.step.open_last

    @property
    def n_in_steps(self) -> int:
        """Ops inside emitted steps."""
        in_progress = 0 if self.step is None else self.position - self.step.first.position
        before = self.n_before if self.step or self.n_steps else self.position
        return self.position - before - self.n_between - in_progress

    @property
    def n_without_phases(self) -> int:
        """Emitted steps whose phases are unknown altogether: ops lost, late or too many."""
        return self._phases.n_unknown

    def _keep(self) -> None:
        """Hold the ops in which the next boundary, or the step in progress, may begin."""
        end = self._held.until
        n = self._n_tail + self._lead.n_needed(self.step, end)
        if self.step is not None:
            self._lead.count_gone(self.step, end - n)
        self._held.keep(n)

    def _with_phases(self, steps: list[StepSummary]) -> list[StepSummary]:
        self._phases.close(steps, self._cuts)
        self._cuts.clear()
        return steps

    # the walk from Open to Open

    def _walk(self, opens: Hits, anchors: Hits, closes: Hits, works: Hits) -> Iterator[StepSummary]:
        if self.step is None:
            found = opens.next_from(0)
            if found is None:
                return
            self.n_before = found[0]
            self.step = self._opened(self._held.op(found[0]), found[1])
        hits = opens, anchors, closes, works
        while (found := self._next_open(self.step, *hits)) is not None:
            following = self._held.op(found[0])
            if self.template.is_work_behind and self.step.work < 0:
                self._leave_out(found[0] - self.step.first.position)
            else:
                final_ns = self._held.op(found[1]).evidence.start_ns
                yield self._end_step(self.step, following, final_ns)
            self.step = self._opened(following, found[1])

    def _opened(self, first: OpAt, open_last: int) -> OpenStep:
        """A step that begins; with the work that stands in its Open, of an earlier batch or not."""
        step = OpenStep(first=first, open_last=open_last)
        if self._may_open_with_work and first.position < open_last:
            rows = self._held.between(first.position, open_last)
            failed = (rows["state"] == _FAILED) | (rows["state"] == _ABORTED)
            works = self._matchers[3].once(self._coder.encode(rows, self._comms), first.position)
            works = works.without(np.flatnonzero(failed) + first.position)
            self._take_work(step, works, works.next_from(first.position))
        return step

    def _next_open(
        self, step: OpenStep, opens: Hits, anchors: Hits, closes: Hits, works: Hits
    ) -> tuple[int, int] | None:
        """The Open that ends the step; notes the step's Anchor, Close and work on the way."""
        template, until = self.template, step.open_last
        if template.works and not template.is_work_behind:
            if step.work < 0 and not self._begin_work(step, works):
                return None
            until = max(until, step.work)
        least = step.first.position if template.is_close_inside_open else step.open_last + 1
        if step.anchor is None and (hit := anchors.next_from(least, until)):
            step.anchor = self._held.op(hit[1])
        if step.close is None and (hit := closes.next_from(least, until)):
            step.close = self._held.op(hit[1])
        proofs = [op.position for op in (step.anchor, step.close) if op is not None]
        if not proofs:
            return None
        if step.work < 0 and (hit := works.next_from(min(proofs) + 1)):
            step.work = hit[1]
        found = opens.next_from(min(proofs) + 1)
        if found is not None:
            step.forget_from(found[0])
        return found

    def _begin_work(self, step: OpenStep, works: Hits) -> bool:
        """Whether the step's work has begun; leaves out what stands before its lead."""
        return self._take_work(step, works, works.next_from(step.first.position, step.open_last))

    def _take_work(self, step: OpenStep, works: Hits, work: tuple[int, int] | None) -> bool:
        """Take this work or the first behind it that may be the step's; false for none."""
        while self.template.is_lead_work and work and not self._lead.stands_before(step, work[0]):
            work = works.next_from(work[0] + 1, work[1] + 1)
        if work is None:
            return False
        step.work = work[1]
        first = self._lead.first_of(step, work[0])
        if first > step.first.position:
            self._leave_out(first - step.first.position)
            step.first = self._held.op(first)
        return True

    def _leave_out(self, n_ops: int) -> None:
        """Count ops of the step in progress as of none."""
        if self.n_steps:
            self.n_between += n_ops
        else:
            self.n_before += n_ops

    def _end_step(self, step: OpenStep, following: OpAt | None, final_ns: int) -> StepSummary:
        until = self.position if following is None else following.position
        last = step.close or self._held.op(until - 1)
        first, next_start_ns = step.first.evidence, END_OF_TIME_NS
        end_ns = max(last.end_ns, last.evidence.start_ns)
        period_ns = gap_ns = 0
        if following is not None:
            next_start_ns = following.evidence.start_ns
            period_ns, gap_ns = next_start_ns - first.start_ns, next_start_ns - end_ns
        n_late, n_lost, n_changes = self.losses.take(first.start_ns, next_start_ns, final_ns)
        n_between = until - last.position - 1
        self.n_between += n_between
        self.n_steps += 1
        n_ops = last.position - step.first.position + 1
        self._cuts.append(Cut(step.first.position, n_ops))
        return StepSummary(
            session_id=self._identity.session_id, global_rank=self._identity.global_rank,
            step=self.n_steps - 1, template=self.template.name,
            template_version=self.template.version,
            template_file_version=self.template.file_version,
            first=first, last=last.evidence,
            anchor=None if step.anchor is None else step.anchor.evidence,
            start_ns=first.start_ns, end_ns=end_ns, span_ns=end_ns - first.start_ns,
            period_ns=period_ns, gap_ns=gap_ns, n_ops=n_ops,
            n_ops_between=n_between, first_seq=first.seq, last_seq=last.evidence.seq,
            end_proof=_proof(step, following),
            coverage_complete=bool(step.close and step.anchor) and not n_late + n_lost + n_changes,
            n_late=n_late, n_lost=n_lost,
        )  # fmt: skip

    # snapshot

    def snapshot(self) -> BoundarySnapshot:
        """The state between two batches."""
        return BoundarySnapshot(
            template=self.template, position=self.position, n_steps=self.n_steps,
            n_before=self.n_before, n_between=self.n_between, n_hits=list(self.n_hits),
            states=[matcher.states for matcher in self._matchers],
            tail=self._held.tail.tobytes(),
            step=None if self.step is None else msgspec.structs.replace(self.step),
            is_usual=self._lead.is_usual, phases=self._phases.snapshot(),
        )  # fmt: skip

    def restore(self, snapshot: BoundarySnapshot) -> None:
        """Continue from a snapshot of the same template."""
        self._held.restore(snapshot.position, snapshot.tail)
        self.n_steps, self._lead.is_usual = snapshot.n_steps, snapshot.is_usual
        self.n_before, self.n_between = snapshot.n_before, snapshot.n_between
        self.n_hits = list(snapshot.n_hits)
        for matcher, states in zip(self._matchers, snapshot.states, strict=True):
            matcher.restore(states)
        self._phases.restore(snapshot.phases)
        self.step = msgspec.structs.replace(snapshot.step) if snapshot.step else None


def _may_open_with_work(template: Template, coder: SymbolCoder) -> bool:
    """Whether work may be complete before the Open is whose ops it is among."""
    if template.is_work_behind:
        return False
    places = [np.arange(len(sequence)) < len(sequence) - 1 for sequence in template.opens]
    n_works = sum(map(len, template.works))
    in_open = coder.fits[:, : sum(map(len, places))][:, np.concatenate(places)]
    of_work = coder.fits[:, coder.fits.shape[1] - n_works :]
    return bool((in_open.any(axis=1) & of_work.any(axis=1)).any())


def _proof(step: OpenStep, following: OpAt | None) -> StepEnd:
    if step.close is not None:
        return StepEnd.CLOSE
    return StepEnd.EXPLICIT if following is None else StepEnd.NEXT_OPEN


def compiled(template: Template) -> tuple[SymbolCoder, tuple[AnyMatcher, ...]]:
    """One coder over all positions of the template, and a matcher each of Open, Anchor, Close and
    work."""
    groups = (template.opens, template.anchors, template.closes, template.works)
    coder = SymbolCoder(tuple(chain.from_iterable(chain.from_iterable(groups))))
    matchers = []
    column = 0
    for sequences in groups:
        fits = []
        for sequence in sequences:
            fits.append(coder.fits[:, column : column + len(sequence)])
            column += len(sequence)
        matchers.append(AnyMatcher(fits))
    return coder, tuple(matchers)
