"""Hangs of NCCL jobs: what the slots of the ops in flight add to who is absent."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.hang import HangEvent, InFlightOp, Liveness
from comminsight.model.ops import Op, RecordKind, SlotFlag, WaitSide
from comminsight.model.topology import CommRole
from comminsight.model.verdict import Cause, Confidence, Verdict
from tests.unit.diagnosis.events import (
    AR,
    LIMIT,
    NOW,
    RECV,
    SEND,
    S,
    came,
    comm,
    event,
    nccl_op,
    op,
    state,
)

F = SlotFlag
CALLED = F.NCCL | F.API_SEEN | F.API_RETURNED
ENDED = CALLED | F.GROUP_ENDED
LAUNCH = ENDED | F.LAUNCH_BEGUN
TASK = LAUNCH | F.LAUNCH_RETURNED | F.TASK_SEEN | F.TASK_HANDED_OVER | F.GROUP_LEFT
NET = TASK | F.NETWORK_SEEN
WORLD = (comm(0, range(4), CommRole.GLOBAL),)
PAIRS = (comm(0, (0, 1)), comm(1, (0, 1), CommRole.TP))


def running(
    rank: int, comm_id: int, name: Op, n: int, flags: int = TASK, **more: int
) -> InFlightOp:
    """An op whose kernel runs on all its four channels."""
    more = {"n_channels": 4, "started_mask": 0b1111} | more
    return nccl_op(rank, comm_id, name, n, flags, **more)


def evidence(verdict: Verdict, code: str) -> list[dict[str, object]]:
    return [dict(e.message.params) for e in verdict.evidence if e.message.code == code]


def missing(verdict: Verdict) -> list[str]:
    return [entry.code for entry in verdict.missing]


def one_held(flags: int, **more: int) -> HangEvent:
    """Rank 3 called the op and its kernel does not run; those of the others do."""
    held = nccl_op(3, 0, AR, 41, flags, n_channels=4, **more)
    return event(4, [*(running(rank, 0, AR, 41) for rank in (0, 1, 2)), held], stacks=[3])


@pytest.mark.parametrize(
    ("flags", "cause", "confidence", "stage", "action"),
    [
        (CALLED, Cause.GROUP_MISUSE, Confidence.HIGH, "open_group", codes.END_GROUP),
        (ENDED, Cause.HOST_BLOCKED, Confidence.MEDIUM, "host", codes.CHECK_HOST),
        (LAUNCH, Cause.HOST_BLOCKED, Confidence.MEDIUM, "launch", codes.CHECK_HOST),
        (TASK, Cause.KERNEL_NOT_STARTED, Confidence.MEDIUM, "not_started", codes.CHECK_STREAM),
    ],
)
def test_the_rank_whose_kernel_does_not_run_holds_the_others(
    flags: int, cause: Cause, confidence: Confidence, stage: str, action: str
) -> None:
    verdict = judge_hang(one_held(flags), WORLD)
    assert (verdict.cause, verdict.culprits) == (cause, (3,))
    assert (verdict.victims, verdict.confidence) == ((0, 1, 2), confidence)
    stages = {s["stage"]: s["ranks"] for s in evidence(verdict, codes.STAGE)}
    assert stages == {f"stage.{stage}": [3], "stage.inside": [0, 1, 2]}
    assert evidence(verdict, codes.ABSENT) == []
    assert verdict.next_actions[0].code == action


def test_a_rank_that_has_only_just_called_is_not_held() -> None:
    verdict = judge_hang(one_held(TASK, age_s=1), WORLD)
    assert verdict.cause is not Cause.KERNEL_NOT_STARTED


def test_an_open_group_is_told_although_no_kernel_runs() -> None:
    """The first op of a communicator: the others connect, which needs the fourth."""
    waiting = [nccl_op(rank, 0, AR, 1, ENDED) for rank in (0, 1, 2)]
    verdict = judge_hang(event(4, [*waiting, nccl_op(3, 0, AR, 1, CALLED)]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.GROUP_MISUSE, (3,))


@pytest.mark.parametrize("flags", [CALLED, ENDED, TASK])
def test_when_no_kernel_runs_nobody_is_named(flags: int) -> None:
    verdict = judge_hang(event(4, [nccl_op(rank, 0, AR, 1, flags) for rank in range(4)]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())
    assert len(evidence(verdict, codes.STAGE)) == 1


def test_two_orders_on_one_stream_are_a_circle_of_kernels() -> None:
    """Both called both ops; each GPU runs the one that the other has not begun."""
    in_flight = [
        running(0, 0, AR, 7), nccl_op(0, 1, AR, 3, TASK, n_channels=4),
        running(1, 1, AR, 3), nccl_op(1, 0, AR, 7, TASK, n_channels=4),
    ]  # fmt: skip
    verdict = judge_hang(event(2, in_flight), PAIRS)
    assert (verdict.cause, verdict.culprits) == (Cause.ORDER_INVERSION, (0, 1))


def test_a_kernel_behind_a_receive_is_followed_to_the_rank_that_does_not_send() -> None:
    """Rank 1's all-reduce stands behind its receive from rank 2, which never called the send."""
    groups = (comm(0, (0, 1)), comm(1, (1, 2), CommRole.PP))
    in_flight = [
        running(0, 0, AR, 7), nccl_op(1, 0, AR, 7, TASK, n_channels=4),
        running(1, 1, RECV, 4, peer=1),
    ]  # fmt: skip
    verdict = judge_hang(event(3, in_flight, [came(2, 1, 3, peer=0, way=SEND)]), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert verdict.victims == (0, 1)


def test_all_kernels_run_and_nothing_else_is_known() -> None:
    verdict = judge_hang(event(4, [running(rank, 0, AR, 41) for rank in range(4)]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())
    assert missing(verdict) == [codes.MISSING_NETWORK_EVENTS]


def test_the_channels_that_still_run_are_shown() -> None:
    """One channel of the ring is dead on all ranks."""
    in_flight = [running(rank, 0, AR, 41, stopped_mask=0b1011) for rank in range(4)]
    verdict = judge_hang(event(4, in_flight), WORLD)
    assert verdict.cause is Cause.ALL_PRESENT_STUCK
    assert [c["channels"] for c in evidence(verdict, codes.CHANNELS)] == [[2]] * 4


def sides(send: WaitSide, receive: WaitSide) -> int:
    return int(send) | int(receive) << 8


STUCK = sides(WaitSide.NETWORK, WaitSide.ARRIVAL)
BEHIND = sides(WaitSide.PEER, WaitSide.ARRIVAL)


def test_the_sender_whose_data_is_never_completed() -> None:
    in_flight = [
        running(rank, 0, AR, 41, NET, wait_side=STUCK if rank == 2 else BEHIND) for rank in range(4)
    ]
    verdict = judge_hang(event(4, in_flight), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.PEER_UNREACHABLE, (2,))
    assert (verdict.victims, verdict.confidence) == ((0, 1, 3), Confidence.LOW)
    assert verdict.next_actions[0].code == codes.CHECK_LINK


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({1: STUCK, 2: STUCK}, "two senders: a switch, or a rank both send to"),
        ({}, "nobody waits for the network"),
    ],
)
def test_without_exactly_one_such_sender_nobody_is_named(changed: dict[int, int], why: str) -> None:
    in_flight = [
        running(rank, 0, AR, 41, NET, wait_side=changed.get(rank, BEHIND)) for rank in range(4)
    ]
    verdict = judge_hang(event(4, in_flight), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ()), why


