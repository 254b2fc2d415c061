from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from comminsight.capture.process import start_ticks
from comminsight.capture.stacks import (
    DENIED,
    FAILED,
    MISSING,
    PROCESS_GONE,
    SLOW,
    StackSettings,
    stack_settings,
    take_stack,
)
from comminsight.model.hang import StackSource

WAITING = """
import sys, time
def waits_for_peer():
    secret_local = "do not show me"
    print("ready", flush=True)
    time.sleep(60)
{prepare}
waits_for_peer()
"""


class Target:
    """Child processes that wait in ``waits_for_peer``."""

    def __init__(self) -> None:
        self.children: list[subprocess.Popen[str]] = []

    def start(self, prepare: str = "") -> int:
        child = subprocess.Popen(
            [sys.executable, "-c", WAITING.format(prepare=prepare), "--token=hunter2"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.05)
        return child.pid


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    yield made
    for child in made.children:
        child.kill()
        child.communicate()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def denied(tmp_path: Path) -> StackSettings:
    """A py-spy that is refused, as by a container without SYS_PTRACE."""
    return StackSettings(py_spy=script(tmp_path / "py-spy", "echo Permission Denied >&2; exit 1"))


def test_py_spy_gives_the_python_stack_without_locals_or_command_line(target: Target) -> None:
    settings = stack_settings(os.environ)
    if not settings.py_spy:
        pytest.skip("py-spy is not installed")
    pid = target.start()
    stack = take_stack(pid, settings, global_rank=3, start_ticks=start_ticks(pid))
    if stack.reason == DENIED:
        pytest.skip("this user may not ptrace its own children")
    assert (stack.global_rank, stack.pid, stack.source, stack.reason) == (3, pid, "py-spy", "")
    assert "waits_for_peer" in stack.text
    assert "do not show me" not in stack.text
    assert "hunter2" not in stack.text


def test_faulthandler_answers_where_ptrace_is_denied(target: Target, tmp_path: Path) -> None:
    prepare = (
        f"import faulthandler, os; f = open('{tmp_path}/%d.stack' % os.getpid(), 'a');"
        f"f.write('an older stack'); f.flush(); faulthandler.register({int(signal.SIGUSR2)}, f)"
    )
    pid = target.start(prepare)
    settings = replace(denied(tmp_path), signal_number=signal.SIGUSR2, signal_dir=tmp_path)
    stack = take_stack(pid, settings)
    assert (stack.source, stack.reason) == (StackSource.FAULTHANDLER, DENIED)
    assert "waits_for_peer" in stack.text
    assert "an older stack" not in stack.text
    assert "waits_for_peer" in take_stack(pid, settings).text


def test_a_process_that_does_not_catch_the_signal_never_gets_it(
    target: Target, tmp_path: Path
) -> None:
    pid = target.start()
    (tmp_path / f"{pid}.stack").touch()
    settings = replace(denied(tmp_path), signal_number=signal.SIGUSR2, signal_dir=tmp_path)
    stack = take_stack(pid, settings)
    assert stack.source is StackSource.PROC
    assert target.children[0].poll() is None


def test_proc_is_the_last_rung(target: Target, tmp_path: Path) -> None:
    pid = target.start()
    stack = take_stack(pid, denied(tmp_path))
    assert (stack.source, stack.reason) == (StackSource.PROC, DENIED)
    assert stack.text.startswith(f"Thread {pid} (")
    assert "sleeping" in stack.text
    assert "hunter2" not in stack.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo Permission Denied >&2; exit 1", DENIED),
        ("echo 'Operation not permitted' >&2; exit 1", DENIED),
        ("echo 'Failed to find python' >&2; exit 1", FAILED),
        ("exit 0", FAILED),
        ("exec sleep 30", SLOW),
    ],
)
def test_the_reason_tells_how_py_spy_failed(
    target: Target, tmp_path: Path, text: str, reason: str
) -> None:
    settings = StackSettings(py_spy=script(tmp_path / "py-spy", text), deadline_s=0.3)
    begin_s = time.monotonic()
    assert take_stack(target.start(), settings).reason == reason
    assert time.monotonic() - begin_s < 5


def test_without_py_spy_the_reason_says_so(target: Target) -> None:
    assert take_stack(target.start(), StackSettings()).reason == MISSING
    assert take_stack(target.start(), StackSettings(py_spy="/no/such/py-spy")).reason == MISSING


def test_a_process_that_is_gone_has_no_stack(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    stack = take_stack(child.pid, denied(tmp_path))
    assert (stack.source, stack.text, stack.reason) == (StackSource.NONE, "", PROCESS_GONE)


def test_a_pid_given_to_another_process_is_not_asked(target: Target, tmp_path: Path) -> None:
    pid = target.start()
    stack = take_stack(pid, denied(tmp_path), start_ticks=start_ticks(pid) - 1)
    assert (stack.source, stack.reason) == (StackSource.NONE, PROCESS_GONE)


def test_another_user_is_denied_and_gets_what_proc_shows(target: Target, tmp_path: Path) -> None:
    """For real: a process without root rights asks for the stack of one of root."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    py_spy = stack_settings(os.environ).py_spy
    setpriv = shutil.which("setpriv")
    if not py_spy or not setpriv:
        pytest.skip("needs py-spy and setpriv")
    readable = Path("/tmp") / f"py-spy-{os.getpid()}"
    shutil.copy(py_spy, readable)
    try:
        readable.chmod(0o755)
        wrapper = script(
            tmp_path / "py-spy", f'exec {setpriv} --reuid=65534 --clear-groups {readable} "$@"'
        )
        pid = target.start()
        stack = take_stack(pid, StackSettings(py_spy=wrapper))
    finally:
        readable.unlink()
    assert (stack.source, stack.reason) == (StackSource.PROC, DENIED)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("USR2", signal.SIGUSR2),
        ("SIGUSR1", signal.SIGUSR1),
        ("12", 12),
        ("", 0),
        ("99", 0),
        ("NO", 0),
    ],
)
def test_signal_names(text: str, number: int) -> None:
    settings = stack_settings({"COMMINSIGHT_STACK_SIGNAL": text, "COMMINSIGHT_STACK_DIR": "/x"})
    assert settings.signal_number == number
    assert settings.signal_dir == Path("/x")
