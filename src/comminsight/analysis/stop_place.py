"""Where in the training an op stands that did not end: after which step, and in which phase.

An op in flight is in no step: its step has not closed. What is known is the last whole step of
its rank before it, and in which phase the ops of its place lay in the steps before. Its place is
counted where every step made as many collectives of its communicator; else all ops of its kind
stand for it. They tell the phase only where all of them lay in one of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.model.ops import Op, RecordKind
from comminsight.model.step import Phase, PhaseKind, StepSummary
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import OpRef

STEPS_ASKED = 3  # the last whole steps, whose ops tell the phase
# what overlaps these kinds says nothing of where the rank was in its program
_FOLLOWING = frozenset(
    {PhaseKind.FORWARD, PhaseKind.BACKWARD, PhaseKind.OPTIMIZER, PhaseKind.PREFILL}
)


def last_step(aligned: Sequence[AlignedStep], ranks: Sequence[int]) -> tuple[int, int] | None:
    """(global rank, number) of the newest step of the first of ``ranks`` that has one."""
    for rank in ranks:
        own = [step.step for step in aligned if rank in step.members]
        if own:
            return rank, own[-1]
    return None


def usual_phase(trace: RunTrace, aligned: Sequence[AlignedStep], rank: int, op: OpRef) -> str:
    """The kind of phase that ops of the place of ``op`` lay in during the last steps of the rank;
    "" where there were none, no phases, or phases of several kinds."""
    own = next((one for one in trace.ranks if one.global_rank == rank), None)
    windows = [step.members[rank] for step in aligned if rank in step.members]
    if own is None or op.op.upper() not in Op.__members__:
        return ""
    rows = own.ops[own.comm_ids_of(own.ops["comm_index"]) == op.comm_id]
    asked = windows[-STEPS_ASKED:]
    kinds = set(_kinds_at_place(rows, windows[-STEPS_ASKED - 1 :], op))
    kinds = kinds or {kind for window in asked for kind in _kinds_of_all(rows, window, op)}
    return kinds.pop() if len(kinds) == 1 else ""


def _kinds_at_place(rows: np.ndarray, windows: Sequence[StepSummary], op: OpRef) -> Iterator[str]:
    """Phases of the op of the same place in each step; nothing where places cannot be counted."""
    if op.peer >= 0 or op.sender >= 0 or op.is_replay or len(windows) < STEPS_ASKED + 1:
        return
    rows = rows[rows["kind"] == RecordKind.COLLECTIVE]
    at = np.searchsorted(rows["start_ns"], [window.start_ns for window in windows])
    if at[-1] >= len(rows):
        return
    firsts = rows["match_seq"][at].astype(np.int64)
    per_step = {int(after - before) for before, after in pairwise(firsts)}
    n_ops = per_step.pop()
    place = op.match_seq - int(firsts[-1]) - n_ops
    if per_step or not 0 <= place < n_ops:
        return
    for first, window in zip(firsts[:-1], windows[:-1], strict=True):
        found = rows[rows["match_seq"] == first + place]
        if len(found) != 1 or found["op"][0] != Op[op.op.upper()]:
            yield ""
        else:
            yield _kind_at(_following(window), int(found["start_ns"][0]))


def _kinds_of_all(rows: np.ndarray, window: StepSummary, op: OpRef) -> Iterator[str]:
    """Phases of all ops of this name in one step; "" stands for an op in none."""
    begin, end = np.searchsorted(rows["start_ns"], (window.start_ns, window.end_ns))
    inside = rows[begin:end]
    starts = inside["start_ns"][inside["op"] == Op[op.op.upper()]]
    yield from (_kind_at(_following(window), int(start_ns)) for start_ns in starts)


def _following(window: StepSummary) -> list[Phase]:
    return [phase for phase in window.phases if phase.kind in _FOLLOWING]


def _kind_at(phases: Sequence[Phase], at_ns: int) -> str:
    return next((p.kind.value for p in phases if p.start_ns <= at_ns < p.end_ns), "")
