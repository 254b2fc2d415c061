"""The simulated cluster: its laws of time, its records, its faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.errors import UsageError
from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import Op, OpFlag, OpState, RecordKind
from comminsight.sim import (
    AbsentStep,
    Clocks,
    FusedStep,
    Jitter,
    KilledJob,
    LateRank,
    LostRank,
    LostRecords,
    RecorderSettings,
    SimLayout,
    SimRun,
    SkippedOp,
    SlowLink,
    ddp_layout,
    fsdp2_layout,
    megatron_layout,
    moe_layout,
    run_trace,
    simulate,
)

QUIET = Jitter(sigma=0.0, hiccup_rate=0.0, rank_sigma=0.0, transfer_sigma=0.0)
ONE_CLOCK = Clocks(spread_ns=0)
LAYOUTS = {
    "ddp": ddp_layout(8),
    "fsdp2": fsdp2_layout(4),
    "megatron": megatron_layout(2, 2, 2),
    "rendezvous": replace(megatron_layout(1, 4, 2), is_send_buffered=False),
    "moe": moe_layout(8, 4),
}


def step_ms(run: SimRun) -> np.ndarray:
    return np.diff(run.truth.start_ns, axis=0).mean(axis=1) / 1e6


def instances(run: SimRun) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(comm_id, match_seq) of collectives -> (start, end) of each member on the true clock."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for rank in run.ranks:
        log = rank.log
        for place in np.flatnonzero(log.ops["kind"] == RecordKind.COLLECTIVE):
            key = (int(log.comm_ids[place]), int(log.ops["match_seq"][place]))
            found.setdefault(key, []).append((int(log.start_ns[place]), int(log.end_ns[place])))
    return found


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_collective_ends_for_all_after_its_last_member_entered(layout: SimLayout) -> None:
    run = simulate(layout, steps=4, seed=3)
    assert run.is_finished
    sizes = {c.comm_id: c.comm_size for c in run.communicators}
    for (comm_id, _), members in instances(run).items():
        assert len(members) == sizes[comm_id]
        assert len({end for _, end in members}) == 1
        assert members[0][1] > max(start for start, _ in members)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_same_seed_same_bytes_and_another_seed_differs(layout: SimLayout) -> None:
    first, again, other = (simulate(layout, steps=3, seed=seed) for seed in (5, 5, 6))
    for one, two, three in zip(first.ranks, again.ranks, other.ranks, strict=True):
        assert one.records.dtype == OP_DTYPE
        assert one.records.tobytes() == two.records.tobytes()
        assert one.records.tobytes() != three.records.tobytes()


def test_p2p_halves_pair_up_and_a_receive_ends_after_its_send_began() -> None:
    run = simulate(megatron_layout(1, 4, 1), steps=3, seed=1)
    sends: dict[tuple[int, int, int], int] = {}
    receives: dict[tuple[int, int, int], int] = {}
    for rank in run.ranks:
        me = rank.session.global_rank
        log = rank.log
        for place in np.flatnonzero(log.ops["kind"] == RecordKind.P2P):
            peer, nth = int(log.ops["peer_or_root"][place]), int(log.ops["match_seq"][place])
            if log.ops["op"][place] == Op.SEND:
                sends[me, peer, nth] = int(log.start_ns[place])
            else:
                receives[peer, me, nth] = int(log.end_ns[place])
    assert len(sends) == 3 * 3 * 2 * 4
    assert sends.keys() == receives.keys()
    assert all(receives[key] > sends[key] for key in sends)


def test_fsdp2_emits_two_gathers_and_one_scatter_per_layer_and_one_norm() -> None:
    run = simulate(fsdp2_layout(4, layers=4), steps=1, seed=0)
    names = [Op(op).name for op in run.ranks[0].log.ops["op"]]
    gather, scatter = "ALL_GATHER", "REDUCE_SCATTER"
    backward = [gather, gather, scatter, gather, scatter, gather, scatter, scatter]
    assert names == [gather] * 4 + backward + ["ALL_REDUCE"]


def test_a_late_rank_lengthens_the_step_by_its_extra_work() -> None:
    fault = LateRank(3, 20_000_000, from_step=5)
    run = simulate(ddp_layout(8), steps=10, seed=1, jitter=QUIET, faults=[fault])
    before, after = step_ms(run)[:4].mean(), step_ms(run)[5:].mean()
    assert after - before == pytest.approx(20, abs=0.5)
    assert run.truth.origin == (3,)


def test_a_slow_link_lengthens_transfers_only_of_its_group_from_its_step_on() -> None:
    fault = SlowLink("mesh_tp", 5.0, from_step=3)
    run = simulate(megatron_layout(2, 1, 2), steps=6, seed=1, jitter=QUIET, faults=[fault])
    log = run.ranks[0].log
    tp = run.ranks[0].comms["desc"].tolist().index(b"mesh_tp") + 1
    took_ns = log.end_ns - log.start_ns
    is_tp, is_slow = log.ops["comm_index"] == tp, log.steps >= 3
    assert took_ns[is_tp & is_slow].mean() == pytest.approx(5 * took_ns[is_tp & ~is_slow].mean())
    is_dp = run.ranks[0].comms["desc"][log.ops["comm_index"] - 1] == b"mesh_dp"
    assert np.ptp(took_ns[is_dp].reshape(6, -1), axis=0).max() == 0


def test_a_lost_rank_leaves_everybody_in_flight_and_markers_tell_it() -> None:
    run = simulate(ddp_layout(4), steps=8, seed=1, faults=[LostRank(2, step=5, op_index=1)])
    assert not run.is_finished
    for rank in run.ranks:
        is_absent = rank.session.global_rank == 2
        in_flight = rank.log.ops["match_seq"][rank.log.is_in_flight]
        assert in_flight.tolist() == ([] if is_absent else [27, 28, 29])
        states = rank.records["state"][rank.records["state"] != OpState.DONE].tolist()
        assert states == ([] if is_absent else [OpState.OPEN] * 3 + [OpState.OVERDUE] * 3)


def test_a_long_op_leaves_a_marker_before_its_record() -> None:
    fault = LateRank(0, 5_000_000_000, from_step=1, until_step=2)
    run = simulate(ddp_layout(2, buckets=1), steps=3, seed=1, faults=[fault])
    records = run.ranks[1].records
    marker = records[records["state"] == OpState.OPEN]
    assert len(marker) == 1
    assert marker["end_ns"][0] == 0
    done = records[(records["state"] == OpState.DONE) & (records["op_seq"] == marker["op_seq"])]
    assert done["flags"][0] & OpFlag.WAS_OPEN
    assert done["seq"][0] > marker["seq"][0]


def test_records_arrive_at_completion_or_per_communicator() -> None:
    layout = megatron_layout(2, 2, 2)
    run = simulate(layout, steps=3, seed=1, clocks=ONE_CLOCK)
    assert (np.diff(run.ranks[0].records["end_ns"]) >= 0).all()
    settings = RecorderSettings(dump_period_ns=1_000_000_000)
    dumped = simulate(layout, steps=3, seed=1, settings=settings).ranks[0].records
    assert (np.diff(dumped["comm_index"].astype(int)) >= 0).all()
    assert (np.diff(dumped["end_ns"]) < 0).any()


def test_lost_records_leave_gaps_in_seq() -> None:
    fault = LostRecords(rank=1, burst=(10, 5))
    run = simulate(ddp_layout(2), steps=10, seed=1, faults=[fault, LostRecords(0, fraction=0.1)])
    assert sorted(set(range(1, 51)) - set(run.ranks[1].records["seq"].tolist())) == [*range(10, 15)]
    assert 0 < 50 - len(run.ranks[0].records) < 20


@pytest.mark.parametrize(
    ("fault", "ops_per_step"),
    [(AbsentStep(1), [5, 0, 5]), (FusedStep(1), [5, 4, 5]), (SkippedOp(0, 2, 4), [5, 5, 4])],
)
def test_faults_change_what_a_step_emits(fault: AbsentStep, ops_per_step: list[int]) -> None:
    run = simulate(ddp_layout(2), steps=3, seed=1, faults=[fault])
    assert np.bincount(run.ranks[0].log.steps, minlength=3).tolist() == ops_per_step


def test_a_killed_job_keeps_what_ended_before() -> None:
    run = simulate(ddp_layout(2), steps=50, seed=1, faults=[KilledJob(after_ns=200_000_000)])
    for rank in run.ranks:
        assert rank.log.end_ns.max() <= 200_000_000
        assert rank.records["end_ns"].max() - rank.clock.offset_ns <= 1_000_200_000_000


def test_clocks_differ_by_node_and_offsets_undo_it() -> None:
    layout = replace(ddp_layout(4), ranks_per_node=2)
    run = simulate(layout, steps=2, seed=9, clocks=Clocks(spread_ns=5_000_000))
    trace = run_trace(run)
    aligned = [
        rank.ops["end_ns"][-1] + trace.clocks.offset_ns[rank.session.boot_id]
        for rank in trace.ranks
    ]
    assert len(trace.clocks.offset_ns) == 2
    assert len(set(aligned)) == 1
    assert trace.ranks[0].ops["end_ns"][-1] != trace.ranks[3].ops["end_ns"][-1]


def test_jitter_can_be_resampled_from_measured_ratios() -> None:
    ratios = np.array([1.0, 1.5])
    run = simulate(ddp_layout(2), steps=2, seed=1, jitter=Jitter(ratios=ratios, rank_sigma=0.0))
    first_op_ns = run.ranks[0].log.start_ns[0]
    assert first_op_ns in {
        1e6 * a + 8e6 * b + 4e6 * c for a in ratios for b in ratios for c in ratios
    }


def test_names_are_those_torch_gives() -> None:
    run = simulate(megatron_layout(2, 2, 2), steps=1, seed=1)
    rows = run.ranks[5].comms
    assert rows["name"].tolist() == [b"0", b"2", b"8", b"11"]
    assert rows["desc"].tolist() == [b"default_pg", b"mesh_pp", b"mesh_dp", b"mesh_tp"]
    assert [row.decode() for row in rows["members"]] == ["0-7", "1,5", "5,7", "4-5"]
    hashes = {group.comm_hash for group in run.groups}
    assert len(hashes) == len(run.groups) == 13


def test_ddp_begins_with_set_up_and_a_single_bucket() -> None:
    layout = replace(ddp_layout(2), has_startup=True)
    log = simulate(layout, steps=3, seed=1).ranks[1].log
    names = [[Op(op).name for op in log.ops["op"][log.steps == step]] for step in range(3)]
    assert names[0] == ["ALL_GATHER", "BROADCAST", "BROADCAST", "ALL_REDUCE", "ALL_REDUCE"]
    assert names[1] == ["BROADCAST"] * 2 + ["ALL_REDUCE"] * 5
    assert names[2] == ["ALL_REDUCE"] * 5
    gradients = log.ops["size_bytes"][log.ops["op"] == Op.ALL_REDUCE]
    assert gradients[0] == gradients[2:6].sum() == gradients[7:11].sum()


def test_an_op_that_the_step_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="has 5 ops"):
        simulate(ddp_layout(2), steps=3, seed=1, faults=[LostRank(1, 1, op_index=5)])
