"""The hang rule on small events: where it points, and where it must stay silent."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.hang import HangEvent, Liveness, Progress
from comminsight.model.topology import CommRole, Communicator
from comminsight.model.verdict import Cause, ChainLevel, Confidence, Verdict
from comminsight.sim import KilledRank, LostRank, hang_event, megatron_layout, simulate
from tests.unit.diagnosis.events import AG, AR, BC, NOW, RECV, SEND, S, came, comm, event, op, state

WORLD4 = (comm(0, range(4), CommRole.GLOBAL),)
# 8 ranks, TP 2 x PP 2 x DP 2: rank = pp*4 + dp*2 + tp
TP = [comm(i, (2 * i, 2 * i + 1), CommRole.TP) for i in range(4)]
PP = [comm(4 + i, (i, i + 4), CommRole.PP) for i in range(4)]
DP = [comm(8 + i, pair, CommRole.DP) for i, pair in enumerate([(0, 2), (1, 3), (4, 6), (5, 7)])]
MESH = (*TP, *PP, *DP)


def missing_codes(verdict: Verdict) -> list[str]:
    return [entry.code for entry in verdict.missing]


def evidence_params(verdict: Verdict, code: str) -> list[dict[str, object]]:
    return [dict(e.message.params) for e in verdict.evidence if e.message.code == code]


def absent_event() -> HangEvent:
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    progress = [*(came(rank, 0, 41, 40) for rank in (0, 1, 2)), came(3, 0, 40)]
    return event(4, waiting, progress, stacks=[3])


def test_the_rank_that_did_not_enter_is_named_with_its_stack() -> None:
    verdict = judge_hang(absent_event(), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))
    assert verdict.confidence is Confidence.HIGH
    assert verdict.victims == (0, 1, 2)
    assert verdict.first_bad_op is not None
    assert (verdict.first_bad_op.op, verdict.first_bad_op.match_seq) == ("all_reduce", 41)
    assert verdict.first_bad_op.comm_label == "GLOBAL mesh_global#0"
    assert verdict.measures["longest_wait_ns"] == 40 * S
    assert [e.text for e in verdict.evidence if e.kind == "stack"] == ["load (data.py:3)"]
    assert evidence_params(verdict, codes.ABSENT)[0]["last_entered"] == 40
    assert verdict.missing == ()
    chain = {link.level: link.value for link in verdict.chain}
    assert chain[ChainLevel.RANK] == "3"
    assert chain[ChainLevel.NODE] == "node0"
    assert chain[ChainLevel.PORT] == "unknown"


def chain_event() -> HangEvent:
    """Rank 7 computes. Its TP partner 6 waits in TP, 2 and 3 for stage 1, 0 1 4 5 in DP."""
    in_flight = [
        op(6, 3, AR, 9, age_s=50),
        op(2, 6, RECV, 5, peer=1, age_s=49),
        op(3, 7, RECV, 5, peer=1, age_s=49),
        *(op(rank, 8 + rank, AR, 3, age_s=60) for rank in (0, 1)),
        *(op(rank, 6 + rank, AR, 3, age_s=60) for rank in (4, 5)),
    ]
    progress = [
        came(6, 3, 9, 8), came(7, 3, 8),
        came(6, 6, 4, peer=0, way=SEND), came(7, 7, 4, peer=0, way=SEND),
        *(came(rank, 8 + rank, 3, 2) for rank in (0, 1)),
        *(came(rank, 6 + rank, 3, 2) for rank in (4, 5)),
        came(2, 8, 2), came(3, 9, 2), came(6, 10, 2), came(7, 11, 2),
    ]  # fmt: skip
    return event(8, in_flight, progress)


def test_the_origin_is_found_over_tp_pp_and_dp() -> None:
    """T18: the DP ops are older than the TP op, and still not where it began."""
    verdict = judge_hang(chain_event(), MESH)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (7,))
    assert verdict.victims == (0, 1, 2, 3, 4, 5, 6)
    assert verdict.measures["n_waiting_directly"] == 3  # 6 in TP, 3 in PP, 5 in DP
    indirect = evidence_params(verdict, codes.WAITS_TRANSITIVELY)
    assert set(indirect[0]["ranks"]) >= {0, 1, 2, 4}


def test_first_bad_op_is_the_oldest_that_the_origin_has_not_entered() -> None:
    verdict = judge_hang(chain_event(), MESH)
    assert verdict.first_bad_op is not None
    assert verdict.first_bad_op.comm_id == 11  # DP of 5 and 7, since 60 s
    assert verdict.chain[1].value == "DP"


def test_a_cycle_is_printed_as_a_cycle() -> None:
    groups = (comm(0, (0, 1)), comm(1, (0, 1), CommRole.TP))
    in_flight = [op(0, 0, AR, 7), op(1, 1, AR, 3)]
    progress = [came(0, 0, 7, 6), came(1, 0, 6), came(1, 1, 3, 2), came(0, 1, 2)]
    verdict = judge_hang(event(2, in_flight, progress), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.CROSS_GROUP_CYCLE, (0, 1))
    edges = evidence_params(verdict, codes.CYCLE_EDGE)
    assert [(e["waiter"], e["waited_for"], e["match_seq"]) for e in edges] == [(0, 1, 7), (1, 0, 3)]
    assert verdict.next_actions[0].code == codes.ORDER_GROUPS


def test_three_ranks_in_a_ring_of_receives() -> None:
    groups = (comm(0, range(4), CommRole.PP),)
    in_flight = [op(rank, 0, RECV, 1, peer=(rank + 1) % 3) for rank in range(3)]
    verdict = judge_hang(event(4, [*in_flight, op(3, 0, RECV, 1, peer=0)]), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_CYCLE, (0, 1, 2))
    assert verdict.victims == (3,)


@pytest.mark.parametrize(
    ("liveness", "exit_status", "expected"),
    [(Liveness.DEAD, "signal 9", codes.DIED), (Liveness.CLOSED, "", codes.LEFT)],
)
def test_a_process_that_is_gone(liveness: Liveness, exit_status: str, expected: str) -> None:
    gone = state(3, liveness, exit_status=exit_status)
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    verdict = judge_hang(event(4, waiting, [came(3, 0, 40)], states={3: gone}), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (3,))
    assert evidence_params(verdict, expected)


def test_ranks_that_left_before_the_same_op_are_one_finding() -> None:
    left = {rank: state(rank, Liveness.CLOSED) for rank in (0, 2)}
    progress = [came(0, 0, 35), came(2, 0, 35)]
    waiting = [op(1, 0, AR, 36), op(3, 0, AR, 36)]
    verdict = judge_hang(event(4, waiting, progress, states=left), WORLD4)
    assert (verdict.cause, verdict.culprits, verdict.victims) == (Cause.RANK_DEAD, (0, 2), (1, 3))


def test_a_rank_that_died_inside_an_op_all_entered() -> None:
    waiting = [op(rank, 0, AR, 41) for rank in range(4)]
    dead = {2: state(2, Liveness.DEAD, exit_status="signal 11")}
    verdict = judge_hang(event(4, waiting, states=dead), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (2,))
    assert verdict.victims == (0, 1, 3)


def test_t2_a_rank_without_evidence_is_unknown_and_never_named() -> None:
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    verdict = judge_hang(event(4, waiting, states={3: None}), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert verdict.missing[0].params == {"ranks": [3]}
    assert missing_codes(verdict) == [codes.MISSING_RANKS]
    assert verdict.next_actions[0].code == codes.COLLECT_RANKS
    assert verdict.victims == (0, 1, 2)


def test_t6_a_gap_is_not_an_absent_rank() -> None:
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    lossy = {3: state(3, records_lost=12)}
    verdict = judge_hang(event(4, waiting, [came(3, 0, 30)], states=lossy), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert codes.MISSING_RECORDS in missing_codes(verdict)
    is_done = judge_hang(event(4, waiting, [came(3, 0, 41)], states=lossy), WORLD4)
    assert 3 not in is_done.culprits


LOSSY, TAIL, OLDER = {"records_lost": 12}, {"is_whole": False}, {"is_whole": False}


@pytest.mark.parametrize(
    ("liveness", "cause"),
    [(Liveness.ALIVE, Cause.RANK_NOT_ENTERED), (Liveness.DEAD, Cause.RANK_DEAD)],
)
@pytest.mark.parametrize(
    ("record", "progress", "is_named"),
    [
        # all is there, from the first record on
        ({}, [came(3, 0, 40)], True),
        ({}, [], True),
        # nothing is missing after its last op of this communicator
        (LOSSY, [came(3, 0, 40, is_current=True)], True),
        (TAIL, [came(3, 0, 40, is_current=True)], True),
        # something is, or the communicator does not occur in what was read
        (LOSSY, [came(3, 0, 40, is_current=False)], False),
        (TAIL, [came(3, 0, 40, is_current=False)], False),
        (LOSSY, [], False),
        (TAIL, [], False),
        (TAIL, [came(3, 1, 7, is_current=True)], False),
        # an observer that only counted what was lost
        (OLDER, [came(3, 0, 40)], True),
        (OLDER, [], False),
        (LOSSY, [came(3, 0, 40)], False),
    ],
)
def test_only_a_record_that_tells_makes_a_rank_absent(
    liveness: Liveness, cause: Cause, record: dict[str, int], progress: list[Progress],
    is_named: bool,
) -> None:  # fmt: skip
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    states = {3: state(3, liveness, **record)}
    verdict = judge_hang(event(4, waiting, progress, states=states), WORLD4)
    if is_named:
        assert (verdict.cause, verdict.culprits) == (cause, (3,))
    else:
        assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
        assert codes.MISSING_PROGRESS in missing_codes(verdict)


def test_a_broadcast_root_far_ahead_is_not_accused_by_a_tail_without_it() -> None:
    """Its broadcasts are over and lie before what was read of it; rank 1 is late."""
    waiting = [op(2, 0, BC, 9, peer=0), op(3, 0, BC, 9, peer=0)]
    ahead = {0: state(0, is_whole=False)}
    verdict = judge_hang(event(4, waiting, [came(1, 0, 8)], states=ahead), WORLD4)
    assert 0 not in verdict.culprits


def test_a_known_origin_beside_an_unknown_rank_is_named_with_low_confidence() -> None:
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1)]
    verdict = judge_hang(event(4, waiting, [came(2, 0, 40)], states={3: None}), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert verdict.confidence is Confidence.LOW
    assert missing_codes(verdict)[0] == codes.MISSING_RANKS


def test_t19_when_the_chain_ends_at_an_unknown_rank_its_data_is_what_is_missing() -> None:
    seen = chain_event()
    unseen = event(8, seen.in_flight, seen.progress, states={7: None, 0: None})
    verdict = judge_hang(unseen, MESH)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert verdict.missing[0].params == {"ranks": [7]}


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        ({"name": AG}, Cause.OP_TYPE_MISMATCH),
        ({"size_bytes": 8192}, Cause.SHAPE_MISMATCH),
        ({"dtype": 7}, Cause.DTYPE_MISMATCH),
    ],
)
def test_members_that_disagree(odd: dict[str, int], cause: Cause) -> None:
    name = odd.pop("name", AR)
    waiting = [*(op(rank, 0, AR, 41) for rank in (0, 1, 3)), op(2, 0, name, 41, **odd)]
    verdict = judge_hang(event(4, waiting), WORLD4)
    assert (verdict.cause, verdict.culprits) == (cause, (2,))
    groups = [params["ranks"] for params in evidence_params(verdict, codes.SIGNATURE)]
    assert groups == [[0, 1, 3], [2]]


def test_roots_that_disagree() -> None:
    waiting = [op(rank, 0, BC, 5, peer=1 if rank == 3 else 0) for rank in range(4)]
    verdict = judge_hang(event(4, waiting), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.ROOT_MISMATCH, (3,))


def test_without_a_majority_nobody_is_called_wrong_alone() -> None:
    waiting = [op(0, 0, AR, 5), op(1, 0, AG, 5)]
    verdict = judge_hang(event(2, waiting), (comm(0, (0, 1)),))
    assert (verdict.cause, verdict.culprits) == (Cause.OP_TYPE_MISMATCH, (0, 1))
    assert verdict.confidence is Confidence.MEDIUM
    assert missing_codes(verdict) == [codes.MISSING_MAJORITY]


def test_uneven_all_to_all_is_no_mismatch() -> None:
    waiting = [op(rank, 0, 8, 5, size_bytes=rank) for rank in range(3)]  # type: ignore[arg-type]
    verdict = judge_hang(event(4, waiting, [came(3, 0, 4)]), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))


def test_t16_a_broadcast_root_and_a_buffered_send_may_run_ahead() -> None:
    """Rank 0 (root) is two ops ahead; rank 3 is where it began (case C17)."""
    in_flight = [op(0, 0, AG, 12), op(1, 0, BC, 10, peer=0), op(2, 0, BC, 10, peer=0)]
    progress = [came(0, 0, 12, 11), came(1, 0, 10, 9), came(2, 0, 10, 9), came(3, 0, 9)]
    verdict = judge_hang(event(4, in_flight, progress), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))


def test_t16_an_eager_send_does_not_clear_its_sender() -> None:
    """Rank 0 stands in its own code with a send in flight; rank 1 waits for it in a collective."""
    groups = (comm(0, (0, 1)), comm(1, (0, 1), CommRole.PP))
    in_flight = [op(0, 1, SEND, 4, peer=1), op(1, 0, AR, 7)]
    progress = [came(0, 0, 6), came(1, 0, 7, 6), came(1, 1, 3, peer=0, way=RECV)]
    verdict = judge_hang(event(2, in_flight, progress), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (0,))
    assert verdict.confidence is Confidence.MEDIUM
    assert codes.MISSING_SEND_END in missing_codes(verdict)


def test_two_sends_that_face_each_other_are_a_cycle() -> None:
    groups = (comm(0, (0, 1), CommRole.PP),)
    in_flight = [op(0, 0, SEND, 1, peer=1), op(1, 0, SEND, 1, peer=0)]
    verdict = judge_hang(event(2, in_flight), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_CYCLE, (0, 1))
    assert verdict.confidence is Confidence.MEDIUM


def test_a_message_that_was_never_sent() -> None:
    groups = (comm(0, (0, 1)), comm(1, (0, 1), CommRole.PP))
    in_flight = [op(0, 1, RECV, 5, peer=1), op(1, 0, AR, 7)]
    progress = [came(1, 1, 4, peer=0, way=SEND), came(0, 0, 6), came(1, 0, 7, 6)]
    verdict = judge_hang(event(2, in_flight, progress), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, (0, 1))
    assert verdict.first_bad_op is not None
    assert (verdict.first_bad_op.op, verdict.first_bad_op.peer) == ("recv", 1)


def test_all_present_and_nothing_moves() -> None:
    verdict = judge_hang(event(4, [op(rank, 0, AR, 41) for rank in range(4)]), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())
    assert verdict.victims == (0, 1, 2, 3)
    assert verdict.next_actions[0].code == codes.CHECK_TRANSFER


def test_a_rank_that_communicates_elsewhere_has_skipped_the_op() -> None:
    skipped = {3: state(3, last_event_ns=NOW - 2 * S)}
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    verdict = judge_hang(event(4, waiting, [came(3, 0, 40)], states=skipped), WORLD4)
    assert (verdict.cause, verdict.culprits) == (Cause.CONTROL_FLOW_SKIP, (3,))


def test_nothing_overdue_is_no_hang() -> None:
    waiting = [op(rank, 0, AR, 41, age_s=3) for rank in (0, 1, 2)]
    verdict = judge_hang(event(4, waiting, [came(3, 0, 40)]), WORLD4)
    assert verdict.cause is Cause.NO_VERDICT
    assert missing_codes(verdict) == [codes.MISSING_OVERDUE]


def test_unknown_communicators_and_members_are_said_to_be_missing() -> None:
    stray = judge_hang(event(2, [op(0, -1, AR, 1)]), ())
    assert missing_codes(stray) == [codes.MISSING_ORIGIN, codes.MISSING_COMMUNICATOR]
    half = comm(0, (0, 1, -1))
    verdict = judge_hang(event(2, [op(0, 0, AR, 2)], [came(1, 0, 1)]), (half,))
    assert (verdict.culprits, verdict.confidence) == ((1,), Confidence.LOW)
    assert codes.MISSING_MEMBERS in missing_codes(verdict)


def all_communicators(layout_seed: int) -> tuple[HangEvent, tuple[Communicator, ...], int]:
    rank, step, op_index = layout_seed % 8, 3, 5 + layout_seed % 7
    kind = KilledRank if layout_seed % 3 == 0 else LostRank
    run = simulate(
        megatron_layout(2, 2, 2), steps=6, seed=layout_seed, faults=[kind(rank, step, op_index)]
    )
    return hang_event(run), run.communicators, rank


@pytest.mark.parametrize("seed", range(40))
def test_a_rank_lost_in_a_simulated_job_is_the_only_one_named(seed: int) -> None:
    observed, communicators, lost = all_communicators(seed)
    verdict = judge_hang(observed, communicators)
    expected = Cause.RANK_DEAD if seed % 3 == 0 else Cause.RANK_NOT_ENTERED
    assert (verdict.cause, verdict.culprits) == (expected, (lost,))
    assert len(verdict.victims) == 7
    assert all(set(m.params) == set(codes.CODES[m.code]) for m in verdict.missing)


def test_a_transfer_that_both_began_and_nobody_waits_for_is_no_hang() -> None:
    pair = comm(0, [0, 1], CommRole.PP)
    verdict = judge_hang(
        event(
            2,
            [op(0, 0, SEND, 5, peer=1, age_s=900), op(1, 0, RECV, 5, peer=0, age_s=900)],
            [came(0, 0, 5, 4, peer=1, way=SEND), came(1, 0, 5, 4, peer=0, way=RECV)],
        ),
        [pair],
    )
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
