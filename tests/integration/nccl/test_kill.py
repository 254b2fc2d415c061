"""SIGKILL to the host program in the middle of every scenario: the black box reads, and it names
the ops in flight that the log of what was truly played names.

The log line of a call is written before the call, that of its end beside the callbacks that tell
the plugin. So the log cannot decide two things: whether the last call of a rank had begun, and
whether the plugin had heard of ends around the newest that is logged. All else must agree; where
calls are not seen (2.27) only that the box reads.
"""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from comminsight.model.hang import Liveness
from comminsight.model.ops import OpState, SlotFlag
from comminsight.model.records import is_replay
from tests.integration.recording import FULL
from tests.unit.nccl.agreement import called, said
from tests.unit.nccl.scenes import (
    SCENARIOS,
    Played,
    kill_all,
    needs_program,
    read_log,
    staged,
)

N_KILLS = 20 if FULL else 2
LONGEST_S = 0.06
RELEASES = ("2.27", "2.28", "2.30", "2.31", "2.32")
# ops that the log does not have (bad calls, flipped masks), and more than there are slots
UNDECIDED = {"17_bad", "17_twice", "22_chaos", "23_overflow"}
UNTOLD = {"lost_stops", "20_stop_first"}  # the end of an op, until the next rounds of the recorder
NAMES = sorted(path.relative_to(SCENARIOS) for path in SCENARIOS.rglob("*.txt"))

pytestmark = [pytest.mark.real, needs_program]


def killed(folder, name, release, delay_s):
    """What the scenario left when it was killed so long after its first call."""
    with staged(folder, name, release) as process:
        while not any(line["event"] == "call" for line in read_log(folder / "log.jsonl")):
            if process.poll() is not None:
                break
            time.sleep(0.001)
        time.sleep(delay_s)
        kill_all(process, folder / "boxes")
    return Played(folder)


@pytest.mark.parametrize("nth", range(N_KILLS))
@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.stem)
def test_the_box_names_what_was_in_flight(name, nth, tmp_path):
    draw = random.Random(f"{name} {nth}")
    release = draw.choice(RELEASES)
    played = killed(tmp_path, str(name.with_suffix("")), release, draw.uniform(0, LONGEST_S))
    assert played.sessions
    assert [p for s in played.sessions for p in s.problems] == []
    assert {s.liveness for s in played.sessions} <= {Liveness.DEAD, Liveness.CLOSED}
    if release != "2.27" and name.stem not in UNDECIDED:
        told = {(line["rank"], line["id"]) for line in played.log if line["event"] == "told"}
        for place, member in played.members.items():
            check_known(member, place, told)
            if name.stem not in UNTOLD:
                check_ends(member, place, told, played.done)


def calls_of(member, told, place):
    """The calls that the release shows: those of the program and replays of graphs, in order each.
    A replay is shown from when the host-callback thread tells it on."""
    calls = {False: [], True: []}
    for call in member.calls:
        is_shown = not call.get("replay") or (place.rank, call["id"]) in told
        if is_shown and not (call.get("replay") and call.get("unseen")):
            calls[bool(call.get("replay"))].append(call)
    return calls


def paired(rows, calls):
    """(record, one of its calls) of one kind in the order of ``op_seq``; the call is None when
    there are more records than calls."""
    following = iter(calls)
    for row in rows[np.argsort(rows["op_seq"], kind="stable")]:
        for _ in range(max(1, int(row["n_folded"]))):
            yield row, next(following, None)


def check_known(member, place, told):
    """Every call of a kind but the last is known, no other is, and what is in flight is what was
    called; all are numbered once."""
    slots = member.in_flight["record"]
    known = np.concatenate([member.ops, slots.astype(member.ops.dtype)])
    assert len(np.unique(known["op_seq"])) == len(known), place
    for is_graph, calls in calls_of(member, told, place).items():
        own = known[is_replay(known) == is_graph]
        n_known = int(np.maximum(1, own["n_folded"]).sum())
        assert len(calls) - 1 <= n_known <= len(calls), (place, is_graph)
        for row, call in paired(own, calls):
            if row["op_seq"] in slots["op_seq"] and row["n_folded"] <= 1:
                expected = called(call, len(member.members))
                assert said(row)[:4] == expected[:4], (place, int(row["op_seq"]))
                assert said(row)[4] in {expected[4], -1}, (place, int(row["op_seq"]))


def check_ends(member, place, told, done):
    """What the records call done was done; no op is in flight when a later one of its kind and
    stream, of another group, is recorded as done."""
    slots = member.in_flight["record"]
    known = np.concatenate([member.ops, slots.astype(member.ops.dtype)])
    for is_graph, calls in calls_of(member, told, place).items():
        is_logged = [(place.rank, call["id"]) in done for call in calls]
        newest = max((n for n, is_over in enumerate(is_logged) if is_over), default=-1)
        own = [*paired(known[is_replay(known) == is_graph], calls)]
        # the ends of one kernel are logged one after the other, in no order
        trailing = own[newest][0]["group_id"] if 0 <= newest < len(own) else None
        for number, (op, _) in enumerate(own):
            if op["state"] == OpState.DONE and op["op_seq"] not in slots["op_seq"]:
                is_trailing = op["group_id"] == trailing
                assert is_logged[number] or number > newest or is_trailing, (place, number)
        is_over = (is_replay(member.ops) == is_graph) & (member.ops["state"] == OpState.DONE)
        for slot in told_slots(member, is_graph):
            is_later = is_over & (member.ops["op_seq"] > slot["op_seq"])
            later = member.ops[is_later & (member.ops["stream_id"] == slot["stream_id"])]
            assert (later["group_id"] == slot["group_id"]).all(), (place, int(slot["op_seq"]))


def told_slots(member, is_graph):
    """The ops in flight that have a task; of others no end is seen, which takes its time."""
    has_task = (member.in_flight["slot_flags"] & SlotFlag.TASK_SEEN) != 0
    slots = member.in_flight["record"][has_task]
    return slots[is_replay(slots) == is_graph]
