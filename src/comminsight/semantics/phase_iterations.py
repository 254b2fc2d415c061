"""Prefill or decode: what an iteration of a serving job did, from the sizes of two of its ops.

An iteration reduces an activation per token and gathers the logits of a row per sequence. A decode
has one token per sequence, so that all decodes have exactly the same ratio of these two sizes, the
smallest of all, whatever the batch; tokens of a prompt have no row but the last. The ratio is
learnt from the first iterations: it must be common, at more than one batch size, and iterations
with a ratio many times as large must be there too. From then on

- DECODE is an iteration of exactly this ratio with no more rows than sequences can be running
  (those of the decode before it, and the rows of what came between) and at least half as many, or
  as few as the one before,
- PREFILL is one of a many times larger ratio and size that has the logits of a single sequence: a
  prompt and decodes in one iteration are at least two. A row is told where sizes vary enough.

Everything else is not told: several prompts or prompts mixed with decodes, batches padded to a size
that was captured, several tokens of each sequence verified at once, another model's iterations
(draft and target have unlike numbers of ops). More rows than there can be sequences are a prompt
whose logits are all asked for: once that is clear, nothing is told any more.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import gcd
from typing import NamedTuple

import msgspec

from comminsight.model.ops import CommRole, Op
from comminsight.model.step import PhaseKind, StepSummary

_LEARN_EVERY, _MAX_SAMPLES = 16, 256  # iterations
_MIN_DECODES, _MIN_DECODE_RATIO = 8, 0.25  # so many, and of the model's iterations
_MIN_PROMPTS = 2
_MIN_SIZES = 3  # that tell what one row is
_MIN_MODEL_RATIO = 0.75  # iterations of one model: with the same number of ops
_FACTOR = 4  # between decodes and prompts, by ratio and by size
_MAX_RATIO = 2  # activation of a token to its logits: a prompt of fixed length has more
_MAX_GROWN = 3  # batches of decodes with more rows than sequences
_STRANGE_GROWTH = 2  # of a batch that no prompts explain
_UNBOUNDED = 1 << 62
_TENSOR, _REDUCED = CommRole.TP.value, int(Op.ALL_REDUCE)  # plain: enumerations answer slowly
_GATHERED = frozenset({int(Op.ALL_GATHER), int(Op.GATHER)})


class Iteration(NamedTuple):
    """Bytes of the first reduction and of the gathered logits, and the number of ops."""

    in_bytes: int
    out_bytes: int
    n_ops: int

    @property
    def ratio(self) -> Fraction:
        """Bytes reduced per byte of logits."""
        return Fraction(self.in_bytes, self.out_bytes)


class Running(msgspec.Struct, array_like=True):
    """How many sequences can be running, in bytes of their logits."""

    bound_bytes: int = _UNBOUNDED
    n_grown: int = 0  # supposed decodes with more rows than that
    was_low: bool = False

    def holds(self, out_bytes: int) -> bool:
        """Whether a supposed decode with these logits can be one; counts those that cannot."""
        if out_bytes > self.bound_bytes:
            self.n_grown += _MAX_GROWN if out_bytes > _STRANGE_GROWTH * self.bound_bytes else 1
            return False
        is_low = self.bound_bytes < _UNBOUNDED and 2 * out_bytes < self.bound_bytes
        if is_low and not self.was_low:  # one after the other ends; the last token of a prompt
            self.bound_bytes += out_bytes
            self.was_low = True
            return False
        self.bound_bytes, self.was_low = out_bytes, False
        return True

    def add(self, out_bytes: int) -> None:
        """Other iterations may begin a sequence per row."""
        self.bound_bytes = min(_UNBOUNDED, self.bound_bytes + out_bytes)
        self.was_low = False

    @property
    def is_refuted(self) -> bool:
        """Whether supposed decodes must be something else."""
        return self.n_grown >= _MAX_GROWN


class IterationRule(msgspec.Struct, frozen=True, array_like=True):
    """What was learnt: the ratio of decodes, their number of ops, the logits of one row (0 where
    that is not known)."""

    in_bytes: int
    out_bytes: int
    n_ops: int
    row_bytes: int

    def is_decode(self, one: Iteration) -> bool:
        """Whether the sizes are those of a decode."""
        is_equal = one.in_bytes * self.out_bytes == one.out_bytes * self.in_bytes
        return is_equal and one.n_ops == self.n_ops

    def is_prompt(self, one: Iteration) -> bool:
        """Whether most tokens have no logits."""
        is_large = one.in_bytes * self.out_bytes >= _FACTOR * one.out_bytes * self.in_bytes
        return is_large and one.n_ops == self.n_ops


class IterationSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state between two steps."""

    samples: list[tuple[int, int, int]]
    rule: IterationRule | None
    largest_bytes: int
    running: Running


