"""Real profiler traces: NCCL of three generations, RCCL, gloo, training and serving."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from comminsight.analysis.exposure import exposures
from comminsight.model.activity import ActivityKind
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.job_evidence import gather

SHARED = Path(__file__).resolve().parents[3] / "shared/samples"
HTA, AMD, OWN = SHARED / "hta-kineto", SHARED / "tracelens-kineto", SHARED / "own-kineto"

pytestmark = pytest.mark.skipif(not HTA.exists(), reason=f"no sample at {HTA}")


def job_of(*paths: Path) -> JobEvidence:
    return gather(paths).job


def collectives(job: JobEvidence) -> Counter[tuple[str, str]]:
    return Counter(
        (Op(one.op).name, one.comm_label)
        for one in job.activities
        if one.kind is ActivityKind.COMMUNICATION
    )


@pytest.mark.parametrize(
    ("path", "world", "found", "launches"),
    [
        (HTA / "df_index_resolver.json.gz", 2, {("ALL_REDUCE", ""): 2020}, (19370, 19370)),
        (
            HTA / "nccl_data.json.gz", 2,
            {("ALL_REDUCE", "default_pg:0 (0-1)"): 15, ("BROADCAST", "default_pg:0 (0-1)"): 6},
            (2700, 2700),
        ),
        (HTA / "trace_diff_test.json.gz", 2, None, None),
        (
            AMD / "mi300_resnet_act_checkpoint.json.gz", 8,
            {("ALL_REDUCE", "default_pg:0 (0-7)"): 6, ("BROADCAST", "default_pg:0 (0-7)"): 6,
             ("UNKNOWN", ""): 5},
            (2238, 2238),
        ),
        (AMD / "b200_eager_trace.json.gz", 8, None, (768, 768)),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)  # fmt: skip
def test_collectives_and_launches(
    path: Path, world: int, found: dict[tuple[str, str], int] | None, launches: tuple[int, int]
) -> None:
    job = job_of(path)
    assert job.world_size == world
    assert (job.unread, job.missing) == ((), ())
    if found is not None:
        assert collectives(job) == found
    counts = [(one.n_launches, one.n_kernels) for one in job.launches]
    assert counts == ([launches] if launches else [])


def test_what_is_hidden_and_exposed_adds_up_to_all_communication() -> None:
    for path in sorted([*HTA.glob("*.json.gz"), *AMD.glob("*.json.gz")]):
        for one in exposures(job_of(path).activities):
            assert one.exposed_ns + one.overlapped_ns == one.communication_ns, path.name


@pytest.mark.parametrize(
    ("paths", "cause"),
    [
        ([HTA / "df_index_resolver.json.gz"], Cause.EXPOSED_COMM),
        ([HTA / "nccl_data.json.gz"], Cause.NO_VERDICT),
        ([HTA / "sampled_rank-0.json.gz", HTA / "sampled_rank-1.json.gz"], Cause.EXPOSED_COMM),
        ([AMD / "mi300_resnet_act_checkpoint.json.gz"], Cause.EXPOSED_COMM),
        ([AMD / "b200_eager_trace.json.gz"], Cause.NO_VERDICT),
        ([OWN], Cause.NO_VERDICT),
    ],
    ids=["old torch", "2.3", "two of 128", "rocm", "serving", "gloo"],
)
def test_no_rank_is_accused(paths: list[Path], cause: Cause) -> None:
    verdicts = diagnose(paths).verdicts
    assert verdicts[0].cause is cause
    assert [verdict.culprits for verdict in verdicts] == [()] * len(verdicts)


def test_gloo_runs_on_threads_of_both_ranks() -> None:
    job = job_of(OWN)
    by_rank = Counter((one.global_rank, Op(one.op).name) for one in job.activities)
    common = {"ALL_REDUCE": 8, "ALL_GATHER": 2, "ALL_TO_ALL": 2}
    own = {0: {**common, "SEND": 2}, 1: {**common, "RECV": 2}}
    assert by_rank == {(rank, op): n for rank, ops in own.items() for op, n in ops.items()}
    assert {one.step for one in job.activities} == {2, 3}
    assert not any(one.kind is ActivityKind.COMPUTE for one in job.activities)
