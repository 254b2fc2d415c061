"""Where the end of every op is told: who holds an op that others are over with, or have called."""

from __future__ import annotations

from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.hang import HangEvent, InFlightOp, SkippedOp
from comminsight.model.ops import Backend
from comminsight.model.verdict import Cause, Verdict
from tests.unit.diagnosis.events import AG, AR, BC, RECV, SEND, came, comm, event, op, state

TP, DP, WORLD = comm(0, (0, 1)), comm(1, (0, 2)), comm(2, (0, 1, 2, 3))
COMMS = (TP, DP, WORLD)


def told(*args: object, **more: object) -> HangEvent:
    fields = {key: more.pop(key) for key in ("finished", "skipped") if key in more}
    return replace(event(*args, **more), tells_ends=True, **fields)  # type: ignore[arg-type]


def said(verdict: Verdict) -> list[str]:
    return [one.message.code for one in verdict.evidence]


def queued(one: InFlightOp) -> InFlightOp:
    return replace(one, is_queued=True)


def test_an_op_that_has_ended_for_others_names_the_ranks_in_whom_it_has_not() -> None:
    stuck = [op(rank, 2, AR, 5, age_s=60) for rank in (1, 2)]
    later = [op(rank, 0, AG, 3, age_s=50) for rank in (0,)]
    verdict = judge_hang(
        told(4, [*stuck, *later], [came(0, 2, 5), came(3, 2, 5), came(1, 0, 2)]), COMMS
    )
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, (1, 2))
    assert verdict.victims == (0,)
    assert codes.LAGGING in said(verdict)


def test_one_member_without_evidence_does_not_hide_that_it_has_ended() -> None:
    verdict = judge_hang(
        told(4, [op(1, 2, AR, 5)], [came(0, 2, 5), came(3, 2, 5)], states={2: None}), COMMS
    )
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, (1,))


def test_on_gloo_a_member_without_evidence_may_hold_it_for_some_and_not_for_others() -> None:
    communicators = (*COMMS[:2], replace(WORLD, backend=Backend.GLOO))
    stuck, over = [op(1, 2, AR, 5)], [came(0, 2, 5), came(3, 2, 5)]
    verdict = judge_hang(told(4, stuck, over, states={2: None}), communicators)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    unnamed = (*COMMS[:2], replace(WORLD, backend=Backend.GLOO, members=(0, 1, -1, 3)))
    verdict = judge_hang(told(4, stuck, over), unnamed)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    verdict = judge_hang(told(4, stuck, [*over, came(2, 2, 5)]), communicators)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, (1,))


def test_the_root_of_a_broadcast_may_be_over_with_it_before_the_others() -> None:
    verdict = judge_hang(
        told(4, [op(rank, 2, BC, 5, peer=0) for rank in (1, 2, 3)], [came(0, 2, 5)]), COMMS
    )
    assert not verdict.culprits


def test_an_observer_that_sees_no_ends_names_nobody_for_one() -> None:
    verdict = judge_hang(event(4, [op(1, 2, AR, 5)], [came(r, 2, 5) for r in (0, 2, 3)]), COMMS)
    assert not verdict.culprits


def test_members_that_are_over_with_an_op_tell_that_the_others_called_another() -> None:
    done = [op(rank, 2, AR, 5, size_bytes=4) for rank in (0, 2, 3)]
    progress = [came(rank, 2, 5) for rank in (0, 2, 3)]
    verdict = judge_hang(told(4, [op(1, 2, AR, 5, size_bytes=12)], progress, finished=done), COMMS)
    assert (verdict.cause, verdict.culprits) == (Cause.SHAPE_MISMATCH, (1,))
    assert [one.message.params["ranks"] for one in verdict.evidence] == [[0, 2, 3], [1]]


def test_who_called_an_op_behind_another_holds_back_those_who_wait_in_it() -> None:
    """Rank 0 waits for 2 in one group; its peer 1 waits for it in an op that both have called."""
    in_flight = [
        op(0, 1, AR, 7, age_s=60), queued(op(0, 0, AG, 3, age_s=50)), op(1, 0, AG, 3, age_s=50),
    ]  # fmt: skip
    verdict = judge_hang(told(4, in_flight, [came(2, 1, 6)]), COMMS)
    assert (verdict.cause, verdict.culprits, verdict.victims) == (
        Cause.RANK_NOT_ENTERED, (2,), (0, 1)
    )  # fmt: skip


def test_behind_an_op_that_stands_still_by_itself_nobody_is_waited_for() -> None:
    """All members of the first op are in it; what they called behind it proves nothing."""
    pair = comm(3, (0, 2))
    in_flight = [
        op(0, 0, AG, 3, age_s=60), op(1, 0, AG, 3, age_s=60),
        queued(op(0, 3, RECV, 1, peer=1, age_s=50)), op(2, 3, RECV, 1, peer=0, age_s=40),
    ]  # fmt: skip
    progress = [
        came(0, 3, 0, peer=1, way=SEND), came(2, 3, 0, peer=0, way=SEND), came(0, 3, 0, 0, peer=1),
    ]  # fmt: skip
    verdict = judge_hang(told(4, in_flight, progress), (*COMMS, pair))
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())
    assert verdict.first_bad_op is not None
    assert verdict.first_bad_op.comm_id == 0


BOTH = (TP, comm(2, (0, 1)))


def crossed() -> list[InFlightOp]:
    return [op(0, 0, AR, 5, age_s=60), op(1, 2, AR, 3, age_s=60)]


def test_in_a_circle_the_rank_that_went_past_its_op_is_the_origin() -> None:
    progress = [came(1, 0, 4), came(0, 2, 2)]
    skip = SkippedOp(global_rank=1, comm_id=0, match_seq=5, n_others=2)
    verdict = judge_hang(told(2, crossed(), progress, skipped=(skip,)), BOTH)
    assert (verdict.cause, verdict.culprits, verdict.victims) == (
        Cause.CONTROL_FLOW_SKIP, (1,), (0,)
    )  # fmt: skip
    assert codes.SKIPPED in said(verdict)
    assert codes.WENT_ON not in said(verdict)
    without = judge_hang(told(2, crossed(), progress), BOTH)
    assert (without.cause, without.culprits) == (Cause.CROSS_GROUP_CYCLE, (0, 1))


def test_a_circle_through_a_rank_of_unknown_place_names_nobody() -> None:
    unknown = came(1, 0, 4, is_current=False)
    cut = {1: state(1, is_whole=False)}
    verdict = judge_hang(told(2, crossed(), [unknown, came(0, 2, 2)], states=cut), BOTH)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert codes.MISSING_PROGRESS in [one.code for one in verdict.missing]


def test_a_rank_that_waits_for_a_member_nobody_knows_is_not_accused() -> None:
    half = comm(3, (1, -1))
    verdict = judge_hang(told(2, [op(0, 0, AR, 5), op(1, 3, AR, 2)], [came(1, 0, 4)]), (TP, half))
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert codes.MISSING_MEMBERS in [one.code for one in verdict.missing]


def test_origins_that_are_missed_in_one_op_are_one_finding() -> None:
    """Each is also missed in an older op of its own."""
    one, other = comm(3, (0, 2)), comm(4, (1, 3))
    in_flight = [
        op(0, 3, AR, 1, age_s=60), op(1, 4, AR, 1, age_s=55), op(0, 2, AR, 1), op(1, 2, AR, 1)
    ]  # fmt: skip
    verdict = judge_hang(told(4, in_flight), (*COMMS, one, other))
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2, 3))
    assert verdict.comm_id == 2
