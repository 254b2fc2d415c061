"""A recorder in a child process: starts a script, talks with it by lines, reads what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.unit.native.door import LIBRARY, ROOT
from tests.unit.native.reading import read_session

PRELUDE = """
import os, sys, time
from tests.unit.native.door import *
d = Door()
"""


class Child:
    """A process that runs ``script`` with a Door ``d``."""

    def __init__(self, script, env):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", PRELUDE + textwrap.dedent(script)],
            cwd=ROOT, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def told(self):
        """The next values of ``tell``."""
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def finish(self, code=0):
        """Lets it run to its end; what it wrote to standard error."""
        _, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == code, errors
        return errors


class Stage:
    """Directories and environment of one test."""

    def __init__(self, path: Path):
        self.box_dir, self.spool = path / "box", path / "spool"
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("COMMINSIGHT_", "TORCHELASTIC_"))
        }
        self.env = kept | {
            "COMMINSIGHT_BOX_DIR": str(self.box_dir),
            "COMMINSIGHT_SPOOL": str(self.spool),
            "COMMINSIGHT_DISABLE_FILE": str(path / "disable"),
            "COMMINSIGHT_FLUSH_MS": "20",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.children = []

    def start(self, script, **env):
        self.children.append(Child(script, self.env | env))
        return self.children[-1]

    def run(self, script, **env):
        """The values that the script told; it must end well."""
        child = self.start(script, **env)
        out, errors = child.process.communicate(timeout=120)
        assert child.process.returncode == 0, errors
        told = {"stderr": errors}
        for line in out.splitlines():
            told |= json.loads(line)
        return told

    def sessions(self):
        return (
            sorted(p for p in self.spool.iterdir() if p.name != "boxes")
            if self.spool.exists()
            else []
        )

    def stream(self):
        """The one session that was recorded."""
        (session,) = self.sessions()
        return read_session(session)


@pytest.fixture
def stage(tmp_path):
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built: make native")
    made = Stage(tmp_path)
    yield made
    for child in made.children:
        if child.process.poll() is None:
            child.kill()
        for pipe in (child.process.stdin, child.process.stdout, child.process.stderr):
            pipe.close()


def eventually(condition, timeout_s=10.0):
    """Polls until ``condition()`` is true and returns it."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
    return value
