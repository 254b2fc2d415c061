"""Planted hangs over random groups: the rank at which waiting begins is named, and no other.

All ranks do the ops of their groups in one global order, so that nothing can go wrong by itself.
Then a rank stops, or two do in halves that have no group in common, or a circle is closed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.job import judge_job
from comminsight.model.hang import HangEvent, InFlightOp, Progress
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Verdict
from tests.unit.diagnosis.events import AR, RECV, S, came, comm, event, op

STOPPED = frozenset({Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP})

Groups = tuple[tuple[int, ...], ...]


def groups_of(ranks: Sequence[int], most: int = 6) -> st.SearchStrategy[Groups]:
    """Groups of two members or more."""
    member_sets = st.sets(st.sampled_from(list(ranks)), min_size=2).map(sorted).map(tuple)
    return st.lists(member_sets, min_size=1, max_size=most).map(tuple)


def played(
    groups: Groups, order: Sequence[int], n_ranks: int, stops: Mapping[int, int]
) -> tuple[dict[int, tuple[int, int]], dict[tuple[int, int], int]]:
    """Where each rank stands when nothing moves: the op (group, number) that it is in, and how many
    ops of each group it has entered. ``order`` are the groups whose ops come one after another;
    ``stops[rank]`` is how many ops of its own the rank does before it does no more."""
    programs = {
        rank: [g for g in order if rank in groups[g]][: stops.get(rank, len(order))]
        for rank in range(n_ranks)
    }
    done = dict.fromkeys(range(n_ranks), 0)
    moved = True
    while moved:
        moved = False
        for g in set(order):
            at = [
                rank for rank in groups[g]
                if done[rank] < len(programs[rank]) and programs[rank][done[rank]] == g
            ]  # fmt: skip
            number = {programs[rank][: done[rank]].count(g) for rank in at}
            if len(at) == len(groups[g]) and len(number) == 1:
                moved = True
                for rank in at:
                    done[rank] += 1
    inside, entered = {}, Counter[tuple[int, int]]()
    for rank, program in programs.items():
        entered.update((rank, g) for g in program[: done[rank]])
        if done[rank] < len(program):
            g = program[done[rank]]
            entered[rank, g] += 1
            inside[rank] = (g, entered[rank, g])
    return inside, dict(entered)


def seen(
    groups: Groups,
    n_ranks: int,
    inside: Mapping[int, tuple[int, int]],
    entered: Mapping[tuple[int, int], int],
) -> tuple[HangEvent, tuple[Communicator, ...]]:
    waiting: list[InFlightOp] = []
    progress: list[Progress] = []
    for g, members in enumerate(groups):
        for rank in members:
            n = entered.get((rank, g), 0)
            is_inside = inside.get(rank, (-1, 0))[0] == g
            progress.append(came(rank, g, n, n - is_inside))
            if is_inside:
                waiting.append(op(rank, g, AR, n, age_s=40 + (rank * 7 + g) % 13))
    return event(n_ranks, waiting, progress), tuple(comm(g, m) for g, m in enumerate(groups))


def reaching(
    origin: int, groups: Groups, inside: Mapping[int, tuple[int, int]],
    entered: Mapping[tuple[int, int], int],
) -> set[int]:  # fmt: skip
    """Who waits for ``origin``, directly or through others, worked out op by op."""
    found: set[int] = set()
    wanted = {origin}
    while wanted:
        late = wanted.pop()
        for rank, (g, n) in inside.items():
            is_waiting_for = late in groups[g] and entered.get((late, g), 0) < n
            if is_waiting_for and rank not in found:
                found.add(rank)
                wanted.add(rank)
    return found


N = 8


@settings(max_examples=200, deadline=None)
@given(
    groups_of(range(N)), st.lists(st.integers(0, 5), min_size=3, max_size=14),
    st.integers(0, N - 1), st.integers(0, 6),
)  # fmt: skip
def test_the_rank_that_stops_is_named_and_no_other(
    groups: Groups, picks: list[int], origin: int, after: int
) -> None:
    order = [pick % len(groups) for pick in picks]
    inside, entered = played(groups, order, N, {origin: after})
    assume(inside)
    hang, communicators = seen(groups, N, inside, entered)
    verdict = judge_hang(hang, communicators)
    assert (verdict.cause in STOPPED, verdict.culprits) == (True, (origin,))
    assert set(verdict.victims) == set(inside) == reaching(origin, groups, inside, entered)


@settings(max_examples=100, deadline=None)
@given(
    groups_of(range(5)), groups_of(range(5, 10)),
    st.lists(st.integers(0, 11), min_size=4, max_size=16),
    st.integers(0, 4), st.integers(5, 9), st.integers(0, 3),
)  # fmt: skip
def test_two_hangs_at_once_are_both_told(
    low: Groups, high: Groups, picks: list[int], one: int, other: int, after: int
) -> None:
    """The one with more waiting ranks is the verdict, the other stands in its evidence."""
    groups = (*low, *high)
    inside, entered = played(
        groups, [pick % len(groups) for pick in picks], 10, {one: after, other: after}
    )
    held = {rank: reaching(rank, groups, inside, entered) for rank in (one, other)}
    assume(held[one] and held[other])
    hang, communicators = seen(groups, 10, inside, entered)
    verdict = judge_hang(hang, communicators)
    assert verdict.cause in STOPPED
    (named,) = verdict.culprits
    assert named in held
    assert len(held[named]) == max(map(len, held.values()))
    assert set(verdict.victims) == held[named]
    assert other_origins(verdict) == [[rank] for rank in held if rank != named]


def other_origins(verdict: Verdict) -> list[list[int]]:
    return [
        list(entry.message.params["ranks"])  # type: ignore[arg-type]
        for entry in verdict.evidence
        if entry.message.code == codes.OTHER_ORIGIN
    ]


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(9)), st.integers(3, 6), st.integers(2, 30), st.data())
def test_a_circle_of_groups_is_named_whole_and_without_followers(
    ranks: list[int], n_groups: int, number: int, data: st.DataObject
) -> None:
    """Rank k of the circle is in group k, which rank k + 1 has not entered; the others follow."""
    ring, followers = ranks[:n_groups], ranks[n_groups:]
    members = [[ring[k], ring[(k + 1) % n_groups]] for k in range(n_groups)]
    inside = {rank: k for k, rank in enumerate(ring)}
    for rank in followers:
        k = inside[rank] = data.draw(st.integers(0, n_groups - 1))
        members[k].append(rank)
    waiting = [op(rank, k, AR, number) for rank, k in inside.items()]
    progress = [
        came(rank, k, number if inside[rank] == k else number - 1, number - 1)
        for k, own in enumerate(members)
        for rank in own
    ]
    groups = tuple(comm(k, sorted(own)) for k, own in enumerate(members))
    verdict = judge_hang(event(9, waiting, progress), groups)
    assert (verdict.cause, verdict.culprits) == (Cause.CROSS_GROUP_CYCLE, tuple(sorted(ring)))
    assert set(verdict.victims) == set(followers)
    edges = [e.message.params for e in verdict.evidence if e.message.code == codes.CYCLE_EDGE]
    following = {edge["waiter"]: edge["waited_for"] for edge in edges}
    assert following == {ring[k]: ring[(k + 1) % n_groups] for k in range(n_groups)}


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(8)), st.integers(2, 8), st.integers(1, 9))
def test_a_circle_of_receives_is_one_of_messages(ranks: list[int], size: int, number: int) -> None:
    ring = ranks[:size]
    waiting = [op(rank, 0, RECV, number, peer=ring[(k + 1) % size]) for k, rank in enumerate(ring)]
    verdict = judge_hang(event(8, waiting), (comm(0, range(8)),))
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_CYCLE, tuple(sorted(ring)))


def test_the_clock_does_not_matter() -> None:
    """The group that began to wait first, or has the shortest limit, is not where it begins."""
    groups = ((2, 3), (0, 2), (1, 3))
    inside, entered = played(groups, [0, 1, 2], 4, {3: 0})
    hang, communicators = seen(groups, 4, inside, entered)
    older = [op(o.global_rank, o.comm_id, AR, o.match_seq, age_s=40 + 50 * (o.comm_id > 0))
             for o in hang.in_flight]  # fmt: skip
    verdict = judge_hang(event(4, older, hang.progress), communicators)
    assert (verdict.culprits, verdict.victims) == ((3,), (0, 1, 2))
    assert max(o.age_ns for o in older) == 90 * S


@pytest.mark.parametrize("absent", [0, 346, 1023])
def test_a_thousand_ranks_in_a_second(absent: int) -> None:
    """TP 8, PP 8, DP 16 and the world: 209 groups, all ranks behind one. 0.1 s; bound ten times."""
    n_ranks, tp, layer = 1024, 8, 64
    tensor = tuple(tuple(range(k, k + tp)) for k in range(0, n_ranks, tp))
    data = tuple(tuple(range(k, n_ranks, layer)) for k in range(layer))
    groups = (*tensor, *data, tuple(range(n_ranks)))
    order = [*range(len(groups))]
    inside, entered = played(groups, order, n_ranks, {absent: 0})
    hang, communicators = seen(groups, n_ranks, inside, entered)
    started_s = time.process_time()
    (verdict,) = judge_job(JobEvidence(hang=hang, communicators=communicators))
    assert time.process_time() - started_s < 1.0
    assert (verdict.culprits, len(verdict.victims)) == ((absent,), n_ranks - 1)


@settings(max_examples=300, deadline=None)
@given(
    groups_of(range(N)), st.lists(st.integers(0, 5), min_size=3, max_size=14),
    st.integers(0, N - 1), st.integers(0, 6), st.sets(st.integers(0, N - 1), max_size=5),
)  # fmt: skip
def test_less_evidence_names_nobody_else(
    groups: Groups, picks: list[int], origin: int, after: int, lost: set[int]
) -> None:
    """Without what some ranks left, the origin may stay untold, but no follower is named for it."""
    order = [pick % len(groups) for pick in picks]
    inside, entered = played(groups, order, N, {origin: after})
    assume(inside)
    hang, communicators = seen(groups, N, inside, entered)
    part = replace(
        hang,
        ranks=tuple(one for one in hang.ranks if one.global_rank not in lost),
        in_flight=tuple(one for one in hang.in_flight if one.global_rank not in lost),
        progress=tuple(one for one in hang.progress if one.global_rank not in lost),
    )
    for verdict in judge_job(JobEvidence(hang=part, communicators=communicators, world_size=N)):
        assert set(verdict.culprits) <= {origin}
        assert not (verdict.culprits and origin in lost)
