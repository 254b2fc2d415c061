"""The lead of a step: its ops from the Open up to the first work, as counts by kind.

An evaluation plays the ops of forward passes, so it looks like the beginning of the step that
follows it. The lead tells them apart: what stands directly before the work is as many ops of the
same kinds as in other steps, and what stands before that is no training, because it holds a kind
of op that no lead has, or the kinds of a lead in other proportions. Further microbatches have the
same proportions, and nothing is said of them. Where a job goes over to more microbatches that may
look like an evaluation all the same: proportions tell behind an ordinary step only.

A kind is role, op and direction, and for ops of a fixed size whether it carries numbers or data.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import msgspec
import numpy as np

from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.held_ops import HeldOps, OpAt
from comminsight.semantics.symbols import (
    IS_OF_FIXED_SIZE,
    PEERS,
    SymbolCoder,
    columns_of,
    directions,
)
from comminsight.semantics.template import Template

Counts = tuple[tuple[int, int], ...]  # (kind, ops) in ascending order of kinds
_NUMBERS_BYTES = 64  # up to here numbers, beyond it data
# a lead and as many ops of further microbatches differ by what a step has once: of a kind, and
# altogether
_MAX_APART = 2
_LEAST_APART = 1.5
_SHARE_APART = 0.1  # of the lead; of a long one more may differ


class OpenStep(msgspec.Struct, kw_only=True):
    """The step in progress. ``work`` is the position of its work, -1 for none yet; ``gone`` counts
    its ops before ``gone_until``, which are held no longer."""

    first: OpAt
    open_last: int
    anchor: OpAt | None = None
    close: OpAt | None = None
    work: int = -1
    gone: Counts = ()
    gone_until: int = 0

    def forget_from(self, position: int) -> None:
        """Drop what was found at or after a position: it is the next step's."""
        if self.work >= position:
            self.work = -1
        if self.anchor is not None and self.anchor.position >= position:
            self.anchor = None
        if self.close is not None and self.close.position >= position:
            self.close = None


class Excess(IntEnum):
    """What stands before a lead: more of the same, its kinds in other proportions, or others."""

    ALIKE = 0
    UNLIKE = 1
    FOREIGN = 2


def kinds(rows: np.ndarray, comms: CommTable) -> np.ndarray:
    """Kind of each op (u4)."""
    columns = columns_of(rows, comms)
    codes = columns.role_op.astype(np.uint32) * len(PEERS)
    codes += directions(rows, columns.comm, comms)
    codes *= 2
    codes += IS_OF_FIXED_SIZE.take(rows["op"]) & (rows["size_bytes"] <= _NUMBERS_BYTES)
    return codes


def counted(codes: np.ndarray) -> Counts:
    """How many ops of each kind."""
    found, n_ops = np.unique(codes, return_counts=True)
    return tuple(zip(found.tolist(), n_ops.tolist(), strict=True))


def total(counts: Counts) -> int:
    """How many ops of all kinds."""
    return sum(n_ops for _, n_ops in counts)


def merged(one: Counts, other: Counts) -> Counts:
    """The counts of both together."""
    return tuple(sorted((Counter(dict(one)) + Counter(dict(other))).items()))


def has_kinds(one: Counts, *, of: Counts) -> bool:
    """Whether one has every kind of the other."""
    return {kind for kind, _ in of} <= {kind for kind, _ in one}


def has_same_kinds(one: Counts, other: Counts) -> bool:
    """Whether both have the same kinds, in whatever numbers."""
    return has_kinds(one, of=other) and has_kinds(other, of=one)


def compare(excess: Counts, lead: Counts) -> Excess:
    """What the ops before a lead are to it."""
    if not has_kinds(lead, of=excess):
        return Excess.FOREIGN
    found, usual = dict(excess), dict(lead)
    scale = total(lead) / total(excess)
    apart = [abs(n_ops - found.get(kind, 0) * scale) for kind, n_ops in usual.items()]
    is_little = sum(apart) <= max(_LEAST_APART, _SHARE_APART * total(lead))
    return Excess.ALIKE if is_little and max(apart) <= _MAX_APART else Excess.UNLIKE


class LeadWatch:
    """Where a step begins, told when its work does. ``is_usual``: the newest step's lead was as
    long as it mostly is, or longer by what is foreign to it."""

    __slots__ = ("_coder", "_comms", "_held", "_template", "is_usual", "n_ops")

    def __init__(
        self, template: Template, coder: SymbolCoder, comms: CommTable, held: HeldOps
    ) -> None:
        self.is_usual = True  # no step was before it that had fewer microbatches
        self.n_ops = total(template.lead)
        self._template, self._coder, self._comms, self._held = template, coder, comms, held

    def first_of(self, step: OpenStep, work: int) -> int:
        """Position of the first op of the step, whose work begins at ``work``."""
        opened, first = step.first.position, work - self.n_ops
        if not self.n_ops or first <= opened:
            self.is_usual = first == opened
            return opened
        found = self._excess(step, work)
        is_out = found is Excess.FOREIGN or (found is Excess.UNLIKE and self.is_usual)
        self.is_usual = found is Excess.FOREIGN
        return first if is_out else opened

    def n_needed(self, step: OpenStep | None, until: int) -> int:
        """How many of the ops before a position the lead of the step in progress may need."""
        if step is None or not self.n_ops or step.work >= 0:
            return 0
        return min(self.n_ops, until - step.first.position)

    def count_gone(self, step: OpenStep, until: int) -> None:
        """Count the ops before a position: they will not be held any more."""
        first = max(step.first.position, step.gone_until)
        if self.n_ops and step.work < 0 and first < until:
            codes = kinds(self._held.between(first, until), self._comms)
            step.gone, step.gone_until = merged(step.gone, counted(codes)), until

    def stands_before(self, step: OpenStep, end: int) -> bool:
        """Whether what the step has before an end is a lead at its end, or ops of the kinds of one
        in whatever numbers."""
        held = self._from_first(step, end)
        n_ops = end - step.first.position
        if n_ops > self.n_ops and self._is_beginning(held):
            return True
        whole = merged(step.gone, counted(kinds(held, self._comms)))
        return has_same_kinds(whole, self._template.lead)

    def _excess(self, step: OpenStep, work: int) -> Excess:
        """What stands before the lead of this work; more of the same if that is none."""
        held = self._from_first(step, work)
        if not self._is_beginning(held):
            return Excess.ALIKE
        codes = kinds(held[: -self.n_ops], self._comms)
        return compare(merged(step.gone, counted(codes)), self._template.lead)

    def _from_first(self, step: OpenStep, until: int) -> np.ndarray:
        """The ops of the step before a position, but those that are gone."""
        return self._held.between(max(step.first.position, step.gone_until), until)

    def _is_beginning(self, held: np.ndarray) -> bool:
        """Whether the last of these ops are a lead, with an Open at its beginning."""
        rows = held[-self.n_ops :]
        return counted(kinds(rows, self._comms)) == self._template.lead and self._is_open(rows)

    def _is_open(self, rows: np.ndarray) -> bool:
        """Whether an Open begins with the first of these ops."""
        column = 0
        for sequence in self._template.opens:
            n = len(sequence)
            classes = self._coder.encode(rows[:n], self._comms)
            if len(classes) == n and self._coder.fits[classes, np.arange(column, column + n)].all():
                return True
            column += n
        return False