def test_a_network_that_moves_is_not_stuck() -> None:
    moving = {"wait_side": STUCK, "net_progress_ns": NOW - LIMIT // 4}
    in_flight = [running(rank, 0, AR, 41, NET, wait_side=BEHIND) for rank in range(3)]
    verdict = judge_hang(event(4, [*in_flight, running(3, 0, AR, 41, NET, **moving)]), WORLD)
    assert verdict.cause is Cause.ALL_PRESENT_STUCK


def test_the_link_between_a_sender_and_its_receiver() -> None:
    in_flight = [
        running(1, 0, SEND, 5, NET, peer=3, wait_side=WaitSide.NETWORK),
        running(3, 0, RECV, 5, NET, peer=1, wait_side=WaitSide.ARRIVAL << 8),
    ]
    verdict = judge_hang(event(4, in_flight), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.PEER_UNREACHABLE, (1, 3))
    assert verdict.confidence is Confidence.MEDIUM
    assert verdict.first_bad_op is not None
    assert (verdict.first_bad_op.sender, verdict.first_bad_op.receiver) == (1, 3)


@pytest.mark.parametrize(
    "flags", [TASK | F.NO_KERNEL_EVENTS, ENDED | F.GROUP_LEFT, CALLED | F.NO_KERNEL_EVENTS]
)
def test_an_op_whose_end_cannot_be_seen_is_never_hung(flags: int) -> None:
    verdict = judge_hang(event(4, [nccl_op(rank, 0, AR, 41, flags) for rank in range(4)]), WORLD)
    assert (verdict.cause, verdict.victims) == (Cause.NO_VERDICT, ())
    is_masked = bool(flags & F.NO_KERNEL_EVENTS)
    assert (codes.MISSING_KERNEL_EVENTS in missing(verdict)) is is_masked


def test_its_rank_has_entered_the_op_all_the_same() -> None:
    unseen = nccl_op(3, 0, AR, 41, TASK | F.NO_KERNEL_EVENTS)
    verdict = judge_hang(
        event(4, [*(running(rank, 0, AR, 41) for rank in (0, 1, 2)), unseen]), WORLD
    )
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())
    assert verdict.victims == (0, 1, 2)


