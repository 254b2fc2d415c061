"""The pieces of ``comminsight run``: names, spools, options, and the end of a hung job."""

import os
import subprocess
import sys

import pytest

from comminsight.capture.process import start_ticks
from comminsight.errors import InputError, UsageError
from comminsight.launch import job as launching
from comminsight.launch import reaction as reacting
from comminsight.launch.environment import (
    checked_map,
    checked_run_id,
    checked_signal,
    recording_options,
)
from comminsight.launch.job import (
    RunRequest,
    choose_spool,
    collect_spool,
    command_words,
    default_run_id,
    prepare,
    refuse_other_run,
    run_job,
)
from comminsight.launch.reaction import HangReaction
from comminsight.model.manifest import LaunchManifest
from comminsight.model.verdict import Cause, Confidence, Coverage, Message, Verdict
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.manifest import read_manifests, write_manifest


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--", "a", "b"], ("a", "b")),
        (["a", "--", "b"], ("a", "--", "b")),
        (["--", "--", "b"], ("--", "b")),
        ([], ()),
    ],
)
def test_command_words(words, command):
    assert command_words(words) == command


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"COMMINSIGHT_RUN_ID": "given", "SLURM_JOB_ID": "77"}, "given"),
        ({"SLURM_JOB_ID": "77"}, "77"),
        ({"COMMINSIGHT_RUN_ID": "outer", "COMMINSIGHT_INJECT": "1"}, None),
        ({}, None),
    ],
)
def test_the_name_of_a_run(variables, expected, monkeypatch):
    for name in ("COMMINSIGHT_RUN_ID", "COMMINSIGHT_INJECT", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = default_run_id()
    assert made == expected if expected else made.endswith(f"-{os.getpid()}")


@pytest.mark.parametrize(
    ("given", "flags", "expected"),
    [
        ({}, {}, (60.0, 2000, "", "")),
        ({"COMMINSIGHT_OVERDUE_S": "7.5"}, {}, (7.5, 2000, "", "")),
        ({"COMMINSIGHT_OVERDUE_S": "7.5"}, {"overdue_s": 3.0}, (3.0, 2000, "", "")),
        ({"COMMINSIGHT_SAFE_WINDOW_MS": "500"}, {}, (60.0, 500, "", "")),
        ({"COMMINSIGHT_GROUP_MAP": "a=dp"}, {}, (60.0, 2000, "a=dp", "")),
        ({"COMMINSIGHT_STACK_SIGNAL": "USR1"}, {"stack_signal": "12"}, (60.0, 2000, "", "12")),
    ],
)
def test_flags_come_before_the_environment(given, flags, expected):
    made = recording_options(
        given, **({"overdue_s": None, "group_map": "", "stack_signal": ""} | flags)
    )
    seen = (made.overdue_limit_s, made.safe_window_ms, made.group_map, made.stack_signal)
    assert seen == expected


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_variable_that_is_no_number_is_named(text):
    with pytest.raises(UsageError, match=f"COMMINSIGHT_OVERDUE_S={text}"):
        recording_options(
            {"COMMINSIGHT_OVERDUE_S": text}, overdue_s=None, group_map="", stack_signal=""
        )


def test_a_local_run_is_its_own_spool(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "is_network", lambda _: False)
    paths = prepare(tmp_path / "run")
    assert choose_spool(paths, "r") == (paths.segments, ())


def test_a_network_run_is_spooled_aside_and_collected(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "is_network", lambda _: True)
    paths = prepare(tmp_path / "run")
    spool, messages = choose_spool(paths, "unit-test")
    assert spool.stat().st_mode & 0o777 == 0o700
    assert messages == (Message("launch.spooled", {"spool": str(spool)}),)
    session = spool / "deadbeef-1-1"
    session.mkdir()
    (session / "000001.ciseg").write_bytes(b"rows")
    collect_spool(spool, paths)
    assert (paths.segments / "deadbeef-1-1" / "000001.ciseg").read_bytes() == b"rows"
    assert not spool.exists()


def test_a_run_directory_in_the_way(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(InputError, match="run: cannot write"):
        prepare(tmp_path / "run")


class Job:
    """Stands in for the command."""

    def __init__(self):
        self.calls = []

    def terminate(self):
        self.calls.append("terminate")

    def kill(self):
        self.calls.append("kill")


def verdict(cause, culprits=()):
    coverage = Coverage(ranks_expected=2, ranks_seen=2)
    return Verdict(
        rule="hang", cause=cause, confidence=Confidence.HIGH, coverage=coverage, culprits=culprits
    )


@pytest.mark.parametrize(
    ("cause", "is_stopping", "calls"),
    [
        (Cause.RANK_NOT_ENTERED, True, ["terminate"]),
        (Cause.RANK_NOT_ENTERED, False, []),
        (Cause.ALL_PRESENT_STUCK, True, ["terminate"]),
        (Cause.NO_VERDICT, True, []),
    ],
)
def test_what_a_hang_leads_to(cause, is_stopping, calls, capsys):
    job = Job()
    reaction = HangReaction(job, is_stopping=is_stopping, lang="en")
    reaction.react(verdict(cause, (1,)))
    reaction.react(verdict(cause, (1,)))
    assert job.calls == calls
    assert len(reaction.notes) == len(calls)
    assert capsys.readouterr().err.count("[comminsight]") == 2 + len(calls)


def test_a_job_that_does_not_end_when_asked_is_killed(monkeypatch):
    job = Job()
    reaction = HangReaction(job, is_stopping=True, lang="en")
    reaction.tick()
    monkeypatch.setattr(reacting.time, "monotonic", lambda: 100.0)
    reaction.react(verdict(Cause.RANK_NOT_ENTERED, (1,)))
    reaction.tick()
    assert job.calls == ["terminate"]
    monkeypatch.setattr(reacting.time, "monotonic", lambda: 101.0 + reacting.STOP_GRACE_S)
    reaction.tick()
    assert job.calls == ["terminate", "kill"]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_what_a_stopped_command_left_behind_is_ended(is_stopped):
    reaction = HangReaction(Job(), is_stopping=True, lang="en")
    if is_stopped:
        reaction.react(verdict(Cause.RANK_NOT_ENTERED, (1,)))
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        mine = ("a", left.pid, start_ticks(left.pid))
        reused = ("b", other.pid, start_ticks(other.pid) + 1)
        reaction.finish([mine, reused])
        assert (left.poll() is not None) == is_stopped
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def manifest_of(run_id, paths):
    write_manifest(paths.metadata / f"launch-{run_id}.json", LaunchManifest(run_id=run_id))


def test_another_run_is_not_recorded_into_the_same_directory(tmp_path):
    paths = prepare(tmp_path / "run")
    refuse_other_run(paths, "new")
    manifest_of("old one", paths)
    with pytest.raises(UsageError, match="holds run old one already") as caught:
        refuse_other_run(paths, "new")
    assert "--out" in caught.value.next_step
    assert "--run-id 'old one'" in caught.value.next_step
    refuse_other_run(paths, "old one")


@pytest.mark.parametrize(
    "text", ["nonsense", "=tp", "a=", "a=tp;nonsense", "a = ", ";=;", "a=tp;b"]
)
def test_a_group_map_that_would_be_passed_over(text):
    with pytest.raises(UsageError, match="NAME=ROLE"):
        checked_map(text)


@pytest.mark.parametrize("text", ["", "a=tp", "a=tp;", " a = tp ; b=x=y "])
def test_a_group_map_that_is_used_whole(text):
    assert checked_map(text) == text


@pytest.mark.parametrize("text", ["FOO", "KILL", "9", "SIGSEGV", "0", "-1", "999", "SIG"])
def test_a_signal_on_which_nobody_could_write(text):
    with pytest.raises(UsageError, match="stack signal"):
        checked_signal(text)


@pytest.mark.parametrize("text", ["", "USR2", "sigusr1", "12"])
def test_a_signal_on_which_stacks_can_be_written(text):
    assert checked_signal(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a b", "a\n", "x" * 129])
def test_a_run_id_that_is_no_name(text):
    with pytest.raises(UsageError, match="run id"):
        checked_run_id(text)


def test_a_run_id_as_schedulers_give_it():
    assert checked_run_id("4711_3.batch@c:1") == "4711_3.batch@c:1"


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_interrupt_of_the_job_ends_the_caller_only_where_it_is_asked_to(tmp_path, is_ours):
    """The job sends the interrupt itself; either way its run is closed first."""
    request = RunRequest(
        command=("sh", "-c", "kill -INT $PPID; exec sleep 20"), out=tmp_path, run_id="one",
        is_interrupt_ours=is_ours,
    )  # fmt: skip
    if is_ours:
        with pytest.raises(KeyboardInterrupt):
            run_job(request)
    else:
        assert run_job(request) == 130
    (manifest,) = read_manifests(RunPaths(tmp_path))[0]
    assert manifest.exit_code == 130
