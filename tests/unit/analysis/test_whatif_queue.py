"""Ops of one communicator behind each other, by hand: one rank, one step layout, several steps."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.batches import StepBatch, stack_steps
from comminsight.analysis.program import INFERRED, UNKNOWN_NS, StepProgram
from comminsight.analysis.replay import build_graph, replay
from comminsight.analysis.whatif_queue import queue_up

LINK = np.array([4, 4, 9])


def batch(starts: list[list[int]], ends: list[list[int]]) -> StepBatch:
    """One rank with three ops, of communicators 4, 4 and 9, each alone in its instance."""
    steps = []
    for start, end in zip(starts, ends, strict=True):
        n = len(start)
        steps.append(
            StepProgram(
                rank=np.zeros(n, np.int64),
                instance=np.arange(n),
                start_ns=np.array(start),
                end_ns=np.array(end),
                can_run_alone=np.zeros(n, bool),
                has_opaque_transfer=np.zeros(n, bool),
                has_opaque_work=np.zeros(n, bool),
                root_start_ns=np.full(n, UNKNOWN_NS),
                last_start_ns=np.array(start),
                bounds=np.array([0, n]),
                program=np.array([1]),
                entry_ns=np.array([0]),
                **dict.fromkeys(INFERRED, np.zeros(n, np.int64)),
            )
        )
    made = stack_steps(steps)[0]
    made.layout.gate[:] = 2
    made.transfer_ns[:] = made.end_ns - made.start_ns
    return made


def test_an_op_takes_its_own_time_from_when_the_one_before_is_over() -> None:
    made = batch([[0, 10, 20], [0, 200, 220]], [[100, 200, 50], [100, 300, 250]])
    before = queue_up(made, LINK, np.ones(3, bool))
    assert before.tolist() == [3, 0, 3]
    assert made.transfer_ns.tolist() == [[100, 100, 30], [100, 100, 30]]


@pytest.mark.parametrize(("second_end", "queues"), [(200, True), (105, False)])
def test_ops_that_ran_at_once_do_not_queue(second_end: int, queues: bool) -> None:
    made = batch(
        [[0, 10, 20], [0, 200, 220], [0, 200, 220]], [[100, second_end, 50]] + [[100, 300, 250]] * 2
    )
    before = queue_up(made, LINK, np.ones(3, bool))
    assert (before[1] == 0) == queues
    assert made.transfer_ns[0, 1] == (100 if queues else second_end - 10)


def test_ops_that_do_not_queue_by_nature_are_left_alone() -> None:
    made = batch([[0, 10, 20]], [[100, 200, 50]])
    assert queue_up(made, LINK, np.zeros(3, bool)).tolist() == [3, 3, 3]
    assert made.transfer_ns.tolist() == [[100, 190, 30]]


def test_replay_moves_the_second_op_up_only_as_far_as_the_first() -> None:
    made = batch([[0, 90, 220], [0, 200, 220]], [[100, 200, 250], [100, 300, 250]])
    before = queue_up(made, LINK, np.ones(3, bool))
    graph = build_graph(made.layout, before)
    work = np.zeros((graph.n_rows, 2), np.int64)
    work[:3] = [[0, 0], [90, 0], [130, 0]]  # as it was, and with everything called at once
    transfer = np.zeros_like(work)
    transfer[:3] = made.transfer_ns[0][:, None]
    _, end = replay(graph, np.zeros((1, 1), np.int64), work, transfer)
    assert end[:3].T.tolist() == [[100, 200, 250], [100, 200, 30]]
