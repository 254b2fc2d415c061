"""Ports, GIDs and counters say the same from files as from values.

For every scene of the field cases that has any: they are written as the tools of a host print them,
read, and judged again.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.diagnosis.job import judge_job
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Verdict
from comminsight.pipeline.evidence_files import sorted_files
from comminsight.pipeline.host_files import host_evidence
from tests.builders.host_files import write_host_files
from tests.cases.field_case import FieldCase
from tests.cases.registry import CASES

NAMED = [pytest.param(case, id=f"C{case.number:02d} {case.title}") for case in CASES]
N_SCENES: list[str] = []


def from_files(job: JobEvidence, folder: Path) -> JobEvidence:
    """The evidence with what it says of hosts and counters read from files."""
    write_host_files(folder, job.hosts, job.counters)
    files = sorted_files([folder])
    assert files.hosts
    assert (files.logs, files.dumps, files.unknown) == ([], [], [])
    found = host_evidence(files.hosts)
    assert (found.unread, found.missing) == ([], [])
    assert len(found.ports) == len(job.hosts.ports)
    assert len(found.gids) == len(job.hosts.gids)
    assert sum(len(one.times_ns) for one in found.counters) == sum(
        len(one.times_ns) for one in job.counters
    )
    hosts = replace(job.hosts, ports=tuple(found.ports), gids=tuple(found.gids))
    return replace(job, hosts=hosts, counters=tuple(found.counters))


def said(verdicts: tuple[Verdict, ...]) -> list[tuple[object, ...]]:
    return [
        (v.rule, v.cause, v.confidence, v.culprits, v.victims, [link.value for link in v.chain],
         [entry.message.code for entry in v.evidence], [one.code for one in v.missing])
        for v in verdicts
    ]  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_files_say_what_values_say(case: FieldCase, tmp_path: Path) -> None:
    for place, variant in enumerate(case.variants[:2]):
        folder = tmp_path / str(place)
        folder.mkdir()
        scene = case.build(folder, **variant)
        for name, evidence in (("fault", scene.evidence), ("twin", scene.twin)):
            if not isinstance(evidence, JobEvidence):
                continue
            if not (evidence.hosts.ports or evidence.hosts.gids or evidence.counters):
                continue
            N_SCENES.append(f"C{case.number}")
            read = from_files(evidence, tmp_path / f"hosts_{place}_{name}")
            assert said(judge_job(read)) == said(judge_job(evidence))


def test_there_were_scenes_of_eight_kinds() -> None:
    assert len(set(N_SCENES)) >= 8, sorted(set(N_SCENES))
