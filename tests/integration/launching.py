"""``comminsight run`` and the other verbs as child processes, as a user's shell starts them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from comminsight.errors import InputError

REPO = Path(__file__).resolve().parents[2]
CLI = (sys.executable, "-m", "comminsight.cli")
OURS = b"[comminsight] "


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("COMMINSIGHT_", "SLURM_"))}
    own = more.pop("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    paths = [str(REPO / "src"), str(REPO), own]
    return {**kept, **more, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def started(out, *command, options=(), python=sys.executable, env=None, **how):
    """``comminsight run --out OUT OPTIONS -- COMMAND``, running."""
    words = [python, "-m", "comminsight.cli", "run", "--out", str(out), *options, "--", *command]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.Popen(words, env=environment(**(env or {})), cwd=REPO, **how)


def recorded(out, *command, timeout_s=60, **how):
    """(exit code, stdout, stderr) of a run that has ended."""
    process = started(out, *command, **how)
    stdout, stderr = process.communicate(timeout=timeout_s)
    return process.returncode, stdout, stderr


def ranks(n_ranks, *arguments):
    """The command of a small job under the launcher of ``ranks.py``."""
    return (sys.executable, "-m", "tests.integration.ranks", str(n_ranks), *map(str, arguments))


def verb(*words, **more):
    """The finished process of one verb; a traceback fails the test."""
    done = subprocess.run(
        [*CLI, *map(str, words)], capture_output=True, env=environment(**more), cwd=REPO,
        timeout=60, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert b"internal error" not in done.stderr, done.stderr.decode()
    return done


def report(run, *options, **more):
    """The report of a run as JSON."""
    done = verb("report", run, "--json", *options, **more)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def theirs(stderr):
    """What is on stderr besides our own lines."""
    return b"".join(line for line in stderr.splitlines(keepends=True) if not line.startswith(OURS))


def until(condition, *, timeout_s=30.0, poll_s=0.05):
    """Waits until ``condition()`` gives something, and returns it."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        with contextlib.suppress(FileNotFoundError, InputError):
            if found := condition():
                return found
        time.sleep(poll_s)
    raise AssertionError("did not come about in time")
