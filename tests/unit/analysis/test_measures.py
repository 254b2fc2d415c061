import dataclasses

import numpy as np
import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measures import (
    coordinates,
    excluded_steps,
    mean_over_complete,
    run_sources,
    step_instances,
    straggler_measures,
)
from comminsight.analysis.waits import PairSums
from comminsight.model.ops import CommRole
from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import ClockOffsets, RunTrace
from comminsight.sim import (
    LateRank,
    LostRecords,
    ddp_layout,
    megatron_core_layout,
    megatron_layout,
    run_trace,
    simulate,
)

MS = 1_000_000


def ddp(**changes: object) -> RunTrace:
    fault = LateRank(rank=2, extra_ns=20 * MS)
    trace = run_trace(simulate(ddp_layout(4), steps=5, seed=2, faults=[fault]))
    return dataclasses.replace(trace, **changes)  # type: ignore[arg-type]


def with_incomplete(trace: RunTrace, rank: int, step: int) -> RunTrace:
    session = trace.ranks[rank].session.session_id
    steps = list(trace.steps[session])
    fields = {name: getattr(steps[step], name) for name in steps[step].__struct_fields__}
    steps[step] = StepSummary(**fields | {"coverage_complete": False})
    return dataclasses.replace(trace, steps=trace.steps | {session: tuple(steps)})


def test_shapes_and_names() -> None:
    found = straggler_measures(ddp())
    assert found.steps.tolist() == [0, 1, 2, 3, 4]
    assert found.global_ranks.tolist() == [0, 1, 2, 3]
    assert found.hosts == ("node0",) * 4
    assert found.is_complete.all()
    assert (found.n_unpaired, found.n_incomplete, found.n_mismatched) == (0, 0, 0)
    assert found.index_pct.argmax(axis=1).tolist() == [2] * 5
    assert found.waited_ns.argmin(axis=1).tolist() == [2] * 5


def test_an_incomplete_rank_leaves_pairs_and_mean() -> None:
    trace = with_incomplete(ddp(), rank=2, step=3)
    found, whole = straggler_measures(trace), straggler_measures(ddp())
    assert excluded_steps(found) == {2: (3,)}
    assert found.index_pct[3, 2] == found.span_ns[3, 2] == found.step_cost_ns[3, 2] == 0
    assert found.waited_ns[3].max() < whole.waited_ns[3, [0, 1, 3]].min()  # nobody late is left
    mean = mean_over_complete(found.index_pct, found.is_complete)
    assert mean[2] == pytest.approx(whole.index_pct[[0, 1, 2, 4], 2].mean())


def test_the_sweep_is_an_argument() -> None:
    def fixed(rank: np.ndarray, instance: np.ndarray, start: np.ndarray, n: int) -> PairSums:
        assert rank.shape == instance.shape == start.shape
        return PairSums(np.full(n, 3 * MS), np.full(n, 3))

    found = straggler_measures(ddp(), sweep=fixed)
    assert found.caused_wait_ns.tolist() == [[MS] * 4] * 5


def test_lost_records_are_counted_as_incomplete_instances() -> None:
    run = simulate(ddp_layout(4), steps=5, seed=2, faults=[LostRecords(rank=1, burst=(8, 3))])
    assert straggler_measures(run_trace(run)).n_incomplete == 3


def test_clocks_are_found_from_the_collectives_when_none_are_given() -> None:
    layout = dataclasses.replace(ddp_layout(4), ranks_per_node=2)
    trace = run_trace(simulate(layout, steps=8, seed=4))
    found = straggler_measures(dataclasses.replace(trace, clocks=ClockOffsets()))
    exact = straggler_measures(trace)
    assert exact.clock_error_ns == 0
    assert 0 < found.clock_error_ns < MS
    difference = np.abs(found.caused_wait_ns - exact.caused_wait_ns)
    assert difference.max() <= found.clock_error_ns * 10


def test_raw_time_states_how_far_it_is_from_the_aligned_one() -> None:
    layout = dataclasses.replace(ddp_layout(4), ranks_per_node=2)
    trace = run_trace(simulate(layout, steps=4, seed=4))
    raw = straggler_measures(trace, "raw")
    assert raw.steps.tolist() == [0, 1, 2, 3]
    assert raw.clock_error_ns < MS  # these wall clocks are exact


def test_the_entry_of_a_step_is_the_last_end_before_it() -> None:
    trace = ddp()
    run, steps = run_sources(trace), align_steps(trace)
    _, at_first = step_instances(run, steps[0])
    _, later = step_instances(run, steps[1])
    assert (at_first == np.iinfo(np.int64).min).all()
    ends = [s.end_ns for s in steps[0].members.values()]
    offsets = [trace.clocks.offset_ns[r.session.boot_id] for r in trace.ranks]
    assert later.tolist() == [end + off for end, off in zip(ends, offsets, strict=True)]


def test_a_run_without_steps_has_empty_measures() -> None:
    found = straggler_measures(ddp(steps={}))
    assert found.index_pct.shape == found.step_cost_ns.shape == (0, 4)


def test_coordinates_come_from_the_groups() -> None:
    trace = run_trace(simulate(megatron_layout(2, 2, 1), steps=1, seed=0))
    assert coordinates([0, 3], trace.communicators)[1].startswith("tp1 pp1")
    plain = Communicator(comm_id=0, comm_hash=1, ordinal=0, role=CommRole.UNKNOWN, members=(0, 1))
    assert coordinates([0], [plain]) == ("",)


def test_context_parallel_ranks_are_not_counted_as_data_parallel_too() -> None:
    trace = run_trace(simulate(megatron_core_layout(1, 1, 4, cp=2), steps=1, seed=0))
    assert coordinates([0, 3], trace.communicators) == ("cp0 dp0", "cp1 dp1")


def test_instances_across_clocks_that_cannot_be_compared_are_counted() -> None:
    layout = dataclasses.replace(megatron_layout(1, 2, 1), ranks_per_node=1)
    trace = run_trace(simulate(layout, steps=3, seed=5))
    boots = [rank.session.boot_id for rank in trace.ranks]
    alone = straggler_measures(dataclasses.replace(trace, clocks=ClockOffsets({boots[0]: 0})))
    assert straggler_measures(trace).n_incomparable == 0
    shared = [set(r.comm_ids[r.ops["comm_index"]].tolist()) for r in trace.ranks]
    across = np.isin(trace.ranks[0].comm_ids[trace.ranks[0].ops["comm_index"]], list(shared[1]))
    assert alone.n_incomparable == np.count_nonzero(across) > 0
    assert alone.index_pct.max() == alone.waited_ns.max() == 0
