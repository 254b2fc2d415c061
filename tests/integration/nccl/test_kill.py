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

import pytest

from comminsight.model.hang import Liveness
from comminsight.model.ops import OpState
from tests.integration.recording import FULL
from tests.unit.nccl.agreement import called, said
from tests.unit.nccl.scenes import (
    LIBRARY,
    PROGRAM,
    SCENARIOS,
    Played,
    kill_all,
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

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (PROGRAM.exists() and LIBRARY.exists()),
        reason="native programs are not built: make native",
    ),
]


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
    assert all(was_being_made(p) for s in played.sessions for p in s.problems)
    assert {s.liveness for s in played.sessions} <= {Liveness.DEAD, Liveness.CLOSED}
    if release != "2.27" and name.stem not in UNDECIDED:
        for place, member in played.members.items():
            check_known(member, place)
            if name.stem not in UNTOLD:
                check_ends(member, place, played.done)


def was_being_made(problem):
    """The first segment, killed before its header was written; the box has all there is."""
    return "000001.ciseg.open: the header is cut short" in problem


def calls_of(member):
    """The calls that the release shows, by their number."""
    shown = [c for c in member.calls if not (c.get("replay") and c.get("unseen"))]
    return dict(enumerate(shown, start=1))


def covered(op):
    """The numbers of the calls that a record stands for."""
    first = int(op["op_seq"])
    return range(first, first + max(1, int(op["n_folded"])))


def check_known(member, place):
    """Every call but the last is known, no other is, and what is in flight is what was called."""
    calls = calls_of(member)
    slots = member.in_flight["record"]
    known = {number for op in [*slots, *member.ops] for number in covered(op)}
    assert known <= calls.keys(), place
    assert calls.keys() - known <= set(list(calls)[-1:]), place
    for slot in slots:
        if slot["n_folded"] > 1:
            continue
        expected = called(calls[int(slot["op_seq"])], len(member.members))
        assert said(slot)[:4] == expected[:4], (place, int(slot["op_seq"]))
        assert said(slot)[4] in {expected[4], -1}, (place, int(slot["op_seq"]))


def check_ends(member, place, done):
    """What the records call done was done; no op is in flight when a later one of its stream, of
    another group, is recorded as done."""
    calls = calls_of(member)
    is_logged = {number: (place.rank, call["id"]) in done for number, call in calls.items()}
    newest = max((number for number, is_over in is_logged.items() if is_over), default=0)
    # the ends of one kernel are logged one after the other, in no order
    group_of = {n: op["group_id"] for op in member.ops for n in covered(op)}
    for op in member.ops[member.ops["state"] == OpState.DONE]:
        is_trailing = op["group_id"] == group_of.get(newest)
        for number in covered(op):
            assert is_logged[number] or number > newest or is_trailing, (place, number)
    for slot in member.in_flight["record"]:
        is_later = (member.ops["op_seq"] > slot["op_seq"]) & (member.ops["state"] == OpState.DONE)
        later = member.ops[is_later & (member.ops["stream_id"] == slot["stream_id"])]
        assert (later["group_id"] == slot["group_id"]).all(), (place, int(slot["op_seq"]))
