import msgspec
import numpy as np

from comminsight.analysis.alignment import AlignedStep, align_steps
from comminsight.model.event import empty_batch
from comminsight.model.ops import Op
from comminsight.model.step import StepEvidence, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace

Evidence = tuple[int, int] | None  # (comm_index, match_seq)


def evidence(where: Evidence, op: int = Op.ALL_REDUCE) -> StepEvidence:
    comm_index, match_seq = where or (0, 0)
    return StepEvidence(
        comm_hash=1, comm_index=comm_index, role="DP", op=op, op_seq=match_seq, match_seq=match_seq,
        func_seq=0, size_bytes=8, start_ns=0, seq=0,
    )  # fmt: skip


def step(rank: int, number: int, anchor: Evidence, first: Evidence = None) -> StepSummary:
    return StepSummary(
        session_id=f"s{rank}", global_rank=rank, step=number, template="t", template_version=1,
        template_file_version=1, first=evidence(first), last=evidence(None),
        anchor=evidence(anchor) if anchor else None,
    )  # fmt: skip


def run(*steps: list[StepSummary], comm_ids: dict[int, list[int]] | None = None) -> RunTrace:
    def trace(rank: int) -> RankTrace:
        ids = (comm_ids or {}).get(rank, [-1, 0, 1])
        session = SessionIdentity(session_id=f"s{rank}", global_rank=rank)
        return RankTrace(session=session, ops=empty_batch(), comm_ids=np.array(ids))

    return RunTrace(
        ranks=tuple(trace(rank) for rank in range(len(steps))), communicators=(),
        steps={f"s{rank}": tuple(own) for rank, own in enumerate(steps)}, clocks=ClockOffsets(),
        world_size=len(steps),
    )  # fmt: skip


def shape(aligned: tuple[AlignedStep, ...]) -> list[tuple[int, dict[int, int]]]:
    return [(a.step, {r: s.step for r, s in sorted(a.members.items())}) for a in aligned]


def test_steps_meet_on_their_anchor() -> None:
    trace = run(*[[step(r, k, (1, 10 + k)) for k in range(3)] for r in range(2)])
    assert shape(align_steps(trace)) == [(k, {0: k, 1: k}) for k in range(3)]


def test_a_fused_step_does_not_shift_the_others() -> None:
    whole = [step(0, k, (1, 10 + k), (2, 50 + k)) for k in range(4)]
    # rank 1 fused 1 and 2: First of the former, Anchor of the latter
    fused = [step(1, 0, (1, 10)), step(1, 1, (1, 12), (2, 51)), step(1, 2, (1, 13))]
    assert shape(align_steps(run(whole, fused))) == [
        (0, {0: 0, 1: 0}), (1, {0: 1}), (2, {0: 2, 1: 1}), (3, {0: 3, 1: 2}),
    ]  # fmt: skip


def test_a_step_that_only_the_smaller_rank_saw_is_put_in_between() -> None:
    fused = [step(0, 0, (1, 10)), step(0, 1, (1, 12)), step(0, 2, (1, 13))]
    whole = [step(1, k, (1, 10 + k)) for k in range(4)]
    assert shape(align_steps(run(fused, whole))) == [
        (0, {0: 0, 1: 0}), (1, {1: 1}), (2, {0: 1, 1: 2}), (3, {0: 2, 1: 3}),
    ]  # fmt: skip


def test_first_stands_in_for_a_lost_anchor() -> None:
    trace = run([step(0, 0, (1, 10), (2, 7))], [step(1, 4, None, (2, 7))])
    assert [sorted(a.members) for a in align_steps(trace)] == [[0, 1]]


def test_identity_is_the_run_communicator_not_the_local_index() -> None:
    trace = run([step(0, 0, (1, 10))], [step(1, 0, (2, 10))], comm_ids={1: [-1, 1, 0]})
    assert len(align_steps(trace)) == 1


def test_two_steps_of_one_rank_are_never_joined() -> None:
    twice = [step(0, 0, (1, 10)), step(0, 1, (1, 10))]
    aligned = align_steps(run(twice, [step(1, 0, (1, 10))]))
    assert shape(aligned) == [(0, {0: 0, 1: 0}), (1, {0: 1})]


def test_ranks_without_common_evidence_meet_by_order() -> None:
    left = [step(0, k, (1, 10 + k)) for k in range(2)]
    right = [step(1, k, (2, 90 + k)) for k in range(2)]
    assert shape(align_steps(run(left, right))) == [(k, {0: k, 1: k}) for k in range(2)]


def test_point_to_point_evidence_joins_nobody() -> None:
    lone = step(0, 0, None)
    lone = StepSummary(**{f: getattr(lone, f) for f in lone.__struct_fields__} | {
        "first": evidence((1, 5), Op.SEND)})  # fmt: skip
    other = step(1, 3, None, (1, 5))
    assert [sorted(a.members) for a in align_steps(run([lone], [other]))] == [[0], [1]]


def test_no_steps_align_to_nothing() -> None:
    assert align_steps(run([], [])) == ()


def test_replicas_that_share_evidence_in_one_step_only_meet_in_all_steps() -> None:
    """Two shard groups, each with anchors of its own, that meet on a checkpoint of all ranks."""
    halves = [
        [step(rank, k, (1 + rank // 2, 10 + k), (3, 7) if k == 2 else None) for k in range(4)]
        for rank in range(4)
    ]
    comm_ids = {rank: [-1, 0, 1, 2] for rank in range(4)}
    assert shape(align_steps(run(*halves, comm_ids=comm_ids))) == [
        (k, {0: k, 1: k, 2: k, 3: k}) for k in range(4)
    ]


def test_a_replay_and_a_call_of_equal_number_are_two_ops() -> None:
    """Rank 1 missed the replay that rank 0's first step is anchored at."""
    replayed = msgspec.structs.replace(evidence((1, 10)), is_replay=True)
    first = msgspec.structs.replace(step(0, 0, (1, 10)), anchor=replayed)
    trace = run([first, step(0, 1, (1, 10))], [step(1, 0, (1, 10))])
    assert shape(align_steps(trace)) == [(0, {0: 0}), (1, {0: 1, 1: 0})]
