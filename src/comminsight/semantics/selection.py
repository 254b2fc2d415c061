"""Choosing the template of a session from its first ops, with a reason for each that lost.

A template fits when every required sequence occurred, no forbidden one did, and a trial over the
ops seen so far produced steps. Of those that fit the highest priority wins; a lower one has to
wait while a higher one lacks nothing but steps, until ``patience_ops`` have been seen. A template
with ``patience_ops`` of its own wins after as many ops, or when the input ends; one that pauses may
refute, after as many steps as show a period of up to 16, or so many ops that more are not awaited.
What it found must look neither like parts of a step (``parts``, ``pauses``) nor like several steps
(``rounds``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from comminsight.model.step import StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.model.views import TemplateScore
from comminsight.semantics.boundary import BoundaryMachine
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.learn import resolve
from comminsight.semantics.learn_close import MIN_BLOCKS, MIN_BLOCKS_AT_END, TOO_FEW_STEPS
from comminsight.semantics.losses import LossLog
from comminsight.semantics.matcher import Matcher
from comminsight.semantics.parts import LOOK_LIKE_PARTS, blocks_of, content_period
from comminsight.semantics.pauses import pause_period
from comminsight.semantics.rounds import LOOK_LIKE_SEVERAL, look_like_several
from comminsight.semantics.symbols import Columns, SymbolCoder, columns_of
from comminsight.semantics.template import Sequence, Template, sequence_label
from comminsight.semantics.topology import topology_faults

REASON_CHOSEN = ""
REASON_OUTRANKED = "outranked"
REASON_WAITING = "waits_for_higher_priority"
REASON_MISSING = "required_missing"
REASON_FORBIDDEN = "forbidden_seen"
REASON_NO_STEPS = "no_steps"
REASON_TOO_FEW_OPS = "too_few_ops"
REASON_TOPOLOGY = "topology_not_met"
REASON_GROUPS = "groups_not_seen"
_TOPOLOGY_REASONS = {REASON_TOPOLOGY, REASON_GROUPS}
_NEVER_AGAIN = {REASON_FORBIDDEN, REASON_TOPOLOGY}
_MAY_STILL_COME = {REASON_NO_STEPS, REASON_TOO_FEW_OPS, TOO_FEW_STEPS}
_LEARNING_STEPS = 8  # by then one with an anchor in every step has learnt what it needs
_ROLE_OPS = 1024  # what these do not tell of a role, more will hardly tell
_MAX_LEARNING_OPS = 98_304  # within what a session holds at most
_PAUSED_STEPS = 64  # of a template that pauses may refute: four rounds of 16 microbatches
_PAUSED_OPS = 8192  # more are not waited for

# (reason, labels of the sequences at fault); the reason is empty when all is well
_Fault = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class Trial:
    """One template tried on the held ops; ``machine`` has consumed them all."""

    template: Template
    reason: str
    missing: tuple[str, ...] = ()
    machine: BoundaryMachine | None = None
    steps: list[StepSummary] = field(default_factory=list)
    n_ops: int = 0
    is_end: bool = False
    n_parts: int = 0

    @property
    def is_learning(self) -> bool:
        """It has seen its anchor, and takes more steps to know what follows it."""
        return self.reason == TOO_FEW_STEPS and not self.is_end

    @property
    def lacks_only_steps(self) -> bool:
        """Nothing speaks against the template yet."""
        return self.reason in _MAY_STILL_COME

    @property
    def lacks_topology(self) -> bool:
        """The job's layout is not the one that the template presupposes, or not yet."""
        return self.reason in _TOPOLOGY_REASONS

    @property
    def can_never_fit(self) -> bool:
        """What speaks against the template has happened, and more ops cannot undo it."""
        return self.reason in _NEVER_AGAIN

    def score(self) -> TemplateScore:
        """The row of the score table."""
        machine = self.machine
        n_open, n_anchor, n_close = (0, 0, 0) if machine is None else machine.n_hits
        covered = 0 if machine is None else machine.n_in_steps
        return TemplateScore(
            template=self.template.name, version=self.template.version,
            priority=self.template.priority, is_chosen=self.reason == REASON_CHOSEN,
            n_open=n_open, n_anchor=n_anchor, n_close=n_close, n_steps=len(self.steps),
            covered_ops_ratio=covered / self.n_ops if self.n_ops else 0.0,
            reason=self.reason, missing_symbols=self.missing, n_ops=self.n_ops,
            n_parts=self.n_parts,
        )  # fmt: skip


def select(trials: list[Trial], *, may_wait: bool, has_open_roles: bool = False) -> Trial | None:
    """The winner, or None; sets the reason of every trial that fitted but lost.

    With ``has_open_roles`` (communicators that no name tells and too few ops to infer them) the
    first ops decide nothing.
    """
    fitting = [trial for trial in trials if trial.reason == REASON_CHOSEN]
    if not fitting:
        return None
    winner = max(fitting, key=lambda t: (t.template.priority, len(t.steps), t.template.name))
    unproven = [t for t in trials if t.lacks_only_steps]
    must_wait = may_wait and any(t.template.priority > winner.template.priority for t in unproven)
    must_wait |= may_wait and has_open_roles and winner.n_ops < _ROLE_OPS
    must_wait |= _has_fewer_steps_than_it_takes(winner) and any(
        t.is_learning and t.template.priority > winner.template.priority for t in trials
    )
    for trial in fitting:
        if must_wait:
            trial.reason = REASON_WAITING
        elif trial is not winner:
            trial.reason = REASON_OUTRANKED
    return None if must_wait else winner


