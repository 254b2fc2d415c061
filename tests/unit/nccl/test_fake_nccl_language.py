"""Scripts that are wrong are refused with file and line, before anything is played."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.nccl.playing import needs_plugins, run_text
from tests.unit.nccl.scenes import PROGRAM, SCENARIOS

pytestmark = needs_plugins

WRONG = (
    ("ranks 0", 1, "ranks are 1 to 64"),
    ("ranks 65", 1, "ranks are 1 to 64"),
    ("release 2.26", 1, "there is no release '2.26'"),
    ("release 2.28 shim v5", 1, "there is no release '2.28 shim v5'"),
    ("colour red", 1, "there is no header line 'colour'"),
    ("ranks 2\nall: dance world", 2, "there is no verb 'dance'"),
    ("ranks 2\nall: all_reduce", 2, "which communicator?"),
    ("ranks 2\nall: all_reduce tp", 2, "there is no communicator 'tp'"),
    ("ranks 2\nrank 2: sync", 2, "'2' are no ranks below 2"),
    ("ranks 2\nall: all_reduce world size=4", 2, "there is no option 'size'"),
    ("ranks 2\nall: all_reduce world count=-4", 2, "'-4' is no value of count"),
    ("ranks 2\nall: all_reduce world dtype=int16", 2, "'int16' is no value of dtype"),
    ("ranks 2\nall: all_reduce world channels=0-64", 2, "'0-64' is no value of channels"),
    ("ranks 2\nall: send world", 2, "send needs to="),
    ("ranks 2\nall: send world to=2", 2, "there is no comm_rank 2 in world"),
    ("ranks 2\nall: reduce world root=2", 2, "there is no root 2 in world"),
    ("ranks 4\ncomm tp 0-1\nrank 2: all_reduce tp", 3, "rank 2 is not in tp"),
    ("ranks 4\ncomm tp 0-1 1-2\nall: sync", 2, "rank 1 is in two communicators tp"),
    ("ranks 4\ncomm tp 0-4\nall: sync", 2, "'0-4' is neither members below 4 nor an option"),
    ("ranks 2\nrepeat 3\nall: sync\n", 4, "a repeat has no end"),
    ("ranks 2\nall: sync\nrepeat end\n", 3, "there is nothing to repeat"),
    ("ranks 2\nall: sync\nend hold then=sleep", 3, "end hold [TIME]"),
    ("ranks 2\nend hold\nall: sync", 3, "nothing may follow the line 'end'"),
    ("ranks 2\nall: sync\nranks 3", 3, "'ranks': a step begins with all:"),
    ("ranks 2\nall: bad luck world", 2, "there is no bad call 'luck'"),
)


@pytest.mark.parametrize(("text", "line", "message"), WRONG)
def test_a_wrong_line_is_named(text, line, message, tmp_path):
    done = run_text(tmp_path, text)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}/script.txt:{line}: ")
    assert message in done.stderr
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.parametrize("arguments", [[], ["--probe", "x.txt"], ["--log"], ["--speed", "x.txt"]])
def test_wrong_usage_prints_the_usage(arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split()[:2]) == (2, ["fake_nccl", "SCRIPT"])


def test_a_script_that_is_not_there_is_named(tmp_path):
    done = subprocess.run(
        [PROGRAM, tmp_path / "no.txt"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{tmp_path}/no.txt" in done.stderr


def test_every_scenario_says_what_it_is():
    scripts = sorted(SCENARIOS.rglob("*.txt"))
    assert len(scripts) > 40
    assert [s.name for s in scripts if not s.read_text().startswith("# ")] == []
