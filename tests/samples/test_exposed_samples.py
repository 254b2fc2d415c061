"""``comminsight exposed`` on every real trace and profile: sums held against a count of the file's
own events, and who was late against the stamps in it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from comminsight.cli import exposed
from comminsight.errors import CommInsightError
from comminsight.model.exposed import ExposedReport, OwnerDoubt, OwnerKind
from comminsight.pipeline.exposed import exposed_in_files

SAMPLES = Path(__file__).resolve().parents[3] / "shared/samples"
HTA, AMD, OWN = SAMPLES / "hta-kineto", SAMPLES / "tracelens-kineto", SAMPLES / "own-kineto"
ASCEND = SAMPLES / "ascend-msinsight"
MS = 1e6

pytestmark = pytest.mark.skipif(not HTA.exists(), reason=f"no samples at {SAMPLES}")


def adds_up(report: ExposedReport) -> bool:
    exposed_ns = sum(one.exposed_ns for one in report.ranks)
    shares = sum(one.share_ratio for one in report.owners)
    return (
        all(one.exposed_ns + one.overlapped_ns == one.communication_ns for one in report.ranks)
        and all(one.dark_ns + one.communication_ns <= one.span_ns for one in report.ranks)
        and sum(one.exposed_ns for one in report.owners) == exposed_ns
        and sum(one.exposed_ns for one in report.roles) == exposed_ns
        and shares == pytest.approx(1.0)
    )


def total_us(spans: list[tuple[float, float]]) -> float:
    """Length of the union, by a walk from left to right."""
    covered, reach = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return covered


def counted(path: Path) -> tuple[float, float]:
    """Milliseconds in kernels of NCCL, and of those beside no other kernel, in the file itself."""
    kernels = [
        ("nccl" in str(one["name"]).lower(), (float(one["ts"]), float(one["ts"]) + one["dur"]))
        for one in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if one.get("ph") == "X" and str(one.get("cat")).lower() == "kernel"
    ]
    sending = [span for is_nccl, span in kernels if is_nccl]
    other = [span for is_nccl, span in kernels if not is_nccl]
    return total_us(sending) / 1e3, (total_us([*sending, *other]) - total_us(other)) / 1e3


@pytest.mark.parametrize(
    ("path", "hotspot", "n_steps", "within"),
    [
        (HTA / "df_index_resolver.json.gz", "all_reduce", 5, 1e-4),
        (HTA / "nccl_data.json.gz", "all_reduce", 3, 1e-4),
        (HTA / "sampled_rank-0.json.gz", "unknown", 2, 0.01),
        (HTA / "sampled_rank-1.json.gz", "unknown", 2, 0.01),
        (HTA / "trace_diff_test.json.gz", "unknown", 6, 0.08),  # kernels that hide nothing for us
        (AMD / "mi300_resnet_act_checkpoint.json.gz", "all_reduce", 3, 1e-4),
    ],
    ids=lambda value: value.name.partition(".")[0] if isinstance(value, Path) else "",
)
def test_sums_are_those_of_the_events_in_the_file(
    path: Path, hotspot: str, n_steps: int, within: float
) -> None:
    report = exposed_in_files([path])
    communication_ms, exposed_ms = counted(path)
    (rank,) = report.ranks
    assert rank.communication_ns / MS == pytest.approx(communication_ms, rel=1e-4)
    assert rank.exposed_ns / MS == pytest.approx(exposed_ms, rel=within)
    assert (report.ops[0].op, rank.n_steps, adds_up(report)) == (hotspot, n_steps, True)
    assert {one.doubt for one in report.owners} == {OwnerDoubt.ABSENT}  # one rank's trace alone
    assert report.findings == ()


def test_a_serving_trace_has_communication_that_no_library_wrote() -> None:
    path = AMD / "b200_eager_trace.json.gz"
    report = exposed_in_files([path])
    (rank,) = report.ranks
    assert counted(path)[0] == pytest.approx(0.02, abs=0.01)
    assert rank.exposed_ns == rank.communication_ns == 2_141_501
    assert report.ops[0].share_ratio > 0.98
    assert adds_up(report)


def test_a_host_trace_of_gloo_has_no_compute_and_says_so() -> None:
    report = exposed_in_files([HTA / "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"])
    assert [(one.global_rank, one.overlap_ratio) for one in report.ranks] == [(34, None)]
    assert "missing.compute" in {one.code for one in report.missing}
    assert adds_up(report)


def test_two_ranks_of_one_job() -> None:
    report = exposed_in_files([HTA / "sampled_rank-0.json.gz", HTA / "sampled_rank-1.json.gz"])
    assert report.rank_imbalance_ratio == pytest.approx(0.052, abs=0.001)
    assert [(one.step, one.n_ranks) for one in report.steps] == [(551, 2), (552, 2)]
    assert {one.doubt for one in report.owners} == {OwnerDoubt.UNMATCHED}  # groups have no names
    assert adds_up(report)


def test_own_gloo_job() -> None:
    report = exposed_in_files([OWN])
    assert {one.op for one in report.ops} == {
        "all_to_all", "all_reduce", "all_gather", "send", "recv",
    }  # fmt: skip
    assert [one.n_steps for one in report.ranks] == [2, 2]
    assert {one.kind for one in report.owners} == {OwnerKind.UNKNOWN}
    assert adds_up(report)


def test_an_ascend_job_by_role_and_by_who_was_late() -> None:
    """The all-reduce of the embeddings begins on rank 2 at ...7683452.0 us and on rank 0 at
    ...7769840.2 us (communication.json): rank 2 waits 86,388.2 us for rank 0."""
    report = exposed_in_files([ASCEND / "st_level2"])
    assert {one.global_rank for one in report.ranks} == {0, 2}  # 1 and 3 hold no compute
    assert report.clock_error_ns is not None
    assert report.clock_error_ns < 200_000
    late = {one.global_rank: one for one in report.owners if one.kind is OwnerKind.LATE}
    assert late[0].exposed_ns == pytest.approx(86_388_200, abs=report.clock_error_ns)
    assert late.keys() <= {0, 2}
    assert [one.name for one in report.roles][:3] == ["PP", "EMB", "DP"]
    embeddings = next(one for one in report.ops if one.comm_label.startswith("embd"))
    waited = embeddings.calls[0]
    assert (waited.global_rank, waited.late_rank, waited.step) == (2, 0, 13)
    doubts = {one.doubt for one in report.owners if one.doubt}
    assert doubts == {OwnerDoubt.ABSENT, OwnerDoubt.DEPENDS, OwnerDoubt.CLOCKS}
    assert adds_up(report)


@pytest.mark.parametrize("folder", ["level1", "db_level1"])
def test_an_ascend_ddp_job_as_text_and_as_database(folder: str) -> None:
    report = exposed_in_files([ASCEND / folder])
    assert [one.op for one in report.ops] == ["all_reduce"]
    assert [round(one.exposed_ns / MS) for one in report.ranks] == (
        [102, 96] if folder == "level1" else [98, 95]
    )
    assert all(0.03 < (one.overlap_ratio or 0) < 0.05 for one in report.ranks)
    assert {one.doubt for one in report.owners} == {OwnerDoubt.UNMATCHED}  # no size of the job
    assert adds_up(report)


@pytest.mark.parametrize(
    "folder", ["ascend-msprof-analyze", "chakra", "param-et", "ingero", "own-gloo", "topo"]
)
def test_what_holds_no_device_activities_is_named(folder: str) -> None:
    if not (path := SAMPLES / folder).exists():
        pytest.skip(f"no sample at {path}")
    with pytest.raises(CommInsightError) as caught:
        exposed.main([str(path)])
    assert folder in str(caught.value)
    assert caught.value.next_step
