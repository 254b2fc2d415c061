"""The report on an imported run: verdicts from the files it keeps, steps from its records.

Records made of the same files would be a second and weaker opinion: they are not judged. Clocks of
the ranks are not known to agree, so that who waited for whom is not told from them either.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from comminsight.model.imported import ImportManifest
from comminsight.model.report import RunReport
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.import_run import evidence_of


def report_imported(
    recorded: RunReport,
    root: Path,
    manifest: ImportManifest,
    *,
    files: Sequence[Path] = (),
    baseline: Sequence[Path] = (),
    world_size: int = 0,
) -> RunReport:
    """What ``diagnose`` says of the evidence and of ``files`` beside it, with the run's steps.

    Raises InputError where nothing of the evidence can be read.
    """
    made = diagnose(
        [*evidence_of(root, manifest), *files],
        world_size=world_size or manifest.world_size,
        baseline=baseline,
    )
    facts = replace(made.facts, run_id=manifest.run_id, path=str(root))
    return replace(
        made,
        facts=facts,
        communicators=made.communicators or recorded.communicators,
        steps=recorded.steps,
        tally=recorded.tally,
        layout=recorded.layout,
    )
