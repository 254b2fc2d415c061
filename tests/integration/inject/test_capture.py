"""What real jobs did is what was recorded, and recording changed nothing they did."""

import re
from pathlib import Path

import numpy as np
import pytest

from comminsight.format.blackbox import parse_box
from comminsight.model.ops import (
    P2P_OPS,
    DType,
    Op,
    OpFlag,
    OpState,
    RecordKind,
    RedOp,
    TimingSource,
)
from tests.integration.inject.episodes import (
    BARE,
    COMPARED,
    FLOOD_OPS,
    KILL_AT_STEP,
    KILL_OPS,
    STEPS,
    errors_by_rank,
    losses_by_step,
)

pytestmark = pytest.mark.real

ENDS = {
    "future": (OpState.DONE, TimingSource.HOST_FUTURE),
    "wait": (OpState.DONE, TimingSource.HOST_WAIT),
    "return": (OpState.DONE, TimingSource.HOST_RETURN),
    "unseen": (OpState.UNOBSERVABLE, TimingSource.UNKNOWN),
}
PEER_GONE = re.compile(r"\[[^]]*pair\.cc:N\] (Connection closed by peer|Read error|writev) .*")
EXITING = ("exception", "sys_exit", "os_exit", "sigkill", "timeout")


def described(record) -> tuple:
    """One record in the words of the truth file."""
    ends_by = {pair: name for name, pair in ENDS.items()}
    return (
        Op(record["op"]).name,
        DType(record["dtype"]).name,
        int(record["size_bytes"]),
        int(record["peer_or_root"]),
        RedOp(record["red_op"]).name,
        bool(record["flags"] & OpFlag.COALESCED and record["n_folded"] == 2),
        ends_by.get((record["state"], record["timing_source"])),
    )


TRUTH_KEYS = ("op", "dtype", "size_bytes", "peer", "red_op", "is_folded", "ends_by")


@pytest.mark.parametrize("rank", range(3))
def test_every_form_is_recorded_as_it_was_issued(lab_runs, rank):
    expected = [tuple(t[key] for key in TRUTH_KEYS) for t in lab_runs.truth("forms", "op", rank)]
    recorded = [described(record) for record in lab_runs.ops("forms", "forms")[rank]]
    assert len(expected) >= 23 * STEPS
    assert recorded == expected


def test_counts_match_sizes_and_no_record_is_lost(lab_runs):
    for rank, ops in lab_runs.ops("forms", "forms").items():
        sized = ops[ops["size_bytes"] > 0]
        width = np.array([{7: 2, 8: 2}.get(d, 4) for d in sized["dtype"].tolist()])
        assert (sized["count"] * width == sized["size_bytes"]).all()
        assert ops["op_seq"].tolist() == list(range(1, len(ops) + 1)), rank
        assert lab_runs.segments("forms")[rank].losses.sum() == 0


def test_time_runs_from_enqueue_to_end(lab_runs):
    for ops in lab_runs.ops("forms").values():
        seen = ops[ops["state"] == OpState.DONE]
        assert (seen["start_ns"] >= seen["enqueue_ns"]).all()
        assert (seen["end_ns"] > seen["start_ns"]).all()
        unseen = ops[ops["state"] == OpState.UNOBSERVABLE]
        assert (unseen["end_ns"] == 0).all()
        assert len(unseen) == STEPS


@pytest.mark.parametrize("name", ["ddp", "forms", "fsdp2", "tpsp", "tp_pp_dp"])
def test_collectives_of_equal_number_agree_on_all_ranks(lab_runs, name):
    instances: dict[tuple, set] = {}
    for rank, segment in lab_runs.segments(name).items():
        hashes = dict(
            zip(segment.comms["comm_index"].tolist(), segment.comms.tolist(), strict=True)
        )
        for record in lab_runs.ops(name)[rank]:
            if record["kind"] == RecordKind.COLLECTIVE:
                row = hashes[int(record["comm_index"])]
                key = (row[0], row[4], int(record["match_seq"]))
                said = (int(record["op"]), int(record["size_bytes"]), int(record["dtype"]))
                instances.setdefault(key, set()).add(said)
    assert len(instances) > 3 * STEPS
    assert {key: said for key, said in instances.items() if len(said) > 1} == {}


def test_point_to_point_pairs_by_number_within_the_pair(lab_runs):
    """Every send of the pipeline has the receive of the same number on the other side."""
    halves: dict[tuple, list] = {}
    for rank, segment in lab_runs.segments("tp_pp_dp").items():
        members = {
            int(row["comm_index"]): (bytes(row["name"]), int(row["comm_rank"]))
            for row in segment.comms
        }
        for record in lab_runs.ops("tp_pp_dp", "mesh_pp")[rank]:
            if record["op"] in P2P_OPS:
                name, me = members[int(record["comm_index"])]
                peer = int(record["peer_or_root"])
                ends = (me, peer) if record["op"] == Op.SEND else (peer, me)
                key = (name, ends, int(record["match_seq"]))
                halves.setdefault(key, []).append((int(record["op"]), int(record["size_bytes"])))
    assert len(halves) == 4 * 2 * 2 * STEPS  # groups, directions, microbatches
    sizes = {size for pair in halves.values() for _, size in pair}
    assert all(sorted(op for op, _ in pair) == [Op.SEND, Op.RECV] for pair in halves.values())
    assert len(sizes) == 1


