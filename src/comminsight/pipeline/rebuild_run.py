"""A whole run rebuilt by tasks: which tasks there are, and what of their results counts.

The driver reads no records: it names sessions and blocks, and keeps of each rank the newest life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comminsight.capture.discovery import discover, segment_files
from comminsight.errors import InputError
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.pipeline.executor import Err, Executor
from comminsight.pipeline.launches import earlier_launches, newest_run
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.rebuild_tasks import (
    Rebuilt,
    SegmentsTask,
    rebuild_segments,
)
from comminsight.pipeline.staging import clear_stale
from comminsight.pipeline.templates import load_templates


@dataclass(frozen=True, slots=True)
class RunRebuilt:
    """Sessions by rank, one life each, and what could not be read.

    ``removed``: ids of sessions that could not be read and had steps of an earlier rebuild; these
    are gone, since steps of other templates compare with none of the new ones.
    ``is_whole_needed``: some process did not say which rank it was, or held several; only all
    sessions together can tell, so rebuild the run as a whole.
    """

    sessions: tuple[Rebuilt, ...]
    problems: tuple[str, ...] = ()
    is_whole_needed: bool = False
    removed: tuple[str, ...] = ()

    @property
    def n_steps(self) -> int:
        """Steps of all sessions."""
        return sum(one.record.n_steps for one in self.sessions if one.record)

    @property
    def n_records(self) -> int:
        """Records read."""
        return sum(one.n_records for one in self.sessions)

    @property
    def session_ids(self) -> set[str]:
        """Ids of what was rebuilt."""
        return {one.identity.session_id for one in self.sessions}


def is_archive(root: Path) -> bool:
    """Whether the folder is an export from which steps can be rebuilt."""
    return (root / "sessions").is_dir() and (root / "events").is_dir()


def rebuild_run(
    paths: RunPaths, executor: Executor, template_folders: Sequence[Path] = ()
) -> RunRebuilt:
    """The steps of every session from its segments, in ``steps/`` of the run.

    Raises InputError when there are sessions and none can be read.
    """
    sessions = discover(paths.segments).sessions
    folders = [s.segment_dir for s in sessions if s.segment_dir and segment_files(s.segment_dir)]
    steps, templates = str(paths.steps), tuple(str(folder) for folder in template_folders)
    tasks = [SegmentsTask(str(folder), steps, templates) for folder in folders]
    found = run_tasks(executor, rebuild_segments, tasks, paths, template_folders)
    unread = {folder.name for folder in folders} - found.session_ids
    removed = remove_steps(paths.steps, unread)
    return replace(_sorted_out(found, is_spool=paths.is_spool), removed=removed)


def run_tasks(
    executor: Executor,
    task: Callable[[Any], tuple[Rebuilt, ...]],
    items: Sequence[Any],
    paths: RunPaths,
    template_folders: Sequence[Path],
) -> RunRebuilt:
    """What all tasks gave, in no order. Raises InputError when none gave anything."""
    load_templates(template_folders)  # what is wrong with them is said once, and first
    rebuilt: list[Rebuilt] = []
    problems: list[str] = []
    for result in executor.map_unordered(task, items):
        if isinstance(result, Err):
            problems.append(result.message)
        else:
            rebuilt += result.value
    clear_stale(paths.steps)
    if problems and not rebuilt:
        raise InputError(
            f"none of its files can be read; the first: {problems[0]}", path=str(paths.root),
            code="none_read", reason=problems[0],
            next_step="check that the whole run directory was copied",
        )  # fmt: skip
    return RunRebuilt(tuple(rebuilt), tuple(sorted(problems)))


def _sorted_out(found: RunRebuilt, *, is_spool: bool) -> RunRebuilt:
    """One session per rank: the newest life, of the last launch of the newest run where there are
    several, as a report takes them."""
    by_age = sorted(found.sessions, key=lambda one: one.identity.created_real_ns)
    own = newest_run(by_age)[0] if is_spool else by_age
    earlier = earlier_launches([one.life for one in own])
    own = [one for one in own if one.identity.session_id not in earlier]
    newest = {one.identity.global_rank: one for one in own}
    is_untold = any(one.is_shared or one.identity.global_rank == UNKNOWN_RANK for one in own)
    kept = tuple(sorted(newest.values(), key=by_rank))
    _forget(one for one in by_age if one not in kept)
    return RunRebuilt(kept, found.problems, is_whole_needed=is_untold)


def by_rank(one: Rebuilt) -> tuple[int, str]:
    """The order of sessions."""
    return one.identity.global_rank, one.identity.session_id


def remove_steps(folder: Path, session_ids: Iterable[str]) -> tuple[str, ...]:
    """The ids of the given sessions that had steps in the folder; they have none now."""
    removed = []
    for session_id in sorted(session_ids):
        own = [folder / f"{session_id}{ending}" for ending in (".jsonl", ".session.json")]
        if any(path.is_file() for path in own):
            removed.append(session_id)
        for path in own:
            path.unlink(missing_ok=True)
    return tuple(removed)


def _forget(lives: Iterable[Rebuilt]) -> None:
    """Steps of earlier lives are not those of the run; their records stay."""
    for one in lives:
        if one.steps_path:
            remove_steps(Path(one.steps_path).parent, [one.identity.session_id])
