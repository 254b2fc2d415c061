"""A rebuild from exported Parquet files: one task per block of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from comminsight.pipeline.executor import Executor
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.rebuild_run import RunRebuilt, by_rank, remove_steps, run_tasks
from comminsight.pipeline.rebuild_tasks import Rebuilt, run_through, stepper_for
from comminsight.pipeline.staging import staged
from comminsight.store.archive import Archive
from comminsight.store.events import EVENTS, NET, NOTICES
from comminsight.store.replay import EventsFile, session_batches
from comminsight.store.sessions import FOLDER, comm_rows_of, read_sessions


class ParquetTask(msgspec.Struct, frozen=True):
    """Rebuild the sessions of one block of an export (``name`` is that of its files)."""

    root: str
    name: str
    steps_folder: str
    template_folders: tuple[str, ...] = ()


def rebuild_archive(
    root: Path, executor: Executor, template_folders: Sequence[Path] = ()
) -> RunRebuilt:
    """The steps of every session of an export, in ``steps/`` beside its tables.

    Raises InputError when none of its files can be read.
    """
    paths = RunPaths(root)
    templates = tuple(str(folder) for folder in template_folders)
    names = sorted(path.stem for path in (root / FOLDER).glob("*.json"))
    tasks = [ParquetTask(str(root), name, str(paths.steps), templates) for name in names]
    found = run_tasks(executor, rebuild_parquet, tasks, paths, template_folders)
    removed: tuple[str, ...] = ()
    if found.problems:  # whose they are the unreadable file would have to say: all but the new ones
        there = {path.stem for path in paths.steps.glob("*.jsonl")}
        removed = remove_steps(paths.steps, there - found.session_ids)
    return RunRebuilt(tuple(sorted(found.sessions, key=by_rank)), found.problems, removed=removed)


def rebuild_parquet(task: ParquetTask) -> tuple[Rebuilt, ...]:
    """The steps of all sessions of a block, written. Raises InputError when it cannot be read."""
    archive = Archive.local(task.root)
    entries = read_sessions(archive, f"{FOLDER}/{task.name}.json")
    files = []
    for table in (EVENTS, NET, NOTICES):
        path = archive.path_of(f"{table.folder}/{task.name}.parquet")
        if table is EVENTS or path.is_file():
            files.append(EventsFile(path, table))
    rebuilt = []
    with staged(Path(task.steps_folder)) as staging:
        for entry in entries:
            stepper = stepper_for(staging, task.template_folders, entry.identity, entry.settings)
            batches = session_batches(files, entry.identity.session_id)
            comms = comm_rows_of(entry)
            rebuilt.append(run_through(stepper, comms, batches, is_over=entry.is_over))
    return tuple(rebuilt)
