"""When a run was looked at that lies elsewhere now: what only its own nodes could tell.

Whether a process lives is asked of the kernel, and how long an op has waited of the clock. A copy
of a run has neither: the file ``metadata/observed.json`` says what they answered when it was made.
A run with this file is read from its own folder alone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec

from comminsight.capture.session import SessionData
from comminsight.format.document import document_bytes, read_document
from comminsight.model.hang import Liveness
from comminsight.pipeline.layout import RunPaths, write_whole

NAME = "observed.json"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What was known then: ``end`` of the run as ``RunFacts`` has it, and of every session by its
    id whether its process lived and by which pid."""

    observed_mono_ns: int
    observed_real_ns: int
    end: str
    liveness: dict[str, Liveness] = {}
    pids: dict[str, int] = {}


def moment_path(paths: RunPaths) -> Path:
    """Where a copy of a run keeps it."""
    return paths.metadata / NAME


def write_moment(paths: RunPaths, moment: Moment) -> None:
    """Put it into the run."""
    write_whole(moment_path(paths), document_bytes(moment))


def read_moment(paths: RunPaths) -> Moment | None:
    """The moment of a copy; None for a run that lies where it was recorded.

    Raises InputError for a file of that name that is none: without it the copy would be judged by
    the machine that it lies on.
    """
    path = moment_path(paths)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return read_document(data, Moment, path=str(path), next_step="copy the run again")


def as_then(session: SessionData, moment: Moment | None) -> SessionData:
    """The session with what was known of its process then."""
    if moment is None:
        return session
    name = session.identity.session_id
    known = moment.liveness.get(name, Liveness.UNKNOWN)
    return replace(session, liveness=known, pid=moment.pids.get(name, -1))


def now_ns(moment: Moment | None) -> tuple[int, int]:
    """(monotonic, real): of then, else of now."""
    if moment is None:
        return time.monotonic_ns(), time.time_ns()
    return moment.observed_mono_ns, moment.observed_real_ns
