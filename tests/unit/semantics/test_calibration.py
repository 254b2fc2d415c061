"""Calibration on small tables: per session, the ops that bound each local step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.model.calibration import LEFT_RAW, SessionCorrection, StepMark, StepProof
from comminsight.model.ops import Op
from comminsight.model.step import StepEvidence, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.model.verdict import Confidence
from comminsight.semantics.calibration import calibrate
from comminsight.semantics.correction import counts_of
from comminsight.semantics.step_table import SessionStepList

Bounds = tuple[int, int, int]  # match_seq of First, Anchor (0: none) and Last
PACE = 10


def regular(*steps: int) -> list[Bounds]:
    """Steps of ten ops each: First is op 1 of the step, Anchor op 9, Last op 10."""
    return [(PACE * step + 1, PACE * step + 9, PACE * step + 10) for step in steps]


def evidence(comm: int, match_seq: int, op: Op = Op.ALL_REDUCE, peer: int = -1) -> StepEvidence:
    return StepEvidence(
        comm_hash=comm + 100, comm_index=comm, role="DP", op=op, op_seq=match_seq,
        match_seq=match_seq, func_seq=match_seq, size_bytes=4, start_ns=match_seq, seq=match_seq,
        peer=peer,
    )  # fmt: skip


def session(
    rank: int, bounds: Sequence[Bounds], *, comm: int = 0, lossy: Sequence[int] = ()
) -> SessionStepList:
    """Steps bounded by ops of one communicator; ``lossy`` ones lost records."""
    steps = [
        StepSummary(
            session_id=f"s{rank}", global_rank=rank, step=local, template="t", template_version=1,
            template_file_version=1, first=evidence(comm, first), last=evidence(comm, last),
            anchor=evidence(comm, anchor) if anchor else None, n_lost=int(local in lossy),
        )
        for local, (first, anchor, last) in enumerate(bounds)
    ]  # fmt: skip
    return listed(rank, steps)


def listed(rank: int, steps: Sequence[StepSummary]) -> SessionStepList:
    identity = SessionIdentity(session_id=f"s{rank}", global_rank=rank)
    return SessionStepList(identity, steps, np.arange(8), np.full(8, rank))


def numbers(corrected: SessionCorrection) -> list[int]:
    return [number for number, _ in corrected.numbers()]


def test_equal_ranks_keep_their_numbers_in_one_span() -> None:
    corrected = calibrate([session(rank, regular(*range(6))) for rank in range(3)])
    for one in corrected:
        (span,) = one.spans
        assert (span.local_step, span.n_steps, span.step, span.mark) == (0, 6, 0, StepMark.NONE)
        assert (span.confidence, span.proofs) == (
            Confidence.HIGH, (StepProof.ANCHOR, StepProof.FIRST, StepProof.LAST),
        )  # fmt: skip
        assert (one.missing, one.part) == ("", 0)


def test_a_lost_step_moves_the_rest() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1)]
    *_, lagging = calibrate([*whole, session(2, regular(0, 1, 3, 4, 5))])
    assert numbers(lagging) == [0, 1, 3, 4, 5]
    assert lagging.missing == "2"


def test_a_fused_step_has_the_number_of_its_anchor_and_spans_both() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1)]
    fused = [*regular(0, 1), (21, 39, 40), *regular(4, 5)]
    *_, lagging = calibrate([*whole, session(2, fused)])
    assert numbers(lagging) == [0, 1, 3, 4, 5]
    (span,) = [s for s in lagging.spans if s.mark is StepMark.FUSED]
    assert (span.local_step, span.n_before, span.n_behind) == (2, 1, 0)
    assert lagging.missing == ""
    *_, other = calibrate([*whole, session(2, [*regular(0, 1), (21, 29, 40), *regular(4, 5)])])
    (span,) = [s for s in other.spans if s.mark is StepMark.FUSED]
    assert (span.step, span.n_before, span.n_behind) == (2, 0, 1)


def test_first_and_last_stand_in_for_a_lost_anchor() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1)]
    bounds = [*regular(0, 1), (21, 0, 30), (31, 0, 38), (43, 0, 50), *regular(5)]
    *_, lagging = calibrate([*whole, session(2, bounds)])
    assert numbers(lagging) == list(range(6))
    proofs = [span.proofs for _, span in lagging.numbers()]
    assert proofs[2:5] == [
        (StepProof.FIRST, StepProof.LAST), (StepProof.FIRST,), (StepProof.LAST,),
    ]  # fmt: skip


def test_a_step_without_any_shared_op_takes_the_one_free_number() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1)]
    *_, lagging = calibrate([*whole, session(2, [*regular(0, 1), (23, 0, 27), *regular(3, 4)])])
    assert numbers(lagging) == [0, 1, 2, 3, 4]
    placed = list(lagging.numbers())[2][1]
    assert (placed.proofs, placed.confidence) == ((StepProof.PLACE,), Confidence.LOW)
    *_, torn = calibrate([*whole, session(2, [*regular(0, 1), (23, 0, 27), *regular(4)])])
    assert numbers(torn) == [0, 1, LEFT_RAW, 4]
    assert next(s.reason for s in torn.spans if s.mark is StepMark.RAW) == "not_linked"


def test_a_split_step_has_one_number_twice() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1, 3)]
    bounds = [*regular(0, 1), (21, 25, 25), (26, 29, 30), *regular(3, 4, 5)]
    *_, split = calibrate([*whole, session(2, bounds)])
    assert numbers(split) == [0, 1, 2, 2, 3, 4, 5]
    assert [s.local_step for s in split.spans if s.mark is StepMark.SPLIT] == [2, 3]


def test_a_rank_that_joined_late_counts_from_where_the_others_are() -> None:
    corrected = calibrate([session(0, regular(*range(8))), session(1, regular(5, 6, 7))])
    assert numbers(corrected[1]) == [5, 6, 7]


def test_after_a_restart_the_new_communicator_goes_on_where_the_survivors_were() -> None:
    before, after = regular(*range(4)), regular(*range(3))
    survivors = [
        listed(rank, [*session(rank, before).steps, *renumbered(session(rank, after, comm=1), 4)])
        for rank in (0, 1)
    ]
    first_life, second_life = session(2, before[:3]), session(3, after, comm=1)
    corrected = calibrate([*survivors, first_life, second_life])
    assert [numbers(one) for one in corrected] == [
        list(range(7)), list(range(7)), [0, 1, 2], [4, 5, 6],
    ]  # fmt: skip
    assert {one.part for one in corrected} == {0}
    assert corrected[3].spans[0].proofs[0] is StepProof.ORDER


def renumbered(one: SessionStepList, first: int) -> list[StepSummary]:
    return [
        StepSummary(**{**{f: getattr(s, f) for f in s.__struct_fields__}, "step": s.step + first})
        for s in one.steps
    ]


def test_a_step_that_all_ranks_lost_is_counted_only_where_records_are_missing() -> None:
    kept = regular(0, 1, 3, 4)
    (lossy, _) = calibrate([session(rank, kept, lossy=[1]) for rank in (0, 1)])
    assert numbers(lossy) == [0, 1, 3, 4]
    (clean, _) = calibrate([session(rank, kept) for rank in (0, 1)])
    assert numbers(clean) == [0, 1, 2, 3]  # a long pause with ops, such as an evaluation


def test_a_second_choice_of_the_anchor_is_no_step_of_its_own() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1, 3)]
    *_, other = calibrate([*whole, session(2, [*regular(0, 1), (21, 28, 30), *regular(3, 4)])])
    assert numbers(other) == [0, 1, 2, 3, 4]
    assert list(other.numbers())[2][1].proofs == (StepProof.FIRST, StepProof.LAST)


def test_ranks_that_share_no_op_are_parts_with_numbers_of_their_own() -> None:
    one = [session(rank, regular(*range(5))) for rank in (0, 1)]
    other = [session(rank, regular(3, 4), comm=1) for rank in (2, 3)]
    corrected = calibrate([*one, *other])
    assert [c.part for c in corrected] == [0, 0, 1, 1]
    assert numbers(corrected[2]) == [0, 1]
    assert counts_of(corrected).n_parts == 2


def test_transfers_between_two_ranks_name_a_step_only_with_the_right_partner() -> None:
    def stage(rank: int, op: Op, peer: int) -> SessionStepList:
        steps = [
            StepSummary(
                session_id=f"s{rank}", global_rank=rank, step=n, template="t", template_version=1,
                template_file_version=1, first=evidence(0, 4 * n + 1, op, peer),
                last=evidence(0, 4 * n + 4, op, peer), anchor=evidence(0, 4 * n + 4, op, peer),
            )
            for n in range(4)
        ]  # fmt: skip
        return listed(rank, steps)

    sender, receiver = stage(0, Op.SEND, 1), stage(1, Op.RECV, 0)
    assert [c.part for c in calibrate([sender, receiver])] == [0, 0]
    assert [c.part for c in calibrate([sender, stage(1, Op.RECV, 2)])] == [0, 1]
    nobody = calibrate([stage(0, Op.SEND, -1), stage(1, Op.RECV, -1)])
    assert [numbers(one) for one in nobody] == [[LEFT_RAW] * 4] * 2
    assert nobody[0].spans[0].reason == "no_shared_op"


def test_one_rank_alone_is_numbered_with_low_confidence() -> None:
    (alone,) = calibrate([session(0, regular(0, 1, 2))])
    (span,) = alone.spans
    assert (span.proofs, span.confidence) == ((StepProof.ALONE,), Confidence.LOW)
    assert calibrate([]) == () == calibrate([session(0, [])])


def test_one_rank_alone_is_left_raw_from_its_first_loss_on() -> None:
    (alone,) = calibrate([session(0, regular(0, 1, 2, 4), lossy=[2])])
    assert numbers(alone) == [0, 1, LEFT_RAW, LEFT_RAW]
    assert alone.spans[-1].reason == "not_linked"


def test_behind_a_step_that_one_of_two_ranks_has_the_count_is_of_low_confidence() -> None:
    corrected = calibrate([session(0, regular(*range(5))), session(1, regular(0, 1, 3, 4))])
    assert numbers(corrected[1]) == [0, 1, 3, 4]
    sure = [[span.confidence for _, span in one.numbers()] for one in corrected]
    high, low = Confidence.HIGH, Confidence.LOW
    assert sure == [[high, high, low, low, low], [high, high, low, low]]


def test_counts_tell_every_local_step_once() -> None:
    whole = [session(rank, regular(*range(6))) for rank in (0, 1)]
    bounds = [*regular(0), (11, 29, 30), *regular(4), (51, 0, 53)]
    counts = counts_of(calibrate([*whole, session(2, bounds)]))
    assert (counts.n_local_steps, counts.n_steps, counts.n_sessions) == (16, 6, 3)
    assert (counts.n_fused, counts.n_missing, counts.n_renumbered) == (1, 1, 3)
    assert sum(counts.by_confidence.values()) == counts.n_local_steps
