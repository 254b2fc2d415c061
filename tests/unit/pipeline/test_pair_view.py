"""One rank's pairs over the steps of a run."""

import dataclasses

import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measures import run_sources, step_instances
from comminsight.analysis.waits import pairs_of
from comminsight.diagnosis import codes
from comminsight.errors import InputError
from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.trace import ClockOffsets
from comminsight.pipeline.pair_view import rank_pairs
from comminsight.sim import LateRank, SimLayout, ddp_layout, megatron_layout, run_trace, simulate

MS = 1_000_000


def played(layout: SimLayout, *faults, steps=6):
    trace = run_trace(simulate(layout, steps=steps, seed=7, faults=list(faults)))
    return trace, align_steps(trace)


def pairs(trace, aligned, rank, **more):
    return rank_pairs(trace, aligned, run_id="run-1", global_rank=rank, **more)


@pytest.mark.parametrize("n_ranks", [4, 13])
def test_the_late_rank_is_who_made_the_others_wait(n_ranks):
    trace, aligned = played(ddp_layout(n_ranks), LateRank(rank=2, extra_ns=50 * MS))
    for rank in range(n_ranks):
        view = pairs(trace, aligned, rank)
        assert (view.n_steps, view.n_incomplete) == (6, 0)
        if rank != 2:
            assert view.culprits[0].global_rank == 2
            assert 0.8 * 50 * MS < view.culprits[0].wait_ns / 6 < 1.3 * 50 * MS
            assert view.culprits[0].n_steps == 6
            assert view.culprits[0].parts[0].op == "all_reduce"
        else:
            assert (view.n_culprits, view.culprits) == (0, ())
            assert view.n_victims == n_ranks - 1
            assert len(view.victims) == min(n_ranks - 1, 10)


def test_both_sides_of_a_pair_tell_the_same():
    trace, aligned = played(megatron_layout(2, 2, 2), LateRank(rank=5, extra_ns=9 * MS))
    views = {rank: pairs(trace, aligned, rank) for rank in range(8)}
    caused = {(r, v.global_rank): v.wait_ns for r in views for v in views[r].victims}
    suffered = {(c.global_rank, r): c.wait_ns for r in views for c in views[r].culprits}
    assert caused == suffered
    assert len(caused) > 8


def test_one_step_is_what_its_instances_give_and_all_are_the_sum():
    trace, aligned = played(megatron_layout(2, 2, 2))
    run, sums = run_sources(trace), dict.fromkeys(range(8), 0)
    for step in aligned:
        found, _ = step_instances(run, step)
        expected = pairs_of(found, 3)
        view = pairs(trace, aligned, 3, step=step.step)
        assert [(one.global_rank, one.wait_ns) for one in view.culprits] == [
            (one.rank, one.net_ns) for one in expected.culprits
        ]
        assert [sum(part.wait_ns for part in one.parts) for one in view.victims] == [
            sum(wait_ns for _, _, wait_ns in one.parts) for one in expected.victims
        ]
        for one in view.culprits:
            sums[one.global_rank] += one.wait_ns
    whole = pairs(trace, aligned, 3)
    assert {one.global_rank: one.wait_ns for one in whole.culprits} == {
        rank: wait_ns for rank, wait_ns in sums.items() if wait_ns
    }


def test_steps_with_missing_records_are_left_out():
    trace, aligned = played(ddp_layout(4), LateRank(rank=2, extra_ns=50 * MS))
    lossy = [dataclasses.replace(one, members=dict(one.members)) for one in aligned]
    own = lossy[1].members[0]
    fields = {name: getattr(own, name) for name in own.__struct_fields__}
    lossy[1].members[0] = type(own)(**fields | {"coverage_complete": False})
    view = pairs(trace, lossy, 0)
    assert (view.n_steps, view.n_incomplete) == (5, 1)
    alone = pairs(trace, lossy, 0, step=aligned[1].step)
    assert (alone.n_steps, alone.n_incomplete, alone.culprits) == (0, 1, ())
    # and it is nobody's partner there
    other = pairs(trace, lossy, 2, step=aligned[1].step)
    assert sorted(one.global_rank for one in other.victims) == [1, 3]


def test_nothing_is_told_where_numbers_do_not_agree():
    trace, aligned = played(ddp_layout(4), LateRank(rank=2, extra_ns=50 * MS))
    first = dataclasses.replace(
        trace.ranks[0], unseen_calls={int(trace.ranks[0].ops["comm_index"][0]): 3}
    )
    view = pairs(dataclasses.replace(trace, ranks=(first, *trace.ranks[1:])), aligned, 1)
    assert (view.culprits, view.victims) == ((), ())
    assert [one.code for one in view.missing] == [codes.MISSING_COUNTS]


def test_no_such_rank_or_step():
    trace, aligned = played(ddp_layout(4))
    with pytest.raises(InputError, match="no rank 9"):
        pairs(trace, aligned, 9)
    with pytest.raises(InputError, match="no step 77"):
        pairs(trace, aligned, 1, step=77)


@pytest.mark.parametrize(
    ("errors_ns", "clock_error_ns"),
    [((0, 0, 0), 0), ((0, 40, 0), 40), ((0, 40, 70), 110), ((0, 40), UNBOUNDED_NS)],
)
def test_waits_are_told_with_what_the_clocks_of_two_nodes_leave_open(
    errors_ns: tuple[int, ...], clock_error_ns: int
) -> None:
    trace, aligned = played(ddp_layout(24))
    boots = list(dict.fromkeys(rank.session.boot_id for rank in trace.ranks))
    assert len(boots) == 3
    errors = dict(zip(boots, errors_ns, strict=False))
    clocks = ClockOffsets({boot: trace.clocks.offset_ns[boot] for boot in errors}, errors)
    view = pairs(dataclasses.replace(trace, clocks=clocks), aligned, 0)
    assert view.clock_error_ns == clock_error_ns
