"""Collectives that ended although members had called something unlike."""

import dataclasses

import numpy as np
import pytest

from comminsight.analysis.finished_mismatch import UnlikeIn, finished_mismatches
from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import DType, Op, OpState, RecordKind
from comminsight.model.topology import Communicator, SessionIdentity
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace

SUM = {"op": Op.ALL_REDUCE, "dtype": DType.FLOAT32, "count": 256, "size_bytes": 1024}
SMALL = SUM | {"count": 2, "size_bytes": 8}
ROOTED = SUM | {"op": Op.BROADCAST, "peer_or_root": 0}
GATHER = SUM | {"op": Op.ALL_GATHER}
PARTS = SUM | {"op": Op.ALL_TO_ALL}
STEP = (ROOTED, SUM, SMALL, GATHER)


def line(calls, session):
    """The calls of one rank in one communicator, in order and all ended."""
    rows = np.zeros(len(calls), OP_DTYPE)
    rows["kind"], rows["state"] = RecordKind.COLLECTIVE, OpState.DONE
    rows["peer_or_root"], rows["n_folded"] = -1, 1
    for number, call in enumerate(calls):
        rows[number]["match_seq"] = rows[number]["op_seq"] = number + 1
        rows[number]["start_ns"] = 1_000 * (number + 1)
        for name, value in call.items():
            rows[number][name] = value
    return RankTrace(session, rows, np.array([0]))


def trace(lines, members=None):
    """``lines[i]`` are the calls of the i-th member of one communicator."""
    members = tuple(members or range(len(lines)))
    ranks = tuple(
        line(calls, SessionIdentity(session_id=f"s{rank}", global_rank=rank))
        for rank, calls in sorted(zip(members, lines, strict=True), key=lambda pair: pair[0])
    )
    comm = Communicator(comm_id=0, comm_hash=1, ordinal=0, members=members)
    return RunTrace(ranks, (comm,), {}, ClockOffsets(), len(lines))


def unlike(n_ranks, changes, steps=4, step=STEP):
    """The calls of all ranks, some of them with ``changes`` at (rank, place)."""
    lines = [list(step * steps) for _ in range(n_ranks)]
    for (rank, place), change in changes.items():
        lines[rank][place] = lines[rank][place] | change
    return lines


@pytest.mark.parametrize("n_ranks", [3, 4, 7])
@pytest.mark.parametrize(
    ("place", "change", "kind"),
    [
        (0, {"peer_or_root": 1}, UnlikeIn.ROOT),
        (4, {"peer_or_root": 2}, UnlikeIn.ROOT),
        (5, {"dtype": DType.FLOAT64, "size_bytes": 2048}, UnlikeIn.DTYPE),
        (5, {"dtype": DType.INT32}, UnlikeIn.DTYPE),
        (8, {"dtype": DType.FLOAT64, "size_bytes": 2048}, UnlikeIn.DTYPE),
        (7, {"dtype": DType.FLOAT64, "size_bytes": 2048}, UnlikeIn.DTYPE),
        (5, {"count": 258, "size_bytes": 1032}, UnlikeIn.SIZE),
        (8, {"count": 255, "size_bytes": 1020}, UnlikeIn.SIZE),
        (6, {"op": Op.REDUCE, "peer_or_root": 0}, UnlikeIn.OP),
        (9, {"op": Op.BARRIER, "count": 0, "size_bytes": 0, "dtype": 0}, UnlikeIn.OP),
    ],
)
def test_the_odd_member_and_its_first_such_op(n_ranks, place, change, kind):
    for rank in range(n_ranks):
        (found,) = finished_mismatches(trace(unlike(n_ranks, {(rank, place): change})))
        others = tuple(r for r in range(n_ranks) if r != rank)
        assert (found.unlike, found.sides) == (kind, (others, (rank,)))
        assert [call.match_seq for call in found.calls] == [place + 1] * 2
        assert (found.n_ops, found.n_compared, found.has_majority) == (1, 16, True)
        assert found.start_ns == 1_000 * (place + 1)


def test_every_step_is_counted_once_and_global_ranks_are_named():
    change = {(2, place): {"peer_or_root": 1} for place in (4, 8, 12)}
    (found,) = finished_mismatches(trace(unlike(4, change), members=(6, 4, 2, 0)))
    assert (found.sides, found.n_ops) == (((0, 4, 6), (2,)), 3)
    assert found.calls[1].peer == 1