def test_groups_carry_the_names_and_members_of_the_mesh(lab_runs):
    from comminsight.model.ranges import range_expand

    told = {
        (t["rank"], t["name"], t["desc"], *t["members"])
        for t in lab_runs.truth("tp_pp_dp", "group")
    }
    recorded = set()
    for rank, segment in lab_runs.segments("tp_pp_dp").items():
        for row in segment.comms:
            members = range_expand(row["members"].decode())
            assert members[row["comm_rank"]] == rank
            recorded.add((rank, row["name"].decode(), row["desc"].decode(), *members))
            assert row["retired_ns"] > 0
    assert recorded == told


@pytest.mark.parametrize("name", [e.name for e in COMPARED if e.name != "timeout"])
def test_results_are_bitwise_those_of_the_bare_job(lab_runs, name):
    recorded = losses_by_step(lab_runs.recorded[name].truth)
    bare = losses_by_step(lab_runs.bare[name].truth)
    assert recorded
    assert recorded == bare


@pytest.mark.parametrize("name", [e.name for e in COMPARED])
def test_exit_codes_are_those_of_the_bare_job(lab_runs, name):
    assert lab_runs.recorded[name].exit_codes == lab_runs.bare[name].exit_codes
    assert not lab_runs.recorded[name].is_timed_out
    if name not in EXITING:
        assert set(lab_runs.recorded[name].exit_codes) == {0}


@pytest.mark.parametrize("name", EXITING)
def test_errors_reach_the_job_unchanged(lab_runs, name):
    """A peer's death reads as a closed or as a reset connection, whichever comes first."""
    kinds = [
        {rank: (error, PEER_GONE.sub("gone", text)) for rank, (error, text) in errors.items()}
        for errors in (
            errors_by_rank(lab_runs.recorded[name].truth),
            errors_by_rank(lab_runs.bare[name].truth),
        )
    ]
    assert kinds[0][0][0] == "RuntimeError"  # the rank that is left behind
    assert kinds[0] == kinds[1]


def test_an_op_that_timed_out_has_failed(lab_runs):
    ops = lab_runs.ops("timeout", "impatient")[0]
    assert ops["state"].tolist() == [OpState.DONE, OpState.FAILED]


@pytest.mark.parametrize("name", ["exception", "sys_exit"])
def test_an_orderly_exit_seals_the_segment(lab_runs, name):
    assert lab_runs.segments(name)[1].is_sealed


def test_ops_in_flight_do_not_crash_an_exit(lab_runs):
    assert lab_runs.recorded["abandon"].exit_codes == (0, 0)
    assert set(lab_runs.ops("abandon")[0]["state"]) == {OpState.DONE}


def test_the_op_that_a_dead_peer_broke_has_failed(lab_runs):
    ops = lab_runs.ops("sigkill")[0]
    assert OpState.FAILED in ops["state"]
    assert ops["state"][ops["start_ns"].argmin()] == OpState.DONE


def test_every_op_a_killed_rank_waited_for_is_on_disk_or_in_its_box(lab_runs):
    run = Path(lab_runs.recorded["kill"].run)
    kept = {int(o["op_seq"]) for o in lab_runs.ops("kill")[1]}
    for path in (run / "blackbox").glob("*.box"):
        box = parse_box(path.read_bytes(), path=str(path))
        if box.identity.global_rank == 1:
            kept |= {int(o["op_seq"]) for o in box.ring if o["state"] == OpState.DONE}
    waited = {t["n"] for t in lab_runs.truth("kill", "op", rank=1)}
    assert len(waited) == KILL_OPS * KILL_AT_STEP
    assert waited <= kept


def test_a_flood_of_async_ops_with_collections_neither_hangs_nor_loses_count(lab_runs):
    for rank, ops in lab_runs.ops("flood", "flood").items():
        lost = int(lab_runs.segments("flood")[rank].losses.sum())
        assert ops["match_seq"].max() == FLOOD_OPS
        assert len(ops) + lost >= FLOOD_OPS


def test_threads_with_a_group_each_keep_their_program_order(lab_runs):
    for segment in lab_runs.segments("threads").values():
        ops = segment.records[segment.records["kind"] == RecordKind.COLLECTIVE]
        rows = segment.comms[np.char.startswith(segment.comms["desc"], b"thread_")]
        assert len(rows) == 4
        for comm_index in rows["comm_index"]:
            of_group = ops[ops["comm_index"] == comm_index]
            of_group = of_group[of_group["state"] == OpState.DONE]
            in_order = of_group[np.argsort(of_group["op_seq"])]
            assert in_order["op_seq"].tolist() == list(range(1, 100 * STEPS + 1))
            assert (np.diff(in_order["start_ns"]) >= 0).all()


def test_forked_loader_workers_record_nothing(lab_runs):
    assert set(lab_runs.recorded["loader"].exit_codes) == {0}
    sessions = list(Path(lab_runs.recorded["loader"].run, "inspector_logs").iterdir())
    assert len(sessions) == 2
    for ops in lab_runs.ops("loader").values():
        assert (ops["op"] == Op.ALL_REDUCE).sum() == STEPS


def test_without_a_library_the_job_runs_and_nothing_is_written(lab_runs):
    result = lab_runs.blind[BARE[0].name]
    assert set(result.exit_codes) == {0}
    assert losses_by_step(result.truth) == losses_by_step(lab_runs.bare[BARE[0].name].truth)
    assert not list(Path(result.run, "inspector_logs").iterdir())


def test_the_identity_names_versions_and_place(lab_runs):
    for rank, segment in lab_runs.segments("ddp").items():
        assert segment.identity.versions["torch"].startswith("2.")
        assert segment.identity.versions["python"].startswith("3.")
        assert (segment.identity.global_rank, segment.identity.world_size) == (rank, 2)
        assert segment.identity.run_id == "ddp"
