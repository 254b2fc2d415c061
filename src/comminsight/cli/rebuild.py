"""``comminsight rebuild DIR``: the steps again, from inspector_logs or an export alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import ExecutorKind
from comminsight.cli.typed import call, progress
from comminsight.errors import UsageError
from comminsight.pipeline.executor import Executor, PoolExecutor, SerialExecutor
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.rebuild_run import RunRebuilt, is_archive, rebuild_run
from comminsight.run import open_run


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
) -> int:
    """Rebuild every rank's steps from its raw records and write them into steps/ of the run."""
    progress(f"reading {run}")
    folders = [templates] if templates else []
    found, where = _rebuilt(run, folders, executor, workers or len(os.sched_getaffinity(0)))
    for problem in found.problems:
        sys.stderr.write(f"comminsight: not rebuilt: {problem}\n")
    if found.is_whole_needed:
        opened = open_run(run, template_folders=folders, is_segments_only=True)
        where = opened.write_steps()
        steps = opened.session_steps
        n_steps, n_sessions = sum(map(len, steps.values())), len(steps)
    else:
        n_steps, n_sessions = found.n_steps, len(found.sessions)
    sys.stdout.write(f"{n_steps} steps of {n_sessions} sessions: {where}\n")
    return 0


def _rebuilt(
    run: Path, folders: list[Path], kind: ExecutorKind, workers: int
) -> tuple[RunRebuilt, Path]:
    chosen = _executor(kind, workers)
    try:
        if is_archive(run):
            from comminsight.pipeline.rebuild_archive import rebuild_archive

            return rebuild_archive(run, chosen, folders), run / "steps"
        paths = run_paths(run)
        return rebuild_run(paths, chosen, folders), paths.steps
    finally:
        chosen.close()


def _executor(kind: ExecutorKind, workers: int) -> Executor:
    if kind is ExecutorKind.RAY:
        try:
            from comminsight.pipeline.ray_executor import RayExecutor
        except ImportError as error:
            raise UsageError(
                f"Ray is not installed: {error}",
                next_step="pip install 'comminsight[ray]', or leave out --executor ray",
            ) from error
        return RayExecutor(workers, address=os.environ.get("RAY_ADDRESS", ""))
    return PoolExecutor(workers) if workers > 1 else SerialExecutor()


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(rebuild, "rebuild", argv)
