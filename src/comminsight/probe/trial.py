"""Loads the plugin as each NCCL release does, through the host program that plays NCCL.

The trial records into a folder of its own, which is gone afterwards; the black box is made where
jobs make theirs, and removed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

PROGRAM = "fake_nccl"
PLUGIN_NAME = "comminsight"
DEADLINE_S = 20.0


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One name that the loader was asked for, and its complaint."""

    name: str = ""
    error: str = ""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What the host program prints about one load, one communicator and one AllReduce."""

    release: str = ""
    loaded: bool = False
    attempts: tuple[Attempt, ...] = ()
    symbol: str = ""
    unwritten: int = 0  # starts that left the handle as it was
    nonzero: int = 0  # callbacks that returned an error
    init_errors: int = 0
    box_path: str = ""
    inert_reason: str = ""
    died_of_signal: int = 0


class _Release(msgspec.Struct, frozen=True):
    release: str
    takes_paths: bool = True


@dataclass(frozen=True, slots=True)
class Trial:
    """``probes`` of every release, or why there are none: ``failure``, "" for no host program."""

    probes: tuple[Probe, ...] = ()
    failure: str = ""


def try_plugin(recorder_path: Path, environment: Mapping[str, str]) -> Trial:
    """The probes of all releases that the host program knows; never raises."""
    program = recorder_path.parent / PROGRAM
    if not program.exists():
        return Trial()
    try:
        listed = run([str(program), "--list-releases"], environment).splitlines()
        releases = [msgspec.json.decode(line, type=_Release) for line in listed]
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return Trial(failure=short(error))
    with trial_environment(recorder_path, environment) as own:
        return Trial(tuple(probe(program, recorder_path, release, own) for release in releases))


def probe(
    program: Path, recorder_path: Path, release: _Release, environment: Mapping[str, str]
) -> Probe:
    """One load; what went wrong with the program itself is told as an attempt."""
    value = str(recorder_path) if release.takes_paths else PLUGIN_NAME
    command = [str(program), "--probe", "--release", release.release, "--plugin", value]
    try:
        found = msgspec.json.decode(run(command, environment), type=Probe)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        attempt = Attempt(name=command[0], error=short(error))
        return Probe(release=release.release, attempts=(attempt,))
    with contextlib.suppress(OSError):
        if found.box_path.endswith(".box"):
            Path(found.box_path).unlink()
    return found


@contextlib.contextmanager
def trial_environment(recorder_path: Path, base: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a job that records, with a spool that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="comminsight-trial-") as folder:
        paths = [str(recorder_path.parent), *filter(None, [base.get("LD_LIBRARY_PATH", "")])]
        yield {
            **base,
            "COMMINSIGHT_SPOOL": folder,
            "COMMINSIGHT_RUN_ID": "comminsight-doctor",
            "LD_LIBRARY_PATH": os.pathsep.join(paths),
        }


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """What the command printed, whatever its exit code.

    Raises OSError or subprocess.TimeoutExpired.
    """
    done = subprocess.run(
        command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True,
        check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    if done.returncode < 0:
        raise subprocess.CalledProcessError(done.returncode, command[0])
    return done.stdout.decode("utf-8", "replace")


def short(error: Exception) -> str:
    """The error in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200]
