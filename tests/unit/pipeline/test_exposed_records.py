"""Own records: who was awaited and in which phase, what is left out, and that all adds up."""

from __future__ import annotations

import dataclasses

import pytest

from comminsight.analysis.call_gates import KNOWN
from comminsight.model.exposed import ExposedReport, OwnerDoubt, OwnerKind
from comminsight.model.ops import Op, TimingSource
from comminsight.model.trace import RunTrace
from comminsight.pipeline.exposed import exposed_in_run
from comminsight.pipeline.exposed_records import recorded_calls
from comminsight.report.exposed_text import render_exposed
from comminsight.sim import LateRank, SimLayout, fsdp2_layout, megatron_layout, simulate
from comminsight.sim import ddp_layout as bare_ddp_layout
from tests.laws.test_healthy_simulated import rebuilt

EXTRA_NS, STEPS, FROM_STEP = 40_000_000, 10, 4
LATE_NS = EXTRA_NS * (STEPS - FROM_STEP)


def ddp_layout(world_size: int) -> SimLayout:
    return dataclasses.replace(bare_ddp_layout(world_size), has_startup=True)


def run_of(layout: SimLayout, *late: int) -> RunTrace:
    faults = tuple(LateRank(one, extra_ns=EXTRA_NS, from_step=FROM_STEP) for one in late)
    return rebuilt(simulate(layout, steps=STEPS, seed=5, faults=faults))


def late_ns(report: ExposedReport) -> dict[int, int]:
    sums: dict[int, int] = {}
    for one in report.owners:
        if one.kind is OwnerKind.LATE:
            sums[one.global_rank] = sums.get(one.global_rank, 0) + one.exposed_ns
    return sums


def adds_up(report: ExposedReport) -> bool:
    exposed_ns = sum(one.exposed_ns for one in report.ranks)
    return all(
        sum(one.exposed_ns for one in rows) == exposed_ns
        for rows in (report.owners, report.roles, report.phases)
    )


@pytest.mark.parametrize(
    ("layout", "late"),
    [(ddp_layout(4), 2), (ddp_layout(8), 0), (fsdp2_layout(8), 7), (megatron_layout(2, 2, 2), 5)],
    ids=("ddp4", "ddp8", "fsdp", "tp-pp-dp"),
)
def test_the_late_rank_has_most_and_made_its_lateness_itself(layout: SimLayout, late: int) -> None:
    report = exposed_in_run(run_of(layout, late))
    assert adds_up(report)
    sums = late_ns(report)
    waits = [one for one in report.ops if one.late_rank == late and one.late_ns]
    assert max(waits, key=lambda one: one.late_ns).advice[0].code == "action.exposed_late"
    n_victims = layout.world_size - 1 if layout.pp == 1 else 1
    assert sums[late] == max(sums.values())
    assert sums[late] >= 0.8 * LATE_NS * n_victims
    own = {
        one.global_rank: one.passed_on_ratio
        for one in report.owners
        if one.kind is OwnerKind.LATE and sums[one.global_rank] > LATE_NS
    }
    assert own[late] is not None
    assert own[late] < 0.2
    assert all(ratio is not None and ratio > 0.8 for rank, ratio in own.items() if rank != late)


def test_a_run_that_nobody_delays_blames_nobody_for_much() -> None:
    report = exposed_in_run(run_of(ddp_layout(4)))
    assert adds_up(report)
    assert max(late_ns(report).values()) < LATE_NS / 2  # the jitter of a healthy job
    assert any(one.kind is OwnerKind.TRANSFER for one in report.owners)


def test_roles_and_phases_are_those_of_the_run() -> None:
    report = exposed_in_run(run_of(megatron_layout(2, 2, 2)))
    assert {one.name for one in report.roles} == {"TP", "PP", "DP", "GLOBAL"}
    assert {"grad_sync", "bubble", "optimizer", "forward"} <= {one.name for one in report.phases}
    text = render_exposed(report)
    assert "Exposed time by role" in text
    assert "grad_sync" in text


def test_compute_is_inferred_inside_of_steps_and_hides_nothing() -> None:
    report = exposed_in_run(run_of(ddp_layout(4), 2))
    for one in report.ranks:
        assert one.is_compute_inferred
        assert one.compute_ns == one.span_ns - one.communication_ns > 0
        assert (one.dark_ns, one.overlap_ratio) == (0, None)
        assert one.exposed_ns == one.communication_ns
    late, other = report.ranks[2], report.ranks[0]
    assert late.compute_ns - other.compute_ns > 0.5 * LATE_NS  # the rest lies before the first op
    assert "* inferred" in render_exposed(report)


def test_without_steps_nothing_is_inferred_and_all_ops_are_in() -> None:
    trace = dataclasses.replace(run_of(ddp_layout(4), 2), steps={})
    report = exposed_in_run(trace)
    assert {one.is_compute_inferred for one in report.ranks} == {False}
    assert {one.step for one in report.steps} == {-1}
    assert all(one.dark_ns > 0 for one in report.ranks)
    assert {one.name for one in report.phases} == {""}
    assert sum(one.n_calls for one in report.ops) == sum(len(one.ops) for one in trace.ranks)
    assert "Exposed time by phase" not in render_exposed(report)


