"""Names to roles."""

from __future__ import annotations

import pytest

from comminsight.model.ops import Backend, CommRole
from comminsight.semantics.roles import role_of


@pytest.mark.parametrize(
    ("name", "desc", "role"),
    [
        ("3", "TENSOR_MODEL_PARALLEL_GROUP", CommRole.TP),
        ("4", "PIPELINE_MODEL_PARALLEL_GROUP", CommRole.PP),
        ("5", "DATA_PARALLEL_GROUP_WITH_CP", CommRole.DP),
        ("6", "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", CommRole.DIST_OPT),
        ("7", "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1", CommRole.CP),
        ("8", "EXPERT_MODEL_PARALLEL_GROUP", CommRole.EP),
        ("8", "DATA_PARALLEL_GROUP_GLOO", CommRole.CPU),
        ("9", "mesh_tp", CommRole.TP),
        ("9", "mesh_dp_shard", CommRole.DP_SHARD),
        ("9", "mesh_dp_replicate", CommRole.DP_REPLICATE),
        ("9", "mesh_efsdp", CommRole.EDP),
        ("9", "mesh_loss_mesh", CommRole.LOSS),
        ("tp:device", "", CommRole.TP),
        ("moe_ep:device", "", CommRole.EP),
        ("tp:cpu", "", CommRole.CPU),
        ("mesh_pp:12", "", CommRole.PP),
    ],
)
def test_a_name_gives_the_role(name: str, desc: str, role: CommRole) -> None:
    assert role_of(name, desc, Backend.NCCL, 2, 8) == (role, False)


def test_the_default_group_is_global_only_when_it_spans_the_world() -> None:
    assert role_of("0", "default_pg", Backend.GLOO, 8, 8) == (CommRole.GLOBAL, False)
    assert role_of("0", "", Backend.GLOO, 8, 8) == (CommRole.GLOBAL, False)
    # the 2-rank communicator of an unbatched send carries the name of its group
    assert role_of("default_pg:0", "", Backend.NCCL, 2, 8) == (CommRole.UNKNOWN, True)
    assert role_of("1", "default_pg:split:1", Backend.NCCL, 4, 8) == (CommRole.UNKNOWN, True)


@pytest.mark.parametrize("desc", ["undefined", "", "my_group"])
def test_an_unknown_name_stays_unknown_unless_it_spans_the_world(desc: str) -> None:
    assert role_of("7", desc, Backend.NCCL, 4, 8) == (CommRole.UNKNOWN, True)
    assert role_of("7", desc, Backend.NCCL, 8, 8) == (CommRole.GLOBAL, True)
    assert role_of("7", desc, Backend.NCCL, 8, -1) == (CommRole.UNKNOWN, True)
