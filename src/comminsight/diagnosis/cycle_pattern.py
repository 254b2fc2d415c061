"""Who of the ranks of a circle does not do what it did in every repetition before."""

from __future__ import annotations

from collections.abc import Sequence

from comminsight.analysis.call_alignment import Pattern, pattern_of, signature
from comminsight.diagnosis.presence import WANTED, Instance, Observed
from comminsight.diagnosis.waitfor import CycleEdge
from comminsight.model.call_history import CallHistory


def off_pattern(observed: Observed, cycle: Sequence[CycleEdge]) -> tuple[int, Pattern] | None:
    """The one rank that is in another op than its own pattern of calls goes on with, where all the
    others of the circle keep to theirs; None where any rank's calls do not tell."""
    histories = {one.global_rank: one for one in observed.event.histories}
    broken: dict[int, Pattern] = {}
    for edge in cycle:
        history = histories.get(edge.waiter)
        told = None if history is None else _kept(history, edge.instance)
        if told is None:
            return None
        pattern, is_kept = told
        if not is_kept:
            broken[edge.waiter] = pattern
    return next(iter(broken.items())) if len(broken) == 1 else None


def _kept(history: CallHistory, instance: Instance) -> tuple[Pattern, bool] | None:
    """The pattern of the calls before the op, and whether the op goes on with it; None without
    one, and for an op that is not of the pattern."""
    place = (instance.key.comm_id, instance.key.match_seq)
    numbers = [(call.comm_id, call.match_seq) for call in history.calls]
    if instance.key.is_p2p or instance.key.is_replay or place not in numbers:
        return None
    signatures = [signature(call) for call in history.calls[: numbers.index(place) + 1]]
    pattern = pattern_of(signatures[:-1])
    is_broken = None if pattern is None else pattern.is_broken_by(signatures[-1])
    return None if pattern is None or is_broken is None else (pattern, not is_broken)


def first_use(observed: Observed, cycle: Sequence[CycleEdge]) -> tuple[CycleEdge, ...]:
    """The edges of a circle into a group that those waited for never used, where all other groups
    of the circle had been used by all of their members before; () otherwise.

    In the other ops of the circle most members must be missing: where most have come, the few that
    have not are in the new group too early.
    """
    first = tuple(edge for edge in cycle if edge.instance.key.match_seq == 1)
    never = tuple(edge for edge in first if not _has_used(observed, edge))
    others = [edge.instance for edge in cycle if edge not in first]
    are_few = all(len(one.waiters) < len(one.ranks(*WANTED)) for one in others)
    return never if never == first and first and others and are_few else ()


def _has_used(observed: Observed, edge: CycleEdge) -> bool:
    progress = observed.progress(edge.waited_for, edge.instance.key)
    return progress is not None and progress.last_entered > 0


def have_called_all(cycle: Sequence[CycleEdge]) -> bool:
    """True for two collectives that all ranks of the circle have called, each behind another."""
    instances = [edge.instance for edge in cycle]
    ranks = {edge.waiter for edge in cycle}
    is_two = len({one.key for one in instances}) == 2
    return is_two and all(
        not one.key.is_p2p and ranks <= {op.global_rank for op in one.ops} for one in instances
    )
