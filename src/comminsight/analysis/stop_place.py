"""Where in the training an op stands that did not end: after which step, and in which phase.

An op in flight is in no step: its step has not closed. What is known is the last whole step of
its rank before it, and in which phase the ops like it lay in the steps before. They tell the phase
only where all of them lay in one of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.model.ops import Op
from comminsight.model.step import Phase, PhaseKind, StepSummary
from comminsight.model.trace import RankTrace, RunTrace

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


def usual_phase(
    trace: RunTrace, aligned: Sequence[AlignedStep], rank: int, comm_id: int, op: str
) -> str:
    """The kind of phase that every op of this name and communicator lay in during the last steps of
    the rank; "" where there were none, no phases, or phases of several kinds."""
    own = next((one for one in trace.ranks if one.global_rank == rank), None)
    windows = [step.members[rank] for step in aligned if rank in step.members][-STEPS_ASKED:]
    if own is None or op.upper() not in Op.__members__:
        return ""
    kinds = {kind for window in windows for kind in _kinds(own, window, comm_id, Op[op.upper()])}
    return kinds.pop() if len(kinds) == 1 else ""


def _kinds(rank: RankTrace, window: StepSummary, comm_id: int, op: Op) -> set[str]:
    """Phases of the ops like it in one step; "" stands for an op in none."""
    bounds = np.searchsorted(rank.ops["start_ns"], (window.start_ns, window.end_ns))
    rows = rank.ops[bounds[0] : bounds[1]]
    rows = rows[(rows["op"] == op) & (rank.comm_ids_of(rows["comm_index"]) == comm_id)]
    phases = [phase for phase in window.phases if phase.kind in _FOLLOWING]
    return {_kind_at(phases, int(start_ns)) for start_ns in rows["start_ns"]}


def _kind_at(phases: Sequence[Phase], at_ns: int) -> str:
    return next((p.kind.value for p in phases if p.start_ns <= at_ns < p.end_ns), "")
