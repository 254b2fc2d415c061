"""The whole report: hotspot, what is odd, what is not known; from traces and from records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.cli import exposed
from comminsight.errors import InputError
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import ExposureSource
from comminsight.model.ops import Op
from comminsight.pipeline.exposed import exposed_in_files, exposed_in_run, exposed_report
from comminsight.report.exposed_text import render_exposed
from comminsight.report.json_form import exposed_json
from comminsight.sim import megatron_layout, simulate
from tests.builders.activities import comm, compute
from tests.builders.kineto import TORCH, rank_trace, write_traces
from tests.laws.test_healthy_simulated import rebuilt


def two_ranks() -> list[Activity]:
    return [
        one
        for rank in range(2)
        for one in (
            compute(rank, 0, 300),
            comm(rank, Op.ALL_REDUCE, 250, 100 + 100 * rank, size_bytes=4096),
            comm(rank, Op.ALL_GATHER, 600, 10, size_bytes=64),
        )
    ]


def test_the_hotspot_is_that_with_the_most_exposed_time() -> None:
    report = exposed_report(two_ranks(), ExposureSource.TRACE, world_size=2)
    first, second = report.ops
    assert (first.op, first.exposed_ns, second.op, second.exposed_ns) == (
        "all_reduce", 200_000, "all_gather", 20_000,
    )  # fmt: skip
    assert first.share_ratio == pytest.approx(200 / 220)
    assert first.overlap_ratio == pytest.approx(100 / 300)
    assert (report.rank_imbalance_observed, len(report.steps)) == (True, 1)
    assert [one.exposed_ns for one in report.ranks] == [60_000, 160_000]
    text = render_exposed(report)
    assert "all_reduce has the most exposed time: 200 us over 2 ranks, 91%" in text
    assert render_exposed(report, lang="zh") != text
    assert json.loads(exposed_json(report))["ops"][0]["op"] == "all_reduce"


def test_no_communication_of_several_ranks_is_a_finding_and_no_percentage() -> None:
    trace = [compute(rank, 0, 300) for rank in range(2)]
    report = exposed_report(trace, ExposureSource.TRACE, world_size=2)
    assert [one.code for one in report.findings] == ["evidence.no_communication_seen"]
    text = render_exposed(report)
    assert "No communication found" in text
    assert "0%" not in text


def test_kernels_of_unknown_names_are_named_where_nothing_communicates(tmp_path: Path) -> None:
    strange = [
        comm(rank, Op.UNKNOWN, 10, 5, name="my_p2p_copy", comm_label="") for rank in range(2)
    ]
    own = [replace(one, kind=ActivityKind.OTHER) for one in strange]
    report = exposed_report(own, ExposureSource.TRACE, world_size=2)
    (finding,) = report.findings
    assert finding.code == "evidence.no_communication_named"
    assert finding.params == {"n_ranks": 2, "n_kernels": 2, "names": ["my_p2p_copy"]}


def test_traces_on_disk_without_communication_are_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_traces(tmp_path, [compute(rank, 0, 300) for rank in range(2)], 2)
    assert exposed.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "No communication found" in text
    assert "though the job has 2 ranks" in " ".join(text.split())
    assert "0%" not in text
    assert exposed.main([str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in told["findings"]] == ["evidence.no_communication_seen"]
    assert {one["overlap_ratio"] for one in told["ranks"]} == {None}
    assert (told["ops"], told["owners"], told["rank_imbalance_ratio"]) == ([], [], None)


def test_a_rank_without_communication_beside_others_is_named() -> None:
    trace = [*two_ranks(), compute(2, 0, 300)]
    report = exposed_report(trace, ExposureSource.TRACE, world_size=3)
    assert [(one.code, one.params) for one in report.findings] == [
        ("evidence.no_communication_ranks", {"ranks": [2]})
    ]
    assert "no communication of rank 2, though others have some" in render_exposed(report)
    assert exposed_report(two_ranks(), ExposureSource.TRACE, world_size=2).findings == ()


def test_one_rank_alone_may_have_none() -> None:
    report = exposed_report([compute(0, 0, 300)], ExposureSource.TRACE, world_size=1)
    assert (report.findings, report.rank_imbalance_ratio) == ((), None)


def test_without_compute_nothing_is_told_of_overlap() -> None:
    trace = [one for one in two_ranks() if one.op]
    report = exposed_report(trace, ExposureSource.RECORDS, world_size=2)
    assert {one.overlap_ratio for one in (*report.ops, *report.ranks)} == {None}
    assert "missing.compute" in {one.code for one in report.missing}


def test_labels_of_one_rank_alone_name_no_communicator() -> None:
    trace = [comm(rank, Op.ALL_REDUCE, 0, 10, comm_label=f"stream {rank}") for rank in range(2)]
    trace += [comm(rank, Op.ALL_REDUCE, 20, 10, comm_label="tp") for rank in range(2)]
    report = exposed_report(trace, ExposureSource.TRACE, world_size=2)
    assert {one.comm_label: one.n_calls for one in report.ops} == {"": 2, "tp": 2}


def test_traces_on_disk(tmp_path: Path) -> None:
    for rank in range(2):
        own = [one for one in two_ranks() if one.global_rank == rank]
        (tmp_path / f"{rank}.json").write_text(json.dumps(rank_trace(rank, 2, own, TORCH)))
    report = exposed_in_files([tmp_path])
    assert (report.source, report.world_size) == (ExposureSource.TRACE, 2)
    assert (report.ops[0].op, report.ops[0].exposed_ns) == ("all_reduce", 200_000)


def test_what_is_no_trace_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("step 1\n")
    with pytest.raises(InputError, match="no trace with device activities"):
        exposed_in_files([tmp_path])


def test_ops_between_steps_are_counted() -> None:
    trace = rebuilt(simulate(megatron_layout(1, 1, 2), steps=6, seed=3))
    report = exposed_in_run(trace)
    n_shown = sum(one.n_calls for one in report.ops)
    told = [one.params["n"] for one in report.missing if one.code == "missing.ops_between_steps"]
    assert n_shown + sum(told) == sum(len(rank.ops) for rank in trace.ranks)
    assert n_shown > 0
