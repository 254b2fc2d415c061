"""SIGKILL to the host program in the middle of every scenario: the black box reads, and it names
the ops in flight that the log of what was truly played names.

The log line of a call is written before the call, that of its end beside the callbacks that tell the
plugin. So the log cannot decide two things: whether the last call of a rank had begun, and whether
the plugin had heard of ends around the newest that is logged. All else must agree.
"""

from __future__ import annotations

import random
import time

import pytest

from comminsight.model.hang import Liveness
from comminsight.model.ops import OpState
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

N_KILLS = 2
LONGEST_S = 0.08
# folds: several calls, one slot; bad: ops that the log does not have; overflow: more than slots
UNDECIDED = {"05_fold", "05_one_way", "17_bad", "17_twice", "22_chaos", "23_overflow", "21_fork"}
NAMES = sorted(path.stem for path in (SCENARIOS / "sequences").glob("*.txt"))

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (PROGRAM.exists() and LIBRARY.exists()),
        reason="native programs are not built: make native",
    ),
]


def killed(folder, name, release, delay_s):
    """What the scenario left when it was killed so long after its first call."""
    with staged(folder, f"sequences/{name}", release) as process:
        while not any(line["event"] == "call" for line in read_log(folder / "log.jsonl")):
            if process.poll() is not None:
                break
            time.sleep(0.001)
        time.sleep(delay_s)
        kill_all(process, folder / "boxes")
    return Played(folder)


@pytest.mark.parametrize("nth", range(N_KILLS))
@pytest.mark.parametrize("name", NAMES)
def test_the_box_names_what_was_in_flight(name, nth, tmp_path):
    draw = random.Random(f"{name} {nth}")
    release = draw.choice(["2.28", "2.30", "2.31"])
    played = killed(tmp_path, name, release, draw.uniform(0, LONGEST_S))
    assert played.sessions
    assert all(was_being_made(p) for s in played.sessions for p in s.problems)
    assert {s.liveness for s in played.sessions} <= {Liveness.DEAD, Liveness.CLOSED}
    if name not in UNDECIDED:
        check_against_log(played)


def was_being_made(problem):
    """The first segment, killed before its header was written; the box has all there is."""
    return "000001.ciseg.open: the header is cut short" in problem


def is_dark(call):
    """A replay of which nobody is told."""
    return call.get("replay") and call.get("unseen")


def check_against_log(played):
    """Every call up to the last is done or in flight; what is called done was done."""
    for place, member in played.members.items():
        calls = dict(enumerate((c for c in member.calls if not is_dark(c)), start=1))
        slots = {int(slot["op_seq"]): slot for slot in member.in_flight["record"]}
        ended = {int(op["op_seq"]): op for op in member.ops}
        known = slots.keys() | ended.keys()
        assert known <= calls.keys(), place
        assert calls.keys() - known <= set(list(calls)[-1:]), place
        for op_seq, slot in slots.items():
            expected = called(calls[op_seq], len(member.members))
            assert said(slot)[:4] == expected[:4], (place, op_seq)
            assert said(slot)[4] in {expected[4], -1}, (place, op_seq)
        for op_seq, op in ended.items():
            call_id = calls[op_seq]["id"]
            newest = max((n for rank, n in played.done if rank == place.rank), default=0)
            is_done = (place.rank, call_id) in played.done or call_id > newest
            assert is_done or op["state"] != OpState.DONE, (place, op_seq)
