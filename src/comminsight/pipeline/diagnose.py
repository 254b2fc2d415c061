"""The verdicts on a job from whatever it left behind.

report = diagnose([Path("dumps"), Path("logs")])
report.verdicts[0].culprits
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis.job import judge_job
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.diagnosis.ras import with_ras
from comminsight.diagnosis.whole_chain import with_whole_chains
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import RankSteps
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.report import REPORT_SCHEMA_VERSION, RunFacts, RunReport
from comminsight.model.verdict import Message, Verdict
from comminsight.pipeline.job_evidence import gather
from comminsight.pipeline.rare_collection import rare_collection

OWN_RUN = "own records"  # told apart from tests of bandwidth beside it


def diagnose(
    paths: Sequence[Path | str],
    *,
    world_size: int = 0,
    recorded: RunReport | None = None,
    baseline: Sequence[Path] = (),
    measured: Callable[[], RunMeasured] | None = None,
) -> RunReport:
    """The report on the files and folders in ``paths``; ``recorded`` is that of the job's own run
    directory, where there is one: its verdicts are held against what the files say. ``baseline``
    are the files of another run of the same job, for the question what has changed. ``measured``
    gives what the job's own run measured; it is asked where the files tell who uses which port.

    Raises InputError where nothing can be read.
    """
    places = [Path(path) for path in paths]
    if recorded is not None and not places:
        return recorded
    with rare_collection():
        job = gather(places, world_size=world_size or _world_of(recorded)).job
        if baseline:
            job = replace(job, baseline=gather(baseline).job)
        if recorded is not None:
            job = replace(job, told=recorded.verdicts)
        if measured is not None and job.links is not None:
            job = _with_measures(job, measured())
        verdicts, notes = judged(job)
    if recorded is not None:
        joined = replace(recorded, verdicts=verdicts, notes=(*recorded.notes, *notes))
        return with_whole_chains(joined)
    coverage = job_coverage(job)
    made = RunReport(
        schema_version=REPORT_SCHEMA_VERSION,
        facts=RunFacts(
            run_id="",
            path=_common(places),
            world_size=coverage.ranks_expected,
            ranks_seen=coverage.ranks_seen,
        ),
        coverage=verdicts[0].coverage,
        communicators=job.communicators,
        verdicts=verdicts,
        notes=notes,
    )
    return with_whole_chains(made)


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """What the records of a run tell beside its verdicts; steps on the wall clock of each node."""

    bandwidth: tuple[BandwidthRow, ...]
    step_times: tuple[RankSteps, ...]


def _with_measures(job: JobEvidence, measured: RunMeasured) -> JobEvidence:
    own = tuple(replace(row, run=OWN_RUN) for row in measured.bandwidth)
    return replace(job, own_bandwidth=own, step_times=measured.step_times or job.step_times)


def judged(job: JobEvidence) -> tuple[tuple[Verdict, ...], tuple[Message, ...]]:
    """The verdicts with what RAS says beside them, and notes where there is no hang to hold it
    against."""
    verdicts = judge_job(job)
    if job.hang is None:
        return verdicts, ()
    return with_ras(verdicts, job.ras, job.hang, job.communicators)


def _world_of(recorded: RunReport | None) -> int:
    return recorded.facts.world_size if recorded is not None else 0


def _common(places: Sequence[Path]) -> str:
    folders = [place if place.is_dir() else place.parent for place in places]
    return os.path.commonpath([os.path.realpath(folder) for folder in folders])
