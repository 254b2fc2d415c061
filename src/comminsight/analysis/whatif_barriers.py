"""Waits that no record shows: a barrier among the ranks of one program.

Between two ops lies own work, or a wait for what was not recorded: a barrier of another library, a
filtered op, another thread. One such wait can be told from the records: ranks of the same program
come to a place at very different times, and no matter which of them was last, none of them leaves
it before the last one came, the early ones right after it. Work does not do that: it would be as
long for an early rank as for the last.

Such a barrier is put into the steps as an op of its own, so that the wait shrinks with its cause.
What the last rank still worked before it entered cannot be told from what follows the barrier: the
ops behind one are marked, and their work is in the high bound of whoever may be the cause.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from comminsight.analysis.batches import StepBatch
from comminsight.analysis.program import INFERRED, UNKNOWN_NS, StepProgram
from comminsight.analysis.whatif_grid import Grid, LabelledStep, grids_of

MIN_STEPS = 5  # that must all agree
MIN_WAIT_RATIO = 0.5  # of the time at the place, for a rank that is not the last
MAX_SPREAD_RATIO = 0.5  # of leaving after the last one, over that of leaving after oneself
BARRIER = -1  # its link and its class of ops
_BARRIER = np.int64(0x5BD1E995)


def with_barriers(steps: Sequence[LabelledStep]) -> tuple[tuple[LabelledStep, ...], int]:
    """(the steps with the barriers found, on how many places of programs there is one)."""
    all_steps = grids_of(steps)
    batches, grids = all_steps.batches, all_steps.grids
    found = {
        g: places for g, grid in enumerate(grids) if len(places := barrier_places(batches, grid))
    }
    if not found:
        return tuple(steps), 0
    rows_of_batch: dict[int, list[np.ndarray]] = defaultdict(list)
    for g, places in found.items():
        for b, rows in grids[g].parts:
            rows_of_batch[b] += [rows[:, place] for place in places]
    changed = list(steps)
    for b, groups in rows_of_batch.items():
        for i, number in enumerate(batches[b].numbers.tolist()):
            base_ns = batches[b].start_ns[i] - batches[b].work_ns[i]
            changed[number] = _inserted(steps[number], base_ns, groups)
    return tuple(changed), sum(len(places) for places in found.values())


def barrier_places(batches: Sequence[StepBatch], grid: Grid) -> np.ndarray:
    """Places of the grid's program before which its ranks wait for each other, unrecorded."""
    start_ns = np.concatenate([batches[b].start_ns[:, rows] for b, rows in grid.parts])
    n_steps, n_ranks, _ = start_ns.shape
    if n_steps < MIN_STEPS or n_ranks < 2:
        return np.zeros(0, np.int64)
    work_ns = grid.work_ns
    base_ns = start_ns - work_ns
    came_ns = base_ns.max(axis=1, keepdims=True)
    after_ns, waited_ns = start_ns - came_ns, came_ns - base_ns
    never_before = (after_ns >= 0).all(axis=(0, 1))
    is_early = waited_ns > MIN_WAIT_RATIO * work_ns
    # in every step half of the ranks or more waited for most of their time there
    enough = np.count_nonzero(is_early, axis=1) * 2 >= n_ranks
    follows = _spread(after_ns, is_early) < MAX_SPREAD_RATIO * _spread(work_ns, is_early)
    is_opaque = [batches[b].layout.has_opaque_work[rows].any(axis=0) for b, rows in grid.parts]
    is_known = ~np.any(is_opaque, axis=0)
    places: np.ndarray = np.flatnonzero(never_before & enough.all(axis=0) & follows & is_known)
    return places


def behind_barriers(step: LabelledStep) -> np.ndarray:
    """Which ops ``(n_ops,)`` come right after a barrier that was put in."""
    is_barrier = step.op_class == BARRIER
    behind: np.ndarray = np.append(False, is_barrier[:-1])
    return behind


def _spread(values_ns: np.ndarray, is_early: np.ndarray) -> np.ndarray:
    """Spread over the steps, of the middle rank among those that were early in all of them."""
    early = is_early.all(axis=0)
    low, high = np.quantile(values_ns, (0.25, 0.75), axis=0)
    spread = np.where(early, high - low, np.nan)
    known = early.any(axis=0)
    result = np.full(values_ns.shape[2], np.inf)
    result[known] = np.nanmedian(spread[:, known], axis=0)
    return result


def _inserted(
    step: LabelledStep, base_ns: np.ndarray, groups: Sequence[np.ndarray]
) -> LabelledStep:
    """The step with one more op before each row of the groups, over when all rows of the group
    could have begun it."""
    program = step.program
    rows = np.concatenate(groups)
    group = np.repeat(np.arange(len(groups)), [len(own) for own in groups])
    came_ns = np.full(len(groups), UNKNOWN_NS)
    np.maximum.at(came_ns, group, base_ns[rows])
    order = np.argsort(rows, kind="stable")
    rows, group = rows[order], group[order]
    first = int(program.instance.max()) + 1
    values = {
        "rank": program.rank[rows],
        "instance": first + group,
        "start_ns": base_ns[rows],
        "end_ns": came_ns[group],
        "last_start_ns": came_ns[group],
        "root_start_ns": np.full(len(rows), UNKNOWN_NS),
        "can_run_alone": np.zeros(len(rows), bool),
        "has_opaque_transfer": np.zeros(len(rows), bool),
        "has_opaque_work": program.has_opaque_work[rows],
    }
    columns = {
        name: np.insert(np.array(getattr(program, name)), rows, value)
        for name, value in values.items()
    }
    n_ops = len(columns["rank"])
    longer = dataclasses.replace(
        program,
        **columns,
        bounds=np.searchsorted(columns["rank"], np.arange(len(program.bounds))),
        program=_renamed(program, rows),
        **dict.fromkeys(INFERRED, np.broadcast_to(np.int64(0), n_ops)),
    )
    return LabelledStep(
        longer,
        np.insert(step.link, rows, BARRIER),
        np.insert(step.op_class, rows, BARRIER),
        np.insert(step.is_queueing, rows, False),
    )


def _renamed(program: StepProgram, rows: np.ndarray) -> np.ndarray:
    """Programs with the same barriers at the same places stay equal."""
    names = program.program.copy()
    for row in rows.tolist():
        rank = int(program.rank[row])
        place = row - int(program.bounds[rank])
        names[rank] = hash((int(names[rank]), place, int(_BARRIER)))
    return names
