"""What the host program itself promises: that calls meet as NCCL's do, stay as they hang, are told
to the log at once; and that records of its ranks join into one communicator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from comminsight.model.ops import Op, OpState, TimingSource
from comminsight.run import run_of_sessions
from tests.unit.native.door import LIBRARY
from tests.unit.nccl.playing import FORGETFUL, NULL, log_of, needs_plugins, run_text
from tests.unit.nccl.scenes import PATIENCE_S, PROGRAM, Played, environment

pytestmark = needs_plugins

RELEASES = ("2.27", "2.28 shim v4", "2.28", "2.29", "2.30", "2.31", "2.32")


def ends(folder, text, *options, **env):
    """``end`` lines by rank of a script that must be played well."""
    done = run_text(folder, text, *options, **env)
    assert (done.returncode, done.stderr) == (0, "")
    return {line["rank"]: line for line in log_of(folder, "end")}


@pytest.mark.parametrize("release", RELEASES)
def test_one_collective_is_recorded_as_it_was_called(release, tmp_path):
    text = "ranks 2\nall: reduce world count=3k dtype=bfloat16 root=1 channels=8-11 algo=TREE\n"
    done = run_text(tmp_path, text, "--release", release, plugin=LIBRARY)
    assert done.returncode == 0, done.stderr
    played = Played(tmp_path)
    for rank in (0, 1):
        (record,) = played.member(rank).ops
        assert (record["op"], record["state"]) == (Op.REDUCE, OpState.DONE)
        assert (record["count"], record["size_bytes"]) == (3072, 6144)
        assert (record["peer_or_root"], record["n_channels"]) == (1, 4)
        assert (record["op_seq"], record["match_seq"]) == (1, 1)
        assert record["timing_source"] == TimingSource.GPU


def test_four_ranks_join_into_one_communicator(tmp_path):
    text = """ranks 4
