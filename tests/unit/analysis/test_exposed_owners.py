"""Shares of exposed time against a grid of instants: they add up, whatever the calls."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.analysis.call_gates import DOUBTS, KNOWN, CallGates
from comminsight.analysis.exposed import exposed_ops, exposed_ranks
from comminsight.analysis.exposed_owners import (
    below_ns,
    call_shares,
    owners,
    parts,
    streams,
)
from comminsight.analysis.exposure import exposures
from comminsight.analysis.intervals import length_ns, united
from comminsight.analysis.op_owners import with_owners
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import OwnerDoubt, OwnerKind
from comminsight.model.ops import Op
from tests.builders.activities import T0, US, comm, compute

GRID = 40
TIMES = st.tuples(st.integers(0, GRID - 1), st.integers(1, 12))
CALLS = st.lists(
    st.tuples(TIMES, st.integers(0, 1), st.integers(0, 1), st.integers(0, GRID), st.integers(0, 3)),
    min_size=1, max_size=8,
)  # fmt: skip
COMPUTE = st.lists(st.tuples(TIMES, st.integers(0, 1), st.integers(0, 1)), max_size=5)
LATE_RANK = 7


def laid_out(
    calls: list[tuple[tuple[int, int], int, int, int, int]],
) -> tuple[list[Activity], CallGates]:
    """Calls of (begin, length), rank and step, with a gate and who was awaited: 0 nobody, 1 a rank,
    2 and 3 unknown."""
    made = [
        comm(rank, Op.ALL_REDUCE, begin, length, step=step, phase=f"p{who}")
        for (begin, length), rank, step, _, who in calls
    ]
    who = np.array([one[4] for one in calls])
    gate_ns = T0 + np.array([one[3] for one in calls]) * US
    gate_ns = np.where(who == 0, np.array([one.start_ns for one in made]), gate_ns)
    return made, CallGates(
        gate_ns=gate_ns,
        alone_ns=gate_ns - 2 * US,
        late_rank=np.where(who == 1, LATE_RANK, -1),
        late_row=np.full(len(calls), -1),
        doubt=np.where(who > 1, DOUBTS.index(OwnerDoubt.DEPENDS), KNOWN),
    )


def grid_sums(
    made: list[Activity], gates: CallGates, every: list[Activity]
) -> dict[tuple[str, int], int]:
    """(what, row) -> ns, instant by instant."""
    sums: dict[tuple[str, int], int] = {}
    for place in {(one.global_rank, one.step) for one in made}:
        own = [n for n, one in enumerate(made) if (one.global_rank, one.step) == place]
        for at in range(GRID + 12):
            now = T0 + at * US
            if any(
                a.kind is ActivityKind.COMPUTE and a.global_rank == place[0]
                and a.start_ns <= now < a.end_ns
                for a in every
            ):  # fmt: skip
                continue
            running = [n for n in own if made[n].start_ns <= now < made[n].end_ns]
            if running:
                last = max(running, key=lambda n: (made[n].end_ns, -made[n].start_ns, -n))
                is_waiting = now < int(gates.gate_ns[last])
                key = ("wait" if is_waiting else "move", last)
                sums[key] = sums.get(key, 0) + US
                if is_waiting and now >= int(gates.alone_ns[last]):
                    sums["alone", last] = sums.get(("alone", last), 0) + US
    return sums


@given(CALLS, COMPUTE)
@settings(deadline=None)
def test_shares_are_those_of_the_grid_and_add_up(
    calls: list[tuple[tuple[int, int], int, int, int, int]],
    busy: list[tuple[tuple[int, int], int, int]],
) -> None:
    made, gates = laid_out(calls)
    every = [*made, *(compute(rank, *span, step=step) for span, rank, step in busy)]
    found = exposures(every)
    shares = call_shares(made, gates, found)
    expected = grid_sums(made, gates, every)
    for name, column in (
        ("wait", shares.wait_ns), ("move", shares.move_ns), ("alone", shares.alone_ns),
    ):  # fmt: skip
        assert column.tolist() == [expected.get((name, n), 0) for n in range(len(made))], name
    exposed_ns = sum(one.exposed_ns for one in exposed_ranks(every, found))
    owned = owners(made, gates, shares)
    assert sum(one.exposed_ns for one in owned) == exposed_ns
    assert sum(one.exposed_ns for one in parts([one.phase for one in made], shares)) == exposed_ns
    classes = [(one.op, one.comm_label) for one in made]
    for op in with_owners(exposed_ops(every, found), made, classes, gates, found):
        unknown_ns = op.exposed_ns - op.late_ns - op.transfer_ns
        assert unknown_ns >= 0
        assert unknown_ns == sum(
            shares.wait_ns[n] for n in range(len(made)) if gates.doubt[n] != KNOWN
        )
        assert (op.late_rank == LATE_RANK) == (op.late_ns > 0)
    for one in owned:
        assert 0 <= one.alone_ns <= one.exposed_ns
        assert (one.global_rank >= 0) == (one.kind is OwnerKind.LATE)
        assert (one.doubt is not None) == (one.kind is OwnerKind.UNKNOWN)


@given(st.lists(TIMES, max_size=6), st.lists(st.integers(-3, GRID + 15), min_size=1, max_size=6))
def test_what_lies_below_is_what_a_grid_counts(spans: list[tuple[int, int]], at: list[int]) -> None:
    rows = np.array([(a, a + n) for a, n in spans], np.int64).reshape(-1, 2)
    grid = np.zeros(GRID + 20, bool)
    for begin, end in rows:
        grid[begin:end] = True
    found = below_ns(united(rows), np.array(at))
    assert found.tolist() == [int(grid[: max(0, one)].sum()) for one in at]


def test_the_one_that_ends_last_has_the_time() -> None:
    made = [comm(0, Op.ALL_REDUCE, 0, 10), comm(0, Op.ALL_GATHER, 4, 10, stream=2)]
    start = np.array([one.start_ns for one in made])
    nobody = np.full(2, -1)
    gates = CallGates(start, start, nobody, nobody, np.full(2, KNOWN))
    shares = call_shares(made, gates, exposures(made))
    assert (shares.move_ns // US).tolist() == [4, 10]


def test_streams_count_each_instant_once() -> None:
    every = [
        compute(0, 0, 10, stream=7), compute(0, 5, 10, stream=7), comm(0, Op.ALL_REDUCE, 10, 20),
        comm(0, Op.ALL_REDUCE, 40, 5), compute(1, 0, 100, stream=7),
    ]  # fmt: skip
    found = streams(every, exposures(every))
    assert [(one.global_rank, one.stream, one.n_intervals) for one in found] == [
        (0, 1, 2), (0, 7, 1), (1, 7, 1),
    ]  # fmt: skip
    assert (found[0].communication_ns, found[0].exposed_ns) == (25 * US, 20 * US)
    assert [one.compute_ns for one in found] == [0, 15 * US, 100 * US]


def test_the_worst_calls_say_for_whom_they_waited() -> None:
    made = [comm(0, Op.ALL_REDUCE, 0, 50), comm(0, Op.ALL_REDUCE, 60, 20)]
    every = [*made, compute(0, 0, 10)]
    gates = CallGates(
        gate_ns=np.array([made[0].start_ns + 30 * US, made[1].end_ns]),
        alone_ns=np.zeros(2, np.int64),
        late_rank=np.array([3, -1]),
        late_row=np.array([-1, -1]),
        doubt=np.array([KNOWN, DOUBTS.index(OwnerDoubt.CLOCKS)]),
    )
    found = exposures(every)
    classes = [(one.op, one.comm_label) for one in made]
    (op,) = with_owners(exposed_ops(every, found), made, classes, gates, found)
    first, second = op.exposed_calls
    assert (first.late_rank, first.late_ns, first.doubt) == (3, 20 * US, None)
    assert (op.late_rank, op.late_ns, op.transfer_ns) == (3, 20 * US, 20 * US)
    assert op.exposed_ns == 60 * US  # of the second call nothing is known
    assert (second.late_rank, second.late_ns, second.doubt) == (-1, 0, OwnerDoubt.CLOCKS)


def test_nothing_exposed_has_no_owner() -> None:
    every = [comm(0, Op.ALL_REDUCE, 0, 5), compute(0, 0, 10)]
    found = exposures(every)
    start = np.array([every[0].start_ns])
    nobody = np.full(1, -1)
    gates = CallGates(start, start, nobody, nobody, np.full(1, KNOWN))
    assert owners(every[:1], gates, call_shares(every[:1], gates, found)) == ()
    assert length_ns(found[0].communication) == 5 * US
