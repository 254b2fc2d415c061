"""The metadata document: what it says of named and of nameless runs, and how it is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from comminsight.capture.session import SessionData
from comminsight.errors import InputError
from comminsight.model.metadata import METADATA_SCHEMA_VERSION, RoleSource, RunMetadata
from comminsight.model.ops import CommRole
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.metadata import NAME, read_metadata, write_metadata
from comminsight.pipeline.simulated import simulated_sessions
from comminsight.report.catalogue import catalogue
from comminsight.report.json_form import schema
from comminsight.report.text import layout_text, render_report
from comminsight.run import Run, run_of_sessions
from comminsight.sim import SimLayout, fsdp2_layout, megatron_core_layout, simulate
from tests.builders.json_schema import violations

LAYOUT = megatron_core_layout(2, 2, 2, has_dist_opt=True)


def nameless(session: SessionData) -> SessionData:
    """As NCCL's plugin alone would have recorded it, with a device."""
    comms = session.comms.copy()
    comms["name"], comms["desc"], comms["members"] = b"", b"", b""
    comms["device_number"] = session.identity.local_rank + 1
    comms["pci_bus_id"] = b"0000:1b:00.0"
    identity = msgspec.structs.replace(session.identity, versions={"nccl": "2.27.5"})
    return replace(session, comms=comms, identity=identity)


def run_of(layout: SimLayout, *, has_names: bool = True) -> Run:
    sessions = simulated_sessions(simulate(layout, steps=4, seed=1))
    return run_of_sessions(sessions if has_names else [nameless(s) for s in sessions])


@pytest.fixture(scope="module")
def document() -> RunMetadata:
    return run_of(LAYOUT, has_names=False).metadata(is_fresh=True)


def test_a_nameless_run_has_inferred_roles_with_their_evidence(document: RunMetadata) -> None:
    by_role = {comm.role: comm for comm in document.communicators}
    assert {CommRole.TP, CommRole.PP, CommRole.DP, CommRole.MP} <= by_role.keys()
    tensor = by_role[CommRole.TP]
    assert tensor.role_source is RoleSource.INFERRED
    assert 0.5 <= tensor.role_confidence < 1
    assert "between_all_transfers" in tensor.role_evidence
    assert tensor.members in {"0-1", "2-3", "4-5", "6-7"}


def test_ranks_carry_host_device_and_coordinates(document: RunMetadata) -> None:
    assert document.hosts == {"node0": "0-7"}
    last = document.ranks[-1]
    assert (last.global_rank, last.host, last.device) == (7, "node0", "7 (0000:1b:00.0)")
    assert last.coordinates == {"tp": 1, "dp": 1, "pp": 1}
    assert document.layout.order == "tp2-dp2-pp2"
    assert document.layout.is_complete
    assert document.versions == {"nccl": ("2.27.5",)}


def test_the_template_that_won_is_there_with_the_scores_of_all(document: RunMetadata) -> None:
    (use,) = document.templates
    assert (use.template, use.ranks, use.n_steps) == ("megatron", "0-7", 4)
    assert [score.template for score in use.scores if score.is_chosen] == ["megatron"]
    assert use.version == next(s.version for s in use.scores if s.is_chosen)


def test_names_give_roles_that_are_sure() -> None:
    found = run_of(LAYOUT).metadata(is_fresh=True)
    assert {c.role_source for c in found.communicators} == {RoleSource.NAMED}
    assert {c.role_confidence for c in found.communicators} == {1.0}
    assert found.layout.order == "tp2-dp2-pp2"
    assert not any(d.is_inferred for d in found.layout.dimensions)


def test_the_document_is_kept_as_it_is_and_fits_its_schema(
    tmp_path: Path, document: RunMetadata
) -> None:
    paths = RunPaths(tmp_path)
    assert read_metadata(paths) is None
    path = write_metadata(paths, document)
    assert path == tmp_path / "metadata" / NAME
    first = path.read_bytes()
    assert read_metadata(paths) == document
    assert write_metadata(paths, document).read_bytes() == first
    assert violations(json.loads(first), schema("run-metadata")) == []


def test_a_damaged_document_is_named_and_one_of_another_version_is_made_again(
    tmp_path: Path, document: RunMetadata
) -> None:
    paths = RunPaths(tmp_path)
    path = write_metadata(paths, document)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"run\.json: is no metadata"):
        read_metadata(paths)
    major = int(METADATA_SCHEMA_VERSION.partition(".")[0]) + 1
    write_metadata(paths, msgspec.structs.replace(document, schema_version=f"{major}.0.0"))
    assert read_metadata(paths) is None


def test_the_report_shows_the_layout_and_marks_inferred_roles() -> None:
    run = run_of(LAYOUT, has_names=False)
    text = render_report(run.report(), width=200)
    assert "TP 2 x DP 2 x PP 2 (told from the ops, confidence" in text
    assert "carry a role that no name gave" in text
    assert any(c.label.startswith("TP? ") for c in run.trace.communicators)
    told = layout_text(run_of(fsdp2_layout(4)).report().layout, catalogue("zh"))
    assert told.startswith("DP 4（由算子推断，置信度不低于 ")
