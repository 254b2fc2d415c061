"""What single scenarios show beyond their story: numbers of channels, stamps, networks, counters,
and what becomes of records when the process or the disk fails."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.model.event import NET_DTYPE
from comminsight.model.hang import Liveness
from comminsight.model.ops import Algorithm, DType, LossReason, Op, OpState, Protocol, WaitSide
from comminsight.model.records import is_replay
from tests.unit.nccl import agreement
from tests.unit.nccl.scenes import Place, needs_program, play
from tests.unit.nccl.story import story

pytestmark = needs_program

UNKNOWN_NS = 0xFFFFFFFF
UNLOADED_NS = 100_000_000  # callbacks come late on a busy machine, and the error says so
DEEP = {"COMMINSIGHT_NCCL_MASK": "deep"}


def all_ops(played):
    """The records of every place."""
    return [member.ops for member in played.members.values()]


def by_session(played):
    """The one communicator of each session, in the order of the sessions."""
    ranks = [session.identity.global_rank for session in played.sessions]
    return [played.member(rank) for rank in ranks]


def test_channels_are_counted_whatever_their_numbers(tmp_path):
    ops = play(tmp_path, "sequences/02_channels").member(1).ops
    assert ops["n_channels"].tolist() == [4, 64, 1, 3, 64]
    assert ops["channels_stopped"].tolist() == [4, 64, 1, 3, 64]


def test_calls_of_one_group_share_its_number(tmp_path):
    ops = play(tmp_path, "sequences/03_group").member(0).ops
    groups = ops["group_id"].tolist()
    assert len(set(groups[:5])) == len(set(groups[5:])) == 1
    assert 0 < groups[0] < groups[5]


def test_a_group_over_two_communicators_is_one_group(tmp_path):
    played = play(tmp_path, "sequences/04_two_comms")
    world, tp = played.member(3, "world").ops, played.member(3, "tp").ops
    assert set(world["group_id"]) == {tp["group_id"][0]}
    assert tp["group_id"][1] > tp["group_id"][0]


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.31"])
def test_sends_meet_their_receives_under_the_same_number(release, tmp_path):
    played = play(tmp_path, "sequences/05_p2p", release)
    sent, received = set(), set()
    for place, member in played.members.items():
        for op in member.ops[np.isin(member.ops["op"], [Op.SEND, Op.RECV])]:
            peer, number, size = (int(op[f]) for f in ("peer_or_root", "match_seq", "size_bytes"))
            if op["op"] == Op.SEND:
                sent.add((place.rank, peer, number, size))
            else:
                received.add((peer, place.rank, number, size))
    assert sent == received
    assert len(sent) == 4 + 12 + 1 + 4


def test_folded_calls_count_for_the_pairs_they_stand_for(tmp_path):
    played = play(tmp_path, "sequences/05_fold")
    ops = played.member(0).ops
    folds = ops[ops["n_folded"] > 1]
    assert folds["match_seq"].tolist() == [1, 2]
    assert folds["op_seq"].tolist() == [2, 20]
    assert folds["size_bytes"].tolist() == [18 * 256 * 4, 18 * 512 * 4]
    # two folds before: this is the third send to 1 and the third receive from 9
    assert ops["match_seq"][-2:].tolist() == [3, 3]
    nine = played.member(4, "nine").ops
    assert len(nine) == 16
    assert not nine["n_folded"].any()


def test_what_nccl_chose_stands_in_the_record(tmp_path):
    op = play(tmp_path, "sequences/01_single").member(0).ops[0]
    assert (op["algo"], op["proto"]) == (Algorithm.RING, Protocol.SIMPLE)
    played = play(tmp_path / "v7", "sequences/10_symmetric", "2.32")
    ops = played.member(0).ops
    assert ops["algo"][1:4].tolist() == [Algorithm.SYMMETRIC] * 3
    assert ops["n_channels"][1:4].tolist() == [4, 0, 0]
    assert len(set(ops["end_ns"][1:4].tolist())) == 1


def test_numbers_of_nccl_count_per_function(tmp_path):
    ops = play(tmp_path, "sequences/18_func_seq").member(0).ops
    assert ops["func_seq"].tolist() == [0, 0, 1, 0, 2, 1, 0, 0]
    assert ops["match_seq"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_tags_and_streams_of_the_user_are_kept(tmp_path):
    ops = play(tmp_path, "sequences/01_tags", "2.32").member(0).ops
    assert ops["user_tag"].tolist() == [7, 8, 9, 10, 0]
    assert ops["stream_id"][0] == ops["stream_id"][4] != ops["stream_id"][1]
    older = play(tmp_path / "v6", "sequences/01_tags", "2.30").member(0).ops
    assert not older["user_tag"].any()


def test_with_calls_alone_no_end_is_seen(tmp_path):
    played = play(tmp_path, "sequences/01_single", COMMINSIGHT_NCCL_MASK="api")
    assert story(played.member(0).ops) == "AR?NO_KERNEL_EVENTS*4"
    assert not played.member(0).ops["end_ns"].any()


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_small_ops_are_counted_where_they_are_not_wanted(release, tmp_path):
    env = {"COMMINSIGHT_MIN_SIZE_BYTES": "3000"}
    played = play(tmp_path, "sequences/03_group", release, **env)
    agreement.check_conservation(played, lambda call: True)
    # 64, 16, 512, 32 and 128 elements of 4 bytes, in one case of both ranks, are below
    assert played.losses == {LossReason.BELOW_MIN_SIZE: 2 * 5}


@pytest.mark.parametrize("release", ["2.27", "2.30"])
def test_bytes_are_right_whoever_tells_the_count(release, tmp_path):
    ops = play(tmp_path, "sequences/19_dtypes", release).member(0).ops
    has_calls = release == "2.30"
    gathered = DType.FLOAT16 if has_calls else DType.INT8
    assert ops["size_bytes"][1:5].tolist() == [4000, 8000, 1000, 16000]
    assert ops["dtype"][1] == gathered
    assert (ops["dtype"][0], ops["count"][0]) == (DType.UNKNOWN, 1000)


@pytest.mark.parametrize("scenario", ["20_stamps", "20_fused"])
@pytest.mark.parametrize("release", ["2.28", "2.30", "2.31"])
def test_gpu_times_are_within_the_error_that_is_stated(scenario, release, tmp_path):
    played = play(tmp_path, f"sequences/{scenario}", release)
    assert agreement.check_times(played, lambda call: True) >= 2 * 2
    if scenario == "20_fused":  # wrong stamps may leave the other without a bound
        errors = np.concatenate([ops["clock_error_ns"] for ops in all_ops(played)])
        assert 0 < np.median(errors) < UNLOADED_NS


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_works_of_one_batch_have_the_stamps_of_the_batch(release, tmp_path):
    for ops in all_ops(play(tmp_path, "sequences/20_fused", release)):
        assert len(set(ops["gpu_start_ns"][-3:].tolist())) == 1
        assert len(set(ops["gpu_end_ns"][-3:].tolist())) == 1
        assert len(set(ops["gpu_start_ns"].tolist())) == 21


def test_without_launches_the_error_of_gpu_times_is_said_to_be_unknown(tmp_path):
    played = play(tmp_path, "sequences/20_fused", "2.27")
    agreement.check_times(played, lambda call: True)
    assert all((ops["clock_error_ns"] == UNKNOWN_NS).all() for ops in all_ops(played))


@pytest.mark.parametrize("release", ["2.28", "2.30", "2.32"])
def test_the_network_of_an_op_is_summed_up_beside_it(release, tmp_path):
    played = play(tmp_path, "sequences/11_proxy", release, **DEEP)
    member = played.member(0)
    nets = member.nets.view(NET_DTYPE)
    assert nets["op_seq"].tolist() == [1, 2, 3, 5]
    assert nets["n_proxy_ops"].tolist() == [4, 2, 2, 4]
    assert nets["n_proxy_ops_done"].tolist() == [4, 2, 2, 4]
    assert nets["n_send_steps"].tolist() == [40, 24, 0, 16]
    assert nets["n_recv_steps"].tolist() == [40, 0, 24, 16]
    assert (nets["wait_side"] == WaitSide.NONE).all()
    assert (nets["posted_bytes"] == nets["done_bytes"]).all()
    assert (nets["transmitted_bytes"] == nets["done_bytes"]).all()
    per_step = (1 << 22) // 2 // 20
    assert nets["done_bytes"][0] == 80 * per_step
    assert (nets["first_event_ns"] <= nets["progress_ns"]).all()
    assert (nets["progress_ns"] <= nets["last_event_ns"]).all()


def test_without_steps_proxy_ops_alone_are_counted(tmp_path):
    played = play(tmp_path, "sequences/11_proxy", COMMINSIGHT_NCCL_MASK="net")
    nets = played.member(1).nets.view(NET_DTYPE)
    assert nets["n_proxy_ops_done"].tolist() == [4, 2, 2, 4]
    assert not nets["n_send_steps"].any()
    assert not play(tmp_path / "light", "sequences/11_proxy").member(0).nets.size


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_proxy_ops_of_other_processes_are_counted_and_touch_nothing(release, tmp_path):
    played = play(tmp_path, "sequences/12_pxn", release, **DEEP)
    assert played.counter("foreign_events") >= 2 * 5
    assert [len(member.nets) for member in played.members.values()] == [0 + 2, 0 + 2]


def test_captured_calls_are_counted_and_replays_are_ops(tmp_path):
    played = play(tmp_path, "sequences/07_graph", "2.31")
    assert played.counter("captured_calls") == 2 * 2
    dark = play(tmp_path / "dark", "sequences/07_graph_dark", "2.31")
    assert dark.counter("captured_calls") == 2 * 2


@pytest.mark.parametrize("release", ["2.28", "2.30", "2.32"])
def test_replays_and_calls_of_one_communicator_are_numbered_apart(release, tmp_path):
    played = play(tmp_path, "sequences/07_graph_eager", release)
    agreement.check_conservation(played, lambda call: True)
    agreement.check_calls(played, lambda call: True)
    agreement.check_matches(played)
    for member in played.members.values():
        is_of_graph = is_replay(member.ops)
        assert story(member.ops[is_of_graph]) == " ".join(["AR@ RS@"] * 5)
        calls = story(member.ops[~is_of_graph])
        assert calls.startswith(" ".join(["AR", *["AG BC"] * 5]))
        assert member.ops["match_seq"][~is_of_graph].tolist() == [*range(1, 12), 1, 1]


def test_a_communicator_that_is_made_again_is_another_one(tmp_path):
    played = play(tmp_path, "sequences/15_same_hash")
    rows = [played.members[place].row for place in sorted(played.members)]
    assert [int(row["ordinal"]) for row in rows] == [0, 1, 0, 1]
    assert len({int(row["comm_hash"]) for row in rows}) == 1
    assert [int(row["comm_rank"]) for row in rows] == [0, 0, 1, 1]
    first, second = played.members[Place(0, "world", 0)], played.members[Place(0, "world", 1)]
    assert second.ops["op_seq"].tolist() == second.ops["match_seq"].tolist() == [1, 2, 3]
    assert first.row["retired_ns"] > 0


def test_names_are_kept_as_far_as_they_are_names(tmp_path):
    played = play(tmp_path, "sequences/16_names")
    names = {place.comm: played.members[place].row["name"] for place in played.members}
    assert (names["none"], names["empty"], names["plain"]) == (b"", b"", b"plain")
    assert 0 < len(names["long"]) <= 64
    assert names["bad"].startswith(b"bad")


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_a_parent_goes_on_while_its_child_is_torn_down(release, tmp_path):
    played = play(tmp_path, "sequences/13_split", release)
    world, half = played.member(2, "world"), played.member(2, "half")
    assert half.row["retired_ns"] < world.ops["end_ns"][1]
    assert half.row["comm_hash"] != world.row["comm_hash"]
    assert half.row["comm_hash"] != played.member(0, "half").row["comm_hash"]


@pytest.mark.parametrize("release", ["2.27", "2.28 shim v4", "2.28", "2.30", "2.32"])
def test_calls_that_make_no_sense_are_counted_and_harm_nothing(release, tmp_path):
    played = play(tmp_path, "sequences/17_bad", release)
    agreement.check_program(played)
    assert story(played.member(0, "gone").ops) == "AR AR!"
    assert story(played.member(0).ops).startswith("AR")
    assert played.counter("unknown_events") > 0
    assert played.counter("stale_events") > 0
    assert not np.isin(played.member(0).ops["state"], [OpState.OPEN, OpState.OVERDUE]).any()


def test_stopping_twice_ends_an_op_once(tmp_path):
    played = play(tmp_path, "sequences/17_twice")
    ops = played.member(0, "alone").ops
    assert ops["op_seq"].tolist() == list(range(1, len(ops) + 1))
    assert (ops["state"][0], ops["op"][0]) == (OpState.DONE, Op.ALL_REDUCE)
    assert Op.UNKNOWN in ops["op"].tolist()


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_children_of_a_fork_leave_the_parents_records_alone(release, tmp_path):
    played = play(tmp_path, "sequences/21_fork", release)
    assert len(played.sessions) == 2
    for session in played.sessions:
        assert session.tally["seq_gaps"] == 0
        assert session.problems == ()


def test_after_sigkill_the_box_has_everything(tmp_path):
    played = play(tmp_path, "sequences/21_kill", code=1)
    assert [s.liveness for s in played.sessions] == [Liveness.DEAD] * 2
    assert story(played.member(0).ops) == story(played.member(1).ops) == "AR*5"
    (slot,) = played.member(0).in_flight
    assert (slot["record"]["op"], slot["record"]["op_seq"]) == (Op.ALL_GATHER, 6)
    assert not len(played.member(1).in_flight)


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_exit_without_destroying_loses_nothing(release, tmp_path):
    played = play(tmp_path, "sequences/22_exit", release)
    agreement.check_end(played)
    for member in played.members.values():
        assert len(member.calls) == member.n_recorded + member.n_lost == 20


@pytest.mark.parametrize("release", ["2.27", "2.30", "2.32"])
def test_masks_that_flip_cost_no_op_its_place_in_the_count(release, tmp_path):
    played = play(tmp_path, "sequences/22_chaos", release)
    for member in played.members.values():
        states = set(member.ops["state"].tolist())
        assert states <= {OpState.DONE, OpState.UNOBSERVABLE, OpState.ABORTED}
        assert member.ops["op_seq"].tolist() == list(range(1, len(member.ops) + 1))
        assert member.ops["state"][0] == OpState.DONE


@pytest.mark.parametrize("release", ["2.30", "2.32"])
def test_a_hundred_thousand_ops_in_flight_are_counted_to_the_last(release, tmp_path):
    played = play(tmp_path, "sequences/23_overflow", release)
    n_calls = sum(len(member.calls) for member in played.members.values())
    n_known = sum(member.n_recorded + member.n_lost for member in played.members.values())
    assert n_calls == n_known == 2 * 50_001
    assert set(played.losses) <= {LossReason.SLOTS_FULL, LossReason.SLOT_QUOTA}


def test_a_full_disk_costs_what_leaves_the_ring_and_not_the_job(tmp_path, small_disk):
    spool = small_disk("full", 64 << 10)
    (spool / "filler").write_bytes(bytes(40 << 10))
    played = play(tmp_path, "sequences/21_full_disk", COMMINSIGHT_SPOOL=str(spool))
    agreement.check_program(played)
    assert LossReason.SEGMENT_WRITE in played.losses
    for session, member in zip(played.sessions, by_session(played), strict=True):
        newest = member.ops["op_seq"].tolist()
        assert newest == list(range(10_001 - len(newest) + 1, 10_001 + 1))
        assert len(member.calls) == 10_001
        assert session.tally["ring_records_overwritten"] >= 10_001 - len(newest) > 0


def test_without_any_place_to_write_the_job_goes_on_unrecorded(tmp_path):
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "below")
    env = {"COMMINSIGHT_BOX_DIR": nowhere, "COMMINSIGHT_BOX_FALLBACK": nowhere}
    played = play(tmp_path / "run", "sequences/01_single", COMMINSIGHT_SPOOL=nowhere, **env)
    agreement.check_program(played)
    assert played.sessions == []
    assert sum(line["event"] == "call" for line in played.log) == 2 * 4


def test_switched_off_nothing_is_recorded(tmp_path):
    played = play(tmp_path, "sequences/01_single", COMMINSIGHT_DISABLE="1")
    agreement.check_program(played)
    assert played.sessions == []
