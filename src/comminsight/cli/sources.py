"""What the verbs on verdicts take: a run directory, an incident file, or files of any mix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from comminsight.analysis.rank_steps import rank_steps
from comminsight.errors import InputError, UsageError
from comminsight.model.report import RunReport
from comminsight.pipeline.diagnose import RunMeasured, diagnose
from comminsight.pipeline.import_report import report_imported
from comminsight.pipeline.import_run import read_import
from comminsight.pipeline.incident import FILES_FOLDER
from comminsight.pipeline.incident_open import all_opened
from comminsight.pipeline.layout import run_paths
from comminsight.run import Run, open_run


@dataclass(frozen=True, slots=True)
class Judged:
    """The report, the run that it is of where there is one, and the files beside it."""

    report: RunReport
    run: Run | None
    files: tuple[Path, ...]


@contextmanager
def judged(
    paths: Sequence[Path],
    *,
    world_size: int = 0,
    template_folders: Sequence[Path] = (),
    baseline: Sequence[Path] = (),
) -> Iterator[Judged]:
    """The verdicts on ``paths``, as ``report`` gives them of a run and ``diagnose`` of anything;
    incident files stay unpacked inside the block. ``baseline`` are files of another run.

    Raises UsageError for two run directories, InputError for what cannot be read.
    """
    with all_opened(paths) as places:
        runs, files = split_runs(places)
        run = open_run(runs[0], template_folders=template_folders) if runs else None
        recorded = run.report() if run is not None else None
        manifest = read_import(runs[0]) if runs else None
        if recorded is not None and manifest is not None:
            made = report_imported(
                recorded, runs[0], manifest,
                files=files, baseline=baseline, world_size=world_size,
            )  # fmt: skip
        else:
            measured = None if run is None else partial(_measured, run)
            made = diagnose(
                files, world_size=world_size, recorded=recorded, baseline=baseline,
                measured=measured,
            )  # fmt: skip
        yield Judged(at_path(made, paths), run, tuple(files))


def _measured(run: Run) -> RunMeasured:
    return RunMeasured(run.bandwidth(), rank_steps(run.trace, run.aligned_steps))


def split_runs(places: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """(run directories, all else); at most one run."""
    runs = [path for path in places if is_run(path)]
    if len(runs) > 1:
        raise UsageError(
            "two run directories: " + ", ".join(map(str, runs)),
            next_step="give one run with the logs and dumps of that job",
        )
    return runs, [path for path in places if path not in runs]


def is_run(path: Path) -> bool:
    """True for a folder with what recorders of our own wrote."""
    try:
        run_paths(path)
    except (InputError, OSError):  # closed to us: the reader of files says why
        return False
    return True


def is_files(place: Path) -> bool:
    """True for the folder of files that an incident without a run is unpacked into."""
    return place.name == FILES_FOLDER and not is_run(place)


def is_judged_by_records(places: Sequence[Path]) -> bool:
    """True for one run of our own recorders; an imported one is judged by the files it keeps."""
    is_one = len(places) == 1 and not is_files(places[0])
    return is_one and read_import(places[0]) is None


def refuse_without_ops(root: Path) -> None:
    """Raises InputError for an imported run whose files gave no op with its times."""
    manifest = read_import(root)
    if manifest is not None and not any(one.n_written for one in manifest.ranks):
        raise InputError(
            "is imported from files that give no op with its times", path=str(root),
            next_step=f"`comminsight report {root}` judges the files; import profiler traces too",
        )  # fmt: skip


def at_path(made: RunReport, paths: Sequence[Path]) -> RunReport:
    """The report of an incident file names the file, not where it was unpacked."""
    if len(paths) != 1 or not paths[0].is_file():
        return made
    return replace(made, facts=replace(made.facts, path=str(paths[0])))
