"""What one dump tells of its rank's calls, and what the dumps together tell of the groups."""

from __future__ import annotations

from typing import Any

import pytest

from comminsight.format.flight_recorder import FlightCounters, FlightDump, FlightGroup
from comminsight.format.flight_recorder_entry import EntryReader, FlightEntry
from comminsight.model.ops import Op
from comminsight.pipeline.flight_recorder_calls import RankCalls, calls_of
from comminsight.pipeline.flight_recorder_files import RankDump
from comminsight.pipeline.flight_recorder_groups import groups_of, join_groups


def entry(record_id: int, seq: int, *, call: str = "nccl:all_reduce", **more: Any) -> FlightEntry:
    is_p2p = more.pop("is_p2p", False)
    fields = {
        "record_id": record_id, "pg_id": more.pop("pg_id", 0), "op_id": seq,
        "process_group": more.pop("group", ("0", "default_pg")), "profiling_name": call,
        "collective_seq_id": 0 if is_p2p else seq, "p2p_seq_id": seq if is_p2p else 0,
        "is_p2p": is_p2p, "state": "completed" if more.pop("over", True) else "scheduled",
        "input_sizes": [[4]], "output_sizes": [[4]], "input_dtypes": ["Float"],
    }  # fmt: skip
    return EntryReader().read(fields | more)


def calls(*entries: FlightEntry, **more: Any) -> RankCalls:
    return calls_of(FlightDump(version="2.10", entries=entries, **more))


def test_a_whole_history_a_ring_and_only_what_is_in_flight() -> None:
    whole = calls(entry(0, 1), entry(1, 2))
    assert (whole.is_whole, whole.is_ring, whole.n_lost) == (True, True, 0)
    ring = calls(entry(40, 1), entry(41, 2, over=False))
    assert (ring.is_whole, ring.is_ring, ring.n_lost) == (False, True, 40)
    active = calls(entry(40, 1, over=False), entry(43, 2, over=False))
    assert (active.is_whole, active.is_ring, active.n_lost) == (False, False, 0)
    assert (calls().is_whole, calls().gate_id) == (False, -1)


def test_what_may_hold_newer_calls_is_older_than_them_and_newer_than_all_that_ended() -> None:
    assert (
        calls(entry(0, 1, over=False), entry(1, 1, pg_id=1), entry(2, 2, over=False)).gate_id == 2
    )
    # of calls in flight alone: what is left out between them has ended
    assert (
        calls(entry(5, 1, over=False), entry(9, 2, over=False), entry(10, 3, over=False)).gate_id
        == 9
    )


def test_nccl_ends_the_calls_of_a_communicator_in_order() -> None:
    stale = calls(entry(0, 1, over=False), entry(1, 2), entry(2, 3, over=False))
    assert [call.seq for call in stale.in_flight] == [3]
    gloo: dict[str, Any] = {"call": "gloo:all_reduce", "over": False}
    kept = calls(entry(0, 1, **gloo), entry(1, 2, **gloo, retired=True))
    assert [call.seq for call in kept.in_flight] == [1]


def test_the_calls_of_a_coalesced_group_are_one() -> None:
    gathers = [entry(n, 7, call="nccl:_all_gather_base", over=False) for n in (0, 1, 2)]
    end = entry(3, 7, call="nccl:ALLGATHER_coalesced", over=False)
    (call,) = calls(*gathers, end).in_flight
    assert (call.op, call.seq, len(call.entries)) == (Op.ALL_GATHER, 7, 3)
    mixed = calls(gathers[0], entry(1, 7, over=False))
    assert [one.op for one in mixed.in_flight] == [Op.UNKNOWN]


def test_entries_of_torchs_own_hook_are_left_to_the_backend() -> None:
    hook = entry(1, 1, call="c10d:all_reduce", over=False)
    assert not calls(entry(0, 1), hook).in_flight
    assert not calls(hook).in_flight  # it tells no end of any


@pytest.mark.parametrize(
    ("enqueued", "completed", "is_unseen"),
    [(2, 2, False), (3, 2, True), (2, 1, False), (-1, -1, False)],
)
def test_a_counter_tells_of_a_call_without_an_entry(
    enqueued: int, completed: int, is_unseen: bool
) -> None:
    counters = {0: FlightCounters(enqueued, completed)}
    assert calls(entry(0, 1), entry(1, 2), counters=counters).is_inside_unseen == is_unseen


ALL, PAIR, OTHER = (FlightGroup("0", "default_pg", (0, 1, 2)), FlightGroup("7", "TP", (0, 1)),
                    FlightGroup("12", "DP", (0, 2)))  # fmt: skip
DONE = FlightCounters(4, 4)


def test_groups_without_an_entry_are_told_by_the_order_in_which_they_were_made() -> None:
    groups = (OTHER, ALL, PAIR)
    counters = {0: DONE, 3: DONE, 5: DONE}
    bare = FlightDump(version="2.9", entries=(), groups=groups, counters=counters)
    assert groups_of(bare) == {0: ALL, 3: PAIR, 5: OTHER}
    agreeing = (entry(0, 1, pg_id=5, group=("12", "DP")),)
    agreed = FlightDump(version="2.9", entries=agreeing, groups=groups, counters=counters)
    assert groups_of(agreed) == groups_of(bare)
    against = (entry(0, 1, pg_id=3, group=("12", "DP")),)
    odd = FlightDump(version="2.9", entries=against, groups=groups, counters=counters)
    assert groups_of(odd) == {3: OTHER}
    hashed = FlightDump(version="2.9", entries=(), groups=(ALL, FlightGroup("ab3f", "", (0,))),
                        counters={0: DONE, 1: DONE})  # fmt: skip
    assert groups_of(hashed) == {}


def test_equal_names_with_unlike_members_are_two_groups() -> None:
    dumps = [
        RankDump(rank, FlightDump(version="2.10", entries=(entry(0, 1, group=("1", "TP")),),
                                  groups=(FlightGroup("1", "TP", members),)), "")
        for rank, members in ((0, (0, 1)), (2, (2, 3)))
    ]  # fmt: skip
    joined = join_groups(dumps)
    assert [one.members for one in joined.communicators] == [(0, 1), (2, 3)]
    assert joined.world_size == 4


def test_members_that_gloo_does_not_name_are_its_users_and_those_a_gather_counts() -> None:
    gather = entry(0, 1, call="gloo:all_gather", group=("3", "DP"), output_sizes=[[3, 4]])
    reduce = entry(0, 1, call="gloo:all_reduce", group=("3", "DP"))
    dumps = [RankDump(rank, FlightDump(version="2.10", entries=(gather,)), "") for rank in (0, 4)]
    told = join_groups(dumps)
    assert [one.members for one in told.communicators] == [(0, 4, -1)]
    assert told.assumed == frozenset()
    untold = join_groups([RankDump(4, FlightDump(version="2.10", entries=(reduce,)), "")])
    assert [one.members for one in untold.communicators] == [(4,)]
    assert untold.assumed == {0}