def _has_fewer_steps_than_it_takes(trial: Trial) -> bool:
    """Whether a template that learns may still lack steps only because they are long."""
    return len(trial.steps) < _LEARNING_STEPS and trial.n_ops < _MAX_LEARNING_OPS


class Judge:
    """All templates of a session, compiled once as far as they need no learning."""

    def __init__(self, templates: tuple[Template, ...], identity: SessionIdentity) -> None:
        self._templates = templates
        self._identity = identity
        self._conditions = [_Conditions(template) for template in templates]

    def try_all(
        self, rows: np.ndarray, comms: CommTable, losses: LossLog, *, min_steps: int, is_end: bool
    ) -> list[Trial]:
        """A trial per template over all ops held so far."""
        columns = columns_of(rows, comms)
        faults = [conditions.check(rows, comms, columns) for conditions in self._conditions]
        return [
            self._try(template, fault, rows, comms, losses, min_steps=min_steps, is_end=is_end)
            for template, fault in zip(self._templates, faults, strict=True)
        ]

    def _try(
        self, template: Template, fault: _Fault, rows: np.ndarray, comms: CommTable,
        losses: LossLog, *, min_steps: int, is_end: bool,
    ) -> Trial:  # fmt: skip
        reason, missing = fault
        if not reason:
            reason, missing = _topology_reason(template, rows, comms)
        if reason:
            return Trial(template=template, reason=reason, missing=missing, n_ops=len(rows))
        resolved = resolve(template, rows, comms, MIN_BLOCKS_AT_END if is_end else MIN_BLOCKS)
        if isinstance(resolved, str):
            return Trial(template=template, reason=resolved, n_ops=len(rows), is_end=is_end)
        own_losses = LossLog(losses.snapshot())
        machine = BoundaryMachine(resolved, self._identity, comms, own_losses)
        steps = machine.feed(rows)
        n_steps = len(steps) + int(is_end and machine.is_proved)
        reason = REASON_CHOSEN if n_steps >= min_steps else REASON_NO_STEPS
        n_parts = 0 if reason else _n_parts(resolved, steps, rows, comms)
        if n_parts:
            reason = LOOK_LIKE_PARTS
        elif not reason and resolved.is_refuted_by_pauses and look_like_several(steps, rows):
            reason = LOOK_LIKE_SEVERAL
        elif not reason and not is_end and _is_early(resolved, len(steps), len(rows)):
            reason = REASON_TOO_FEW_OPS
        return Trial(
            template=resolved, reason=reason, machine=machine, steps=steps, n_ops=len(rows),
            n_parts=n_parts,
        )  # fmt: skip


def _n_parts(
    template: Template, steps: list[StepSummary], rows: np.ndarray, comms: CommTable
) -> int:
    """How many of the found steps are one, by what they hold and by the pauses between them; 0
    where nothing speaks against one each. One's own template that says its close is believed."""
    is_said = not template.learn and not template.is_refuted_by_pauses and not template.is_iteration
    blocks = None if is_said else blocks_of(steps, rows, comms)
    if blocks is None:
        return 0
    n_parts = content_period(blocks, is_iteration=template.is_iteration)
    return n_parts or (pause_period(blocks) if template.is_refuted_by_pauses else 0)


def _is_early(template: Template, n_steps: int, n_ops: int) -> bool:
    """Whether more ops may still refute the template."""
    if n_ops < template.patience_ops:
        return True
    return template.is_refuted_by_pauses and n_steps < _PAUSED_STEPS and n_ops < _PAUSED_OPS


def _topology_reason(template: Template, rows: np.ndarray, comms: CommTable) -> _Fault:
    broken, not_seen = topology_faults(template.topology, rows, comms)
    if broken:
        return REASON_TOPOLOGY, broken
    return (REASON_GROUPS, not_seen) if not_seen else ("", ())


class _Conditions:
    """``requires`` and ``forbids`` of a template."""

    def __init__(self, template: Template) -> None:
        self._sequences = (*template.requires, *template.forbids)
        self._n_required = len(template.requires)
        positions = tuple(position for sequence in self._sequences for position in sequence)
        self._coder = SymbolCoder(positions) if positions else None
        fits = np.empty((0, 0)) if self._coder is None else self._coder.fits
        ends = list(accumulate(map(len, self._sequences), initial=0))
        self._matchers = [Matcher(fits[:, first:end]) for first, end in pairwise(ends)]

    def check(self, rows: np.ndarray, comms: CommTable, columns: Columns) -> _Fault:
        """What speaks against the template in these ops, all that there are."""
        if self._coder is None:
            return "", ()
        classes = self._coder.encode(rows, comms, columns)
        occurs = []
        for matcher in self._matchers:
            matcher.state = 0
            occurs.append(len(matcher.feed(classes)) > 0)
        required = self._labels(0, self._n_required, occurs, wanted=True)
        if required:
            return REASON_MISSING, required
        forbidden = self._labels(self._n_required, len(occurs), occurs, wanted=False)
        return (REASON_FORBIDDEN, forbidden) if forbidden else ("", ())

    def _labels(
        self, first: int, last: int, occurs: list[bool], *, wanted: bool
    ) -> tuple[str, ...]:
        at_fault: list[Sequence] = [
            self._sequences[i] for i in range(first, last) if occurs[i] is not wanted
        ]
        return tuple(sequence_label(sequence) for sequence in at_fault)
