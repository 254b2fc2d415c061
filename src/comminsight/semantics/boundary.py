"""The boundary machine: Open, Anchor and Close become steps.

    outside ──Open──► open ──Anchor or Close──► proved ──Open──► open …
                                                      └ emits the step that ends here

Only after an Anchor or Close of its own may the next Open end a step, so an Open-like sequence in
the middle of a large step does not split it. Close seen: the step ends at Close, and the ops up
to the next Open are counted *between*. Close lost but Anchor seen: it ends at the last op before
the next Open. The first completion of Anchor and of Close counts; an op that failed completes none.

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

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import P2P_OPS, OpFlag, OpState
from comminsight.model.step import StepEnd, StepEvidence, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.losses import LossLog
from comminsight.semantics.matcher import AnyMatcher, Hits
from comminsight.semantics.phases import Cut, PhaseSnapshot, PhaseTrace
from comminsight.semantics.symbols import SymbolCoder, columns_of
from comminsight.semantics.template import Template

END_OF_TIME_NS = 1 << 62
_GRAPH = int(OpFlag.GRAPH)  # plain: a flag enumeration answers slowly
_IS_FAILED = np.isin(np.arange(256), (OpState.FAILED, OpState.ABORTED))
# a view of the record with the few fields that evidence needs, in the order in which `_op` reads
_EVIDENCE_DTYPE = OP_DTYPE[[
    "seq", "start_ns", "end_ns", "size_bytes", "comm_index", "peer_or_root", "op_seq", "match_seq",
    "func_seq", "flags", "op",
]]  # fmt: skip


class OpAt(msgspec.Struct, frozen=True):
    """An op of the committed stream: its position, what it proves, and its end."""

    position: int
    evidence: StepEvidence
    end_ns: int


class OpenStep(msgspec.Struct, kw_only=True):
    """The step in progress."""

    first: OpAt
    open_last: int
    anchor: OpAt | None = None
    close: OpAt | None = None

    def forget_from(self, position: int) -> None:
        """Drop an Anchor or Close found at or after a position: it is the next step's."""
        if self.anchor is not None and self.anchor.position >= position:
            self.anchor = None
        if self.close is not None and self.close.position >= position:
            self.close = None


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
    phases: PhaseSnapshot


