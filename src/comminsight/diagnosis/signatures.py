"""Members of one op instance that disagree on what it is.

Compared are operation, form, element type, root and size at equal ``match_seq``, replays of
captured graphs with replays, of members that are in it and of those for whom it is over. Sizes may
differ legally where the call allows uneven parts (all-to-all, gather, scatter, an all-gather into a
list), and a receive may be posted for more than is sent. A list of tensors and one flat tensor do
meet where all else is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from comminsight.analysis.call_alignment import UNEVEN, form_of, needed_count
from comminsight.diagnosis.presence import Instance
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause

_ROOTED = frozenset({Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER})


@dataclass(frozen=True, slots=True)
class Mismatch:
    """``groups`` are the ranks that agree, the largest group first; ``is_tied`` when no group is
    larger than the others, so that nobody can be called wrong."""

    cause: Cause
    instance: Instance
    groups: tuple[tuple[int, ...], ...]

    @property
    def is_tied(self) -> bool:
        """True when there is no majority."""
        return len(self.groups[0]) == len(self.groups[1])

    @property
    def culprits(self) -> tuple[int, ...]:
        """The minority; everybody when there is no majority."""
        wrong = self.groups if self.is_tied else self.groups[1:]
        return tuple(sorted(rank for group in wrong for rank in group))


def first_mismatch(instances: Iterable[Instance]) -> Mismatch | None:
    """The oldest instance whose members disagree."""
    for instance in instances:
        for cause, signature, is_comparable in _CHECKS:
            if is_comparable(instance):
                groups = _groups(instance, signature)
                if len(groups) > 1:
                    return Mismatch(cause, instance, groups)
    return None


def _groups(
    instance: Instance, signature: Callable[[InFlightOp], int | str]
) -> tuple[tuple[int, ...], ...]:
    by_value: dict[int | str, list[int]] = {}
    for op in (*instance.ops, *instance.finished):
        by_value.setdefault(signature(op), []).append(op.global_rank)
    sized = sorted(by_value.values(), key=lambda ranks: (-len(ranks), min(ranks)))
    return tuple(tuple(sorted(ranks)) for ranks in sized)


def _is_collective(instance: Instance) -> bool:
    return not instance.key.is_p2p


def _has_known_types(instance: Instance) -> bool:
    return all(op.dtype for op in (*instance.ops, *instance.finished))


def _is_rooted(instance: Instance) -> bool:
    return _is_collective(instance) and all(
        op.op in _ROOTED for op in (*instance.ops, *instance.finished)
    )


def _is_even(instance: Instance) -> bool:
    ops = Counter(op.op for op in (*instance.ops, *instance.finished))
    return _is_collective(instance) and not any(op in UNEVEN for op in ops)


def _has_unlike_forms(instance: Instance) -> bool:
    """True when the form of each call is known, and they do not agree on anything else either."""
    ops = (*instance.ops, *instance.finished)
    is_known = _is_collective(instance) and all(form_of(op.call) for op in ops)
    return is_known and len({(op.dtype, op.count) for op in ops}) > 1


def _size(op: InFlightOp) -> int:
    """Bytes that have to be as many on all members; elements of what is gathered, where known."""
    count = needed_count(op.op, op.count, op.out_count)
    return op.size_bytes if count == op.count else count


_CHECKS: tuple[tuple[Cause, Callable[[InFlightOp], int | str], Callable[[Instance], bool]], ...] = (
    (Cause.OP_TYPE_MISMATCH, lambda op: op.op, _is_collective),
    (Cause.OP_TYPE_MISMATCH, lambda op: form_of(op.call), _has_unlike_forms),
    (Cause.DTYPE_MISMATCH, lambda op: op.dtype, _has_known_types),
    (Cause.ROOT_MISMATCH, lambda op: op.peer, _is_rooted),
    (Cause.SHAPE_MISMATCH, _size, _is_even),
)
