"""``comminsight run`` around commands that know nothing of it: what they print, how they end, what
they inherit and which signals they get is as without it."""

import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest

from comminsight.errors import ExitCode
from tests.integration.launching import environment, recorded, report, started, theirs, until, verb
from tests.integration.recording import skip_without_real_jobs

COUNTING = (
    "import signal, sys, time\n"
    "seen = []\n"
    "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):\n"
    "    signal.signal(s, lambda n, _: seen.append(n))\n"
    "print('ready', flush=True)\n"
    "end = time.monotonic() + 10\n"
    "while not seen and time.monotonic() < end: time.sleep(0.02)\n"
    "time.sleep(0.3)\n"
    "print(seen, flush=True)\n"
    "sys.exit(40 + len(seen))\n"
)


def plainly(words, **how):
    return subprocess.run(words, capture_output=True, check=False, timeout=60, **how)


@pytest.fixture(autouse=True)
def _with_recorder():
    skip_without_real_jobs()


@pytest.mark.parametrize(
    ("command", "code", "exit_signal"),
    [
        (["true"], 0, 0),
        (["sh", "-c", "exit 7"], 7, 0),
        (["sh", "-c", "kill -KILL $$"], 137, 9),
        (["sh", "-c", "kill -TERM $$"], 143, 15),
        (["sh", "-c", "exit 255"], 255, 0),
    ],
)
def test_exit_status(command, code, exit_signal, tmp_path):
    assert recorded(tmp_path / "run", *command)[0] == code
    facts = report(tmp_path / "run")["facts"]
    assert facts["exit_code"] == code
    assert facts["end"] == ("killed" if exit_signal else "exited")


@pytest.mark.parametrize("command", ["no-such-command-anywhere", "/etc/passwd", "/"])
def test_a_command_that_cannot_start_leaves_no_run_behind(command, tmp_path):
    code, out, err = recorded(tmp_path / "run", command)
    assert (code, out) == (ExitCode.BAD_INPUT, b"")
    assert command.encode() in err
    assert b"next:" in err
    assert list((tmp_path / "run" / "metadata").iterdir()) == []


def test_streams_pass_byte_for_byte(tmp_path):
    script = (
        "import sys\n"
        "data = sys.stdin.buffer.read()\n"
        "sys.stdout.buffer.write(data * 3)\n"
        "sys.stderr.buffer.write(data[::-1])\n"
    )
    data = bytes(range(256)) * 300
    process = started(tmp_path / "run", sys.executable, "-c", script, stdin=subprocess.PIPE)
    out, err = process.communicate(data, timeout=60)
    assert out == data * 3
    assert data[::-1] in err
    bare = plainly([sys.executable, "-c", script], input=data)
    assert len(theirs(err.replace(bare.stderr, b""))) == 0


