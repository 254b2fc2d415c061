"""Real profiles of Ascend devices: a PP2xDP2 job, a DDP job as text and as a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.analysis.exposure import Exposure, exposures
from comminsight.analysis.intervals import length_ns
from comminsight.format.ascend_csv import read_step_trace_time
from comminsight.model.device_trace import DeviceTrace
from comminsight.model.ops import Op
from comminsight.pipeline.ascend_profiles import AscendProfile, read_ascend_profiles
from comminsight.pipeline.traces import trace_evidence
from comminsight.semantics.trace_activities import activities_of

SAMPLES = Path(__file__).resolve().parents[3] / "shared/samples"
ASCEND = SAMPLES / "ascend-msinsight"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
LEVEL1, LEVEL2 = ASCEND / "level1", ASCEND / "st_level2"
WITHIN = 0.01

pytestmark = pytest.mark.skipif(not ASCEND.exists(), reason=f"no sample at {ASCEND}")


def profile_of(folder: Path, *names: str) -> AscendProfile:
    paths = [folder / name for name in names]
    (profile,) = read_ascend_profiles(path for path in paths if path.exists())
    assert profile.unread == []
    return profile


def exposure_of(trace: DeviceTrace) -> Exposure:
    (found,) = exposures(activities_of(trace))
    return found


@pytest.mark.parametrize(
    "folder",
    [
        LEVEL2 / "rank_0_ascend_pt" / OUTPUT, LEVEL2 / "rank_2_ascend_pt" / OUTPUT,
        LEVEL1 / "rank0_ascend_pt" / OUTPUT, LEVEL1 / "rank1_ascend_pt" / OUTPUT,
    ],
    ids=lambda path: path.parent.name,
)  # fmt: skip
def test_times_are_those_that_the_profiler_gives_itself(folder: Path) -> None:
    profile = profile_of(folder, "kernel_details.csv", "communication.json", "step_trace_time.csv")
    (trace,), (own,) = profile.traces, profile.own_times
    found = exposure_of(trace)
    assert found.step == own.step
    assert length_ns(found.compute) == pytest.approx(own.compute_ns, rel=WITHIN)
    assert found.exposed_ns == pytest.approx(own.exposed_ns, rel=WITHIN)
    assert found.communication_ns == pytest.approx(own.communication_ns, rel=WITHIN)
    assert found.overlapped_ns == pytest.approx(own.overlapped_ns, rel=WITHIN)


@pytest.mark.parametrize("rank", [1, 3])
def test_without_kernels_only_communication_is_told_and_nothing_called_exposed(rank: int) -> None:
    """These two ranks of the sample have no kernel_details.csv: their compute is not known."""
    folder = LEVEL2 / f"rank_{rank}_ascend_pt" / OUTPUT
    profile = profile_of(folder, "communication.json", "step_trace_time.csv")
    (trace,), (own,) = profile.bare, profile.own_times
    assert (profile.traces, trace.global_rank) == ((), rank)
    assert exposure_of(trace).communication_ns == pytest.approx(own.communication_ns, rel=WITHIN)
    found = trace_evidence(folder / name for name in ("communication.json",))
    assert found.activities == ()
    assert [one.code for one in found.missing] == ["missing.trace_compute"]


@pytest.mark.parametrize("rank", [0, 1])
def test_text_table_view_and_database_agree(rank: int) -> None:
    folder = LEVEL1 / f"rank{rank}_ascend_pt" / OUTPUT
    (table,) = profile_of(folder, "kernel_details.csv").traces
    (view,) = profile_of(folder, "trace_view.json").traces
    assert length_ns(exposure_of(view).compute) == length_ns(exposure_of(table).compute)
    assert exposure_of(view).communication_ns == pytest.approx(
        exposure_of(table).communication_ns, rel=1e-6
    )
    (base,) = profile_of(ASCEND / "db_level1", f"ascend_pytorch_profiler_{rank}.db").traces
    calls = [one.call for one in base.slices if one.call is not None]
    assert [(one.op, one.size_bytes) for one in calls] == [
        (Op.ALL_REDUCE, n * 4) for n in (4097000, 16781312, 37752832, 2469696)
    ]
    assert (base.global_rank, view.global_rank, table.global_rank) == (rank, rank, rank)


def test_databases_of_several_ranks_lie_in_one_folder() -> None:
    found = trace_evidence(sorted((ASCEND / "db_level1").iterdir()))
    assert {one.global_rank for one in found.activities} == {0, 1}
    assert found.unread == ()


def test_groups_have_the_names_and_members_of_the_metadata() -> None:
    folder = LEVEL2 / "rank_2_ascend_pt" / OUTPUT
    (trace,) = profile_of(folder, "kernel_details.csv", "communication.json").traces
    calls = {(one.call.desc, one.call.members) for one in trace.slices if one.call is not None}
    assert calls == {
        ("default_group", "0-3"), ("dp", "2-3"), ("dp_cp", "2-3"), ("mp", "0,2"), ("pp", "0,2"),
        ("embd", "0,2"), ("tp", "2"),
    }  # fmt: skip
    assert (trace.global_rank, trace.world_size) == (2, 4)


def test_links_are_rows_of_bandwidth_between_global_ranks() -> None:
    profile = profile_of(LEVEL2 / "rank_2_ascend_pt" / OUTPUT, "communication_matrix.json")
    large = {
        (one.op, one.ranks, one.transport, round(one.busbw_gbs))
        for one in profile.links
        if one.size_bytes > 1 << 24
    }
    assert (Op.REDUCE_SCATTER, (2, 3), "HCCS", 19) in large
    assert {transport for _, _, transport, _ in large} == {"HCCS"}


def test_the_table_of_a_cluster_has_its_ranks() -> None:
    path = SAMPLES / "ascend-msprof-analyze/cluster_step_trace_time.csv"
    with path.open("rb") as stream:
        found = read_step_trace_time(stream, path=str(path))
    assert [one.rank for one in found] == list(range(8))
    assert found[0].exposed_ns == 683_731_289
    assert found[0].bubble_ns == 0
    assert found[0].preparing_ns == -1  # no such column
