"""After which step an op hangs, and in which phase ops like it lay."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.stop_place import STEPS_ASKED, last_step, usual_phase
from comminsight.model.step import Phase, PhaseKind, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace
from comminsight.model.verdict import OpRef
from tests.builders import MS, Stream

FORWARD, BACKWARD, BUBBLE = PhaseKind.FORWARD, PhaseKind.BACKWARD, PhaseKind.BUBBLE
STEP_MS = 100


def trace_of(n_steps: int) -> RunTrace:
    """Rank 1: in each step an all_gather at 10 ms and all_reduces at 60 ms and 80 ms."""
    stream = Stream()
    for step in range(n_steps):
        at_ms = float(STEP_MS * step)
        stream.allgather(at_ms + 10, 2)
        stream.allreduce(at_ms + 60, 2)
        stream.allreduce(at_ms + 80, 2)
    rank = RankTrace(
        session=SessionIdentity(session_id="s", global_rank=1), ops=stream.batch(),
        comm_ids=np.array([-1, 7]),
    )  # fmt: skip
    return RunTrace(ranks=(rank,), communicators=(), steps={}, clocks=ClockOffsets(), world_size=2)


def op_of(name: str, match_seq: int = 0, comm_id: int = 7, **more: int) -> OpRef:
    """``match_seq`` 0 is of no step: only the kind of the op tells then."""
    return OpRef(comm_id=comm_id, comm_label="x", op=name, match_seq=match_seq, **more)


def steps_of(
    trace: RunTrace, n_steps: int, *phases: tuple[PhaseKind, int, int]
) -> list[AlignedStep]:
    begin_ns = int(trace.ranks[0].ops["start_ns"][0]) - 10 * MS
    made = []
    for number in range(n_steps):
        at_ns = begin_ns + number * STEP_MS * MS
        own = tuple(Phase(kind, at_ns + a * MS, at_ns + b * MS) for kind, a, b in phases)
        evidence = None
        summary = StepSummary(
            session_id="s", global_rank=1, step=number, template="t", template_version=1,
            template_file_version=1, first=evidence, last=evidence, start_ns=at_ns,
            end_ns=at_ns + 99 * MS, phases=own,
        )  # fmt: skip
        made.append(AlignedStep(number + 40, {1: summary}))
    return made


@pytest.mark.parametrize(
    ("phases", "op", "phase"),
    [
        ([(FORWARD, 0, 50), (BACKWARD, 50, 99)], "all_reduce", "backward"),
        ([(FORWARD, 0, 50), (BACKWARD, 50, 99)], "all_gather", "forward"),
        ([(FORWARD, 0, 70), (BACKWARD, 70, 99)], "all_reduce", ""),  # in two of them
        ([(BACKWARD, 50, 70)], "all_reduce", ""),  # one in none
        ([(BUBBLE, 0, 99)], "all_reduce", ""),  # what overlaps the others tells no place
        ([(BUBBLE, 0, 99), (BACKWARD, 50, 99)], "all_reduce", "backward"),
        ([], "all_reduce", ""),
        ([(BACKWARD, 0, 99)], "broadcast", ""),  # no such op in the steps
        ([(BACKWARD, 0, 99)], "no_op", ""),
    ],
)
def test_the_phase_is_that_of_all_ops_like_it(
    phases: list[tuple[PhaseKind, int, int]], op: str, phase: str
) -> None:
    trace = trace_of(4)
    assert usual_phase(trace, steps_of(trace, 4, *phases), 1, op_of(op)) == phase


def test_only_the_communicator_of_the_op_and_its_rank_count() -> None:
    trace = trace_of(4)
    steps = steps_of(trace, 4, (BACKWARD, 0, 99))
    assert usual_phase(trace, steps, 1, op_of("all_reduce", comm_id=6)) == ""
    assert usual_phase(trace, steps, 0, op_of("all_reduce")) == ""
    assert usual_phase(trace, [], 1, op_of("all_reduce")) == ""


def test_what_was_otherwise_long_ago_does_not_count() -> None:
    trace = trace_of(STEPS_ASKED + 1)
    steps = steps_of(trace, STEPS_ASKED + 1, (BACKWARD, 0, 99))
    first = steps[0].members[1]
    steps[0].members[1] = replace(first, phases=())
    assert usual_phase(trace, steps, 1, op_of("all_reduce")) == "backward"
    steps[1].members[1] = replace(steps[1].members[1], phases=())
    assert usual_phase(trace, steps, 1, op_of("all_reduce")) == ""


def test_the_last_step_is_that_of_the_first_rank_that_has_one() -> None:
    steps = steps_of(trace_of(3), 3)
    assert last_step(steps, (0, 1)) == (1, 42)
    assert last_step(steps, (0, 5)) is None
    assert last_step([], (1,)) is None


@pytest.mark.parametrize(
    ("place", "op", "phase"),
    [
        (0, "all_gather", "forward"),
        (1, "all_reduce", "forward"),
        (2, "all_reduce", "backward"),
        (1, "all_gather", ""),  # another op had this place
        (3, "all_reduce", ""),  # beyond the step: one of a kind that lies in two phases
        (-1, "all_reduce", ""),
    ],
)
def test_the_place_in_the_step_tells_where_the_kind_does_not(
    place: int, op: str, phase: str
) -> None:
    trace = trace_of(5)
    steps = steps_of(trace, 5, (FORWARD, 0, 70), (BACKWARD, 70, 99))
    next_step = 5 * 3 + 1  # three collectives a step, counted from 1
    assert usual_phase(trace, steps, 1, op_of(op, next_step + place)) == phase


def test_a_place_is_counted_only_where_steps_make_as_many_collectives() -> None:
    trace = trace_of(5)
    steps = steps_of(trace, 5, (FORWARD, 0, 70), (BACKWARD, 70, 99))
    more = trace.ranks[0].ops.copy()
    more["match_seq"][9:] += 1  # one more collective in the third step, of which no record is left
    assert usual_phase(with_ops(trace, more), steps, 1, op_of("all_reduce", 19)) == ""
    few = steps_of(trace, 5, (FORWARD, 0, 70), (BACKWARD, 70, 99))[-STEPS_ASKED:]
    assert usual_phase(trace, few, 1, op_of("all_reduce", 18)) == ""
    for other in ({"peer": 1}, {"sender": 0}, {"is_replay": True}):
        assert usual_phase(trace, steps, 1, op_of("all_reduce", 18, **other)) == ""


def with_ops(trace: RunTrace, ops: np.ndarray) -> RunTrace:
    (rank,) = trace.ranks
    return dataclasses.replace(trace, ranks=(dataclasses.replace(rank, ops=ops),))
