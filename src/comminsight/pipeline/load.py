"""The sessions of a run, read from wherever they are now: the run, a spool, or live boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from comminsight.capture.box import read_box
from comminsight.capture.discovery import SessionPaths, discover, segment_files
from comminsight.capture.session import SessionData, join_session, read_session
from comminsight.errors import InputError
from comminsight.format.segment import read_segment
from comminsight.model.manifest import LaunchManifest
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.pipeline.facts import is_launcher_running
from comminsight.pipeline.layout import RunPaths

DEFAULT_GROUP = b"default_pg"
TAIL_SEGMENTS = 2  # with the ring, the last ops of every communicator that still moves


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """Sessions by global rank (one life each, the newest), what was set aside, what failed."""

    sessions: tuple[SessionData, ...]
    earlier_lives: tuple[SessionData, ...] = ()
    without_rank: tuple[SessionData, ...] = ()
    problems: tuple[str, ...] = ()


def live_box_dir() -> Path:
    """Where processes of this user keep their black boxes while they live."""
    given = os.environ.get("COMMINSIGHT_BOX_DIR", "")
    return Path(given) if given else Path("/dev/shm") / f"comminsight-{os.getuid()}"  # noqa: S108 - 0700, owner checked


def load_run(
    paths: RunPaths, manifests: Sequence[LaunchManifest], *, is_segments_only: bool = False
) -> LoadedRun:
    """Every session of the run that can be read.

    Raises InputError when files are there but none of them can be read.
    """
    found, problems = find_sessions(paths, manifests, is_segments_only=is_segments_only)
    sessions = []
    for session_paths in found:
        try:
            sessions.append(with_resolved_rank(read_session(session_paths)))
        except InputError as error:
            problems.append(str(error))
    if problems and not sessions:
        raise InputError(
            f"none of its files can be read; the first: {problems[0]}",
            path=str(paths.root),
            next_step="check that the whole run directory was copied",
        )
    return sort_out(sessions, problems)


def find_sessions(
    paths: RunPaths, manifests: Sequence[LaunchManifest], *, is_segments_only: bool
) -> tuple[list[SessionPaths], list[str]]:
    """Where the run's sessions are; live boxes count only when they are of this run."""
    if is_segments_only:
        return list(discover(paths.segments).sessions), []
    running = [m for m in manifests if is_launcher_running(m)]
    spool = Path(running[0].spool) if running and running[0].spool else paths.segments
    stored = discover(spool, paths.boxes)
    found = {entry.session_id: entry for entry in stored.sessions}
    run_ids = {m.run_id for m in manifests}
    for entry in discover(None, live_box_dir()).sessions:
        known = found.get(entry.session_id)
        if known is not None and known.box is None:
            found[entry.session_id] = replace(known, box=entry.box)
        elif known is None and is_of_run(entry, run_ids):
            found[entry.session_id] = entry
    problems = [f"{path}: not a black box" for path in stored.unreadable]
    return [found[name] for name in sorted(found)], problems


def is_of_run(entry: SessionPaths, run_ids: set[str]) -> bool:
    """True when the box says that it belongs to one of the runs."""
    if entry.box is None:
        return False
    try:
        return read_box(entry.box).data.identity.run_id in run_ids - {""}
    except InputError:
        return False


def tail_session(entry: SessionPaths) -> SessionData:
    """The session from its box and its newest segments: enough to say how far it has come.

    Raises InputError when nothing of it can be read.
    """
    box = read_box(entry.box) if entry.box else None
    segments = [read_segment(path) for _, path in segment_files(entry.segment_dir)[-TAIL_SEGMENTS:]]
    if box is None and not segments:
        raise InputError(f"nothing to read of session {entry.session_id}")
    data = join_session(segments, box.data if box else None, is_tail=True)
    return replace(data, liveness=box.liveness, pid=box.pid) if box else data


def with_resolved_rank(session: SessionData) -> SessionData:
    """The session with its global rank from the default group where it has one.

    The group table is the job's own word; environment variables may be stale or missing.
    """
    rows = session.comms[session.comms["desc"] == DEFAULT_GROUP]
    rows = rows[rows["comm_rank"] >= 0]
    if not len(rows) or session.identity.global_rank != UNKNOWN_RANK:
        return session
    rank, size = int(rows["comm_rank"][-1]), int(rows["comm_size"][-1])
    identity = msgspec.structs.replace(session.identity, global_rank=rank, world_size=size)
    return replace(session, identity=identity)


def sort_out(sessions: Sequence[SessionData], problems: Sequence[str]) -> LoadedRun:
    """One session per rank: the newest life that recorded anything."""
    newest: dict[int, SessionData] = {}
    earlier, without_rank = [], []
    for session in sorted(sessions, key=lambda s: s.identity.created_real_ns):
        rank = session.identity.global_rank
        if rank == UNKNOWN_RANK:
            without_rank.append(session)
            continue
        if rank in newest:
            earlier.append(newest[rank])
        newest[rank] = session
    named = [problem for session in sessions for problem in session.problems]
    return LoadedRun(
        sessions=tuple(newest[rank] for rank in sorted(newest)),
        earlier_lives=tuple(earlier),
        without_rank=tuple(without_rank),
        problems=(*problems, *named),
    )


def world_size(sessions: Sequence[SessionData]) -> int:
    """Ranks of the job as its processes state it; at least those seen."""
    stated = [s.identity.world_size for s in sessions]
    seen = [s.identity.global_rank + 1 for s in sessions]
    groups = [int(s.comms["comm_size"].max()) for s in sessions if len(s.comms)]
    return int(np.max([0, *stated, *seen, *groups]))