comm world all
comm pairs 2,0 1,3
all: all_reduce world x3
all: all_gather pairs
"""
    assert run_text(tmp_path, text, plugin=LIBRARY).returncode == 0
    trace = run_of_sessions(Played(tmp_path).sessions).trace
    members = sorted(communicator.members for communicator in trace.communicators)
    assert members == [(0, 1, 2, 3), (1, 3), (2, 0)]
    matches = [rank.ops["match_seq"].tolist() for rank in trace.ranks]
    assert [sorted(match) for match in matches] == [[1, 1, 2, 3]] * 4


def test_calls_that_pair_end_together_and_wait_for_the_last(tmp_path):
    text = "ranks 3\nrank 2: delay 300ms\nall: all_reduce world duration=1ms\n"
    assert ends(tmp_path, text)
    done = log_of(tmp_path, "done")
    starts = [line["start_ns"] for line in done]
    assert {line["end_ns"] for line in done} == {max(starts) + 1_000_000}
    assert max(starts) - min(starts) > 20_000_000


@pytest.mark.parametrize(
    "calls",
    [
        "all: send world to=+1 count=8",  # nobody receives
        "rank 0: all_reduce world\nrank 1: all_gather world",
        "rank 0: all_reduce world count=4\nrank 1: all_reduce world count=8",
        "rank 0: broadcast world root=0\nrank 1: broadcast world root=1",
        "rank 0: reduce world dtype=int32\nrank 1: reduce world dtype=float32",
        "rank 0: all_reduce world",
        "all: all_reduce world dead=1",
        "rank 0: all_reduce world kernel=never\nrank 1: all_reduce world",
        "rank 0: all_reduce world launch=blocked\nrank 1: all_reduce world",
        "rank 0: group\nall: all_reduce world",
        "rank 0: all_reduce world stream=1\nrank 0: send world to=1\nrank 1: recv world from=0\n"
        "rank 1: all_reduce world",
    ],
)
def test_what_can_never_end_is_in_flight_when_it_settles(calls, tmp_path):
    done = run_text(tmp_path, f"ranks 2\n{calls}\nend hold 0\n")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    n_open = [len(line["in_flight"]) for line in log_of(tmp_path, "end")]
    assert told["in_flight"] == sum(n_open) > 0
    assert not log_of(tmp_path, "done")


@pytest.mark.parametrize(
    "calls",
    [
        "all: group\nall: send world to=+1\nall: recv world from=-1\nall: group end",
        "rank 0: send world to=1\nrank 1: recv world from=0",
        "all: all_to_all world\nall: gather world root=1\nall: scatter world",
        "all: all_reduce world stream=1\nall: all_gather world stream=2\nall: sync",
        "all: all_reduce world net=20 channels=0-1 credit=3",
        "all: capture g\nall: all_reduce world\nall: capture end\nall: replay g x3",
        "all: group\nall: group\nall: all_reduce world x5\nall: group end\nall: group end plans=2",
        "all: blocking_launch on\nall: all_reduce world x3",
        "all: all_reduce world children=before\nall: all_reduce world children=late",
    ],
)
@pytest.mark.parametrize("layout", ["processes", "threads"])
def test_what_pairs_is_done(calls, layout, tmp_path):
    told = ends(tmp_path, f"ranks 2\nlayout {layout}\n{calls}\n", FAKE_NCCL_NULL_MASK="0xffff")
    assert {line["in_flight"] == [] for line in told.values()} == {True}
    assert all(line["done"] + line["unseen"] == line["played"] > 0 for line in told.values())


@pytest.mark.parametrize(
    ("mask", "started"),
    [
        ("0", {}),
        ("0x200", {"GroupApi": 1, "CollApi": 1}),
        ("0x800", {"GroupApi": 1, "KernelLaunch": 1}),
        ("0x2", {"GroupApi": 1, "CollApi": 1, "Group": 1, "Coll": 1}),
        ("0x40", {"GroupApi": 1, "CollApi": 1, "Group": 1, "Coll": 1, "KernelCh": 2}),
        ("0x8", {"GroupApi": 1, "CollApi": 1, "Group": 1, "Coll": 1, "ProxyOp": 4}),
        (
            "0x10",
            {"GroupApi": 1, "CollApi": 1, "Group": 1, "Coll": 1, "ProxyOp": 4, "ProxyStep": 12},
        ),
    ],
)
def test_a_mask_brings_the_ancestors_of_what_it_asks_for(mask, started, tmp_path):
    text = "ranks 2\nall: all_reduce world channels=0-1 net=3\n"
    for line in ends(tmp_path, text, FAKE_NCCL_NULL_MASK=mask).values():
        assert line["callbacks"] == started


def test_the_log_of_a_killed_rank_holds_what_it_had_played(tmp_path):
    text = "ranks 2\nall: all_reduce world x3\nall: sync\nall: all_gather world\nrank 0: kill\n"
    assert run_text(tmp_path, text + "end hold 0\n").returncode == 1
    calls = [line["func"] for line in log_of(tmp_path, "call") if line["rank"] == 0]
    assert calls == ["AllReduce"] * 3 + ["AllGather"]
    assert len([line for line in log_of(tmp_path, "done") if line["rank"] == 0]) >= 3
    assert [line["rank"] for line in log_of(tmp_path, "end")] == [1]


def test_a_plugin_that_leaves_handles_unwritten_is_caught(tmp_path):
    done = run_text(tmp_path, "ranks 2\nall: all_reduce world\n", plugin=FORGETFUL)
    assert done.returncode == 0
    assert all(line["unwritten"] > 0 for line in log_of(tmp_path, "end"))
    done = run_text(tmp_path / "off", "ranks 2\npoison off\nall: all_reduce world\n",
                    plugin=FORGETFUL)  # fmt: skip
    assert all(line["unwritten"] == 0 for line in log_of(tmp_path / "off", "end"))


def test_a_script_that_cannot_end_fails_and_names_its_line(tmp_path):
    text = "ranks 2\npatience 100ms\nrank 0: all_reduce world\nall: sync\n"
    done = run_text(tmp_path, text)
    assert done.returncode == 1
    assert "script.txt:4: rank 0 waited too long" in done.stderr


@pytest.mark.parametrize("how", ["input", "signal"])
def test_it_holds_until_it_is_told_to_leave(how, tmp_path):
    script = tmp_path / "script.txt"
    script.write_text("ranks 2\nrank 1: all_reduce world\nend hold\n")
    with subprocess.Popen(
        [str(PROGRAM), str(script), "--plugin", str(NULL)], env=environment(tmp_path),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        told = json.loads(process.stdout.readline())
        time.sleep(0.3)
        assert process.poll() is None
        assert [told["settled"], told["in_flight"]] == [True, 1]
        for pid in told["pids"]:
            os.kill(pid, 0)
        if how == "input":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
