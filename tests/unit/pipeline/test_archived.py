"""Metadata of a run that is only there as exported tables: written, made again, read back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from comminsight.cli.rebuild import main as rebuild
from comminsight.errors import InputError
from comminsight.model.metadata import RoleSource, RunMetadata
from comminsight.pipeline.archived import archived_sessions, write_archived_metadata
from comminsight.pipeline.export import export_parquet
from comminsight.pipeline.simulated import simulated_sessions
from comminsight.run import Run, open_run, run_of_sessions
from comminsight.sim import SimLayout, megatron_core_layout, moe_layout, simulate
from tests.unit.pipeline.test_metadata import nameless


def exported(target: Path, layout: SimLayout, *, has_metadata: bool = True) -> RunMetadata:
    """Tables of a run without names, and its metadata."""
    sessions = simulated_sessions(simulate(layout, steps=4, seed=1))
    run: Run = run_of_sessions([nameless(session) for session in sessions])
    document = run.metadata(is_fresh=True)
    export_parquet(run.sessions, run.trace, target, document if has_metadata else None)
    return document


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_metadata_of_an_export_are_those_of_its_run(tmp_path: Path) -> None:
    document = exported(tmp_path, megatron_core_layout(2, 2, 2))
    assert open_run(tmp_path).metadata() == document
    assert document.layout.order == "tp2-dp2-pp2"
    before = files(tmp_path)
    exported(tmp_path, megatron_core_layout(2, 2, 2))
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "layout", [megatron_core_layout(2, 2, 2, has_dist_opt=True), moe_layout(8, 4)]
)
def test_a_rebuild_from_tables_alone_gives_the_metadata_of_the_run(
    tmp_path: Path, layout: SimLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    document = exported(tmp_path, layout, has_metadata=False)
    with pytest.raises(InputError, match="exported tables"):
        open_run(tmp_path).metadata()
    assert rebuild([str(tmp_path), "--workers", "1"]) == 0
    assert "8 sessions" in capsys.readouterr().out
    found = open_run(tmp_path).metadata()
    assert found == document
    assert RoleSource.INFERRED in {comm.role_source for comm in found.communicators}
    before = files(tmp_path)
    assert rebuild([str(tmp_path), "--workers", "1"]) == 0
    assert files(tmp_path) == before


def test_versions_that_only_the_launcher_knew_stay(tmp_path: Path) -> None:
    document = exported(tmp_path, megatron_core_layout(1, 1, 4, has_dist_opt=True))
    known = msgspec.structs.replace(document, versions={"driver": ("550.1",), "nccl": ("2.27.3",)})
    write_archived_metadata(tmp_path, known)
    write_archived_metadata(tmp_path, document)
    assert open_run(tmp_path).metadata().versions == {
        "driver": ("550.1",), "nccl": ("2.27.3", "2.27.5"),
    }  # fmt: skip


def test_tables_give_all_that_was_recorded_of_an_op_and_no_report(tmp_path: Path) -> None:
    run = simulate(megatron_core_layout(2, 1, 2), steps=3, seed=1)
    exported(tmp_path, run.layout)
    for session, rank in zip(archived_sessions(tmp_path), run.ranks, strict=True):
        assert session.identity.global_rank == rank.session.global_rank
        assert session.complete_from_seq == 0
    whole = simulate(run.layout, steps=4, seed=1)
    found, recorded = archived_sessions(tmp_path)[0].records, whole.ranks[0].records
    for name in set(recorded.dtype.names or ()) - {"seq_low"}:
        assert found[name].tolist() == recorded[name].tolist()
    with pytest.raises(InputError, match="exported tables"):
        open_run(tmp_path).report()