class IterationKinds:
    """Takes every iteration of a session in order, and tells its kind where that is known."""

    def __init__(self) -> None:
        self._samples: list[Iteration] = []
        self._rule: IterationRule | None = None
        self._largest_bytes = 0  # reduced by a decode so far
        self._running = Running()

    def kind_of(self, step: StepSummary) -> PhaseKind | None:
        """PREFILL, DECODE or None for unknown; the step lost no records."""
        one = _iteration(step)
        if one is None or self._running.is_refuted:
            return None
        if self._rule is None:
            self._learn(one)
            return None
        return self._told(self._rule, one)

    def skip(self) -> None:
        """An iteration of which records were lost: any number of sequences may be running."""
        self._samples = []
        self._running.add(_UNBOUNDED)

    def _told(self, rule: IterationRule, one: Iteration) -> PhaseKind | None:
        if rule.row_bytes and one.out_bytes % rule.row_bytes:  # it is no row, then
            self._rule = rule = msgspec.structs.replace(rule, row_bytes=0)
        if rule.is_decode(one):
            if not self._running.holds(one.out_bytes):
                return None
            self._largest_bytes = max(self._largest_bytes, one.in_bytes)
            return PhaseKind.DECODE
        self._running.add(one.out_bytes)
        is_large = rule.is_prompt(one) and one.in_bytes >= _FACTOR * self._largest_bytes
        return PhaseKind.PREFILL if is_large and one.out_bytes == rule.row_bytes else None

    def _learn(self, one: Iteration) -> None:
        self._samples.append(one)
        if len(self._samples) % _LEARN_EVERY:
            return
        rule = learnt(self._samples)
        if rule is not None:
            running = _running(rule, self._samples)
            if not running.is_refuted:
                self._rule, self._running = rule, running
                self._largest_bytes = max(
                    own.in_bytes for own in self._samples if rule.is_decode(own)
                )
        if self._rule is not None or len(self._samples) >= _MAX_SAMPLES:
            self._samples = []

    # snapshot

    def snapshot(self) -> IterationSnapshot:
        """The state between two steps."""
        return IterationSnapshot(
            [(own.in_bytes, own.out_bytes, own.n_ops) for own in self._samples],
            self._rule, self._largest_bytes, msgspec.structs.replace(self._running),
        )  # fmt: skip

    def restore(self, snapshot: IterationSnapshot) -> None:
        """Continue from a snapshot."""
        self._samples = [Iteration(*own) for own in snapshot.samples]
        self._rule, self._largest_bytes = snapshot.rule, snapshot.largest_bytes
        self._running = msgspec.structs.replace(snapshot.running)


def learnt(samples: list[Iteration]) -> IterationRule | None:
    """What decodes look like, or None where these iterations do not tell it."""
    n_ops, n_alike = Counter(own.n_ops for own in samples).most_common(1)[0]
    if n_alike < _MIN_MODEL_RATIO * len(samples):
        return None
    of_model = [own for own in samples if own.n_ops == n_ops]
    ratio = min(own.ratio for own in of_model)
    decodes = [own for own in of_model if own.ratio == ratio]
    prompts = [own for own in of_model if own.ratio >= _FACTOR * ratio]
    is_common = len(decodes) >= max(_MIN_DECODES, _MIN_DECODE_RATIO * len(of_model))
    has_sizes = len({own.in_bytes for own in decodes}) > 1  # else a budget of tokens may be filled
    if not is_common or not has_sizes or len(prompts) < _MIN_PROMPTS or ratio > _MAX_RATIO:
        return None
    row_bytes = _row_bytes(of_model, decodes, prompts)
    return IterationRule(decodes[0].in_bytes, decodes[0].out_bytes, n_ops, row_bytes)


def _running(rule: IterationRule, samples: list[Iteration]) -> Running:
    """Sequences that can be running behind these iterations."""
    running = Running()
    for own in samples:
        if rule.is_decode(own):
            running.holds(own.out_bytes)
        else:
            running.add(own.out_bytes)
    return running


def _row_bytes(
    of_model: list[Iteration], decodes: list[Iteration], prompts: list[Iteration]
) -> int:
    """Logits of one sequence: the smallest size, if all are multiples of it and so is what the
    tokens of prompts reduce, at enough sizes of each; else 0."""
    row_bytes = gcd(*(own.out_bytes for own in of_model))
    token = decodes[0].ratio * row_bytes
    is_whole = all((own.in_bytes / token).denominator == 1 for own in prompts)
    n_sizes = min(len({own.in_bytes for own in some}) for some in (decodes, prompts))
    is_seen = min(own.out_bytes for own in of_model) == row_bytes
    return row_bytes if is_whole and is_seen and n_sizes >= _MIN_SIZES else 0


def _iteration(step: StepSummary) -> Iteration | None:
    first, last = step.first, step.last
    is_told = first.role == last.role == _TENSOR and first.op == _REDUCED and last.op in _GATHERED
    if not is_told or first.size_bytes <= 0 or last.size_bytes <= 0:
        return None
    return Iteration(first.size_bytes, last.size_bytes, step.n_ops)
