"""With less evidence a link fault is told as before, or less of it; never as another one. Evidence
that says nothing changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import HostDevice, HostFacts, NvLinkState, PciBridge, PortState
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.job_evidence import gather
from tests.cases import (
    class_05c_links,
    class_07_bandwidth,
    class_07_transport,
    class_09_topology,
    class_11_sums,
)
from tests.cases.field_case import Evidence, Expected, FieldCase, judge

CASES = (
    *class_05c_links.CASES,
    *class_07_bandwidth.CASES,
    *class_07_transport.CASES,
    *class_09_topology.CASES,
    *class_11_sums.CASES,
)
PARTS = {
    "hosts": HostFacts(), "counters": (), "links": None, "bandwidth": (), "logs": (), "hang": None,
    "baseline": None, "digests": (), "told": (), "step_times": (),
}  # fmt: skip
# what remains to be said, of nobody, where the reason for it was taken away
SYMPTOMS = frozenset({Cause.ALL_PRESENT_STUCK, Cause.PEER_UNREACHABLE})


def scenes(case: FieldCase, folder: Path) -> Iterator[tuple[JobEvidence, Expected]]:
    for number, variant in enumerate(case.variants):
        own = folder / str(number)
        own.mkdir()
        scene = case.build(own, **variant)
        yield as_job(scene.evidence), scene.expected
        yield as_job(scene.twin), scene.twin_expected


def as_job(evidence: Evidence) -> JobEvidence:
    if isinstance(evidence, Path):
        return gather([evidence]).job
    assert isinstance(evidence, JobEvidence)
    return evidence


def is_within(verdict: Verdict, expected: Expected) -> bool:
    if verdict.cause in {Cause.NO_VERDICT, Cause.HEALTHY}:
        return True
    if verdict.cause in SYMPTOMS and not verdict.culprits:
        return True
    named = set(verdict.culprits) <= set(expected.culprits or verdict.culprits)
    return named and verdict.cause in (*expected.causes, *expected.also)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"C{case.number}")
def test_less_evidence_accuses_nobody_else(case: FieldCase, tmp_path: Path) -> None:
    n_taken = 0
    for job, expected in scenes(case, tmp_path):
        for name, nothing in PARTS.items():
            if getattr(job, name) == nothing:
                continue
            n_taken += 1
            for verdict in judge(replace(job, **{name: nothing})):
                assert is_within(verdict, expected), (name, verdict.cause, verdict.culprits)
    assert n_taken >= 2 * len(case.variants)


def harmless(host: str) -> JobEvidence:
    """What a sound host has: equal ports, counters that rest, links that are up, bridges with
    access control that nothing goes through, a smooth curve of bandwidth."""
    return JobEvidence(
        hosts=HostFacts(
            ports=tuple(
                PortState(
                    host=f"sound{i}", device="mlx5_0", state="active", rate_gbs=50.0,
                    link_layer="ethernet", active_mtu_bytes=4096, guid=f"{i}",
                )
                for i in range(4)
            ),
            nvlinks=tuple(
                NvLinkState(host=host, device="gpu0", link=i, is_up=True) for i in range(2)
            ),
            bridges=(PciBridge(host=host, bus_id="0000:70:00.0", is_redirecting=True,
                               below=("0000:77:00.0",)),),
            devices=(HostDevice(host=host, device="gpu0", is_nic=False, numa_node=0),),
        ),
        counters=tuple(
            CounterSeries(
                host=f"sound{i}", device="mlx5_0", counter="out_of_sequence", unit="1",
                times_ns=(0, 10**9, 2 * 10**9), values=(3.0, 3.0, 3.0),
            )
            for i in range(4)
        ),
        bandwidth=tuple(
            BandwidthRow(op=Op.BROADCAST, size_bytes=1 << k, busbw_gbs=0.5 * k, run="sound")
            for k in range(10, 20)
        ),
    )  # fmt: skip


def with_harmless(job: JobEvidence) -> JobEvidence:
    """Beside what the job has, in the parts that it does not have."""
    extra = harmless("sound-box")
    hosts = {
        name: getattr(extra.hosts, name)
        for name in HostFacts.__struct_fields__
        if not getattr(job.hosts, name)
    }
    return replace(
        job,
        hosts=replace(job.hosts, **hosts),
        counters=job.counters or extra.counters,
        bandwidth=job.bandwidth or extra.bandwidth,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"C{case.number}")
def test_evidence_that_says_nothing_changes_no_accusation(case: FieldCase, tmp_path: Path) -> None:
    for job, _ in scenes(case, tmp_path):
        before, after = judge(job), judge(with_harmless(job))
        assert accused(after) == accused(before)


def accused(verdicts: tuple[Verdict, ...]) -> list[tuple[Cause, tuple[int, ...]]]:
    return [(v.cause, v.culprits) for v in verdicts if v.cause is not Cause.NO_VERDICT]
