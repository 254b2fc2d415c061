"""``comminsight rebuild DIR``: the steps again, from inspector_logs or an export alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import ExecutorKind, Lang
from comminsight.cli.typed import call, progress, write_output
from comminsight.errors import ExitCode, InputError, UsageError
from comminsight.pipeline.executor import Executor, PoolExecutor, SerialExecutor
from comminsight.pipeline.layout import RunPaths, run_paths
from comminsight.pipeline.metadata import write_metadata
from comminsight.pipeline.rebuild_run import RunRebuilt, is_archive, rebuild_run
from comminsight.report.catalogue import Catalogue, catalogue
from comminsight.run import open_run, run_of_sessions

MAX_RECORDS = 50_000_000  # 128 bytes each, in memory at once for the roles


def rebuild(
    run: Annotated[Path, typer.Argument(help="run directory, or a folder of exported Parquet")],
    *,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="processes at a time; 0: one per core")] = 0,
    executor: Annotated[
        ExecutorKind, typer.Option(help="where they run: this machine, or a Ray cluster")
    ] = ExecutorKind.POOL,
    measures: Annotated[
        bool, typer.Option("--measures", help="waits and blame by range of steps too, in measures/")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 4 when a session could not be rebuilt")
    ] = False,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
) -> int:
    """Rebuild every rank's steps from its raw records and write them into steps/ of the run."""
    progress(f"reading {run}")
    folders = [templates] if templates else []
    words = catalogue(lang.value)
    chosen = _executor(executor, workers or len(os.sched_getaffinity(0)))
    try:
        found, paths = _rebuilt(run, folders, chosen)
        if measures:
            _measure(found, paths, chosen, words)
    finally:
        chosen.close()
    _say_unread(found, words)
    n_steps, n_sessions = found.n_steps, len(found.sessions)
    if found.is_whole_needed:
        opened = open_run(run, template_folders=folders, is_segments_only=True)
        opened.write_steps()
        n_steps, n_sessions = sum(map(len, opened.session_steps.values())), len(opened.sessions)
        write_metadata(paths, opened.metadata(is_fresh=True))
    else:
        _write_metadata(found, paths, words)
    write_output(
        words.text("rebuild.done", n_steps=n_steps, n_sessions=n_sessions, folder=str(paths.steps))
    )
    return ExitCode.PARTIAL if strict and found.problems else ExitCode.OK


def _warn(line: str) -> None:
    sys.stderr.write(f"comminsight: {line}\n")


def _say_unread(found: RunRebuilt, words: Catalogue) -> None:
    for problem in found.problems:
        _warn(words.text("rebuild.left_out", problem=problem))
    for session_id in found.removed:
        _warn(words.text("rebuild.removed", session=session_id))


def _rebuilt(run: Path, folders: list[Path], executor: Executor) -> tuple[RunRebuilt, RunPaths]:
    if is_archive(run):
        from comminsight.pipeline.rebuild_archive import rebuild_archive

        return rebuild_archive(run, executor, folders), RunPaths(run)
    paths = run_paths(run)
    return rebuild_run(paths, executor, folders), paths


def _write_metadata(found: RunRebuilt, paths: RunPaths, words: Catalogue) -> None:
    """Roles and layout need all sessions together, which a large run does not fit in memory for."""
    if found.n_records > MAX_RECORDS:
        _warn(words.text("rebuild.no_metadata", n=MAX_RECORDS))
        return
    records = [one.record for one in found.sessions if one.record is not None]
    if is_archive(paths.root):
        from comminsight.pipeline.archived import archived_sessions, write_archived_metadata

        if not found.problems:  # roles need all of them
            opened = run_of_sessions(archived_sessions(paths.root))
            write_archived_metadata(paths.root, opened.metadata_with(records))
        return
    opened = open_run(paths.root, is_segments_only=True)
    write_metadata(paths, opened.metadata_with(records))


def _measure(found: RunRebuilt, paths: RunPaths, executor: Executor, words: Catalogue) -> None:
    if found.is_whole_needed or not all(one.spans for one in found.sessions):
        raise InputError(
            "measures need segments whose processes say which rank they are", path=str(paths.root),
            code="no_measures",
            next_step="give the run directory, or leave out --measures and see the report",
        )  # fmt: skip
    from comminsight.pipeline.rebuild_measures import measure_run

    tables, problems, withheld = measure_run(found, paths.measures, executor)
    for problem in (*problems, *([words.message(withheld)] if withheld else [])):
        _warn(words.text("rebuild.not_measured", problem=problem))
    n_steps = sum(table.n_steps for table in tables)
    write_output(
        words.text(
            "rebuild.measured", n_steps=n_steps, n_ranges=len(tables), folder=str(paths.measures)
        )
    )


def _executor(kind: ExecutorKind, workers: int) -> Executor:
    if kind is ExecutorKind.RAY:
        try:
            from comminsight.pipeline.ray_executor import RayExecutor
        except ImportError as error:
            raise UsageError(
                f"Ray is not installed: {error}",
                code="no_ray",
                reason=str(error),
                next_step="pip install 'comminsight[ray]', or leave out --executor ray",
            ) from error
        return RayExecutor(workers, address=os.environ.get("RAY_ADDRESS", ""))
    return PoolExecutor(workers) if workers > 1 else SerialExecutor()


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(rebuild, "rebuild", argv)
