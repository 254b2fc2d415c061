"""Ends of real processes, as a process that is not their parent sees them."""

import os
import subprocess
import sys
import time

import pytest

from comminsight.capture.process import start_ticks
from comminsight.launch.ends import EndWatch, exit_status

SLEEPING = "import sys, time; sys.stdin.read(); sys.exit(int(sys.argv[1]))"
UNREAPED_S = 5.0


def started(code):
    command = [sys.executable, "-c", SLEEPING, str(code)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def followed(watch, process, name):
    watch.follow([(name, process.pid, start_ticks(process.pid))])


def until_zombie(process):
    deadline_s = time.monotonic() + UNREAPED_S
    while exit_status(process.pid) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)


def test_order_and_status_of_ends():
    watch = EndWatch()
    processes = {name: started(code) for name, code in (("a", 0), ("b", 7), ("c", 0))}
    for name, process in processes.items():
        followed(watch, process, name)
    endings = {"c": processes["c"].kill, "b": processes["b"].stdin.close,
               "a": processes["a"].stdin.close}  # fmt: skip
    for name, end in endings.items():
        end()
        until_zombie(processes[name])
    ends = watch.close()
    for process in processes.values():
        process.wait()
        process.stdin.close()
    assert [(e.session_id, e.exit_code, e.exit_signal) for e in ends] == [
        ("c", 0, 9), ("b", 7, 0), ("a", 0, 0),
    ]  # fmt: skip
    assert [e.ended_mono_ns for e in ends] == sorted(e.ended_mono_ns for e in ends)


def test_a_process_that_lives_on_has_no_end():
    watch = EndWatch()
    process = started(0)
    followed(watch, process, "a")
    followed(watch, process, "a")
    assert watch.close() == ()
    process.stdin.close()
    process.wait()


@pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1])
def test_what_is_no_process_is_passed_over(pid):
    watch = EndWatch()
    watch.follow([("a", pid, 5)])
    assert watch.close() == ()


def test_a_pid_that_was_given_to_another_process_is_not_followed():
    watch = EndWatch()
    process = started(0)
    watch.follow([("a", process.pid, start_ticks(process.pid) + 1)])
    process.stdin.close()
    until_zombie(process)
    assert watch.close() == ()
    process.wait()


def test_descriptors_are_given_back():
    before = len(os.listdir("/proc/self/fd"))
    watch = EndWatch()
    process = started(0)
    followed(watch, process, "a")
    process.kill()
    until_zombie(process)
    assert len(watch.close()) == 1
    process.wait()
    process.stdin.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert exit_status(process.pid) is None
