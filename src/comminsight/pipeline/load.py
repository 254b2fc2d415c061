"""The sessions of a run, read from wherever they are now: the run, a spool, or live boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from comminsight.capture.box import read_box
from comminsight.capture.discovery import (
    SEGMENTS_FOLDER,
    SessionPaths,
    closed_folders,
    discover,
    segment_files,
)
from comminsight.capture.process import boot_id
from comminsight.capture.session import SessionData, join_session, read_session
from comminsight.errors import InputError
from comminsight.format.segment import read_segment
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.verdict import Message
from comminsight.pipeline.ends import ended_well
from comminsight.pipeline.launches import last_launch, newest_run
from comminsight.pipeline.layout import FALLBACK_FOLDER, RunPaths
from comminsight.pipeline.moment import as_then, moment_path, read_moment
from comminsight.pipeline.quiet_ends import with_quiet_ends
from comminsight.pipeline.ranks import with_ranks

DEFAULT_GROUP = b"default_pg"
TAIL_SEGMENTS = 2  # with the ring, the last ops of every communicator that still moves


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """Sessions by global rank (one life each, the newest), what was set aside, what failed."""

    sessions: tuple[SessionData, ...]
    earlier_lives: tuple[SessionData, ...] = ()
    without_rank: tuple[SessionData, ...] = ()
    problems: tuple[str, ...] = ()
    other_runs: tuple[SessionData, ...] = ()
    earlier_launches: tuple[SessionData, ...] = ()
    notes: tuple[Message, ...] = ()


def live_box_dir() -> Path:
    """Where processes of this user keep their black boxes while they live."""
    given = os.environ.get("COMMINSIGHT_BOX_DIR", "")
    return Path(given) if given else Path("/dev/shm") / f"comminsight-{os.getuid()}"  # noqa: S108 - 0700, owner checked


def box_dirs(spool: Path) -> tuple[Path, Path]:
    """Folders in which processes that record into ``spool`` keep their boxes: the usual one first,
    then the one that recorders fall back to."""
    fallback = os.environ.get("COMMINSIGHT_BOX_FALLBACK", "")
    return live_box_dir(), Path(fallback) if fallback else spool / FALLBACK_FOLDER


def load_run(
    paths: RunPaths, manifests: Sequence[LaunchManifest], *, is_segments_only: bool = False
) -> LoadedRun:
    """Every session of the run that can be read.

    Raises InputError when files are there but none of them can be read.
    """
    moment = read_moment(paths)
    found, problems = find_sessions(paths, manifests, is_segments_only=is_segments_only)
    sessions = []
    for session_paths in found:
        try:
            session = with_resolved_rank(as_then(read_session(session_paths), moment))
            sessions.append(with_settled_fate(session, manifests))
        except InputError as error:
            problems.append(str(error))
    if problems and not sessions:
        raise InputError(
            f"none of its files can be read; the first: {problems[0]}",
            code="none_read",
            reason=problems[0],
            path=str(paths.root),
            next_step="check that the whole run directory was copied",
        )
    own, others = newest_run(sessions) if paths.is_spool else (sessions, ())
    own, earlier = last_launch(own)
    ranked = with_ranks(with_quiet_ends(own, manifests))
    loaded = sort_out(ranked.sessions, problems)
    return replace(loaded, other_runs=others, earlier_launches=earlier, notes=ranked.notes)


def no_records(root: Path, _: Sequence[LaunchManifest]) -> LoadedRun:
    """Raises InputError: exported tables are not the whole of what recorders wrote."""
    raise InputError(
        "holds exported tables: steps and metadata can be rebuilt from them, reports cannot",
        path=str(root), code="tables_only",
        next_step="give the run directory, or run `comminsight rebuild` on the tables",
    )  # fmt: skip


def find_sessions(
    paths: RunPaths, manifests: Sequence[LaunchManifest], *, is_segments_only: bool
) -> tuple[list[SessionPaths], list[str]]:
    """Where the run's sessions are; live boxes count only when they are of this run."""
    if is_segments_only:
        return list(discover(paths.segments).sessions), []
    is_copy = moment_path(paths).exists()  # of a run that was looked at elsewhere
    fallback = () if is_copy else box_dirs(paths.segments)[1:]
    stored = discover(paths.segments, paths.boxes, *fallback)
    found = {entry.session_id: entry for entry in stored.sessions}
    problems = [f"{path}: not a black box" for path in stored.unreadable]
    own = (entry.segment_dir for entry in stored.sessions)
    problems += closed_folders((paths.segments, paths.boxes, *own))
    if is_copy:
        return list(stored.sessions), problems
    spools = elsewhere(manifests)
    for spool in spools:
        for entry in discover(spool).sessions:
            known = found.get(entry.session_id)
            if known is None or known.segment_dir is None:
                box = known.box if known else None
                found[entry.session_id] = replace(entry, box=box)
    live = (folder for spool in (paths.segments, *spools) for folder in box_dirs(spool))
    for entry in discover(None, *dict.fromkeys(live)).sessions:
        known = found.get(entry.session_id)
        if known is not None and known.box is None:
            found[entry.session_id] = replace(known, box=entry.box)
        elif known is None and is_of_run(entry, manifests):
            found[entry.session_id] = entry
    return [found[name] for name in sorted(found)], problems


def elsewhere(manifests: Sequence[LaunchManifest]) -> list[Path]:
    """Spools outside of a run directory that may still hold what a launcher did not collect."""
    here = [Path(m.spool) for m in manifests if m.spool and m.boot_id == boot_id()]
    return [spool for spool in dict.fromkeys(here) if spool.name != SEGMENTS_FOLDER]


def is_of_run(entry: SessionPaths, manifests: Sequence[LaunchManifest]) -> bool:
    """True when the box names a launcher of the run: its run and, where stated, its spool.

    Steps of one allocation share the scheduler's id; their spools differ.
    """
    if entry.box is None:
        return False
    try:
        box = read_box(entry.box).data
    except InputError:
        return False
    spool = box.environment.get("COMMINSIGHT_SPOOL", "")
    return any(
        m.run_id and m.run_id == box.identity.run_id and spool in {"", m.spool} for m in manifests
    )


def tail_session(entry: SessionPaths) -> SessionData:
    """The session from its box and its newest segments: enough to say how far it has come.

    Raises InputError when nothing of it can be read.
    """
    box = read_box(entry.box) if entry.box else None
    segments = [read_segment(path) for _, path in segment_files(entry.segment_dir)[-TAIL_SEGMENTS:]]
    if box is None and not segments:
        raise InputError(f"nothing to read of session {entry.session_id}")
    is_alive = box is not None and box.liveness is Liveness.ALIVE
    data = join_session(segments, box.data if box else None, is_alive=is_alive, is_tail=True)
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


def with_settled_fate(session: SessionData, manifests: Sequence[LaunchManifest]) -> SessionData:
    """The session as its launcher saw it end: without a closed recorder it is dead, unless it (or,
    where its own end was not seen, the whole command) ended with 0.

    So a run tells the same on a machine that cannot ask for its processes.
    """
    own = [m for m in manifests if m.boot_id and m.boot_id == session.identity.boot_id]
    has_ended = bool(own) and all(m.exit_code is not None for m in own)
    if session.liveness not in {Liveness.UNKNOWN, Liveness.DEAD} or not has_ended:
        return session
    has_ended_well = ended_well(session.identity.session_id, own)
    return replace(session, liveness=Liveness.CLOSED if has_ended_well else Liveness.DEAD)


def sort_out(sessions: Sequence[SessionData], problems: Sequence[str]) -> LoadedRun:
    """One session per rank: its newest life."""
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