def test_an_op_whose_channels_have_all_stopped_waits_for_nobody() -> None:
    over = [running(rank, 0, AR, 41, stopped_mask=0b1111) for rank in range(4)]
    assert judge_hang(event(4, over), WORLD).cause is Cause.NO_VERDICT


def test_who_fell_silent_long_before_the_end_had_died() -> None:
    """All processes are gone, and it hung before: what ended them all says nothing."""
    in_flight = [running(rank, 0, AR, 41) for rank in (0, 1, 2)]

    def judged(silent_ns: int) -> Verdict:
        ends = {rank: NOW - silent_ns * (rank == 3) for rank in range(4)}
        states = {r: state(r, Liveness.DEAD, last_sign_ns=at) for r, at in ends.items()}
        return judge_hang(event(4, in_flight, [came(3, 0, 40)], states=states), WORLD)

    assert (judged(20 * S).cause, judged(20 * S).culprits) == (Cause.RANK_DEAD, (3,))
    assert (judged(1 * S).cause, judged(1 * S).culprits) == (Cause.RANK_NOT_ENTERED, (3,))


def test_an_op_that_a_later_one_has_passed_is_not_hung() -> None:
    over = [running(rank, 0, AR, 41, is_passed=True) for rank in range(4)]
    assert judge_hang(event(4, over), WORLD).cause is Cause.NO_VERDICT


def fold(rank: int, pending: tuple[int, ...], **more: object) -> InFlightOp:
    """An all-to-all of rank ``rank`` as one record of many calls."""
    made = op(rank, 0, Op.ALL_TO_ALL, 1)
    fields = {"kind": RecordKind.P2P, "n_folded": 20, "pending_peers": pending} | more
    return type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | fields)


def test_a_fan_out_names_whom_it_waits_for_and_accuses_nobody() -> None:
    in_flight = [fold(rank, (3,)) for rank in (0, 1, 2)]
    verdict = judge_hang(event(4, in_flight, [came(3, 0, 0)]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    pending = evidence(verdict, codes.PENDING)
    assert [(p["ranks"], p["peers"]) for p in pending] == [([0, 1, 2], [3])]
    assert codes.MISSING_PEERS in missing(verdict)
    assert [(a.code, a.params) for a in verdict.next_actions] == [
        (codes.TAKE_STACK, {"rank": 3, "pid": 103, "host": "node0"})
    ]


def test_who_is_in_such_calls_itself_is_not_looked_at() -> None:
    in_flight = [fold(0, (1, 3)), fold(1, (0, 3)), fold(3, (2,))]
    verdict = judge_hang(event(4, in_flight), WORLD)
    assert [a.params["rank"] for a in verdict.next_actions] == [2]


def test_one_bit_stands_for_several_ranks_of_a_large_communicator() -> None:
    world = (comm(0, range(600)),)
    verdict = judge_hang(event(600, [fold(0, (0, 597), pending_span=3)]), world)
    assert evidence(verdict, codes.PENDING)[0]["peers"] == [1, 2, 597, 598, 599]


@pytest.mark.parametrize("way", [Op.SEND, Op.ALL_TO_ALL])
def test_who_made_calls_with_unknown_peers_is_not_known_to_be_absent(way: Op) -> None:
    """Its send may be among the calls of a fan-out: the count of single sends does not tell."""
    waiting = [op(0, 0, RECV, 5, peer=1)]
    single = came(1, 0, 4, peer=0, way=SEND)
    assert judge_hang(event(4, waiting, [single]), WORLD).culprits == (1,)
    verdict = judge_hang(event(4, waiting, [single, came(1, 0, 1, peer=-1, way=way)]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())


def test_collectives_of_that_rank_are_still_known() -> None:
    waiting = [op(rank, 0, AR, 41) for rank in (0, 1, 2)]
    progress = [came(3, 0, 40), came(3, 0, 1, peer=-1, way=Op.ALL_TO_ALL)]
    assert judge_hang(event(4, waiting, progress), WORLD).culprits == (3,)