def test_inherited_descriptors_and_ignored_signals_pass(tmp_path):
    shown = "grep -E 'SigIgn|SigBlk' /proc/self/status"
    reading, writing = os.pipe()
    how = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    bare = plainly(["sh", "-c", shown], **how).stdout
    code, out, _ = recorded(
        tmp_path / "run",
        "sh",
        "-c",
        f"{shown}; echo told >/proc/self/fd/{writing}",
        pass_fds=(writing,),
        **how,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"told\n"
    assert (code, out) == (0, bare)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_the_launcher_reaches_the_command_once(number, tmp_path):
    process = started(
        tmp_path / "run", sys.executable, "-c", COUNTING, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out == f"[{int(number)}]\n".encode()
    assert process.returncode == 41


def test_ctrl_c_at_the_terminal_reaches_the_command_once(tmp_path):
    master, slave = os.openpty()
    process = started(
        tmp_path / "run", sys.executable, "-c", COUNTING, stdin=slave,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    os.write(master, b"\x03")
    out, _ = process.communicate(timeout=30)
    os.close(master)
    os.close(slave)
    assert out == b"[2]\n"
    assert process.returncode == 41


def test_a_closed_stderr_is_no_reason_to_fail(tmp_path):
    words = f"{sys.executable} -m comminsight.cli run --out {tmp_path}/run -- sh -c 'exit 9' 2>&-"
    assert plainly(["sh", "-c", words], env=environment()).returncode == 9


@pytest.mark.parametrize("out", ["/proc/nowhere/run", "/dev/null"])
def test_a_run_directory_that_cannot_be_made(out):
    code, _, err = recorded(out, "echo", "started")
    assert code == ExitCode.BAD_INPUT
    assert out.encode() in err
    assert b"--out" in err


def test_options_come_before_the_environment(tmp_path):
    shown = "echo $COMMINSIGHT_OVERDUE_S $COMMINSIGHT_GROUP_MAP"
    given = {"COMMINSIGHT_OVERDUE_S": "33", "COMMINSIGHT_GROUP_MAP": "1=dp"}
    assert recorded(tmp_path / "a", "sh", "-c", shown, env=given)[1] == b"33 1=dp\n"
    chosen = recorded(tmp_path / "b", "sh", "-c", shown, env=given, options=("--overdue", "5"))
    assert chosen[1] == b"5 1=dp\n"
    bad = recorded(tmp_path / "c", "true", env={"COMMINSIGHT_OVERDUE_S": "soon"})
    assert bad[0] == ExitCode.USAGE
    assert b"COMMINSIGHT_OVERDUE_S=soon" in bad[2]


def test_a_second_run_in_the_same_directory_is_refused_and_a_restart_is_not(tmp_path):
    assert recorded(tmp_path / "run", "true", options=("--run-id", "first"))[0] == 0
    code, out, err = recorded(tmp_path / "run", "echo", "started")
    assert (code, out) == (ExitCode.USAGE, b"")
    assert b"holds run first already" in err
    assert recorded(tmp_path / "run", "true", options=("--run-id", "first"))[0] == 0
    assert len(list((tmp_path / "run" / "metadata").iterdir())) == 2


@pytest.mark.root
def test_a_disk_that_is_full_at_the_start_is_said_before_anything_runs(small_disk):
    disk = small_disk("disk", 256 << 10)
    plainly(["dd", "if=/dev/zero", f"of={disk}/fill"])
    code, out, err = recorded(disk / "run", "echo", "started")
    assert (code, out) == (ExitCode.BAD_INPUT, b"")
    assert b"No space left" in err


@pytest.mark.root
def test_a_disk_that_fills_up_does_not_change_the_exit_code(small_disk):
    disk = small_disk("disk", 256 << 10)
    fill = f"dd if=/dev/zero of={disk}/fill 2>/dev/null; exit 5"
    code, _, err = recorded(disk / "run", "sh", "-c", fill)
    assert code == 5
    assert b"No space left" in err
    (disk / "fill").unlink()
    assert report(disk / "run")["facts"]["end"] in {"killed", "unknown"}


@pytest.mark.parametrize("script", ["print('plain')", "import torch; print('plain')"])
def test_a_script_that_makes_no_group(script, tmp_path):
    code, out, err = recorded(tmp_path / "run", sys.executable, "-c", script)
    assert (code, out, theirs(err)) == (0, b"plain\n", b"")
    made = report(tmp_path / "run")
    assert made["facts"]["end"] == "exited"
    assert made["facts"]["ranks_seen"] == 0
    assert not any(verdict["culprits"] for verdict in made["verdicts"])
    text = verb("report", tmp_path / "run").stdout.decode()
    assert text.startswith("No verdict")


def test_a_run_in_a_run_is_a_run_of_its_own(tmp_path):
    inner = (sys.executable, "-m", "comminsight.cli", "run", "--out", str(tmp_path / "inner"), "--")
    shown = "echo $COMMINSIGHT_RUN_ID $COMMINSIGHT_SPOOL $PYTHONPATH"
    code, out, _ = recorded(tmp_path / "outer", *inner, "sh", "-c", f"{shown}; exit 4")
    run_id, spool, path = out.decode().split()
    assert code == 4
    assert spool == str(tmp_path / "inner" / "inspector_logs")
    ids = [report(tmp_path / name)["facts"]["run_id"] for name in ("outer", "inner")]
    assert run_id == ids[1] != ids[0]
    assert len(path.split(":")) == len(set(path.split(":")))


def test_the_job_goes_on_when_the_launcher_is_killed(tmp_path):
    mark = tmp_path / "mark"
    job = f"echo $$; sleep 3; echo done > {mark}"
    process = started(tmp_path / "run", "sh", "-c", job)
    process.stdout.readline()
    assert report(tmp_path / "run")["facts"]["end"] == "running"
    process.kill()
    process.communicate(timeout=30)
    assert until(mark.read_text) == "done\n"
    facts = report(tmp_path / "run")["facts"]
    assert (facts["end"], facts["exit_code"]) == ("killed", None)
