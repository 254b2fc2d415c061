"""Runs verbs while one file of theirs changes at a chosen moment, and prints what came of it.

Run: ``python changing_program.py < cases``; one JSON line per case, ``{"target", "change", "at",
"n", "argv"}``: the change happens right before the n-th opening of the target (``at`` "open") or
right after the n-th read of it ("read"). The file on disk changes, not what the reader is told.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from comminsight.cli import main

LIMIT_S = 60
REAL_FDOPEN, REAL_OPEN = os.fdopen, io.open
REAL_PREADV, REAL_PREAD = os.preadv, os.pread


def change(path: Path, kind: str) -> None:
    """Makes another thing of the file that is there."""
    size_bytes = path.stat().st_size
    if kind in {"halved", "emptied"}:
        os.truncate(path, size_bytes // 2 if kind == "halved" else 0)
    elif kind == "grown":
        with REAL_OPEN(path, "ab") as stream:
            stream.write(b"\n{]\x80" * 50_000)
    elif kind == "overwritten":
        with REAL_OPEN(path, "r+b") as stream:
            stream.write(bytes(range(256)) * (size_bytes // 256 + 1))
    else:
        path.unlink()
        if kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a folder":
            path.mkdir()
        elif kind == "a loop":
            path.symlink_to(path)


class Moment:
    """Counts what is done to the target and changes it when the time has come."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.target, self.kind = Path(case["target"]), case["change"]
        self.at, self.left = case["at"], case["n"]
        self.is_busy = self.is_done = False

    def come(self, what: str) -> None:
        if what != self.at or self.is_busy or self.is_done:
            return
        self.left -= 1
        if self.left <= 0:
            self.is_busy = self.is_done = True
            change(self.target, self.kind)
            self.is_busy = False

    def is_target(self, descriptor: int) -> bool:
        return os.readlink(f"/proc/self/fd/{descriptor}") == str(self.target)

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]) == str(self.target):
            self.come("open")

    def read(self, descriptor: int, *arguments: Any, real: Any) -> Any:
        is_target = self.is_target(descriptor)
        found = real(descriptor, *arguments)
        if is_target:
            self.come("read")
        return found


class ChangingFile(io.FileIO):
    """The target itself, which changes after a read."""

    moment: Moment

    def readinto(self, buffer: Any) -> int | None:
        n_read = super().readinto(buffer)
        self.moment.come("read")
        return n_read

    def readall(self) -> bytes:
        data = super().readall()
        self.moment.come("read")
        return data


def watch(moment: Moment) -> None:
    """From now on every way that the product reads a file by is looked at."""

    def buffered(descriptor: int) -> io.BufferedReader:
        raw = ChangingFile(descriptor, "rb")
        raw.moment = moment
        return io.BufferedReader(raw)

    def fdopen(descriptor: int, mode: str = "r", *more: Any, **settings: Any) -> Any:
        if mode == "rb" and moment.is_target(descriptor):
            return buffered(descriptor)
        return REAL_FDOPEN(descriptor, mode, *more, **settings)

    def opened(path: Any, mode: str = "r", *more: Any, **settings: Any) -> Any:
        if mode == "rb" and str(path) == str(moment.target) and not moment.is_busy:
            return buffered(os.open(path, os.O_RDONLY))
        return REAL_OPEN(path, mode, *more, **settings)

    os.fdopen, io.open = fdopen, opened
    os.preadv = lambda *given: moment.read(*given, real=REAL_PREADV)
    os.pread = lambda *given: moment.read(*given, real=REAL_PREAD)
    sys.addaudithook(moment.heard)


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.TemporaryDirectory() as folder,
    ):
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT_S)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            moment = Moment(case)
            watch(moment)
            code = main(case["argv"])
            Path(folder, "done").write_text("" if moment.is_done else "not reached")
            os._exit(code)
        _, status = os.waitpid(child, 0)
        for stream in (out, err):
            stream.seek(0)
        done = Path(folder, "done")
        return {
            "code": os.waitstatus_to_exitcode(status), "out": out.read(), "err": err.read()[:4000],
            "is_changed": done.exists() and not done.read_text(),
        }  # fmt: skip


def fresh(case: dict[str, Any]) -> dict[str, Any]:
    """The outcome on a copy: the evidence is whole again for the next case."""
    root = Path(case["root"])
    kept = root.with_name(f"{root.name}.kept")
    shutil.copytree(root, kept)
    try:
        return outcome(case)
    finally:
        shutil.rmtree(root)
        kept.rename(root)


if __name__ == "__main__":
    for line in sys.stdin.read().splitlines():
        print(json.dumps(fresh(json.loads(line))), flush=True)