def test_several_in_a_row():
    step = (ROOTED, ROOTED, ROOTED, SUM, SMALL)
    change = {(1, place): {"peer_or_root": 3} for place in (5, 6, 7)}
    (found,) = finished_mismatches(trace(unlike(4, change, step=step)))
    assert (found.unlike, found.sides[1:], found.n_ops) == (UnlikeIn.ROOT, ((1,),), 3)


def test_two_members_have_no_majority():
    (found,) = finished_mismatches(trace(unlike(2, {(1, 4): {"peer_or_root": 1}})))
    assert (found.sides, found.has_majority) == (((0,), (1,)), False)


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (1, {"count": 300, "size_bytes": 1200}),  # parts of an all-to-all
        (3, {"count": 300, "size_bytes": 1200}),  # an uneven gather
        (0, {"dtype": DType.UINT8, "count": 1024}),  # bytes are moved as bytes
        (3, {"dtype": DType.INT32}),
        (2, {"dtype": DType.UNKNOWN}),
        (2, {"red_op": 3}),
    ],
)
def test_what_may_differ(place, change):
    step = (ROOTED, PARTS, SUM, GATHER)
    change = {(1, place + 4): change, (2, place + 8): change}
    assert finished_mismatches(trace(unlike(4, change, step=step))) == ()


RETYPED = {"dtype": DType.FLOAT64, "size_bytes": 2048}


@pytest.mark.parametrize(
    "changes",
    [
        {(1, 15): RETYPED},  # nothing behind it
        {(1, 5): RETYPED, (2, 6): {"state": OpState.FAILED}, (2, 5): {"state": OpState.FAILED}},
        {(1, 5): RETYPED | {"state": OpState.UNOBSERVABLE}},
        {(1, 5): RETYPED | {"n_folded": 3}},
        {(1, 5): RETYPED, (1, 6): {"op": Op.BARRIER}},  # unlike in unlike ways, one after the other
        {(1, 5): SMALL, (1, 6): SUM},  # the same calls in another order
        {(1, 5): SMALL, (1, 10): SUM},
        {(1, place): {"peer_or_root": 5} | RETYPED for place in range(1, 15)},
    ],
)
def test_what_is_not_certain(changes):
    assert finished_mismatches(trace(unlike(4, changes))) == ()


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("at", [0, 1, 2, 6, 9])
@pytest.mark.parametrize("step", [STEP, (*(SUM,) * 9, SMALL), (SUM, SUM, ROOTED)])
def test_shifted_numbers_accuse_nobody(step, at, rank):
    """One member lacks a call, or has one more: all its later calls have other numbers."""
    lines = unlike(4, {}, steps=9, step=step)
    left_out = [own[:at] + own[at + 1 :] if r == rank else own for r, own in enumerate(lines)]
    added = [
        [*own[:at], own[at - 1], *own[at:]] if r == rank else own for r, own in enumerate(lines)
    ]
    assert finished_mismatches(trace(left_out)) == finished_mismatches(trace(added)) == ()


def test_a_record_that_is_lost_ends_the_comparison():
    whole = trace(unlike(4, {(1, 9): RETYPED}))
    assert len(finished_mismatches(whole)) == 1
    for rank in range(4):
        for lost in range(11):
            cut = dataclasses.replace(whole.ranks[rank], ops=np.delete(whole.ranks[rank].ops, lost))
            ranks = (*whole.ranks[:rank], cut, *whole.ranks[rank + 1 :])
            assert finished_mismatches(dataclasses.replace(whole, ranks=ranks)) == ()


def test_without_a_member_or_with_calls_nobody_saw():
    whole = trace(unlike(4, {(1, 9): RETYPED}))
    fewer = dataclasses.replace(whole, ranks=whole.ranks[:3])
    assert finished_mismatches(fewer) == ()
    unseen = dataclasses.replace(whole.ranks[2], unseen_calls={0: 1})
    unsure = dataclasses.replace(whole, ranks=(*whole.ranks[:2], unseen, whole.ranks[3]))
    assert finished_mismatches(unsure) == ()