class BoundaryMachine:
    """Steps of one session under one resolved template."""

    def __init__(
        self, template: Template, identity: SessionIdentity, comms: CommTable, losses: LossLog
    ) -> None:
        self.template = template
        self.step: OpenStep | None = None
        self.position = 0
        self.n_steps = 0
        self.n_before = 0  # ops before the first Open
        self.n_between = 0  # ops after a Close and before the next Open
        self.n_hits = [0, 0, 0]
        self.losses = losses
        self._identity, self._comms = identity, comms
        self._coder, self._matchers = _compile(template)
        self._n_tail = max(matcher.max_length for matcher in self._matchers) + 1
        self._tail = np.empty(0, OP_DTYPE)
        self._seen: dict[int, OpAt] = {}  # of this batch: one op may be First, Anchor and Close
        self._phases = PhaseTrace(comms, self._n_tail, is_iteration=template.is_iteration)
        self._cuts: list[Cut] = []  # of the steps of this batch

    def feed(self, rows: np.ndarray) -> list[StepSummary]:
        """Steps that became final with these committed ops (``OP_DTYPE``, in time order)."""
        if not len(rows):
            return []
        columns = columns_of(rows, self._comms)
        classes = self._coder.encode(rows, self._comms, columns)
        self._seen.clear()
        hits = [matcher.feed(classes, self.position) for matcher in self._matchers]
        failed = np.flatnonzero(_IS_FAILED.take(rows["state"]))
        if len(failed):  # it proves nothing: the step did not get behind it
            hits[1:] = [found.without(failed + self.position) for found in hits[1:]]
        for kind, found in enumerate(hits):
            self.n_hits[kind] += len(found)
        self._phases.feed(rows, columns)
        steps = self._with_phases(list(self._walk(rows.view(_EVIDENCE_DTYPE), *hits)))
        self.position += len(rows)
        joined = rows if len(rows) >= self._n_tail else np.concatenate([self._tail, rows])
        self._tail = joined[-self._n_tail :].copy()
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
        last = self._end_step(step, np.empty(0, _EVIDENCE_DTYPE), None, END_OF_TIME_NS)
        return self._with_phases([last])

    @property
    def is_proved(self) -> bool:
        """Whether an explicit end would emit the step in progress."""
        step = self.step
        if step is None:
            return False
        return bool(step.close or (step.anchor and self.template.is_anchor_proof))

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

    def _with_phases(self, steps: list[StepSummary]) -> list[StepSummary]:
        self._phases.close(steps, self._cuts)
        self._cuts.clear()
        return steps

    # the walk from Open to Open

    def _walk(
        self, rows: np.ndarray, opens: Hits, anchors: Hits, closes: Hits
    ) -> Iterator[StepSummary]:
        if self.step is None:
            found = opens.next_from(0)
            if found is None:
                return
            self.n_before = found[0]
            self.step = OpenStep(first=self._op(rows, found[0]), open_last=found[1])
        while (found := self._next_open(rows, self.step, opens, anchors, closes)) is not None:
            following = self._op(rows, found[0])
            final_ns = self._op(rows, found[1]).evidence.start_ns
            yield self._end_step(self.step, rows, following, final_ns)
            self.step = OpenStep(first=following, open_last=found[1])

    def _next_open(
        self, rows: np.ndarray, step: OpenStep, opens: Hits, anchors: Hits, closes: Hits
    ) -> tuple[int, int] | None:
        """The Open that ends the step; notes the step's Anchor and Close on the way."""
        is_inside = self.template.is_close_inside_open
        least = step.first.position if is_inside else step.open_last + 1
        if step.anchor is None and (hit := anchors.next_from(least, step.open_last)):
            step.anchor = self._op(rows, hit[1])
        if step.close is None and (hit := closes.next_from(least, step.open_last)):
            step.close = self._op(rows, hit[1])
        proofs = [op.position for op in (step.anchor, step.close) if op is not None]
        if not proofs:
            return None
        found = opens.next_from(min(proofs) + 1)
        if found is not None:
            step.forget_from(found[0])
        return found

    def _end_step(
        self, step: OpenStep, rows: np.ndarray, following: OpAt | None, final_ns: int
    ) -> StepSummary:
        until = self.position if following is None else following.position
        last = step.close or self._op(rows, until - 1)
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

    def _op(self, rows: np.ndarray, position: int) -> OpAt:
        """The op at a position of this batch or of the tail before it."""
        if position in self._seen:
            return self._seen[position]
        index = position - self.position
        if index < 0:
            rows = self._tail.view(_EVIDENCE_DTYPE)
        (seq, start_ns, end_ns, size_bytes, comm_index, peer_or_root, op_seq, match_seq, func_seq,
         flags, op) = rows.item(index)  # fmt: skip
        evidence = StepEvidence(
            comm_hash=self._comms.hashes.get(comm_index, 0), comm_index=comm_index,
            role=self._comms.role(comm_index), op=op, op_seq=op_seq, match_seq=match_seq,
            func_seq=func_seq, size_bytes=size_bytes, start_ns=start_ns, seq=seq,
            peer=peer_or_root if op in P2P_OPS else -1, is_replay=bool(flags & _GRAPH),
        )  # fmt: skip
        self._seen[position] = found = OpAt(position, evidence, end_ns)
        return found

    # snapshot

    def snapshot(self) -> BoundarySnapshot:
        """The state between two batches."""
        return BoundarySnapshot(
            template=self.template, position=self.position, n_steps=self.n_steps,
            n_before=self.n_before, n_between=self.n_between, n_hits=list(self.n_hits),
            states=[matcher.states for matcher in self._matchers],
            tail=self._tail.tobytes(),
            step=None if self.step is None else msgspec.structs.replace(self.step),
            phases=self._phases.snapshot(),
        )  # fmt: skip

    def restore(self, snapshot: BoundarySnapshot) -> None:
        """Continue from a snapshot of the same template."""
        self.position, self.n_steps = snapshot.position, snapshot.n_steps
        self.n_before, self.n_between = snapshot.n_before, snapshot.n_between
        self.n_hits = list(snapshot.n_hits)
        for matcher, states in zip(self._matchers, snapshot.states, strict=True):
            matcher.restore(states)
        self._tail = np.frombuffer(snapshot.tail, OP_DTYPE)
        self._phases.restore(snapshot.phases)
        self.step = msgspec.structs.replace(snapshot.step) if snapshot.step else None


def _proof(step: OpenStep, following: OpAt | None) -> StepEnd:
    if step.close is not None:
        return StepEnd.CLOSE
    return StepEnd.EXPLICIT if following is None else StepEnd.NEXT_OPEN


def _compile(template: Template) -> tuple[SymbolCoder, tuple[AnyMatcher, AnyMatcher, AnyMatcher]]:
    """One coder over all positions of the template, and a matcher per kind of boundary."""
    groups = (template.opens, template.anchors, template.closes)
    coder = SymbolCoder(tuple(chain.from_iterable(chain.from_iterable(groups))))
    matchers = []
    column = 0
    for sequences in groups:
        fits = []
        for sequence in sequences:
            fits.append(coder.fits[:, column : column + len(sequence)])
            column += len(sequence)
        matchers.append(AnyMatcher(fits))
    return coder, (matchers[0], matchers[1], matchers[2])