def doubts(trace: RunTrace) -> set[OwnerDoubt]:
    return {one.doubt for one in exposed_in_run(trace).owners if one.doubt is not None}


def test_with_records_of_one_rank_less_nobody_is_named() -> None:
    trace = run_of(ddp_layout(4), 2)
    for left_out in range(4):
        ranks = tuple(one for one in trace.ranks if one.global_rank != left_out)
        report = exposed_in_run(dataclasses.replace(trace, ranks=ranks))
        assert late_ns(report) == {}
        assert {one.doubt for one in report.owners} == {OwnerDoubt.ABSENT}
        assert "missing.exposed_owner_absent" in {one.code for one in report.missing}


def test_calls_that_nobody_was_told_of_leave_no_order() -> None:
    trace = run_of(ddp_layout(4), 2)
    first = dataclasses.replace(trace.ranks[0], unseen_calls=dict.fromkeys(range(4), 1))
    found = dataclasses.replace(trace, ranks=(first, *trace.ranks[1:]))
    assert OwnerDoubt.UNMATCHED in doubts(found)
    named = late_ns(exposed_in_run(found))
    assert sum(named.values()) < sum(late_ns(exposed_in_run(trace)).values())


def test_ops_of_unknown_times_are_counted_apart() -> None:
    trace = run_of(ddp_layout(2))
    ops = trace.ranks[0].ops.copy()
    ops["end_ns"][5] = 0
    ranks = (dataclasses.replace(trace.ranks[0], ops=ops), *trace.ranks[1:])
    report = exposed_in_run(dataclasses.replace(trace, ranks=ranks))
    assert {
        one.code: one.params["n"] for one in report.missing if one.code == "missing.ops_untimed"
    } == {"missing.ops_untimed": 1}


def test_a_send_has_ended_when_its_receiver_has_it() -> None:
    """Sends whose end was only seen by a wait, and late; receives as they were."""
    trace = run_of(megatron_layout(1, 2, 1))
    ranks = []
    for rank in trace.ranks:
        ops = rank.ops.copy()
        is_send = ops["op"] == Op.SEND
        ops["end_ns"][is_send] += 50_000_000
        ops["timing_source"][is_send] = TimingSource.HOST_WAIT
        ranks.append(dataclasses.replace(rank, ops=ops))
    found = recorded_calls(dataclasses.replace(trace, ranks=tuple(ranks)))
    receives = {
        (one.comm_label, one.step): max(
            other.end_ns for other in found.calls
            if (other.op, other.comm_label, other.step) == (Op.RECV, one.comm_label, one.step)
        )
        for one in found.calls if one.op == Op.SEND
    }  # fmt: skip
    assert receives
    for one in found.calls:
        if one.op == Op.SEND:
            assert one.start_ns < one.end_ns <= receives[one.comm_label, one.step]
    assert found.n_late_seen == sum(one.op == Op.RECV for one in found.calls)
    report = exposed_in_run(dataclasses.replace(trace, ranks=tuple(ranks)))
    assert adds_up(report)
    plain = sum(one.exposed_ns for one in exposed_in_run(trace).ranks)
    assert sum(one.exposed_ns for one in report.ranks) == pytest.approx(plain, rel=0.2)


def test_ends_that_only_a_wait_saw_are_told() -> None:
    trace = run_of(ddp_layout(2))
    ops = trace.ranks[0].ops.copy()
    ops["timing_source"][7:10] = TimingSource.HOST_WAIT
    ranks = (dataclasses.replace(trace.ranks[0], ops=ops), *trace.ranks[1:])
    report = exposed_in_run(dataclasses.replace(trace, ranks=ranks))
    told = [one.params for one in report.missing if one.code == "missing.ops_late_seen"]
    assert told == [{"n": 3}]
    assert not any(one.code == "missing.ops_late_seen" for one in exposed_in_run(trace).missing)


def test_gates_lie_on_the_clock_of_each_session() -> None:
    """The same run with the second node's clock far ahead: the same waits."""
    trace = run_of(ddp_layout(4), 2)
    plain = recorded_calls(trace)
    ahead_ns = 77_000_000_000
    ranks = []
    for rank in trace.ranks:
        if rank.global_rank < 2:
            ranks.append(rank)
            continue
        ops = rank.ops.copy()
        for name in ("enqueue_ns", "start_ns", "end_ns"):
            ops[name] = ops[name] + (ops[name] > 0) * ahead_ns
        session = type(rank.session)(
            **{
                **{n: getattr(rank.session, n) for n in rank.session.__struct_fields__},
                "boot_id": "another",
            }
        )
        ranks.append(dataclasses.replace(rank, session=session, ops=ops))
    moved = recorded_calls(
        dataclasses.replace(trace, ranks=tuple(ranks), steps={}, clocks=type(trace.clocks)())
    )
    assert moved.clock_error_ns
    assert moved.clock_error_ns > 0
    named = {one for one in moved.gates.late_rank.tolist() if one >= 0}
    assert 2 in named
    for row, call in enumerate(moved.calls):
        if moved.gates.doubt[row] == KNOWN:
            gate_ns = int(moved.gates.gate_ns[row])
            slack_ns = moved.clock_error_ns
            assert call.start_ns <= gate_ns <= call.end_ns + slack_ns
    assert (plain.gates.late_rank >= 0).sum() >= (moved.gates.late_rank >= 0).sum()
